"""What of a long list is worth telling: what has changed, and once in a while everything."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

from attrs import define, field

from trio_stomp.server import Connection

if TYPE_CHECKING:
    from trio_stomp.broker import Destination, Statistics
    from trio_stomp.server import Server

T = TypeVar("T")

Mark = Hashable
"""Figures of a thing: it has changed if these have."""


@define(eq=False, repr=False)
class Changes:
    """Remembers what was told of the things of one list, which is looked at in passes.

    Args:
      full_s: Everything is told as often as this, in seconds of the broker's clock.
    """

    full_s: float
    passes: int = 0
    """How often the whole list has been looked at."""
    _before: dict[Hashable, Mark] = field(factory=dict)
    _marks: dict[Hashable, Mark] = field(factory=dict)
    """Of the pass that has begun."""
    _full_at: float = float("-inf")

    def is_full(self, now: float) -> bool:
        """Return whether a full snapshot is due.

        If it is, schedule the next one ``full_s`` later.
        """
        if now < self._full_at:
            return False
        self._full_at = now + self.full_s
        return True

    def pick(
        self,
        things: Sequence[T],
        keys: Sequence[Hashable],
        marks: Sequence[Mark],
        *,
        everything: bool,
    ) -> list[T]:
        """Return those of some things that have changed.

        Args:
          things: The items of the list.
          keys: Who they are.
          marks: Their figures.
          everything: Whether to tell also of those that have not changed.
        """
        self._marks.update(zip(keys, marks, strict=True))
        if everything:
            return list(things)
        told = self._before.get
        each = zip(things, keys, marks, strict=True)
        return [thing for thing, key, mark in each if told(key) != mark]

    def end_pass(self) -> None:
        """End a pass over the list: forget the items that were not in it."""
        # Rebuilt each time: what is gone must not be remembered for ever.
        self._before, self._marks = self._marks, {}
        self.passes += 1


@define(eq=False, repr=False)
class Touched:
    """Takes the connections that have changed, whoever else there is."""

    _left: list[Connection] = field(factory=list)
    """Too many for one interval."""

    def take_all(self, server: "Server") -> None:
        """Let all that are open be taken next, for somebody who has been told of none."""
        self._left, server.outboxes.touched = list(server.connections), set()

    def take(self, server: "Server", limit: int) -> list[Connection]:
        """Return at most ``limit`` that were touched since they were taken.

        The others come next.
        """
        outboxes = server.outboxes
        if not self._left:
            touched, outboxes.touched = outboxes.touched, set()
            owners = [each.owner for each in touched]
            self._left = [owner for owner in owners if isinstance(owner, Connection)]
        # From the back: a list gives these away at no cost.
        taken, self._left[-limit:] = self._left[-limit:], []
        # What still waits goes out without the core: look again.
        outboxes.touched.update(
            [each.outbox for each in taken if each.outbox.waiting_bytes and not each.is_finished]
        )
        return [each for each in taken if not each.is_finished]


def destination_mark(destination: "Destination", statistics: "Statistics") -> Mark:
    """Return a mark that changes with every message, subscriber and loss."""
    return (
        destination.enqueued,
        destination.delivered,
        destination.dropped,
        destination.expired,
        statistics.figures(destination),
    )
