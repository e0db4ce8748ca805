"""Waits until sockets can be read, and lets no more than a few of their readers go on at once.

Trio runs all tasks that the kernel has something for before any of them runs again: if 19,000
peers leave at once, everybody else waits until each of their readers has run. So readers wait for
an epoll descriptor of the broker's own, which can itself be waited for; one task takes from it what
can be read, and wakes a few readers in each pass of Trio's loop.

Where a socket waits is decided once, when it comes: with Trio while few do, which spares a pass of
the loop for each read, and where the poll does not run or the system has no epoll; else here.
"""

import select
from collections import deque
from collections.abc import Awaitable, Iterable

import trio
from attrs import define, field

DIRECT = 32
"""Sockets that wait with Trio at most: so many readers may go on in one pass."""
AT_ONCE = 64
"""Readers of peers that sent something, and were heard before, that go on in one pass."""
BEHIND_AT_ONCE = 8
"""The others: each opens or ends a connection, which is dearer, and of which there may be
thousands. A listener accepts one connection in each pass; so long passes would shut others out."""
POLL_AT_ONCE = 512
_SPEAKS = 0x001
"""``EPOLLIN``, also where ``select`` has no such name."""


@define(eq=False, repr=False)
class DirectSocket:
    """A socket that its reader waits for with Trio, with the face of ``PolledSocket``."""

    _direct: set[int]
    file: int
    is_new: bool = True

    def wait_readable(self) -> Awaitable[object]:
        """Wait until there may be something to read, as ``PolledSocket.wait_readable`` does."""
        if self.file not in self._direct:
            raise trio.ClosedResourceError
        return trio.lowlevel.wait_readable(self.file)  # noqa: ASYNC105

    def forget(self) -> None:
        """Leave its room to another. Closing it has Trio wake its reader."""
        self._direct.discard(self.file)


@define(eq=False, repr=False)
class PolledSocket:
    """A socket that its reader waits for in a ``SlicedPoll``.

    Args:
      file: Its descriptor, open until ``forget``.
      task: Its reader, if that waits: the one place that says so. The kernel, and the lines of
        the poll, may tell of a socket that nobody waits for.
      is_new: Nothing was read of it yet; who reads says otherwise.
    """

    _poll: "SlicedPoll"
    file: int
    task: trio.lowlevel.Task | None = None
    is_new: bool = True

    def wait_readable(self) -> Awaitable[object]:
        """Wait until there is perhaps something to read.

        Returns: what to await, at once.

        Raises:
          trio.ClosedResourceError: it was forgotten.

        Checkpoint: always. Cancel: nothing is lost.
        """
        self._poll.arm(self.file)
        self.task = trio.lowlevel.current_task()
        # No coroutine and no function of its own: thousands wait here, for hours.
        return trio.lowlevel.wait_task_rescheduled(self._stop_waiting)  # noqa: ASYNC105

    def _stop_waiting(self, _: object) -> trio.lowlevel.Abort:
        self.task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def wake(self) -> None:
        """Have its reader go on, if it waits."""
        task, self.task = self.task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def forget(self) -> None:
        """Have the poll forget it, as it is about to be closed. Its reader goes on, if it waits."""
        self._poll.forget(self.file)
        self.wake()


@define(eq=False, repr=False)
class SlicedPoll:
    """The sockets whose readers wait here, and how many wait with Trio."""

    _epoll: "select.epoll | None" = None
    _sockets: dict[int, PolledSocket] = field(factory=dict)
    """By descriptor: those that the epoll descriptor has been told of."""
    _direct: set[int] = field(factory=set)
    """The descriptors of those that wait with Trio."""
    _ready: deque[PolledSocket] = field(factory=deque)
    _behind: deque[PolledSocket] = field(factory=deque)
    """Those that are new, or leave: what the others have to say is not to wait for them all."""

    def enter(self, file: int) -> DirectSocket | PolledSocket:
        """Return the place where a socket, by its descriptor, waits until ``forget``."""
        if self._epoll is None or len(self._direct) < DIRECT:
            return self._with_trio(file)
        try:
            self._epoll.register(file, select.EPOLLONESHOT)
        except OSError:
            return self._with_trio(file)  # the system allows no more of them, say
        polled = self._sockets[file] = PolledSocket(self, file)
        return polled

    def _with_trio(self, file: int) -> DirectSocket:
        self._direct.add(file)
        return DirectSocket(self._direct, file)

    def arm(self, file: int) -> None:
        """Have the kernel tell of a socket, once: who does not wait is not told of again and again.

        Raises:
          trio.ClosedResourceError: it was forgotten.
        """
        if file not in self._sockets or self._epoll is None:
            raise trio.ClosedResourceError
        self._epoll.modify(file, _SPEAKS | select.EPOLLRDHUP | select.EPOLLONESHOT)

    def forget(self, file: int) -> None:
        """Forget a socket, if it is known."""
        if self._sockets.pop(file, None) is not None and self._epoll is not None:
            self._epoll.unregister(file)

    async def run(self) -> None:
        """Wake readers until cancelled, and at the end all, who can wait here no more.

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
                    for line, most in ((self._ready, AT_ONCE), (self._behind, BEHIND_AT_ONCE)):
                        for _ in range(min(most, len(line))):
                            line.popleft().wake()
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
