"""Python's garbage collector: how the core has it look at what is young, and not at what is large.

A young collection looks through each container that was made since the one before last, and at each
thing in it: a dict that was filled with 60,000 queues meanwhile takes it 4 to 9 ms. What survives a
collection is old, and is not looked at by the next ones however large it grows. So who is about to
fill a container has the young ones collected first, which are few then.
"""

import gc
import sys


def young_generation() -> int | None:
    """Return the generation to collect up to, or None if this Python has no generations."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    if sys.implementation.name != "cpython" or (is_enabled is not None and not is_enabled()):
        return None  # each collection looks at everything
    return 1 if sys.version_info < (3, 14) else 0


def collect_young() -> None:
    """Have what is young collected, unless the program that runs the broker has no collections."""
    generation = young_generation()
    if generation is not None and gc.isenabled():
        gc.collect(generation)
