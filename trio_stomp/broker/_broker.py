"""The messaging core: synchronous, single-threaded, without a clock.

Only the dispatcher calls it. Each call is atomic: it validates, then changes, then has staged all
that clients will see of it. Nothing here waits for anybody.
"""

from collections.abc import Sequence

from attrs import define, evolve, field

from trio_stomp._errors import CloseReason, ProtocolError, RemoteError
from trio_stomp._memory import MemoryBudget
from trio_stomp.broker._acknowledger import AckCounters, Acknowledger
from trio_stomp.broker._answers import Answers
from trio_stomp.broker._delivery import NEVER, Delivery, Publication
from trio_stomp.broker._destination import MONITOR, Kind
from trio_stomp.broker._destination_policy import PolicyBook
from trio_stomp.broker._dialect import Dialect, dialect
from trio_stomp.broker._error_frame import error_frame, quote
from trio_stomp.broker._events import BrokerEvents
from trio_stomp.broker._fanout import FanOut
from trio_stomp.broker._feeds import Feeds
from trio_stomp.broker._monitor import monitor_body
from trio_stomp.broker._overflow import Overflow, QueueFull
from trio_stomp.broker._policies import SEED, BrokerPolicies
from trio_stomp.broker._ports import TakesCensus
from trio_stomp.broker._publisher import Publisher
from trio_stomp.broker._queues import QueueBook
from trio_stomp.broker._route import Route, RouteTable
from trio_stomp.broker._selector import SelectorCompiler
from trio_stomp.broker._stale import StaleQueue
from trio_stomp.broker._subscriber import Subscriber
from trio_stomp.broker._subscription import Client
from trio_stomp.broker._temporary import Temporary
from trio_stomp.broker._timers import Timers
from trio_stomp.broker._transaction import Committer
from trio_stomp.frames import OPENING, FrameRun, Head, encode_frame, encode_receipt
from trio_stomp.protocol import (
    Acked,
    Asked,
    Committed,
    Event,
    HeartbeatPlan,
    Left,
    Opened,
    Received,
    Refused,
    Subscribed,
    Unsubscribed,
)


