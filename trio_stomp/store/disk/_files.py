"""The disk, as the stores use it: a port, so that tests can let it fail."""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

MAX_BUFFERS = 1024
"""What one ``writev`` takes."""


class Files(Protocol):
    """The operations that a store performs on the disk. Every method may raise OSError."""

    def create(self, path: str) -> int:
        """Create a file, which must not exist, and return a handle for reading and writing."""

    def open(self, path: str) -> int:
        """Open an existing file, and return a handle for reading and writing."""

    def write(self, handle: int, offset: int, buffers: Sequence[bytes]) -> None:
        """Write all of ``buffers``, one after the other, from ``offset`` on."""

    def read(self, handle: int, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``. Only the end of the file cuts them short."""

    def sync(self, handle: int) -> None:
        """Wait until what was written is on the disk (fdatasync)."""

    def sync_directory(self, path: str) -> None:
        """Wait until the names in a directory are on the disk."""

    def truncate(self, handle: int, size: int) -> None:
        """Cut a file."""

    def size(self, handle: int) -> int:
        """Return the size of an open file, in bytes."""

    def forget_cached(self, handle: int) -> None:
        """Have the next read come from the disk, as far as the system allows."""

    def close(self, handle: int) -> None:
        """Close a handle."""

    def remove(self, path: str) -> None:
        """Delete a file."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in one step."""

    def names(self, path: str) -> list[str]:
        """Return the names in a directory."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, accessible to this user alone. It may exist.

        Its name, and those of all that were made, are on the disk then.
        """


class OsFiles:
    """The operating system's files."""

    def create(self, path: str) -> int:
        """Implement ``Files.create`` with a file that only this user can read."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def open(self, path: str) -> int:
        """Implement ``Files.open``."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def write(self, handle: int, offset: int, buffers: Sequence[bytes]) -> None:
        """Implement ``Files.write``."""
        for start in range(0, len(buffers), MAX_BUFFERS):
            part = buffers[start : start + MAX_BUFFERS]
            size = sum(map(len, part))
            written = os.pwritev(handle, part, offset)
            if written < size:
                self._write_rest(handle, offset + written, memoryview(b"".join(part))[written:])
            offset += size

    def _write_rest(self, handle: int, offset: int, rest: memoryview) -> None:
        while rest:
            written = os.pwrite(handle, rest, offset)
            offset += written
            rest = rest[written:]

    def read(self, handle: int, offset: int, size: int) -> bytes:
        """Implement ``Files.read``."""
        found = os.pread(handle, size, offset)
        while len(found) < size:
            more = os.pread(handle, size - len(found), offset + len(found))
            if not more:
                break
            found += more
        return found

    def sync(self, handle: int) -> None:
        """Implement ``Files.sync``."""
        os.fdatasync(handle)

    def sync_directory(self, path: str) -> None:
        """Implement ``Files.sync_directory``."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def truncate(self, handle: int, size: int) -> None:
        """Implement ``Files.truncate``."""
        os.ftruncate(handle, size)

    def size(self, handle: int) -> int:
        """Implement ``Files.size``."""
        return os.fstat(handle).st_size

    def forget_cached(self, handle: int) -> None:
        """Implement ``Files.forget_cached``."""
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self, handle: int) -> None:
        """Implement ``Files.close``."""
        os.close(handle)

    def remove(self, path: str) -> None:
        """Implement ``Files.remove``."""
        os.unlink(path)

    def rename(self, old: str, new: str) -> None:
        """Implement ``Files.rename``."""
        os.replace(old, new)

    def names(self, path: str) -> list[str]:
        """Implement ``Files.names``."""
        return os.listdir(path)

    def make_directory(self, path: str) -> None:
        """Implement ``Files.make_directory``."""
        missing: list[str] = []
        at = os.path.abspath(path)
        while not os.path.isdir(at):
            missing.append(at)
            at = os.path.dirname(at)
        os.makedirs(path, 0o700, exist_ok=True)
        # An earlier process may have been killed before the new name was on the disk.
        for made in missing or [at]:
            # Of a parent that others own no more than the way through may be ours.
            with suppress(PermissionError):
                self.sync_directory(os.path.dirname(made))
