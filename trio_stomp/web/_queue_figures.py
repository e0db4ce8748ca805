"""Figures of queues: totals, and those of the fullest by name."""

from collections.abc import Sequence
from operator import add

from attrs import define, field, frozen

from trio_stomp.base import LOOKS, Greatest, Pieces
from trio_stomp.broker import Queue
from trio_stomp.web._ranking import OTHER


@frozen
class Filling:
    """The contents of a queue, or of several.

    Args:
      ready: The number of waiting messages, including delayed ones.
      unacked: The number of unacknowledged messages.
    """

    ready: int
    unacked: int
    consumers: int


@frozen
class QueueFigures:
    """The figures of all named queues.

    Args:
      bytes: The size of all bodies.
      fullest: The contents by name, with ``other`` for the rest.
    """

    count: int
    ready: int
    unacked: int
    bytes: int
    fullest: dict[str, Filling]


@define(eq=False, repr=False)
class QueueCount:
    """Counts queues in pieces, each queue at one moment.

    Args:
      limit: The number of queues to report by name.
    """

    limit: int
    _count: int = 0
    _ready: int = 0
    _unacked: int = 0
    _bytes: int = 0
    _consumers: int = 0
    _fullest: Greatest[tuple[str, Filling]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._fullest = Greatest(self.limit)

    def add(self, queues: Sequence[Queue]) -> None:
        """Add some more queues."""
        depths = [queue.depth for queue in queues]
        unacked = [queue.unacked for queue in queues]
        consumers = [len(queue.consumers) for queue in queues]
        self._count += len(queues)
        self._ready += sum(depths)
        self._unacked += sum(unacked)
        self._consumers += sum(consumers)
        self._bytes += sum([queue.size for queue in queues])
        held = list(map(add, depths, unacked))
        self._fullest.add(
            [
                (count, (queues[index].name, Filling(depths[index], unacked[index], recipients)))
                for index, (count, recipients) in enumerate(zip(held, consumers, strict=True))
                if count > self._fullest.least
            ]
        )

    def figures(self) -> Pieces[QueueFigures]:
        """Return the figures of all counted queues."""
        by_name: dict[str, Filling] = {}
        ready, unacked, consumers = self._ready, self._unacked, self._consumers
        for number, (name, each) in enumerate((yield from self._fullest.found())):
            # A queue named "other" would appear twice, so it counts as one of the others.
            if name != OTHER:
                by_name[name] = each
                ready, unacked = ready - each.ready, unacked - each.unacked
                consumers -= each.consumers
            if number % LOOKS == LOOKS - 1:
                yield
        by_name[OTHER] = Filling(ready, unacked, consumers)
        return QueueFigures(self._count, self._ready, self._unacked, self._bytes, by_name)
