"""Leases, which decide which node should own a partition. Without I/O.

A lease only decides which node tries. It cannot rule out two owners at once, since clocks and
pauses differ. The log makes that safe: it stores nothing for a former owner (``ReplicatedStore``).
"""

import math

from attrs import define, field, frozen


@frozen
class LeaseOptions:
    """The times of leases.

    Args:
      ttl_s: How long a lease lasts without renewal; then another node takes it.
      renew_s: The interval between renewals; several fit into ``ttl_s``.
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
      holder: The node that holds the lease; "" = it was given up.
      heir: The node for which it was given up; "" = for any.
      contact: The address at which other nodes reach the holder.
      followers: The nodes that follow the log beside the holder; None = all do.
    """

    holder: str = ""
    heir: str = ""
    contact: str = field(default="", repr=False)
    followers: tuple[str, ...] | None = None


@define(eq=False, repr=False)
class Lease:
    """A node's knowledge of the lease of one partition. Times are of the node's own clock.

    Args:
      node: The id of this node.
      rank: The position of this node in the partition's order of preference, from 0.
      started_at: When this node began to watch the lease.
      is_candidate: False = this node takes no lease: its state is not up to date, or it stops.
      claim: The content of the last message.
      sequence: The sequence of this message, which the writer of the next one expects.
      followers: As in ``Claim``. The holder chooses them, and its next message tells the others.
    """

    node: str
    rank: int
    options: LeaseOptions
    started_at: float
    is_candidate: bool = True
    claim: Claim = Claim()
    sequence: int = 0
    followers: tuple[str, ...] | None = None
    _seen_at: float = field(init=False)
    """When the last message was read."""
    _held_at: float = NEVER
    """When the last confirmed message that made this node the holder was sent."""

    def __attrs_post_init__(self) -> None:
        self._seen_at = self.started_at

    def note(self, sequence: int, claim: Claim, now: float) -> None:
        """Record a message of the lease that was read.

        Reading its own message does not make this node the holder: only the confirmation tells when
        the message was sent, and an earlier process of this node may have written it.
        """
        if sequence > self.sequence:
            self.sequence, self.claim, self._seen_at = sequence, claim, now
            if claim.holder != self.node or self._held_at == NEVER:
                self.followers = claim.followers

    def confirm(self, sequence: int, claim: Claim, sent_at: float) -> None:
        """Record the confirmation of a message that makes this node the holder.

        Args:
          sequence: The sequence of the message.
          claim: Its content.
          sent_at: When it was sent.
        """
        if sequence >= self.sequence:
            if self.claim.holder != self.node:
                self.followers = claim.followers
            self.sequence, self.claim, self._held_at = sequence, claim, sent_at

    def taken(self, contact: str) -> Claim:
        """Return the content of a message that makes or keeps this node the holder.

        The former holder goes on as a follower, until this node has chosen: it has all entries.
        """
        followers = self.followers
        if followers is not None:
            known = {*followers, self.claim.holder} - {"", self.node}
            followers = tuple(sorted(known))
        return Claim(self.node, "", contact, followers)

    def given_up(self, heir: str) -> Claim:
        """Return the content of a message with which this node leaves the lease to others."""
        followers = self.followers
        if followers is not None:
            followers = tuple(sorted({*followers, self.node}))
        return Claim("", heir, "", followers)

    @property
    def is_follower(self) -> bool:
        """Return whether this node applies the log; else it only watches the lease."""
        is_named = self.node in (self.claim.holder, self.claim.heir)
        return is_named or self.followers is None or self.node in self.followers

    def is_held(self, now: float) -> bool:
        """Return whether this node holds the lease and no other can have taken it yet."""
        return self.claim.holder == self.node and now < self._held_at + self.options.ttl_s

    def silence(self, now: float) -> float:
        """Return the seconds since the last message of any node, which the engine delivered."""
        return now - max(self._seen_at, self._held_at)

    def due(self) -> float:
        """Return when this node should write the lease, unless another message comes first."""
        options, claim = self.options, self.claim
        if claim.holder == self.node and self._held_at > NEVER:
            # At multiples of the interval, so that a node writes all its leases together.
            return (self._held_at // options.renew_s + 1) * options.renew_s
        if not self.is_candidate:
            return -NEVER
        if self.node in (claim.heir, claim.holder):  # the holder: an earlier process of this node
            return self._seen_at
        is_free = not claim.holder and not claim.heir
        return self._seen_at + self.rank * options.rank_s + (0.0 if is_free else options.ttl_s)
