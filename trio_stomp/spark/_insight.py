"""Insight: what the statistics say by the minute, as messages that people subscribe to.

The messages of ``/stream/DIAG`` are added in their order. With each minute come the rates and
latencies of all destinations, and what three rules find:

- ``unusual-rate``: a destination is far from its own last hours, for two minutes.
- ``queue-filling``: a queue grows so steadily that it will be full within an hour.
- ``leaking-consumer``: more and more messages of a consumer are never acknowledged.

The same messages give the same results with the same ids, so repetitions can be recognized.
"""

import json
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from statistics import StatisticsError, correlation, linear_regression, median
from typing import Any, NamedTuple

from attrs import define, field

from trio_stomp.base import percentile

PREFIX = "/topic/insight/"
RATES, UNUSUAL, FILLING, LEAKING = "rates", "unusual-rate", "queue-filling", "leaking-consumer"

WINDOW_S = 60
HISTORY = 360
"""Minutes of its past that a destination is compared with."""
ENOUGH = 60
"""Fewer minutes are no past."""
FAR = 6.0
"""Standard deviations, estimated from the median deviation, that count as far."""
LEAST_RATE = 1.0
"""Smaller changes of messages per second are never unusual."""

SERIES = 60
FILLING_WINDOWS, FULL_WITHIN_S = 5, 3600.0
SLOW_S, LEAK_S, LEAK_AGE = 30.0, 900.0, 0.8
STEADY = 0.7
"""The least straightness of growth, as the square of the correlation."""

MAX_ITEMS = 10_000
"""Most destinations, and most queues and consumers. Further ones are counted only."""
MAX_LISTED = 1_000
"""Most destinations in the message of a minute: those with the most messages."""

Record = dict[str, Any]


class Result(NamedTuple):
    """A message to be published.

    Args:
      topic: The topic to publish it to.
      id: Names it permanently.
    """

    topic: str
    id: str
    record: Record


@define
class Traffic:
    """The counters of a destination.

    Args:
      boot: The start of the broker that the totals are of.
    """

    boot: str
    totals: tuple[int, ...]
    grown: list[int]
    rates: deque[float]
    boundaries: Sequence[float] = ()
    buckets: Sequence[int] = ()
    delays: list[int] = field(factory=list)
    was_far: int = 0

    def latencies(self) -> Record:
        """Return the percentiles of the present minute."""
        shares = {"p50_ms": 0.5, "p99_ms": 0.99}
        if not any(self.delays):
            return dict.fromkeys(shares)
        return {name: percentile(self.boundaries, self.delays, at) for name, at in shares.items()}


