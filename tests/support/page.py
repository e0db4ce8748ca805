"""Checks that an HTML page is well-formed and self-contained."""

import re
from html.parser import HTMLParser


class Page(HTMLParser):
    """Records the resources that a page would load, and tags that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href")]
        if tag in ("script", "link", "iframe"):
            self.loaded.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_page(html: str) -> None:
    page = Page()
    page.feed(html)
    page.close()
    assert (page.open, page.loaded) == ([], [])
    assert "url(" not in html
    used, known = set(re.findall(r"var\((--\w+)\)", html)), set(re.findall(r"(--\w+):", html))
    assert used <= known
