"""Evaluation of selectors before a SEND, in pieces if there are many."""

from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker.delivery import NotYet, Turns, Work
from trio_stomp.broker.names import Kind
from trio_stomp.broker.selectors import Selector
from trio_stomp.frames import Head

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trio_stomp.broker.delivery import Destination, Member

SelectorResults = dict[Selector, bool]

FEW_SELECTORS = 16
"""Up to this many selectors are evaluated during the fan-out."""


@define(eq=False, repr=False)
class SelectorEvaluator:
    """Evaluates selectors before a SEND. They remember the result, so the fan-out is fast.

    Nothing is sent before all are evaluated. So each sender's order is kept, and other senders do
    not wait.
    """

    turns: Turns = field(factory=Turns)
    must_not_wait: bool = False
    """The current SEND has begun and must finish in this call."""
    _evaluated: Head | None = None
    """The header block for which all selectors were evaluated in this turn. It is sent next."""

    def ask(self, head: Head, parts: "Sequence[tuple[Destination, Head]]") -> None:
        """Evaluate the selectors of all subscribers to the destinations of a SEND.

        Args:
          head: The header block as sent.
          parts: Each destination, with the header block that its subscribers get.

        Raises:
          NotYet: The sender's share of the turn ended first.
        """
        evaluated, self._evaluated = self._evaluated, None
        if evaluated is head or self.must_not_wait:
            return
        work = self._asking(head, parts)
        if not self.turns.finishes(work):
            raise NotYet(work)
        self._evaluated = None

    @contextmanager
    def at_once(self) -> "Iterator[None]":
        """Finish SENDs inside the context in this call: they have begun and must not wait."""
        self.must_not_wait = True
        try:
            yield
        finally:
            self.must_not_wait = False

    def _asking(self, head: Head, parts: "Sequence[tuple[Destination, Head]]") -> Work:
        yield from asking(parts)
        self._evaluated = head


def asking(parts: "Sequence[tuple[Destination, Head]]") -> Work:
    """Evaluate the selectors of all subscribers in pieces. They remember the results.

    Args:
      parts: Each destination, with the header block that its subscribers get.
    """
    results: list[tuple[Head, SelectorResults]] = []
    for destination, block in parts:
        answers: SelectorResults = {}
        results.append((block, answers))
        for member in destination.filtered:  # later ones are evaluated during the fan-out
            selector = member.selector
            if selector is not None and selector not in answers:
                answers[selector] = selector.matches(block)
                yield
    for block, answers in results:
        remind(answers, block)


def is_long_choice(destination: "Destination") -> bool:
    """Return whether the choice of a work queue's member must be made in pieces."""
    return destination.kind is Kind.WORK and len(destination.filtered) > FEW_SELECTORS


def results_of(members: "Sequence[Member]", head: Head) -> SelectorResults:
    """Return the results of the selectors of ``members`` for a header block.

    Selectors remember results for one turn only. Few ``members`` give an empty dict, because
    evaluating them again is cheap.
    """
    if len(members) <= FEW_SELECTORS:
        return {}
    selectors = {each.selector for each in members if each.selector is not None}
    return {selector: selector.matches(head) for selector in selectors}


def remind(answers: SelectorResults, head: Head) -> None:
    """Let selectors remember, for this turn, their results from earlier turns."""
    for selector, matched in answers.items():
        selector.remember(head, truth=matched)