@define
class Insight:
    """The state that results are made from.

    Limits: ``MAX_ITEMS`` destinations with ``HISTORY`` numbers each, and as many queues and
    consumers with ``SERIES`` points each.
    """

    _broker: str = ""
    _window: int = 0
    _traffic: dict[str, Traffic] = field(factory=dict)
    _series: dict[tuple[str, str, str], deque[tuple[float, float, float]]] = field(factory=dict)
    _left_out: int = 0

    def add(self, kind: str, body: bytes | str) -> Iterator[Result]:
        """Add one message of the statistics, and yield the results of the minute that it ends."""
        if kind not in ("destination", "latency", "queue"):
            return
        try:
            message: Record = json.loads(body)
            at = datetime.fromisoformat(message["ts"]).timestamp()
            items, broker, boot = message["items"], message["broker_id"], message["boot"]
        except (ValueError, KeyError, TypeError):
            return  # a broker of another version; the tables keep it
        window = int(at // WINDOW_S)
        if window > self._window:
            yield from self._close(window)
        self._broker = broker
        for item in items:
            name = item["destination"]
            if name.startswith(("DIAG", PREFIX)):
                continue
            if kind == "queue":
                self._add_queue(name, item, at)
            else:
                self._add_traffic(kind, name, item, boot)

    def _add_traffic(self, kind: str, name: str, item: Record, boot: str) -> None:
        known = self._traffic.get(name)
        if known is None:
            if len(self._traffic) >= MAX_ITEMS:
                self._left_out += 1
                return
            known = self._traffic[name] = Traffic(boot, (), [0, 0, 0], deque(maxlen=HISTORY))
        if known.boot != boot:
            known.boot, known.totals, known.buckets = boot, (0, 0, 0), [0] * len(known.buckets)
        if kind == "latency":
            if item["stage"] == "delivery":
                counts = item["bucket_counts"]
                if len(known.boundaries) != len(item["le_ms"]):
                    known.boundaries, known.delays = item["le_ms"], []
                known.delays = _plus(known.delays, _growth(known.buckets, counts))
                known.buckets = counts
            return
        totals = (item["enqueued_total"], item["delivered_total"], item["dropped_total"])
        known.grown = _plus(known.grown, _growth(known.totals, totals))
        known.totals = totals

    def _add_queue(self, name: str, item: Record, at: float) -> None:
        consumer = item["subscription_id"] or ""
        self._note((FILLING, name, consumer), (at, item["input_depth"], item["capacity"]))
        age = item["oldest_unacked_age_s"]
        if age >= SLOW_S:
            self._note((LEAKING, name, consumer), (at, item["ack_depth"], age))
        else:
            self._series.pop((LEAKING, name, consumer), None)

    def _note(self, key: tuple[str, str, str], point: tuple[float, float, float]) -> None:
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= MAX_ITEMS:
                self._left_out += 1
                return
            series = self._series[key] = deque(maxlen=SERIES)
        if series and series[-1][0] // WINDOW_S == point[0] // WINDOW_S:
            series.pop()  # one point for each minute: the last
        series.append(point)

    def _close(self, following: int) -> Iterator[Result]:
        """Yield the results of the present minute, and begin another."""
        if self._window:
            elapsed_s = (following - self._window) * WINDOW_S
            yield from self._rates(elapsed_s)
            yield from self._trends()
        self._window = following

    def _rates(self, elapsed_s: float) -> Iterator[Result]:
        listed: list[Record] = []
        for name, known in list(self._traffic.items()):
            sent, delivered, dropped = (count / elapsed_s for count in known.grown)
            if sent or delivered or dropped:
                record = {"destination": name, "in_per_s": round(sent, 3)}
                record |= {"out_per_s": round(delivered, 3), "dropped_per_s": round(dropped, 3)}
                listed.append(record | known.latencies())
            yield from self._unusual(name, known, sent)
            known.rates.append(sent)
            known.grown, known.delays = [0, 0, 0], []
            if len(known.rates) == HISTORY and not any(known.rates):
                del self._traffic[name]
        listed.sort(key=lambda each: -each["in_per_s"] - each["out_per_s"])
        rest = len(listed) - MAX_LISTED + self._left_out
        rates = {"destinations": listed[:MAX_LISTED], "left_out": max(0, rest)}
        yield self._result(RATES, "", rates)
        self._left_out = 0

    def _unusual(self, name: str, known: Traffic, rate: float) -> Iterator[Result]:
        if len(known.rates) < ENOUGH:
            return
        usual = median(known.rates)
        spread = 1.4826 * median(abs(each - usual) for each in known.rates)
        side = 1 if rate > usual else -1
        if abs(rate - usual) <= max(FAR * spread, usual / 2, LEAST_RATE):
            side = 0
        if side and side == known.was_far:
            text = f"{name} gets {rate:.1f} messages/s; usual are {usual:.1f}"
            figures = {"in_per_s": round(rate, 3), "usual_per_s": round(usual, 3)}
            yield self._result(UNUSUAL, name, figures | {"minutes": len(known.rates), "text": text})
        known.was_far = side

    def _trends(self) -> Iterator[Result]:
        for key, series in list(self._series.items()):
            rule, name, consumer = key
            if self._window - series[-1][0] // WINDOW_S > 1:
                del self._series[key]  # it is gone
                continue
            slope = growth(series)
            if slope <= 0:
                continue
            at, depth, third = series[-1]
            span_s = at - series[0][0]
            whose = f"{name}, subscription {consumer}" if consumer else name
            figures: Record = {"subscription": consumer, "growth_per_h": round(slope * 3600)}
            if rule == FILLING and len(series) >= FILLING_WINDOWS and third > 0:
                full_s = (third - depth) / slope
                if full_s <= FULL_WITHIN_S:
                    minutes = max(0, round(full_s / 60))
                    text = f"{whose} has {depth:.0f} of {third:.0f} messages, full in {minutes} min"
                    figures |= {"depth": depth, "capacity": third, "full_in_s": round(full_s)}
                    yield self._result(FILLING, name, figures | {"text": text})
            elif rule == LEAKING and span_s >= LEAK_S and third >= LEAK_AGE * span_s:
                text = f"{whose}: {depth:.0f} messages are not acknowledged, the oldest for"
                text += f" {third / 60:.0f} min"
                figures |= {"unacked": depth, "oldest_s": round(third)}
                yield self._result(LEAKING, name, figures | {"text": text})

    def _result(self, rule: str, name: str, figures: Record) -> Result:
        at = datetime.fromtimestamp(self._window * WINDOW_S, UTC).isoformat()
        who = {"rule": rule, "broker_id": self._broker, "minute": at}
        whom = {"destination": name} if name else {}
        consumer = figures.get("subscription", "")
        key = f"{rule}/{self._broker}/{self._window}/{name}/{consumer}"
        return Result(PREFIX + rule, key, who | whom | figures)


def growth(series: Sequence[tuple[float, float, float]]) -> float:
    """Return the steady growth in a second of the second numbers over the first; 0 = none."""
    times, depths = [at for at, _, _ in series], [depth for _, depth, _ in series]
    try:
        fit = correlation(times, depths) ** 2
    except StatisticsError:
        return 0.0  # too few, or all the same
    return linear_regression(times, depths).slope if fit >= STEADY else 0.0


def _growth(before: Sequence[int], now: Sequence[int]) -> Sequence[int]:
    """Return how much counters have grown: nothing at their first sight."""
    if len(before) != len(now):
        return [0] * len(now)
    if any(new < old for old, new in zip(before, now, strict=True)):
        return now  # they began anew
    return [new - old for old, new in zip(before, now, strict=True)]


def _plus(sums: Sequence[int], more: Sequence[int]) -> list[int]:
    return [old + new for old, new in zip(sums or [0] * len(more), more, strict=True)]
