"""The history of a queue, read back from the stream of diagnostics."""

from typing import Any

import pytest

from tests.support.core import Bench
from tests.support.durable_fakes import DurableBench
from tests.support.managing import drive
from trio_stomp.base import schema
from trio_stomp.broker import Step
from trio_stomp.diag._stream import DiagStream, encode_items, timestamp
from trio_stomp.web.management._history import Samples

Q = '/queue/a}"b'
INTERVAL_S = 5


def queue(name: str = Q, **fields: Any) -> dict[str, object]:
    levels = dict.fromkeys(("input_depth", "ack_depth", "input_bytes"), 0)
    return {
        "destination": name,
        "subscription_id": None,
        **levels,
        "oldest_input_age_s": 0.5,
    } | fields


class History:
    """A broker whose reports are written by the test."""

    def __init__(self, core: Bench) -> None:
        self.core = core
        self.restarts(core)

    def restarts(self, core: Bench, boot: str = "one") -> None:
        self.core = core
        log = core.broker.keep_events(10**7, 0.0, 10**6)
        self.stream = DiagStream("x", lambda: self.now_ms / 1000, boot, log)

    @property
    def now_ms(self) -> int:
        return self.core.broker.wall.ms(self.core.now)

    def report(self, *items: dict[str, object], table: schema.Table = schema.QUEUE) -> None:
        ts, page = timestamp(self.now_ms / 1000), {"part": 1, "parts": 1, "full": True}
        self.stream.publish(
            self.core.broker,
            table,
            page,
            ts=ts,
            interval_s=INTERVAL_S,
            now=self.core.now,
            items=[encode_items(items)] if items else None,
        )
        self.core.turn()
        self.core.now += INTERVAL_S

    def samples(self, count: int, since_ms: int = 0) -> Samples:
        found = self.begins(count, since_ms)
        drive(self.core, found)
        return found

    def begins(self, count: int, since_ms: int = 0) -> Samples:
        broker = self.core.broker
        return Samples(
            broker.turns,
            None,
            broker.manager,
            queue=Q,
            count=count,
            since_ms=since_ms,
            until_ms=self.now_ms,
        )


@pytest.fixture(params=["memory", "store"])
def history(request: pytest.FixtureRequest) -> History:
    return History(DurableBench() if request.param == "store" else Bench())


def test_samples_are_rolled_up_with_rates_since_the_one_before(history: History) -> None:
    start_ms = history.now_ms
    for number in range(12):
        history.report(queue("/queue/other", input_depth=99), table=schema.DESTINATION)
        history.report(
            queue("/queue/other", input_depth=99),
            queue(input_depth=number, enqueued_total=number * 40, acked_total=number * 10),
        )
    found = history.samples(4)
    assert (found.oldest_ms, found.since_ms, found.step_ms) == (start_ms, start_ms, 30_000)
    assert [each["ts_ms"] for each in found.points] == [
        start_ms + 5_000 + index * 30_000 for index in range(4)
    ]
    assert [each["waiting"] for each in found.points] == [0, 3, 6, 9]
    assert [each["in_per_s"] for each in found.points] == [None, 4.0, 4.0, 4.0]
    assert [each["out_per_s"] for each in found.points] == [None, 1.0, 1.0, 1.0]
    half = history.samples(100, start_ms + 60_000)
    assert (half.seen, half.done, half.since_ms) == (100, 6, start_ms + 60_000)
    assert half.points[0]["oldest_age_s"] == 0.5


def test_missing_counters_give_no_rates_and_rates_end_at_a_restart() -> None:
    history = History(DurableBench())
    history.report(queue(enqueued_total=5, acked_total=0))
    history.report(queue(input_depth=1))  # of a broker that did not report these counters
    history.report(queue("/queue/others"))
    history.core.now += 100
    history.restarts(history.core.restarts(), "two")  # type: ignore[attr-defined]
    history.report(queue(enqueued_total=1, acked_total=0))
    history.report(queue(enqueued_total=21, acked_total=0))
    found = history.samples(25)
    assert [each["in_per_s"] for each in found.points] == [None, None, None, 4.0]


def test_a_stream_without_records_has_no_history(history: History) -> None:
    assert history.samples(4).points == []
    history.report()
    assert history.samples(4).points == []
    assert history.samples(4, history.now_ms + 1).points == []


def test_reading_ends_with_its_client(history: History) -> None:
    history.report(queue())
    ticks = iter(range(100))
    history.core.broker.turns.clock = lambda: next(ticks)
    for has_begun in (False, True):
        found = history.begins(2)
        assert not has_begun or found.step(history.core.now) is not Step.DONE
        found.end(history.core.now)
        assert found.step(history.core.now) is Step.DONE
        assert found.points == []
