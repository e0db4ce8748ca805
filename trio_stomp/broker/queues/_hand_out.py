"""Which of a queue's messages go to whom: in turn, one each, among those that are ready."""

from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker.queues._message import LEVELS, Message
from trio_stomp.broker.queues._scan_positions import ScanPositions

if TYPE_CHECKING:
    from trio_stomp.broker.queues._consumer import Consumer
    from trio_stomp.broker.queues._queue import Queue

FEW = 4
"""Fewer messages than this are cheaper to look at one by one."""
MOST = 1024
"""Messages that are handed out before others have a chance: some 2 ms."""
MOST_CONSUMERS = 256
"""The most consumers in one step: a single message for each costs three times as much."""
MOST_BYTES = 1024 * 1024
"""With no more bytes than this, or one message more."""
SCAN_LIMIT = 2_000
"""How many messages that nobody present takes are looked behind, at most (selectors, groups)."""
PIECE = 64
"""Messages that are looked up at once."""
FEW_PASSED = 16
"""Behind no more messages than this nobody's place is remembered."""
LOOK_AGAIN_S = 1.0
"""What has expired behind others is looked for as often as this."""
GONE, PASSED, CUT = 0, 1, 2
"""The outcome of an offer; ``CUT``: not all consumers have been asked yet."""
WEIGHT = 64
"""So much is done between two looks at the clock."""
ASKED_WEIGHT = 4
"""To ask a selector, and to look at a message; a character of a selector's text adds 1."""
CONSUMERS_A_WEIGHT = 8
"""Consumers that are passed over in the time that one offer takes."""


def some_ready(
    active: "list[Consumer]", last: "Consumer | None", beneath: float
) -> "list[Consumer]":
    """Return the next ready consumers of very many, in turn: one more than a step serves.

    Args:
      active: All of them, the highest priority first.
      last: The one that was served last.
      beneath: Only of a lower priority than this.
    """
    found: list[Consumer] = []
    size = len(active)
    start = active.index(last) + 1 if last is not None else 0
    for place in range(start, start + size):
        consumer = active[place % size]
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
    """Assign messages to ``ready`` consumers, one each in turn, until either runs out.

    Args:
      queue: The queue.
      ready: The consumers with room, in turn; used up.
      now: Seconds of the broker's clock.

    Returns:
      The messages of each consumer, and whether the time ran out before all were offered.
    """
    served: dict[Consumer, list[Message]] = {}
    most = MOST if len(ready) <= MOST_CONSUMERS else MOST_CONSUMERS
    if not queue.is_choosy:
        while most and ready:
            count = _deal(queue, ready, now, served, most)
            if not count:
                break
            most -= count
    if not ready or not most or not queue.waiting.count:
        return served, False
    place = 0
    if not queue.is_choosy and not queue.groups.owners:
        place = _hand_out_singly(queue, ready, now, served, most)
        if place < 0:
            return served, False
    return served, FilteredMessages(
        queue, ready=ready, now=now, served=served, most=most, place=place
    ).run()


def _deal(
    queue: "Queue",
    ready: "list[Consumer]",
    now: float,
    served: "dict[Consumer, list[Message]]",
    bound: int,
) -> int:
    """Hand out unfiltered messages in whole rounds, and return how many; 0 = not possible.

    To whom a message goes is what counting them out would say, at a third of the cost.
    """
    waiting = queue.waiting
    first = waiting.next_fresh
    if first is None:
        return 0
    size = len(first.body)
    most = min([consumer.room_for(size) for consumer in ready]) * len(ready)
    if most > bound:  # whole rounds still; of many consumers one, and the first of them
        most = bound - bound % len(ready) or bound
    if min(most, waiting.count) < FEW:
        return 0
    messages = waiting.take_fresh(most)
    kinds = {message.publication for message in messages}
    hands = [(each, messages[place :: len(ready)]) for place, each in enumerate(ready)]
    is_plain = all(
        not kind.group and (kind.expires_at > now or not kind.is_over(now)) for kind in kinds
    )
    if not is_plain or not _fits(hands):
        waiting.restore_fresh(messages)
        return 0
    queue.last_served = ready[(len(messages) - 1) % len(ready)]
    ready.clear()
    for consumer, part in hands:
        if part:
            served.setdefault(consumer, []).extend(part)
        if consumer.charge(part):
            ready.append(consumer)
    return len(messages)


