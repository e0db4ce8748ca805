"""Routing of clients' frames to the owners of partitions, and of the owners' frames to clients.

The router stands before the core of a broker without destinations: connections, logins, heart-beats
and limits are those of any broker, and frames that would change destinations go to the owners.
"""

from collections.abc import Callable, Sequence
from functools import partial

from attrs import define, field

from trio_stomp.base import CloseReason, RemoteError, noop
from trio_stomp.broker import Broker, BrokerEvent, Client
from trio_stomp.broker.delivery import SHARE_S
from trio_stomp.broker.headers import add_origin
from trio_stomp.cluster._gate import Gate
from trio_stomp.cluster.routing._frames import Piece, receipt_id
from trio_stomp.cluster.routing._owners import INTERNAL, Owners
from trio_stomp.cluster.routing._placement import Placement
from trio_stomp.cluster.routing._requests import Requests
from trio_stomp.cluster.routing._route import Awaited, Route
from trio_stomp.cluster.routing._upstream import Upstream
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import (
    Acked,
    Committed,
    Disconnected,
    Event,
    Opened,
    Queried,
    Received,
    Refused,
    Subscribed,
    Unsubscribed,
)


@define(eq=False, repr=False)
class Router:
    """Routes frames between clients and the owners of partitions. Implements ``FrameHandler``.

    Args:
      broker: Has sessions, logins, limits and events, and no destinations.
      placement: The partitions of destinations.
      gates: The gate of each partition, which connects to its owner.
      tell: Called with the events of a turn, which have no subscribers here.
    """

    broker: Broker
    placement: Placement
    gates: Sequence[Gate]
    tell: Callable[[Sequence[BrokerEvent]], None] = noop
    routes: dict[Client, Route] = field(factory=dict)
    owners: Owners = field(init=False)
    requests: Requests = field(init=False)

    def __attrs_post_init__(self) -> None:
        broker = self.broker
        broker.events.are_stored = True  # elsewhere
        self.owners = Owners(self.gates, self, broker.memory)
        self.requests = Requests(
            self.placement, broker.dialect, self.owners, lambda: broker.queues.policies
        )

    # For the dispatcher.

    def apply(
        self, client: Client, events: Sequence[Event], received_at: float, now: float
    ) -> None:
        """Implement ``FrameHandler.apply``."""
        broker = self.broker
        broker.event_history.now = now
        if client.is_blocked:
            broker.deferred.append(client, events, received_at)
            return
        broker.turns.now = now
        broker.turns.begin(SHARE_S)
        self._carry_out(client, events, received_at, now)

    def _carry_out(
        self, client: Client, events: Sequence[Event], received_at: float, now: float
    ) -> None:
        broker = self.broker
        if broker.authorizer.unjudged:
            broker.authorizer.judge(client)
        for index, event in enumerate(events):
            if client.is_refused:
                return
            if index and broker.turns.is_over():
                broker.wait_turn(client, iter(()), events[index:], received_at)
                return
            route = self.routes.get(client)
            try:
                if route is None:
                    self._begin(client, event)
                elif not self._route(route, event, now):
                    self._await(route, events[index:], received_at)
                    return
            except RemoteError as error:
                add_origin(error, event)
                if route is not None and route.receipts:
                    # Earlier RECEIPTs must come first: nothing follows an ERROR.
                    self._await(route, [Refused(error.without_traceback())], received_at)
                    return
                self.refuse(client, error.without_traceback(), now)
        if (route := self.routes.get(client)) is not None:
            self._regulate(route)

    def _await(self, route: Route, events: Sequence[Event], received_at: float) -> None:
        """Defer events until owners have confirmed earlier ones."""
        route.is_waiting = True
        self.broker.hold(route.client, events, received_at)

    def _regulate(self, route: Route) -> None:
        """Pause or resume reading from the client as its owners accept its frames."""
        paused = route.is_paused = route.client.is_blocked or not route.may_read()
        route.client.outbox.pause_reading(paused=paused)

    @property
    def has_more(self) -> bool:
        """Implement ``FrameHandler.has_more``."""
        return self.broker.has_more

    def end_turn(self, now: float, *, is_last: bool = True) -> None:
        """Resume waiting clients, and send the frames and events for owners."""
        broker = self.broker
        broker.event_history.now = now
        try:
            broker.turns.catch_up(self, now, is_last=is_last)
            self.owners.flush()
            if events := broker.events.take():
                self.tell(events)
        finally:
            broker.turns.end()

    def finish(self, now: float) -> None:
        """Implement ``FrameHandler.finish``."""
        while self.has_more:
            self.end_turn(now)
        self.broker.finish(now)

    def writable(self, client: Client, now: float) -> None:
        """Resume reading from the owners, since the client's outbox has room again."""
        self.broker.writable(client, now)
        route = self.routes.get(client)
        if route is not None:
            for each in route.upstreams.values():
                each.make_room()

    def refuse(self, client: Client, error: RemoteError, now: float) -> None:
        """Send an ERROR to a client and end its connection."""
        self.broker.refuse(client, error, now)

    def unblock(self, client: Client, now: float) -> None:
        """Apply a client's deferred events."""
        self.broker.deferred.resume(client, self._carry_out, now)
        if not client.is_blocked:
            client.outbox.pause_reading(paused=False)
            if client.farewell is not None:
                (reason, forgotten), client.farewell = client.farewell, None
                self.forget(client, reason, now, forgotten)
        if (route := self.routes.get(client)) is not None:
            self._regulate(route)

    def forget(
        self, client: Client, reason: CloseReason, now: float, forgotten: Callable[[], None] = noop
    ) -> None:
        """Release a client whose connection has ended, once its DISCONNECT is confirmed."""
        route = self.routes.get(client)
        if route is None:
            self.broker.forget(client, reason, now, forgotten)
        elif route.is_waiting:
            client.is_gone = True
            client.farewell = reason, forgotten
        elif route.leaving is not None and route.leaving.upstreams:
            route.farewell = reason, forgotten
        else:
            del self.routes[client]
            for upstream in route.upstreams.values():
                upstream.finish()
            self.broker.forget(client, reason, now, forgotten)

    # Frames of clients.

    def _begin(self, client: Client, event: Event) -> None:
        """Open a session, or refuse a frame before it."""
        if isinstance(event, Opened):
            self.broker.sessions.open(client, event)
            self.routes[client] = Route(client, event)
        elif isinstance(event, Queried):
            self.broker.sessions.answer(client, event.query)
        elif isinstance(event, Refused):
            raise event.error

    def _route(self, route: Route, event: Event, now: float) -> bool:
        """Route frames. Return False if they must wait for earlier ones."""
        requests = self.requests
        if type(event) is FrameRun:
            return requests.send(route, event)
        match event:
            case Subscribed():
                requests.subscribe(route, event)
            case Acked():
                requests.acknowledge(route, event)
            case Unsubscribed():
                requests.unsubscribe(route, event)
            case Received():
                requests.add(route, event)
            case Committed():
                return requests.commit(route, event)
            case Disconnected(receipt):
                self._leave(route, receipt, now)
            case Queried():
                self.owners.add(route, 0, event)
            case Refused(error):
                if route.receipts:
                    return False
                raise error
        return True

    # The end.

    def _leave(self, route: Route, receipt: bytes | None, now: float) -> None:
        """End the session at all owners, and then the client's."""
        route.receipt = receipt
        route.leaving = Awaited(INTERNAL, len(route.upstreams), is_asked=False)
        for partition in route.upstreams:
            route.upstreams[partition].expected.append(route.leaving)
            self.owners.add(route, partition, Disconnected(INTERNAL))
        self._end_if_left(route, now)

    def _end_if_left(self, route: Route, now: float) -> None:
        leaving = route.leaving
        if leaving is None or leaving.upstreams:
            return
        client = route.client
        if not client.is_refused:
            self.broker.sessions.leave(client, route.receipt, now)
        if route.farewell is not None:
            (reason, forgotten), route.farewell = route.farewell, None
            self.forget(client, reason, now, forgotten)

    # Owners.

    def receive(self, upstream: Upstream, pieces: Sequence[Piece]) -> bool:
        """Take frames of an owner, and return whether the client has room for more.

        It is called between turns, or in one of the owner in this process. Only the client's output
        changes at once, in the order of the frames; what else they cause waits for a turn.
        """
        client, route = upstream.client, self.routes.get(upstream.client)
        outbox = client.outbox
        if route is None or client.is_refused:
            return True
        for piece in pieces:
            data = piece.data
            if piece.is_message:
                if route.cumulative:
                    route.cumulative.note(data)
                outbox.stage_frame(data)
            elif data.startswith(b"RECEIPT\n"):
                self._confirm(route, upstream, data)
            elif data.startswith(b"ERROR\n"):
                outbox.stage_frame(data)
                self._end(route, CloseReason.PROTOCOL_ERROR)
                return True
            elif not data.startswith(b"CONNECTED\n"):
                outbox.stage_frame(data)
        return outbox.has_room()

    def _confirm(self, route: Route, upstream: Upstream, frame: bytes) -> None:
        """Take the RECEIPT of an owner."""
        name = receipt_id(frame)
        expected = upstream.expected
        # Nearly always the first: in the dialect rabbitmq, COMMIT's precedes its transaction's.
        found = next((each for each in expected if each.name == name), None)
        if found is None:
            return
        if expected[0] is found:
            expected.popleft()
        else:
            expected.remove(found)
        found.upstreams -= 1
        upstream.unconfirmed -= found.subscribes
        if found.is_asked and not found.upstreams:
            found.frame = frame
            route.settle()
        if route.is_waiting or route.is_paused or found is route.leaving:
            self.owners.dispatcher.call_soon(partial(self._go_on, route))

    def _go_on(self, route: Route, now: float) -> None:
        """Go on with what waited for confirmations."""
        client = route.client
        if self.routes.get(client) is not route:
            return
        if route.is_waiting:
            route.is_waiting = False
            self.unblock(client, now)
        else:
            self._regulate(route)
        self._end_if_left(route, now)

    def note(self, upstream: Upstream, message: bytes) -> None:
        """Note a MESSAGE of the owner in this process, in its turn."""
        if (route := self.routes.get(upstream.client)) is not None:
            route.cumulative.note(message)

    def regulate(self, upstream: Upstream) -> None:
        """Read from the client, or not, as its owners accept what it sends."""
        if (route := self.routes.get(upstream.client)) is not None:
            self._regulate(route)

    def drained(self, upstream: Upstream) -> None:
        """Handle that an owner has accepted most of the output."""
        upstream.is_full = False
        self.regulate(upstream)

    def lost(self, upstream: Upstream, now: float) -> None:
        """Handle the end of the connection to an owner: the client's session ends, too."""
        upstream.end()
        route = self.routes.get(upstream.client)
        if route is None or route.upstreams.get(upstream.partition) is not upstream:
            return
        del route.upstreams[upstream.partition]
        if route.leaving is not None:
            if route.leaving in upstream.expected:
                route.leaving.upstreams -= 1
            self._end_if_left(route, now)
        elif not route.client.is_refused:
            self._end(route, CloseReason.SHUTTING_DOWN)
        if route.is_waiting:
            route.is_waiting = False
            self.unblock(route.client, now)  # its deferred events are dropped

    def _end(self, route: Route, reason: CloseReason) -> None:
        """End a client's session after the frames staged so far."""
        client = route.client
        client.is_refused = True
        client.outbox.close(reason)
