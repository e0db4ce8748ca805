"""Selects the changed items of a long list, and at times all of them."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

from attrs import define, field

from trio_stomp.server import Connection

if TYPE_CHECKING:
    from trio_stomp.broker import Destination, Statistics
    from trio_stomp.server import Server

T = TypeVar("T")

Mark = Hashable
"""Figures of an item, which has changed if these have."""


@define(eq=False, repr=False)
class Changes:
    """Remembers the reported figures of one list, which is read in passes.

    Args:
      full_s: The interval of full snapshots, in seconds of the broker's clock.
    """

    full_s: float
    passes: int = 0
    """The number of completed passes over the list."""
    _before: dict[Hashable, Mark] = field(factory=dict)
    _marks: dict[Hashable, Mark] = field(factory=dict)
    """The figures of the current pass."""
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
        """Return the changed items among ``things``.

        Args:
          things: Items of the list.
          keys: The identity of each item.
          marks: The figures of each item, by which a change is noticed.
          everything: Whether to return unchanged items, too.
        """
        self._marks.update(zip(keys, marks, strict=True))
        if everything:
            return list(things)
        mark_before = self._before.get
        each = zip(things, keys, marks, strict=True)
        return [thing for thing, key, mark in each if mark_before(key) != mark]

    def end_pass(self) -> None:
        """End a pass over the list: forget the items that were not in it."""
        # Rebuilt in each pass, so that removed items are forgotten.
        self._before, self._marks = self._marks, {}
        self.passes += 1


@define(eq=False, repr=False)
class Touched:
    """Selects the connections that have changed, at a cost independent of the others."""

    _left: list[Connection] = field(factory=list)
    """Connections that did not fit into the last interval."""

    def take_all(self, server: "Server") -> None:
        """Select all open connections next, for a new subscriber."""
        self._left, server.outboxes.touched = list(server.connections), set()

    def take(self, server: "Server", limit: int) -> list[Connection]:
        """Return at most ``limit`` changed connections. The next call returns the others."""
        outboxes = server.outboxes
        if not self._left:
            touched, outboxes.touched = outboxes.touched, set()
            owners = [each.owner for each in touched]
            self._left = [owner for owner in owners if isinstance(owner, Connection)]
        # From the back, where removal from a list is cheap.
        taken, self._left[-limit:] = self._left[-limit:], []
        # Waiting output is sent without the core, so check this connection again.
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
