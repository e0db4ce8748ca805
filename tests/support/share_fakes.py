"""A broker that sees time pass: each look at its clock is a piece of work that took a while."""

from attrs import define, field

from tests.support.core import Actor, Bench
from tests.support.durable_fakes import DurableBench
from trio_stomp.broker.delivery import PUMP_S, SHARE_S

STEP_S = 0.0001
"""The time of one piece of work."""
MOST = round((2 * SHARE_S + PUMP_S) / STEP_S) + 9
"""Pieces of one batch, of those that wait, and of pumping, and a few more for each."""


def new_bodies(actor: Actor) -> list[str]:
    """Return the bodies of the MESSAGEs since the last call, without ending the turn."""
    return [each.text for each in actor.writes() if each.command == "MESSAGE"]


@define(eq=False, repr=False)
class Clocked(Bench):
    """A bench whose clock advances with each piece of work."""

    pieces: list[int] = field(factory=list)
    """The number of pieces in each turn."""
    _seen: int = 0

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.broker.turns.clock = self.look

    def look(self) -> float:
        """Return the time, and count one piece of work."""
        self._seen += 1
        self.now += STEP_S
        return self.now

    def turn(self) -> None:
        """End the turn, and see how much was done in it."""
        super().turn()
        self.pieces.append(self._seen)
        self._seen = 0

    def settles(self) -> int:
        """Run until all work is done. Return the number of turns."""
        turns = 0
        while self.broker.has_more:
            self.turn()
            turns += 1
            assert turns < 10_000
        return turns

    def queues(self, count: int, name: str = "/queue/z") -> Actor:
        """Create ``count`` queues of one message each. Return the sender."""
        sender = self.actor()
        for number in range(count):
            sender.sends(f"{name}{number:05}", f"{number}")
        self.settles()
        return sender


@define(eq=False, repr=False)
class ClockedDurable(DurableBench):
    """The same with a store."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.broker.turns.clock = self.look

    def look(self) -> float:
        """Return the time, and count one piece of work."""
        self.now += STEP_S
        return self.now
