"""Histograms of latency. All have the same bounds, so that buckets can be added up."""

from attrs import define, field

_PER_SECOND = 20_000
_BOUNDS = 21

BOUNDS_MS: tuple[float, ...] = tuple(0.05 * 2**power for power in range(_BOUNDS))
"""Upper bounds of all buckets except the last, which has none: 0.05 ms, doubling, to 52 s."""


@define(eq=False)
class Histogram:
    """Counts of observations by duration, since the start of the broker."""

    buckets: list[int] = field(factory=lambda: [0] * (_BOUNDS + 1))
    count: int = 0
    sum_s: float = 0.0
    max_s: float = 0.0

    def observe(self, seconds: float, count: int) -> None:
        """Add ``count`` observations of ``seconds`` each."""
        # Bounds double: the bit length of the multiple of the first bound is the index.
        index = int(seconds * _PER_SECOND).bit_length()
        self.buckets[index if index < _BOUNDS else _BOUNDS] += count
        self.count += count
        self.sum_s += seconds * count
        if seconds > self.max_s:
            self.max_s = seconds

    def add(self, other: "Histogram") -> None:
        """Add all observations of another histogram."""
        self.buckets = list(map(sum, zip(self.buckets, other.buckets, strict=True)))
        self.count += other.count
        self.sum_s += other.sum_s
        self.max_s = max(self.max_s, other.max_s)
