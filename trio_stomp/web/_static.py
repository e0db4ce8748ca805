"""The dashboard: files of this package, read once, answered from memory."""

import hashlib
import html
from collections.abc import Mapping
from importlib.resources import files
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

# The page runs the scripts of this address and talks to this address: whatever slipped into it
# could neither run nor load nor tell. A string that becomes markup is an error (trusted types).
# 'self' covers the WebSocket of the same host and port (CSP 3, section 6.7.2.8).
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)


@frozen
class StaticFile:
    """One file, and what its answers say of it.

    Args:
      content: As it is sent.
      headers: Of its answers.
      tag: Its entity tag, quoted: of other content another one.
    """

    content: bytes
    headers: tuple[tuple[str, str], ...]
    tag: str

    @classmethod
    def of(cls, name: str, content: bytes) -> "StaticFile":
        """Return the file called ``name``, whose ending is one of ``TYPES``."""
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = [
            ("Content-Type", TYPES[name[name.rindex(".") :]]),
            # Kept, but asked for each time: a new broker must not meet the page of an old one.
            ("Cache-Control", "no-cache"),
            ("ETag", tag),
        ]
        if name == INDEX:
            headers.append(("Content-Security-Policy", _PAGE_POLICY))
        return cls(content, tuple(headers), tag)

    def answer(self, request: HttpRequest) -> bytes:
        """Return the whole answer to a GET or HEAD: 304 if the client has it (RFC 9110, 13.1.2)."""
        offers = b",".join(request.values(b"if-none-match")).split(b",")
        # The comparison is weak: what a proxy made W/"…" of is the same file.
        known = {offer.strip().removeprefix(b"W/") for offer in offers}
        is_known = self.tag.encode() in known or known == {b"*"}
        return encode_response(
            304 if is_known else 200,
            self.headers,
            self.content,
            # A 304 tells the length that a 200 would have, and has no body (RFC 9110, 15.4.5).
            head_only=is_known or request.method == "HEAD",
        )


def read_files(version: str, address: str) -> dict[str, StaticFile]:
    """Return all files of the dashboard by path. No other path leads to a file.

    Args:
      version: Of the broker, for people.
      address: Where it listens, for people whose browser runs no scripts.
    """
    found = {}
    for entry in files("trio_stomp.web").joinpath("static").iterdir():
        content = entry.read_bytes()
        if entry.name == INDEX:
            # Quoted: an address may come from whoever started the broker with a strange name.
            page = Template(content.decode()).substitute(
                version=html.escape(version), address=html.escape(address)
            )
            found["/"] = StaticFile.of(INDEX, page.encode(errors="replace"))
        else:
            found[f"/static/{entry.name}"] = StaticFile.of(entry.name, content)
    return found
