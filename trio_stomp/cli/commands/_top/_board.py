"""The state of ``top``: turns records of DIAG topics into frames of figures. No clock, no I/O."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import inf
from typing import Any

from attrs import define, field, fields

Record = Mapping[str, Any]

SHOWN = 20
MAX_THINGS = 20_000
"""Most destinations, connections or histograms to remember; the broker reports no more."""
SORTS = ("out", "in", "depth", "unacked", "dropped", "name")


@define(eq=False)
class Things:
    """Items reported in lists, most of which hold only the items that changed.

    Args:
      key: The fields that identify an item.
    """

    key: tuple[str, ...]
    now: dict[tuple[object, ...], Record] = field(factory=dict)
    before: dict[tuple[object, ...], Record] = field(factory=dict)
    """The previous records of the items in the newest list."""
    ts: str = ""
    interval_s: float = 0.0
    _whole: dict[tuple[object, ...], Record] | None = None
    _seen: set[tuple[object, ...]] = field(factory=set)

    def take(self, record: Record, *, is_first: bool = False) -> None:
        """Process a list, or a part of one.

        Args:
          record: The list, as a record of DIAG.
          is_first: Whether it is of the first interval since the start, when counters were 0.
        """
        if record.get("ts") != self.ts:
            self.ts = str(record.get("ts", ""))
            self.interval_s = _number(record.get("interval_s"))
            self.before = {}
            self._seen = set()
            self._whole = {} if record.get("full") else None
        items = record.get("items")
        for item in items if isinstance(items, list) else ():
            if not isinstance(item, dict):
                continue
            name = tuple(item.get(each) for each in self.key)
            if name in self.now and name not in self._seen:
                self.before[name] = self.now[name]
            elif is_first and name not in self._seen:
                self.before[name] = {}
            self._seen.add(name)
            if name in self.now or len(self.now) < MAX_THINGS:
                self.now[name] = item
        if self._whole is not None and record.get("part") == record.get("parts"):
            # Items missing from a complete list are gone.
            self.now = {name: item for name, item in self.now.items() if name in self._seen}

    def per_s(self, name: tuple[object, ...], total: str) -> float:
        """Return a counter's growth per second, or 0 if the newest list lacks the item."""
        if name not in self.before or self.interval_s <= 0:
            return 0.0
        grown = _number(self.now[name].get(total)) - _number(self.before[name].get(total))
        return max(grown, 0.0) / self.interval_s