def _fits(hands: "list[tuple[Consumer, list[Message]]]") -> bool:
    """Return whether all consumers can take their parts within a piece's bytes."""
    size = 0
    for consumer, part in hands:
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
      The index in ``ready`` of the next consumer, at a message that not everybody may have and that
      stays; else -1.
    """
    place, room = 0, MOST_BYTES
    while ready and most and room > 0:
        message = queue.waiting.pop()
        if message is None:
            break
        publication = message.publication
        if publication.expires_at <= now and publication.is_over(now):
            queue.expire(message, now)
            continue
        if publication.group:
            queue.waiting.give_back(message)
            return place
        if place >= len(ready):
            place = 0
        most -= 1
        room -= len(message.body)
        consumer = queue.last_served = ready[place]
        if consumer.charge([message]):
            place += 1
        else:
            del ready[place]
        messages = served.get(consumer)
        if messages is None:
            served[consumer] = [message]
        else:
            messages.append(message)
    return -1


@define(eq=False, repr=False)
class FilteredMessages:
    """Hands out until all messages, all consumers or the time are used up.

    The order is that of messages: each is offered to those who have not passed it, in turn.

    Args:
      ready: Who takes a message now, in turn, of one priority; used up.
      served: What they have been given, in this step.
      most: As many messages at most.
      place: Whose turn it is.
    """

    queue: "Queue"
    ready: "list[Consumer]"
    now: float
    served: "dict[Consumer, list[Message]]"
    most: int
    place: int
    room: int = MOST_BYTES
    is_cut: bool = False
    """The time is up."""
    _weight: int = 0
    _passed: ScanPositions = field(init=False)
    _members: "set[Consumer]" = field(init=False)
    """As ``ready``."""
    _is_changed: bool = False
    """Somebody lost a group, of which others may have passed messages."""

    def __attrs_post_init__(self) -> None:
        self._passed = self.queue.passed or ScanPositions(self.queue.host.memory)
        self._members = set(self.ready)

    def run(self) -> bool:
        """Hand out, and return whether the time was up before all had been asked about all."""
        queue, waiting = self.queue, self.queue.waiting
        self._passed.renew(self.now)
        before, level = 0, waiting.level_beneath(LEVELS)
        while level >= 0 and before < SCAN_LIMIT and not self._is_over:
            before += self._walk(level, before)
            if waiting.is_paging(level):
                break  # what is in the store stands before the levels beneath
            level = waiting.level_beneath(level)
        if self._is_changed:
            self._passed.forget()
        queue.passed = None if self._passed.is_empty else self._passed
        return self.is_cut

    @property
    def _is_over(self) -> bool:
        return self.is_cut or not (self.ready and self.most) or self.room <= 0

    def _walk(self, level: int, before: int) -> int:
        """Offer the messages of a level, and return how many of them no consumer takes.

        Args:
          level: The level.
          before: How many stand before them.
        """
        waiting, places = self.queue.waiting, self._passed.on_level(level)
        behind = min([places.get(each, 0) for each in self.ready])
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
        """Hand a message to whoever takes it: GONE, PASSED or CUT."""
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
        """Hand a message to one of those who are ready, and return whether it takes another."""
        consumer = self.queue.last_served = self.ready[chosen]
        self.served.setdefault(consumer, []).append(message)
        self.most -= 1
        self.room -= len(message.body)
        if consumer.charge([message]):
            self.place = chosen + 1
            return True
        del self.ready[chosen]
        self._members.discard(consumer)
        self.place = chosen
        return False

    def _choose(self, message: Message, level: int) -> int:
        """Return which of ``ready`` takes a message, in turn, or -1 if none does or the time is up.

        A group's messages wait for the consumer that has the group, so that they stay in order.
        """
        ready, groups = self.ready, self.queue.groups
        places = self._passed.on_level(level)
        group = message.group
        owner = groups.owners.get(group) if group else None
        if owner is not None:
            is_here = owner in self._members and places.get(owner, 0) < message.number
            if is_here and owner.wants(message):
                return ready.index(owner)
            self._weight += ASKED_WEIGHT
            return -1
        self._weight += ASKED_WEIGHT + len(ready) // CONSUMERS_A_WEIGHT
        for offset in range(len(ready)):
            chosen = (self.place + offset) % len(ready)
            consumer = ready[chosen]
            if places.get(consumer, 0) >= message.number:
                continue
            if consumer.wants(message):
                if group:
                    self._assign(group, consumer)
                return chosen
            selector = consumer.selector
            self._weight += ASKED_WEIGHT + (len(selector.text) if selector is not None else 0)
            if self._look_at_clock():
                for each in range(offset + 1):
                    asked = ready[(self.place + each) % len(ready)]
                    self._passed.note(level, asked, message.number)
                return -1
        return -1

    def _assign(self, group: str, consumer: "Consumer") -> None:
        owners = self.queue.groups.owners
        before = len(owners)
        self.queue.groups.assign(group, consumer)
        self._is_changed |= len(owners) <= before

    def _look_at_clock(self) -> bool:
        """Return whether the time is up, looking at the clock only now and then."""
        if self._weight >= WEIGHT:
            self._weight = 0
            self.is_cut = self.queue.host.is_over()
        return self.is_cut
