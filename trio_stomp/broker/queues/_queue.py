"""A queue: waiting messages, consumers, credit and expiry."""

from bisect import insort
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker.delivery import NEVER, Publication, Work
from trio_stomp.broker.headers import PRIORITY_DEFAULT
from trio_stomp.broker.queues._consumer import Consumer
from trio_stomp.broker.queues._groups import Groups
from trio_stomp.broker.queues._hand_out import MOST_CONSUMERS, SCAN_LIMIT, hand_out, some_ready
from trio_stomp.broker.queues._message import MESSAGE_OVERHEAD_BYTES, Message, Paged, Waiting
from trio_stomp.broker.queues._queue_host import DeadLetterReason, QueueHost
from trio_stomp.broker.queues._scan_positions import ScanPositions
from trio_stomp.broker.routing import DestinationPolicy

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Destination

PLACE = "queue:"
"""Prefix of the keys of queues in the store."""
SWEEP_S = 1.0
"""Minimum interval of sweeps for expired messages in a queue."""
EXPIRED = 16
"""Messages of a queue that expire in one piece of work."""
LOW_COUNT = 1_000
"""With fewer messages than this in memory, a queue loads paged messages."""


@define(eq=False, repr=False)
class Queue:
    """One queue. It exists while it has messages, consumers, or a durable subscription's name.

    Args:
      destination: The destination whose counters it uses: for a subscription's own queue, a topic.
      policy: Limits and policies.
      host: The core.
      place: The key in the store; "" = never stored.
    """

    name: str
    destination: "Destination"
    policy: DestinationPolicy
    host: "QueueHost[Queue]"
    place: str = ""
    waiting: Waiting = field(factory=Waiting)
    consumers: list[Consumer] = field(factory=list)
    size: int = 0
    """Bytes of the bodies of all messages, in any state."""
    arriving: int = 0
    """Messages on their way to the store, invisible until then."""
    spilling: int = 0
    """Runs of arriving messages that are stored only to save memory or to keep the order."""
    delayed: int = 0
    delayed_bytes: int = 0
    unacked: int = 0
    enqueued: int = 0
    dequeued: int = 0
    redelivered: int = 0
    nacked: int = 0
    groups: Groups = field(init=False)
    passed: ScanPositions | None = None
    """The scan positions of consumers with selectors, if any."""
    reassign: Callable[[Message, float, float], bool] | None = None
    """For a member of a work queue: passes a refused message to another member, if any."""
    on_orphan: Callable[[Message, float], None] | None = None
    """Set when the queue has ended: takes messages that return later."""
    is_paused: bool = False
    """An operator has stopped the hand-out."""
    is_declared: bool = False
    """An operator has created it: it stays without messages and consumers."""
    is_marked: bool = False
    has_selectors: bool = False
    last_served: Consumer | None = None
    """The consumer served last. Round-robin continues after it."""
    _sweep_at: float = NEVER
    """When the next sweep for expired messages is due, in seconds of the broker's clock."""
    _sweep_day_s: float = NEVER
    """The time of day at which it is due, for messages that expire by the wall clock."""

    def __attrs_post_init__(self) -> None:
        self.groups = Groups(self.host.memory)

    @property
    def depth(self) -> int:
        """Return the number of waiting messages, delayed ones included."""
        return self.waiting.count + self.waiting.paged + self.delayed

    @property
    def message_count(self) -> int:
        """Return the number of messages in any state."""
        return self.depth + self.unacked + self.arriving

    @property
    def is_idle(self) -> bool:
        """Return whether nothing keeps the queue: messages, consumers or an operator."""
        return not (self.message_count or self.consumers or self.is_paused or self.is_declared)

    @property
    def may_give_up(self) -> bool:
        """Return whether there is a dead-letter queue. Dead-letter queues have none."""
        return bool(self.policy.dead_letter_for(self.destination.name))

    # Messages in.

    def room_for(self, body: bytes) -> bool:
        """Return whether one more message fits the policy's limits, regardless of memory."""
        return self.fits(1, len(body))

    def fits(self, count: int, size: int) -> bool:
        """Return whether ``count`` messages of ``size`` bytes together fit the policy's limits."""
        policy = self.policy
        if policy.max_messages and self.message_count + count > policy.max_messages:
            return False
        return not policy.max_bytes or self.size + size <= policy.max_bytes

    def could_fit(self, size: int) -> bool:
        """Return whether a message of ``size`` bytes would fit if waiting messages were dropped."""
        policy = self.policy
        bound = self.unacked + self.delayed + self.arriving + self.waiting.paged
        if policy.max_messages and bound >= policy.max_messages:
            return False
        taken = self.delayed_bytes + sum(
            len(each.message.body)
            for consumer in self.consumers
            for each in consumer.unacked.values()
            if each.queue is self
        )
        return not policy.max_bytes or taken + size <= policy.max_bytes

    def level_of(self, priority: int) -> int:
        """Return the level of a priority. Without priorities there is one level."""
        return priority if self.policy.priority else PRIORITY_DEFAULT

    def expect(self, count: int, size: int) -> None:
        """Reserve room for charged messages on their way to the store."""
        self.arriving += count
        self.size += size

    def unexpect(self, count: int, size: int) -> None:
        """Undo ``expect``: the messages have arrived, or never will."""
        self.arriving -= count
        self.size -= size
        if not self.consumers:
            self.host.note_idle(self)

    def put_all(self, level: int, messages: list[Message], size: int) -> None:
        """Accept messages of one level, from ``level_of``, that fit and have been charged."""
        self.enqueued += len(messages)
        self.size += size
        self.waiting.extend(level, messages)
        if self.passed is not None:
            self.passed.note_back(level, messages[0].number)
        self.host.mark(self)
        self._watch_expiry(messages[0].publication)

    def put(self, message: Message) -> None:
        """Accept a message that fits and has been charged."""
        message.level = self.level_of(message.level)
        self.put_all(message.level, [message], len(message.body))

    def put_paged(self, level: int, first: int, count: int, size: int) -> None:
        """Accept messages that stay in the store, from id ``first`` on."""
        self.enqueued += count
        self.size += size
        self.waiting.page_out(level, first, count, size)
        self.host.mark(self)

    def load(self, level: int, messages: list[Message], is_last: bool) -> None:
        """Insert paged messages that were read and charged. ``is_last``: no more are paged."""
        size = sum(len(message.body) for message in messages)
        self.waiting.loaded(level, messages, size)
        if is_last:
            self.forget_paged(level)
            self.host.note_idle(self)
        for message in messages:
            self._watch_expiry(message.publication)
        self.host.mark(self)

    def forget_paged(self, level: int) -> None:
        """Forget the paged part of a level: its messages are loaded, ended or lost."""
        self._forget(self.waiting.forget_paged(level))

    def _forget(self, paged: Paged) -> None:
        """Subtract a forgotten paged part, and release its charges."""
        self.size -= paged.size
        paged.give_back(self.host.memory)

    def drop_oldest(self) -> Message | None:
        """Remove and return the first message to make room, and release its memory."""
        message = self.waiting.pop()
        if message is not None:
            self._release(message)
        return message

    def give_back(self, message: Message, delay_s: float, now: float) -> None:
        """Return a failed delivery to its position, at once or after a delay."""
        if self.on_orphan is not None:
            self._release(message)
            self.on_orphan(message, now)
            return
        if delay_s <= 0:
            self._put_back(message)
            return
        self.delayed += 1
        self.delayed_bytes += len(message.body)

        def due(at: float) -> None:
            self.delayed -= 1
            self.delayed_bytes -= len(message.body)
            if self.on_orphan is not None:
                self._release(message)
                self.on_orphan(message, at)
                return
            self._put_back(message)

        self.host.timers.call_at(now + delay_s, due)

    def _put_back(self, message: Message) -> None:
        self.waiting.give_back(message)
        if self.passed is not None:
            self.passed.note_back(message.level, message.number)
        self.host.mark(self)

    # Consumers.

    def attach(self, consumer: Consumer) -> None:
        """Serve ``consumer`` too. Do nothing if it is already served."""
        if self in consumer.queues:
            return
        # Behind the others of its priority. There may be thousands, so no full sort.
        insort(self.consumers, consumer, key=lambda each: -each.options.priority)
        consumer.queues[self] = None
        if self.groups.owners:
            active = self._active()
            if len(active) < len(self.consumers):
                self.groups.keep_only(active)
                self._forget_passed()
        if consumer.selector is not None:
            self.has_selectors = True
        self.host.mark(self)

    def detach(self, consumer: Consumer) -> None:
        """Stop serving ``consumer``. The caller returns its unacknowledged messages."""
        self.consumers.remove(consumer)
        consumer.queues.pop(self, None)
        if self.last_served is consumer:
            self.last_served = None  # or it would stay in memory with the queue
        if self.groups.owners:
            self.groups.leave(consumer)
            self._forget_passed()  # its groups may go to the others
        if self.passed is not None:
            self.passed.leave(consumer)
        if consumer.selector is not None:
            self._update_has_selectors()
        if self.consumers:
            self.host.mark(self)
        self.host.note_idle(self)

    def _forget_passed(self) -> None:
        if self.passed is not None:
            self.passed.forget()

    def _update_has_selectors(self) -> None:
        self.has_selectors = any(consumer.selector is not None for consumer in self.consumers)

    def oldest_waiting_age_s(self, now: float) -> float | None:
        """Return the seconds since the oldest waiting message was received, or 0 without any.

        Messages delayed for redelivery do not count.

        Returns:
          None if the oldest message is in the store only.
        """
        oldest_at = self.waiting.oldest_at
        return None if oldest_at is None else max(0.0, now - oldest_at)

    def oldest_unacked_age_s(self, now: float) -> float:
        """Return the seconds since the oldest unacknowledged delivery, or 0 without any."""
        if not self.unacked:
            return 0.0
        return max((each.oldest_age_s(now) for each in self.consumers), default=0.0)

    # Messages out.

    def pump(self, now: float) -> None:
        """Hand out messages, round-robin among the ready consumers of the highest priority.

        When the time is up, the rest follows in a later turn.
        """
        beneath = NEVER
        while self.waiting.count and not self.is_paused:
            ready = self._ready(beneath)
            if not ready:
                break
            level = ready[0].options.priority
            served, is_cut = hand_out(self, ready, now)
            for consumer, messages in served.items():
                self.unacked += len(messages) if consumer.tracks else 0
                if not consumer.tracks:
                    self.release_all(messages)
                    self.dequeued += len(messages)
                first = consumer.deliver(self, self.destination, messages)
                self.host.note_delivered(self, consumer, first, messages)
                if consumer.tracks:
                    consumer.note_time(first, now)
                    if self.place:
                        self.host.hand_out(messages)
                timeout_s = self.policy.ack_timeout_ms / 1000
                if timeout_s and consumer.tracks:
                    self.host.watch_acks(consumer, first, len(messages), now + timeout_s)
            if is_cut or (served and self.waiting.count and self.host.is_over()):
                self.host.mark(self)
                break
            # Consumers of a lower priority may match what these did not.
            beneath = NEVER if served else level
        if self.waiting.paged and (self.consumers or self.policy.drops_old):
            self.look_ahead()

    def look_ahead(self) -> None:
        """Start loading stored messages that will be needed soon."""
        request = self.waiting.wanted(SCAN_LIMIT if self.has_selectors else LOW_COUNT)
        if request is not None:
            self.host.page_in(self, *request)

    def release(self, message: Message) -> None:
        """Release a message that leaves the queue for another destination."""
        self._release(message)

    def settle(self, message: Message) -> None:
        """Finish an acknowledged message."""
        self.unacked -= 1
        self.dequeued += 1
        self._release(message)

    def settle_all(self, messages: list[Message]) -> None:
        """Finish acknowledged messages."""
        self.unacked -= len(messages)
        self.dequeued += len(messages)
        self.release_all(messages)

    def _watch_expiry(self, publication: Publication, after: float = 0.0) -> None:
        """Schedule a sweep, so that messages expire even without consumers.

        Args:
          publication: The publication that expires.
          after: The earliest time of the sweep, in seconds of the broker's clock.
        """
        expires_at, end = publication.expires_at, publication.end
        if expires_at >= self._sweep_at:
            return
        if end is not None:
            day_s = max(end.day_ms / 1000, after + end.wall.offset_s)
            if day_s < self._sweep_day_s:
                self._sweep_day_s = day_s
                self.host.timers.call_by_day(day_s, self._sweep_by_day)
            expires_at = end.at
        expires_at = max(expires_at, after)
        if expires_at < self._sweep_at:
            self._sweep_at = expires_at
            self.host.timers.call_at(expires_at, self._sweep)

    def _sweep_by_day(self, now: float) -> None:
        self._sweep_day_s = NEVER
        self.host.carry_out(self._losing_expired(now))

    def _sweep(self, now: float) -> None:
        self._sweep_at = NEVER
        self.host.carry_out(self._losing_expired(now))

    def _losing_expired(self, now: float) -> Work:
        is_more = True
        while is_more:
            expired = self.waiting.take_expired(now, EXPIRED)
            for message in expired:
                self.expire(message, now)
            is_more = len(expired) == EXPIRED
            if is_more:
                yield
        for publication in self.waiting.foremost():
            self._watch_expiry(publication, now + SWEEP_S)

    def expire(self, message: Message, now: float) -> None:
        """Dead-letter or drop an expired message that was removed from ``waiting``."""
        self.destination.expired += 1
        with self.host.atomically():
            self._release(message)
            self.host.dead_letter(self, message, DeadLetterReason.EXPIRED, now)

    def kill(self, message: Message, reason: DeadLetterReason, now: float) -> None:
        """Dead-letter an unacknowledged message."""
        self.unacked -= 1
        with self.host.atomically():
            self._release(message)
            self.host.dead_letter(self, message, reason, now)

    def end(self, on_orphan: Callable[[Message, float], None]) -> None:
        """End the queue: pass messages that return to ``on_orphan``, and forget paged ones."""
        self.on_orphan = on_orphan
        for paged in self.waiting.forget_all_paged():
            self._forget(paged)

    def _release(self, message: Message) -> None:
        self._release_run(message.publication, 1, len(message.body))
        if not self.consumers:
            self.host.note_idle(self)
        if message.stored:
            self.host.finish(message.stored)

    def release_all(self, messages: list[Message]) -> None:
        """Release the charges of one or more messages, a run of one publication at a time."""
        start = size = 0
        publication = messages[0].publication
        for n, message in enumerate(messages):
            if message.publication is not publication:
                self._release_run(publication, n - start, size)
                publication, start, size = message.publication, n, 0
            size += len(message.body)
        self._release_run(publication, len(messages) - start, size)
        if self.place:
            self.host.finish_all([message.stored for message in messages if message.stored])

    def _release_run(self, publication: Publication, count: int, size: int) -> None:
        """Release the charges of ``count`` messages with ``size`` bytes of bodies."""
        memory = self.host.memory
        self.size -= size
        memory.give_kept(size + MESSAGE_OVERHEAD_BYTES * count, publication.quota)
        if (stake := publication.stake) is not None:
            memory.give_stored(size + stake.each * count, stake.quota)
        head = publication.head
        head.waiting_count -= count
        if not head.waiting_count:
            memory.give_kept(head.cost, head.payer)
            head.payer = None

    def _ready(self, beneath: float) -> list[Consumer]:
        """Return the ready consumers of the highest priority that has any, in round-robin order.

        Args:
          beneath: Return only consumers of a lower priority than this.
        """
        active = self._active()
        if len(active) > MOST_CONSUMERS and not self.has_selectors:
            return some_ready(active, self.last_served, beneath)
        found: list[Consumer] = []
        for consumer in active:
            if consumer.options.priority >= beneath:
                continue
            if found and consumer.options.priority < found[0].options.priority:
                break
            if consumer.is_ready:
                found.append(consumer)
        if self.last_served in found:
            index = found.index(self.last_served) + 1
            found = found[index:] + found[:index]
        return found

    def _active(self) -> list[Consumer]:
        for consumer in self.consumers:
            if consumer.options.exclusive or self.policy.exclusive:
                return [consumer]
        return self.consumers


def queue_of(destination: "Destination | None") -> Queue | None:
    """Return the queue of a destination, or None."""
    queue = destination.queue if destination is not None else None
    return queue if isinstance(queue, Queue) else None
