"""The bytes of a frame that is not complete yet."""

from attrs import define, field

PIECE_BYTES = 16 * 1024
"""What comes in smaller pieces than this is copied together: each is an object of its own."""


@define(eq=False)
class HeldBytes:
    """Bytes in the order in which they came, to be taken all at once.

    Nothing is taken for bytes that have only been announced, and a large body is not copied again
    and again as it grows: where nobody searches, large pieces stay as they are until ``take``.

    Args:
      start: What came first; all of it, as long as it is to be searched.
    """

    start: bytearray = field(factory=bytearray)
    size: int = 0
    _pieces: list[bytes | bytearray] = field(factory=list)
    """What came behind ``start``."""

    def add(self, data: bytes, *, searched: bool) -> None:
        """Keep ``data`` behind what is there.

        Args:
          data: The bytes.
          searched: It is to be found in ``start``; so must all have been that is there.
        """
        self.size += len(data)
        pieces = self._pieces
        if len(data) >= PIECE_BYTES and not searched:
            pieces.append(data)
        elif not pieces:
            self.start += data
        elif isinstance(last := pieces[-1], bytearray):
            last += data
        else:
            pieces.append(bytearray(data))

    def take(self) -> bytes:
        """Return all bytes held, and clear the buffer."""
        data = b"".join((self.start, *self._pieces)) if self._pieces else bytes(self.start)
        self.start.clear()
        self._pieces.clear()
        self.size = 0
        return data
