"""Who looks into queues: so many messages a turn, for one browse after the other."""

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from trio_stomp.base import noop
from trio_stomp.broker.browsing._browse import Browse, Need
from trio_stomp.broker.delivery import Timers

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio_stomp.broker.delivery import Client, Subscription

MAX_BROWSES = 16
"""Browses that a connection is shown at once; further ones wait until one of them has ended."""
MAX_PAGES = 16
"""Pages of the store that are read, or in memory, for all of them."""
TURN_STEPS = 256
"""Messages that are looked at in a turn for all of them: some 2 ms."""
SHARE_STEPS = 64
"""And for one of them, before it is the next one's turn."""


@frozen
class BrowseStatistics:
    """Figures of a moment.

    Args:
      unfinished: Browses that have not been shown everything.
      begun: Those of them that do not wait for others of their connection.
      pages: Pages of the store that are read, or in memory, for them.
    """

    unfinished: int
    begun: int
    pages: int


@define(eq=False, repr=False)
class Browses:
    """The browses of all connections that have not been shown everything.

    Args:
      timers: Have the broker's time pass soon, when there is more to do.
    """

    timers: Timers
    _waiting: "dict[Client, dict[Subscription, Callable[[], Browse]]]" = field(factory=dict)
    """Those that have not begun, by connection, in order of SUBSCRIBE."""
    _begun: "dict[Client, dict[Subscription, Browse]]" = field(factory=dict)
    _ready: "dict[Subscription, Browse]" = field(factory=dict)
    """Those that are shown more as soon as there is time, in turn."""
    _wanting: "dict[Subscription, Browse]" = field(factory=dict)
    """Those that need a page of the store."""
    _reading: "dict[Subscription, Browse]" = field(factory=dict)
    """Those that have one, or are about to."""
    _steps: int = TURN_STEPS
    """Steps that are left of this turn."""
    _is_due: bool = False
    """The timers have been told."""

    def statistics(self) -> "BrowseStatistics":
        """Return how many there are."""
        begun = sum(map(len, self._begun.values()))
        waiting = sum(map(len, self._waiting.values()))
        return BrowseStatistics(begun + waiting, begun, len(self._reading))

    def add(self, subscription: "Subscription", make: "Callable[[], Browse]", now: float) -> None:
        """Show a newcomer what there is, as soon as its connection is shown less than it may be.

        Args:
          subscription: The subscription.
          make: Makes the browse, of what is in the queues then.
          now: The time, in seconds of the broker's clock.
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
        """End a subscription's browsing. The queue keeps all its messages."""
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
        for kept in (self._begun, self._waiting):
            if not kept.get(client, True):
                del kept[client]

    def tick(self, now: float) -> None:
        """Go on with what there was no time for."""
        self._is_due = False
        self._work(now)

    def end_turn(self) -> None:
        """Give the next turn a new time share."""
        self._steps = TURN_STEPS

    def _begin(self, client: "Client") -> None:
        """Let as many browses of a connection begin as may be at once."""
        waiting = self._waiting.get(client, {})
        begun = self._begun.setdefault(client, {})
        for subscription in list(islice(waiting, max(0, MAX_BROWSES - len(begun)))):
            begun[subscription] = self._ready[subscription] = waiting.pop(subscription)()

    def _work(self, now: float) -> None:
        """Show more to those that are ready, in turn, while there is time in this turn."""
        while self._ready and self._steps > 0:
            subscription = next(iter(self._ready))
            browse = self._ready.pop(subscription)
            steps = min(SHARE_STEPS, self._steps)
            # A look at nothing takes time, too.
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
        """Have pages read for those that need one, as many as may be in memory."""
        while self._wanting and len(self._reading) < MAX_PAGES:
            subscription = next(iter(self._wanting))
            browse = self._reading[subscription] = self._wanting.pop(subscription)
            browse.ask(partial(self._go_on, subscription, browse))

    def _go_on(self, subscription: "Subscription", browse: Browse, now: float) -> None:
        """Continue a browser with a page that was read."""
        self._ready[subscription] = browse
        self._work(now)

    def _call(self, now: float) -> None:
        """Have the rest done in a later turn, behind whatever else came."""
        if self._ready and not self._is_due:
            self._is_due = True
            self.timers.call_at(now, noop)
