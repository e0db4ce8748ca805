"""A disk for streams that can fail and crash at any step, and other helpers of their tests.

The disk is the oracle's: written data are in the cache, and reach the disk only by ``sync``; names
reach it only by ``sync_directory``; and after a failed ``sync`` the cache takes data for written
that never were.
"""

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

import pytest
from _oracle.store_disk import Disk, filled
from attrs import define, field

from trio_stomp.store import Append, Streamed
from trio_stomp.store.disk import Files
from trio_stomp.store.streams import _segment as segment_module
from trio_stomp.store.streams._log import StreamLog as StreamLog

DIRECTORY = "/data/streams/x"
NAME = "/topic/x"
EPOCH = "4f"
HEAD = b"content-type:text/plain\n"
EVERYTHING = 1 << 40


class Crash(BaseException):
    """The process ends here."""


@define(eq=False, slots=False)
class DiskFake(Disk):
    """A disk that counts its steps.

    Args:
      fails: Called before each step. An exception that it returns is raised when half the step is
      done.
      steps: The steps so far, as (method, name of the file).
    """

    fails: Callable[[int, str, str], BaseException | None] = lambda number, what, path: None
    steps: list[tuple[str, str]] = field(factory=list)

    def _enter(self, method: str, path: str) -> None:
        super()._enter(method, path)
        self.steps.append((method, os.path.basename(path)))
        if (error := self.fails(len(self.steps) - 1, method, path)) is not None:
            raise error

    def names(self, path: str) -> list[str]:
        found = super().names(path)
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "No such directory", path)
        return found

    def make_directory(self, path: str) -> None:
        super().make_directory(path)
        self.directories.update(map(str, PurePosixPath(path).parents))

    def crashed(self, *, keeps_names: bool, keeps_data: bool) -> "DiskFake":
        """Return the disk after a crash, with or without unsynced writes."""
        after = DiskFake(directories=set(self.directories))
        for path, file in (self.files if keeps_names else self.durable_names).items():
            after.files[path] = filled(bytes(file.data if keeps_data else file.durable))
        after.durable_names = dict(after.files)
        return after

    def paths(self, ending: str, directory: str = DIRECTORY) -> list[str]:
        """Files of a directory."""
        inside = (path for path in self.files if os.path.dirname(path) == directory)
        return sorted(path for path in inside if path.endswith(ending))

    def damage(self, path: str, at: int, bits: int = 0xFF) -> None:
        """Change one byte."""
        self.files[path].data[at] ^= bits
        self.files[path].durable = bytes(self.files[path].data)


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
    """Make a step fail, and all later ones."""
    return lambda number, what, path: error() if number >= step else None


def body_at(offset: int) -> bytes:
    """Return the body that tests write at an offset by default. Sizes vary."""
    return b"<%d>" % offset + b"." * (offset % 7)


def make_log(files: Files, segment_bytes: int = 400) -> StreamLog:
    log = StreamLog.create(DIRECTORY, files, NAME, EPOCH, segment_bytes)
    log.mark()
    return log


@pytest.fixture
def log(disk: DiskFake) -> StreamLog:
    return make_log(disk)


def open_log(files: Files, segment_bytes: int = 400) -> StreamLog:
    log = StreamLog.open(DIRECTORY, files, segment_bytes)
    assert log is not None
    return log


def run(log: StreamLog, count: int, written_ms: int = 0) -> Append:
    """The next messages of a log."""
    first = log.state().next
    return Append(NAME, first, HEAD, [body_at(first + n) for n in range(count)], written_ms)


def commit(log: StreamLog, *counts: int, written_ms: int = 0) -> None:
    """Append runs of the given sizes, each in its own commit."""
    for count in counts:
        log.mark()
        log.append([run(log, count, written_ms)])
        log.sync()
    log.mark()


def by_offset(runs: Iterable[Streamed]) -> dict[int, bytes]:
    return {n: body for run in runs for n, body in enumerate(run.bodies, run.first)}


def read_all(log: StreamLog, first: int = 0, limit_bytes: int = EVERYTHING) -> dict[int, bytes]:
    """Read to the end as a reader does, each time from the next offset."""
    found: dict[int, bytes] = {}
    while runs := log.read(first, limit_bytes):
        for got in runs:
            assert got.first >= first
            assert got.bodies
            first = got.first + len(got.bodies)
        found.update(by_offset(runs))
    return found


def expected(*offsets: int) -> dict[int, bytes]:
    """Return the expected content of a log between two offsets, given as for ``range``."""
    return {offset: body_at(offset) for offset in range(*offsets)}


WHOLE = {"keeps_names": True, "keeps_data": True}


def keep_extents_small(patch: pytest.MonkeyPatch, size: int) -> None:
    """Have a segment index an extent for each ``size`` bytes."""
    patch.setattr(segment_module, "EXTENT_BYTES", size)


@pytest.fixture(autouse=True)
def _small_extents(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_extents_small(monkeypatch, 100)


@pytest.fixture
def disk() -> DiskFake:
    return DiskFake()


def copy_of(disk: DiskFake) -> DiskFake:
    return disk.crashed(keeps_names=True, keeps_data=True)
