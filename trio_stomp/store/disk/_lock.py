"""The lock that admits one broker to a directory."""

import fcntl
import os
from contextlib import suppress

from trio_stomp.store._port import StoreLocked

# A link would have its target written.
LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class DirectoryLock:
    """An operating system's lock on a directory, until it is released or this process ends.

    Locks the directory itself and a file in it, which holds the owner's process id. So removing the
    file by hand admits nobody. Where directories cannot be locked (some network file systems), the
    file alone is the lock. Both bypass ``Files``: tests of disk failures do not concern them.

    Raises:
      StoreLocked: another process holds the lock.
      OSError: the directory or file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.dirname(path)
        self._directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._handle = -1
        try:
            self._lock(path)
        except (OSError, StoreLocked):
            self.release()
            raise

    def _lock(self, path: str) -> None:
        try:
            fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._used(path) from None
        except OSError:
            pass  # This file system cannot lock directories.
        self._handle = os.open(path, LOCK_FLAGS, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise self._used(path) from None
        owner = f"{os.getpid()}\n".encode()
        os.pwrite(self._handle, owner, 0)
        # After the write: ext4 flushes a file on close if it was truncated to zero bytes.
        os.ftruncate(self._handle, len(owner))

    def _used(self, path: str) -> StoreLocked:
        owner = b""
        with suppress(OSError), open(path, "rb") as file:
            owner = file.read(20)
        name = owner.partition(b"\n")[0].decode("ascii", "replace").strip() or "unknown"
        return StoreLocked(
            f"{self._path} is used by process {name}: end it, or give this one another directory"
        )

    def is_ours(self) -> bool:
        """Return whether the path still names the directory that was locked."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._directory))
        except OSError:
            return False

    def release(self) -> None:
        """Release the lock."""
        for handle in (self._handle, self._directory):
            if handle >= 0:
                os.close(handle)
