"""The memory budget for all messages in the process, and the quotas of users."""

from attrs import define

from trio_stomp.base._errors import BrokenInvariant

TABLES_SHARE = 2
"""Names and subscriptions may take 1/2 of the limit, in addition to it."""
MIN_TABLES_BYTES = 1024 * 1024
"""Minimum of that for small limits."""
UNBOUNDED = 1 << 60
"""A number of bytes that is never reached."""


@define(eq=False)
class Quota:
    """The use of shared resources by one user or, without logins, by one network.

    Charged objects reference their quota for the refund. ``MemoryBudget`` counts bytes; other
    objects are counted by their owners.
    """

    owner: str
    """The name of the user or network, for logs."""
    kept_bytes: int = 0
    tables_bytes: int = 0
    destinations: int = 0
    """Number of existing destinations that its owner created."""
    scheduled: int = 0
    """Number of scheduled messages."""
    refused: int = 0
    """Number of ERRORs sent to its owner because the quota was exceeded."""
    kind: str = "user"
    """``user``; or ``network``, without logins."""
    stored_bytes: int = 0
    """Cost of its messages in the store, whether or not they are in memory as well."""
    read_s: float = 0.0
    """Time used for its input, in seconds, from which its turns to be read follow. It is on the
    scale of the connections that wait, so only differences mean something."""
    line: bytes = b""
    """The header line that names it in stored messages."""

    @property
    def is_unused(self) -> bool:
        """Return whether nothing is charged to it."""
        used = self.kept_bytes or self.tables_bytes or self.stored_bytes
        return not (used or self.destinations or self.scheduled)


@define(eq=False)
class Stake:
    """The charge for stored messages.

    Args:
      quota: The charged quota; None = unknown.
      each: Bytes of a message in addition to its body.
    """

    quota: Quota | None
    each: int


@define(eq=False)
class MemoryBudget:
    """Counts the bytes held on behalf of peers, and refuses more than its limits.

    A message shared by many subscribers counts once for each: the figure is the number of bytes to
    write, an upper bound of the memory in use.
    """

    limit_bytes: int = 512 * 1024 * 1024
    kept_share: float = 1.0
    """The part of the limit for waiting messages (queues, the stale queue, last values, schedules).
    The rest is for messages in flight, so that full queues do not stop live traffic."""
    used_bytes: int = 0
    kept_bytes: int = 0
    tables_bytes: int = 0
    """Cost of names, subscriptions, patterns, selectors and ids. Counted apart from messages, so
    that neither can shut out the other."""
    quota_percent: int = 100
    """The percentage of a pool's rest, after the use by others, that one user may have."""
    is_promised: bool = False
    """Room is reserved for the current charges, so quotas do not apply."""

    stored_bytes: int = 0
    """Cost of messages of queues in the store."""
    stored_limit: int = 0
    """Capacity of the store for messages; 0 = unknown, so quotas do not apply there."""

    held_bytes: int = 0
    """Bytes read from clients whose frames are held. Counted apart, because they need room among
    messages to be released. While there are many, less is read."""

    @property
    def charged_bytes(self) -> int:
        """Return the bytes of messages and of held frames."""
        return self.used_bytes + self.held_bytes

    def check(self) -> None:
        """Check that nobody gave back more than was taken.

        Raises:
          BrokenInvariant: A figure is negative.
        """
        figures = self.used_bytes, self.kept_bytes, self.tables_bytes, self.held_bytes
        if min(figures) < 0:
            raise BrokenInvariant("memory", f"used, kept, tables, held: {figures} bytes")

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
        """Charge ``size`` bytes of waiting messages.

        Args:
          size: The number of bytes.
          quota: The quota to charge as well; None = none.

        Returns:
          False if they do not fit; nothing is charged then.
        """
        stored = self.kept_bytes + size
        if stored > self.limit_bytes * self.kept_share:
            return False
        if quota is not None and size > self._kept_left(quota):
            return False
        if not self.take(size):
            return False
        self.kept_bytes = stored
        if quota is not None:
            quota.kept_bytes += size
        return True

    def force_kept(self, size: int, quota: Quota | None = None) -> None:
        """Charge bytes of waiting messages without a check: the caller observes the limit."""
        self.kept_bytes += size
        self.used_bytes += size
        if quota is not None:
            quota.kept_bytes += size

    @property
    def kept_room(self) -> int:
        """Return the maximum bytes that ``take_kept`` would charge now."""
        room = int(self.limit_bytes * self.kept_share) - self.kept_bytes
        return min(room, self.limit_bytes - self.used_bytes)

    def kept_room_for(self, quota: Quota | None) -> int:
        """Return the maximum bytes that ``take_kept`` would charge to a quota now."""
        room = self.kept_room
        return room if quota is None else min(room, self._kept_left(quota))

    def has_much(self, quota: Quota | None, part: float) -> bool:
        """Return whether waiting messages exceed a part of the total share, or of a quota's share.

        Args:
          quota: The quota; None = consider the total only.
          part: The part, 0 to 1.
        """
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
        """Return the bytes that a quota may still use in the store.

        The store itself enforces its capacity.
        """
        if quota is None or not self.stored_limit or self.is_promised:
            return UNBOUNDED
        return self.left(quota.stored_bytes, self.stored_bytes, self.stored_limit)

    def is_beyond_share(self, size: int) -> bool:
        """Return whether bytes exceed the share of the store of any user, however empty it is."""
        return size > self.stored_limit * min(self.quota_percent, 100) // 100

    def force_stored(self, size: int, quota: Quota | None) -> None:
        """Charge bytes in the store. The caller has checked that there is room."""
        self.stored_bytes += size
        if quota is not None:
            quota.stored_bytes += size

    def give_stored(self, size: int, quota: Quota | None) -> None:
        """Give back what ``force_stored`` charged."""
        self.force_stored(-size, quota)

    def left(self, own: int, used: int, limit: int) -> int:
        """Return how much more of a pool one user may take.

        Each user may have ``quota_percent`` of the rest after the use by others, so that some is
        left for the next user.

        Args:
          own: The user's current use.
          used: The current use by all users.
          limit: The size of the pool.
        """
        if self.is_promised:
            return limit
        return (limit - used + own) * min(self.quota_percent, 100) // 100 - own

    @property
    def tables_room(self) -> int:
        """Return the maximum bytes that ``take_table`` would charge now."""
        limit = max(int(self.limit_bytes) // TABLES_SHARE, MIN_TABLES_BYTES)
        return limit - self.tables_bytes

    def tables_room_for(self, quota: Quota | None) -> int:
        """Return the maximum bytes that ``take_table`` would charge to a quota now."""
        room = self.tables_room
        if quota is None:
            return room
        limit = self.tables_bytes + room
        return min(room, self.left(quota.tables_bytes, self.tables_bytes, limit))

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
        """Charge names and subscriptions without a check: the caller observes the limit."""
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