@define(eq=False, repr=False)
class Broker:
    """Destinations, subscriptions, and what passes between them.

    Handles: topics, work queues, queues, acknowledgements, transactions, the stale queue, the
    seed's DIAG requests, receipts, errors.
    Does not handle: sockets, time (told as ``now``), authentication.

    Args:
      policies: Bounds and policies of the whole broker.
      memory: The budget of the process.
      server: Tells the figures that only it knows.
      boot: A short word that no other start of this broker used; part of every message id.
      server_name: The ``server`` header of CONNECTED, or "" for none.
      book: Policies by destination.
      dialect: How the real conflicts between brokers are decided.
      wall_offset_s: Wall time less the broker's clock, in seconds.
    """

    policies: BrokerPolicies
    memory: MemoryBudget
    server: TakesCensus
    boot: str
    server_name: str = ""
    book: PolicyBook = field(factory=PolicyBook)
    dialect: Dialect = field(factory=lambda: dialect("native"))
    wall_offset_s: float = 0.0
    timers: Timers = field(factory=Timers)
    clients: dict[Client, None] = field(factory=dict)
    acks: AckCounters = field(factory=AckCounters)
    routes: RouteTable = field(init=False)
    stale: StaleQueue = field(init=False)
    fan_out: FanOut = field(init=False)
    queues: QueueBook = field(init=False)
    overflow: Overflow = field(init=False)
    feeds: Feeds = field(init=False)
    publisher: Publisher = field(init=False)
    acknowledger: Acknowledger = field(init=False)
    subscriber: Subscriber = field(init=False)
    events: BrokerEvents = field(init=False)
    answers: Answers = field(init=False)
    committer: Committer = field(init=False)

    def __attrs_post_init__(self) -> None:
        policies, memory = self.policies, self.memory
        if policies.wildcards == SEED:
            self.dialect = evolve(self.dialect, wildcards=SEED)
        self.routes = RouteTable(policies, self._configure)
        self.stale = StaleQueue(policies, memory)
        self.fan_out = FanOut(policies)
        self.events = BrokerEvents(self.routes)
        self.queues = QueueBook(self.routes, self.book, memory, self.timers)
        self.acknowledger = Acknowledger(self.queues, policies.unknown_ack == "ignore", self.acks)
        self.queues.acknowledger = self.acknowledger
        self.overflow = Overflow(memory, self.queues)
        self.feeds = Feeds(
            policies, memory, self.routes, self.queues, self.stale, self.fan_out, self.acknowledger
        )
        temporary = Temporary(self._expect_replies)
        self.subscriber = Subscriber(
            policies,
            self.dialect,
            memory,
            self.routes,
            self.queues,
            self.stale,
            self.fan_out,
            self.events,
            self.acknowledger,
            temporary,
            self.feeds,
            SelectorCompiler(),
            self.boot,
        )
        self.answers = Answers(self.server, self.fan_out, self.subscriber, self.stale, self.clients)
        self.publisher = Publisher(
            self.dialect,
            memory,
            self.routes,
            self.queues,
            self.stale,
            self.fan_out,
            self.timers,
            self.overflow,
            temporary,
            self.answers.to_topic,
            wall_offset_s=self.wall_offset_s,
        )
        self.committer = Committer(self.publisher, self.acknowledger, self.queues, self.overflow)

    # What the dispatcher calls.

    def apply(
        self, client: Client, events: Sequence[Event], received_at: float, now: float
    ) -> None:
        """Do what one client asked, in order; stop at the first thing that it may not.

        Args:
          events: From its session.
          received_at: When their bytes were read, in seconds of the broker's clock.
          now: The same clock, now.
        """
        if client.is_blocked:
            client.held.append((events, received_at))
            return
        for place, event in enumerate(events):
            if client.is_refused:
                return
            try:
                if type(event) is FrameRun:
                    rest = self._send(client, event, received_at, now)
                    if rest is not None:
                        self._block(client, rest, [rest, *events[place + 1 :]], received_at)
                        return
                elif type(event) is Acked:
                    self.acknowledger.apply(client, event, now)
                    self._receipt_all(client, event.receipts)
                else:
                    self._apply_rare(client, event, now)
            except RemoteError as error:
                if error.receipt_id is None:
                    error.receipt_id = _asked_receipt(event)
                if not error.excerpt:
                    error.excerpt = _quoted(event)
                self._refuse(client, error, now)
            if self.fan_out.slow:
                self._settle_slow(now, tells=True)

    def end_turn(self, now: float) -> None:
        """Hand out what came into queues, and let producers go on that waited for room."""
        self.queues.pump(now)
        # Again and again: nobody may begin another turn, if an auto consumer took all of it.
        while self.overflow.blocked and (ready := self.overflow.ready()):
            for client in ready:
                self._unblock(client, now)
            self.queues.pump(now)
        while self.fan_out.slow:
            self._settle_slow(now, tells=True)
            # What they leave goes to others now: nobody may begin another turn.
            self.queues.pump(now)

    def forget(self, client: Client, reason: CloseReason, now: float) -> None:
        """The client is gone: do what it sent before, then end its subscriptions."""
        client.is_gone = True
        if client.is_blocked:
            self.overflow.forget(client)
            self._unblock(client, now)
        client.is_refused = True
        self.subscriber.remove_all(client, now)
        if client in self.clients:
            del self.clients[client]
            detail = f"from {client.remote}"
            self.events.tell("disconnect", client, reason=reason.text, detail=detail)

    def writable(self, client: Client, now: float) -> None:
        """The client takes more: go on with what waits for it."""
        self.subscriber.go_on(client, now)
        if self.fan_out.slow:
            self._settle_slow(now, tells=True)

    def unsent(self, delivery: Delivery, now: float) -> None:
        """Messages expired before they were written, which their consumer would have had to ACK."""
        if delivery.ticket is not None:
            consumer, first = delivery.ticket
            numbers = range(first, first + delivery.count)
            self.acknowledger.take_unsent(consumer, numbers, now)

    def tick(self, now: float) -> None:
        """Let time pass: do what is due, throw away what has expired."""
        self.timers.run(now)
        self.stale.sweep(now)

    @property
    def is_monitored(self) -> bool:
        """Whether anybody would get what ``publish_monitor`` tells."""
        route = self.routes.known(MONITOR)
        return route is not None and bool(route.subscribers)

    def publish_monitor(self, now: float) -> None:
        """Tell stompserver's ``/queue/monitor`` about the queues, if there are any."""
        body = monitor_body(self.queues)
        if body:
            self.publish(MONITOR, body, (), now)

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
                self._settle_slow(now, tells=False)

    def has_subscribers(self, name: str) -> bool:
        """Whether a ``publish`` to ``name`` would reach anybody."""
        return bool(self.routes.own(name).subscribers)

    # SEND.

    def _send(
        self, client: Client, run: FrameRun, received_at: float, now: float
    ) -> FrameRun | None:
        """Send a run on and answer its receipts; what must wait for room in a queue, or None."""
        try:
            taken, evidence = self.publisher.send(client, run, received_at, now)
        except QueueFull as error:
            self._receipts(client, run, error.taken, b"stored:memory\n")
            following = (name for place, name in run.receipts if place == error.taken + 1)
            error.receipt_id = next(following, None)
            raise
        if run.receipts:
            self._receipts(client, run, taken, evidence)
        if taken == len(run.bodies):
            return None
        later = [(place - taken, name) for place, name in run.receipts if place > taken]
        return FrameRun(run.head, run.bodies[taken:], later)

    def _receipts(self, client: Client, run: FrameRun, taken: int, evidence: bytes) -> None:
        for place, name in run.receipts:
            if place <= taken:
                client.outbox.stage_frame(encode_receipt(name, evidence))

    def _receipt_all(self, client: Client, receipts: Sequence[tuple[int, bytes]]) -> None:
        for _, name in receipts:
            client.outbox.stage_frame(encode_receipt(name))

    def _block(
        self, client: Client, rest: FrameRun, events: Sequence[Event], received_at: float
    ) -> None:
        """A full queue makes its producer wait: nothing more of it is read or done until then."""
        client.is_blocked = True
        client.held.insert(0, (events, received_at))
        self.overflow.wait(client, rest.bodies[0])
        client.outbox.pause_reading(paused=True)

    def _unblock(self, client: Client, now: float) -> None:
        client.is_blocked = False
        held, client.held = client.held, []
        for events, received_at in held:
            self.apply(client, events, received_at, now)
        if not client.is_blocked:
            client.outbox.pause_reading(paused=False)

    # Everything else.

    def _apply_rare(self, client: Client, event: Event, now: float) -> None:
        match event:
            case Opened():
                self._open(client, event)
            case Subscribed():
                self.subscriber.add(client, event, now)
            case Unsubscribed():
                self.subscriber.remove(client, event, now)
            case Received(receipts):
                self._receipt_all(client, receipts)
            case Committed(actions, receipt):
                evidence = self.committer.commit(client, actions, now)
                if receipt is not None:
                    client.outbox.stage_frame(encode_receipt(receipt, evidence))
            case Left(receipt):
                self._leave(client, receipt, now)
            case Asked(query):
                self._answer_command(client, query)
            case Refused(error):
                raise error

    def _open(self, client: Client, event: Opened) -> None:
        headers = dict(event.headers)
        client.version = event.version
        client.user = headers.get("login", "")
        client.client_id = headers.get("client-id", "")
        self.clients[client] = None
        answer = [
            ("version", event.version.name),
            ("session", client.session_id),
            ("heart-beat", _heartbeat_header(event.heartbeats)),
        ]
        if self.server_name:
            answer.append(("server", self.server_name))
        if client.user:
            answer.append(("user-name", client.user))
        asked = headers.get("request-id") or headers.get("receipt")
        if self.dialect.connected_receipt and asked is not None:
            answer += [("response-id", asked), ("receipt-id", asked)]
        client.outbox.stage_frame(encode_frame("CONNECTED", answer, OPENING))
        detail = f"STOMP {event.version.name} over {client.transport} from {client.remote}"
        self.events.tell("connect", client, detail=detail)

    def _leave(self, client: Client, receipt: bytes | None, now: float) -> None:
        self.subscriber.remove_all(client, now)
        if receipt is not None:
            client.outbox.stage_frame(encode_receipt(receipt))
        if self.dialect.keeps_socket_after_disconnect:
            self.clients.pop(client, None)
            return
        client.is_refused = True
        client.outbox.close(CloseReason.CLIENT_DISCONNECT)

    def _answer_command(self, client: Client, query: str) -> None:
        answer = self.answers.queries().command(query)
        if answer is None:
            raise ProtocolError(
                "unknown-query",
                f"Invalid message! DIAG does not know the query {query[:40]!r}; it knows session,"
                " ws_buffer, stale, subs and the four …-size words",
            )
        told = [("content-type", "text/plain")]
        client.outbox.stage_frame(encode_frame("DIAG", told, client.rules, answer.encode()))

    def _refuse(self, client: Client, error: RemoteError, now: float) -> None:
        client.outbox.stage_frame(error_frame(error, client.rules))
        if self.dialect.keeps_socket_after_error and error.is_survivable:
            return
        client.is_refused = True
        client.outbox.close(error.reason)
        self.subscriber.remove_all(client, now)

    def _configure(self, route: Route) -> None:
        """Give a new route what its policy says, or for topics and work queues the options."""
        policy = self.book.policy_for(route.name)
        ttl_ms = policy.ttl_ms
        if not ttl_ms and route.kind in (Kind.TOPIC, Kind.WORK):
            ttl_ms = self.policies.ttl_ms
        route.ttl_s = ttl_ms / 1000
        route.retain = policy.retain
        if policy is not self.book.default:
            route.slow_consumer = policy.slow_consumer

    def _expect_replies(self, client: Client, private: str, public: str) -> None:
        self.subscriber.expect_replies(client, private, public)

    def _settle_slow(self, now: float, *, tells: bool) -> None:
        """Tell of subscribers that were too slow, and end those whose connection that ended."""
        slow, self.fan_out.slow = self.fan_out.slow, []
        if tells:
            self.events.tell_slow(slow)
        for subscription, _ in slow:
            if subscription.client.is_refused:
                # At once: what came for a member of a work queue until it is gone would be lost.
                self.subscriber.remove_all(subscription.client, now)


def _quoted(event: Event) -> bytes:
    match event:
        case FrameRun(head):
            return quote("SEND", head.headers)
        case Subscribed(headers=headers):
            return quote("SUBSCRIBE", headers)
        case Unsubscribed(headers=headers):
            return quote("UNSUBSCRIBE", headers)
        case Acked(ids, header):
            return quote("NACK" if event.negative else "ACK", ((header, ids[0].decode()),))
    return b""


def _heartbeat_header(plan: HeartbeatPlan) -> str:
    return f"{plan.send_every_s * 1000:.0f},{plan.expect_every_s * 1000:.0f}"


def _asked_receipt(event: Event) -> bytes | None:
    if isinstance(event, FrameRun):
        # The first frame of a run is at fault; who asked may be a later one.
        return next((receipt for asker, receipt in event.receipts if asker == 1), None)
    if isinstance(event, Acked):
        return event.receipts[0][1] if event.receipts else None
    if isinstance(event, Subscribed | Unsubscribed | Left | Committed):
        return event.receipt
    return None
