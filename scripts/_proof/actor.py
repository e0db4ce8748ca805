"""The base class of the churn's actions, which connects and chooses at random."""

import random
from contextlib import AbstractAsyncContextManager

from _proof.peer import Peer, dialled

FEW = 20
MANY = 100_000
"""Names of which each is used about once: the broker forgets the oldest."""


class Actor:
    """Connects, and chooses at random.

    Args:
      port: The broker's port on the loopback interface.
      dice: The source of random choices.
    """

    def __init__(self, port: int, dice: random.Random) -> None:
        self.port = port
        self.dice = dice

    def peer(self, *, small: bool = False) -> AbstractAsyncContextManager[Peer]:
        """Connect by TCP or WebSocket."""
        return dialled(self.port, websocket=self.dice.random() < 0.5, small=small)

    def few(self) -> int:
        """Return one of a few values."""
        return self.dice.randrange(FEW)
