"""The set-up of a process that is only a broker: log, file descriptors, garbage collection."""

import gc
import sys

# Files that are no connections: listeners, the log, the journal, the event loop's own.
SPARE_FILES = 64
ENOUGH_SHARE = 0.9
"""Who allows 20,000 connections, and may have 19,936, need not hear of it."""

# For a turn of the store's thread: shorter costs more than it gains, longer slows every commit.
SWITCH_INTERVAL_S = 0.0005

# The broker's own objects live as long as it does, and its traffic makes no cycles, so that the
# old generation is left alone: never is it looked through, which takes 240 ms with 100,000
# destinations, once in some million messages. The young ones are kept small: while 19,000
# connections come, the longest pause takes 10 to 14 ms. On a busy machine it took 12 to 17 ms of
# the processor alone if five portions came to the second generation instead of two, and 40 to 56
# with twice as many objects; on an idle one 103 with 10,000 and ten portions. Each object is
# looked at as often.
NEVER = 1 << 30
GC_THRESHOLD = (1_000, 1, NEVER)


def set_up_threads() -> None:
    """Let the store's thread have its turn soon.

    Python lets a thread that computes go on for 5 ms, which is many waits for the disk.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def set_up_garbage_collection() -> None:
    """Collect rarely, and never what was there at the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)


def raise_file_limit(connections: int) -> str | None:
    """Let the process open a file for each of ``connections``.

    Returns:
      None, or a warning to log if it cannot: the limit reached, and the remedy.
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
        # Some systems refuse what they themselves name as the hard limit.
        reached = soft
    if reached - SPARE_FILES >= ENOUGH_SHARE * connections:
        return None
    return (
        f"this process may open {reached} files, so about {max(reached - SPARE_FILES, 0)} of "
        f"{connections} connections; raise the limit with: ulimit -n {wanted}"
    )
