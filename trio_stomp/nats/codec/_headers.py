"""The header block of a NATS message (ADR-4): an optional status, and lines of name and value."""

from collections.abc import Mapping

from attrs import frozen

from trio_stomp.nats.codec._errors import NatsError, NatsProtocolError

_VERSION = b"NATS/1.0"
_FORBIDDEN = frozenset(b"\r\n")


@frozen
class Headers:
    """A parsed header block.

    Args:
      status: Status of an answer without a payload, as in HTTP; 0 = none.
      description: The text after the status.
      fields: Values by name; of a repeated name, the first.
    """

    status: int
    description: str
    fields: Mapping[bytes, bytes]


def encode_headers(fields: Mapping[bytes, bytes]) -> bytes:
    """Return a header block with ``fields``.

    Raises:
      NatsError: a name or value is not allowed in a header, by the caller's fault.
    """
    for name, content in fields.items():
        if not name or b":" in name or _FORBIDDEN.intersection(name + content):
            raise NatsError(f"{name[:40]!r}: {content[:40]!r} cannot be a header of a NATS message")
    lines = [b"%b: %b\r\n" % item for item in fields.items()]
    return b"%b\r\n%b\r\n" % (_VERSION, b"".join(lines))


def parse_headers(block: bytes) -> Headers:
    """Return the content of a header block. That of b"" is empty.

    Raises:
      NatsProtocolError: it is not a header block.
    """
    if not block:
        return Headers(0, "", {})
    first, *lines = block.split(b"\r\n")
    if not first.startswith(_VERSION) or lines[-2:] != [b"", b""]:
        raise NatsProtocolError(f"the server sent headers that are none: {block[:80]!r}")
    status, _, description = first[len(_VERSION) :].strip().partition(b" ")
    fields: dict[bytes, bytes] = {}
    for line in lines[:-2]:
        name, colon, content = line.partition(b":")
        if not colon:
            raise NatsProtocolError(f"the server sent a header without a colon: {line[:80]!r}")
        fields.setdefault(name, content.strip())
    return Headers(
        int(status) if status.isdigit() and len(status) == 3 else 0,
        description.decode("utf-8", "replace").strip(),
        fields,
    )
