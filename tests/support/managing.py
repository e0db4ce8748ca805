"""Operations of operators, driven as the server does it."""

from collections.abc import Callable
from typing import TypeVar

from tests.support.core import Bench
from trio_stomp.broker import InSteps, Step
from trio_stomp.broker.queues import Message

T = TypeVar("T")


def drive(core: Bench, operation: InSteps, between: Callable[[], None] = lambda: None) -> int:
    """Step until the operation has ended. Return the number of steps."""
    steps = 1
    while operation.step(core.now) is not Step.DONE:
        between()
        core.turn()
        steps += 1
        assert steps < 2000
    core.turn()
    return steps


def into(found: list[T], of: Callable[[Message], T]) -> Callable[[Message], bool]:
    """Return a function that adds something of each message to a list, and goes on."""

    def take(message: Message) -> bool:
        found.append(of(message))
        return True

    return take
