"""stompserver's ``/queue/monitor``: a few figures of each queue, as text (SEEDS B8)."""

from collections.abc import Iterable

from trio_stomp.broker._queue import Queue


def monitor_body(queues: Iterable[Queue]) -> bytes:
    """A block for each queue, as stompserver's man page has it; empty if there is no queue.

    ``size`` counts the messages that wait, ``enqueued`` and ``dequeued`` all since the start.
    """
    blocks = [
        f"Queue: {queue.name}\nsize: {queue.depth}\ndequeued: {queue.dequeued}\n"
        f"enqueued: {queue.enqueued}\n\n"
        for queue in queues
    ]
    return "".join(blocks).encode()
