"""Destinations in use: who gets what is sent there, and what has been sent."""

from collections.abc import Iterator

from attrs import define, field

from trio_stomp._errors import CloseReason, ProtocolError
from trio_stomp.broker._destination import Kind, check_length, classify, is_reserved
from trio_stomp.broker._histogram import Histogram
from trio_stomp.broker._policies import BrokerPolicies
from trio_stomp.broker._subscription import Subscription
from trio_stomp.broker._trie import WildcardTrie
from trio_stomp.broker._wildcards import Pattern

_STALE_GENERATION = -1


@define(eq=False)
class Route:
    """One destination: its subscribers as last looked up, and its counters since it is known."""

    name: str
    kind: Kind
    subscribers: tuple[Subscription, ...] = ()
    generation: int = _STALE_GENERATION
    exact: dict[Subscription, None] = field(factory=dict)
    reserved: bool = False
    rotation: int = 0
    """Work queues: how many messages have been handed out, so whose turn it is."""
    enqueued: int = 0
    delivered: int = 0
    dropped: int = 0
    expired: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    ingress: Histogram | None = None
    delivery: Histogram | None = None

    def observe_ingress(self, seconds: float, count: int) -> None:
        """Count messages by how long they waited from the socket to the dispatcher."""
        if self.ingress is None:
            self.ingress = Histogram()
        self.ingress.observe(seconds, count)

    def observe_delivery(self, seconds: float, count: int) -> None:
        """Count messages by how long they took from the publisher's socket to the subscriber's."""
        if self.delivery is None:
            self.delivery = Histogram()
        self.delivery.observe(seconds, count)


@define(eq=False)
class RouteTable:
    """All destinations in use, and the wildcard subscriptions that reach into any of them.

    A route keeps its subscribers until the generation changes: an exact SUBSCRIBE touches one
    route, a wildcard one starts a new generation, and routes look up again when next used.
    """

    policies: BrokerPolicies
    _routes: dict[str, Route] = field(factory=dict)
    _wildcards: WildcardTrie[Subscription] = field(factory=WildcardTrie)
    _generation: int = 0

    def __len__(self) -> int:
        return len(self._routes)

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes.values())

    @property
    def wildcards(self) -> int:
        """Wildcard subscriptions."""
        return len(self._wildcards)

    def known(self, name: str) -> Route | None:
        """The route of ``name`` with its subscribers up to date, if it is in use."""
        route = self._routes.get(name)
        if route is not None and route.generation != self._generation:
            self._look_up(route)
        return route

    def open(self, name: str) -> Route:
        """The route of ``name``, made if need be.

        Raises:
          ProtocolError: the name is too long, of a kind not served, or there are too many.
        """
        route = self.known(name)
        if route is None:
            check_length(name, self.policies.max_destination_bytes)
            kind = classify(name)
            if len(self._routes) >= self.policies.max_destinations:
                self._evict()
            route = self._enter(name, kind)
        return route

    def own(self, name: str) -> Route:
        """The route of one of the broker's own topics, which a full table must not refuse."""
        route = self.known(name)
        if route is None:
            route = self._enter(name, classify(name))
        return route

    def add(self, subscription: Subscription) -> None:
        """Let ``subscription`` receive from now on.

        Raises:
          ProtocolError: as ``open``.
        """
        if subscription.pattern is None:
            route = self.open(subscription.destination)
            route.exact[subscription] = None
            self._look_up(route)
        else:
            self._wildcards.add(subscription.pattern, subscription)
            self._generation += 1

    def remove(self, subscription: Subscription) -> None:
        """Let ``subscription`` receive nothing more."""
        if subscription.pattern is None:
            route = self._routes[subscription.destination]
            del route.exact[subscription]
            self._look_up(route)
        else:
            self._wildcards.remove(subscription.pattern, subscription)
            self._generation += 1

    def check(self, name: str, pattern: Pattern | None) -> None:
        """Raise what ``add`` would raise for a subscription to ``name``; change nothing.

        Raises:
          ProtocolError: as ``open``.
        """
        if pattern is None:
            self.open(name)
        else:
            check_length(name, self.policies.max_destination_bytes)
            classify(name)

    def _enter(self, name: str, kind: Kind) -> Route:
        route = self._routes[name] = Route(name, kind, reserved=is_reserved(name))
        self._look_up(route)
        return route

    def _look_up(self, route: Route) -> None:
        found = [*route.exact, *self._wildcards.match(route.name)]
        if len(found) > len(route.exact):
            found.sort(key=_by_number)
        route.subscribers = tuple(found)
        route.generation = self._generation

    def _evict(self) -> None:
        """Forget the oldest tenth of what nobody subscribes to by name."""
        limit = self.policies.max_destinations
        wanted = max(1, limit // 10) + len(self._routes) - limit
        idle = [route.name for route in self._routes.values() if not route.exact][:wanted]
        for name in idle:
            del self._routes[name]
        # The broker's own topics come on top of the limit, and must not make room for more.
        if len(self._routes) >= limit:
            raise ProtocolError(
                "too-many-destinations",
                f"{len(self._routes)} destinations are subscribed to, which is the limit"
                " (option max_destinations)",
                reason=CloseReason.LIMIT_EXCEEDED,
            )


def _by_number(subscription: Subscription) -> int:
    return subscription.number
