"""Figures of the process: memory, files, threads, CPU time, garbage collection."""

import gc
import os
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path

import trio
from attrs import define

from trio_stomp.base import percentile
from trio_stomp.broker import BOUNDS_MS, Histogram
from trio_stomp.diag._stream import Record
from trio_stomp.store import StoreStatistics

_STAT = Path("/proc/self/stat")
_FILES = "/proc/self/fd"

# Indices in /proc/self/stat after the command's name, which may hold spaces (man 5 proc).
_THREADS, _VMS_BYTES, _RSS_PAGES = 17, 20, 21


@define(eq=False, weakref_slot=True)
class PauseMeter:
    """Measures garbage collections while it is on.

    The interpreter's list of callbacks belongs to the whole process, and the diagnostics get no
    notice when the broker ends. So the meter removes itself from the list when it is collected.
    """

    total_s: float = 0.0
    longest_s: float = 0.0
    """The longest collection that ended within the last interval."""
    _longest_yet_s: float = 0.0
    """The longest one in the current interval."""
    _began: float = 0.0
    _watch: "weakref.finalize[[], PauseMeter] | None" = None

    def turn(self, on: bool) -> None:
        """Start or stop measuring. Measured values are kept."""
        if on and self._watch is None:
            self._watch = _watch_collections(self)
        elif not on and self._watch is not None:
            self._watch()
            self._watch = None

    def note(self, phase: str) -> None:
        """Note the begin or end of a garbage collection."""
        now = time.perf_counter()
        if phase == "start":
            self._began = now
        elif self._began:
            pause = now - self._began
            self.total_s += pause
            self._longest_yet_s = max(self._longest_yet_s, pause)
            self._began = 0.0

    def end_interval(self) -> None:
        """End an interval, and begin to search for the longest collection again."""
        self.longest_s, self._longest_yet_s = self._longest_yet_s, 0.0


@define(eq=False, weakref_slot=True)
class TaskMeter:
    """Counts Trio's tasks as they start and end, beginning with the first request.

    Trio's own statistics visit every task that waits for a socket: 10 ms for 19,000.
    """

    living: int = 0
    _is_on: bool = False

    def count(self) -> int:
        """Tasks of the run that this is called in, always the same."""
        if not self._is_on:
            self._is_on = True
            self.living = trio.lowlevel.current_statistics().tasks_living
            trio.lowlevel.add_instrument(_TaskHooks(weakref.ref(self)))
        return self.living


class _TaskHooks(trio.abc.Instrument):
    """The instrument that Trio calls for a meter, removed only by the meter."""

    def __init__(self, meter: "weakref.ref[TaskMeter]") -> None:
        self._meter = meter

    def task_spawned(self, _task: trio.lowlevel.Task) -> None:
        self._add(1)

    def task_exited(self, _task: trio.lowlevel.Task) -> None:
        self._add(-1)

    def _add(self, change: int) -> None:
        meter = self._meter()
        if meter is None:
            trio.lowlevel.remove_instrument(self)
        else:
            meter.living += change


def _watch_collections(meter: PauseMeter) -> "weakref.finalize[[], PauseMeter]":
    reference = weakref.ref(meter)

    def note(phase: str, _: dict[str, int]) -> None:
        watched = reference()
        if watched is not None:
            watched.note(phase)

    def forget() -> None:
        with suppress(ValueError):
            gc.callbacks.remove(note)

    gc.callbacks.append(note)
    return weakref.finalize(meter, forget)


def process_record(
    turns: Histogram,
    pauses: PauseMeter,
    tasks: int,
    uptime_s: float,
    store: StoreStatistics | None = None,
) -> Record:
    """Return the fields of the table ``process``.

    Args:
      turns: The times of the dispatcher's turns in the last interval.
      pauses: The meter of garbage collections.
      tasks: The number of tasks.
      uptime_s: The seconds since the start.
      store: The figures of the store, if there is one.
    """
    rss, vms, threads = _memory()
    user_s, system_s = _processor_time()
    longest_ms = turns.max_s * 1000
    return {
        "pid": os.getpid(),
        "rss_bytes": rss,
        "vms_bytes": vms,
        "cpu_user_s_total": user_s,
        "cpu_sys_s_total": system_s,
        "fds": open_files(),
        "threads": threads,
        "trio_tasks": tasks,
        "loop_lag_ms_p50": percentile(BOUNDS_MS, turns.buckets, 0.50, longest_ms),
        "loop_lag_ms_p99": percentile(BOUNDS_MS, turns.buckets, 0.99, longest_ms),
        "loop_lag_ms_max": longest_ms,
        "gc_collections_total": [generation["collections"] for generation in gc.get_stats()],
        "gc_pause_ms_total": pauses.total_s * 1000,
        "gc_pause_ms_max": pauses.longest_s * 1000,
        "uptime_s": uptime_s,
        "store_bytes": store.bytes if store is not None else None,
        "store_live_messages": store.live_messages if store is not None else None,
        "store_syncs_total": store.syncs if store is not None else None,
        "store_sync_s_total": store.sync_s if store is not None else None,
        "store_damaged_total": store.damaged if store is not None else None,
    }


def _memory() -> tuple[int, int, int]:
    """Return resident bytes, mapped bytes and the number of threads."""
    try:
        fields = _STAT.read_text().rpartition(")")[2].split()
    except OSError:
        return _most_memory(), 0, threading.active_count()
    page = os.sysconf("SC_PAGE_SIZE")
    return int(fields[_RSS_PAGES]) * page, int(fields[_VMS_BYTES]), int(fields[_THREADS])


def _most_memory() -> int:
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _processor_time() -> tuple[float, float]:
    """Return the CPU seconds in user mode and in the kernel."""
    if sys.platform == "win32":
        times = os.times()
        return times.user, times.system
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime, usage.ru_stime


def open_files() -> int:
    """Return the number of open files of the process, or 0 if unknown."""
    # Newer kernels report the number as the directory's size; listing 19,000 files takes 16 ms.
    # Listing needs a descriptor itself, and none may be left.
    try:
        return os.stat(_FILES).st_size or len(os.listdir(_FILES)) - 1
    except OSError:
        return 0
