"""All queues: look-up, wildcards, hand-out in each turn, ack time-outs, dead letters."""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from attrs import define, evolve, field

from trio_stomp.base import MemoryBudget, ProtocolError, Quota
from trio_stomp.broker.delivery import (
    NEVER,
    Client,
    Destination,
    EventHistory,
    LossReason,
    NotYet,
    Publication,
    Subscription,
    Timers,
    Turns,
    Work,
    lifetime_rule,
)
from trio_stomp.broker.names import PRIVATE_QUEUE, STOMPSERVER_DEAD_LETTERS, Kind, Pattern
from trio_stomp.broker.queues._consumer import Consumer, Source
from trio_stomp.broker.queues._message import DeadLetterReason, Message, refund
from trio_stomp.broker.queues._queue import AGAIN_S, PLACE, Queue, queue_of
from trio_stomp.broker.queues._queue_host import MAX_HOPS, DeadLetterCounts, dead_head, hops_of
from trio_stomp.broker.queues._wildcard_queues import FEW_QUEUES, WildcardQueues
from trio_stomp.broker.queues._windows import Windows
from trio_stomp.broker.routing import Destinations, PolicyBook
from trio_stomp.frames import Head

if TYPE_CHECKING:
    from trio_stomp.broker.queues._acknowledger import Acknowledger
    from trio_stomp.broker.queues._storage import Storage

MIN_WATCHED = 16
"""Runs of deliveries watched for a consumer before acknowledged ones are removed."""


