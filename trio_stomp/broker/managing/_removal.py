"""Removal of waiting messages from any position of a queue."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_stomp.broker.queues import Message, Queue


def remove(queue: "Queue", messages: "list[Message]") -> None:
    """Remove waiting messages, at least one, that are in memory."""
    for message in messages:
        queue.waiting.take(message.level, message)
    queue.release_all(messages)
    queue.host.note_quiet(queue)


def remove_paged(queue: "Queue", level: int, messages: "list[Message]") -> None:
    """Remove waiting messages, at least one, that were read from the store and not loaded.

    The queue must not be loading the paged messages of the level.
    """
    host, paged = queue.host, queue.waiting.paging(level)
    assert paged is not None
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
    host.finish_all([message.stored for message in messages])
    host.note_quiet(queue)
