"""Reads sockets in the middle of a conversation, without waking a task for each read.

A task that waits for its socket costs Trio 75 calls of Python for each read: the descriptor is
armed anew, the loop turns, the task is found, scheduled and entered; and as much again for the
dispatcher's. So when Trio is about to wait, we do, for what it waits for and for these sockets.
What they have to say is taken at once, and the dispatcher's turn for all of them follows, in
nobody's task. As soon as Trio has anything to do it goes on.

Each socket still belongs to its connection's task, which waits here meanwhile. It goes on for
whatever takes more than reading: an end, a pause, a bug.
"""

import select
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import outcome
import trio
from attrs import define, field

from trio_stomp.transport._trio_loop import TrioLoop

AT_ONCE = 64
"""Sockets that are read before the dispatcher's turn, and before Trio is looked at again."""
LONGEST_S = 3600.0
"""Of one wait; the kernel counts milliseconds in 31 bits."""

Take = Callable[[float], bool]
"""Reads what there is, told the time; False if its task must go on, which then reads itself."""


class Attended(Protocol):
    """A socket that is read here, and the task that waits here meanwhile, if one does."""

    task: trio.lowlevel.Task | None

    def fileno(self) -> int:
        """Its descriptor; -1 if it is closed."""

    def stop_waiting(self, _: object) -> trio.lowlevel.Abort:
        """Forget ``task``, which is cancelled."""


@define(eq=False, repr=False)
class Conversations(trio.abc.Instrument):
    """The sockets that are read while Trio would wait.

    Args:
      end_look: Called when sockets have been read: the dispatcher's turn.
    """

    end_look: Callable[[], None] = lambda: None
    _loop: TrioLoop | None = None
    _trios: int = -1
    """What tells that Trio has something to do."""
    _epoll: "select.epoll | None" = None
    _known: dict[int, tuple[Attended, Take]] = field(factory=dict)
    """What the epoll descriptor has been told of, whether its task waits here or not."""

    @property
    def is_open(self) -> bool:
        """Whether sockets can be read here."""
        return self._epoll is not None

    def open(self, epoll: "select.epoll") -> None:
        """Begin, in a task of the loop, with an epoll descriptor of its own; if that can be."""
        loop = TrioLoop.current()
        if loop is not None:
            self._loop, self._trios, self._epoll = loop, loop.fileno(), epoll
            epoll.register(self._trios, select.EPOLLIN)
            trio.lowlevel.add_instrument(self)

    def close(self) -> None:
        """Have all tasks go on, and none wait here any more."""
        if self._epoll is not None:
            trio.lowlevel.remove_instrument(self)
            self._end()

    def _end(self) -> None:
        self._epoll = None
        for attended, _ in self._known.values():
            self.release(attended)
        self._known.clear()

    def attend(self, attended: Attended, take: Take) -> Awaitable[object]:
        """Have ``take`` called whenever the socket can be read, until it returns False or fails.

        Returns: what to await, at once; it raises what ``take`` raised.

        Checkpoint: always. Cancel: nothing is lost.
        """
        file, epoll = attended.fileno(), self._epoll
        assert epoll is not None
        if file not in self._known:
            try:
                epoll.register(file, select.EPOLLIN)
            except OSError:  # the system allows no more of them, say
                return trio.lowlevel.checkpoint()  # noqa: ASYNC105
        self._known[file] = (attended, take)
        attended.task = trio.lowlevel.current_task()
        return trio.lowlevel.wait_task_rescheduled(attended.stop_waiting)  # noqa: ASYNC105

    def release(self, attended: Attended) -> bool:
        """Have the task go on that waits here; whether one did."""
        known = self._known.get(attended.fileno())
        task = attended.task
        if known is None or task is None:
            return False
        attended.task = None
        trio.lowlevel.reschedule(task)
        return True

    def forget(self, file: int) -> None:
        """Forget a socket that nobody attends, or that is about to be closed."""
        if self._known.pop(file, None) is not None and self._epoll is not None:
            self._epoll.unregister(file)

    def before_io_wait(self, timeout: float) -> None:
        """Trio's: wait in its place, and read, until it has something to do."""
        if not self._known:
            return
        try:
            self._wait(timeout)
        except BaseException:
            # A bug, for which Trio calls this no more: nobody may be left waiting here.
            self._end()
            raise

    def _wait(self, timeout: float) -> None:
        loop, epoll = self._loop, self._epoll
        assert loop is not None
        assert epoll is not None
        patience = 0.0 if timeout <= 0 or loop.is_watched() else timeout
        while True:
            events = epoll.poll(min(patience, LONGEST_S), AT_ONCE)
            if events and self._look(events):
                return  # Trio's own wait will be over at once
            if loop.has_runnable():
                break
            if patience <= 0:
                return
            patience = loop.time_left()
            if patience <= 0:
                break
        if timeout > 0:
            loop.wake()  # it would wait for as long as it meant to before

    def _look(self, events: Iterable[tuple[int, int]]) -> bool:
        """Read who has something to say; whether Trio has something to do, too."""
        is_trios = False
        now = trio.current_time()
        for file, _ in events:
            if file == self._trios:
                is_trios = True
                continue
            attended, take = self._known[file]
            task = attended.task
            if task is None:
                self.forget(file)  # its task is busy; it says so when it waits again
                continue
            try:
                if take(now):
                    continue
                result: outcome.Outcome[None] = outcome.Value(None)
            except BaseException as error:
                result = outcome.Error(error)
            if attended.task is task:  # and was not cancelled meanwhile
                attended.task = None
                trio.lowlevel.reschedule(task, result)
        self.end_look()
        return is_trios
