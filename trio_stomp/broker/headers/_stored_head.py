"""Header blocks in the store: readable lines, escaped as in STOMP 1.2."""

from trio_stomp.frames import SEND, UNTIL_NUL, V1_2, FrameLimits, Head, encode_header, parse_head

_UNBOUNDED = FrameLimits(max_body_bytes=1 << 60, max_headers=1 << 30, max_header_line_bytes=1 << 30)
"""No limits: a stored header block was accepted before, maybe with higher limits."""
_LENGTH = "content-length"


def encode_head(head: Head) -> bytes:
    """Return all headers of a SEND, one on each line."""
    lines = [encode_header(name, text, V1_2) for name, text in head.headers if name != _LENGTH]
    if head.content_length != UNTIL_NUL:
        lines.append(b"%b:%d\n" % (_LENGTH.encode(), head.content_length))
    return b"".join(lines)


def decode_head(lines: bytes) -> Head:
    """Return the header block that ``encode_head`` wrote."""
    head = parse_head(b"SEND\n" + lines.rstrip(b"\n"), V1_2, _UNBOUNDED)
    return Head(SEND, head.headers, head.content_length, head.destination)
