"""A queue: waiting messages, consumers, credit and expiry."""

from bisect import insort
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from trio_stomp.base import BrokenInvariant, noop
from trio_stomp.broker.delivery import DROP_OLDEST, NEVER, Publication, Work
from trio_stomp.broker.headers import PRIORITY_DEFAULT
from trio_stomp.broker.queues._consumer import Consumer
from trio_stomp.broker.queues._groups import Groups
from trio_stomp.broker.queues._hand_out import next_ready, serve
from trio_stomp.broker.queues._message import DeadLetterReason, Message, charge_again, refund
from trio_stomp.broker.queues._scan_positions import ScanPositions, Taken, Window
from trio_stomp.broker.queues._waiting import LEVELS, Paged, Waiting
from trio_stomp.broker.routing import DEAD_LETTER, DestinationPolicy

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Destination
    from trio_stomp.broker.queues._queue_host import QueueHost

PLACE = "queue:"
"""Prefix of the keys of queues in the store."""
AGAIN_S = 1.0
"""Time after which what a bug prevented is tried again."""
SWEEP_S = 1.0
"""Minimum interval of sweeps for expired messages in a queue."""
LOOKED_AT, EXPIRED = 256, 16
"""Messages of a queue that are looked at in one step of a sweep, and those that expire in it."""
LOOK_S = 10e-6
"""A sweep rests this long for each message in memory, of which it looks at ten meanwhile: looking
at one takes 0.1 us."""
LOW_COUNT = 1_000
"""With fewer messages than this in memory, a queue loads paged messages."""


class Feed(Protocol):
    """A subscription to a topic, which fills its queue in place of SENDs. It refuses nobody."""

    @property
    def slow_consumer(self) -> str:
        """Return what happens to messages that do not fit, unless old ones leave by the policy."""

    @property
    def max_backlog_bytes(self) -> int:
        """Return the limit of its messages' bytes, besides that of the policy; 0 = none."""


