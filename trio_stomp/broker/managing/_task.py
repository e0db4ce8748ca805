"""A change in steps that take about a millisecond, other than of the messages of one queue."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from attrs import define

from trio_stomp.base import ProtocolError, noop
from trio_stomp.broker.durability import Callback
from trio_stomp.broker.managing._operation import STEP_S, Step

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Turns
    from trio_stomp.broker.durability import Log


class InSteps(Protocol):
    """Work that is done in steps: an ``Operation``, a ``Task`` or a ``Reading``."""

    problem: ProtocolError | None
    """Why it ended early."""
    woken: Callable[[], None]
    """Called when it can continue after ``Step.WAIT``."""

    @property
    def total(self) -> int:
        """Return how much there is, if known."""

    @property
    def seen(self) -> int:
        """Return how much was looked at."""

    @property
    def done(self) -> int:
        """Return how much is done."""

    def step(self, now: float) -> Step:
        """Do a step, in a turn of the dispatcher."""

    def end(self, now: float = 0.0) -> None:
        """End it wherever it is."""


@define(eq=False, repr=False)
class Task:
    """A change in steps.

    Args:
      turns: Limits the time of a step.
      log: The log, if there is a store. The task ends when it has stored everything.
      work: Does a piece of the change each time, and yields how much is done.
      total: How much there is, if known.
    """

    turns: "Turns"
    log: "Log | None"
    work: Iterator[int]
    total: int = 0
    seen: int = 0
    done: int = 0
    problem: ProtocolError | None = None
    woken: Callable[[], None] = noop
    _is_stored: bool = False

    def step(self, _now: float) -> Step:
        """Implement ``InSteps.step``."""
        if self._is_stored:
            return Step.DONE
        self.turns.begin(STEP_S)
        try:
            for done in self.work:
                self.seen = self.done = done
                if self.turns.is_over():
                    return Step.MORE
        except ProtocolError as error:
            self.problem = error.without_traceback()
        if self.log is None or not self.done:
            return Step.DONE
        self.log.when_safe(Callback(None, self._go_on))
        return Step.WAIT

    def end(self, _now: float = 0.0) -> None:
        """Implement ``InSteps.end``. What is done stays so."""
        self.work = iter(())

    def _go_on(self, _now: float) -> None:
        self._is_stored = True
        self.woken()
