"""One budget of bytes for all messages in the process, in whatever state they wait."""

from attrs import define


@define(eq=False)
class MemoryBudget:
    """Counts the bytes that peers made us hold, and says when there is no room for more.

    A message shared by many subscribers counts once for each: the figure is what it would cost
    to write it all, an upper bound of what it costs to keep.
    """

    limit_bytes: int
    used_bytes: int = 0

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

    @property
    def is_high(self) -> bool:
        """Whether producers should wait: nine tenths are in use."""
        return self.used_bytes * 10 > self.limit_bytes * 9
