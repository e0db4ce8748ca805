"""Percentiles of a histogram."""

from collections.abc import Sequence
from math import inf


def percentile(
    bounds: Sequence[float], counts: Sequence[float], share: float, longest: float = inf
) -> float:
    """Return the value that ``share`` of the observations do not exceed; 0 without any.

    Observations are assumed to be evenly spread within a bucket, so the error is less than the
    width of the bucket.

    Args:
      bounds: The increasing upper bounds of all buckets but the last.
      counts: The observations in each bucket, not cumulative; one more than there are bounds.
      share: The share of observations, from 0 to 1: 0.99 for the 99th percentile.
      longest: The greatest observation; without it, the last bound is the greatest result.

    Raises:
      ValueError: The number of counts does not match that of bounds.
    """
    if len(counts) != len(bounds) + 1:
        raise ValueError(f"{len(counts)} counts for {len(bounds)} bounds")
    rank, seen, lower = share * sum(counts), 0.0, 0.0
    for upper, count in zip((*bounds, longest), counts, strict=False):
        if count and seen + count >= rank:
            part = (rank - seen) / count
            return lower if upper == inf else min(lower + (upper - lower) * part, longest)
        seen += count
        lower = upper
    return 0.0
