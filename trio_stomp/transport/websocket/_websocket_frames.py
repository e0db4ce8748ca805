"""WebSocket frames: encodes headers, messages, and headers within a fan-out; splits masked runs.

The parser is for runs of small, complete, masked frames, which nearly all received frames are.
"""

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

# Masked frames up to this size are buffered until they are complete. For larger ones a big-integer
# XOR is not faster than wsproto, and buffering incomplete frames would invite attacks on memory.
MAX_WHOLE_BYTES = 8191
SMALLEST_MASKED_FRAME = 6

_from_bytes = int.from_bytes


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


def cut_run(
    data: bytes, position: int, max_bytes: int
) -> tuple[int, int, list[bytes], list[bytes]]:
    """Split the run of small, complete messages at ``position`` in ``data``.

    Returns:
      The end of the run, the bitwise OR of all opcode bytes, the masked payloads, and their masks,
      each repeated to the length of its payload.
    """
    size = len(data)
    last = size - SMALLEST_MASKED_FRAME
    longest = min(MAX_WHOLE_BYTES, max_bytes)
    payloads: list[bytes] = []
    keys: list[bytes] = []
    opcodes = 0
    while position <= last:
        opcode = data[position]
        length = data[position + 1] - 128  # negative if the frame is not masked
        if 0 <= length < 126:
            start = position + 6
        elif length == 126:
            length = data[position + 2] << 8 | data[position + 3]
            start = position + 8
            if length < 126:  # not the shortest form
                break
        else:
            break
        end = start + length
        if end > size or length > longest or not TEXT <= opcode <= BINARY:
            break
        payloads.append(data[start:end])
        keys.append((data[start - 4 : start] * ((length >> 2) + 1))[:length])
        opcodes |= opcode
        position = end
    return position, opcodes, payloads, keys


def unmask(payload: bytes, key: bytes) -> bytes:
    unmasked = _from_bytes(payload, "little") ^ _from_bytes(key, "little")
    return unmasked.to_bytes(len(payload), "little")


def valid_bytes(data: bytes, position: int, payload: bytes, frames: list[bytes]) -> int:
    """Return the size of ``payload`` before the first text frame that is not UTF-8.

    Args:
      data: The bytes received.
      position: Position of the first frame in ``data``.
      payload: The payloads of the frames, unmasked and joined.
      frames: The masked payloads of the frames.
    """
    done = 0
    for frame in frames:
        length = len(frame)
        if data[position] == TEXT and not is_utf8(payload[done : done + length]):
            break
        done += length
        position += length + (6 if length < 126 else 8)
    return done
