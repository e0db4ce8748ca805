"""Destinations that may be idle, of all users and of each, those idle longest first."""

from collections import OrderedDict
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from trio_stomp.base import Quota
    from trio_stomp.broker.delivery import Destination


@define(eq=False, repr=False)
class Quiet:
    """All idle destinations, and some that are in use again."""

    _all: "OrderedDict[Destination, None]" = field(factory=OrderedDict)
    _by_quota: "dict[Quota, OrderedDict[Destination, None]]" = field(factory=dict)

    def note(self, destination: "Destination") -> None:
        """Add a destination that may be idle from now on. If already there, it keeps its place."""
        if destination in self._all:
            return
        self._all[destination] = None
        if destination.quota is not None:
            self._by_quota.setdefault(destination.quota, OrderedDict())[destination] = None

    def discard(self, destination: "Destination") -> None:
        """Remove a destination that is in use again or was forgotten."""
        del self._all[destination]
        if destination.quota is not None:
            idle = self._by_quota[destination.quota]
            del idle[destination]
            if not idle:
                del self._by_quota[destination.quota]

    def take(self, quota: "Quota | None" = None) -> "Destination | None":
        """Remove and return the first destination, of all users or of ``quota``, or None."""
        destinations = self._all if quota is None else self._by_quota.get(quota)
        if not destinations:
            return None
        destination = next(iter(destinations))
        self.discard(destination)
        return destination
