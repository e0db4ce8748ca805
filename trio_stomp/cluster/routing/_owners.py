"""The connections of clients to the owners of partitions: frames sent, confirmations expected."""

from collections.abc import Awaitable, Callable, Sequence

from attrs import define, evolve, field

from trio_stomp.base import MemoryBudget
from trio_stomp.cluster._gate import Gate
from trio_stomp.cluster.routing._link import Turns
from trio_stomp.cluster.routing._route import Awaited, Route
from trio_stomp.cluster.routing._upstream import Host, Upstream
from trio_stomp.protocol import Event, Subscribed, Unsubscribed

Start = Callable[[Callable[[], Awaitable[None]]], None]
"""Starts a task."""
INTERNAL = b"-"
"""The id of RECEIPTs that only the router needs."""


@define(eq=False, repr=False)
class Owners:
    """The connections of clients to the owners of partitions.

    Args:
      gates: The gate of each partition, which connects to its owner.
      host: Receives the frames of owners.
      memory: Charged for output to owners.
      dispatcher: Calls the host in its turns.
      start: Starts a task of a connection to an owner.
    """

    gates: Sequence[Gate]
    host: Host
    memory: MemoryBudget
    dispatcher: Turns = field(init=False)
    start: Start = field(init=False)
    _dirty: dict[Upstream, None] = field(factory=dict)

    def join(self, dispatcher: Turns, start: Start) -> None:
        """Take the dispatcher, and the function that starts tasks."""
        self.dispatcher, self.start = dispatcher, start

    def flush(self) -> None:
        """Send, at the end of a turn, the frames written in it."""
        for upstream in self._dirty:
            upstream.flush()
        self._dirty.clear()

    def add(self, route: Route, partition: int, event: Event) -> None:
        """Add an event for an owner."""
        upstream = self.upstream(route, partition)
        upstream.add(event)
        self._dirty[upstream] = None

    def give(
        self, route: Route, partition: int, event: Event, receipts: Sequence[tuple[int, bytes]]
    ) -> None:
        """Add an event for an owner, and expect RECEIPTs for the client."""
        for _, name in receipts:
            self.expect(route, (partition,), Awaited(name, 1, is_asked=True))
        self.add(route, partition, event)

    def ask(
        self, route: Route, partitions: Sequence[int], event: Subscribed | Unsubscribed
    ) -> None:
        """Add a SUBSCRIBE, which owners confirm in any case, or an UNSUBSCRIBE."""
        subscribes = isinstance(event, Subscribed)
        is_asked = event.receipt is not None
        if subscribes and not is_asked:
            event = evolve(event, receipt=INTERNAL)
        if event.receipt is not None:
            awaited = Awaited(event.receipt, len(partitions), is_asked, subscribes)
            self.expect(route, partitions, awaited)
        for partition in partitions:
            self.add(route, partition, event)

    def expect(self, route: Route, partitions: Sequence[int], awaited: Awaited) -> None:
        """Expect confirmations of frames that are about to be added."""
        for partition in partitions:
            upstream = self.upstream(route, partition)
            upstream.expected.append(awaited)
            upstream.unconfirmed += awaited.subscribes
        if awaited.is_asked:
            route.receipts.append(awaited)

    def upstream(self, route: Route, partition: int) -> Upstream:
        """Return the session at the owner of a partition, which is begun if there is none."""
        upstream = route.upstreams.get(partition)
        if upstream is None:
            upstream = route.upstreams[partition] = Upstream(
                partition,
                gate=self.gates[partition],
                host=self.host,
                turns=self.dispatcher,
                client=route.client,
                opened=route.opened,
                memory=self.memory,
            )
            self.start(upstream.run)
        return upstream
