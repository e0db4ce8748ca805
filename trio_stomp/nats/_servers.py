"""The servers of a cluster, and the order and time of connection attempts."""

import random
from collections.abc import Mapping, Sequence

from attrs import define, field

from trio_stomp.nats._address import Address, parse_address
from trio_stomp.nats.codec import NatsError

MAX_LEARNED = 256
"""Maximum number of addresses learned from servers."""


@define(eq=False, repr=False)
class Servers:
    """Configured and learned addresses, tried in turn.

    Args:
      configured: Tried first, and never forgotten.
      first_wait_s: Pause after all of them failed once; it doubles with each further round.
      last_wait_s: The maximum pause.
      chance: A random generator, so that clients that lost one server choose different others at
        different times.
    """

    configured: Sequence[Address]
    first_wait_s: float
    last_wait_s: float
    chance: random.Random
    _learned: list[Address] = field(factory=list)
    _round: list[Address] = field(factory=list)
    """Addresses not tried yet in this round."""
    _rounds: int = -1
    """Number of failed rounds before this one."""

    def next(self) -> tuple[Address, float]:
        """Return the next address to try, and the pause before it in seconds."""
        if self._round:
            return self._round.pop(), 0.0
        servers = {(each.host, each.port): each for each in (*self._learned, *self.configured)}
        self._round = self.chance.sample(list(servers.values()), len(servers))
        self._rounds += 1
        if not self._rounds:
            return self._round.pop(), 0.0
        wait = min(self.first_wait_s * 2 ** min(self._rounds - 1, 30), self.last_wait_s)
        return self._round.pop(), wait * self.chance.uniform(0.5, 1.0)

    def note_success(self, address: Address, info: Mapping[str, object]) -> None:
        """Begin a new round after the next failure, with the addresses named by the server.

        Args:
          address: The server that accepted a connection.
          info: Its description of itself.
        """
        self._round, self._rounds = [], -1
        learned = info.get("connect_urls")
        if not isinstance(learned, list):
            return
        self._learned = []
        for text in learned[:MAX_LEARNED]:
            try:
                self._learned.append(parse_address(str(text), like=address))
            except NatsError:
                continue  # of a kind that this client cannot use, such as ws://
