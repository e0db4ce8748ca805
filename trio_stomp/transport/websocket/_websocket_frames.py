"""WebSocket frames to be sent: headers, whole messages, and headers spliced into a fan-out."""

from struct import Struct

TEXT = 0x81
BINARY = 0x82
CLOSE = 0x88
PING = 0x89
PONG = 0x8A

NO_CODE = 1005
"""What a Close without a code means (RFC 6455 section 7.1.5)."""
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
    """Return ``data``, one whole STOMP frame, as one WebSocket message.

    Args:
      data: The payload.
      mode: ``auto`` and ``text`` send text where the frame is valid UTF-8, for a text message
        that is not would end the peer (RFC 6455 section 8.1); ``binary`` never sends text.
    """
    opcode = TEXT if mode != "binary" and is_utf8(data) else BINARY
    return frame_header(opcode, len(data)) + data


def splice(tails: list[bytes], prefix_length: int, mode: str) -> list[bytes]:
    """Put the WebSocket headers into a list of tails that a subscriber's prefix will join.

    Over TCP ``prefix.join(tails)`` is the wire. Of the list returned, ``prefix.join`` is the
    same STOMP frames with each in a message of its own, so the writer needs no second way.

    Args:
      tails: An empty one, then what follows the prefix in each frame; it is not changed.
      prefix_length: Bytes of the prefix, which is valid UTF-8: only tails decide text or binary.
      mode: As in ``frame_message``.
    """
    may_be_text = mode != "binary"
    spliced: list[bytes] = []
    add = spliced.append
    behind = b""
    for tail in tails[1:]:
        # isascii() here and not in is_utf8 alone: the call would double the price of a frame.
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
    # A character cut in half would make the reason invalid UTF-8 (RFC 6455 section 5.5.1), and a
    # lone surrogate is no UTF-8 at all.
    text = reason.encode(errors="replace")[: MAX_CONTROL_BYTES - 2]
    text = text.decode(errors="ignore").encode()
    return frame_header(CLOSE, 2 + len(text)) + code.to_bytes(2, "big") + text
