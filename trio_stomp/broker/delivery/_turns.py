"""Time of a turn: what an event may cost, and large works, which are done in pieces.

The broker does an event at once. What a client may legally send must therefore have a known cost:
above ``LIMIT_S`` it is refused with the name of the limit, and from ``DEAR_S`` on it is done alone
in a turn, after everything cheap (``Turns.afford``). Only what is long by nature is a ``Work``.

The core borrows a clock to measure how long it has worked. That of tests advances by the time of a
step at each look, so that they cut works where a broker does.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from trio_stomp.base import RemoteError, noop
from trio_stomp.broker.delivery._delivery import NEVER
from trio_stomp.broker.headers import internal_error

if TYPE_CHECKING:
    from trio_stomp.broker.delivery._subscription import Client


class Stop(Enum):
    """Why a work ends its share early."""

    BLOCKED = auto()
    """It waits until ``Turns.resume``."""
    BEHIND = auto()
    """Other waiting works must go first."""


Work = Iterator[None]
"""A large task in steps of about 50 µs. Each step must check again what may have changed since the
last one, and raise only errors for its client."""


class NotYet(Exception):
    """Raised when a request must wait for ``work``. Nothing has been changed."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work


def after(call: Callable[[], None]) -> Work:
    """Return a work that repeats ``call``, which may raise NotYet, until it needs no other work."""
    while True:
        try:
            call()
        except NotYet as later:
            yield from later.work
        else:
            break


LIMIT_S = 0.1
"""The most that one event may cost, in seconds: 200,000 plain subscribers, for example."""
DEAR_S = 0.01
"""The cost from which an event is done in a turn of its own."""
LIGHT_S = 0.001
"""The cost up to which the events of a run need no turn of their own, whatever else is done."""
SHARE_S = 0.002
"""Time share of a connection's batch. The rest waits for a later turn."""
PUMP_S = 0.003
"""Time share of the hand-out from queues in a turn."""


class TurnsHost(Protocol):
    """The part of the core that turns use."""

    def refuse(self, client: "Client", error: RemoteError, now: float) -> None:
        """Send an ERROR to a client and end its connection."""

    def unblock(self, client: "Client", now: float) -> None:
        """Apply the held events of a client."""


