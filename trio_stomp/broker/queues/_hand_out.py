"""Which of a queue's messages go to whom: in turn, one each, among those that are ready."""

from typing import TYPE_CHECKING

from trio_stomp.broker.queues._filtered_messages import SCAN_LIMIT as SCAN_LIMIT
from trio_stomp.broker.queues._filtered_messages import FilteredMessages

if TYPE_CHECKING:
    from trio_stomp.broker.queues._consumer import Consumer
    from trio_stomp.broker.queues._message import Message
    from trio_stomp.broker.queues._queue import Queue

FEW = 4
"""Fewer messages than this are cheaper to look at one by one."""
MOST = 1024
"""Messages that are handed out before others have a chance: some 2 ms."""
MOST_CONSUMERS = 256
"""The most consumers in one step: a single message for each costs three times as much."""
MOST_BYTES = 1024 * 1024
"""With no more bytes than this, or one message more."""


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
