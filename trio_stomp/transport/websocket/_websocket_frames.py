"""Encodes WebSocket frames: headers, messages, and headers within a fan-out."""

from struct import Struct

TEXT = 0x81
BINARY = 0x82
CLOSE = 0x88
PING = 0x89
PONG = 0x8A

NO_CODE = 1005
"""The code for a Close without a code (RFC 6455 section 7.1.5)."""
MAX_CONTROL_BYTES = 125

_header_16 = Struct(">BBH").pack
_header_64 = Struct(">BBQ").pack


def frame_header(opcode_byte: int, length: int) -> bytes:
    """Return the header of an unmasked frame, in the shortest form (RFC 6455 section 5.2)."""
    if length < 126:
        return bytes((opcode_byte, length))
    if length < 65536:
        return _header_16(opcode_byte, 126, length)
    return _header_64(opcode_byte, 127, length)


def frame_message(data: bytes, mode: str) -> bytes:
    """Return a WebSocket message with ``data``, which is one STOMP frame.

    Args:
      data: The payload.
      mode: ``auto`` and ``text`` send text if the frame is valid UTF-8, since peers must fail the
        connection for any other text (RFC 6455 section 8.1); ``binary`` never sends text.
    """
    opcode = TEXT if mode != "binary" and is_utf8(data) else BINARY
    return frame_header(opcode, len(data)) + data


def splice(tails: list[bytes], prefix_length: int, mode: str) -> list[bytes]:
    """Return a list of tails with WebSocket headers, for a subscriber's prefix to join.

    ``prefix.join(tails)`` is a sequence of STOMP frames. With the returned list instead, each of
    these frames is a WebSocket message of its own, so the writer is the same for both.

    Args:
      tails: An empty tail, then the rest of each frame after the prefix; not changed.
      prefix_length: Size of the prefix in bytes. It is valid UTF-8, so only tails decide the type.
      mode: ``auto``, ``text`` or ``binary``, as for ``frame_message``.
    """
    may_be_text = mode != "binary"
    spliced: list[bytes] = []
    add = spliced.append
    behind = b""
    for tail in tails[1:]:
        # isascii() is repeated here because a call of is_utf8 would double the cost of a frame.
        opcode = TEXT if may_be_text and (tail.isascii() or is_utf8(tail)) else BINARY
        add(behind + frame_header(opcode, prefix_length + len(tail)))
        behind = tail
    add(behind)
    return spliced


def is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def close_frame(code: int, reason: str) -> bytes:
    if code == NO_CODE:
        return frame_header(CLOSE, 0)
    # The reason must be valid UTF-8 (RFC 6455 section 5.5.1): no part of a character, and no lone
    # surrogate.
    text = reason.encode(errors="replace")[: MAX_CONTROL_BYTES - 2]
    text = text.decode(errors="ignore").encode()
    return frame_header(CLOSE, 2 + len(text)) + code.to_bytes(2, "big") + text
