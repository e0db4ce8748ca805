"""One budget of bytes for all messages in the process, in whatever state they wait."""

from attrs import define

TABLES_SHARE = 2
"""Names and subscriptions may take 1/2 of the limit, beside it."""
MIN_TABLES_BYTES = 1024 * 1024
"""So much they may take however small the limit is."""
UNBOUNDED = 1 << 60
"""More than there is of anything."""


@define(eq=False)
class Quota:
    """One user's use of shared resources, or one address's without logins.

    Whatever is charged to it knows it, and gives back there what it took. ``MemoryBudget`` counts
    the bytes, the others whoever keeps what is counted.
    """

    owner: str
    """For people."""
    kept_bytes: int = 0
    tables_bytes: int = 0
    destinations: int = 0
    """Names in use that it made."""
    scheduled: int = 0
    """Messages that wait for their time."""
    refused: int = 0
    """ERRORs that its owner was told for want of room in it, while it was remembered."""
    kind: str = "user"
    """Or ``network``, where nobody logs in."""
    stored_bytes: int = 0
    """What its messages take in the store, whether or not they are in memory, too."""
    line: bytes = b""
    """What the store is told of it with each message."""

    @property
    def is_unused(self) -> bool:
        """Return whether nothing is charged to it."""
        used = self.kept_bytes or self.tables_bytes or self.stored_bytes
        return not (used or self.destinations or self.scheduled)


@define(eq=False)
class Stake:
    """What messages are charged for as long as they are in the store.

    Args:
      quota: Of whom they are; None = of nobody who is known.
      each: Bytes of one of them, its body apart.
    """

    quota: Quota | None
    each: int


