"""The buffer for an incomplete frame."""

from attrs import define, field

PIECE_BYTES = 16 * 1024
"""Smaller pieces are joined, to save an object for each."""


@define(eq=False)
class HeldBytes:
    """A buffer that returns all its bytes at once.

    No memory is allocated for announced bytes. A growing body is not copied repeatedly: unless the
    bytes are to be searched, large pieces are joined only by ``take``.

    Args:
      start: The first bytes; all bytes while they are to be searched.
      size: Number of bytes.
    """

    start: bytearray = field(factory=bytearray)
    size: int = 0
    _pieces: list[bytes | bytearray] = field(factory=list)
    """The bytes after ``start``."""

    def add(self, data: bytes, *, searched: bool) -> None:
        """Append bytes.

        Args:
          data: The bytes.
          searched: Append them to ``start``; requires that all earlier bytes were.
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
        """Return all bytes, and clear the buffer."""
        data = b"".join((self.start, *self._pieces)) if self._pieces else bytes(self.start)
        self.start.clear()
        self._pieces.clear()
        self.size = 0
        return data
