"""The subscribers of a destination, sorted by kind of delivery, and a bound for all lists of them.

Lists are shared. Beyond the bound, the oldest are given up.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from operator import attrgetter, is_
from typing import cast

from attrs import define, field

from trio_stomp.base import MemoryBudget, noop
from trio_stomp.broker.delivery import (
    BINDING_S,
    PLAIN_S,
    RUN_S,
    STALE_GENERATION,
    AnyBinding,
    Destination,
    Member,
    Subscription,
)

FEW_TAKERS = 16
"""Lists up to this length are included in the cost of their destination."""
MAX_ENTRIES = 2 * 1024 * 1024
"""Limit of entries in all lists together, 8 bytes each."""
ENTRY_SHARE = 256
"""Bytes of the memory budget for each entry. So lists take a 32nd of it at most."""
MOST_GIVEN_UP = 256
"""Limit of lists given up in one turn."""
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


@define(eq=False, repr=False)
class SharedRecipients:
    """The lists of subscribers that destinations use, except short ones.

    If 1,000 subscribers take 100,000 topics, each topic would have a list of 1,000. Therefore
    topics with the same subscribers share one list, and all lists together have a bound. A list
    that was given up is looked up again for the next message.
    """

    memory: MemoryBudget
    at_end: Callable[[Callable[[], None]], None] = noop
    """Makes a call at the end of the turn, when no list is in use."""
    last: Recipients | None = None
    """The list looked up last. The next one may be the same."""
    size: int = 0
    _lent: OrderedDict[Destination, Recipients] = field(factory=OrderedDict)
    """The list of each destination, the oldest first."""

    def __len__(self) -> int:
        return len(self._lent)

    @property
    def max_size(self) -> int:
        """Return the limit of entries in all lists. The lists of one turn may exceed it."""
        return min(MAX_ENTRIES, self.memory.limit_bytes // ENTRY_SHARE)

    def lend(self, destination: Destination, recipients: Recipients) -> None:
        """Set the list of ``destination``."""
        self.take_back(destination)
        destination.subscribers, destination.plain = recipients.subscribers, recipients.plain
        destination.filtered, destination.durables = recipients.filtered, recipients.durables
        destination.cost_s, destination.more_s = recipients.cost_s, recipients.more_s
        if recipients.size > FEW_TAKERS:
            if not recipients.users:
                self.size += recipients.size
            recipients.users += 1
            self._lent[destination] = recipients
            if self.size > self.max_size:
                self.at_end(self.give_up)

    def take_back(self, destination: Destination) -> None:
        """Remove the list of ``destination``, which is out of date or forgotten."""
        destination.subscribers = destination.plain = destination.filtered = ()
        destination.durables = ()
        recipients = self._lent.pop(destination, None)
        if recipients is not None:
            recipients.users -= 1
            if not recipients.users:
                self.size -= recipients.size

    def give_up(self) -> None:
        """Give up the oldest lists above the limit, some in each turn."""
        for _ in range(MOST_GIVEN_UP):
            if self.size <= self.max_size or len(self._lent) < 2:
                return
            oldest = next(iter(self._lent))
            self.take_back(oldest)
            oldest.generation = STALE_GENERATION
        self.at_end(self.give_up)
