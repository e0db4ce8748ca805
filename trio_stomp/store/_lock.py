"""One broker for a directory."""

import fcntl
import os

from trio_stomp.store._port import StoreLocked


class DirectoryLock:
    """A file that the system keeps locked while this process lives, or until it is released.

    It is the system's own and not behind ``Files``: what a broken disk does to it says nothing.
    """

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(self._handle, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._handle)
            directory = os.path.dirname(path)
            raise StoreLocked(
                f"{directory} is used by process {owner}: end it, or give this one another "
                "directory"
            ) from None
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let another have it."""
        os.close(self._handle)
