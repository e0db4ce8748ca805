"""All browses, with a limit of messages in each turn, round-robin."""

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from trio_stomp.base import noop
from trio_stomp.broker.browsing._browse import Browse, Need
from trio_stomp.broker.delivery import Timers, Turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio_stomp.broker.delivery import Client, Subscription

MAX_BROWSES = 16
"""Limit of concurrent browses of one connection. Further ones wait."""
MAX_PAGES = 16
"""Limit of pages being read or in memory for all browses."""
TURN_STEPS = 256
"""Limit of messages in a turn for all browses, about 2 ms."""
SHARE_STEPS = 64
"""Limit of messages for one browse before the next one continues."""


@frozen
class BrowseStatistics:
    """The current figures of browses.

    Args:
      unfinished: Browses that have not ended.
      begun: Unfinished browses that do not wait for others of their connection.
      pages: Pages of the store being read or in memory.
    """

    unfinished: int
    begun: int
    pages: int


@define(eq=False, repr=False)
class Browses:
    """The unfinished browses of all connections.

    Args:
      timers: Schedules another turn if there is more to do.
      turns: Renews the limit of messages at the end of a turn.
    """

    timers: Timers
    turns: Turns
    _waiting: "dict[Client, dict[Subscription, Callable[[], Browse]]]" = field(factory=dict)
    """Browses that have not begun, by connection, in the order of SUBSCRIBE."""
    _begun: "dict[Client, dict[Subscription, Browse]]" = field(factory=dict)
    _ready: "dict[Subscription, Browse]" = field(factory=dict)
    """Browses that can continue, in round-robin order."""
    _wanting: "dict[Subscription, Browse]" = field(factory=dict)
    """Browses that need a page of the store."""
    _reading: "dict[Subscription, Browse]" = field(factory=dict)
    """Browses that have a page or have requested one."""
    _steps: int = TURN_STEPS
    """Steps left in this turn."""
    _is_due: bool = False
    """Another turn is scheduled."""

    def statistics(self) -> "BrowseStatistics":
        """Return the current figures."""
        begun = sum(map(len, self._begun.values()))
        waiting = sum(map(len, self._waiting.values()))
        return BrowseStatistics(begun + waiting, begun, len(self._reading))

    def add(self, subscription: "Subscription", make: "Callable[[], Browse]", now: float) -> None:
        """Add a browser. It begins when its connection has fewer than MAX_BROWSES.

        Then ``make`` creates the browse, with the state of the queues at that time.
        """
        self._waiting.setdefault(subscription.client, {})[subscription] = make
        self._begin(subscription.client)
        self._work(now)

    def resume(self, client: "Client", now: float) -> None:
        """Resume a client's browsers, as its outbox has room again."""
        for subscription, browse in self._begun.get(client, {}).items():
            if browse.needs is Need.ROOM:
                browse.needs = Need.TURN
                self._ready[subscription] = browse
        self._work(now)

    def end(self, subscription: "Subscription") -> None:
        """End the browse of a subscription."""
        client = subscription.client
        self._waiting.get(client, {}).pop(subscription, None)
        browse = self._begun.get(client, {}).pop(subscription, None)
        if browse is not None:
            browse.end()
            for each in (self._ready, self._wanting, self._reading):
                each.pop(subscription, None)
            self._begin(client)
            self._read()
            self._call(0.0)
        for browses in (self._begun, self._waiting):
            if not browses.get(client, True):
                del browses[client]

    def tick(self, now: float) -> None:
        """Continue browses that ran out of time."""
        self._is_due = False
        self._work(now)

    def _begin(self, client: "Client") -> None:
        """Begin waiting browses of a connection up to the limit."""
        waiting = self._waiting.get(client, {})
        begun = self._begun.setdefault(client, {})
        for subscription in list(islice(waiting, max(0, MAX_BROWSES - len(begun)))):
            begun[subscription] = self._ready[subscription] = waiting.pop(subscription)()

    def _renew(self) -> None:
        """Renew the limit of messages for the next turn."""
        self._steps = TURN_STEPS

    def _work(self, now: float) -> None:
        """Continue ready browses, round-robin, while steps are left in this turn."""
        if self._ready:
            self.turns.at_end(self._renew)
        while self._ready and self._steps > 0:
            subscription = next(iter(self._ready))
            browse = self._ready.pop(subscription)
            steps = min(SHARE_STEPS, self._steps)
            # A browse without messages takes time, too.
            self._steps -= max(1, steps - browse.look(steps, now))
            if not browse.has_page:
                self._reading.pop(subscription, None)
            if browse.needs is Need.TURN:
                self._ready[subscription] = browse
            elif browse.needs is Need.PAGE:
                self._wanting[subscription] = browse
            elif browse.needs is Need.NOTHING:
                self.end(subscription)
            self._read()
        self._call(now)

    def _read(self) -> None:
        """Request pages for browses that need one, up to the limit."""
        while self._wanting and len(self._reading) < MAX_PAGES:
            subscription = next(iter(self._wanting))
            browse = self._reading[subscription] = self._wanting.pop(subscription)
            browse.ask(partial(self._go_on, subscription, browse))

    def _go_on(self, subscription: "Subscription", browse: Browse, now: float) -> None:
        """Continue a browse with a page that was read."""
        self._ready[subscription] = browse
        self._work(now)

    def _call(self, now: float) -> None:
        """Schedule another turn if browses are ready."""
        if self._ready and not self._is_due:
            self._is_due = True
            self.timers.call_at(now, noop)
