"""Percentiles of latencies, from the counts of a histogram's buckets.

Counts can be summed over time, destinations and brokers; percentiles cannot, as the mean of two
p99 values has no meaning. So sum the counts first.
"""

from collections.abc import Sequence

from attrs import frozen


@frozen
class Percentiles:
    """Percentiles of a latency, in milliseconds."""

    p50: float
    p90: float
    p99: float
    p999: float


def percentile(le_ms: Sequence[float], counts: Sequence[int], share: float) -> float:
    """Return the time that ``share`` of the observations did not exceed, or 0 without any.

    Observations are assumed to be evenly spread within a bucket, so the error is less than the
    width of the bucket, here a factor of two. Times beyond the last bound count as that bound.

    Args:
      le_ms: The increasing upper bounds of all buckets but the last.
      counts: The observations in each bucket, not cumulative; one more than there are bounds.
      share: From 0 to 1.
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
    """Return the common percentiles."""
    return Percentiles(*(percentile(le_ms, counts, share) for share in (0.5, 0.9, 0.99, 0.999)))
