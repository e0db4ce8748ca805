"""The stores' interface to the disk, which tests replace to inject failures."""

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

MAX_BUFFERS = 1024
"""Maximum number of buffers for one ``writev``."""


class Files(Protocol):
    """The operations that a store performs on the disk. Every method may raise OSError."""

    def create(self, path: str) -> int:
        """Create a file, which must not exist, and return a handle for reading and writing."""

    def open(self, path: str) -> int:
        """Open an existing file, and return a handle for reading and writing."""

    def write(self, handle: int, offset: int, buffers: Sequence[bytes]) -> None:
        """Write all of ``buffers`` in sequence, beginning at ``offset``."""

    def read(self, handle: int, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``, or fewer at the end of the file."""

    def sync(self, handle: int) -> None:
        """Wait until all written data is on the disk."""

    def sync_directory(self, path: str) -> None:
        """Wait until the names in a directory are on the disk."""

    def truncate(self, handle: int, size: int) -> None:
        """Truncate a file to ``size`` bytes."""

    def size(self, handle: int) -> int:
        """Return the size of an open file, in bytes."""

    def forget_cached(self, handle: int) -> None:
        """Drop the file's cached pages, so that the next read comes from the disk (a hint)."""

    def close(self, handle: int) -> None:
        """Close a handle."""

    def remove(self, path: str) -> None:
        """Delete a file."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file atomically, replacing ``new`` if it exists."""

    def names(self, path: str) -> list[str]:
        """Return the names in a directory."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, accessible to this user alone, and sync their names.

        Do nothing if it exists, except to sync its name.
        """


class OsFiles:
    """The operating system's files."""

    def create(self, path: str) -> int:
        """Implement ``Files.create``. Only this user may access the file."""
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
        if hasattr(os, "fdatasync"):
            os.fdatasync(handle)
        elif hasattr(fcntl, "F_FULLFSYNC"):  # macOS, whose fsync leaves data in the disk's cache
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
        else:
            os.fsync(handle)

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
        if hasattr(os, "posix_fadvise"):
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
        # An earlier process may have been killed before it synced the new name.
        for created in missing or [at]:
            # This user may not be permitted to read a parent directory of another owner.
            with suppress(PermissionError):
                self.sync_directory(os.path.dirname(created))
