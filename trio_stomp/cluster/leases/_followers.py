"""The choice of the nodes that follow the log of a partition beside its owner. Without I/O.

The owner of the partition chooses, and its lease tells all nodes.
"""

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from attrs import define, field

from trio_stomp.cluster._orders import DRAINING, STANDBY

PATIENCE_S = 10.0
"""A follower is replaced after this silence. Until then, it may just be restarted."""


@define
class Followers:
    """Chooses the followers of a partition.

    Each node has a fixed place in the partition's order (rendezvous hashing), and the first ones of
    those that answer follow. So a node that comes or goes changes few choices, and the followers of
    several partitions are spread over the nodes.

    Args:
      partition: The number of the partition.
      count: How many nodes follow.
    """

    partition: int
    count: int
    _heard: dict[str, float] = field(factory=dict)
    """When each node that may follow answered last."""

    def choose(
        self,
        before: Sequence[str],
        roles: Mapping[str, str],
        now: float,
        *,
        owner: str,
        heir: str = "",
    ) -> tuple[str, ...]:
        """Return the followers.

        Former ones stay until those in their place are up to date, or if there is nobody else.

        Args:
          before: The followers so far.
          roles: What each node that answers is.
          now: The time in seconds, from any origin.
          owner: The owner.
          heir: Another node that must follow, since it is to become the owner; "" = none.
        """
        self._hear(roles, now)
        fit = sorted((node for node in self._heard if node != owner), key=self._place)
        wanted = fit[: self.count]
        former = [node for node in before if node not in (owner, *wanted)]
        absent = [node for node in former if node not in fit][: self.count - len(wanted)]
        if heir in fit and heir not in wanted:
            wanted.append(heir)
        late = []
        if any(roles.get(node) != STANDBY for node in wanted):
            late = [node for node in former if roles.get(node) == STANDBY]
        return tuple(sorted({*wanted, *absent, *late}))

    def _hear(self, roles: Mapping[str, str], now: float) -> None:
        for node, role in roles.items():
            self._heard[node] = -math.inf if role == DRAINING else now
        self._heard = {node: at for node, at in self._heard.items() if now < at + PATIENCE_S}

    def _place(self, node: str) -> bytes:
        return blake2b(f"{self.partition} {node}".encode(), digest_size=8).digest()
