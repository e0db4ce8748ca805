"""One budget of bytes for all messages in the process, in whatever state they wait."""

from attrs import define

TABLES_SHARE = 2
"""Names and subscriptions may take 1/2 of the limit, beside it."""
MIN_TABLES_BYTES = 1024 * 1024
"""So much they may take however small the limit is."""


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

    held_bytes: int = 0
    """What was read of clients that have to wait. Counted apart: it can become messages only when
    there is room for those, and must not stand in its own way. While it is much, less is read."""

    @property
    def charged_bytes(self) -> int:
        """Bytes of messages, and of what may become some."""
        return self.used_bytes + self.held_bytes

    def take(self, size: int) -> bool:
        """Charge ``size`` bytes; False, and nothing charged, if they do not fit."""
        used = self.used_bytes + size
        if used > self.limit_bytes:
            return False
        self.used_bytes = used
        return True

    def give(self, size: int) -> None:
        """Give back what ``take`` charged."""
        self.used_bytes -= size

    def take_kept(self, size: int) -> bool:
        """Charge ``size`` bytes of what waits; False, and nothing charged, if they do not fit."""
        kept = self.kept_bytes + size
        if kept > self.limit_bytes * self.kept_share or not self.take(size):
            return False
        self.kept_bytes = kept
        return True

    def force_kept(self, size: int) -> None:
        """Charge what must be in memory now, whether or not it fits; the caller bounds it."""
        self.kept_bytes += size
        self.used_bytes += size

    @property
    def kept_room(self) -> int:
        """The most bytes that ``take_kept`` would charge now."""
        kept = int(self.limit_bytes * self.kept_share) - self.kept_bytes
        return min(kept, self.limit_bytes - self.used_bytes)

    def give_kept(self, size: int) -> None:
        """Give back what ``take_kept`` charged."""
        self.kept_bytes -= size
        self.used_bytes -= size

    @property
    def tables_room(self) -> int:
        """The most bytes that ``take_table`` would charge now."""
        limit = max(int(self.limit_bytes) // TABLES_SHARE, MIN_TABLES_BYTES)
        return limit - self.tables_bytes

    def take_table(self, size: int) -> bool:
        """Charge ``size`` bytes of names and subscriptions; False, and nothing, if no room."""
        if size > self.tables_room:
            return False
        self.tables_bytes += size
        return True

    def force_table(self, size: int) -> None:
        """Charge what must be there, whether or not it fits; the caller bounds it."""
        self.tables_bytes += size

    def give_table(self, size: int) -> None:
        """Give back what ``take_table`` charged."""
        self.tables_bytes -= size

    @property
    def is_short(self) -> bool:
        """Whether what can be had again should be given up: nine tenths of a share are in use."""
        return self.kept_bytes * 10 > self.limit_bytes * self.kept_share * 9 or self.is_high

    @property
    def is_high(self) -> bool:
        """Whether producers should wait: nine tenths are in use."""
        return (self.used_bytes + self.held_bytes) * 10 > self.limit_bytes * 9
