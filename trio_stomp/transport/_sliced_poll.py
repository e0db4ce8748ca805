"""Waits until sockets can be read, and lets no more than a few go on at once.

Trio runs all tasks that the kernel has something for before any of them runs again: if 19,000
peers leave at once, everybody else waits until each of their readers has run. Here sockets that are
not in the middle of a conversation wait in an epoll descriptor of the broker's own, which can be
waited for itself; one task takes from it what is ready, and wakes a few readers at a time.

That costs one more run of the loop, so those that talk wait directly, as long as they are few.
Systems without epoll wait directly, too.
"""

import select
from collections import deque
from collections.abc import Awaitable, Iterable
from typing import Protocol

import trio
from attrs import define, field

AT_ONCE = 64
"""Readers of peers that sent something, and were heard before, that go on at once."""
BEHIND_AT_ONCE = 8
"""The others: each opens or ends a connection, which is dearer, and of which there may be
thousands. A listener accepts one for each run of the loop; so long runs would shut others out."""
POLL_AT_ONCE = 512
DIRECT = 512
"""So many at most wait directly: as many as may keep all others waiting."""
NEWCOMERS = 64
"""While fewer do, who is new waits directly, too: 512 CONNECTs in one run kept others 0.3 s."""
CONVERSING_S = 0.25
"""Who is heard twice within this time waits directly, until it has been quiet for a while."""


class PolledSocket(Protocol):
    """A socket that one task reads from, and what the poll knows of it.

    Args:
      task: Waits here until it can be read.
      is_known: The epoll descriptor has been told of it.
      is_direct: Its reader is not to wait here.
      is_quiet: Nothing was read yet; if it waits directly, since the last sweep. Who reads says
        otherwise.
      is_sending: Another task waits until it can be written.
      woken_at: When its reader was last woken here, in seconds of Trio's clock; ``-math.inf`` =
        never.
    """

    task: trio.lowlevel.Task | None
    is_known: bool
    is_direct: bool
    is_quiet: bool
    is_sending: bool
    woken_at: float

    def fileno(self) -> int:
        """Its descriptor; -1 if it is closed."""

    def stop_waiting(self, _: object) -> trio.lowlevel.Abort:
        """Forget ``task``, which is cancelled; the kernel may still tell of the socket, once."""


@define(eq=False, repr=False)
class SlicedPoll:
    """The sockets that wait, and the few that need not wait here."""

    _epoll: "select.epoll | None" = None
    _waiting: dict[int, PolledSocket] = field(factory=dict)
    _ready: deque[PolledSocket] = field(factory=deque)
    _behind: deque[PolledSocket] = field(factory=deque)
    """Those that are new, or leave: what the others have to say is not to wait for them all."""
    _direct: dict[PolledSocket, None] = field(factory=dict)

    def wait_readable(self, polled: PolledSocket) -> Awaitable[object]:
        """Wait until ``polled`` can perhaps be read; or should wait directly from now on.

        Returns: what to await, at once.

        Raises:
          trio.ClosedResourceError: it is closed.

        Checkpoint: always. Cancel: nothing is lost.
        """
        file = polled.fileno()
        if file < 0:
            raise trio.ClosedResourceError
        if polled.woken_at < 0 and len(self._direct) < NEWCOMERS:
            # It is new. As long as all have room there, what came first is read first.
            self._make_direct(polled)
            return trio.lowlevel.wait_readable(file)  # noqa: ASYNC105
        if not self._arm(polled, file):
            polled.is_direct = True
            return trio.lowlevel.checkpoint()  # noqa: ASYNC105
        self._waiting[file] = polled
        polled.task = trio.lowlevel.current_task()
        # No coroutine and no function of its own: thousands wait here, for hours.
        return trio.lowlevel.wait_task_rescheduled(polled.stop_waiting)  # noqa: ASYNC105

    def _arm(self, polled: PolledSocket, file: int) -> bool:
        """Have the kernel tell once that it can be read; whether it will."""
        epoll = self._epoll
        if epoll is None:
            return False
        events = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT
        try:
            if polled.is_known:
                epoll.modify(file, events)
            else:
                epoll.register(file, events)
                polled.is_known = True
        except OSError:
            return False  # the system allows no more of them, say
        return True

    def forget(self, polled: PolledSocket) -> None:
        """Forget a socket that is about to be closed; who waits for it goes on, and finds out."""
        self._direct.pop(polled, None)
        self._waiting.pop(polled.fileno(), None)
        task, polled.task = polled.task, None
        if task is not None:
            trio.lowlevel.reschedule(task)
        if polled.is_known and self._epoll is not None:
            self._epoll.unregister(polled.fileno())
        polled.is_known = False

    def sweep(self) -> None:
        """Have those wait here that waited directly and were quiet since the last call."""
        for polled in list(self._direct):
            if polled.is_quiet and not polled.is_sending:
                del self._direct[polled]
                polled.is_direct = polled.is_quiet = False
                polled.woken_at = 0.0
                # It is not closing, but that is how to wake who waits for it; a writer would take
                # it at its word.
                trio.lowlevel.notify_closing(polled.fileno())
            else:
                polled.is_quiet = True

    async def run(self) -> None:
        """Wake who waits until cancelled; at the end, all. Checkpoint: always."""
        if not hasattr(select, "epoll"):
            return
        with select.epoll() as epoll:
            self._epoll = epoll
            try:
                while True:
                    if self._ready or self._behind:
                        await trio.lowlevel.checkpoint()
                    else:
                        await trio.lowlevel.wait_readable(epoll)
                    self._take(epoll.poll(0, POLL_AT_ONCE))
                    now = trio.current_time()
                    self._wake(self._ready, AT_ONCE, now)
                    self._wake(self._behind, BEHIND_AT_ONCE, now)
            finally:
                self._end()

    def _make_direct(self, polled: PolledSocket) -> None:
        polled.is_direct, polled.is_quiet = True, False
        self._direct[polled] = None

    def _take(self, events: Iterable[tuple[int, int]]) -> None:
        for file, flags in events:
            polled = self._waiting.pop(file, None)
            if polled is None or polled.task is None:
                continue  # it was cancelled meanwhile
            if flags == select.EPOLLIN and not polled.is_quiet:
                self._ready.append(polled)
            else:
                self._behind.append(polled)

    def _wake(self, line: deque[PolledSocket], most: int, now: float) -> None:
        for _ in range(min(most, len(line))):
            polled = line.popleft()
            task, polled.task = polled.task, None
            if task is None:
                continue
            if now < polled.woken_at + CONVERSING_S and len(self._direct) < DIRECT:
                self._make_direct(polled)
            polled.woken_at = now
            trio.lowlevel.reschedule(task)

    def _end(self) -> None:
        """Have all wait directly."""
        self._epoll = None
        for polled in (*self._waiting.values(), *self._ready, *self._behind):
            task, polled.task = polled.task, None
            if task is not None:
                trio.lowlevel.reschedule(task)
        self._waiting.clear()
        self._ready.clear()
        self._behind.clear()
