"""Hand-out of a queue's messages to the ready consumers, round-robin."""

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import BrokenInvariant
from trio_stomp.broker.queues._message import Message
from trio_stomp.broker.queues._scan_positions import ScanPositions
from trio_stomp.broker.queues._waiting import LEVELS, Paged

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Publication
    from trio_stomp.broker.queues._consumer import Consumer
    from trio_stomp.broker.queues._queue import Queue

MOST = 1024
"""Limit of messages in one step, about 2 ms."""
MOST_CONSUMERS = 256
"""Limit of consumers in one step: one message for each costs three times as much as many for
one."""
MOST_BYTES = 1024 * 1024
"""Limit of bytes in one step. The last message may exceed it."""
PIECE = 64
"""Messages looked up in one step."""
FEW_PASSED = 16
"""Scan positions up to this many messages are not kept."""
MOST_EXPIRED = 64
"""Limit of messages that expire in one step."""
GONE, PASSED, CUT = 0, 1, 2
"""Results of an offer: the message left the queue; it stays; the time ran out."""
_number = attrgetter("number")
WEIGHT = 64
"""Work between two looks at the clock."""
CHECK_WEIGHT = 4
"""Work for a message, and for a selector. Each character of the selector adds 1."""
CONSUMERS_A_WEIGHT = 8
"""Consumers that a scan skips for 1 unit of work."""


def next_ready(queue: "Queue", beneath: float) -> "list[Consumer]":
    """Return the ready consumers of the highest priority below ``beneath``, in their turn.

    Returns:
      All that may search for messages. Of those without selectors ``MOST_CONSUMERS`` + 1 are
      enough.
    """
    active = queue.active
    for consumer in active:
        if consumer.options.priority < beneath and consumer.is_ready:
            break
    else:
        return []
    level, first, stop = consumer.options.priority, active.index(consumer), len(active)
    if active[-1].options.priority < level:
        stop = bisect_right(active, -level, first, key=lambda each: -each.options.priority)
    peers = active[first:stop]
    if queue.last_served in peers:
        start = peers.index(queue.last_served) + 1
        peers = peers[start:] + peers[:start]
    most = len(peers) if queue.has_selectors else MOST_CONSUMERS + 1
    found: list[Consumer] = []
    for each in peers:
        if (each is consumer or each.is_ready) and queue.may_serve(each):
            found.append(each)
            if len(found) == most:
                break
    return found


def hand_out(
    queue: "Queue",
    ready: "list[Consumer]",
    now: float,
    served: "dict[Consumer, list[Message]]",
) -> bool:
    """Assign messages to ``ready`` consumers, round-robin, until either runs out.

    Args:
      queue: A queue with waiting messages.
      ready: The consumers with credit, in order. Emptied as credit runs out.
      now: Seconds of the broker's clock.
      served: Gets the messages of each consumer, which leave the queue and use its credit.

    Returns:
      Whether the time ran out before all were offered.
    """
    most = MOST if len(ready) <= MOST_CONSUMERS else MOST_CONSUMERS
    room, expired = MOST_BYTES, 0
    is_open = queue.has_selectors  # some may not get what comes next
    while not is_open and ready and most and room > 0:
        messages = queue.waiting.next(min(most, _credit(ready, 0)))
        if plain := _plain_ones(messages, now):
            count, size = _deal(queue, ready, messages[:plain], served, room)
            most, room = most - count, room - size
        elif not messages or messages[0].group:
            is_open = bool(messages or queue.groups.owners)
            break
        elif expired == MOST_EXPIRED:
            return True
        else:
            expired += 1
            queue.waiting.take_next(1)
            queue.expire(messages[0], now)
    if not (is_open and ready and most and room > 0 and (queue.waiting.count or queue.window)):
        return False
    return FilteredMessages(queue, ready=ready, now=now, served=served, most=most, room=room).run()


def _plain_ones(messages: list[Message], now: float) -> int:
    """Return how many messages at the beginning are of no group and have not expired."""
    last: Publication | None = None
    for count, message in enumerate(messages):
        origin = message.publication
        if origin is not last:
            if origin.group or (origin.expires_at <= now and origin.is_over(now)):
                return count
            last = origin
    return len(messages)


def serve(queue: "Queue", ready: "list[Consumer]", now: float) -> tuple[bool, bool]:
    """Hand out messages to ``ready`` consumers, and deliver them. After a bug they are put back.

    Returns:
      Whether any message was handed out, and whether the time ran out.
    """
    served: dict[Consumer, list[Message]] = {}
    try:
        is_cut = hand_out(queue, ready, now, served)
        is_served = bool(served)
        while served:
            consumer = next(iter(served))
            _deliver(queue, consumer, served[consumer], now)
            del served[consumer]
    except Exception as error:
        _take_back(queue, served)
        if isinstance(error, BrokenInvariant):
            error.concerns = queue.destination.name
        raise
    return is_served, is_cut


def _deliver(queue: "Queue", consumer: "Consumer", messages: list[Message], now: float) -> None:
    """Deliver messages that were taken out for a consumer, and charged to it."""
    first = consumer.deliver(queue, queue.destination, messages)
    queue.host.note_delivered(queue, consumer, first, messages)
    if not consumer.tracks:
        queue.release(messages)
        queue.dequeued += len(messages)
        return
    consumer.note_time(first, now)
    if queue.place:
        queue.host.hand_out(messages)
    if timeout_s := queue.policy.ack_timeout_ms / 1000:
        queue.host.watch_acks(consumer, first, len(messages), now + timeout_s)
    queue.unacked += len(messages)


def _take_back(queue: "Queue", served: "dict[Consumer, list[Message]]") -> None:
    """Put back what a failed hand-out took out, except deliveries that consumers have."""
    for consumer, messages in served.items():
        delivered = set(map(id, consumer.unacked.values()))
        back = [message for message in messages if id(message) not in delivered]
        queue.unacked += len(messages) - len(back)
        consumer.uncharge(back)
        for message in back:
            queue.waiting.give_back(message)


def _deal(
    queue: "Queue",
    ready: "list[Consumer]",
    messages: list[Message],
    served: "dict[Consumer, list[Message]]",
    room: int,
) -> tuple[int, int]:
    """Hand out the next messages in rounds of the consumers, as many as all have credit for.

    The result is the same as one by one, at a third of the cost. Afterwards the first in ``ready``
    comes next.

    Args:
      queue: The queue.
      ready: The consumers with credit, in their turn.
      messages: What comes next in the queue, one or more.
      served: Gets the messages of each consumer.
      room: Limit of bytes. The last message may exceed it.

    Returns:
      The number of messages and the bytes of their bodies.
    """
    sizes = [len(message.body) for message in messages]
    largest, count = max(sizes), len(messages)
    if largest:
        count = min(count, _credit(ready, largest), room // largest or 1)
        if count < len(messages):
            messages, sizes = messages[:count], sizes[:count]
    queue.waiting.take_next(count)
    turn = count % len(ready)
    queue.last_served = ready[turn - 1]
    parts = [(each, messages[index :: len(ready)]) for index, each in enumerate(ready)]
    ready.clear()
    for consumer, part in parts[turn:] + parts[:turn]:
        if part:
            served.setdefault(consumer, []).extend(part)
        if not part or consumer.charge(part):
            ready.append(consumer)
    return count, sum(sizes)


def _credit(ready: "list[Consumer]", size: int) -> int:
    """Return how many messages of a size can be dealt in whole rounds, or in part of one.

    A consumer's last message may exceed its credit, so a round is always possible.
    """
    return (min([consumer.room_for(size) for consumer in ready]) or 1) * len(ready)


@define(eq=False, repr=False)
class FilteredMessages:
    """Hands out messages that only some consumers may get.

    Each message, in order, is offered to the consumers that have not scanned it, round-robin.

    Args:
      ready: The consumers with credit, of one priority, in order. Emptied as credit runs out.
      served: The messages of each consumer in this step.
      most: The limit of messages.
      room: The limit of bytes. The last message may exceed it.
    """

    queue: "Queue"
    ready: "list[Consumer]"
    now: float
    served: "dict[Consumer, list[Message]]"
    most: int
    room: int
    is_cut: bool = False
    """The time is up."""
    _index: int = 0
    """The index in ``ready`` of the next consumer."""
    _weight: int = 0
    _passed: ScanPositions = field(init=False)
    _starts: "dict[Consumer, int]" = field(factory=dict)
    """The positions of the consumers in ``ready`` on the current level."""
    _start: int = 0
    """Where the current scan begins. Consumers with an earlier position are not concerned."""
    _losers: "dict[Consumer, None]" = field(factory=dict)
    """Consumers that lost a group. Others may have passed its messages."""

    def __attrs_post_init__(self) -> None:
        self._passed = self.queue.passed or ScanPositions(self.queue.host.memory, self.queue.groups)

    def run(self) -> bool:
        """Hand out, and return whether the time ran out before all messages were offered."""
        queue, waiting, passed = self.queue, self.queue.waiting, self._passed
        level = waiting.level_beneath(LEVELS)
        while level >= 0 and not self._is_over:
            self._starts = {each: passed.of(level, each) for each in self.ready}
            for start in passed.in_turn(level, self._starts.values()):
                if not self._is_over and start in self._starts.values():
                    self._walk(level, start)
            if (paged := waiting.paging(level)) is not None and not self.is_cut:
                self._hold_back(level, paged)
            level = waiting.level_beneath(level)
        for each in self._losers:
            passed.free(each)
        queue.passed = None if passed.is_empty else passed
        return self.is_cut

    @property
    def _is_over(self) -> bool:
        return self.is_cut or not (self.ready and self.most) or self.room <= 0

    def _walk(self, level: int, start: int) -> None:
        """Offer the messages of a level after ``start``."""
        waiting, behind, count = self.queue.waiting, start, 0
        keeps = start > 0 or waiting.is_paging(level)
        self._start = start
        while not self._is_over:
            piece, reach = self._following(level, behind)
            if not piece and reach <= behind:
                break
            for message in piece:
                offered = self._offer(message, level, keeps=keeps)
                if offered == CUT:
                    break
                count += offered
                keeps |= count > FEW_PASSED
                behind = message.number
                self._look_at_clock()
                if self._is_over:
                    break
            else:
                behind = max(behind, reach)
        if self.is_cut or keeps:
            if behind > start:
                self._passed.ends[level] = behind
            for each, position in self._starts.items():
                if start <= position < behind:
                    self._starts[each] = behind
                    self._passed.note(level, each, behind)

    def _following(self, level: int, behind: int) -> tuple[list[Message], int]:
        """Return the next messages of a level, and up to which number there are no others."""
        waiting, window = self.queue.waiting, self.queue.window
        paged = waiting.paging(level)
        found = waiting.behind(level, behind, PIECE)
        if paged is None or behind >= paged.last:
            return found, behind
        if behind < paged.after:  # others in memory come behind those in the store
            found = [each for each in found if each.number <= paged.after]
            return found, behind if found else paged.after
        if window is None or not window.covers(level, behind):
            return [], behind
        found = window.behind(behind, PIECE) + [
            each for each in found if each.number <= window.upto
        ]
        found.sort(key=_number)
        return found[:PIECE], behind if found else window.upto

    def _hold_back(self, level: int, paged: Paged) -> None:
        """Offer nothing of lower levels to consumers that have not examined all of this one."""
        ahead = [each for each in self.ready if self._starts[each] < paged.last]
        for each in ahead:
            self.ready.remove(each)
            self._index = 0
        if ahead and self.queue.sought is None:
            starts = (max(self._starts[each], paged.after) for each in ahead)
            self.queue.sought = level, self._passed.in_turn(level, starts)[0]

    def _offer(self, message: Message, level: int, *, keeps: bool) -> int:
        """Offer a message to the consumers, and return GONE, PASSED or CUT.

        ``keeps``: the positions of consumers are kept.
        """
        publication, queue = message.publication, self.queue
        if publication.expires_at <= self.now and publication.is_over(self.now):
            self._take(level, message)
            queue.expire(message, self.now)
            return GONE
        chosen = self._choose(message, level)
        if self.is_cut:
            return CUT
        if chosen < 0:
            return PASSED
        self._take(level, message)
        consumer = self.ready[chosen]
        if not self._give(message, chosen):
            del self._starts[consumer]
            if keeps:
                self._passed.note(level, consumer, message.number)
        return GONE

    def _take(self, level: int, message: Message) -> None:
        """Remove a message from where it is, in memory or in the store."""
        if self.queue.window is not None and self.queue.window.remove(message):
            self.queue.host.pages.take(self.queue, message)
        else:
            self.queue.waiting.take(level, message)

    def _give(self, message: Message, chosen: int) -> bool:
        """Assign a message to a consumer, given by index. Return whether it has credit left."""
        consumer = self.queue.last_served = self.ready[chosen]
        self.served.setdefault(consumer, []).append(message)
        self.most -= 1
        self.room -= len(message.body)
        if consumer.charge([message]):
            self._index = chosen + 1
            return True
        del self.ready[chosen]
        self._index = chosen
        return False

    def _choose(self, message: Message, level: int) -> int:
        """Return the index in ``ready`` of the next consumer that matches a message.

        A group's messages wait for the consumer that has the group, so that they stay in order.

        Returns:
          -1 if no consumer matches or the time is up.
        """
        ready, groups, number = self.ready, self.queue.groups, message.number
        starts, start = self._starts, self._start
        group = message.group
        if group in groups.held:
            self._weight += CHECK_WEIGHT
            return -1
        owner = groups.owners.get(group) if group else None
        if owner is not None:
            self._weight += CHECK_WEIGHT
            is_here = start <= starts.get(owner, number) < number
            return ready.index(owner) if is_here and owner.wants(message) else -1
        self._weight += CHECK_WEIGHT + len(ready) // CONSUMERS_A_WEIGHT
        for offset in range(len(ready)):
            chosen = (self._index + offset) % len(ready)
            consumer = ready[chosen]
            if not start <= starts[consumer] < number:
                continue
            if consumer.wants(message):
                if group:
                    self._losers |= dict.fromkeys(groups.assign(group, consumer))
                return chosen
            selector = consumer.selector
            self._weight += CHECK_WEIGHT + (len(selector.text) if selector is not None else 0)
            if self._look_at_clock():
                for each in range(offset + 1):
                    passed = ready[(self._index + each) % len(ready)]
                    if start <= starts[passed] < number:
                        self._passed.note(level, passed, number)
                return -1
        return -1

    def _look_at_clock(self) -> bool:
        """Return whether the time is up. Look at the clock only after enough work."""
        if self._weight >= WEIGHT:
            self._weight = 0
            self.is_cut = self.queue.host.turns.is_over()
        return self.is_cut
