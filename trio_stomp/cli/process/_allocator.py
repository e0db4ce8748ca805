"""Tuning of the C allocator: keep some free memory for the next burst, return the rest.

By default glibc returns the memory of each large body, and the top of its heap, to the system at
once, and the next body faults it in again page by page: up to 22 page faults for a body of 100 KB,
60 CPU seconds per million of them instead of 26 to 38. So glibc is set to keep more, and free
pages are returned seconds after a burst.

glibc also keeps free pages between live objects: a broker with 24 misbehaving clients grew by
1.5 MiB a minute while holding the same objects. Returning 20 MiB of free pages took 1 to 4 ms.

By default each thread that allocates gets a heap of its own, whose free memory no other can use,
and whose end is not returned: 17 MB in those of the store's threads. They get none, as they seldom
allocate without the GIL.
"""

import ctypes
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import trio
from attrs import define

logger = logging.getLogger("trio_stomp")

INTERVAL_S = 10.0
GROWTH_BYTES = 4 * 1024 * 1024
"""Growth since the last time below which no pages are returned."""

LARGEST_KEPT_BYTES = 8 * 1024 * 1024
"""Larger blocks, such as those of argon2id, return to the system when they are freed."""
KEPT_BYTES = 32 * 1024 * 1024
"""Most free bytes at the top of the heap between two checks."""
HEAP_PAD_BYTES = 16 * 1024 * 1024
"""Extra bytes by which the heap grows and shrinks."""
_TUNED_BY = frozenset({"GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"})

# malloc.h
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def resident_bytes(statm: Path = Path("/proc/self/statm")) -> int:
    """Return the resident memory of this process in bytes, or 0 if unknown (proc(5))."""
    try:
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


@define(eq=False, repr=False)
class Allocator:
    """The tunable part of the C library's allocator.

    Handles: glibc's extensions, and their absence: a missing function disables its feature.

    Args:
      set_option: mallopt(3), or None.
      trim: malloc_trim(3), or None.
    """

    set_option: Callable[[int, int], int] | None
    trim: Callable[[int], int] | None

    @classmethod
    def of_process(cls, library: object = None) -> "Allocator":
        """Return the allocator of this process, and log which of its functions are missing.

        Args:
          library: An object with the functions as attributes; None = the C library of this process.
        """
        if library is None:
            try:
                library = ctypes.CDLL(None)
            except (OSError, TypeError):  # Windows
                library = object()
        names = ("mallopt", "malloc_trim")
        found = {name: getattr(library, name, None) for name in names}
        missing = [name for name in names if found[name] is None]
        if missing:
            logger.info(
                "the C library has no %s: its allocator keeps its defaults",
                " and no ".join(missing),
            )
        return cls(found["mallopt"], found["malloc_trim"])

    def keep_free_memory(self, environment: Mapping[str, str] = os.environ) -> bool:
        """Keep freed memory of a message for the next one.

        Args:
          environment: Environment variables; if they tune the allocator, nothing is changed.

        Returns:
          Whether the allocator accepted the settings.
        """
        if self.set_option is None:
            return False
        is_padded = self.set_option(_M_TOP_PAD, HEAP_PAD_BYTES)
        if not _TUNED_BY.isdisjoint(environment):
            return False
        if "MALLOC_ARENA_MAX" not in environment:
            self.set_option(_M_ARENA_MAX, 1)
        # Setting one of these disables glibc's adaptation of both.
        is_kept = self.set_option(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        return bool(is_padded and is_kept and self.set_option(_M_TRIM_THRESHOLD, KEPT_BYTES))

    async def return_free_pages(
        self,
        resident: Callable[[], int] = resident_bytes,
        in_thread: Callable[..., Awaitable[object]] = trio.to_thread.run_sync,
    ) -> None:
        """Return free pages to the system whenever the process has grown, until cancelled.

        This runs in a thread, so it delays the event loop only if that allocates memory.

        Args:
          resident: Returns the size of the process, in bytes.
          in_thread: Calls a function in a thread.

        Checkpoint: always, unless the function is missing. Cancel: after a running call.
        """
        least = resident()
        while self.trim is not None:
            await trio.sleep(INTERVAL_S)
            if resident() - least >= GROWTH_BYTES:
                await in_thread(self.trim, 0)
                least = resident()
