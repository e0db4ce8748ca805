"""A disk for streams that can fail and crash at any step; and what their tests share.

``DiskFake`` knows what a real disk does: what was written is in the cache, and on the disk only
after ``sync``; names are there only after ``sync_directory``; and after a failed ``sync`` the cache
takes for written what never was.
"""

import errno
import os
from collections.abc import Callable, Iterable, Sequence

import pytest
from attrs import define, field

from trio_stomp.store import Append, Files, Streamed
from trio_stomp.store.streams import _segment as segment_module
from trio_stomp.store.streams._log import StreamLog

DIRECTORY = "/data/streams/x"
NAME = "/topic/x"
EPOCH = "4f"
HEAD = b"content-type:text/plain\n"
EVERYTHING = 1 << 40


class Crash(BaseException):
    """The process ends here."""


@define(eq=False)
class Inode:
    """A file: what the system shows of it, and what is on the disk."""

    cache: bytearray = field(factory=bytearray)
    disk: bytearray = field(factory=bytearray)
    dirty: list[tuple[int, int]] = field(factory=list)

    def sync(self) -> None:
        del self.disk[len(self.cache) :]
        for start, end in self.dirty:
            self.disk.extend(bytes(max(start - len(self.disk), 0)))
            self.disk[start:end] = self.cache[start:end]
        self.dirty.clear()


@define(eq=False)
class DiskFake:
    """Files in memory, as ``Files`` has them.

    Args:
      fail: Asked before each step; an OSError that it returns is raised, half the step done.
      steps: What was done, as (method, name of the file).
    """

    fail: Callable[[int, str, str], BaseException | None] = lambda number, what, path: None
    steps: list[tuple[str, str]] = field(factory=list)
    inodes: dict[str, Inode] = field(factory=dict)
    kept: dict[str, Inode] = field(factory=dict)
    """The names that are on the disk."""
    directories: set[str] = field(factory=set)
    handles: dict[int, tuple[str, Inode]] = field(factory=dict)
    opened: int = 2

    def _step(self, what: str, path: str) -> BaseException | None:
        self.steps.append((what, os.path.basename(path)))
        return self.fail(len(self.steps) - 1, what, path)

    def _do(self, what: str, path: str) -> None:
        error = self._step(what, path)
        if error is not None:
            raise error

    def _handle(self, path: str) -> int:
        self.opened += 1
        self.handles[self.opened] = path, self.inodes[path]
        return self.opened

    def _insist(self, path: str) -> None:
        if path not in self.inodes:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)

    def create(self, path: str) -> int:
        self._do("create", path)
        if path in self.inodes:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        assert os.path.dirname(path) in self.directories
        self.inodes[path] = Inode()
        return self._handle(path)

    def open(self, path: str) -> int:
        self._do("open", path)
        self._insist(path)
        return self._handle(path)

    def write(self, handle: int, offset: int, buffers: Sequence[bytes]) -> None:
        path, inode = self.handles[handle]
        data = b"".join(buffers)
        error = self._step("write", path)
        if error is not None:
            data = data[: len(data) // 2]
        inode.cache.extend(bytes(max(offset - len(inode.cache), 0)))
        inode.cache[offset : offset + len(data)] = data
        inode.dirty.append((offset, offset + len(data)))
        if error is not None:
            raise error

    def read(self, handle: int, offset: int, size: int) -> bytes:
        path, inode = self.handles[handle]
        self._do("read", path)
        return bytes(inode.cache[offset : offset + size])

    def sync(self, handle: int) -> None:
        path, inode = self.handles[handle]
        error = self._step("sync", path)
        if error is not None:
            inode.dirty.clear()
            raise error
        inode.sync()

    def sync_directory(self, path: str) -> None:
        self._do("sync_directory", path)
        for name in [name for name in self.kept if os.path.dirname(name) == path]:
            del self.kept[name]
        self.kept.update(self._in(path))

    def _in(self, path: str) -> dict[str, Inode]:
        return {name: node for name, node in self.inodes.items() if os.path.dirname(name) == path}

    def truncate(self, handle: int, size: int) -> None:
        path, inode = self.handles[handle]
        self._do("truncate", path)
        del inode.cache[size:]

    def size(self, handle: int) -> int:
        path, inode = self.handles[handle]
        self._do("size", path)
        return len(inode.cache)

    def forget_cached(self, handle: int) -> None:
        path, inode = self.handles[handle]
        self._do("forget_cached", path)
        assert not inode.dirty
        inode.cache[:] = inode.disk

    def close(self, handle: int) -> None:
        del self.handles[handle]

    def remove(self, path: str) -> None:
        self._do("remove", path)
        self._insist(path)
        del self.inodes[path]

    def rename(self, old: str, new: str) -> None:
        self._do("rename", old)
        self._insist(old)
        self.inodes[new] = self.inodes.pop(old)

    def names(self, path: str) -> list[str]:
        self._do("names", path)
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "No such directory", path)
        names = [os.path.basename(name) for name in self._in(path)]
        below = [os.path.basename(name) for name in self.directories if name.startswith(path + "/")]
        return names + below

    def make_directory(self, path: str) -> None:
        self._do("make_directory", path)
        while path not in self.directories:
            self.directories.add(path)
            path = os.path.dirname(path)

    # What the tests do to it.

    def crashed(self, *, keeps_names: bool, keeps_data: bool) -> "DiskFake":
        """The disk as it is after a crash, if the system had or had not written by itself."""
        after = DiskFake(directories=set(self.directories))
        for path, inode in (self.inodes if keeps_names else self.kept).items():
            data = bytearray(inode.cache if keeps_data else inode.disk)
            after.inodes[path] = after.kept[path] = Inode(data, data[:])
        return after

    def paths(self, ending: str, directory: str = DIRECTORY) -> list[str]:
        return sorted(path for path in self._in(directory) if path.endswith(ending))

    def damage(self, path: str, at: int, bits: int = 0xFF) -> None:
        """Change one byte."""
        self.inodes[path].cache[at] ^= bits
        self.inodes[path].disk[:] = self.inodes[path].cache


