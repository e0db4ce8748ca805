"""The messaging core: synchronous, single-threaded, without a clock.

Only the dispatcher calls it. Each call is atomic: it validates, then changes, then has staged all
that clients will see of it. Nothing here waits for anybody.
"""

from collections.abc import Sequence

from attrs import define, field

from trio_stomp._errors import CloseReason, ProtocolError, RemoteError
from trio_stomp.broker._delivery import NEVER, Publication
from trio_stomp.broker._destination import Kind, check_sendable
from trio_stomp.broker._error_frame import error_frame, quote
from trio_stomp.broker._events import BrokerEvents
from trio_stomp.broker._fanout import FanOut
from trio_stomp.broker._memory import MemoryBudget
from trio_stomp.broker._policies import DISCONNECT, BrokerPolicies
from trio_stomp.broker._ports import TakesCensus
from trio_stomp.broker._queries import Queries
from trio_stomp.broker._route import RouteTable
from trio_stomp.broker._stale import StaleQueue
from trio_stomp.broker._subscriber import Subscriber
from trio_stomp.broker._subscription import Client
from trio_stomp.frames import OPENING, FrameRun, Head, encode_frame, encode_receipt
from trio_stomp.protocol import (
    Asked,
    Event,
    HeartbeatPlan,
    Left,
    Opened,
    Refused,
    Subscribed,
    Unsubscribed,
)


