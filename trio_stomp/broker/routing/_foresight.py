"""Selectors are asked about all SENDs of a transaction before it is carried out, bit by bit."""

from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.delivery import Work
from trio_stomp.broker.routing._asker import FEW_SELECTORS
from trio_stomp.frames import Head

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.broker.delivery import Destination, Member, Publication

MAX_FORESEEN = 256 * 1024
"""So many takers are remembered for one transaction; who sends to more has the rest asked on the
way, which then takes less than to give them what they take."""
PLACE_BYTES = 8
"""Bytes that one of them takes in a list."""


@define(eq=False, repr=False)
class Asked:
    """The careful subscribers of a destination when they were asked."""

    members: "Sequence[Member]"
    _now: "Sequence[Member]" = ()
    _gone: "set[Member]" = field(factory=set)
    _come: "list[Member]" = field(factory=list)

    def present(self, takers: "list[Member]", now: "Sequence[Member]") -> "list[Member]":
        """Return those of ``takers`` who are there still, and those who have come since."""
        if now is self.members:
            return takers
        if now is not self._now:
            before, after = set(self.members), set(now)
            self._now, self._gone = now, before - after
            self._come = [each for each in now if each not in before]
        return [each for each in takers if each not in self._gone] + self._come


@define(eq=False, repr=False)
class Said:
    """The members whose selector takes a header block, of those asked."""

    told: Head
    asked: Asked
    takers: "list[Member]"

    def among(self, members: "Sequence[Member]", publication: "Publication") -> "Sequence[Member]":
        """Leave out of ``members`` those whose selector refuses.

        The others remember that theirs agreed.
        """
        destination, head = publication.destination, publication.head
        if head is not self.told and head.headers != self.told.headers:
            return members  # what else is sent on the way, such as a dead letter
        for member in self.takers:
            if member.selector is not None:
                member.selector.remember(head, truth=True)
        present = self.asked.present(self.takers, destination.filtered)
        return present if members is destination.filtered else [*destination.direct, *present]


Foreseen = dict[str, Said]
"""What was said to one header block, by destination."""


@define(eq=False, repr=False)
class Foresight:
    """The answers of selectors to the header blocks of one transaction."""

    memory: MemoryBudget
    _said: dict[Head, Foreseen] = field(factory=dict)
    _asked: dict[str, Asked] = field(factory=dict)
    """By destination, the last time."""
    _count: int = 0
    _holders: int = 1
    """Who needs it: the transaction, and what of it waits for the store."""

    def ask(self, head: Head, told: Head, destination: "Destination") -> Work:
        """Ask the subscribers to ``destination``, if they are many, about a header block.

        Args:
          head: The header block of the messages.
          told: The block as they are told it.
          destination: The destination.
        """
        said = self._said.setdefault(head, {})
        members = destination.filtered
        if len(members) <= FEW_SELECTORS or destination.name in said or self._count >= MAX_FORESEEN:
            return
        takers: list[Member] = []
        for member in members:
            selector = member.selector
            if selector is None or selector.matches(told):
                takers.append(member)
            yield
        count = len(takers)
        asked = self._asked.get(destination.name)
        if asked is None or asked.members is not members:
            asked = self._asked[destination.name] = Asked(members)
            count += len(members)
        said[destination.name] = Said(told, asked, takers)
        self.memory.force_kept(PLACE_BYTES * count)
        self._count += count

    def about(self, head: Head) -> Foreseen:
        """Return what was said to ``head``."""
        return self._said.get(head, {})

    def hold(self) -> None:
        """Somebody more needs it."""
        self._holders += 1

    def release(self) -> None:
        """Count one holder less. The last gives back the memory."""
        self._holders -= 1
        if not self._holders:
            self.memory.give_kept(PLACE_BYTES * self._count)
            self._count = 0
