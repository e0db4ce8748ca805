"""One destination of the made-up shop: its counters, its queue, its latencies."""

import math

from attrs import define, field

BOUNDS_MS = [0.05 * 2**power for power in range(21)]

Body = dict[str, object]


def between(minute: int, span: tuple[int, int]) -> bool:
    """Return whether a minute is in the span, excluding its end."""
    return span[0] <= minute < span[1]


def bell(minute: float, middle: float, width: float) -> float:
    """Return 1 in the middle, and less on both sides."""
    return math.exp(-(((minute - middle) / width) ** 2))


def queue(destination: str, **known: object) -> Body:
    """Return an item of ``DIAG/queues``."""
    body: Body = dict.fromkeys(
        [
            "input_depth",
            "stale_depth",
            "ack_depth",
            "input_bytes",
            "capacity",
            "prefetch",
            "redelivered_total",
            "expired_total",
            "dropped_total",
            "nacked_total",
            "enqueued_total",
            "acked_total",
        ],
        0,
    )
    ages: Body = {"oldest_input_age_s": 0.0, "oldest_unacked_age_s": 0.0}
    return {"destination": destination, "subscription_id": None, **body, **ages, **known}


@define(eq=False)
class Latency:
    """A histogram that observes a log-normal distribution, without chance."""

    buckets: list[float] = field(factory=lambda: [0.0] * (len(BOUNDS_MS) + 1))
    sum_ms: float = 0.0
    max_ms: float = 0.0

    def observe(self, count: int, median_ms: float, spread: float = 0.75) -> None:
        """Add ``count`` observations around ``median_ms``."""
        below = 0.0
        for place, bound in enumerate([*BOUNDS_MS, math.inf]):
            share = 1.0
            if bound < math.inf:
                share = 0.5 * (1 + math.erf(math.log(bound / median_ms) / (spread * math.sqrt(2))))
            self.buckets[place] += count * (share - below)
            below = share
        self.sum_ms += count * median_ms * math.exp(spread**2 / 2)
        self.max_ms = max(self.max_ms, median_ms * math.exp(3 * spread))

    def record(self, destination: str, stage: str) -> Body:
        """Return an item of ``DIAG/latency``."""
        counts = [int(count) for count in self.buckets]
        return {
            "destination": destination,
            "stage": stage,
            "count_total": sum(counts),
            "sum_ms_total": round(self.sum_ms),
            "max_ms": round(self.max_ms, 3),
            "le_ms": BOUNDS_MS,
            "bucket_counts": counts,
        }


@define(eq=False)
class Flow:
    """One destination.

    Args:
      rate: Messages a second at the busiest time of an ordinary day.
      size: Bytes of a body.
      median_ms: The median of its latencies.
    """

    name: str
    kind: str
    rate: float
    size: int
    subscribers: int
    median_ms: float
    enqueued: int = 0
    delivered: int = 0
    acked: int = 0
    dropped: int = 0
    depth: int = 0
    parked: int = 0
    unacked: int = 0
    oldest_unacked_s: float = 0.0
    ingress: Latency = field(factory=Latency)
    delivery: Latency = field(factory=Latency)

    def restart(self) -> None:
        """Reset the counters, as the broker restarts."""
        self.enqueued = self.delivered = self.acked = self.dropped = 0
        self.ingress, self.delivery = Latency(), Latency()

    def advance(self, sent: int, slower: float) -> None:
        """Send messages to the destination. They take ``slower`` times as long as usual."""
        self.enqueued += sent
        self.delivered += sent * (1 if self.kind == "work-queue" else self.subscribers)
        if self.kind == "work-queue":
            self.acked = max(self.acked, self.delivered - self.unacked)
        self.ingress.observe(sent, 0.14 * slower)
        self.delivery.observe(sent, self.median_ms * slower)

    def hold(self, leaking: bool, per_minute: int, minutes: int) -> None:
        """Forget some ACKs for good, or have all of them."""
        self.unacked = self.unacked + per_minute if leaking else 2
        self.oldest_unacked_s = 60.0 * minutes if leaking else 0.2

    def destination(self) -> Body:
        """Return an item of ``DIAG/destinations``."""
        return {
            "destination": self.name,
            "type": self.kind,
            "subscribers": self.subscribers,
            "enqueued_total": self.enqueued,
            "delivered_total": self.delivered,
            "acked_total": self.acked,
            "nacked_total": 0,
            "dropped_total": self.dropped,
            "bytes_in_total": self.enqueued * self.size,
            "bytes_out_total": self.delivered * self.size,
            "depth": self.depth + self.parked,
            "unacked": self.unacked,
        }

    def queue(self) -> Body:
        """Return an item of ``DIAG/queues``."""
        return queue(
            self.name,
            input_depth=self.depth,
            ack_depth=self.unacked,
            input_bytes=self.depth * self.size,
            capacity=100_000,
            oldest_unacked_age_s=self.oldest_unacked_s,
            enqueued_total=self.enqueued,
            acked_total=self.acked,
            prefetch=6_000 if self.name == "/queue/audit" else 100 * self.subscribers,
        )

    def latencies(self) -> list[Body]:
        """Return its items of ``DIAG/latency``."""
        return [
            self.ingress.record(self.name, "ingress"),
            self.delivery.record(self.name, "delivery"),
        ]
