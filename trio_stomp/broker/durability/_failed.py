"""How many deliveries of stored messages failed, remembered across restarts.

The store counts deliveries by itself; failures are few, and a setting each: ``failed:<id>``.
"""

from collections.abc import Iterator, Mapping, Sequence

from attrs import define, field

from trio_stomp.store import Forget, Keep

PREFIX = "failed:"
"""How such settings begin."""
MAX_FAILED = 10_000
"""Messages of which that is remembered; of more, those that failed first count from 0 again."""


@define(eq=False, repr=False)
class Failed:
    """Counts by id, as far as the store knows of them."""

    counts: dict[int, int] = field(factory=dict)

    def restore(self, settings: Mapping[str, str]) -> None:
        """Take over what the store remembered."""
        for key, text in settings.items():
            digits = key.removeprefix(PREFIX)
            if digits != key and digits.isdecimal() and text.isdecimal():
                self.counts[int(digits)] = int(text)

    def note(self, id: int, count: int) -> Iterator[Keep | Forget]:
        """Remember a count, and yield what the store is to be told."""
        counts = self.counts
        if id not in counts and len(counts) >= MAX_FAILED:
            oldest = next(iter(counts))
            del counts[oldest]
            yield Forget(f"{PREFIX}{oldest}")
        counts[id] = count
        yield Keep(f"{PREFIX}{id}", f"{count}")

    def forget(self, ids: Sequence[int]) -> Iterator[Forget]:
        """Forget messages that are done with, and yield what the store is to be told."""
        for id in ids:
            if self.counts.pop(id, None) is not None:
                yield Forget(f"{PREFIX}{id}")
