"""The figures of a cluster, for the broker that owns it."""

from collections.abc import Sequence
from typing import Protocol

from attrs import frozen


@frozen
class NodeFigures:
    """A node, as it reported a short while ago.

    Args:
      role: ``owner``, ``standby``, ``watching``, ``reading`` or ``draining``.
      behind: Entries of the log that it had not applied.
      clients: Clients that it relays.
      differs: The settings that differ from the owner's: ``users``, ``rules``, ``policies``.
    """

    node: str
    role: str
    address: str
    version: str
    behind: int
    clients: int
    differs: Sequence[str] = ()


@frozen
class ClusterFigures:
    """The figures of a cluster.

    Args:
      name: The name of the cluster.
      epoch: The sequence of the entry of the log with which the owner began.
      appends: Appends since then.
      records: Records in them.
      append_s: Their total time in seconds.
      nodes: All nodes that reported, ordered by their ids.
    """

    name: str
    epoch: int
    appends: int
    records: int
    append_s: float
    nodes: Sequence[NodeFigures]


class Cluster(Protocol):
    """A cluster, as the broker that owns it sees it."""

    def doubts(self) -> str:
        """Return the reason why nothing can be stored at the moment, or ""."""

    def figures(self) -> ClusterFigures:
        """Return the figures as of now."""
