"""Hooks of conf/mkdocs.yml that add files outside docs to the site.

The pages link to the README and other files outside docs, as they are also read without a site. The
hooks turn those in PAGES into pages, copy the other files, and rewrite the links.
"""

import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

PAGES = {
    "README.md": "readme.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}
COPIES = "files/"
LESS_SOUGHT = (
    *("design.md", "inside/", "start/how-do-i.md", "changes.md"),
    *("reference/conformance.md", "reference/features-that-meet.md", "migrate/"),
)
"""Prefixes of pages that mention every subject, which a search ranks below a subject's own page."""
BOOST = 0.3

_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
_ELSEWHERE = re.compile(r"[a-z]+:")


class File(Protocol):
    """A file of the site, as mkdocs has it."""

    src_uri: str


class Page(Protocol):
    """A page under construction, as mkdocs has it."""

    file: File
    meta: dict[str, object]


class Files(Protocol):
    """All files of the site, as mkdocs has them."""

    def append(self, file: File) -> None:
        """Append a file."""


def on_files(files: Files, config: Any) -> Files:  # noqa: ANN401
    """Add the pages and files outside docs. Called by mkdocs."""
    generated = import_module("mkdocs.structure.files").File.generated
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(generated(config, page, content=moved(text, ROOT)))
    for source in sorted(linked_files()):
        content = (ROOT / source).read_bytes()
        files.append(generated(config, f"{COPIES}{source}", content=content))
    return files


# mkdocs passes them by name.
def on_page_markdown(markdown: str, page: Page, config: object, files: object) -> str:  # noqa: ARG001
    """Rewrite the links of a page for the site, and rank it in the search. Called by mkdocs."""
    if page.file.src_uri.startswith(LESS_SOUGHT):
        page.meta["search"] = {"boost": BOOST}
    if page.file.src_uri in PAGES.values():
        return markdown  # done already
    return moved(markdown, (DOCS / page.file.src_uri).parent)


def moved(markdown: str, home: Path) -> str:
    """Return the text of a page in ``home`` with links as the site needs them."""

    def replaced(found: "re.Match[str]") -> str:
        before, target, after = found.groups()
        return before + place_of(target, home) + after

    return _LINK.sub(replaced, markdown)


def place_of(target: str, home: Path) -> str:
    """Return the site's relative path to the target of a link on a page in ``home``."""
    source = _source(target, home)
    if source is None:
        return target
    if source.startswith("docs/"):
        place = source.removeprefix("docs/")
    else:
        place = PAGES.get(source, f"{COPIES}{source}")
    folder = home.relative_to(DOCS) if home.is_relative_to(DOCS) else Path()
    return Path(os.path.relpath(place, folder)).as_posix()


def linked_files() -> set[str]:
    """Return the files of the source that pages link to, and that are no pages themselves."""
    sources = [*DOCS.rglob("*.md"), *(ROOT / name for name in PAGES)]
    found = {
        _source(link[1], path.parent)
        for path in sources
        for link in _LINK.findall(path.read_text(encoding="utf-8"))
    }
    return {
        source
        for source in found
        if source is not None and not source.startswith("docs/") and source not in PAGES
    }


def _source(target: str, home: Path) -> str | None:
    """Return a linked file's path from the root, or None for other links."""
    if _ELSEWHERE.match(target):
        return None
    path = Path(os.path.normpath(home / target))
    if not path.is_file() or ROOT not in path.parents:
        return None  # mkdocs warns of it
    return path.relative_to(ROOT).as_posix()
