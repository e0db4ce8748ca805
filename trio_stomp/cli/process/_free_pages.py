"""Memory that the C library keeps unused: a little for the next burst, the rest goes back.

As it comes, glibc gives the memory of each large body, or the end of its heap, back to the system
as soon as it is free, and has it zeroed again for the next: up to 22 page faults for a body of
100 KB, which then cost as much as everything else. So it is told to keep more, and a minute after
a burst what it kept goes back.

After a burst glibc keeps the pages between what still lives: a broker that 24 rude clients come
and go at grew by 1.5 MiB a minute, with the same objects in it. Giving them back took 1 to 3 ms
for 20 MiB of free pages.
"""

import ctypes
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

import trio

Trim = Callable[[], Awaitable[object]]

INTERVAL_S = 60.0
GROWTH_BYTES = 4 * 1024 * 1024
"""A process that has hardly grown since the last time is left alone."""

LARGEST_KEPT_BYTES = 8 * 1024 * 1024
"""A block above this is the system's again as soon as it is free: the memory that a password's
argon2id takes, say."""
KEPT_BYTES = 32 * 1024 * 1024
"""So much may lie unused at the end of the heap until the next look."""
_TUNED_BY = frozenset({"GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"})
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_free_pages(environment: Mapping[str, str] = os.environ) -> bool:
    """Have the C library keep what one message leaves for the next (mallopt(3)).

    Returns: whether it does; not if it is another library, or ``environment`` tunes it already.
    """
    if not _TUNED_BY.isdisjoint(environment):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    # To set one of them stops glibc from fitting the other to what it sees.
    is_kept = set_option(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
    return bool(is_kept and set_option(_M_TRIM_THRESHOLD, KEPT_BYTES))


def resident_bytes(statm: Path = Path("/proc/self/statm")) -> int:
    """What this process has in memory; 0 where the system does not tell (proc(5))."""
    try:
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def trimmer() -> Trim | None:
    """What has the C library give free pages back (malloc_trim(3)); None where it cannot.

    A thread does it, so that a big heap holds the event loop up only where that allocates.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    return partial(trio.to_thread.run_sync, trim, 0)


async def return_free_pages(
    trim: Trim | None, resident: Callable[[], int] = resident_bytes
) -> None:
    """Give free pages back whenever the process has grown, until cancelled.

    Args:
      trim: Gives them back; None = there is nothing to do.
      resident: The size of the process, in bytes.

    Checkpoint: always, unless ``trim`` is None. Cancel: after a call that runs.
    """
    least = resident()
    while trim is not None:
        await trio.sleep(INTERVAL_S)
        if resident() - least >= GROWTH_BYTES:
            await trim()
            least = resident()
