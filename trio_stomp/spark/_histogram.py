"""Percentiles of latencies, from the counts of a histogram's buckets.

Counts may be added up over time, destinations and brokers; percentiles may not: the mean of two
p99 is the p99 of nothing. So everything here begins with sums.
"""

from collections.abc import Sequence

from attrs import frozen


@frozen
class Percentiles:
    """Milliseconds below which that share of the messages stayed."""

    p50: float
    p90: float
    p99: float
    p999: float


def percentile(le_ms: Sequence[float], counts: Sequence[int], share: float) -> float:
    """Return the time below which ``share`` of the observations stayed, 0 if there are none.

    Within a bucket, observations are taken as evenly spread; the result is off by less than the
    bucket is wide, here a factor of two. What is beyond the last bound is told as that bound.

    Args:
      le_ms: Upper bounds of the buckets but the last, growing.
      counts: Observations in each bucket, one more than there are bounds; not added up.
      share: 0 to 1.
    """
    if len(counts) != len(le_ms) + 1:
        raise ValueError(f"{len(counts)} counts for {len(le_ms)} bounds")
    rank = share * sum(counts)
    lower, seen = 0.0, 0
    for upper, count in zip(le_ms, counts, strict=False):
        if count and seen + count >= rank:
            return lower + (upper - lower) * max(0.0, rank - seen) / count
        seen += count
        lower = upper
    return lower if counts[-1] else 0.0


def percentiles(le_ms: Sequence[float], counts: Sequence[int]) -> Percentiles:
    """Return those that people ask for."""
    return Percentiles(*(percentile(le_ms, counts, share) for share in (0.5, 0.9, 0.99, 0.999)))