@define(eq=False, repr=False)
class Queue:
    """One queue. It exists while it has messages, consumers, or a durable subscription's name.

    Args:
      destination: The destination whose counters it uses: for a subscription's own queue, a topic.
      policy: Limits and policies.
      host: The core.
      place: The key in the store; "" = never stored.
      feed: The subscription that it belongs to; None = it has a name of its own.
    """

    name: str
    destination: "Destination"
    policy: DestinationPolicy
    host: "QueueHost[Queue]"
    place: str = ""
    feed: Feed | None = None
    waiting: Waiting = field(factory=Waiting)
    consumers: list[Consumer] = field(factory=list)
    size: int = 0
    """Bytes of the bodies of all messages, in any state."""
    arriving: int = 0
    arriving_bytes: int = 0
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
    sought: tuple[int, int] | None = None
    window: Window | None = None
    """The page of stored messages that consumers examine. ``sought``: where the next one begins."""
    taken: Taken | None = None
    """The stored messages that they got, if any."""
    reassign: Callable[[Message, float, float], Work] | None = None
    """For a member of a work queue: passes a refused message to another one, or gives it back."""
    on_orphan: Callable[[Message, float], None] | None = None
    """Set when the queue has ended: takes messages that return later."""
    is_paused: bool = False
    """An operator has stopped the hand-out."""
    is_declared: bool = False
    """An operator has created it: it stays without messages and consumers."""
    is_marked: bool = False
    has_selectors: bool = False
    alone: Consumer | None = None
    """The exclusive consumer, which is served alone until it leaves."""
    last_served: Consumer | None = None
    """The consumer served last. Round-robin continues after it."""
    _sweep_at: float = NEVER
    """When the next sweep for expired messages is due, in seconds of the broker's clock."""
    _sweep_day_s: float = NEVER
    """The time of day at which it is due, for messages that expire by the wall clock."""
    _rested_at: float = 0.0
    """No sweep begins before this time: the last one has looked at many messages."""

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

    def dead_letter_of(self, message: Message) -> str:
        """Return the destination of a message if it becomes a dead letter, or "".

        Dead-letter queues have none, and what is sent to one client alone stays with that client.
        A subscription with a wildcard has those of the topics.
        """
        destination = self.destination
        sent_to = destination.name if self.feed is None else message.publication.head.destination
        name = sent_to or destination.name
        return "" if destination.private else self.policy.dead_letter_for(name)

    @property
    def may_give_up(self) -> bool:
        """Return whether there is a dead-letter queue."""
        destination = self.destination
        return not destination.private and bool(self.policy.dead_letter_for(destination.name))

    # Messages in.

    @property
    def overflow(self) -> str:
        """Return what happens to messages that do not fit."""
        if self.feed is None or self.policy.drops_old:
            return self.policy.overflow
        return self.feed.slow_consumer

    @property
    def overflow_rule(self) -> str:
        """Return the option that decides this, and its value."""
        has_own = self.feed is None or self.policy.drops_old
        return f"{'overflow' if has_own else 'slow_consumer'} = {self.overflow!r}"

    @property
    def drops_old(self) -> bool:
        """Return whether old messages leave for new ones that do not fit."""
        return self.overflow in (DROP_OLDEST, DEAD_LETTER)

    @property
    def max_bytes(self) -> int:
        """Return the limit of the bytes of all bodies; 0 = none."""
        most = self.policy.max_bytes
        if self.feed is not None and (backlog := self.feed.max_backlog_bytes):
            return min(most, backlog) if most else backlog
        return most

    def takes(self, count: int, size: int) -> bool:
        """Return whether new messages fit the limits, regardless of memory.

        Old ones that leave for those on their way to the store do so when these are in the queue
        (``Overflow.shorten``). So where old ones leave, those on their way do not count before.
        """
        if not (self.policy.max_messages or self.max_bytes):
            return True
        return (self.fits_now if self.drops_old else self.fits)(count, size)

    def fits_now(self, count: int, size: int) -> bool:
        """Return as ``fits``, but do not count messages on their way to the store."""
        return self.fits(count - self.arriving, size - self.arriving_bytes)

    def fits(self, count: int, size: int) -> bool:
        """Return whether ``count`` messages of ``size`` bytes together fit the limits."""
        most = self.policy.max_messages
        if most and self.message_count + count > most:
            return False
        most = self.max_bytes
        return not most or self.size + size <= most

    def level_of(self, priority: int) -> int:
        """Return the level of a priority. Without priorities there is one level."""
        return priority if self.policy.priority else PRIORITY_DEFAULT

    def expect(self, count: int, size: int) -> None:
        """Reserve room for charged messages on their way to the store."""
        self.arriving += count
        self.arriving_bytes += size
        self.size += size

    def unexpect(self, count: int, size: int) -> None:
        """Undo ``expect``: the messages have arrived, or never will."""
        self.expect(-count, -size)
        if not self.consumers:
            self.host.note_idle(self)

    def put_all(self, level: int, messages: list[Message], size: int) -> None:
        """Accept messages of one level, from ``level_of``, that fit and have been charged."""
        self.enqueued += len(messages)
        self.size += size
        self.waiting.extend(level, messages)
        if self.passed is not None:
            self._note_back(self.passed, level, messages[0])
        self.host.mark(self)
        self._watch_expiry(messages[0].publication)

    def _note_back(self, passed: ScanPositions, level: int, message: Message) -> None:
        try:
            passed.note_back(level, message.number, message)
        except Exception as bug:  # of a selector: all consumers examine all messages again
            self.host.turns.bug = bug
            passed.forget()

    def put_paged(self, level: int, first: int, origin: Publication, count: int, size: int) -> None:
        """Accept messages of a publication that stay in the store, from id ``first`` on."""
        self.enqueued += count
        self.size += size
        paged = self.waiting.page_out(level, first, count, size)
        paged.expires_at = min(paged.expires_at, origin.ends_at)
        if origin.end is not None:
            paged.day_s = min(paged.day_s, origin.end.day_ms / 1000)
        if self.passed is not None:
            self.passed.note_back(level, first)
        self.host.mark(self)

    def load(self, level: int, messages: list[Message], is_last: bool) -> None:
        """Insert paged messages that were read and charged. ``is_last``: no more are paged."""
        self.host.pages.end(self)
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

    def drop_oldest(self, then: Callable[[Message], object] = noop) -> bool:
        """Pass on and remove the first message, to make room. False = there is none, or a bug."""
        message = self.waiting.pop()
        if message is None or self.part_with(message, then, message):
            return message is not None
        self._put_back(message)
        return False

    def part_with(self, message: Message, then: Callable[..., object], *arguments: object) -> bool:
        """Pass on a message that left its place, and release it. False = neither, after a bug."""
        size = len(message.body)
        self._release_run(message.publication, 1, size)  # what it becomes may take its room
        try:
            with self.host.atomically():
                then(*arguments)
                self._finish([message])
        except Exception as bug:
            self.size += size
            charge_again(self.host.memory, message)
            self.host.turns.bug = bug
            return False
        return True

    def give_back(self, message: Message, delay_s: float, now: float) -> None:
        """Return a failed delivery to its position, at once or after a delay."""
        if self.on_orphan is not None:
            if self.part_with(message, self.on_orphan, message, now):
                return
            delay_s = AGAIN_S
        if delay_s > 0:
            until = now + delay_s
            if self.on_orphan is None:
                until = min(until, message.publication.ends_at)
            self._set_aside(message, until, partial(self.give_back, message, 0.0))
            self.host.mark(self)  # an exclusive consumer may have waited for it
        else:
            self._put_back(message)
            self.host.shorten(self, now)

    def _set_aside(self, message: Message, until: float, then: Callable[[float], object]) -> None:
        """Keep a message as a delayed one until a time, at which ``then`` takes it."""
        self._note_delayed(message, 1)

        def due(now: float) -> None:
            self._note_delayed(message, -1)
            then(now)

        self.host.timers.call_at(until, due)

    def _note_delayed(self, message: Message, change: int) -> None:
        self.delayed += change
        self.delayed_bytes += change * len(message.body)
        self.groups.hold(message.group, change)
        if message.group and self.policy.priority:
            self._forget_passed()  # other levels may have messages of the group

    def _put_back(self, message: Message) -> None:
        if self.passed is not None:
            self._note_back(self.passed, message.level, message)
        if self.taken is None or not self.host.pages.page_back(self, message):
            self.waiting.give_back(message)
            self._watch_expiry(message.publication)
        self.host.mark(self)

    # Consumers.

    def attach(self, consumer: Consumer) -> None:
        """Serve ``consumer`` too. Do nothing if it is already served."""
        if self in consumer.queues:
            return
        # Behind the others of its priority. There may be thousands, so no full sort.
        insort(self.consumers, consumer, key=lambda each: -each.options.priority)
        consumer.queues[self] = None
        self._appoint((consumer,))
        self.has_selectors |= consumer.selector is not None
        self.host.mark(self)

    def detach(self, consumer: Consumer) -> None:
        """Stop serving ``consumer``. The caller returns its unacknowledged messages."""
        self.consumers.remove(consumer)
        consumer.queues.pop(self, None)
        if self.alone is consumer:
            self.alone = None
            self._appoint(self.consumers)
        if self.last_served is consumer:
            self.last_served = None  # or it would stay in memory with the queue
        if self.groups.owners:
            self.groups.leave(consumer)
            if self.passed is not None:
                self.passed.free(consumer)
        if self.passed is not None:
            others = (each.selector for each in self.consumers)
            self.passed.leave(consumer, is_last=consumer.selector not in others)
        if consumer.selector is not None:
            self.has_selectors = any(each.selector is not None for each in self.consumers)
        if self.consumers or self.waiting.paged:
            self.host.mark(self)
        self.host.note_idle(self)

    def configure(self, policy: DestinationPolicy) -> None:
        """Apply a new policy."""
        self.policy = policy
        if self.alone is not None and not (policy.exclusive or self.alone.options.exclusive):
            self.alone = None
        self._appoint(self.consumers)
        self.host.mark(self)

    def _appoint(self, candidates: Sequence[Consumer]) -> None:
        """Choose the consumer that is served alone, if one must be and none is."""
        for consumer in candidates if self.alone is None else ():
            if consumer.options.exclusive or self.policy.exclusive:
                self.alone = consumer
                self.groups.keep_only((consumer,))
                self._forget_passed()
                break

    def _forget_passed(self) -> None:
        if self.passed is not None:
            self.passed.forget()

    def oldest_waiting_age_s(self, now: float) -> float | None:
        """Return the seconds since the oldest waiting message was received, or 0 without any.

        Those delayed for redelivery do not count. None = the oldest is in the store only.
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
        beneath, is_cut, self.sought = NEVER, False, None
        while (self.waiting.count or self.window) and not self.is_paused:
            ready = next_ready(self, beneath)
            if not ready:
                break
            level = ready[0].options.priority
            is_served, is_cut = serve(self, ready, now)
            is_over = is_served and self.waiting.count > 0 and self.host.turns.is_over()
            if is_cut := is_cut or is_over:
                self.host.mark(self)
                break
            # Consumers of a lower priority may match what these did not.
            beneath = NEVER if is_served else level
            self.sought = None if is_served else self.sought
        counts = self.unacked, self.arriving, self.delayed, self.waiting.count, self.waiting.paged
        if min(counts) < 0:
            state = f"unacked, arriving, delayed, waiting, paged: {counts}"
            raise BrokenInvariant("queue-counts", state, self.destination.name)
        if self.window is not None and self.window.upto and not is_cut:
            self.host.pages.end(self)
        if self.waiting.paged:
            if self.consumers or self.drops_old:
                self.host.pages.look_ahead(self)
            self.host.pages.watch_expired(self, now)

    def settle(self, messages: list[Message]) -> None:
        """Finish acknowledged messages."""
        self.release(messages)
        self._note_settled(len(messages))
        self.dequeued += len(messages)

    def _note_settled(self, count: int) -> None:
        """Note that a consumer has some messages no longer. An exclusive one may have waited."""
        self.unacked -= count
        if self.alone is not None:
            self.host.mark(self)

    def _watch_expiry(self, publication: Publication) -> None:
        """Schedule a sweep, so that messages expire even without consumers."""
        if publication.expires_at < self._sweep_at:
            end = publication.end
            if end is None:
                self.sweep_later(publication.expires_at, NEVER)
            else:
                self.sweep_later(end.at, end.day_ms / 1000)

    def sweep_later(self, at: float, day_s: float) -> None:
        """Schedule a sweep by the broker's clock, by the time of day, or both; NEVER = not."""
        at = max(at, self._rested_at)
        day_s = max(day_s, self._rested_at + self.host.timers.wall.offset_s)
        if day_s < self._sweep_day_s:
            self._sweep_day_s = day_s
            self.host.timers.call_by_day(day_s, self._sweep_by_day)
        if at < self._sweep_at:
            self._sweep_at = at
            self.host.timers.call_at(at, self._sweep)

    def _sweep_by_day(self, now: float) -> None:
        if self._sweep_day_s - self.host.timers.wall.offset_s <= now:  # else another is due
            self._sweep_day_s = NEVER
            self._lose_expired(now)

    def _sweep(self, now: float) -> None:
        if self._sweep_at <= now:  # else another is due
            self._sweep_at = NEVER
            self._lose_expired(now)

    def _lose_expired(self, now: float) -> None:
        self._rested_at = now + LOOK_S * self.waiting.count
        self.host.carry_out(self._losing_expired(now))

    def _losing_expired(self, now: float) -> Work:
        """Remove what has expired from memory, wherever it waits, and watch for what does next."""
        waiting, soonest, soonest_day_s = self.waiting, NEVER, NEVER
        level = waiting.level_beneath(LEVELS)
        while level >= 0:
            number = 0
            while piece := waiting.behind(level, number, LOOKED_AT):
                origin, is_over, expired = piece[0].publication, False, 0
                for index, message in enumerate(piece):
                    number = message.number
                    if index == 0 or message.publication is not origin:
                        origin = message.publication
                        is_over = origin.expires_at <= now and origin.is_over(now)
                        if not is_over and origin.end is None:
                            soonest = min(soonest, origin.expires_at)
                        elif not is_over and origin.end is not None:
                            soonest = min(soonest, origin.end.at)
                            soonest_day_s = min(soonest_day_s, origin.end.day_ms / 1000)
                    if is_over:
                        waiting.take(level, message)
                        self.expire(message, now)
                        expired += 1
                        if expired == EXPIRED:
                            break
                yield
            level = waiting.level_beneath(level)
        after, offset_s = now + SWEEP_S, self.host.timers.wall.offset_s
        self.sweep_later(max(soonest, after), max(soonest_day_s, after + offset_s))
        if waiting.paged:
            self.host.pages.sweep(self, now)
            self.host.mark(self)  # to load what comes next

    def expire(self, message: Message, now: float) -> None:
        """Dead-letter or drop an expired message that was removed from ``waiting``."""
        self.destination.expired += 1
        self._bury(message, DeadLetterReason.EXPIRED, now)

    def kill(self, message: Message, reason: DeadLetterReason, now: float) -> None:
        """Dead-letter an unacknowledged message."""
        self._note_settled(1)
        self._bury(message, reason, now)

    def _bury(self, message: Message, reason: DeadLetterReason, now: float) -> None:
        """Dead-letter a message that left its place. A bug only delays that."""
        bury = partial(self.host.dead_letter, self, message, reason, now)
        if not self.part_with(message, bury):
            self._set_aside(message, now + AGAIN_S, partial(self._bury, message, reason))

    def end(self, on_orphan: Callable[[Message, float], None]) -> None:
        """End the queue: pass messages that return to ``on_orphan``, and forget paged ones."""
        self.on_orphan = on_orphan
        if self.window is not None:
            self.host.pages.end(self)
        for paged in self.waiting.forget_all_paged():
            self._forget(paged)

    def ending(self, now: float) -> Work:
        """Give back what waits in an ended queue, to ``on_orphan``."""
        while (message := self.waiting.pop()) is not None:
            self.give_back(message, 0.0, now)
            yield

    def remove(self, messages: list[Message]) -> None:
        """Remove waiting messages, at least one, from any positions in memory."""
        self.release(messages)
        for message in messages:
            self.waiting.take(message.level, message)
        self.host.mark(self)  # to load what comes next

    def release(self, messages: list[Message]) -> None:
        """Release one or more messages that have ended. If the log fails, nothing has changed."""
        self._finish(messages)
        start = size = 0
        publication = messages[0].publication
        for n, message in enumerate(messages):
            if message.publication is not publication:
                self._release_run(publication, n - start, size)
                publication, start, size = message.publication, n, 0
            size += len(message.body)
        self._release_run(publication, len(messages) - start, size)

    def _finish(self, messages: list[Message]) -> None:
        """Record the end of messages in the store, and for those who read it."""
        if self.place:
            self.host.finish([message.stored for message in messages if message.stored])
        if self.taken is not None:
            self.host.pages.note_end(self, messages)
        if not self.consumers:
            self.host.note_idle(self)

    def _release_run(self, publication: Publication, count: int, size: int) -> None:
        """Release the charges of ``count`` messages with ``size`` bytes of bodies."""
        self.size -= size
        refund(self.host.memory, publication.head, count, size, publication.quota)
        if (stake := publication.stake) is not None:
            self.host.memory.give_stored(size + stake.each * count, stake.quota)

    def may_serve(self, consumer: Consumer) -> bool:
        """Return whether it is this queue's turn, if a search goes on, or note that it waits."""
        if consumer.turn is None or consumer.turn is self:
            return True
        self.host.want(consumer, self)
        return False

    @property
    def active(self) -> list[Consumer]:
        """Return the consumers that are served, the highest priority first.

        The exclusive one waits until others have settled what they had before it came.
        """
        alone = self.alone
        if alone is None:
            return self.consumers
        own = len(alone.unacked)
        if len(alone.queues) > 1:
            own = sum(message.source is self for message in alone.unacked.values())
        return [] if self.unacked > own else [alone]


def queue_of(destination: "Destination | None") -> Queue | None:
    """Return the queue of a destination, or None."""
    queue = destination.queue if destination is not None else None
    return queue if isinstance(queue, Queue) else None
