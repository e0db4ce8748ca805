"""Damage found in a stream's files: copied for inspection, and reported once."""

import os
import threading
from contextlib import suppress

from attrs import define, field

from trio_stomp.store.disk import Files

MAX_LINES = 1000
DAMAGED = "damaged"


@define(eq=False)
class StreamDamage:
    """Copies damaged bytes to the directory ``damaged`` of a stream, and reports each in a line.

    Args:
      directory: The stream's directory.
      files: The disk.
      count: Number of damaged parts found.
    """

    directory: str
    files: Files
    count: int = 0
    _lines: list[str] = field(factory=list, init=False)
    _notes: list[str] = field(factory=list, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def set_aside(self, path: str, at: int, data: bytes) -> None:
        """Copy damaged bytes at a position of a file and report them, unless done before."""
        name = f"{os.path.basename(path)}-{at}"
        what = f"{path}: {len(data)} bytes at {at} are damaged"
        try:
            is_new = self._copy(os.path.join(self.directory, DAMAGED, name), data)
        except OSError as error:
            self._report(f"{what}; they cannot be copied: {error}")
        else:
            if is_new:
                self._report(f"{what}, and set aside as {DAMAGED}/{name}")

    def keep(self, path: str, at: int, data: bytes) -> None:
        """Copy bytes that are cut off as an incomplete write, and add a note."""
        name = f"{os.path.basename(path)}-{at}"
        line = f"{path}: {len(data)} bytes at {at} are incomplete and were cut off"
        with suppress(OSError):
            self._copy(os.path.join(self.directory, DAMAGED, name), data)
            line += f"; a copy is in {DAMAGED}/{name}"
        self._notes.append(line)

    def _copy(self, path: str, data: bytes) -> bool:
        self.files.make_directory(os.path.dirname(path))
        try:
            handle = self.files.create(path)
        except FileExistsError:
            return False
        try:
            self.files.write(handle, 0, [data])
        finally:
            self.files.close(handle)
        return True

    def _report(self, line: str) -> None:
        with self._lock:
            self.count += 1
            if len(self._lines) < MAX_LINES:
                self._lines.append(line)

    def take_notes(self) -> list[str]:
        """Return the notes added by ``keep`` since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def take_lines(self) -> list[str]:
        """Return the lines reported since the last call, at most the first MAX_LINES."""
        with self._lock:
            lines, self._lines = self._lines, []
        return lines
