"""Which of a queue's messages go to whom: in turn, one each, among those that are ready."""

from typing import TYPE_CHECKING

from trio_stomp.broker._message import Message

if TYPE_CHECKING:
    from trio_stomp.broker._consumer import Consumer
    from trio_stomp.broker._queue import Queue

SCAN_LIMIT = 2_000
"""How many messages that nobody present takes are looked behind, at most (selectors, groups)."""
FEW = 4
"""Fewer messages than this are cheaper to look at one by one."""


def hand_out(
    queue: "Queue", ready: "list[Consumer]", now: float
) -> "dict[Consumer, list[Message]]":
    """Take messages for ``ready``, one each in turn, until they or the messages are used up.

    Args:
      ready: Who takes a message now, in turn; used up.
      now: Seconds of the broker's clock.
    """
    served: dict[Consumer, list[Message]] = {}
    if not queue.is_choosy:
        while ready and _deal(queue, ready, now, served):
            pass
    if ready and queue.waiting.count:
        _hand_out_singly(queue, ready, now, served)
    return served


def _deal(
    queue: "Queue", ready: "list[Consumer]", now: float, served: "dict[Consumer, list[Message]]"
) -> bool:
    """Hand out what anybody may have, whole rounds at once; False if that cannot be done.

    To whom a message goes is what counting them out would say, at a third of the cost.
    """
    waiting = queue.waiting
    first = waiting.next_fresh
    if first is None:
        return False
    size = len(first.body)
    most = min([consumer.room_for(size) for consumer in ready]) * len(ready)
    if min(most, waiting.count) < FEW:
        return False
    messages = waiting.take_fresh(most)
    kinds = {message.publication for message in messages}
    hands = [(each, messages[place :: len(ready)]) for place, each in enumerate(ready)]
    is_plain = all(
        not kind.group and (kind.expires_at > now or not kind.is_over(now)) for kind in kinds
    )
    if not is_plain or not all(each.fits(part) for each, part in hands):
        waiting.restore_fresh(messages)
        return False
    queue.last_served = ready[(len(messages) - 1) % len(ready)]
    ready.clear()
    for consumer, part in hands:
        if part:
            served.setdefault(consumer, []).extend(part)
        if consumer.charge(part):
            ready.append(consumer)
    return True


def _hand_out_singly(
    queue: "Queue", ready: "list[Consumer]", now: float, served: "dict[Consumer, list[Message]]"
) -> None:
    """The same with a look at each message: whether it has expired, and who may have it."""
    passed: list[Message] = []
    place = 0
    while ready and len(passed) < SCAN_LIMIT:
        message = queue.waiting.pop()
        if message is None:
            break
        publication = message.publication
        if publication.expires_at <= now and publication.is_over(now):
            queue.expire(message, now)
            continue
        group = message.group
        if group or queue.is_choosy:
            chosen = _choose(queue, message, ready, place)
            if chosen is None:
                passed.append(message)
                continue
            place = chosen
        elif place >= len(ready):
            place = 0
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
    for message in passed:
        queue.waiting.give_back(message)


def _choose(queue: "Queue", message: Message, ready: "list[Consumer]", place: int) -> int | None:
    """Who among ``ready`` takes a message that not everybody may have, counted from ``place``.

    A group's messages wait for the consumer that has the group, so that they stay in order.
    """
    group = message.group
    owner = queue.groups.owners.get(group) if group else None
    if owner is not None:
        return ready.index(owner) if owner in ready and owner.wants(message) else None
    for offset in range(len(ready)):
        chosen = (place + offset) % len(ready)
        if ready[chosen].wants(message):
            if group:
                queue.groups.assign(group, ready[chosen])
            return chosen
    return None
