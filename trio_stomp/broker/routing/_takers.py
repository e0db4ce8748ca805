"""Who gets what is sent to a destination, sorted by how it is given to each."""

import heapq
from collections.abc import Callable, Collection, Generator, Sequence
from itertools import islice
from operator import attrgetter, is_
from typing import cast

from attrs import define

from trio_stomp.broker.delivery import (
    MANY_TAKERS,
    AnyBinding,
    Destination,
    Member,
    Subscription,
)

STEP = 256
"""Subscribers that are looked at in one piece, and tables of them."""
FEW_TAKERS = 16
"""Lists of so few are a part of what their destination is charged for."""
_number = attrgetter("number")


@define(eq=False, repr=False)
class Takers:
    """The subscribers of a ``Destination``. Those that have the same ones share it.

    Args:
      found: As they were looked up, if they are more than a few.
      bindings: How many put each message into a queue (topics).
      users: Destinations that have it.
    """

    found: list[Member] | None = None
    subscribers: Sequence[Member] = ()
    direct: Sequence[Subscription] = ()
    filtered: Sequence[Member] = ()
    durables: Sequence[AnyBinding] = ()
    bindings: int = 0
    is_crowded: bool = False
    users: int = 0

    @property
    def places(self) -> int:
        """Return how many places there are in its lists."""
        lists = {id(each): len(each) for each in (self.subscribers, self.direct, self.filtered)}
        return sum(lists.values()) + (0 if self.found is None else len(self.found))

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
        members = sorted(found, key=_number)
        if any(map(is_, members, islice(members, 1, None))):
            members = list(dict.fromkeys(members))  # a composite one reaches a place twice
    if leaves:
        members = [each for each in members if not each.is_leaving]
    takers = Takers(found if len(found) > FEW_TAKERS else None)
    takers.is_crowded = is_topic and len(found) > MANY_TAKERS
    everybody = takers.subscribers = tuple(members)
    filtered = takers.filtered = tuple([each for each in everybody if not each.is_direct])
    # Feeds never are direct: where nobody is careful, all are subscriptions.
    direct = tuple([each for each in everybody if each.is_direct]) if filtered else everybody
    takers.direct = cast("tuple[Subscription, ...]", direct)
    bindings = [each for each in filtered if not isinstance(each, Subscription)]
    takers.durables = tuple([each for each in bindings if each.durable])
    takers.bindings = len(bindings) if is_topic else 0
    return takers


def sorting(
    tables: Sequence[Collection[Member]],
    *,
    is_topic: bool,
    leaves: bool,
    like: Takers | None,
    collect_young: Callable[[], None],
) -> Generator[None, None, Takers]:
    """Sort very many subscribers of a destination in pieces. They may come and go meanwhile.

    Args:
      tables: Where they stand; perhaps twice.
      is_topic: As for ``takers_of``.
      leaves: As for ``takers_of``.
      like: What another destination has, which is returned if it is the same.
      collect_young: As of ``Turns``.
    """
    found: list[Member] = []
    everybody: list[Member] = []
    direct: list[Subscription] = []
    filtered: list[Member] = []
    durables: list[AnyBinding] = []
    takers = Takers(found, everybody, direct, filtered, durables)
    collect_young()  # before these lists are long
    for place, table in enumerate(tables):
        found.extend(table)
        if place % STEP == STEP - 1 or len(table) > STEP:
            yield
    if like is not None and like.found == found:
        return like
    runs = yield from _in_runs(found, collect_young)
    ordered = iter(runs[0]) if len(runs) == 1 else heapq.merge(*runs, key=_number)
    last: Member | None = None
    while some := list(islice(ordered, STEP)):
        before, last = last, some[-1]
        if some[0] is before or any(map(is_, some, islice(some, 1, None))):
            some = [each for each in dict.fromkeys(some) if each is not before]
        if leaves:
            some = [each for each in some if not each.is_leaving]
        everybody += some
        direct += cast("list[Subscription]", [each for each in some if each.is_direct])
        careful = [each for each in some if not each.is_direct]
        filtered += careful
        bindings = [each for each in careful if not isinstance(each, Subscription)]
        durables += [each for each in bindings if each.durable]
        takers.bindings += len(bindings) if is_topic else 0
        yield
    takers.is_crowded = is_topic
    return takers


def _in_runs(
    members: list[Member], collect_young: Callable[[], None]
) -> Generator[None, None, list[list[Member]]]:
    """Part members into runs that are in order, each as long as may be."""
    runs: list[list[Member]] = []
    for place in range(0, len(members), STEP):
        some = sorted(members[place : place + STEP], key=_number)
        if runs and runs[-1][-1].number <= some[0].number:
            runs[-1] += some
        else:
            runs.append(some)
            collect_young()
        yield
    return runs
