"""Selectors are asked about a header block before it is sent, bit by bit where they are many."""

from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker.delivery import NotYet, Turns, Work
from trio_stomp.broker.selectors import Selector
from trio_stomp.frames import Head

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trio_stomp.broker.delivery import Destination, Member

Answers = dict[Selector, bool]

FEW_SELECTORS = 16
"""So many are asked on the way."""


@define(eq=False, repr=False)
class Asker:
    """Has selectors remember what they say to a header block, so that a SEND asks each in no time.

    Nothing is sent before, so what one sender sends stays in order, and others do not wait for it.
    """

    turns: Turns = field(factory=Turns)
    must_not_wait: bool = False
    """What is sent now has been begun."""
    _asked: Head | None = None
    """All have been asked about it, in this turn: it is to be sent now."""

    def ask(self, head: Head, parts: "Sequence[tuple[Destination, Head]]") -> None:
        """Ask the selectors of all subscribers to the routes of a SEND.

        Args:
          head: What its sender sent.
          parts: Each of its routes, with the block as that one's subscribers are told it.

        Raises:
          NotYet: the sender's share of the turn is over first.
        """
        asked, self._asked = self._asked, None
        if asked is head or self.must_not_wait:
            return
        work = self._asking(head, parts)
        if not self.turns.finishes(work):
            raise NotYet(work)
        self._asked = None

    @contextmanager
    def at_once(self) -> "Iterator[None]":
        """Let what is sent inside, which has been begun, wait for nothing."""
        self.must_not_wait = True
        try:
            yield
        finally:
            self.must_not_wait = False

    def _asking(self, head: Head, parts: "Sequence[tuple[Destination, Head]]") -> Work:
        yield from asking(parts)
        self._asked = head


def asking(parts: "Sequence[tuple[Destination, Head]]") -> Work:
    """Ask the selectors of all subscribers to some destinations in pieces. They remember it.

    Args:
      parts: Each of the routes, with the block as that one's subscribers are told it.
    """
    said: list[tuple[Head, Answers]] = []
    for destination, told in parts:
        answers: Answers = {}
        said.append((told, answers))
        for member in destination.filtered:  # who comes meanwhile is asked on the way
            selector = member.selector
            if selector is not None and selector not in answers:
                answers[selector] = selector.matches(told)
                yield
    for told, answers in said:
        remind(answers, told)


def answers_of(members: "Sequence[Member]", head: Head) -> Answers:
    """Return what the selectors of many ``members`` have just said, for when they forget."""
    if len(members) <= FEW_SELECTORS:
        return {}
    selectors = {each.selector for each in members if each.selector is not None}
    return {selector: selector.matches(head) for selector in selectors}


def remind(answers: Answers, head: Head) -> None:
    """Have selectors remember, for this turn, what they said to a header block in earlier ones."""
    for selector, truth in answers.items():
        selector.remember(head, truth=truth)
