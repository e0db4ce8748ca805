"""What operators request is done in steps that take about a millisecond, each in a turn."""

from collections.abc import Callable, Generator, Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeVar

from attrs import define, field

from trio_stomp.base import ProtocolError, noop
from trio_stomp.broker.durability import Callback

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Turns
    from trio_stomp.broker.durability import Log

T = TypeVar("T")

STEP_S = 0.001
"""Time share of a step."""


class Step(Enum):
    """The continuation after a step."""

    MORE = auto()
    """Immediately."""
    LATER = auto()
    """After some milliseconds: a COMMIT into the queue, or the store, has precedence."""
    WAIT = auto()
    """After a call of ``woken``: a page is being read, or removals are being stored."""
    DONE = auto()


Steps = Iterator[Step]
"""Pieces of work. After MORE, the next one may follow in the same step."""


@define(eq=False, repr=False)
class InSteps:
    """Base of what is done in steps.

    Args:
      turns: Limits the time of a step.
      log: The log, if there is a store to which it writes. Then it ends when all is stored.
    """

    turns: "Turns"
    log: "Log | None"
    total: int = field(init=False, default=0)
    """How much there is, if known."""
    seen: int = field(init=False, default=0)
    """How much was looked at."""
    done: int = field(init=False, default=0)
    """How much is done."""
    problem: ProtocolError | None = field(init=False, default=None)
    """Why it ended early."""
    woken: Callable[[], None] = field(init=False, default=noop)
    """Called when it can continue after ``Step.WAIT``."""
    _steps: "Generator[Step, None, None]" = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._steps = self._all()

    def work(self) -> Steps:
        """Do the work, piece by piece. An error of the protocol is its ``problem``."""
        raise NotImplementedError

    def step(self, now: float) -> Step:
        """Do a step, in a turn of the dispatcher.

        Args:
          now: Seconds of the broker's clock.
        """
        self.turns.now = now
        self.turns.begin(STEP_S)
        for step in self._steps:
            if step is not Step.MORE or self.turns.is_over():
                return step
        return Step.DONE

    def end(self, now: float) -> None:
        """End it wherever it is, because its client has gone. It may have ended already."""
        self.turns.now = now
        self._steps.close()

    def answer(self, ask: "Callable[[Callable[[T], None]], object]") -> Generator[Step, None, T]:
        """Ask, and wait until the function that ``ask`` gets is called with the answer."""
        answers: list[T] = []

        def take(answer: T) -> None:
            answers.append(answer)
            self.woken()

        ask(take)
        while not answers:
            yield Step.WAIT
        return answers[0]

    def within(self, part: "InSteps") -> Steps:
        """Do another work as a part of this one."""
        part.woken = lambda: self.woken()
        yield from part._steps

    def stored(self) -> Steps:
        """Wait until everything written so far is stored."""
        log = self.log
        if log is None:
            return

        def ask(take: Callable[[float], None]) -> None:
            log.when_safe(Callback(None, take))

        yield from self.answer(ask)

    def _all(self) -> Generator[Step, None, None]:
        try:
            yield from self.work()
        except ProtocolError as error:
            self.problem = error.without_traceback()
        if self.done:
            yield from self.stored()


@define(eq=False, repr=False)
class Task(InSteps):
    """A change in steps.

    Args:
      change: Does a piece of the change each time, and yields how much is done.
    """

    change: Iterator[int]
    total: int = 0

    def work(self) -> Steps:
        """Implement ``InSteps.work``."""
        for done in self.change:
            self.seen = self.done = done
            yield Step.MORE
