"""The queues, counted: all together, the fullest by name."""

import heapq
from collections.abc import Sequence
from operator import add

from attrs import frozen

from trio_stomp.broker import Route
from trio_stomp.web._ranking import OTHER


@frozen
class Filling:
    """What is in a queue, or in several.

    Args:
      ready: Messages that wait, delayed ones too.
      unacked: Messages delivered and not acknowledged.
    """

    ready: int
    unacked: int
    consumers: int


@frozen
class QueueFigures:
    """All queues that have a name of their own.

    Args:
      bytes: Of the bodies of all messages.
      fullest: By name, ``other`` for the rest.
    """

    count: int
    ready: int
    unacked: int
    bytes: int
    fullest: dict[str, Filling]


def count_queues(routes: Sequence[Route], limit: int) -> QueueFigures:
    """Count the queues of some destinations.

    Args:
      limit: How many are told of by name.
    """
    queues = [route.queue for route in routes if route.queue is not None]
    depths = [queue.depth for queue in queues]
    unacked = [queue.unacked for queue in queues]
    consumers = [len(queue.consumers) for queue in queues]
    held = list(map(add, depths, unacked))
    fullest: dict[str, Filling] = {}
    for place in heapq.nlargest(limit, range(len(queues)), key=held.__getitem__):
        # A queue of that very name would be told twice: it is one of the others.
        if queues[place].name != OTHER:
            filling = Filling(depths[place], unacked[place], consumers[place])
            fullest[queues[place].name] = filling
    told = fullest.values()
    ready, taken = sum(depths), sum(unacked)
    fullest[OTHER] = Filling(
        ready - sum([each.ready for each in told]),
        taken - sum([each.unacked for each in told]),
        sum(consumers) - sum([each.consumers for each in told]),
    )
    size = sum([queue.size for queue in queues])
    return QueueFigures(len(queues), ready, taken, size, fullest)
