"""Fast parser for runs of small, complete, masked WebSocket frames, which nearly all frames are."""

from trio_stomp.transport.websocket._websocket_frames import BINARY, TEXT, is_utf8

# Frames up to this size are buffered until they are complete. For larger ones a big-integer XOR is
# not faster than wsproto, and buffering incomplete frames would invite attacks on memory.
MAX_WHOLE_BYTES = 8191
SMALLEST_MASKED_FRAME = 6


_from_bytes = int.from_bytes


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
