"""The subscribers of a destination, sorted by kind of delivery."""

from collections.abc import Sequence
from itertools import islice
from operator import attrgetter, is_
from typing import cast

from attrs import define

from trio_stomp.broker.delivery import (
    BINDING_S,
    PLAIN_S,
    RUN_S,
    AnyBinding,
    Destination,
    Member,
    Subscription,
)

FEW_TAKERS = 16
"""Lists up to this length are included in the cost of their destination."""
_number = attrgetter("number")


@define(eq=False, repr=False)
class Recipients:
    """The subscribers of a ``Destination``. Destinations with the same subscribers share it.

    Args:
      found: The members in the order of look-up; None = few.
      cost_s: The cost of a message, in seconds.
      more_s: The cost of each further message of a run, in seconds.
      users: The number of destinations that use it.
    """

    found: list[Member] | None = None
    subscribers: Sequence[Member] = ()
    plain: Sequence[Subscription] = ()
    filtered: Sequence[Member] = ()
    durables: Sequence[AnyBinding] = ()
    cost_s: float = 0.0
    more_s: float = 0.0
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
        destination.durables = self.durables


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
    subscribers = recipients.subscribers = tuple(members)
    filtered = recipients.filtered = tuple([each for each in subscribers if not each.is_plain])
    # Bindings are never plain, so without filtered members all are subscriptions.
    plain = tuple([each for each in subscribers if each.is_plain]) if filtered else subscribers
    recipients.plain = cast("tuple[Subscription, ...]", plain)
    bindings = [each for each in filtered if not isinstance(each, Subscription)]
    recipients.durables = tuple([each for each in bindings if each.durable])
    recipients.cost_s = len(plain) * PLAIN_S
    # Selectors are evaluated once for a run: all its messages have one header block.
    recipients.more_s = (len(members) - len(bindings)) * RUN_S + len(bindings) * BINDING_S
    if filtered:
        if is_topic:  # a message for a work queue has one recipient
            recipients.cost_s += (len(filtered) - len(bindings)) * PLAIN_S
            recipients.cost_s += len(bindings) * BINDING_S
        # Equal selectors are one object, which is evaluated once for a message.
        selectors = {each.selector for each in filtered if each.selector is not None}
        recipients.cost_s += sum(each.cost_s for each in selectors)
    return recipients
