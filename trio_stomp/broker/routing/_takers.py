"""Who gets what is sent to a destination, sorted by how it is given to each."""

from itertools import islice
from operator import attrgetter, is_
from typing import cast

from attrs import frozen

from trio_stomp.broker.delivery import (
    MANY_TAKERS,
    AnyBinding,
    Destination,
    Member,
    Subscription,
)


@frozen(eq=False, repr=False)
class Takers:
    """The subscribers of a ``Destination``. Topics that have the same ones share it.

    Args:
      found: As they were looked up, if they are very many.
      bindings: How many put each message into a queue (topics).
    """

    found: list[Member] | None = None
    subscribers: tuple[Member, ...] = ()
    direct: tuple[Subscription, ...] = ()
    filtered: tuple[Member, ...] = ()
    durables: tuple[AnyBinding, ...] = ()
    bindings: int = 0
    is_crowded: bool = False

    def lend(self, destination: Destination) -> None:
        """Let ``destination`` have them."""
        destination.subscribers, destination.direct, destination.filtered = (
            self.subscribers,
            self.direct,
            self.filtered,
        )
        destination.durables, destination.bindings, destination.is_crowded = (
            self.durables,
            self.bindings,
            self.is_crowded,
        )


NO_TAKERS = Takers()
"""Of a destination that is to be looked up."""


def takers_of(found: list[Member], *, is_topic: bool, has_wild: bool, leaves: bool) -> Takers:
    """Sort the subscribers of a destination.

    Args:
      found: The matching members.
      is_topic: Each of them is given all that is sent.
      has_wild: Some have a wildcard: they stand in no order, and perhaps twice.
      leaves: Some client's subscriptions end, some in each turn: none of them is there any more.
    """
    members = found
    if has_wild:
        members = sorted(found, key=attrgetter("number"))
        if any(map(is_, members, islice(members, 1, None))):
            members = list(dict.fromkeys(members))  # a composite one reaches a place twice
    if leaves:
        members = [each for each in members if not each.is_leaving]
    everybody = tuple(members)
    filtered = [each for each in everybody if not each.is_direct]
    # Feeds never are direct: where nobody is careful, all are subscriptions.
    direct = [each for each in everybody if each.is_direct] if filtered else everybody
    bindings = [each for each in filtered if not isinstance(each, Subscription)]
    is_crowded = is_topic and len(found) > MANY_TAKERS
    return Takers(
        found if is_crowded else None,
        subscribers=everybody,
        direct=cast("tuple[Subscription, ...]", tuple(direct)),
        filtered=tuple(filtered),
        durables=tuple([each for each in bindings if each.durable]),
        bindings=len(bindings) if is_topic else 0,
        is_crowded=is_crowded,
    )
