"""Processor time in units of a bare loop, which holds on any machine and at any hour."""

import time
from collections.abc import Callable

PASSES = 100_000


def bare_loops(work: Callable[[], object], rounds: int = 5) -> float:
    """Return how often a loop of 100,000 empty passes fits into the processor time of ``work``.

    Args:
      work: Called once in each round.
      rounds: The shortest of this many calls is compared with the shortest of as many loops.
    """
    return _shortest(work, rounds) / _shortest(_loop, 5)


def _shortest(work: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return min(times)


def _loop() -> None:
    for _ in range(PASSES):
        pass
