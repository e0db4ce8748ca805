"""The pure part of the proofs: times, sums that must come out even, bounds, and verdicts."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

SHORTEST_S = 1e-6
STEP = 1.05
"""Buckets of times grow by this: a percentile is at most 5 % too high."""
MIB = 1024 * 1024
SLACK = 1.2
"""Budget + 20 %."""
MOST_TIMES = 3.0
"""Maximum p99 with a stuck subscriber, relative to the run without one."""
FLOOR_S = 0.005
"""Below this a p99 is the machine's own noise: a ratio is taken to at least this."""
RSS_SHARE, RSS_BYTES = 0.10, 8 * MIB
"""Permitted growth of RSS from the warm base line. CPython frees memory in arenas of 1 MiB, and the
system's allocator in chunks, only if nothing in them is in use, so a peak leaves some. A leak grows
with time; this overhead does not."""


class Verdict(NamedTuple):
    """The result of checking one promise, with the figures."""

    promise: str
    holds: bool
    figures: str

    def line(self) -> str:
        """Return a line for people."""
        return f"{'ok  ' if self.holds else 'FAIL'} {self.promise}: {self.figures}"


class Times:
    """Durations, counted in buckets, so that millions take little memory."""

    def __init__(self, buckets: Mapping[int, int] | None = None) -> None:
        self.buckets: dict[int, int] = dict(buckets or {})

    def add(self, seconds: float, count: int = 1) -> None:
        """Add ``count`` equal durations."""
        bucket = math.ceil(math.log(max(seconds, SHORTEST_S) / SHORTEST_S, STEP))
        self.buckets[bucket] = self.buckets.get(bucket, 0) + count

    @property
    def count(self) -> int:
        """Return the number of durations."""
        return sum(self.buckets.values())

    def percentile(self, share: float) -> float:
        """Return the seconds that ``share`` of them did not exceed, or 0 without any."""
        wanted = math.ceil(self.count * share)
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                return SHORTEST_S * float(STEP**bucket)
        return 0.0

    @classmethod
    def sum_of(cls, many: Iterable["Times"]) -> "Times":
        """Return the sum of several."""
        whole = cls()
        for each in many:
            for bucket, count in each.buckets.items():
                whole.buckets[bucket] = whole.buckets.get(bucket, 0) + count
        return whole


def rss_bound(max_memory_bytes: int, idle_bytes: int) -> int:
    """Return a broker's memory limit: (its budget + its use while idle) + 20 %."""
    return int((max_memory_bytes + idle_bytes) * SLACK)


def judge_rss(peak_bytes: int, max_memory_bytes: int, idle_bytes: int) -> Verdict:
    """Return whether a broker stayed within its memory limit."""
    bound = rss_bound(max_memory_bytes, idle_bytes)
    return Verdict(
        "RSS within the budget + 20 %",
        peak_bytes <= bound,
        f"peak {peak_bytes / MIB:.1f} MiB, bound ({max_memory_bytes / MIB:.0f} +"
        f" {idle_bytes / MIB:.1f}) x {SLACK} = {bound / MIB:.1f} MiB",
    )


def judge_latency(what: str, alone: Times, beside: Times) -> Verdict:
    """Return whether a stuck subscriber delays others only within the limit.

    Args:
      alone: Latencies of the runs without it.
      beside: Latencies of the runs with it.
    """
    p99, base = beside.percentile(0.99), alone.percentile(0.99)
    ratio = p99 / max(base, FLOOR_S)
    return Verdict(
        f"p99 of the others, {what}",
        bool(alone.count and beside.count) and ratio <= MOST_TIMES,
        f"{p99 * 1000:.1f} ms with the stuck one, {base * 1000:.1f} ms without: x {ratio:.2f}"
        f" of at most {MOST_TIMES:g} ({beside.count} and {alone.count} messages)",
    )


class Ledger(NamedTuple):
    """The copies of one destination's messages, once the broker is at rest.

    Args:
      owed: Copies that the broker promised, or messages that it accepted.
      received: Copies that arrived (topics), or messages acknowledged (queues).
      dropped: Dropped copies or messages according to DIAG/destinations.
      waiting: Waiting ones according to DIAG.
      reported: Dropped messages in DIAG/event/drop, by reason.
      events_lost: Whether DIAG reported that events were lost.
      unowed: Dropped messages without any subscriber: no copy was owed.
    """

    destination: str
    owed: int
    received: int
    dropped: int
    waiting: int
    reported: Mapping[str, int]
    events_lost: int = 0
    unowed: int = 0

    @property
    def missing(self) -> int:
        """Return the unaccounted copies. A negative number was reported twice."""
        return self.owed + self.unowed - self.received - self.dropped - self.waiting

    def verdicts(self) -> list[Verdict]:
        """Return the verdicts on drops: the total, and the totals by reason."""
        result = sum(self.reported.values())
        reasons = ", ".join(f"{name} {count}" for name, count in sorted(self.reported.items()))
        return [
            Verdict(
                f"every drop accounted for, {self.destination}",
                self.missing == 0,
                f"owed {self.owed} + to nobody {self.unowed} = received {self.received}"
                f" + dropped {self.dropped} + waiting {self.waiting} + missing {self.missing}",
            ),
            Verdict(
                f"every drop reported with its reason, {self.destination}",
                result == self.dropped and not self.events_lost,
                f"dropped {self.dropped}, reported {result} ({reasons or 'nothing'}),"
                f" events lost {self.events_lost}",
            ),
        ]


def judge_exact(
    base: Mapping[str, int], now: Mapping[str, int], at_most: Collection[str] = ()
) -> list[str]:
    """Return the figures that differ from the base line, as texts.

    Args:
      at_most: Names of the figures that may be lower than the base line.
    """
    return [
        f"{name} {now.get(name, 0)}, base line {base.get(name, 0)}"
        for name in sorted({*base, *now})
        if now.get(name, 0) != base.get(name, 0)
        and not (name in at_most and now.get(name, 0) < base.get(name, 0))
    ]


def soak_rss_bound(base_bytes: int) -> int:
    """Return the limit of RSS at rest: the warm base line + 10 % + 8 MiB."""
    return int(base_bytes * (1 + RSS_SHARE)) + RSS_BYTES


def slope_bytes(points: Sequence[tuple[float, float]]) -> float:
    """Return the least-squares slope of (minutes, bytes), or 0 for fewer than three points."""
    if len(points) < 3:
        return 0.0
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if not spread:
        return 0.0
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
