"""A bench that counts the pieces of work in each turn."""

from attrs import define, field

from tests.support.core import LOOK_S, Actor, Bench, Core
from trio_stomp.broker.delivery import PUMP_S, SHARE_S

MOST = round((2 * SHARE_S + PUMP_S) / LOOK_S) + 9
"""Pieces of one batch, of those that wait, and of pumping, and a few more for each."""


def new_bodies(actor: Actor) -> list[str]:
    """Return the bodies of the MESSAGEs since the last call, without ending the turn."""
    return [each.text for each in actor.writes() if each.command == "MESSAGE"]


def looks(core: Core) -> int:
    """Return how often the clock of a core was looked at, this time included."""
    return round(core.broker.turns.clock() / LOOK_S)


@define(eq=False, repr=False)
class Clocked(Bench):
    """A bench that counts the looks at its clock, each of which is a piece of work."""

    pieces: list[int] = field(factory=list)
    """The number of pieces in each turn, with those of the longest batch before it."""
    _seen: int = 0
    _in_batch: int = 0

    def batch_ended(self) -> None:
        """See how much was done in a batch."""
        self._in_batch = max(self._in_batch, self._since())

    def turn(self) -> None:
        """End the turn, and see how much was done in it."""
        super().turn()
        self.pieces.append(self._in_batch + self._since())
        self._in_batch = 0

    def _since(self) -> int:
        before, self._seen = self._seen, looks(self)
        return self._seen - before - 1

    def queues(self, count: int, name: str = "/queue/z") -> Actor:
        """Create ``count`` queues of one message each. Return the sender."""
        sender = self.actor()
        for number in range(count):
            sender.sends(f"{name}{number:05}", f"{number}")
        self.settles()
        return sender
