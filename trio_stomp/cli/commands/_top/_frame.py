"""The figures of ``top``: two snapshots of a broker become one frame, with rates between them."""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from attrs import frozen

from trio_stomp.base import percentile
from trio_stomp.cli._http_get import Site

Record = dict[str, Any]

SHOWN = 20
MAX_THINGS = 10_000
"""Most destinations, and most connections, that are requested."""
DIAGNOSTICS = "diag"
"""The type of destinations that would only measure the diagnostics."""
RATES = {
    "in": "enqueued_total",
    "out": "delivered_total",
    "bytes_in": "bytes_in_total",
    "bytes_out": "bytes_out_total",
    "dropped": "dropped_total",
}
"""The rates of destinations and their counters."""
WAITING = ("input_depth", "stale_depth", "ack_depth")


@frozen(eq=False)
class Snapshot:
    """The figures of a broker at one moment.

    Args:
      overview: The answer of ``overview``.
      destinations: Records of destinations.
      connections: Records of connections.
      queues: Records of the fullest queues and of the most parked messages.
    """

    overview: Record
    destinations: Sequence[Record]
    connections: Sequence[Record]
    queues: Sequence[Record]

    @classmethod
    def of(cls, site: Site, shown: int) -> "Snapshot":
        """Request the figures of a broker, with ``shown`` queues.

        Raises:
          CannotDo: the broker cannot be reached, or refuses.
        """
        listed = site.records("destinations", {"sort": "delivered"}, MAX_THINGS)
        return cls(
            site.operate("GET", "overview"),
            [each for each in listed if each["type"] != DIAGNOSTICS],
            site.records("connections", {"state": "open"}, MAX_THINGS),
            [
                *site.records("queues", {"sort": "held", "state": "waiting"}, shown),
                *site.records("queues", {"state": "parked"}, shown),
            ],
        )

    @property
    def process(self) -> Record:
        """Return the figures of the process."""
        found: Record = self.overview["process"]
        return found


@frozen(eq=False)
class Growth:
    """The growth of counters between two snapshots.

    Args:
      before: The earlier snapshot. After a restart between the two, all counters were 0.
      now: The later one.
    """

    before: Snapshot
    now: Snapshot

    @property
    def is_restarted(self) -> bool:
        """Return whether the broker was started between the two."""
        return bool(self.before.overview["boot"] != self.now.overview["boot"])

    @property
    def seconds(self) -> float:
        """Return the time between the two, by the broker's clock."""
        began = 0.0 if self.is_restarted else self.before.process["uptime_s"]
        return float(self.now.process["uptime_s"] - began)

    def by(self, key: str, kind: Callable[[Snapshot], Sequence[Record]]) -> dict[str, Record]:
        """Return the earlier records of a kind by a field."""
        return {} if self.is_restarted else {each[key]: each for each in kind(self.before)}

    def per_s(self, now: Record, before: Record, counter: str) -> float:
        """Return how much a counter grew in a second."""
        grown = now.get(counter, 0) - before.get(counter, 0)
        return max(grown, 0) / self.seconds if self.seconds > 0 else 0.0