@define(eq=False, repr=False)
class QueueBook:
    """The queues of the broker. Implements ``QueueHost``."""

    destinations: Destinations
    policies: PolicyBook
    memory: MemoryBudget
    timers: Timers
    turns: Turns
    """Limits the time of the hand-out in a turn."""
    taking_back: Callable[[], "Acknowledger"]
    """Returns what returns messages from consumers to queues."""
    send_dead: Callable[[Destination, Head, Message, float], bool]
    """Sends a dead letter to a destination other than a queue."""
    admit_dead: Callable[[Queue, Publication, bytes, int, float], bool]
    """Puts a dead letter into a queue by its policy, and returns whether it was taken."""
    shorten: Callable[..., None]
    """Drops old messages of a queue, by its policy, for those that enter or return."""
    storage: "Storage | None" = None
    """The storage of durable messages, if there is a store."""
    may_hand_out: Callable[[], bool] = lambda: True
    """Whether this broker owns the queues. A node of a cluster may not own them for a while."""
    dead_letter_counts: DeadLetterCounts = field(factory=DeadLetterCounts)
    event_history: EventHistory | None = None
    """The history of events, for ``explain``."""
    urgent: dict[Subscription, None] = field(factory=dict)
    """Subscriptions of leaving clients that must end first, because a queue waits for them."""
    wildcard_queues: WildcardQueues = field(init=False)
    ending: dict[Consumer, None] = field(factory=dict)
    """Consumers that end in pieces. Their messages return before others are served."""
    frozen: dict[Queue, None] = field(factory=dict)
    """Queues that hand out nothing, with the number of unfinished COMMITs or NACKs into each."""
    _marked: deque[Source] = field(factory=deque)
    _accepted: int = 0

    def __attrs_post_init__(self) -> None:
        self.wildcard_queues = WildcardQueues(self.destinations, self.memory, turns=self.turns)

    def __iter__(self) -> Iterator[Queue]:
        found = (destination.queue for destination in self.destinations)
        return (queue for queue in found if isinstance(queue, Queue))

    def find(self, name: str) -> Queue | None:
        """Return the queue of ``name``, if there is one."""
        return queue_of(self.destinations.find(name))

    def largest(self, count: int) -> list[Queue]:
        """Return up to ``count`` queues with the most messages."""
        return heapq.nlargest(count, self, key=lambda queue: queue.message_count)

    def open(self, name: str, quota: Quota | None = None) -> Queue:
        """Return the queue of a destination, created if needed.

        Args:
          name: The name of the destination.
          quota: The quota charged if it is created.

        Raises:
          ProtocolError: As ``Destinations.open``.
        """
        destination = self.destinations.ensure(name, quota)
        queue = destination.queue
        if not isinstance(queue, Queue):
            place = "" if name.startswith(PRIVATE_QUEUE) else PLACE + name
            queue = destination.queue = self.private(destination, name, place)
            self.wildcard_queues.enter(queue)
        return queue

    def make(self, client: Client, destinations: Iterable[Destination]) -> None:
        """Create the queues that a SEND of ``client`` needs.

        Raises:
          NotYet: Many wildcard consumers must join a queue first.
        """
        for destination in destinations:
            if destination.kind is Kind.QUEUE and destination.queue is None:
                queue = self.open(destination.name, client.quota)
                if queue in self.wildcard_queues.entering:
                    raise NotYet(self.wildcard_queues.until_entered(queue))

    def private(self, destination: Destination, name: str, place: str = "") -> Queue:
        """Return a new queue that is not found by name.

        Args:
          destination: Has the counters.
          name: The name shown to operators.
          place: The key in the store; "" = never stored.
        """
        place = place if self.storage is not None else ""
        return Queue(name, destination, self.policies.policy_for(destination.name), self, place)

    def join(self, consumer: Consumer, name: str, pattern: Pattern | None) -> None:
        """Attach ``consumer`` to the queue ``name``, or to later queues that match ``pattern``."""
        if pattern is None:
            self.open(name, consumer.subscription.quota).attach(consumer)
        else:
            self.wildcard_queues.add(consumer, name, pattern)

    def leave(self, consumer: Consumer) -> None:
        """Detach ``consumer`` from all its queues."""
        self.wildcard_queues.leave(consumer)
        self.ending.pop(consumer, None)
        self.wildcard_queues.detach(consumer, len(consumer.queues))

    def is_small(self, consumer: Consumer) -> bool:
        """Return whether a consumer may end in one step."""
        return max(len(consumer.queues), len(consumer.unacked)) <= FEW_QUEUES

    def part(self, consumer: Consumer, count: int, now: float) -> None:
        """Do a piece of the end of ``consumer``: return messages, or detach queues.

        Up to ``count`` messages return first. Its queues hand out nothing until all are back.
        """
        if consumer not in self.ending:
            self.ending[consumer] = None
            consumer.is_early = True
            self.wildcard_queues.leave(consumer)
        if consumer.unacked:
            self.taking_back().return_some(consumer, count, now)
        else:
            self.wildcard_queues.detach(consumer, count)

    def want(self, consumer: Consumer, behind: Queue | None = None) -> None:
        """Implement ``QueueHost.want``."""
        if len(consumer.queues) == 1 and consumer.turn is None:
            self.mark(next(iter(consumer.queues)))
        else:
            self.wildcard_queues.search(consumer, behind)

    def end(self, name: str, now: float) -> None:
        """Remove a queue with its messages."""
        destination = self.destinations.find(name)
        queue = queue_of(destination)
        if destination is not None and queue is not None:
            for consumer in list(queue.consumers):
                queue.detach(consumer)
            self.end_messages(queue, partial(self._lose, queue), now)
            self.forget(destination)
            destination.queue = None
            self.destinations.note_idle(destination)

    def end_messages(
        self, queue: Queue, on_orphan: Callable[[Message, float], None], now: float
    ) -> None:
        """End a queue, and pass its messages to ``on_orphan``, in later turns if there are many."""
        queue.end(on_orphan)
        self.carry_out(queue.ending(now))

    def forget(self, destination: Destination) -> None:
        """Forget the name of a queue that has ended."""
        if destination.queue is not None:
            self.wildcard_queues.names.discard(destination.name)

    def _lose(self, queue: Queue, message: Message, _now: float) -> None:
        message.publication.destination.dropped += 1
        self.note_lost(queue, LossReason.QUEUE_ENDED, message, "")

    @property
    def accepted(self) -> int:
        """Return the number of the last accepted message."""
        return self._accepted if self.storage is None else self.storage.log.next_id - 1

    def reserve(self, count: int) -> int:
        """Reserve numbers in the order of acceptance, and return the first.

        With a store they are its ids.
        """
        if self.storage is not None:
            return self.storage.log.take_numbers(count)
        self._accepted += count
        return self._accepted - count + 1

    def stored_messages(
        self, publication: Publication, bodies: list[bytes], level: int, stored: int
    ) -> list[Message]:
        """Return messages that are in the store with the ids from ``stored`` on."""
        origin = publication.without_sender()
        return [Message(n, origin, body, level, n) for n, body in enumerate(bodies, stored)]

    def accept(
        self, queue: Queue, origin: Publication, bodies: list[bytes], level: int, size: int
    ) -> None:
        """Put messages that fit and have been charged into a queue.

        Those that go to the store (``Storage.gets``), or their group does, enter it when stored.
        """
        level, storage = queue.level_of(level), self.storage
        waits = origin.is_stored and queue.destination.private
        try:
            if storage is not None and (waits or storage.gets(queue, origin, level)):
                storage.accept(queue, origin, bodies, level, size)
            else:
                first = self.reserve(len(bodies))
                self.insert(queue, origin, bodies, level, size=size, first=first)
        except BaseException:  # a bug: nothing else will release the charge
            refund(self.memory, origin.head, len(bodies), size, origin.quota)
            raise

    def insert(
        self,
        queue: Queue,
        origin: Publication,
        bodies: list[bytes],
        level: int,
        *,
        size: int,
        first: int,
    ) -> None:
        """Insert messages in memory at the positions of their numbers.

        They fit, have been charged, and are numbered from ``first`` on.
        """
        # For no-local, a member of a work queue keeps the sender: it may pass the message on.
        source = origin if queue.reassign is not None else origin.without_sender()
        messages = [Message(n, source, body, level) for n, body in enumerate(bodies, first)]
        if self.event_history is not None:
            self.event_history.queued(queue.name, origin.sender, first, len(messages))
        queue.put_all(level, messages, size)

    def note_lost(
        self, queue: Queue, reason: LossReason | str, message: Message | None, rule: str
    ) -> None:
        """Record for ``explain`` why a message has ended, or, with None, did not enter a queue."""
        if self.event_history is not None:
            number = message.number if message is not None else None
            name = queue.name if queue.feed is None else queue.destination.name
            self.event_history.lost_by_queue(reason, name, number, rule)

    def note_delivered(
        self, queue: Queue, consumer: Consumer, first: int, messages: list[Message]
    ) -> None:
        """Implement ``QueueHost.note_delivered``."""
        if self.event_history is not None:
            numbers = [message.number for message in messages]
            self.event_history.delivered(queue.name, consumer.subscription, first, numbers)

    # QueueHost.

    def mark(self, queue: Source, _now: float = 0.0) -> None:
        """Schedule the hand-out of ``queue`` at the end of the turn."""
        if not queue.is_marked:
            queue.is_marked = True
            self._marked.append(queue)

    @property
    def is_marked(self) -> bool:
        """Return whether any hand-out is scheduled, and allowed."""
        return bool(self._marked or self.wildcard_queues.searching) and self.may_hand_out()

    def pump(self, now: float) -> None:
        """Hand out messages of scheduled queues while there is time."""
        if not self.may_hand_out():
            return
        marked, turns, entering = self._marked, self.turns, self.wildcard_queues.entering
        readers = None if self.storage is None else self.storage.readers
        if readers is not None and readers.held:
            readers.go_on()
        while True:
            if marked:
                queue = marked.popleft()
                queue.is_marked = False
                is_quiet = not (self.destinations.leaving or self.ending or self.frozen or entering)
                if is_quiet or not self._must_wait(queue):
                    try:
                        queue.pump(now)
                    except Exception:
                        self.timers.call_at(now + AGAIN_S, partial(self.mark, queue))
                        raise
            elif not self.wildcard_queues.searching:
                return
            elif (found := self.wildcard_queues.look_on()) is not None:
                self.mark(found)
                continue
            if readers is not None and readers.held and not marked:
                readers.go_on()  # now: those that it lets in may need no page any more
            if turns.is_over():
                return

    def carry_out(self, work: Work) -> None:
        """Implement ``QueueHost.carry_out``."""
        if not self.turns.finishes(work):
            self.turns.carry_out(work)

    def freeze(self, queues: Iterable[Queue]) -> None:
        """Stop the hand-out of ``queues`` until older messages are in them."""
        for queue in queues:
            self.frozen[queue] = None

    def thaw(self, queues: Iterable[Queue]) -> None:
        """Undo ``freeze``."""
        for queue in queues:
            del self.frozen[queue]
            self.mark(queue)

    def _must_wait(self, source: Source) -> bool:
        """Return whether other messages must first enter or return, to keep the order."""
        if not isinstance(source, Queue) or not (source.waiting.count or source.window):
            return False
        if source in self.frozen or source in self.wildcard_queues.entering:
            return True
        subscriptions = [consumer.subscription for consumer in source.consumers]
        gone = [each for each in subscriptions if each.client.is_leaving]
        self.urgent.update(dict.fromkeys(gone))
        return bool(gone) or any(each in self.ending and each.unacked for each in source.consumers)

    def note_idle(self, queue: Queue) -> None:
        """Note that a queue without consumers shrank: it may be idle."""
        self.destinations.note_idle(queue.destination)

    def watch_acks(self, consumer: Consumer, first: int, count: int, due: float) -> None:
        """Time out deliveries that are not acknowledged by ``due``."""
        consumer.watched.append((due, first, count))
        if len(consumer.watched) > 2 * len(consumer.unacked) + MIN_WATCHED:
            # Most are already acknowledged: remove them.
            consumer.watched = [each for each in consumer.watched if _is_awaited(consumer, each)]
        self._watch(consumer, due)

    def _watch(self, consumer: Consumer, due: float) -> None:
        """Check a consumer's deliveries at ``due``, unless an earlier check is scheduled."""

        def look(now: float) -> None:
            if consumer.watch_due > now:
                return
            late = [each for each in consumer.watched if each[0] <= now]
            consumer.watched = [each for each in consumer.watched if each[0] > now]
            consumer.watch_due = NEVER
            if consumer.watched:
                self._watch(consumer, min(consumer.watched)[0])
            numbers = [range(first, first + count) for _, first, count in late]
            self.carry_out(self.taking_back().timing_out(consumer, chain(*numbers), now))

        if due < consumer.watch_due:
            consumer.watch_due = due
            self.timers.call_at(due, look)

    def dead_letter(
        self, queue: Queue, message: Message, reason: DeadLetterReason, now: float
    ) -> bool:
        """Make a message a dead letter, if policy and room allow it. Return whether it is one."""
        self.dead_letter_counts.failed[reason] += 1
        self.note_lost(queue, reason.value, message, self._rule_of(queue, message, reason))
        name = self._dead_letter_name(queue, message, reason)
        if name and name != queue.name and self._keep_dead(name, queue, message, reason, now):
            self.dead_letter_counts.moved[reason] += 1
            return True
        self.dead_letter_counts.lost += 1
        queue.destination.dropped += reason is not DeadLetterReason.EXPIRED
        return False

    def _keep_dead(
        self, name: str, queue: Queue, message: Message, reason: DeadLetterReason, now: float
    ) -> bool:
        """Send a message to the dead-letter destination ``name``. Return False if this fails."""
        hops = hops_of(message, reason)
        if hops > MAX_HOPS:
            return False  # policies that send dead letters in a loop
        head = dead_head(message, (queue.name, queue.destination.name), reason, name, hops)
        quota = message.publication.payer
        try:
            destination = self.destinations.ensure(name, quota)
            if destination.kind is not Kind.QUEUE:
                return self.send_dead(destination, head, message, now)
            target = self.open(name, quota)
        except ProtocolError:
            return False
        expires_at = now + destination.ttl_s if destination.ttl_s else NEVER
        origin = Publication(destination, head, [], now, expires_at, quota=quota)
        if (options := message.publication.options) is not None:
            # As they are read back: without what ``dead_head`` leaves out.
            origin.options = evolve(
                options, expires_ms=0, ttl_ms=0, once=(), dedup_id="", dedup_line=None
            )
        is_stored = message.stored > 0 or (self.storage is not None and destination.stores(None))
        origin.is_stored = is_stored
        return self.admit_dead(target, origin, message.body, message.level, now)

    def finish(self, ids: list[int]) -> None:
        """Record the end of messages in the store."""
        if ids and self.storage is not None:  # pragma: no branch (there is a store)
            log = self.storage.log
            log.finish(ids[0]) if len(ids) == 1 else log.finish_all(ids)

    def hand_out(self, messages: list[Message]) -> None:
        """Record deliveries of messages in the store."""
        assert self.storage is not None
        self.storage.log.hand_out([message.stored for message in messages if message.stored])

    def note_failed(self, message: Message) -> None:
        """Record in the store how often a message has failed."""
        if message.stored and self.storage is not None:
            self.storage.log.note_failed(message.stored, message.failures)

    @property
    def pages(self) -> Windows:
        """Return what reads stored messages. There is a store."""
        assert self.storage is not None
        return self.storage.windows

    def atomically(self) -> AbstractContextManager[None]:
        """Return a context whose records are stored all or none."""
        return nullcontext() if self.storage is None else self.storage.log.atomically()

    def _rule_of(self, queue: Queue, message: Message, reason: DeadLetterReason) -> str:
        """Return the policy or header that caused a dead letter, or "" for a NACK."""
        if reason is DeadLetterReason.DELIVERY_LIMIT:
            return f"max_redeliveries = {queue.policy.max_redeliveries}"
        if reason is DeadLetterReason.OVERFLOW:
            return queue.overflow_rule
        if reason is DeadLetterReason.EXPIRED:
            return lifetime_rule(message.publication)
        options = message.publication.options
        if reason is DeadLetterReason.MAX_EXCEPTIONS and options is not None:
            return f"header max-exceptions = {options.max_exceptions}"
        return ""

    def _dead_letter_name(self, queue: Queue, message: Message, reason: DeadLetterReason) -> str:
        if reason is DeadLetterReason.EXPIRED and not queue.policy.dead_letter_expired:
            return ""
        if reason is DeadLetterReason.MAX_EXCEPTIONS and not queue.destination.private:
            return STOMPSERVER_DEAD_LETTERS
        return queue.dead_letter_of(message)


def _is_awaited(consumer: Consumer, watched: tuple[float, int, int]) -> bool:
    _, first, count = watched
    return any(number in consumer.unacked for number in range(first, first + count))
