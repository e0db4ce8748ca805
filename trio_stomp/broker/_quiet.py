"""Destinations that may be idle, the longest first: of all, and of each user."""

from collections import OrderedDict
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from trio_stomp._memory import Quota
    from trio_stomp.broker._route import Route


@define(eq=False, repr=False)
class Quiet:
    """All that are idle, and some that are in use again."""

    _all: "OrderedDict[Route, None]" = field(factory=OrderedDict)
    _by_quota: "dict[Quota, OrderedDict[Route, None]]" = field(factory=dict)

    def note(self, route: "Route") -> None:
        """It may be idle from now on; it keeps its place if it might be before."""
        if route in self._all:
            return
        self._all[route] = None
        if route.quota is not None:
            self._by_quota.setdefault(route.quota, OrderedDict())[route] = None

    def discard(self, route: "Route") -> None:
        """It is in here, and is to be no more: it is in use, or forgotten."""
        del self._all[route]
        if route.quota is not None:
            own = self._by_quota[route.quota]
            del own[route]
            if not own:
                del self._by_quota[route.quota]

    def take(self, quota: "Quota | None" = None) -> "Route | None":
        """Take out the first: of all, or of whom ``quota`` is; None if there is none."""
        routes = self._all if quota is None else self._by_quota.get(quota)
        if not routes:
            return None
        route = next(iter(routes))
        self.discard(route)
        return route
