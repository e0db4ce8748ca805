"""Removal of waiting messages from any position of a queue."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_stomp.broker.browsing import Walk
    from trio_stomp.broker.delivery import EventHistory, LossReason
    from trio_stomp.broker.queues import Message, Queue


def remove(walk: "Walk", messages: "list[Message]") -> None:
    """Remove waiting messages, at least one, found by a walk."""
    if walk.is_in_store:
        _remove_paged(walk.queue, walk.level, messages)
        return
    queue = walk.queue
    queue.release_all(messages)
    for message in messages:
        queue.waiting.take(message.level, message)
    queue.host.mark(queue)  # to load what comes next
    queue.host.note_idle(queue)


def _remove_paged(queue: "Queue", level: int, messages: "list[Message]") -> None:
    """Remove messages that were read from the store and not loaded.

    The queue must not be loading the paged messages of the level.
    """
    host, paged = queue.host, queue.waiting.paging(level)
    assert paged is not None
    host.finish_all([message.stored for message in messages])
    for message in messages:
        stake, size = message.publication.stake, len(message.body)
        assert stake is not None
        paged.uncharge(host.memory, stake.quota, size + stake.each)
        host.memory.give_stored(size + stake.each, stake.quota)
    size = sum(len(message.body) for message in messages)
    queue.size -= size
    queue.waiting.remove_paged(level, len(messages), size)
    if paged.count <= 0:
        queue.forget_paged(level)
    host.note_idle(queue)


def note_end(
    queue: "Queue",
    history: "EventHistory | None",
    messages: "list[Message]",
    reason: "LossReason",
    rule: str,
) -> None:
    """Record the end of messages in a queue, for ``explain``."""
    if history is not None:
        for message in messages:
            history.lost(reason, queue.name, numbers=(message.number, 1), rule=rule)
