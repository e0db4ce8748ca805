"""The hot frames of a publisher: one header block, again and again."""


def take_repeats(data: bytes, position: int, start: int, end: int, bodies: list[bytes]) -> int:
    """Append the bodies of the whole frames behind one that have its header block and length.

    To compare with that block costs a third of finding the next one's end and looking it up.
    Whatever else stands there, noise or an error, is left to those who look closely.

    Args:
      data: The bytes.
      position: Where the frame begins.
      start: Where its body begins.
      end: Where its NUL stands; its content-length says so.
      bodies: The bodies found are appended here.

    Returns:
      Where the first frame stands that was not taken.
    """
    block = data[position:start]
    size, lead, length = len(data), start - position, end - start
    position = end + 1
    while data.startswith(block, position):
        start = position + lead
        end = start + length
        if end >= size or data[end]:
            break
        bodies.append(data[start:end])
        position = end + 1
    return position
