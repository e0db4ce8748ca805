"""The set-up of a process that is only a broker: log, file descriptors, garbage collection."""

import gc
import sys

# Files other than connections: listeners, log, journal, event loop.
SPARE_FILES = 64
ENOUGH_SHARE = 0.9
"""No warning above this share: 19,936 of 20,000 connections are good enough."""

# Switch interval for the store's thread: shorter costs more than it gains, longer delays commits.
SWITCH_INTERVAL_S = 0.0005

# The broker's objects live as long as the broker, and its traffic makes no cycles. So the old
# generation is never collected, which would take 240 ms with 100,000 destinations, once in some
# million messages. The young generations are small: while 19,000 clients connect, the longest
# pause is 10 to 14 ms. On a busy machine it took 12 to 17 ms of CPU time with five portions in
# the second generation instead of two, and 40 to 56 ms with twice as many objects; on an idle
# machine 103 ms with 10,000 objects and ten portions. Each object is visited as often.
NEVER = 1 << 30
GC_THRESHOLD = (1_000, 1, NEVER)


def set_up_threads() -> None:
    """Shorten the switch interval, so that the store's thread gets the GIL soon.

    By default a computing thread keeps it for 5 ms, the time of many disk writes.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def set_up_garbage_collection() -> None:
    """Collect rarely, and exclude the objects of the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)


def raise_file_limit(connections: int) -> str | None:
    """Raise the file limit, so that the process can serve this many connections.

    Returns:
      None, or a warning with the limit reached and the remedy.
    """
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = connections + SPARE_FILES
    if soft == unlimited or soft >= wanted:
        return None
    reached = wanted if hard == unlimited else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reached, hard))
    except (OSError, ValueError):
        # Some systems refuse the hard limit that they report.
        reached = soft
    if reached - SPARE_FILES >= ENOUGH_SHARE * connections:
        return None
    return (
        f"this process may open {reached} files, so about {max(reached - SPARE_FILES, 0)} of "
        f"{connections} connections; raise the limit with: ulimit -n {wanted}"
    )
