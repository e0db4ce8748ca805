"""``/healthz``: the health of the broker, with reasons."""

import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio
from attrs import asdict, define, field, frozen

from trio_stomp._version import __version__
from trio_stomp.transport import HttpRequest
from trio_stomp.web._query import Answer, Query, as_json

if TYPE_CHECKING:
    from trio_stomp.diag import Figures
    from trio_stomp.server import Server

OK, DEGRADED, FAILING = "ok", "degraded", "failing"
_WORSE = (OK, DEGRADED, FAILING)

HIGH_SHARE = 0.9
"""The share of a limit from which a check is degraded; there memory slows producers down."""
FULL_SHARE = 0.99
SLOW_TURN_S = 1.0
FEW_FILES, LAST_FILES = 64, 8
LOW_DISK_BYTES, LAST_DISK_BYTES = 256 * 1024 * 1024, 16 * 1024 * 1024
DISK_PATIENCE_S = 10.0
"""Silence after which a disk counts as not answering."""


@frozen
class Check:
    """The result of one check.

    Args:
      status: ok, degraded (needs attention) or failing (send no clients here).
      value: The measured value, in the unit given by the name or the detail.
      limit: The limit of the value; None = none.
      detail: A text for people.
    """

    name: str
    status: str
    value: float
    limit: float | None
    detail: str


Start = Callable[[Callable[[], int], Callable[[int], None]], None]


def _in_thread(look: Callable[[], int], tell: Callable[[int], None]) -> None:
    trio.lowlevel.start_thread_soon(look, lambda outcome: tell(outcome.unwrap()))


@define(eq=False, repr=False)
class Disk:
    """The free space of a directory's disk.

    A hanging disk must not block the broker, so a thread measures, and the result is for the next
    request. The first measurement is at the start, when the store waits for the disk anyway.

    Args:
      directory: The directory; "" = none.
      start: Calls a function in a thread, and passes on its result.
    """

    directory: str
    start: Start = _in_thread
    free_bytes: int = 0
    _asked_at: float | None = None
    """The start of the running measurement, in seconds of the broker's clock."""

    def __attrs_post_init__(self) -> None:
        if self.directory:
            self.free_bytes = self._look()

    def ask(self, now: float) -> None:
        """Start a measurement, unless one is running."""
        if self.directory and self._asked_at is None:
            self._asked_at = now
            self.start(self._look, self._tell)

    def is_silent(self, now: float) -> bool:
        """Return whether the running measurement takes too long."""
        return self._asked_at is not None and now - self._asked_at >= DISK_PATIENCE_S

    def _look(self) -> int:
        try:
            return shutil.disk_usage(self.directory).free
        except OSError:
            return 0

    def _tell(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes
        self._asked_at = None


def files_limit() -> int:
    """Return the process's limit of open files, or 0 if it is unknown or unlimited."""
    if sys.platform == "win32":
        return 0
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 0 if limit == resource.RLIM_INFINITY else limit


@define(eq=False, repr=False)
class Health:
    """Checks the broker on request.

    Args:
      server: The server to check.
      figures: The source of turn times.
      disk: The disk of the store.
    """

    server: "Server"
    figures: "Figures"
    disk: Disk
    files: Callable[[], tuple[int, int]] = field()
    """Returns the number of open files, and the limit."""

    @files.default
    def _files_of_now(self) -> Callable[[], tuple[int, int]]:
        return lambda: (self.figures.open_files(), files_limit())

    def healthz(self, request: HttpRequest) -> Answer:
        """Answer with all checks, and with status 503 if one of them fails."""
        Query.of(request, ())
        checks = self.checks(trio.current_time())
        status = max((check.status for check in checks), key=_WORSE.index)
        record = {
            "status": status,
            **self.figures.head(),
            "version": __version__,
            "checks": [asdict(check) for check in checks],
        }
        return as_json(record, 503 if status == FAILING else 200)

    def checks(self, now: float) -> list[Check]:
        """Run all checks, including those that do not apply.

        Args:
          now: Seconds of the broker's clock.
        """
        return [
            self._draining(),
            self._store(),
            self._memory(),
            self._input(),
            self._lag(),
            self._files(),
            self._disk(now),
        ]

    def _draining(self) -> Check:
        why, committer = self.server.why_unready(), self.server.committer
        if not why or (committer is not None and why == committer.error):
            return Check("draining", OK, 0, None, "the broker accepts connections")
        return Check("draining", FAILING, 1, None, why)

    def _store(self) -> Check:
        committer = self.server.committer
        if committer is None:
            return Check("store", OK, 0, None, "messages are not stored on disk (option data_dir)")
        if committer.error:
            return Check("store", FAILING, 0, None, committer.error)
        statistics = committer.store.statistics()
        limit = statistics.limit_bytes
        detail = f"{statistics.bytes} bytes on the disk"
        status = _status(statistics.bytes, limit) if limit else OK
        if status != OK:
            detail += " (option max_store_bytes)"
        elif statistics.damaged:
            status, detail = DEGRADED, f"{statistics.damaged} records were found damaged"
        return Check("store", status, statistics.bytes, limit or None, detail)

    def _memory(self) -> Check:
        memory = self.server.memory
        status = _status(memory.charged_bytes, memory.limit_bytes)
        detail = "bytes of messages (option max_memory_bytes)"
        if status == OK and memory.is_short:
            text = f"{memory.kept_bytes} bytes in queues, the stale queue and schedules"
            status, detail = DEGRADED, f"{text}: nearly their limit"
        return Check("memory", status, memory.charged_bytes, memory.limit_bytes, detail)

    def _input(self) -> Check:
        inbox, limits = self.server.inbox, self.server.limits
        by_count = inbox.frames / limits.max_input_queue_size
        share = max(by_count, inbox.bytes / limits.max_input_queue_bytes)
        # A full queue slows producers down or drops messages, but is being emptied.
        status = DEGRADED if share >= HIGH_SHARE else OK
        return Check("input_queue", status, share, 1.0, "share of its capacity in use")

    def _lag(self) -> Check:
        longest = self.figures.longest_turn_s
        # This request is being answered, so the longest turn is over: degraded, not failing.
        status = DEGRADED if longest >= SLOW_TURN_S else OK
        detail = "longest turn of the dispatcher in the last interval, in seconds"
        return Check("event_loop_lag", status, longest, SLOW_TURN_S, detail)

    def _files(self) -> Check:
        used, limit = self.files()
        if not limit:
            return Check("descriptors", OK, used, None, "open files")
        left = limit - used
        status = FAILING if left < LAST_FILES else DEGRADED if left < FEW_FILES else OK
        return Check("descriptors", status, used, limit, "open files (ulimit -n)")

    def _disk(self, now: float) -> Check:
        disk = self.disk
        if not disk.directory:
            return Check("disk", OK, 0, None, "nothing is stored in files")
        disk.ask(now)
        free = disk.free_bytes
        if disk.is_silent(now):
            return Check("disk", FAILING, free, None, "the disk of the data directory is silent")
        low, last = free < LOW_DISK_BYTES, free < LAST_DISK_BYTES
        status = FAILING if last else DEGRADED if low else OK
        return Check("disk", status, free, LOW_DISK_BYTES, "bytes free for the data directory")


def _status(value: float, limit: float) -> str:
    share = value / limit
    return FAILING if share >= FULL_SHARE else DEGRADED if share >= HIGH_SHARE else OK