def frame(growth: Growth, sort: str, shown: int) -> Record:
    """Return the figures to show, ready for JSON.

    Args:
      growth: Two snapshots.
      sort: The order of destinations, one of ``ORDERS``.
      shown: The most destinations, queues and connections to include.
    """
    overview, process = growth.now.overview, growth.now.process
    session, stale = overview["session"], overview["stale"]
    earlier = growth.by("destination", lambda snapshot: snapshot.destinations)
    rows = [
        _destination(growth, each, earlier.get(each["destination"], {}))
        for each in growth.now.destinations
    ]
    drops = overview["messages"]["dropped_total"]
    return {
        **{name: overview[name] for name in ("ts", "broker_id", "boot")},
        "interval_s": round(growth.seconds, 3),
        "uptime_s": process["uptime_s"],
        **{name: session[name] for name in ("clients", "websockets", "subscriptions")},
        "rates": {
            f"{name}_per_s": round(sum(row[f"{name}_per_s"] for row in rows), 1) for name in RATES
        },
        "latency_ms": _percentiles(
            overview.get("le_ms", ()),
            overview.get("latency", {}),
            {} if growth.is_restarted else growth.before.overview.get("latency", {}),
        ),
        "process": {
            **{name: process[name] for name in ("rss_bytes", "fds", "threads", "store_bytes")},
            **{name: process[name] for name in ("loop_lag_ms_p99", "loop_lag_ms_max")},
            "cpu_percent": _cpu_percent(growth),
        },
        "waiting": {
            "input": stale["input_queue_size"],
            "output": stale["output_queue_size"],
            "stale": stale["stale_queue_size"],
        },
        "drops": {reason: count for reason, count in drops.items() if count},
        "destinations": sorted(rows, key=ORDERS[sort])[:shown],
        "destinations_total": len(rows),
        "queues": _queues(growth.now.queues)[:shown],
        "connections": _connections(growth)[:shown],
    }


def _destination(growth: Growth, now: Record, before: Record) -> Record:
    same = ("destination", "type", "subscribers", "depth", "unacked", "dropped_total")
    rates = {f"{name}_per_s": growth.per_s(now, before, total) for name, total in RATES.items()}
    bounds = growth.now.overview.get("le_ms", ())
    latency = _percentiles(bounds, now.get("latency", {}), before.get("latency", {}))
    return {**{name: now[name] for name in same}, **rates, "latency_ms": latency}


def _queues(queues: Sequence[Record]) -> list[Record]:
    names = ("destination", *WAITING, "oldest_input_age_s")
    rows = [{name: each[name] for name in names} for each in queues]
    return sorted(rows, key=lambda row: -sum(row[name] for name in WAITING))


def _connections(growth: Growth) -> list[Record]:
    names = ("session_id", "user", "remote", "transport", "state", "subscriptions")
    earlier = growth.by("session_id", lambda snapshot: snapshot.connections)
    rows = [
        {name: each[name] for name in names}
        | {
            f"{name}_per_s": growth.per_s(each, earlier.get(each["session_id"], {}), RATES[name])
            for name in ("bytes_in", "bytes_out")
        }
        for each in growth.now.connections
    ]
    return sorted(rows, key=lambda row: -(row["bytes_in_per_s"] + row["bytes_out_per_s"]))


def _cpu_percent(growth: Growth) -> float:
    before = {} if growth.is_restarted else growth.before.process
    spent = ("cpu_user_s_total", "cpu_sys_s_total")
    return round(sum(growth.per_s(growth.now.process, before, each) for each in spent) * 100, 1)


def _percentiles(bounds: Sequence[float], now: Record, before: Record) -> Record:
    """Return the latency of the deliveries between two histograms."""
    new, old = now.get("delivery", {}), before.get("delivery", {})
    counts: list[int] = new.get("bucket_counts", [])
    past: list[int] = old.get("bucket_counts", [0] * len(counts))
    grown = [max(one - other, 0) for one, other in zip(counts, past, strict=True)]
    longest = new.get("max_ms", inf)
    if not any(grown):
        return dict.fromkeys(SHARES)
    return {
        name: round(percentile(bounds, grown, share, longest), 3) for name, share in SHARES.items()
    }


def _by(name: str) -> Callable[[Record], tuple[float, str]]:
    return lambda row: (-row[name], row["destination"])


SHARES = {"p50": 0.5, "p99": 0.99}
ORDERS: Mapping[str, Callable[[Record], Any]] = {
    "out": _by("out_per_s"),
    "in": _by("in_per_s"),
    "depth": _by("depth"),
    "unacked": _by("unacked"),
    "dropped": _by("dropped_total"),
    "name": lambda row: row["destination"],
}
"""The orders of destinations by their words."""
