"""Waits until sockets are readable, and wakes only some of their readers at once.

Trio runs all tasks whose sockets are ready before any task runs again: if 19,000 peers leave at
once, all other tasks wait until each of their readers has run. So readers wait for an epoll
descriptor of the broker's own. One task waits for this descriptor with Trio, and wakes a few
readers in each pass of Trio's loop.

Each socket is assigned once: to Trio while it has few, which saves a pass of the loop for each
read, or if the poll is not running or the system has no epoll; else to the poll.
"""

import select
from collections import deque
from collections.abc import Awaitable, Iterable

import trio
from attrs import define, field

DIRECT = 32
"""Maximum number of sockets that wait with Trio, whose readers may all run in one pass."""
AT_ONCE = 64
"""Maximum number of readers with data to wake in one pass, except those of new connections."""
BEHIND_AT_ONCE = 8
"""Maximum number of readers of new or ending connections to wake in one pass. They cost more, and
there may be thousands. A listener accepts one connection in each pass, so passes must be short."""
POLL_AT_ONCE = 512
_SPEAKS = 0x001
"""``EPOLLIN``, which ``select`` does not define on every system."""


@define(eq=False, repr=False)
class DirectSocket:
    """A socket whose reader waits with Trio. It has the interface of ``PolledSocket``."""

    _direct: set[int]
    file: int
    is_new: bool = True

    def wait_readable(self) -> Awaitable[object]:
        """Wait until the socket may be readable, as ``PolledSocket.wait_readable`` does."""
        if self.file not in self._direct:
            raise trio.ClosedResourceError
        return trio.lowlevel.wait_readable(self.file)  # noqa: ASYNC105

    def forget(self) -> None:
        """Free its slot. Closing the socket makes Trio wake its reader."""
        self._direct.discard(self.file)


@define(eq=False, repr=False)
class PolledSocket:
    """A socket whose reader waits in a ``SlicedPoll``.

    Args:
      file: Its descriptor, open until ``forget``.
      task: Its reader while it waits, else None. The kernel and the poll's queues may also report
        sockets without a waiting reader.
      is_new: Nothing was read from it yet. The reader resets this.
    """

    _poll: "SlicedPoll"
    file: int
    task: trio.lowlevel.Task | None = None
    is_new: bool = True

    def wait_readable(self) -> Awaitable[object]:
        """Wait until the socket may be readable.

        Returns:
          An awaitable, which must be awaited at once.

        Raises:
          trio.ClosedResourceError: ``forget`` was called.

        Checkpoint: always. Cancel: nothing is lost.
        """
        self._poll.arm(self.file)
        self.task = trio.lowlevel.current_task()
        # Not a coroutine function, to save memory: thousands of tasks wait here for hours.
        return trio.lowlevel.wait_task_rescheduled(self._stop_waiting)  # noqa: ASYNC105

    def _stop_waiting(self, _: object) -> trio.lowlevel.Abort:
        self.task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def wake(self) -> None:
        """Wake its reader, if it is waiting."""
        task, self.task = self.task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def forget(self) -> None:
        """Remove it from the poll before it is closed, and wake its reader."""
        self._poll.forget(self.file)
        self.wake()


@define(eq=False, repr=False)
class SlicedPoll:
    """The sockets whose readers wait here, and how many wait with Trio."""

    _epoll: "select.epoll | None" = None
    _sockets: dict[int, PolledSocket] = field(factory=dict)
    """Sockets registered with the epoll descriptor, by their descriptors."""
    _direct: set[int] = field(factory=set)
    """Descriptors of sockets that wait with Trio."""
    _ready: deque[PolledSocket] = field(factory=deque)
    _behind: deque[PolledSocket] = field(factory=deque)
    """New and ending connections, queued apart so that they do not delay the others."""

    def enter(self, file: int) -> DirectSocket | PolledSocket:
        """Add a socket by its descriptor, and return the object for its reader to wait with."""
        if self._epoll is None or len(self._direct) < DIRECT:
            return self._with_trio(file)
        try:
            self._epoll.register(file, select.EPOLLONESHOT)
        except OSError:
            return self._with_trio(file)  # for example, a limit of the system is reached
        polled = self._sockets[file] = PolledSocket(self, file)
        return polled

    def _with_trio(self, file: int) -> DirectSocket:
        self._direct.add(file)
        return DirectSocket(self._direct, file)

    def arm(self, file: int) -> None:
        """Make the kernel report a socket once, so that it is not reported while no reader waits.

        Raises:
          trio.ClosedResourceError: ``forget`` was called.
        """
        if file not in self._sockets or self._epoll is None:
            raise trio.ClosedResourceError
        self._epoll.modify(file, _SPEAKS | select.EPOLLRDHUP | select.EPOLLONESHOT)

    def forget(self, file: int) -> None:
        """Remove a socket, if it was added."""
        if self._sockets.pop(file, None) is not None and self._epoll is not None:
            self._epoll.unregister(file)

    async def run(self) -> None:
        """Wake readers until cancelled, then wake all: they cannot wait here any more.

        Return at once if the system has no epoll.

        Checkpoint: always.
        """
        if not hasattr(select, "epoll"):
            return
        with select.epoll() as self._epoll:
            try:
                while True:
                    if self._ready or self._behind:
                        await trio.lowlevel.checkpoint()
                    else:
                        await trio.lowlevel.wait_readable(self._epoll)
                    self._take(self._epoll.poll(0, POLL_AT_ONCE))
                    for queue, limit in ((self._ready, AT_ONCE), (self._behind, BEHIND_AT_ONCE)):
                        for _ in range(min(limit, len(queue))):
                            queue.popleft().wake()
            finally:
                self._end()

    def _take(self, events: Iterable[tuple[int, int]]) -> None:
        for file, flags in events:
            polled = self._sockets[file]
            if flags == _SPEAKS and not polled.is_new:
                self._ready.append(polled)
            else:
                self._behind.append(polled)

    def _end(self) -> None:
        sockets, self._epoll, self._sockets = self._sockets, None, {}
        self._ready.clear()
        self._behind.clear()
        for polled in sockets.values():
            polled.wake()
