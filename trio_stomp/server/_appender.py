"""The one thread that appends to the store, for as long as a committer runs.

One from the pool costs half as much again for each append: it is fetched, named, limited and given
back. And what it has to say is taken in a look at the sockets in conversation, like what they have
to say, so that no task is woken for a commit: one that comes alone would pass Trio's loop four
times, from the dispatcher to the disk and back.
"""

import socket
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self

import outcome
import trio
from attrs import define, field

from trio_stomp.transport import Conversations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.store import Store, Turn

    Job = tuple[Sequence[Turn], int]

Done = Callable[["outcome.Outcome[int]"], None]
"""Told what came of an append: the commit number, or an error."""


@define(eq=False, repr=False)
class Appender:
    """Appends in a thread, which lives as long as the ``with`` block; one append at a time.

    Args:
      conversations: Where its bell is heard, if they are open.
    """

    store: "Store"
    conversations: Conversations
    task: trio.lowlevel.Task | None = None
    _jobs: "SimpleQueue[Job | None]" = field(factory=SimpleQueue)
    _found: "deque[outcome.Outcome[int]]" = field(factory=deque)
    _thread: threading.Thread = field(init=False)
    _bell: socket.socket = field(init=False)
    """Readable as soon as an append is done."""
    _cord: socket.socket = field(init=False)
    """The thread's end of it."""

    def __enter__(self) -> Self:
        self._bell, self._cord = socket.socketpair()
        self._bell.setblocking(False)
        # A daemon, as Trio's own: a disk that hangs must not keep a dying process.
        self._thread = threading.Thread(target=self._append_for_ever, name="appender", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # It has nothing to do: whoever began an append waits for it.
        self._jobs.put(None)
        self._thread.join()
        self.conversations.forget(self.fileno())
        self._bell.close()
        self._cord.close()

    def fileno(self) -> int:
        """As ``Attended``."""
        return self._bell.fileno()

    def stop_waiting(self, _: object) -> trio.lowlevel.Abort:
        """As ``Attended``."""
        self.task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def begin(self, turns: "Sequence[Turn]", expected: int) -> None:
        """As ``Store.append``; who hears is told what came of it."""
        self._jobs.put((turns, expected))

    async def hear(self, done: Done, done_in_look: Done) -> None:
        """Tell what comes of appends, for ever.

        Args:
          done: Called in this task.
          done_in_look: Called in no task instead, with ``Conversations.end_look`` to follow.

        Checkpoint: always. Cancel: what was not told is lost.
        """

        def take(_: float) -> bool:
            self._tell(done_in_look)
            return True

        while True:
            if self.conversations.is_open:
                await self.conversations.attend(self, take)
            await trio.lowlevel.wait_readable(self._bell)
            self._tell(done)

    def _tell(self, done: Done) -> None:
        self._bell.recv(64)
        while self._found:
            done(self._found.popleft())

    def _append_for_ever(self) -> None:
        while (job := self._jobs.get()) is not None:
            turns, expected = job
            self._found.append(outcome.capture(self.store.append, turns, expected))
            self._cord.send(b"\0")
            # Until the next job comes, which may take long, nothing of this one is kept alive.
            del job, turns, expected