@define(eq=False)
class Board:
    """The figures known of a broker."""

    process: Record = field(factory=dict)
    process_before: Record = field(factory=dict)
    session: Record = field(factory=dict)
    stale: Record = field(factory=dict)
    boot: str = ""
    destinations: Things = field(factory=lambda: Things(("destination",)))
    queues: Things = field(factory=lambda: Things(("destination", "subscription_id")))
    connections: Things = field(factory=lambda: Things(("session_id",)))
    latencies: Things = field(factory=lambda: Things(("destination", "stage")))
    drops: Counter[str] = field(factory=Counter)
    events: Counter[str] = field(factory=Counter)

    @property
    def is_ready(self) -> bool:
        """Return whether there are rates."""
        return bool(self.process_before) or self.is_first

    @property
    def is_first(self) -> bool:
        """Return whether the newest figures are of the broker's first interval."""
        uptime_s, interval_s = map(_number, map(self.process.get, ("uptime_s", "interval_s")))
        return not self.process_before and 0 < uptime_s < 1.5 * interval_s

    @property
    def at_s(self) -> float:
        """Return the time of the newest figures, in seconds since 1970, or 0 without any."""
        try:
            return datetime.fromisoformat(str(self.process.get("ts"))).timestamp()
        except ValueError:
            return 0.0

    def take(self, topic: str, body: bytes) -> None:
        """Process a message of a DIAG topic. Ignore it if it cannot be parsed."""
        try:
            record = json.loads(body)
        except (ValueError, RecursionError):
            return
        if not isinstance(record, dict):
            return
        boot = str(record.get("boot", ""))
        if boot != self.boot:
            # A restart resets all counters.
            fresh = Board(boot=boot)
            for each in fields(Board):
                setattr(self, each.name, getattr(fresh, each.name))
        name = topic.removeprefix("DIAG/")
        if name.startswith("event/"):
            self._event(record)
        elif name == "process":
            self.process_before, self.process = self.process, record
        elif name in ("session", "stale"):
            setattr(self, name, record)
        elif name in LISTS:
            things: Things = getattr(self, LISTS[name])
            things.take(record, is_first=self.is_first and record.get("ts") == self.process["ts"])

    def _event(self, record: Record) -> None:
        name = str(record.get("name", ""))
        self.events[name] += 1
        if name == "disconnect":
            self.connections.now.pop((record.get("session_id"),), None)
        if name == "drop":
            detail = str(record.get("detail", ""))
            many = int(detail) if detail.isascii() and detail.isdigit() and len(detail) < 19 else 1
            self.drops[str(record.get("reason", ""))] += many

    def frame(self, sort: str = SORTS[0], shown: int = SHOWN) -> dict[str, Any]:
        """Return the current figures, ready for JSON.

        Args:
          sort: The sort key of destinations, one of ``SORTS``.
          shown: The most destinations, queues and connections to include.
        """
        process, session, stale = self.process, self.session, self.stale
        rows = [self._destination(name) for name in self.destinations.now]
        return {
            "ts": process.get("ts"),
            "broker_id": process.get("broker_id"),
            "boot": self.boot,
            "interval_s": _number(process.get("interval_s")),
            "uptime_s": _number(process.get("uptime_s")),
            "clients": session.get("clients", 0),
            "websockets": session.get("websockets", 0),
            "subscriptions": session.get("subscriptions", 0),
            "rates": {
                f"{name}_per_s": round(sum(row[f"{name}_per_s"] for row in rows), 1)
                for name in ("in", "out", "bytes_in", "bytes_out", "dropped")
            },
            "latency_ms": self._latency(),
            "process": {
                "rss_bytes": process.get("rss_bytes", 0),
                "cpu_percent": self._cpu_percent(),
                "fds": process.get("fds", 0),
                "threads": process.get("threads", 0),
                "loop_lag_ms_p99": process.get("loop_lag_ms_p99", 0),
                "loop_lag_ms_max": process.get("loop_lag_ms_max", 0),
                "store_bytes": process.get("store_bytes"),
            },
            "waiting": {
                "input": stale.get("input_queue_size", 0),
                "output": stale.get("output_queue_size", 0),
                "stale": stale.get("stale_queue_size", 0),
            },
            "drops": dict(self.drops.most_common()),
            "destinations": sorted(rows, key=ORDERS[sort])[:shown],
            "destinations_total": len(rows),
            "queues": self._queues(shown),
            "connections": self._connections(shown),
        }

    def _destination(self, name: tuple[object, ...]) -> dict[str, Any]:
        things, item = self.destinations, self.destinations.now[name]
        return {
            "destination": str(item.get("destination", "")),
            "type": str(item.get("type", "")),
            "subscribers": item.get("subscribers", 0),
            "in_per_s": things.per_s(name, "enqueued_total"),
            "out_per_s": things.per_s(name, "delivered_total"),
            "bytes_in_per_s": things.per_s(name, "bytes_in_total"),
            "bytes_out_per_s": things.per_s(name, "bytes_out_total"),
            "dropped_per_s": things.per_s(name, "dropped_total"),
            "depth": item.get("depth", 0),
            "unacked": item.get("unacked", 0),
            "dropped_total": item.get("dropped_total", 0),
        }

    def _queues(self, shown: int) -> list[dict[str, Any]]:
        names = ("destination", "input_depth", "stale_depth", "ack_depth", "oldest_input_age_s")
        rows = [
            {name: item.get(name) for name in names}
            for item in self.queues.now.values()
            if item.get("destination") != "input"
        ]
        rows.sort(
            key=lambda row: -sum(_number(row[each]) for each in names[1:4]),
        )
        return rows[:shown]

    def _connections(self, shown: int) -> list[dict[str, Any]]:
        things = self.connections
        names = ("session_id", "user", "remote", "transport", "state", "subscriptions")
        rows: list[dict[str, Any]] = [
            {
                **{each: item.get(each) for each in names},
                "bytes_in_per_s": things.per_s(name, "bytes_in_total"),
                "bytes_out_per_s": things.per_s(name, "bytes_out_total"),
            }
            for name, item in things.now.items()
            if item.get("state") != "closed"
        ]
        rows.sort(key=lambda row: -(row["bytes_in_per_s"] + row["bytes_out_per_s"]))
        return rows[:shown]

    def _cpu_percent(self) -> float:
        interval_s = _number(self.process.get("interval_s"))
        if not self.is_ready or interval_s <= 0:
            return 0.0
        used_s = sum(
            _number(self.process.get(each)) - _number(self.process_before.get(each))
            for each in ("cpu_user_s_total", "cpu_sys_s_total")
        )
        return round(max(used_s, 0.0) / interval_s * 100, 1)

    def _latency(self) -> dict[str, float | None]:
        """Return the latency of deliveries in the last interval, over all destinations."""
        bounds: list[float] = []
        counts: list[float] = []
        longest = 0.0
        for name, item in self.latencies.now.items():
            if item.get("stage") != "delivery" or name not in self.latencies.before:
                continue
            now = _numbers(item)
            before = _numbers(self.latencies.before[name] or {"bucket_counts": [0] * len(now)})
            if len(now) == len(before):
                bounds = item.get("le_ms") or bounds
                counts = counts or [0.0] * len(now)
                grown = [max(new - old, 0.0) for new, old in zip(now, before, strict=True)]
                counts = [total + more for total, more in zip(counts, grown, strict=False)]
                longest = max(longest, _number(item.get("max_ms"))) if any(grown) else longest
        return {
            "p50": percentile(bounds, counts, 0.5, longest or inf),
            "p99": percentile(bounds, counts, 0.99, longest or inf),
        }


def percentile(
    bounds: Sequence[float], counts: Sequence[float], share: float, longest: float = inf
) -> float | None:
    """Return the value that ``share`` of a histogram's counts do not exceed, interpolated.

    Args:
      bounds: The upper bounds of all buckets but the last, which has none.
      counts: The counts of the buckets.
      share: From 0 to 1.
      longest: The greatest value seen, an upper bound of the result.
    """
    total = sum(counts)
    if not total or len(counts) != len(bounds) + 1:
        return None
    left, low = share * total, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and left <= count:
            return round(min(low + (bound - low) * left / count, longest), 3)
        left -= count
        low = bound
    return low if longest == inf else round(longest, 3)


def _numbers(item: Record) -> list[float]:
    counts = item.get("bucket_counts")
    return [_number(each) for each in counts] if isinstance(counts, list) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _by(name: str) -> Any:  # noqa: ANN401
    return lambda row: (-_number(row[name]), row["destination"])


LISTS = {
    "destinations": "destinations",
    "queues": "queues",
    "connections": "connections",
    "latency": "latencies",
}
ORDERS = {
    "out": _by("out_per_s"),
    "in": _by("in_per_s"),
    "depth": _by("depth"),
    "unacked": _by("unacked"),
    "dropped": _by("dropped_total"),
    "name": lambda row: row["destination"],
}
