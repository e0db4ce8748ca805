"""Counts of failed deliveries of stored messages, kept across restarts.

The store counts deliveries itself. Failures are rare, so each count is a setting ``failed:<id>``.
"""

from collections.abc import Iterator, Mapping, Sequence

from attrs import define, field

from trio_stomp.store import Forget, Keep

PREFIX = "failed:"
"""Prefix of these settings."""
MAX_FAILED = 10_000
"""Limit of counts. Above it, the oldest is forgotten and its message counts from 0 again."""


@define(eq=False, repr=False)
class Failed:
    """The counts of failed deliveries, by message id."""

    counts: dict[int, int] = field(factory=dict)

    def restore(self, settings: Mapping[str, str]) -> None:
        """Restore the counts from the store's settings."""
        for key, text in settings.items():
            digits = key.removeprefix(PREFIX)
            if digits != key and digits.isdecimal() and text.isdecimal():
                self.counts[int(digits)] = int(text)

    def note(self, id: int, count: int) -> Iterator[Keep | Forget]:
        """Set a count, and yield the records for the store."""
        counts = self.counts
        if id not in counts and len(counts) >= MAX_FAILED:
            oldest = next(iter(counts))
            del counts[oldest]
            yield Forget(f"{PREFIX}{oldest}")
        counts[id] = count
        yield Keep(f"{PREFIX}{id}", f"{count}")

    def forget(self, ids: Sequence[int]) -> Iterator[Forget]:
        """Forget the counts of finished messages, and yield the records for the store."""
        for id in ids:
            if self.counts.pop(id, None) is not None:
                yield Forget(f"{PREFIX}{id}")
