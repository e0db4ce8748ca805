"""The one thread that appends to the store, for as long as a committer runs.

One from the pool costs half as much again for each append: it is fetched, named, limited and given
back.
"""

import threading
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self

import outcome
import trio
from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.store import Store, Turn

    Job = tuple[trio.lowlevel.Task, Sequence[Turn], int]


@define(eq=False, repr=False)
class Appender:
    """Appends in a thread that lives as long as the ``with`` block. For one task."""

    store: "Store"
    _jobs: "SimpleQueue[Job | None]" = field(factory=SimpleQueue)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> Self:
        token = trio.lowlevel.current_trio_token()
        # A daemon, as Trio's own: a disk that hangs must not keep a dying process.
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
        # It has nothing to do, since ``append`` is always waited for.
        self._jobs.put(None)
        self._thread.join()

    async def append(self, turns: "Sequence[Turn]", expected: int) -> int:
        """Append as ``Store.append`` does. Checkpoint: always. Cancel: it waits for the append."""
        self._jobs.put((trio.lowlevel.current_task(), turns, expected))
        number: int = await trio.lowlevel.wait_task_rescheduled(_go_on_waiting)
        return number

    def _append_for_ever(self, token: trio.lowlevel.TrioToken) -> None:
        while (job := self._jobs.get()) is not None:
            task, turns, expected = job
            found = outcome.capture(self.store.append, turns, expected)
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(trio.lowlevel.reschedule, task, found)
            # Keep nothing of this job alive until the next one, which may take long to come.
            del job, task, turns, found


def _go_on_waiting(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED
