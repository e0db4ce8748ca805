"""The messaging core: synchronous, single-threaded, without a clock.

Only the dispatcher calls it. Each call is atomic: it validates, changes the state, and stages the
frames to clients. No call waits.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from attrs import define, field

from trio_stomp.base import CloseReason, Identity, MemoryBudget, RemoteError, noop
from trio_stomp.broker._configuration import Configurator
from trio_stomp.broker._deferred import ROOM_S, DeferredEvents
from trio_stomp.broker._ordering import SendOrder
from trio_stomp.broker._receipts import Receipts
from trio_stomp.broker._sessions import Sessions
from trio_stomp.broker._statistics import Statistics, statistics
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import (
    LIMIT_S,
    NEVER,
    PUMP_S,
    SHARE_S,
    STEPS,
    BrokerPolicies,
    Client,
    Delivery,
    EventHistory,
    NotYet,
    NullOutbox,
    Publication,
    Timers,
    Turns,
    WallTime,
    Work,
)
from trio_stomp.broker.durability import Log
from trio_stomp.broker.explain import Explainer, Monitor, Tracer
from trio_stomp.broker.headers import NOTHING, Dialect, SendOutcome, add_origin, error_frame
from trio_stomp.broker.managing import Manager
from trio_stomp.broker.names import DIAG_STREAM, MONITOR, Kind
from trio_stomp.broker.queues import (
    Acknowledger,
    Consumer,
    Overflow,
    QueueBook,
    QueueFull,
    Storage,
)
from trio_stomp.broker.routing import (
    BrokerEvent,
    BrokerEvents,
    Destinations,
    FanOut,
    PolicyBook,
    Quotas,
    too_many_subscribers,
)
from trio_stomp.broker.sending import (
    Duplicates,
    LeftoverRequests,
    Publisher,
    Scheduler,
    SendContext,
    TransactionCommitter,
)
from trio_stomp.broker.streams import Stream, Streams
from trio_stomp.broker.subscribing import LOST, Leaving, Subscriptions, Unsubscriber
from trio_stomp.broker.topics import Bindings, LastValues, StaleQueue
from trio_stomp.frames import FrameRun, Head
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

if TYPE_CHECKING:
    from collections.abc import Generator

    from trio_stomp.broker.rules import AccessRules
    from trio_stomp.store import LeftOut


@define(eq=False, repr=False)
class Broker:
    """The messaging core of a broker, made by ``assemble``.

    Handles: topics, work queues, queues, acknowledgements, transactions, the stale queue, DIAG
    requests, receipts, errors.
    Does not handle: sockets, clocks (``now`` is a parameter), authentication.

    Its arguments are its parts.
    """

    policies: BrokerPolicies
    memory: MemoryBudget
    dialect: Dialect
    wall: WallTime
    log: Log | None
    timers: Timers
    turns: Turns
    clients: dict[Client, None]
    deferred: DeferredEvents
    duplicates: Duplicates
    destinations: Destinations
    configuration: Configurator
    stale: StaleQueue
    fan_out: FanOut
    event_history: EventHistory
    events: BrokerEvents
    quotas: Quotas
    authorizer: Authorizer
    queues: QueueBook
    acknowledger: Acknowledger
    overflow: Overflow
    storage: Storage | None
    streams: Streams
    last_values: LastValues
    bindings: Bindings
    subscriptions: Subscriptions
    unsubscriber: Unsubscriber
    leaving: Leaving
    publisher: Publisher
    committer: TransactionCommitter
    scheduler: Scheduler
    leftovers: LeftoverRequests
    manager: Manager
    sessions: Sessions
    explainer: Explainer
    tracer: Tracer
    durability: SendOrder = field(init=False)
    receipts: Receipts = field(init=False)
    monitor: Monitor = field(init=False)
    _null_outbox: NullOutbox = field(init=False)
    _is_cut: bool = field(init=False)
    """The last turn was too short for all blocked producers with room again."""

    def __attrs_post_init__(self) -> None:
        self._null_outbox, self._is_cut = NullOutbox(), False
        self.durability = SendOrder(self.log, self.publisher, self, self.turns)
        self.receipts = Receipts(self.durability, self.event_history)
        self.monitor = Monitor(self.destinations, self.turns, self.publish)
        self.manager.core = self

    # For the dispatcher.

    def apply(
        self, client: Client, events: Sequence[Event], received_at: float, now: float
    ) -> None:
        """Apply events of a client, in order, up to the first error.

        Events beyond the client's time share are held for a later turn.

        Args:
          client: The sender.
          events: The events of its session.
          received_at: When their bytes were read, in seconds of the broker's clock.
          now: Seconds of the broker's clock.
        """
        self.event_history.now = now
        if self.tracer.traces:
            self.tracer.received(client, events, now)
        if client.is_blocked:
            self.deferred.append(client, events, received_at)
            return
        self.turns.now = now
        self.turns.begin(SHARE_S)
        self._carry_out(client, events, received_at, now)

    def _carry_out(
        self, client: Client, events: Sequence[Event], received_at: float, now: float
    ) -> None:
        if self.authorizer.unjudged:
            self.authorizer.judge(client)
        for index, event in enumerate(events):
            if client.is_refused:
                return
            if index and self.turns.is_over():
                self.wait_turn(client, iter(()), events[index:], received_at)
                return
            if client.awaited and self.durability.must_wait(client, event):
                self.durability.hold(client, events[index:], received_at)
                return
            try:
                if type(event) is FrameRun:
                    if not self._send(client, events, index, received_at, now):
                        return
                elif type(event) is Acked:
                    event = self.acknowledger.resolve(client, event)
                    is_stored, without = self.acknowledger.apply(client, event, now)
                    self.receipts.of_acks(client, event, is_stored=is_stored, without=without)
                elif type(event) is Committed and not self._affords(client, event):
                    self.wait_turn(client, iter(()), events[index:], received_at)
                    return
                else:
                    work = self._apply_rare(client, event, now)
                    if work is not None and not self.turns.finishes(work):
                        self.wait_turn(client, work, events[index + 1 :], received_at)
                        return
            except NotYet as later:
                self.wait_turn(client, later.work, events[index:], received_at)
                return
            except RemoteError as error:
                self._end_excess(now)
                self.destinations.forget_new()
                add_origin(error, event)
                if client.awaited and self.durability.is_awaited(client):
                    # Earlier replies must come first: nothing follows an ERROR.
                    self.durability.hold(client, [Refused(error.without_traceback())], received_at)
                    return
                self.refuse(client, error.without_traceback(), now)
            if self.fan_out.slow:
                self._settle_slow(now, records=True)

    def use_policies(self, book: PolicyBook) -> None:
        """Apply new policies, also to existing destinations.

        Messages above a new limit stay: limits apply to new messages. With very many destinations,
        some follow in later turns.
        """
        self.queues.policies = book
        self.memory.quota_percent = self.policies.max_share_per_user
        work = self.configuration.configuring(self.destinations, self.bindings)
        self.turns.start(work, self.turns.now)

    def use_rules(
        self, rules: "AccessRules | None", is_known: Callable[[Identity], bool], now: float
    ) -> None:
        """Apply new access rules.

        Clients that no longer exist, or may no longer receive from a subscription, get an ERROR and
        are disconnected. With many clients, some follow in later turns, but each before its next
        frame.

        Args:
          rules: The new rules; None = everything is allowed.
          is_known: Returns whether an authenticated identity is still valid.
          now: Seconds of the broker's clock.
        """
        self.turns.start(self.authorizer.judging(rules, self.clients, is_known, self), now)

    def end_turn(self, now: float, *, is_last: bool = True) -> None:
        """Resume waiting clients, and hand out messages of queues, while there is time.

        Args:
          now: Seconds of the broker's clock.
          is_last: All input that has come was applied, so that a dear event may be done.
        """
        self.event_history.now = now
        turns, overflow = self.turns, self.overflow
        try:
            if self.log is not None and self.log.has_more:
                self.durability.go_on(now)
            if turns.waiting or turns.bug is not None:
                turns.catch_up(self, now, is_last=is_last)
            turns.begin(PUMP_S)
            self.queues.pump(now)
            self._is_cut = False
            # Repeat here: there may be no other turn if an auto consumer took everything.
            while overflow.blocked and not self._is_cut and (ready := overflow.ready()):
                for client in ready:
                    self.unblock(client, now)
                self.queues.pump(now)
                self._is_cut = turns.is_over()
            while self.fan_out.slow:
                self._settle_slow(now, records=True)
                # Hand out their messages now: there may be no other turn.
                self.queues.pump(now)
        finally:
            if turns.ends:
                turns.end()

    @property
    def has_more(self) -> bool:
        """Return whether work is left for another turn."""
        is_waiting = len(self.turns) > 0 or self.queues.is_marked
        return self._is_cut or is_waiting or self.durability.has_more

    def forget(
        self, client: Client, reason: CloseReason, now: float, forgotten: Callable[[], None] = noop
    ) -> None:
        """Release a disconnected client: finish its earlier events, then end its subscriptions.

        Args:
          client: A client whose connection has ended.
          reason: Why it ended.
          now: Seconds of the broker's clock.
          forgotten: Called at the end, which may be several turns later.
        """
        client.is_gone = True
        if self.durability.keeps(client, reason, forgotten):
            return
        if client in self.overflow.blocked and reason is not CloseReason.CLIENT_CLOSED:
            self._give_up(client, now)
        if client.is_blocked:
            client.farewell = reason, forgotten
            if client in self.overflow.blocked:  # it may still read its RECEIPTs
                self.timers.call_at(now + ROOM_S, partial(self._give_up, client))
            self.turns.resume(client)  # its work may wait for others, and need not now
            return
        client.is_lost |= not client.is_refused and reason in LOST
        client.is_refused = True
        self.leaving.leave(client, now, partial(self._forget, client, reason, forgotten))
        client.outbox.close(reason)  # its subscriptions may end later: stage nothing more

    def _give_up(self, client: Client, now: float) -> None:
        """Refuse the SENDs for which a client that is gone has waited for room in a queue."""
        while (full := self.overflow.give_up(client)) is not None:
            self.refuse(client, self.deferred.refused(client, full), now)
            self.unblock(client, now)

    def _forget(self, client: Client, reason: CloseReason, forgotten: Callable[[], None]) -> None:
        try:
            if client in self.clients:
                del self.clients[client]
                detail = "; ".join(filter(None, (f"from {client.remote}", client.refusal)))
                self.events.record("disconnect", client, reason=reason.text, detail=detail)
            client.outbox = self._null_outbox
        finally:
            forgotten()

    @property
    def is_finished(self) -> bool:
        """Return whether nothing is left for later turns."""
        return self.leaving.is_over and not self.has_more

    def finish(self, now: float) -> None:
        """Finish all deferred work, at the end of the broker."""
        while self.has_more:
            self.end_turn(now)
        self.leaving.finish(now)

    def writable(self, client: Client, now: float) -> None:
        """Resume delivery to a client whose outbox has room again."""
        if client.is_leaving:
            return
        self.subscriptions.go_on(client, now)

    def unsent(self, delivery: Delivery, now: float) -> None:
        """Dead-letter deliveries of a consumer that expired before they were written."""
        if delivery.ticket is not None:
            consumer, first = delivery.ticket
            assert isinstance(consumer, Consumer)
            numbers = range(first, first + delivery.count)
            self.acknowledger.take_unsent(consumer, numbers, now)

    def tick(self, now: float) -> None:
        """Run due timers, and drop expired messages, in pieces if many."""
        self.turns.begin(SHARE_S)
        self.timers.run(now, self.turns.is_over)
        self.leaving.go_on(now)
        self.event_history.now = now
        self.subscriptions.initial_delivery.browses.tick(now)
        is_more = self.stale.sweep(now)
        if self.streams.expire(now) or is_more:
            # A due timer requests another turn soon, after other work.
            self.timers.call_at(now, noop)

    def publish_monitor(self, now: float) -> None:
        """Publish the figures of queues on stompserver's ``/queue/monitor``."""
        if not self.monitor.is_busy:
            self.turns.start(self.monitor.work(), now)

    def publish(
        self,
        name: str,
        body: bytes,
        headers: Sequence[tuple[str, str]],
        now: float,
        stream: Stream | None = None,
    ) -> int:
        """Send a message to one of the broker's own topics. It is never parked.

        Args:
          name: The topic.
          body: The body.
          headers: The headers except the destination.
          now: Seconds of the broker's clock.
          stream: Also keeps it, unless the store is far behind.

        Returns:
          The number of copies that slow subscribers lost.
        """
        lost_before = self.fan_out.drops.slow_consumer
        destination = self.destinations.own(name)
        head = Head("SEND", (("destination", name), *headers), len(body), name)
        if destination.subscribers:
            self.fan_out.to_all(Publication(destination, head, [body], now, NEVER))
            if self.fan_out.slow:
                # No events: an event about a lost event would be lost again, in each turn.
                self._settle_slow(now, records=False)
        if stream is not None and (self.log is None or not self.log.is_full):
            self.streams.append(stream, head, [body], now, is_urgent=False)
        return self.fan_out.drops.slow_consumer - lost_before

    def statistics(self) -> Statistics:
        """Return the figures of this moment."""
        return statistics(self)

    # For operators, diagnostics and clusters.

    def take_events(self) -> list[BrokerEvent]:
        """Remove and return the events since the last call, for diagnostics."""
        return self.events.take()

    def lacks(self, destination: str) -> bool:
        """Return whether another core than this one has a destination."""
        return self.publisher.later.lacks(destination)

    def counts(self, destinations: Sequence[str]) -> bool:
        """Return whether this core counts a subscription, of all cores that have it."""
        return self.subscriptions.counts(destinations, ())

    def use_wall(self, offset_s: float, now: float) -> None:
        """Apply a step of the wall clock to everything that begins or ends at a time of day.

        Args:
          offset_s: Wall clock minus broker's clock, in seconds.
          now: Seconds of the broker's clock.
        """
        if self.log is None:
            self.wall.offset_s = offset_s
        else:
            self.wall.set(offset_s, self.log.next_id)
            self.log.keep(STEPS, self.wall.as_setting())
        self.stale.follow_wall_clock()
        self.scheduler.follow_wall_clock(now)

    @property
    def is_monitored(self) -> bool:
        """Return whether ``/queue/monitor`` has subscribers."""
        destination = self.destinations.find_current(MONITOR)
        return destination is not None and bool(destination.subscribers)

    def note_operation(self, event: str, queue: str, user: str, detail: str) -> None:
        """Publish the event of an operator's operation, with its user."""
        self.manager.record(event, queue, user, detail)

    def keep_events(self, max_bytes: int, max_age_s: float, window_bytes: int) -> Stream:
        """Keep events, even without subscribers, and return the stream of DIAG messages.

        Args:
          max_bytes: The limit on disk; 0 = none.
          max_age_s: The limit of age, in seconds; 0 = none.
          window_bytes: The limit in memory; 0 = the default.
        """
        self.events.are_stored = True
        return self.streams.open(DIAG_STREAM, max_bytes, round(max_age_s * 1000), window_bytes)

    def record_drop(self, reason: str, count: int, destination: str = "") -> None:
        """Record an event for messages that were dropped."""
        self.events.record("drop", destination=destination, reason=reason, detail=f"{count}")

    def losing(self, since: float) -> dict[str, str]:
        """Return the destination that lost most messages since a time, by reason, if known."""
        return self.event_history.losing(since)

    def has_subscribers(self, name: str) -> bool:
        """Return whether the broker's own topic ``name`` has subscribers."""
        return bool(self.destinations.own(name).subscribers)

    def note_capacity(self, limit_bytes: int) -> None:
        """Set the maximum bytes of messages in the store, or 0 if unknown."""
        self.memory.stored_limit = limit_bytes

    # The store.

    def committed(self, number: int, now: float, left_out: "Sequence[LeftOut]" = ()) -> None:
        """Carry out the effects up to a stored commit number, except for records left out."""
        self.durability.committed(number, now, left_out)
        if self.fan_out.slow:
            self._settle_slow(now, records=True)

    def uncommitted(self, error: str, now: float) -> None:
        """Withdraw records that the store refused, and send an ERROR to their senders."""
        self.durability.uncommitted(error, now)

    def refuse_durable(self, error: str, doubt: str, now: float) -> None:
        """Accept no durable messages until the store answers. Arguments as ``SendOrder.refuse``."""
        self.durability.refuse(error, doubt, now)

    # SEND.

    def _send(
        self, client: Client, events: Sequence[Event], index: int, received_at: float, now: float
    ) -> bool:
        """Send a run with its RECEIPTs, as far as there is time and room.

        Returns:
          Whether the client's next events may follow now. Otherwise they are held.
        """
        run = events[index]
        assert isinstance(run, FrameRun)
        publisher, count = self.publisher, len(run.bodies)
        answers: list[Work] = []
        try:
            if self.log is not None and self.log.refusal:
                self.durability.check_accepts(self.log, run.head, client.quota)
            context = SendContext(client, client.quota, received_at, now, answers=answers)
            taken, outcome = publisher.send(context, run)
        except QueueFull as error:
            self.receipts.of_run(client, run, error.done, error.outcome)
            names = (name for count, name in run.receipts if count == error.done + 1)
            error.receipt_id = next(names, None)
            raise
        work: Work = iter(())
        is_done = True
        if answers:
            answer = partial(self.receipts.of_run, client, run, taken)
            work = _in_turn(answers, outcome, answer)
            is_done = self.turns.finishes(work)
        elif run.receipts:
            self.receipts.of_run(client, run, taken, outcome)
        if taken == count and is_done:
            return True
        following = events[index + 1 :]
        if taken < count:
            later = [(number - taken, name) for number, name in run.receipts if number > taken]
            following = [FrameRun(run.head, run.bodies[taken:], later), *following]
            if self._is_to_queue(run.head):
                self.overflow.wait(client, run.bodies[taken])
                self.hold(client, following, received_at)
                return False
        self.wait_turn(client, work, following, received_at)
        return False

    def _affords(self, client: Client, event: Committed) -> bool:
        """Return whether this turn has time for a COMMIT."""
        cost_s = self.committer.cost_of(client, event)
        return not cost_s or self.turns.afford(cost_s) > 0

    def _is_to_queue(self, head: Head) -> bool:
        """Return whether a SEND has one destination, which is a queue."""
        name = head.destination or ""
        destination = self.destinations.find(name)
        return "," not in name if destination is None else destination.kind is Kind.QUEUE

    def _end_excess(self, now: float) -> None:
        """End clients whose wildcards close a destination for others."""
        clients, self.destinations.excess = self.destinations.excess, []
        for client in dict.fromkeys(clients):
            self.refuse(client, too_many_subscribers("wildcards", LIMIT_S, LIMIT_S / 2), now)

    def wait_turn(
        self, client: Client, work: Work, events: Sequence[Event], received_at: float
    ) -> None:
        """Continue a client's ``work``, and then its ``events``, in later turns."""
        self.turns.wait(client, work)
        self.hold(client, events, received_at)

    def hold(self, client: Client, events: Sequence[Event], received_at: float) -> None:
        """Hold a client's events, before those already held, and pause reading."""
        client.is_blocked = True
        self.deferred.put_back(client, events, received_at)
        client.outbox.pause_reading(paused=True)

    def unblock(self, client: Client, now: float) -> None:
        """Apply a client's held events."""
        self.deferred.resume(client, self._carry_out, now)
        if client.is_blocked and client not in self.overflow.blocked:
            return
        client.outbox.pause_reading(paused=client.is_blocked)
        if client.farewell is not None:
            (reason, forgotten), client.farewell = client.farewell, None
            self.forget(client, reason, now, forgotten)

    # Other events.

    def _apply_rare(self, client: Client, event: Event, now: float) -> Work | None:
        """Apply an event other than SEND and ACK, and return its work if it is large."""
        match event:
            case Opened():
                self.sessions.open(client, event)
            case Subscribed():
                return self.subscriptions.add(client, event, now)
            case Unsubscribed():
                return self.unsubscriber.unsubscribe(client, event, now)
            case Received(receipts, head, acked, returned, ignored=ignored):
                if head is not None and client.rights is not None:
                    self.publisher.plan(
                        client, head, client.quota
                    )  # check now; COMMIT checks again
                for _, name in receipts:
                    self.receipts.give(client, name, ignored)
                if acked or returned:
                    self.acknowledger.bind(client, acked, returned)
            case Committed():
                answers: list[Work] = []
                outcome = self.committer.commit(client, event, now, answers)
                if outcome is not None:
                    answer = partial(self.receipts.of_commit, client, event)
                    return _in_turn(answers, outcome, answer)
            case Disconnected(receipt):
                if not self.durability.holds_leaving(client, event):
                    return self.sessions.leave(client, receipt, now)
            case Queried(query):
                self.sessions.answer(client, query)
            case Refused(error):
                raise error
        return None

    def refuse(self, client: Client, error: RemoteError, now: float) -> None:
        """Send an ERROR to a client and end its connection, unless the dialect keeps it."""
        client.outbox.stage_frame(error_frame(error, client.rules, self.dialect.error_texts))
        self.quotas.note_refused(client, error)
        if self.dialect.keeps_socket_after_error and error.is_survivable:
            return
        client.is_refused = True
        client.is_lost = error.reason in LOST
        client.outbox.close(error.reason)
        self.leaving.leave(client, now)

    def _settle_slow(self, now: float, *, records: bool) -> None:
        """Record events for slow subscribers, and end the subscriptions of those disconnected."""
        slow, self.fan_out.slow = self.fan_out.slow, []
        if records:
            self.events.record_slow(slow)
        for subscription, _ in slow:
            if subscription.client.is_refused:
                # End it now, or messages routed to it meanwhile would be lost.
                self.leaving.leave(subscription.client, now)


def _in_turn(
    answers: list[Work], outcome: SendOutcome, then: Callable[[SendOutcome], None]
) -> Work:
    """Answer a client's requests to the broker, and then its SEND or COMMIT."""
    for rest in answers:
        found = yield from cast("Generator[None, None, SendOutcome | None]", rest)
        outcome |= found or NOTHING
    then(outcome)
