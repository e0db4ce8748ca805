"""What must be known of Trio's own loop to wait in its place; Trio has no public names for it."""

import math
from collections.abc import Sized
from typing import Any

from attrs import define
from trio._core import _run


@define(eq=False, repr=False)
class TrioLoop:
    """The loop that runs the current task, where it can be stood in for.

    All that is private to Trio is named in this file (written for Trio 0.27 to 0.35). Where
    something of it is missing there is no ``TrioLoop``, and sockets wait as usual.
    """

    _runner: Any
    _runnable: Sized

    @classmethod
    def current(cls) -> "TrioLoop | None":
        """The loop of the current task; None if nobody can wait in its place.

        In guest mode another loop waits, in a thread; and other systems have no epoll.
        """
        try:
            runner: Any = _run.GLOBAL_RUN_CONTEXT.runner
            loop = cls(runner, runner.runq)
            loop.fileno(), loop.time_left(), loop.is_watched(), runner.io_manager.force_wakeup
            return None if runner.is_guest else loop
        except AttributeError:
            return None

    def fileno(self) -> int:
        """A descriptor that is readable once something happens that Trio waits for."""
        file: int = self._runner.io_manager._epoll.fileno()
        return file

    def has_runnable(self) -> bool:
        """Whether a task could go on."""
        return len(self._runnable) > 0

    def time_left(self) -> float:
        """Seconds until a deadline passes, ``math.inf`` without one; not above 0 if one has."""
        runner = self._runner
        left: float = runner.clock.deadline_to_sleep_time(runner.deadlines.next_deadline())
        return left

    def is_watched(self) -> bool:
        """Whether somebody waits until nothing happens any more, as tests do; Trio has to tell."""
        runner = self._runner
        return bool(runner.waiting_for_idle) or runner.clock_autojump_threshold < math.inf

    def wake(self) -> None:
        """Have Trio not wait the next time that it would."""
        self._runner.io_manager.force_wakeup()