@define(eq=False)
class Broker:
    """Destinations, subscriptions, and what passes between them.

    Handles: topics, work queues, the stale queue, the seed's DIAG requests, receipts, errors.
    Does not handle: sockets, time (told as ``now``), authentication.

    Args:
      policies: Bounds and policies.
      memory: The budget of the process.
      server: Tells the figures that only it knows.
      boot: A short word that no other start of this broker used; part of every message id.
      server_name: The ``server`` header of CONNECTED, or "" for none.
    """

    policies: BrokerPolicies
    memory: MemoryBudget
    server: TakesCensus
    boot: str
    server_name: str = ""
    routes: RouteTable = field(init=False)
    stale: StaleQueue = field(init=False)
    fan_out: FanOut = field(init=False)
    subscriber: Subscriber = field(init=False)
    events: BrokerEvents = field(init=False)
    clients: dict[Client, None] = field(factory=dict)
    received: int = 0
    _ttl_s: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._ttl_s = self.policies.ttl_ms / 1000
        self.routes = RouteTable(self.policies)
        self.stale = StaleQueue(self.policies, self.memory)
        self.fan_out = FanOut(self.policies)
        self.events = BrokerEvents(self.routes)
        self.subscriber = Subscriber(
            self.policies,
            self.memory,
            self.routes,
            self.stale,
            self.fan_out,
            self.events,
            self.boot,
        )

    def apply(
        self, client: Client, events: Sequence[Event], received_at: float, now: float
    ) -> None:
        """Do what one client asked, in order; stop at the first thing that it may not.

        Args:
          events: From its session.
          received_at: When their bytes were read, in seconds of the broker's clock.
          now: The same clock, now.
        """
        for event in events:
            if client.is_refused:
                return
            try:
                if type(event) is FrameRun:
                    self._send(client, event, received_at, now)
                else:
                    self._apply_rare(client, event, now)
            except RemoteError as error:
                if error.receipt_id is None:
                    error.receipt_id = _asked_receipt(event)
                if not error.excerpt:
                    error.excerpt = _quoted(event)
                self._refuse(client, error)
            if self.fan_out.slow:
                self._settle_slow(tells=True)

    def forget(self, client: Client, reason: CloseReason) -> None:
        """The client is gone: end its subscriptions."""
        self.subscriber.remove_all(client)
        if client in self.clients:
            del self.clients[client]
            detail = f"from {client.remote}"
            self.events.tell("disconnect", client, reason=reason.text, detail=detail)

    def writable(self, client: Client, now: float) -> None:
        """The client takes more: go on with what was parked for it."""
        self.subscriber.go_on(client, now)
        if self.fan_out.slow:
            self._settle_slow(tells=True)

    def tick(self, now: float) -> None:
        """Let time pass: throw away what has expired."""
        self.stale.sweep(now)

    def publish(
        self, name: str, body: bytes, headers: Sequence[tuple[str, str]], now: float
    ) -> None:
        """Send a message of the broker's own to the topic ``name``; it is never parked."""
        route = self.routes.own(name)
        if route.subscribers:
            pairs = (("destination", name), *headers)
            head = Head("SEND", pairs, len(body), name)
            self.fan_out.to_all(Publication(route, head, [body], now, NEVER))
            if self.fan_out.slow:
                # An event told of the loss of an event would be lost in turn, and double each turn.
                self._settle_slow(tells=False)

    def has_subscribers(self, name: str) -> bool:
        """Whether a ``publish`` to ``name`` would reach anybody."""
        return bool(self.routes.own(name).subscribers)

    def queries(self) -> Queries:
        """Answers to the seed's questions about this moment."""
        return Queries(
            self.server.census(),
            len(self.clients),
            len(self.subscriber),
            self.stale.size,
            self.subscriber.destinations,
        )

    def _send(self, client: Client, run: FrameRun, received_at: float, now: float) -> None:
        head = run.head
        name = head.destination or ""
        route = self.routes.known(name)
        if route is None or route.reserved:
            check_sendable(name, self.policies.wildcards)
            route = self.routes.open(name)
        bodies = run.bodies
        count = len(bodies)
        self.received += count
        route.enqueued += count
        route.bytes_in += sum(map(len, bodies))
        route.observe_ingress(now - received_at, count)
        expires_at = received_at + self._ttl_s if self._ttl_s else NEVER
        publication = Publication(route, head, bodies, received_at, expires_at)
        if expires_at <= now:
            self.fan_out.expire(publication)
        elif not route.subscribers:
            self._keep(publication, now)
        elif route.kind is Kind.TOPIC:
            self.fan_out.to_all(publication)
        elif route.kind is Kind.WORK:
            self.fan_out.in_turn(publication)
        else:
            self._answer(publication)
        if run.receipts:
            for _, receipt in run.receipts:
                client.outbox.stage_frame(encode_receipt(receipt))

    def _keep(self, publication: Publication, now: float) -> None:
        """Nobody is subscribed: park it, if it has a lifetime, or let it die."""
        route = publication.route
        if self._ttl_s and route.kind is not Kind.DIAG:
            self.stale.park(publication, now)
        else:
            count = len(publication.bodies)
            route.dropped += count
            self.fan_out.drops.no_subscriber += count

    def _answer(self, publication: Publication) -> None:
        """A SEND to a DIAG destination: the figures that its body asks for go with it (A8)."""
        queries = self.queries()
        head = publication.head
        for body in publication.bodies:
            figures = queries.headers(body[:64].decode(errors="replace"))
            asked = {name: text for name, text in head.headers if name not in figures}
            answer = Head(
                head.command, (*asked.items(), *figures.items()), len(body), head.destination
            )
            self.fan_out.to_all(
                Publication(
                    publication.route,
                    answer,
                    [body],
                    publication.received_at,
                    publication.expires_at,
                )
            )

    def _apply_rare(self, client: Client, event: Event, now: float) -> None:
        match event:
            case Opened():
                self._open(client, event)
            case Subscribed():
                self.subscriber.add(client, event, now)
            case Unsubscribed():
                self.subscriber.remove(client, event)
            case Left(receipt):
                client.is_refused = True
                self.subscriber.remove_all(client)
                if receipt is not None:
                    client.outbox.stage_frame(encode_receipt(receipt))
                client.outbox.close(CloseReason.CLIENT_DISCONNECT)
            case Asked(query):
                self._answer_command(client, query)
            case Refused(error):
                raise error

    def _open(self, client: Client, event: Opened) -> None:
        headers = dict(event.headers)
        client.version = event.version
        client.user = headers.get("login", "")
        self.clients[client] = None
        answer = [
            ("version", event.version.name),
            ("session", client.session_id),
            ("heart-beat", _heartbeat_header(event.heartbeats)),
        ]
        if self.server_name:
            answer.append(("server", self.server_name))
        client.outbox.stage_frame(encode_frame("CONNECTED", answer, OPENING))
        self.events.tell(
            "connect",
            client,
            detail=f"STOMP {event.version.name} over {client.transport} from {client.remote}",
        )

    def _answer_command(self, client: Client, query: str) -> None:
        answer = self.queries().command(query)
        if answer is None:
            raise ProtocolError(
                "unknown-query",
                f"Invalid message! DIAG does not know the query {query[:40]!r}; it knows session,"
                " ws_buffer, stale, subs and the four …-size words",
            )
        frame = encode_frame(
            "DIAG", [("content-type", "text/plain")], client.rules, answer.encode()
        )
        client.outbox.stage_frame(frame)

    def _refuse(self, client: Client, error: RemoteError) -> None:
        client.is_refused = True
        client.outbox.stage_frame(error_frame(error, client.rules))
        client.outbox.close(error.reason)
        self.subscriber.remove_all(client)

    def _settle_slow(self, *, tells: bool) -> None:
        """Tell of subscribers that were too slow, and end those whose connection that ended."""
        slow, self.fan_out.slow = self.fan_out.slow, []
        if tells:
            self.events.tell_slow(slow)
        if self.policies.slow_consumer == DISCONNECT:
            # At once: what came for a member of a work queue until it is gone would be lost.
            for subscription, _ in slow:
                subscription.client.is_refused = True
                self.subscriber.remove_all(subscription.client)


def _heartbeat_header(plan: HeartbeatPlan) -> str:
    return f"{plan.send_every_s * 1000:.0f},{plan.expect_every_s * 1000:.0f}"


def _asked_receipt(event: Event) -> bytes | None:
    if isinstance(event, FrameRun):
        # The first frame of a run is at fault; who asked may be a later one.
        return next((receipt for asker, receipt in event.receipts if asker == 1), None)
    if isinstance(event, Subscribed | Unsubscribed | Left):
        return event.receipt
    return None


def _quoted(event: Event) -> bytes:
    match event:
        case FrameRun(head):
            return quote("SEND", head.headers)
        case Subscribed(headers=headers):
            return quote("SUBSCRIBE", headers)
        case Unsubscribed(identity, destination):
            told = (("id", identity), ("destination", destination))
            return quote(
                "UNSUBSCRIBE", tuple((name, text) for name, text in told if text is not None)
            )
    return b""
