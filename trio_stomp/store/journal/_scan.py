"""Reads the records of a file in sequence, and continues after damage."""

from collections.abc import Iterator

from attrs import define

from trio_stomp.store.disk import Files
from trio_stomp.store.journal.format import HEADER_BYTES, MARKER_BYTES, Found, parse_header

WINDOW_BYTES = 1024 * 1024
DAMAGED = 0
"""Kind of a part without valid records."""
TORN = -1
"""Kind of a record that exceeds the end of the file."""


def scan(files: Files, handle: int, marker: bytes, start: int, end: int) -> Iterator[Found]:
    """Yield the records of a file from ``start`` to ``end``, without gaps.

    The header and front of a record are verified, but not its bodies (``Found.is_whole``). After
    damage it continues at the next marker, so damage does not hide the valid records behind it.
    """
    scanner = Scanner(files, handle, marker, end)
    position = start
    while position < end:
        found = scanner.record_at(position)
        position = found.end
        yield found


@define(eq=False)
class Scanner:
    """Reads records by position, with a window of the file in memory."""

    _files: Files
    _handle: int
    _marker: bytes
    _end: int
    _data: bytes = b""
    _base: int = 0

    def record_at(self, position: int) -> Found:
        """Return the record at a position. Damage extends to the next marker."""
        needed = HEADER_BYTES
        while self._load(position, needed):
            found = parse_header(self._data, position - self._base, self._base, self._marker)
            if isinstance(found, Found):
                if found.end <= self._base + len(self._data):
                    return found
                needed = found.end - position
                if found.end > self._end:
                    # The header is valid, but the file is too short.
                    return _stretch(TORN, position, self._end)
            elif found < 0:
                return _stretch(DAMAGED, position, self._find_marker(position + 1))
            else:
                needed = found
        following = self._find_marker(position + 1)
        return _stretch(TORN if following == self._end else DAMAGED, position, following)

    def _load(self, position: int, size: int) -> bool:
        """Load a part of the file, and return False if it exceeds the end."""
        if position + size > self._end:
            return False
        if not self._base <= position <= position + size <= self._base + len(self._data):
            wanted = min(max(size, WINDOW_BYTES), self._end - position)
            self._data, self._base = self._files.read(self._handle, position, wanted), position
        return len(self._data) - (position - self._base) >= size

    def _find_marker(self, position: int) -> int:
        """Return the position of the next marker, or the end if there is none."""
        while position < self._end:
            size = min(WINDOW_BYTES, self._end - position)
            data = self._files.read(self._handle, position, size)
            if (at := data.find(self._marker)) >= 0:
                return position + at
            position += max(len(data) - MARKER_BYTES + 1, MARKER_BYTES)
        return self._end


def _stretch(kind: int, start: int, end: int) -> Found:
    return Found(
        start, end=end, kind=kind, data=b"", front_at=0, bodies_at=0, bodies_end=0, check=0
    )