@define(eq=False, repr=False)
class Turns:
    """Measures time shares, and continues unfinished works round-robin in later turns.

    The later frames of a client with a work are held, so that they stay in order. A work may also
    belong to no client.
    """

    clock: Callable[[], float]
    """Returns seconds since any moment. It advances, or works would never end their shares."""
    collect_young: Callable[[], None] = noop
    """Runs a garbage collection of young objects. Call it while a container that may grow very
    large is still small: a later collection that walks through it would take several turns."""
    ends_at: float = NEVER
    """When the current time share ends, by ``clock``."""
    now: float = 0.0
    """The time of the current turn, in seconds of the broker's clock."""
    has_dear: bool = False
    """A dear event was done since the last turn."""
    ends: "dict[Callable[[], None], None]" = field(factory=dict)
    """What parts of the core have to do at the end of this turn."""
    _spent_s: float = 0.0
    """The known cost of the events of this turn."""
    _is_last: bool = True
    """All input that has come was applied."""
    _is_late: bool = False
    """Waiting works go on: everything cheap of this turn is done."""
    bug: Exception | None = None
    """A bug after which work went on. ``catch_up`` raises it, so that it is counted."""
    waiting: "OrderedDict[object, tuple[Client | None, Work]]" = field(factory=OrderedDict)
    """Unfinished works, by client. The key of a work without a client is the work."""
    _blocked: "OrderedDict[Client, Work]" = field(factory=OrderedDict)
    """Works that wait for ``resume``."""
    _stop: Stop | None = None
    """Why the current work ends its share early."""

    def __contains__(self, client: "Client") -> bool:
        return client in self.waiting or client in self._blocked

    def __len__(self) -> int:
        return len(self.waiting) + (self.bug is not None)

    def at_end(self, call: Callable[[], None]) -> None:
        """Make ``call`` once at the end of this turn, when its messages have been handed out."""
        self.ends[call] = None

    def end(self) -> None:
        """End a turn: make the calls that parts have asked for.

        Raises:
          Exception: The first bug, after all calls. Calls with bugs are made again in the next
            turn.
        """
        calls, self.ends = self.ends, {}
        bugs = []
        for call in calls:
            try:
                call()
            except Exception as bug:
                self.at_end(call)
                bugs.append(bug)
        if bugs:
            raise bugs[0]

    def begin(self, seconds: float) -> None:
        """Begin a time share."""
        self.ends_at = self.clock() + seconds

    def is_over(self) -> bool:
        """Return whether the time share has ended."""
        return self.clock() >= self.ends_at

    def finishes(self, work: Work) -> bool:
        """Do pieces of ``work``, at least one, while there is time. Return whether it is done."""
        self._stop = None
        return all(self._stop is None and self.clock() < self.ends_at for _ in work)

    def afford(self, cost_s: float, count: int = 1, more_s: float = 0.0) -> int:
        """Return how many of ``count`` events of a client the turn has time for, and count them.

        Dear events are done one in each turn, after everything cheap. So a neighbour's frame waits
        for one of them at most, however many connections send them. A client whose events have no
        time waits, and its turn comes in order.

        Args:
          cost_s: The cost of the first event, in seconds.
          count: The number of events.
          more_s: The cost of each further one.
        """
        if cost_s + more_s * (count - 1) < LIGHT_S:
            return count
        is_dear = cost_s >= DEAR_S
        may_act = self._is_late and (self._is_last or not is_dear)
        if not may_act and (is_dear or self.waiting):
            return 0
        left_s = DEAR_S - self._spent_s - cost_s
        if left_s < 0 and self._spent_s:
            return 0
        if more_s:
            count = min(count, 1 + max(0, int(left_s / more_s)))
        self.at_end(self._spend_anew)
        self._spent_s += cost_s + more_s * (count - 1)
        self.has_dear |= self._spent_s >= DEAR_S
        return count

    def _spend_anew(self) -> None:
        self._spent_s = 0.0

    def stop(self, why: Stop) -> None:
        """End the share of the current work, which must yield next."""
        self._stop = why

    def wait(self, client: "Client", work: Work) -> None:
        """Append the unfinished ``work`` of ``client`` to the waiting works."""
        self.waiting[client] = client, work

    def carry_out(self, work: Work) -> None:
        """Append a work without a client to the waiting works."""
        self.waiting[work] = None, work

    def start(self, work: Work, now: float) -> None:
        """Do a share of a work without a client now, and the rest in later turns."""
        self.now = now
        self.begin(SHARE_S)
        if not self.finishes(work):
            self.carry_out(work)

    def resume(self, client: "Client") -> None:
        """Resume the blocked work of a client, if it has one."""
        if (work := self._blocked.pop(client, None)) is not None:
            self.wait(client, work)

    def catch_up(self, host: TurnsHost, now: float, *, is_last: bool = True) -> None:
        """Continue waiting works, one after the other, while there is time.

        Args:
          host: The core.
          now: Seconds of the broker's clock.
          is_last: All input that has come was applied, so that a dear event may be done.

        Raises:
          Exception: An earlier ``bug``. The works continue in the next turn.
        """
        bug, self.bug = self.bug, None
        if bug is not None:
            raise bug
        self.now, self._is_late, self._is_last = now, True, is_last
        try:
            self._go_on_in_turn(host, now)
        finally:
            self._is_late = False

    def _go_on_in_turn(self, host: TurnsHost, now: float) -> None:
        self.begin(SHARE_S)
        for _ in range(len(self.waiting)):
            _, (client, work) = self.waiting.popitem(last=False)
            if client is None:
                self._go_on(work)
            else:
                self._go_on_with(client, work, host, now)
            if self.is_over():
                return

    def _go_on(self, work: Work) -> None:
        """Continue a work without a client. After an exception it stays in the list."""
        self.carry_out(work)
        if self.finishes(work):
            del self.waiting[work]

    def _go_on_with(self, client: "Client", work: Work, host: TurnsHost, now: float) -> None:
        try:
            if self.finishes(work):
                host.unblock(client, now)
            elif self._stop is Stop.BLOCKED:
                self._blocked[client] = work
            else:
                self.wait(client, work)
        except RemoteError as error:
            host.refuse(client, error.without_traceback(), now)
            host.unblock(client, now)
        except Exception as bug:  # end this client, and let the caller log it
            host.refuse(client, internal_error(bug), now)
            host.unblock(client, now)
            raise
