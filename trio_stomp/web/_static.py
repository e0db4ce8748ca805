"""The files of the dashboard, read once and served from memory."""

import hashlib
import html
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template

from attrs import frozen

from trio_stomp.transport import HttpRequest, encode_response

INDEX = "index.html"
TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}

# The page may run scripts of and connect to this address only, so injected code could neither run
# nor load nor send anything. Turning a string into markup is an error (trusted types). 'self'
# covers the WebSocket of the same host and port (CSP 3, section 6.7.2.8).
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)


@frozen
class StaticFile:
    """A file and its response headers.

    Args:
      content: The content to send.
      headers: The headers of responses.
      tag: Its entity tag, quoted, which changes with the content.
    """

    content: bytes
    headers: tuple[tuple[str, str], ...]
    tag: str

    @classmethod
    def of(cls, name: str, content: bytes) -> "StaticFile":
        """Read the file ``name``, whose suffix is one of ``TYPES``."""
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = [
            ("Content-Type", TYPES[name[name.rindex(".") :]]),
            # Cached, but revalidated, so that a new broker never meets the page of an old one.
            ("Cache-Control", "no-cache"),
            ("ETag", tag),
        ]
        if name == INDEX:
            headers.append(("Content-Security-Policy", _PAGE_POLICY))
        return cls(content, tuple(headers), tag)

    def answer(self, request: HttpRequest) -> bytes:
        """Return the answer to a GET or HEAD: 304 if the client has the file (RFC 9110, 13.1.2)."""
        offers = b",".join(request.values(b"if-none-match")).split(b",")
        # A weak comparison: a tag that a proxy changed to W/"…" matches.
        tags = {offer.strip().removeprefix(b"W/") for offer in offers}
        is_fresh = self.tag.encode() in tags or tags == {b"*"}
        return encode_response(
            304 if is_fresh else 200,
            self.headers,
            self.content,
            # A 304 has the content-length of a 200, and no body (RFC 9110, 15.4.5).
            head_only=is_fresh or request.method == "HEAD",
        )


def read_files(version: str, address: str) -> dict[str, StaticFile]:
    """Read all files of the dashboard, by path.

    Args:
      version: The broker's version to show.
      address: The broker's address to show in browsers without scripts.
    """
    found = {}
    for path, entry in _entries(files("trio_stomp.web").joinpath("static"), "/static/"):
        content = entry.read_bytes()
        if entry.name == INDEX:
            # Escaped, as the configured host name may contain markup.
            page = Template(content.decode()).substitute(
                version=html.escape(version), address=html.escape(address)
            )
            found["/"] = StaticFile.of(INDEX, page.encode(errors="replace"))
        else:
            found[path] = StaticFile.of(entry.name, content)
    return found


def _entries(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    """Yield the files of a folder and of those in it, with their paths."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _entries(entry, f"{path}{entry.name}/")
        else:
            yield path + entry.name, entry
