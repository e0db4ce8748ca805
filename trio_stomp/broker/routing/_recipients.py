"""The subscribers of a destination, sorted by kind of delivery."""

import heapq
from collections.abc import Callable, Collection, Generator, Sequence
from itertools import islice
from operator import attrgetter, is_
from typing import cast

from attrs import define

from trio_stomp.broker.delivery import (
    MANY_RECIPIENTS,
    AnyBinding,
    Destination,
    Member,
    Subscription,
)

STEP = 256
"""Subscribers, or tables of subscribers, in one piece."""
FEW_TAKERS = 16
"""Lists up to this length are included in the cost of their destination."""
_number = attrgetter("number")


@define(eq=False, repr=False)
class Recipients:
    """The subscribers of a ``Destination``. Destinations with the same subscribers share it.

    Args:
      found: The members in the order of look-up; None = few.
      bindings: The number of bindings of a topic.
      users: The number of destinations that use it.
    """

    found: list[Member] | None = None
    subscribers: Sequence[Member] = ()
    plain: Sequence[Subscription] = ()
    filtered: Sequence[Member] = ()
    durables: Sequence[AnyBinding] = ()
    bindings: int = 0
    is_crowded: bool = False
    users: int = 0

    @property
    def size(self) -> int:
        """Return the number of entries in all lists."""
        lists = {id(each): len(each) for each in (self.subscribers, self.plain, self.filtered)}
        return sum(lists.values()) + (0 if self.found is None else len(self.found))

    def lend(self, destination: Destination) -> None:
        """Set the subscribers of ``destination``."""
        destination.subscribers, destination.plain, destination.filtered = (
            self.subscribers,
            self.plain,
            self.filtered,
        )
        destination.durables, destination.bindings, destination.is_crowded = (
            self.durables,
            self.bindings,
            self.is_crowded,
        )


NO_TAKERS = Recipients()
"""The subscribers of a destination before they are looked up."""


def recipients_of(
    found: list[Member], *, is_topic: bool, has_wild: bool, leaves: bool
) -> Recipients:
    """Sort the subscribers of a destination.

    Args:
      found: The matching members.
      is_topic: Whether each member gets each message.
      has_wild: Whether wildcards are among them. Then they are unordered and may occur twice.
      leaves: Whether the subscriptions of some client are ending, which must be left out.
    """
    members = found
    if has_wild:
        members = sorted(found, key=_number)
        if any(map(is_, members, islice(members, 1, None))):
            members = list(dict.fromkeys(members))  # a composite SUBSCRIBE may match twice
    if leaves:
        members = [each for each in members if not each.is_leaving]
    recipients = Recipients(found if len(found) > FEW_TAKERS else None)
    recipients.is_crowded = is_topic and len(found) > MANY_RECIPIENTS
    subscribers = recipients.subscribers = tuple(members)
    filtered = recipients.filtered = tuple([each for each in subscribers if not each.is_plain])
    # Bindings are never plain, so without filtered members all are subscriptions.
    plain = tuple([each for each in subscribers if each.is_plain]) if filtered else subscribers
    recipients.plain = cast("tuple[Subscription, ...]", plain)
    bindings = [each for each in filtered if not isinstance(each, Subscription)]
    recipients.durables = tuple([each for each in bindings if each.durable])
    recipients.bindings = len(bindings) if is_topic else 0
    return recipients


def sorting(
    tables: Sequence[Collection[Member]],
    *,
    is_topic: bool,
    leaves: bool,
    like: Recipients | None,
    collect_young: Callable[[], None],
) -> Generator[None, None, Recipients]:
    """Sort very many subscribers of a destination in pieces. They may come and go meanwhile.

    Args:
      tables: The tables of members. A member may occur twice.
      is_topic: Whether each member gets each message.
      leaves: Whether subscriptions that are ending must be left out.
      like: The subscribers of another destination, which are returned if they are the same.
      collect_young: Collects young garbage (``Turns.collect_young``).
    """
    found: list[Member] = []
    subscribers: list[Member] = []
    plain: list[Subscription] = []
    filtered: list[Member] = []
    durables: list[AnyBinding] = []
    recipients = Recipients(found, subscribers, plain, filtered, durables)
    collect_young()  # before these lists are long
    for index, table in enumerate(tables):
        found.extend(table)
        if index % STEP == STEP - 1 or len(table) > STEP:
            yield
    if like is not None and like.found == found:
        return like
    runs = yield from _in_runs(found, collect_young)
    ordered = iter(runs[0]) if len(runs) == 1 else heapq.merge(*runs, key=_number)
    last: Member | None = None
    while chunk := list(islice(ordered, STEP)):
        before, last = last, chunk[-1]
        if chunk[0] is before or any(map(is_, chunk, islice(chunk, 1, None))):
            chunk = [each for each in dict.fromkeys(chunk) if each is not before]
        if leaves:
            chunk = [each for each in chunk if not each.is_leaving]
        subscribers += chunk
        plain += cast("list[Subscription]", [each for each in chunk if each.is_plain])
        guarded = [each for each in chunk if not each.is_plain]
        filtered += guarded
        bindings = [each for each in guarded if not isinstance(each, Subscription)]
        durables += [each for each in bindings if each.durable]
        recipients.bindings += len(bindings) if is_topic else 0
        yield
    recipients.is_crowded = is_topic
    return recipients


def _in_runs(
    members: list[Member], collect_young: Callable[[], None]
) -> Generator[None, None, list[list[Member]]]:
    """Split members into sorted runs, each as long as possible."""
    runs: list[list[Member]] = []
    for index in range(0, len(members), STEP):
        chunk = sorted(members[index : index + STEP], key=_number)
        if runs and runs[-1][-1].number <= chunk[0].number:
            runs[-1] += chunk
        else:
            runs.append(chunk)
            collect_young()
        yield
    return runs
