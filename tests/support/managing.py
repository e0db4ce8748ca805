"""Operations of operators, driven as the server does it."""

from collections.abc import Callable

from tests.support.core import Bench
from trio_stomp.broker import InSteps, Step


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
