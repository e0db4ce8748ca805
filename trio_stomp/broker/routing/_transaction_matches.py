"""Evaluation of selectors for all SENDs of a transaction, in pieces, before it is carried out."""

from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.delivery import Work
from trio_stomp.broker.routing._selector_evaluator import FEW_SELECTORS
from trio_stomp.frames import Head

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.broker.delivery import Destination, Member, Publication

MAX_REMEMBERED = 256 * 1024
"""Limit of matching subscribers remembered for a transaction. The others are evaluated during the
fan-out, where this costs less than their deliveries."""
ENTRY_BYTES = 8
"""Bytes of one subscriber in a list."""


@define(eq=False, repr=False)
class Evaluated:
    """The filtered subscribers of a destination whose selectors were evaluated."""

    members: "Sequence[Member]"
    _now: "Sequence[Member]" = ()
    _gone: "set[Member]" = field(factory=set)
    _come: "list[Member]" = field(factory=list)

    def present(self, recipients: "list[Member]", now: "Sequence[Member]") -> "list[Member]":
        """Return ``recipients`` brought up to date.

        Args:
          recipients: Subscribers whose selectors match.
          now: The present filtered subscribers.

        Returns:
          The ``recipients`` that are still subscribed, and all subscribers since.
        """
        if now is self.members:
            return recipients
        if now is not self._now:
            before, after = set(self.members), set(now)
            self._now, self._gone = now, before - after
            self._come = [each for each in now if each not in before]
        return [each for each in recipients if each not in self._gone] + self._come


@define(eq=False, repr=False)
class Matches:
    """The subscribers whose selectors match a header block."""

    head: Head
    evaluated: Evaluated
    recipients: "list[Member]"

    def among(self, members: "Sequence[Member]", publication: "Publication") -> "Sequence[Member]":
        """Return ``members`` without those whose selector refuses.

        The selectors of the others remember that they match.
        """
        destination, head = publication.destination, publication.head
        if head is not self.head and head.headers != self.head.headers:
            return members  # another message sent meanwhile, such as a dead letter
        for member in self.recipients:
            if member.selector is not None:
                member.selector.remember(head, truth=True)
        present = self.evaluated.present(self.recipients, destination.filtered)
        return present if members is destination.filtered else [*destination.plain, *present]


MatchesByName = dict[str, Matches]
"""Results for one header block, by destination."""


@define(eq=False, repr=False)
class TransactionMatches:
    """The results of selectors for the header blocks of one transaction."""

    memory: MemoryBudget
    is_of_one: bool = False
    """The transaction is a single SEND, whose RECEIPT reports the number of matches."""
    _results: dict[Head, MatchesByName] = field(factory=dict)
    _evaluated: dict[str, Evaluated] = field(factory=dict)
    """The subscribers last evaluated, by destination."""
    _count: int = 0
    _holders: int = 1
    """Users of the results: the transaction, and its parts that wait for the store."""

    def ask(self, head: Head, delivered: Head, destination: "Destination") -> Work:
        """Evaluate the selectors of the subscribers to ``destination``, if there are many.

        Args:
          head: The header block as sent.
          delivered: The header block that the subscribers get.
          destination: The destination.
        """
        results = self._results.setdefault(head, {})
        members = destination.filtered
        if (
            len(members) <= FEW_SELECTORS
            or destination.name in results
            or self._count >= MAX_REMEMBERED
        ):
            return
        recipients: list[Member] = []
        for member in members:
            selector = member.selector
            if selector is None or selector.matches(delivered):
                recipients.append(member)
            yield
        count = len(recipients)
        evaluated = self._evaluated.get(destination.name)
        if evaluated is None or evaluated.members is not members:
            evaluated = self._evaluated[destination.name] = Evaluated(members)
            count += len(members)
        results[destination.name] = Matches(delivered, evaluated, recipients)
        self.memory.force_kept(ENTRY_BYTES * count)
        self._count += count

    def about(self, head: Head) -> MatchesByName:
        """Return the results for ``head``."""
        return self._results.get(head, {})

    def hold(self) -> None:
        """Count one more user."""
        self._holders += 1

    def release(self) -> None:
        """Count one user less. The last one returns the memory."""
        self._holders -= 1
        if not self._holders:
            self.memory.give_kept(ENTRY_BYTES * self._count)
            self._count = 0