@define(eq=False)
class MemoryBudget:
    """Counts the bytes that peers made us hold, and says when there is no room for more.

    A message shared by many subscribers counts once for each: the figure is what it would cost
    to write it all, an upper bound of what it costs to keep.
    """

    limit_bytes: int = 512 * 1024 * 1024
    kept_share: float = 1.0
    """How much of it may be filled by what waits for somebody to come (queues, the stale queue,
    last values, schedules): the rest is for what is on its way, which must not stand still because
    a queue that nobody empties has filled everything."""
    used_bytes: int = 0
    kept_bytes: int = 0
    tables_bytes: int = 0
    """What names, subscriptions, patterns, selectors and ids take: counted apart from messages, so
    that neither can shut out the other."""
    quota_percent: int = 100
    """The percentage of what others leave that one user may have of each pool."""
    is_promised: bool = False
    """Room was kept for what is charged now: nobody's quota is in its way."""

    stored_bytes: int = 0
    """What messages of queues take in the store."""
    stored_limit: int = 0
    """The most that they may take there, as the store says: 0 = unknown, so nobody has a share."""

    held_bytes: int = 0
    """What was read of clients that have to wait. Counted apart: it can become messages only when
    there is room for those, and must not stand in its own way. While it is much, less is read."""

    @property
    def charged_bytes(self) -> int:
        """Bytes of messages, and of what may become some."""
        return self.used_bytes + self.held_bytes

    def take(self, size: int) -> bool:
        """Charge ``size`` bytes.

        Returns:
          False if they do not fit; nothing is charged then.
        """
        used = self.used_bytes + size
        if used > self.limit_bytes:
            return False
        self.used_bytes = used
        return True

    def give(self, size: int) -> None:
        """Give back what ``take`` charged."""
        self.used_bytes -= size

    def take_kept(self, size: int, quota: Quota | None = None) -> bool:
        """Charge ``size`` bytes of stored messages.

        Args:
          size: The number of bytes.
          quota: Of whom they are; None = of nobody, whom only the room of all bounds.

        Returns:
          False if they do not fit; nothing is charged then.
        """
        kept = self.kept_bytes + size
        if kept > self.limit_bytes * self.kept_share:
            return False
        if quota is not None and size > self._kept_left(quota):
            return False
        if not self.take(size):
            return False
        self.kept_bytes = kept
        if quota is not None:
            quota.kept_bytes += size
        return True

    def force_kept(self, size: int, quota: Quota | None = None) -> None:
        """Charge stored bytes even beyond the limit, which the caller observes."""
        self.kept_bytes += size
        self.used_bytes += size
        if quota is not None:
            quota.kept_bytes += size

    @property
    def kept_room(self) -> int:
        """The most bytes that ``take_kept`` would charge now."""
        kept = int(self.limit_bytes * self.kept_share) - self.kept_bytes
        return min(kept, self.limit_bytes - self.used_bytes)

    def kept_room_for(self, quota: Quota | None) -> int:
        """Return the most bytes that ``take_kept`` would charge to a quota now."""
        room = self.kept_room
        return room if quota is None else min(room, self._kept_left(quota))

    def has_much(self, quota: Quota | None, part: float) -> bool:
        """Return whether stored messages exceed a part of the share of all, or of ``quota``."""
        limit = self.limit_bytes * self.kept_share
        if self.kept_bytes > limit * part:
            return True
        if quota is None:
            return False
        others = self.kept_bytes - quota.kept_bytes
        return quota.kept_bytes > (limit - others) * self.quota_percent * part / 100

    def _kept_left(self, quota: Quota) -> int:
        limit = int(self.limit_bytes * self.kept_share)
        return self.left(quota.kept_bytes, self.kept_bytes, limit)

    def give_kept(self, size: int, quota: Quota | None = None) -> None:
        """Give back what ``take_kept`` charged."""
        self.kept_bytes -= size
        self.used_bytes -= size
        if quota is not None:
            quota.kept_bytes -= size

    def stored_room_for(self, quota: Quota | None) -> int:
        """Return the most bytes that a quota may have more in the store.

        What all together may have there is the store's to say.
        """
        if quota is None or not self.stored_limit or self.is_promised:
            return UNBOUNDED
        return self.left(quota.stored_bytes, self.stored_bytes, self.stored_limit)

    def force_stored(self, size: int, quota: Quota | None) -> None:
        """Charge bytes in the store; the caller has asked whether there is room."""
        self.stored_bytes += size
        if quota is not None:
            quota.stored_bytes += size

    def give_stored(self, size: int, quota: Quota | None) -> None:
        """Give back what ``force_stored`` charged."""
        self.force_stored(-size, quota)

    def left(self, own: int, used: int, limit: int) -> int:
        """Return how much more one user may have, who has ``own`` of the ``used`` of a pool.

        Each may have a part of what others leave, so that something is left for who comes next,
        however many there are.
        """
        if self.is_promised:
            return limit
        return (limit - used + own) * min(self.quota_percent, 100) // 100 - own

    @property
    def tables_limit(self) -> int:
        """The most bytes of names and subscriptions."""
        return max(int(self.limit_bytes) // TABLES_SHARE, MIN_TABLES_BYTES)

    @property
    def tables_room(self) -> int:
        """The most bytes that ``take_table`` would charge now."""
        return self.tables_limit - self.tables_bytes

    def tables_room_for(self, quota: Quota | None) -> int:
        """Return the most bytes that ``take_table`` would charge to a quota now."""
        room = self.tables_room
        if quota is None:
            return room
        return min(room, self.left(quota.tables_bytes, self.tables_bytes, self.tables_limit))

    def take_table(self, size: int, quota: Quota | None = None) -> bool:
        """Charge ``size`` bytes of names and subscriptions.

        Returns:
          False if they do not fit; nothing is charged then.
        """
        if size > self.tables_room_for(quota):
            return False
        self.force_table(size, quota)
        return True

    def force_table(self, size: int, quota: Quota | None = None) -> None:
        """Charge names and subscriptions even beyond the limit, which the caller observes."""
        self.tables_bytes += size
        if quota is not None:
            quota.tables_bytes += size

    def give_table(self, size: int, quota: Quota | None = None) -> None:
        """Give back what ``take_table`` charged."""
        self.force_table(-size, quota)

    @property
    def is_short(self) -> bool:
        """Return whether caches should be dropped: nine tenths of a share are in use."""
        return self.kept_bytes * 10 > self.limit_bytes * self.kept_share * 9 or self.is_high

    @property
    def is_high(self) -> bool:
        """Return whether producers should wait: nine tenths of the limit are in use."""
        return (self.used_bytes + self.held_bytes) * 10 > self.limit_bytes * 9
