"""Leases: they say which node should own a partition. Without I/O.

A lease only decides who tries. It cannot make two owners safe, since clocks and pauses differ: the
log does that, which stores nothing for a former owner (see ``ReplicatedStore``).
"""

import math

from attrs import define, field, frozen


@frozen
class LeaseOptions:
    """The times of leases.

    Args:
      ttl_s: A lease that was not renewed for this time is taken by another node.
      renew_s: The interval of renewals; several fit into ``ttl_s``.
      rank_s: Each node waits this much longer than the one before it in the order of preference.
    """

    ttl_s: float = 1.2
    renew_s: float = 0.3
    rank_s: float = 0.02


NEVER = -math.inf


@frozen
class Claim:
    """The content of the last message of a lease.

    Args:
      holder: The node that wrote it; "" = it was given up.
      heir: The node that it was given up for; "" = for any.
      contact: Where other nodes reach the holder, for them to read.
    """

    holder: str = ""
    heir: str = ""
    contact: str = field(default="", repr=False)


@define(eq=False, repr=False)
class Lease:
    """A node's knowledge of the lease of one partition. Times are of the node's own clock.

    Args:
      node: The id of this node.
      rank: The place of this node in the partition's order of preference, from 0.
      started_at: When this node began to watch the lease.
      is_candidate: False = this node takes no lease: its state is not up to date, or it stops.
      claim: The last message.
      sequence: Of this message; whoever writes the next expects it.
    """

    node: str
    rank: int
    options: LeaseOptions
    started_at: float
    is_candidate: bool = True
    claim: Claim = Claim()
    sequence: int = 0
    _seen_at: float = field(init=False)
    """When the last message was read."""
    _held_at: float = NEVER
    """When the last message was sent that made this node the holder and is confirmed."""

    def __attrs_post_init__(self) -> None:
        self._seen_at = self.started_at

    def note(self, sequence: int, claim: Claim, now: float) -> None:
        """Take a message of the lease as it was read.

        By its own message a node holds nothing: when it was sent is known by its confirmation only,
        and it may be of an earlier process.
        """
        if sequence > self.sequence:
            self.sequence, self.claim, self._seen_at = sequence, claim, now

    def confirm(self, sequence: int, claim: Claim, sent_at: float) -> None:
        """Take the confirmation that this node is the holder by a message sent at a time."""
        if sequence >= self.sequence:
            self.sequence, self.claim, self._held_at = sequence, claim, sent_at

    def is_held(self, now: float) -> bool:
        """Return whether this node holds the lease, and no other can have begun to take it."""
        return self.claim.holder == self.node and now < self._held_at + self.options.ttl_s

    def silence(self, now: float) -> float:
        """Return the seconds since the engine was last heard of: by any node's message."""
        return now - max(self._seen_at, self._held_at)

    def due(self) -> float:
        """Return when this node should write the lease, unless something is noted before."""
        options, claim = self.options, self.claim
        if claim.holder == self.node and self._held_at > NEVER:
            return self._held_at + options.renew_s
        if not self.is_candidate:
            return -NEVER
        if self.node in (claim.heir, claim.holder):  # the holder: an earlier process of this node
            return self._seen_at
        is_free = not claim.holder and not claim.heir
        return self._seen_at + self.rank * options.rank_s + (0.0 if is_free else options.ttl_s)
