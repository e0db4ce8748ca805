"""The single thread that appends to the store while a committer runs.

A thread from Trio's pool would add half of the cost to each append: it is fetched, named, limited
and returned.
"""

import threading
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self

import outcome
import trio
from attrs import define, field

from trio_stomp.store import append_sound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.store import LeftOut, Store, Turn

    Job = tuple[trio.lowlevel.Task, Sequence[Turn], int]


@define(eq=False, repr=False)
class Appender:
    """Appends in a thread that exists for the duration of the ``with`` block. For one task."""

    store: "Store"
    _jobs: "SimpleQueue[Job | None]" = field(factory=SimpleQueue)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> Self:
        token = trio.lowlevel.current_trio_token()
        # A daemon, as Trio's threads are: a disk that hangs must not keep the process from ending.
        self._thread = threading.Thread(
            target=self._append_for_ever, args=(token,), name="appender", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The thread is idle, as callers wait for each ``append``.
        self._jobs.put(None)
        self._thread.join()

    async def append(
        self, turns: "Sequence[Turn]", expected: int
    ) -> "tuple[int, Sequence[LeftOut]]":
        """Append as ``append_sound``. Checkpoint: always. Cancel: it waits for the append."""
        self._jobs.put((trio.lowlevel.current_task(), turns, expected))
        found: tuple[int, Sequence[LeftOut]]
        found = await trio.lowlevel.wait_task_rescheduled(_go_on_waiting)
        return found

    def _append_for_ever(self, token: trio.lowlevel.TrioToken) -> None:
        while (job := self._jobs.get()) is not None:
            task, turns, expected = job
            found = outcome.capture(append_sound, self.store, turns, expected)
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(trio.lowlevel.reschedule, task, found)
            # Release this job now: the next one may come much later.
            del job, task, turns, found


def _go_on_waiting(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED
