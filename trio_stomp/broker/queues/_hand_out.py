"""Hand-out of a queue's messages to the ready consumers, round-robin."""

from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker.queues._message import LEVELS, Message
from trio_stomp.broker.queues._scan_positions import ScanPositions

if TYPE_CHECKING:
    from trio_stomp.broker.queues._consumer import Consumer
    from trio_stomp.broker.queues._queue import Queue

FEW = 4
"""Fewer messages than this are handed out faster one by one."""
MOST = 1024
"""Limit of messages in one step, about 2 ms."""
MOST_CONSUMERS = 256
"""Limit of consumers in one step: one message for each costs three times as much as many for
one."""
MOST_BYTES = 1024 * 1024
"""Limit of bytes in one step. The last message may exceed it."""
SCAN_LIMIT = 2_000
"""A scan passes up to this many messages without a matching consumer."""
PIECE = 64
"""Messages looked up in one step."""
FEW_PASSED = 16
"""Scan positions up to this many messages are not kept."""
LOOK_AGAIN_S = 1.0
"""Minimum interval of scans for expired messages behind others."""
MOST_EXPIRED = 64
"""Limit of messages that expire in one step."""
CUT_SHORT = -2
"""Result of a step: it ended before its messages or its consumers did."""
GONE, PASSED, CUT = 0, 1, 2
"""Results of an offer: the message left the queue; it stays; the time ran out."""
WEIGHT = 64
"""Work between two looks at the clock."""
CHECK_WEIGHT = 4
"""Work for a message, and for a selector. Each character of the selector adds 1."""
CONSUMERS_A_WEIGHT = 8
"""Consumers that a scan skips for 1 unit of work."""


def some_ready(
    active: "list[Consumer]", last: "Consumer | None", beneath: float
) -> "list[Consumer]":
    """Return the next ready consumers of very many, of one priority, in round-robin order.

    Args:
      active: All consumers, the highest priority first.
      last: The consumer served last.
      beneath: Return only consumers of a lower priority than this.

    Returns:
      At most ``MOST_CONSUMERS`` + 1 consumers.
    """
    found: list[Consumer] = []
    size = len(active)
    start = active.index(last) + 1 if last is not None else 0
    for index in range(start, start + size):
        consumer = active[index % size]
        level = consumer.options.priority
        if level < beneath and consumer.is_ready:
            if found and level > found[0].options.priority:
                found.clear()
            if not found or level == found[0].options.priority:
                found.append(consumer)
                if len(found) > MOST_CONSUMERS and level == active[0].options.priority:
                    break
    return found


def hand_out(
    queue: "Queue", ready: "list[Consumer]", now: float
) -> "tuple[dict[Consumer, list[Message]], bool]":
    """Assign messages to ``ready`` consumers, round-robin, until either runs out.

    Args:
      queue: A queue with waiting messages.
      ready: The consumers with credit, in order. Emptied as credit runs out.
      now: Seconds of the broker's clock.

    Returns:
      The messages of each consumer, and whether the time ran out before all were offered.
    """
    served: dict[Consumer, list[Message]] = {}
    most = MOST if len(ready) <= MOST_CONSUMERS else MOST_CONSUMERS
    if not queue.has_selectors:
        while most and ready:
            count = _deal(queue, ready, now, served, most)
            if not count:
                break
            most -= count
    if not ready or not most or not queue.waiting.count:
        return served, False
    index = 0
    if not queue.has_selectors and not queue.groups.owners:
        index = _hand_out_singly(queue, ready, now, served, most)
        if index < 0:
            return served, index == CUT_SHORT
    return served, FilteredMessages(
        queue, ready=ready, now=now, served=served, most=most, index=index
    ).run()


def _deal(
    queue: "Queue",
    ready: "list[Consumer]",
    now: float,
    served: "dict[Consumer, list[Message]]",
    bound: int,
) -> int:
    """Hand out unfiltered messages in whole rounds of the consumers.

    The result is the same as one by one, at a third of the cost.

    Returns:
      The number of messages; 0 = not possible here.
    """
    waiting = queue.waiting
    first = waiting.next_fresh
    if first is None:
        return 0
    size = len(first.body)
    most = min([consumer.room_for(size) for consumer in ready]) * len(ready)
    if most > bound:  # keep whole rounds, or part of one if there are many consumers
        most = bound - bound % len(ready) or bound
    if min(most, waiting.count) < FEW:
        return 0
    messages = waiting.take_fresh(most)
    kinds = {message.publication for message in messages}
    parts = [(each, messages[index :: len(ready)]) for index, each in enumerate(ready)]
    is_plain = all(
        not kind.group and (kind.expires_at > now or not kind.is_over(now)) for kind in kinds
    )
    if not is_plain or not _fits(parts):
        waiting.restore_fresh(messages)
        return 0
    queue.last_served = ready[(len(messages) - 1) % len(ready)]
    ready.clear()
    for consumer, part in parts:
        if part:
            served.setdefault(consumer, []).extend(part)
        if consumer.charge(part):
            ready.append(consumer)
    return len(messages)


def _fits(parts: "list[tuple[Consumer, list[Message]]]") -> bool:
    """Return whether each consumer has credit for its part, and all fit in a step."""
    size = 0
    for consumer, part in parts:
        cost = consumer.cost_of(part)
        if cost > consumer.bytes_left:
            return False
        size += cost
    return size <= MOST_BYTES


def _hand_out_singly(
    queue: "Queue",
    ready: "list[Consumer]",
    now: float,
    served: "dict[Consumer, list[Message]]",
    most: int,
) -> int:
    """Hand out message by message, checking each for expiry.

    Returns:
      If a message belongs to a group, it stays, and this is the index in ``ready`` of the next
      consumer; CUT_SHORT if many messages had expired; otherwise -1.
    """
    index, room, expired = 0, MOST_BYTES, 0
    while ready and most and room > 0:
        message = queue.waiting.pop()
        if message is None:
            break
        publication = message.publication
        if publication.expires_at <= now and publication.is_over(now):
            queue.expire(message, now)
            expired += 1
            if expired == MOST_EXPIRED:
                return CUT_SHORT
            continue
        if publication.group:
            queue.waiting.give_back(message)
            return index
        if index >= len(ready):
            index = 0
        most -= 1
        room -= len(message.body)
        consumer = queue.last_served = ready[index]
        if consumer.charge([message]):
            index += 1
        else:
            del ready[index]
        messages = served.get(consumer)
        if messages is None:
            served[consumer] = [message]
        else:
            messages.append(message)
    return -1


@define(eq=False, repr=False)
class FilteredMessages:
    """Hands out messages that only some consumers may get.

    Each message, in order, is offered to the consumers that have not scanned it, round-robin.

    Args:
      ready: The consumers with credit, of one priority, in order. Emptied as credit runs out.
      served: The messages of each consumer in this step.
      most: The limit of messages.
      index: The index in ``ready`` of the next consumer.
    """

    queue: "Queue"
    ready: "list[Consumer]"
    now: float
    served: "dict[Consumer, list[Message]]"
    most: int
    index: int
    room: int = MOST_BYTES
    is_cut: bool = False
    """The time is up."""
    _weight: int = 0
    _passed: ScanPositions = field(init=False)
    _members: "set[Consumer]" = field(init=False)
    """The consumers in ``ready``."""
    _is_changed: bool = False
    """A group was forgotten. Other consumers may have passed its messages."""

    def __attrs_post_init__(self) -> None:
        self._passed = self.queue.passed or ScanPositions(self.queue.host.memory)
        self._members = set(self.ready)

    def run(self) -> bool:
        """Hand out, and return whether the time ran out before all messages were offered."""
        queue, waiting = self.queue, self.queue.waiting
        self._passed.renew(self.now)
        before, level = 0, waiting.level_beneath(LEVELS)
        while level >= 0 and before < SCAN_LIMIT and not self._is_over:
            before += self._walk(level, before)
            if waiting.is_paging(level):
                break  # messages in the store come before lower levels
            level = waiting.level_beneath(level)
        if self._is_changed:
            self._passed.forget()
        queue.passed = None if self._passed.is_empty else self._passed
        return self.is_cut

    @property
    def _is_over(self) -> bool:
        return self.is_cut or not (self.ready and self.most) or self.room <= 0

    def _walk(self, level: int, before: int) -> int:
        """Offer the messages of a level, and return how many of them stay.

        ``before`` is the number of messages that stay on higher levels.
        """
        waiting, positions = self.queue.waiting, self._passed.on_level(level)
        behind = min([positions.get(each, 0) for each in self.ready])
        count = waiting.count_up_to(level, behind) if behind else 0
        while before + count < SCAN_LIMIT and not self._is_over:
            piece = waiting.behind(level, behind, min(PIECE, SCAN_LIMIT - before - count))
            for message in piece:
                offered = self._offer(message, level, before + count)
                if offered == CUT:
                    break
                count += offered
                behind = message.number
                self._look_at_clock()
                if self._is_over:
                    break
            if not piece:
                break
        if self.is_cut or before + count > FEW_PASSED:
            for consumer in self.ready:
                self._passed.note(level, consumer, behind)
        return count

    def _offer(self, message: Message, level: int, before: int) -> int:
        """Offer a message to the consumers, and return GONE, PASSED or CUT."""
        publication, waiting = message.publication, self.queue.waiting
        if publication.expires_at <= self.now and publication.is_over(self.now):
            waiting.take(level, message)
            self.queue.expire(message, self.now)
            return GONE
        chosen = self._choose(message, level)
        if self.is_cut:
            return CUT
        if chosen < 0:
            if publication.expires_at < self._passed.look_again_at:
                self._passed.look_again_at = max(publication.expires_at, self.now + LOOK_AGAIN_S)
            return PASSED
        waiting.take(level, message)
        consumer = self.ready[chosen]
        if not self._give(message, chosen) and before > FEW_PASSED:
            self._passed.note(level, consumer, message.number)
        return GONE

    def _give(self, message: Message, chosen: int) -> bool:
        """Assign a message to a consumer, given by index. Return whether it has credit left."""
        consumer = self.queue.last_served = self.ready[chosen]
        self.served.setdefault(consumer, []).append(message)
        self.most -= 1
        self.room -= len(message.body)
        if consumer.charge([message]):
            self.index = chosen + 1
            return True
        del self.ready[chosen]
        self._members.discard(consumer)
        self.index = chosen
        return False

    def _choose(self, message: Message, level: int) -> int:
        """Return the index in ``ready`` of the next consumer that matches a message.

        A group's messages wait for the consumer that has the group, so that they stay in order.

        Returns:
          -1 if no consumer matches or the time is up.
        """
        ready, groups = self.ready, self.queue.groups
        positions = self._passed.on_level(level)
        group = message.group
        owner = groups.owners.get(group) if group else None
        if owner is not None:
            is_here = owner in self._members and positions.get(owner, 0) < message.number
            if is_here and owner.wants(message):
                return ready.index(owner)
            self._weight += CHECK_WEIGHT
            return -1
        self._weight += CHECK_WEIGHT + len(ready) // CONSUMERS_A_WEIGHT
        for offset in range(len(ready)):
            chosen = (self.index + offset) % len(ready)
            consumer = ready[chosen]
            if positions.get(consumer, 0) >= message.number:
                continue
            if consumer.wants(message):
                if group:
                    self._assign(group, consumer)
                return chosen
            selector = consumer.selector
            self._weight += CHECK_WEIGHT + (len(selector.text) if selector is not None else 0)
            if self._look_at_clock():
                for each in range(offset + 1):
                    passed = ready[(self.index + each) % len(ready)]
                    self._passed.note(level, passed, message.number)
                return -1
        return -1

    def _assign(self, group: str, consumer: "Consumer") -> None:
        owners = self.queue.groups.owners
        before = len(owners)
        self.queue.groups.assign(group, consumer)
        self._is_changed |= len(owners) <= before

    def _look_at_clock(self) -> bool:
        """Return whether the time is up. Look at the clock only after enough work."""
        if self._weight >= WEIGHT:
            self._weight = 0
            self.is_cut = self.queue.host.is_over()
        return self.is_cut
