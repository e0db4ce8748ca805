"""The messaging core: synchronous, single-threaded, without a clock.

Only the dispatcher calls it. Each call is atomic: it validates, then changes, then has staged all
that clients will see of it. Nothing here waits for anybody.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import CloseReason, Identity, Quota, RemoteError, noop
from trio_stomp.broker._acking import Acking
from trio_stomp.broker._assembly import Parts
from trio_stomp.broker._configuration import configuring
from trio_stomp.broker._ordering import SendOrder
from trio_stomp.broker._receipts import Receipts
from trio_stomp.broker._sessions import Sessions
from trio_stomp.broker.delivery import (
    NEVER,
    PUMP_S,
    SHARE_S,
    Client,
    Delivery,
    NotYet,
    Nowhere,
    Publication,
    Work,
)
from trio_stomp.broker.explain import Explainer, Monitor, Tracer
from trio_stomp.broker.headers import asked_receipt, error_frame, quoted
from trio_stomp.broker.queues import Consumer, QueueFull
from trio_stomp.broker.routing import Begun, Giving, PolicyBook
from trio_stomp.broker.sending import TransactionCommitter
from trio_stomp.broker.subscribing import LOST
from trio_stomp.frames import FrameRun, Head
from trio_stomp.protocol import (
    Acked,
    Asked,
    Committed,
    Event,
    Left,
    Opened,
    Received,
    Refused,
    Subscribed,
    Unsubscribed,
)

if TYPE_CHECKING:
    from trio_stomp.broker.rules import AccessRules


@define(eq=False, repr=False)
class Broker(Parts):
    """Destinations, subscriptions, and what passes between them.

    Handles: topics, work queues, queues, acknowledgements, transactions, the stale queue, the
    seed's DIAG requests, receipts, errors.
    Does not handle: sockets, time (told as ``now``), who a client is.

    Its arguments are those of ``Parts``.
    """

    durability: SendOrder = field(init=False)
    receipts: Receipts = field(init=False)
    acking: Acking = field(init=False)
    sessions: Sessions = field(init=False)
    committer: TransactionCommitter = field(init=False)
    explainer: Explainer = field(init=False)
    tracer: Tracer = field(init=False)
    monitor: Monitor = field(init=False)
    _nowhere: Nowhere = field(init=False)
    _is_cut: bool = field(init=False)
    """The last turn was too short for all producers that had room again."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._nowhere = Nowhere()
        self._is_cut = False
        self.sessions = Sessions(
            self.server_name,
            dialect=self.dialect,
            clients=self.clients,
            leaving=self.leaving,
            answers=self.answers,
            events=self.events,
            authorizer=self.authorizer,
        )
        self.durability = SendOrder(self.log, self.publisher, self.streams, self)
        self.receipts = Receipts(self.durability)
        self.acking = Acking(self.acknowledger, self.event_history, self.durability, self.log)
        self.explainer = Explainer(
            self.event_history,
            boot=self.boot,
            dialect=self.dialect,
            destinations=self.destinations,
            clients=self.clients,
            authorizer=self.authorizer,
            host=self,
        )
        self.tracer = Tracer(self.events, self.clients, self.timers)
        self.monitor = Monitor(self.destinations, self.turns, self.publish)
        self.answers.explain, self.answers.read = self.explainer.explain, self.explainer.read
        self.answers.send = self._send_answer
        self.answers.trace = lambda text: self.tracer.ask(text, self.event_history.now)
        self.committer = TransactionCommitter(
            self.publisher, self.acknowledger, self.queues, self.overflow
        )

    # What the dispatcher calls.

    def apply(
        self, client: Client, events: Sequence[Event], received_at: float, now: float
    ) -> None:
        """Apply one client's events, in order, and stop at the first violation.

        Args:
          client: The sender.
          events: From its session. Work beyond a turn's share is deferred.
          received_at: When their bytes were read, in seconds of the broker's clock.
          now: The same clock, now.
        """
        self.event_history.now = now
        if self.tracer.is_on:
            self.tracer.received(client, events, now)
        if client.is_blocked:
            self.held.append(client, events, received_at)
            return
        self.turns.ends_at = now + SHARE_S
        self._carry_out(client, events, received_at, now)

    def _carry_out(
        self, client: Client, events: Sequence[Event], received_at: float, now: float
    ) -> None:
        if self.authorizer.unjudged:
            self.authorizer.judge(client)
        for place, event in enumerate(events):
            if client.is_refused:
                return
            if place and self.turns.is_over():
                self.wait_turn(client, iter(()), events[place:], received_at)
                return
            if client.awaited and self.durability.must_wait(client, event):
                self.durability.hold(client, events[place:], received_at)
                return
            try:
                if type(event) is FrameRun:
                    rest = self._send(client, event, received_at, now)
                    if rest is not None:
                        self._block(client, rest, [rest, *events[place + 1 :]], received_at)
                        return
                elif type(event) is Acked:
                    event = self.acknowledger.resolve(client, event)
                    if self.acknowledger.is_much(client, event):
                        acking, behind = self.acking.begin(client, event, events[place + 1 :], now)
                        self.wait_turn(client, acking, behind, received_at)
                        return
                    is_stored = self.acknowledger.apply(client, event, now)
                    self.acking.answer(client, event, is_stored=is_stored)
                else:
                    work = self._apply_rare(client, event, now)
                    if work is not None and not self.turns.finishes(work):
                        self.wait_turn(client, work, events[place + 1 :], received_at)
                        return
            except NotYet as later:
                self.wait_turn(client, later.work, events[place:], received_at)
                return
            except Begun as begun:
                work = self._giving(client, event, begun.giving)
                if not self.turns.finishes(work):
                    self.wait_turn(client, work, events[place + 1 :], received_at)
                    return
            except RemoteError as error:
                self.destinations.forget_new()
                if error.receipt_id is None:
                    error.receipt_id = asked_receipt(event)
                if not error.excerpt:
                    error.excerpt = quoted(event)
                if client.awaited and self.durability.is_awaited(client):
                    # Earlier promises come first, and nothing follows an ERROR.
                    self.durability.hold(client, [Refused(error.kept())], received_at)
                    return
                self.refuse(client, error.kept(), now)
            if self.fan_out.slow:
                self._settle_slow(now, tells=True)

    def use_policies(self, book: PolicyBook) -> None:
        """Apply new policies, also to existing destinations.

        Messages beyond a new bound stay: bounds apply to new messages. With very many destinations,
        some follow in later turns.
        """
        self.book = self.queues.policies = book
        self.memory.quota_percent = self.policies.max_share_per_user
        self.turns.start(configuring(self.destinations, self.bindings, self), self.turns.now)

    def use_rules(
        self, rules: "AccessRules | None", is_known: Callable[[Identity], bool], now: float
    ) -> None:
        """Apply new access rules.

        Clients that are no longer known, or are subscribed to something that they may no longer
        receive, get an ERROR and are disconnected; they may reconnect. With many clients, some
        follow in later turns, but before anything that they send.

        Args:
          rules: None = everything is allowed.
          is_known: Whether an identity that was authenticated before is still valid.
          now: Seconds of the broker's clock.
        """
        self.turns.start(self.authorizer.judging(rules, self.clients, is_known, self), now)

    def end_turn(self, now: float) -> None:
        """Resume waiting clients, and hand out new messages of queues, while there is time."""
        self.event_history.now = now
        turns, overflow = self.turns, self.overflow
        self.durability.go_on(now)
        turns.catch_up(self, now)
        turns.begin(PUMP_S)
        self.queues.pump(now)
        self._is_cut = False
        # Repeat: nothing may start another turn if an auto consumer took everything.
        while overflow.blocked and not self._is_cut and (ready := overflow.ready()):
            for client in ready:
                self.unblock(client, now)
            self.queues.pump(now)
            self._is_cut = turns.is_over()
        while self.fan_out.slow:
            self._settle_slow(now, tells=True)
            # Hand out their messages now: nothing may start another turn.
            self.queues.pump(now)
        self.destinations.lent.end_turn()
        self.subscriber.selectors.end_turn()
        self.subscriber.initial_delivery.browses.end_turn()

    @property
    def has_more(self) -> bool:
        """Return whether something is left for another turn, once other tasks had theirs."""
        is_waiting = len(self.turns) > 0 or self.queues.is_marked
        return self._is_cut or is_waiting or self.durability.has_more

    def forget(
        self,
        client: Client,
        reason: CloseReason,
        now: float,
        forgotten: Callable[[], None] = noop,
    ) -> None:
        """Release a disconnected client: finish what it sent before, then end its subscriptions.

        Args:
          client: The client.
          reason: Why its connection ended.
          now: Seconds of the broker's clock.
          forgotten: Called at the end, which may be after an answer of the store, and after several
            turns if there is much to do.
        """
        client.is_gone = True
        if self.durability.keeps(client, reason, forgotten):
            return
        if client.is_blocked and client not in self.turns:
            self.overflow.forget(client)
            self.unblock(client, now)
            if self.durability.keeps(client, reason, forgotten):
                return
        if client.is_blocked:
            client.farewell = reason, forgotten
            return
        client.is_lost |= not client.is_refused and reason in LOST
        client.is_refused = True
        self.leaving.leave(client, now, partial(self._forget, client, reason, forgotten))
        client.outbox.close(reason)  # if it takes longer: nothing more is for it

    def _forget(self, client: Client, reason: CloseReason, forgotten: Callable[[], None]) -> None:
        try:
            if client in self.clients:
                del self.clients[client]
                detail = f"from {client.remote}"
                self.events.tell("disconnect", client, reason=reason.text, detail=detail)
            client.outbox = self._nowhere
        finally:
            forgotten()

    @property
    def is_finished(self) -> bool:
        """Return whether nothing is left for later turns."""
        return self.leaving.is_over and not self.has_more

    def finish(self, now: float) -> None:
        """Finish all deferred work, as no more input follows."""
        while self.has_more:
            self.end_turn(now)
        self.leaving.finish(now)

    def writable(self, client: Client, now: float) -> None:
        """Resume delivery to a client whose outbox has room again."""
        if client.is_leaving:
            return
        self.subscriber.go_on(client, now)
        if self.fan_out.slow:
            self._settle_slow(now, tells=True)

    def unsent(self, delivery: Delivery, now: float) -> None:
        """Messages expired before they were written, which their consumer would have had to ACK."""
        if delivery.ticket is not None:
            consumer, first = delivery.ticket
            assert isinstance(consumer, Consumer)
            numbers = range(first, first + delivery.count)
            self.acknowledger.take_unsent(consumer, numbers, now)

    def tick(self, now: float) -> None:
        """Advance the time: run due timers, and drop expired messages, in pieces if many."""
        self.timers.run(now)
        self.leaving.go_on(now)
        self.event_history.now = now
        self.subscriber.initial_delivery.browses.tick(now)
        is_more = self.stale.sweep(now)
        if self.streams.expire(now) or is_more:
            # The caller of the timers returns soon, and lets other work run first.
            self.timers.call_at(now, noop)

    def publish_monitor(self, now: float) -> None:
        """Publish the figures of queues on stompserver's ``/queue/monitor``."""
        if not self.monitor.is_busy:
            self.turns.start(self.monitor.work(), now)

    def publish(
        self, name: str, body: bytes, headers: Sequence[tuple[str, str]], now: float
    ) -> None:
        """Send a message of the broker's own to the topic ``name``. It is never parked."""
        destination = self.destinations.own(name)
        if destination.subscribers:
            pairs = (("destination", name), *headers)
            head = Head("SEND", pairs, len(body), name)
            self.fan_out.to_all(Publication(destination, head, [body], now, NEVER))
            if self.fan_out.slow:
                # An event about lost events would be lost in turn, and double each turn.
                self._settle_slow(now, tells=False)

    # The store.

    def committed(self, number: int, now: float) -> None:
        """Publish everything up to a commit number, now that it is stored."""
        self.durability.committed(number, now)
        if self.fan_out.slow:
            self._settle_slow(now, tells=True)

    def uncommitted(self, error: str, now: float) -> None:
        """Withdraw everything that the store refused, and report the loss to its senders."""
        self.durability.uncommitted(error, now)

    def _send_answer(self, run: FrameRun, quota: Quota | None) -> None:
        now = self.event_history.now
        self.overflow.send_quietly(lambda: self.publisher.send_for(run, quota, now))

    # SEND.

    def _send(
        self, client: Client, run: FrameRun, received_at: float, now: float
    ) -> FrameRun | None:
        """Send a run with its receipts. Return the part that must wait for room, or None."""
        try:
            taken, evidence = self.publisher.send(client, run, received_at, now)
        except QueueFull as error:
            self.receipts.of_run(client, run, error.taken, self.publisher.stored(run.head))
            following = (name for place, name in run.receipts if place == error.taken + 1)
            error.receipt_id = next(following, None)
            raise
        if run.receipts:
            self.receipts.of_run(client, run, taken, evidence)
        if taken == len(run.bodies):
            return None
        later = [(place - taken, name) for place, name in run.receipts if place > taken]
        return FrameRun(run.head, run.bodies[taken:], later)

    def _giving(self, client: Client, event: Event, giving: Giving) -> Work:
        """Give a run that was sent to very many. Its receipts are answered when all have it."""
        assert isinstance(event, FrameRun)
        giving.tell = partial(self.receipts.of_run, client, event, len(event.bodies))
        return giving.pieces()

    def _block(
        self, client: Client, rest: FrameRun, events: Sequence[Event], received_at: float
    ) -> None:
        """Block a producer on a full queue: process nothing more of it until there is room."""
        self.overflow.wait(client, rest.bodies[0])
        self.hold(client, events, received_at)

    def wait_turn(
        self, client: Client, work: Work, events: Sequence[Event], received_at: float
    ) -> None:
        """Defer a client's ``work``, and then its ``events``, to later turns."""
        self.turns.wait(client, work)
        self.hold(client, events, received_at)

    def hold(self, client: Client, events: Sequence[Event], received_at: float) -> None:
        """Defer a client's events, ahead of those deferred before, and pause reading."""
        client.is_blocked = True
        self.held.put_back(client, events, received_at)
        client.outbox.pause_reading(paused=True)

    def unblock(self, client: Client, now: float) -> None:
        """Apply a client's deferred events."""
        client.is_blocked = False
        while client.held and not client.is_blocked:
            events, received_at = self.held.pop(client)
            self._carry_out(client, events, received_at, now)
        if client.is_blocked:
            return
        client.outbox.pause_reading(paused=False)
        if client.farewell is not None:
            (reason, forgotten), client.farewell = client.farewell, None
            self.forget(client, reason, now, forgotten)

    # Everything else.

    def _apply_rare(self, client: Client, event: Event, now: float) -> Work | None:
        """Apply a rare event, and return the rest of its work if it is large."""
        match event:
            case Opened():
                self.sessions.open(client, event)
            case Subscribed():
                subscribe: Callable[[], Work | None]
                subscribe = partial(self.subscriber.add, client, event, now)
                if self.lines.busy:
                    places = self.subscriber.places(client, event)
                    subscribe = partial(self.lines.subscribe, places, subscribe, event.receipt)
                if self.last_values.must_judge:
                    find_places = partial(self.subscriber.places, client, event)
                    return self.last_values.subscribe(event, find_places, subscribe)
                return subscribe()
            case Unsubscribed():
                return self.unsubscriber.unsubscribe(client, event, now)
            case Received(receipts, head, acked, returned):
                if head is not None and client.rights is not None:
                    self.publisher.plan(client, head)  # COMMIT asks again
                for _, name in receipts:
                    self.receipts.give(client, name)
                if acked or returned:
                    return self.acknowledger.binding(client, acked, returned)
            case Committed():
                tell = partial(self.receipts.of_commit, client, event)
                return self.committer.commit(client, event, now, tell)
            case Left(receipt):
                if not self.durability.holds_leaving(client, event):
                    return self.sessions.leave(client, receipt, now)
            case Asked(query):
                self.sessions.answer(client, query)
            case Refused(error):
                raise error
        return None

    def refuse(self, client: Client, error: RemoteError, now: float) -> None:
        """Send a client its last frame: an ERROR."""
        client.outbox.stage_frame(error_frame(error, client.rules, self.dialect.error_texts))
        self.quotas.note_refused(client.quota, error)
        if self.dialect.keeps_socket_after_error and error.is_survivable:
            return
        client.is_refused = True
        client.is_lost = error.reason in LOST
        client.outbox.close(error.reason)
        self.leaving.leave(client, now)

    def _settle_slow(self, now: float, *, tells: bool) -> None:
        """Report slow subscribers, and end those whose connection that closed."""
        slow, self.fan_out.slow = self.fan_out.slow, []
        if tells:
            self.events.tell_slow(slow)
        for subscription, _ in slow:
            if subscription.client.is_refused:
                # End it now, or messages routed to it meanwhile would be lost.
                self.leaving.leave(subscription.client, now)
