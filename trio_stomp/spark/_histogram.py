"""Percentiles of latencies, from the counts of a histogram's buckets.

Counts can be summed over time, destinations and brokers; percentiles cannot, as the mean of two
p99 values has no meaning. So sum the counts first.
"""

from collections.abc import Sequence

from attrs import frozen

from trio_stomp.base import percentile


@frozen
class Percentiles:
    """Percentiles of a latency, in milliseconds."""

    p50: float
    p90: float
    p99: float
    p999: float


def percentiles(le_ms: Sequence[float], counts: Sequence[int]) -> Percentiles:
    """Return the common percentiles."""
    return Percentiles(*(percentile(le_ms, counts, share) for share in (0.5, 0.9, 0.99, 0.999)))