def no_space() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def disk_error() -> OSError:
    return OSError(errno.EIO, "Input/output error")


def fails_on(*what: str, error: Callable[[], BaseException] = disk_error):
    """Have each step of some kinds fail."""
    return lambda number, step, path: error() if step in what else None


def fails_at(step: int, error: Callable[[], BaseException]):
    """Have one step fail."""
    return lambda number, what, path: error() if number == step else None


def fails_from(step: int, error: Callable[[], BaseException]):
    """Have one step fail, and all that come behind it."""
    return lambda number, what, path: error() if number >= step else None


def body_at(offset: int) -> bytes:
    """What the tests write at an offset, unless they say otherwise; of various sizes."""
    return b"<%d>" % offset + b"." * (offset % 7)


def make_log(files: Files, segment_bytes: int = 400) -> StreamLog:
    log = StreamLog.create(DIRECTORY, files, NAME, EPOCH, segment_bytes)
    log.mark()
    return log


def open_log(files: Files, segment_bytes: int = 400) -> StreamLog:
    log = StreamLog.open(DIRECTORY, files, segment_bytes)
    assert log is not None
    return log


def run(log: StreamLog, count: int, written_ms: int = 0) -> Append:
    """The next messages of a log."""
    first = log.state().next
    return Append(NAME, first, HEAD, [body_at(first + n) for n in range(count)], written_ms)


def commit(log: StreamLog, *counts: int, written_ms: int = 0) -> None:
    """Append runs of so many messages, each by a commit of its own."""
    for count in counts:
        log.mark()
        log.append([run(log, count, written_ms)])
        log.sync()
    log.mark()


def by_offset(runs: Iterable[Streamed]) -> dict[int, bytes]:
    return {n: body for run in runs for n, body in enumerate(run.bodies, run.first)}


def read_all(log: StreamLog, first: int = 0, limit_bytes: int = EVERYTHING) -> dict[int, bytes]:
    """Read to the end, as a reader does: on from behind what was got."""
    found: dict[int, bytes] = {}
    while runs := log.read(first, limit_bytes):
        for got in runs:
            assert got.first >= first
            assert got.bodies
            first = got.first + len(got.bodies)
        found.update(by_offset(runs))
    return found


def expected(*offsets: int) -> dict[int, bytes]:
    """What a log holds from one offset to another: ``range``'s arguments."""
    return {offset: body_at(offset) for offset in range(*offsets)}


WHOLE = {"keeps_names": True, "keeps_data": True}


@pytest.fixture(autouse=True)
def _small_extents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "EXTENT_BYTES", 100)


@pytest.fixture
def disk() -> DiskFake:
    return DiskFake()


def copy_of(disk: DiskFake) -> DiskFake:
    return disk.crashed(keeps_names=True, keeps_data=True)
