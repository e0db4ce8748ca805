"""The rules of insight, minute by minute, on messages as the broker writes them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import spark as _spark

_spark.require()

from tests.support.diag_bodies import message  # noqa: E402
from trio_stomp.spark import _insight as insight_module  # noqa: E402

A = "/topic/a"
Q = "/queue/q"


class Minutes:
    """Feeds statistics of one minute after the other."""

    def __init__(self, start: int = 0) -> None:
        self.insight = insight_module.Insight()
        self.minute = start
        self.boot = "b1"

    def add(
        self, kind: str, *items: dict[str, Any], at_s: float = 10
    ) -> list[insight_module.Result]:
        row = message(kind, 0, *items, at_s=self.minute * 60 + at_s, boot=self.boot)
        return list(self.insight.add(kind, str(row["body"])))

    def ended(self) -> list[insight_module.Result]:
        """Begin the next minute, and return the results of the present one."""
        self.minute += 1
        return self.add("destination")


def traffic(total: int, name: str = A, dropped: int = 0) -> dict[str, Any]:
    counts = {"enqueued_total": total, "delivered_total": 2 * total, "dropped_total": dropped}
    return {"destination": name} | counts


def rules(results: list[insight_module.Result]) -> list[str]:
    return [result.record["rule"] for result in results if result.record["rule"] != "rates"]


def rates(results: list[insight_module.Result]) -> list[dict[str, Any]]:
    (found,) = (result for result in results if result.record["rule"] == "rates")
    listed: list[dict[str, Any]] = found.record["destinations"]
    return listed


def test_rates_and_latencies_of_a_minute() -> None:
    minutes = Minutes()
    bounds = {"destination": A, "stage": "delivery", "le_ms": [1.0, 10.0]}
    minutes.add("destination", traffic(1000), traffic(5, "/topic/insight/rates"))
    minutes.add("latency", bounds | {"bucket_counts": [5, 0, 0]})
    assert rates(minutes.ended()) == [], "nobody knows since when the totals count"
    minutes.add("destination", traffic(1060, dropped=6))
    minutes.add("destination", traffic(1120, dropped=6), at_s=50)
    minutes.add("latency", bounds | {"bucket_counts": [5, 100, 0]})
    minutes.add("latency", bounds | {"stage": "ingress", "bucket_counts": [0, 0, 9]})
    (result,) = minutes.ended()
    (found,) = rates([result])
    assert (found["destination"], found["in_per_s"], found["out_per_s"]) == (A, 2.0, 4.0)
    assert found["dropped_per_s"] == 0.1
    assert 1 < found["p50_ms"] < found["p99_ms"] <= 10
    assert result.topic == "/topic/insight/rates"
    assert result.record["minute"] == "2026-03-14T08:01:00+00:00"


def test_a_restart_counts_from_zero_and_a_pause_is_divided() -> None:
    minutes = Minutes()
    minutes.add("destination", traffic(1000))
    minutes.boot = "b2"
    minutes.add("destination", traffic(30))
    assert rates(minutes.ended())[0]["in_per_s"] == 0.5
    minutes.add("destination", traffic(270))
    minutes.minute += 3
    assert rates(minutes.ended())[0]["in_per_s"] == 1.0


def test_the_same_messages_give_the_same_results() -> None:
    def run() -> list[insight_module.Result]:
        minutes, found = Minutes(), []
        for total in (0, 60, 600):
            minutes.add("destination", traffic(total))
            found += minutes.ended()
        return found

    first = run()
    assert run() == first
    assert len({result.id for result in first}) == len(first) == 3


def usual(minutes: Minutes, count: int, per_minute: int = 600) -> int:
    """Have a destination get about as many messages in each minute; return its total."""
    total = 0
    minutes.add("destination", traffic(0))
    for number in range(count):
        total += per_minute + (number % 5) * 6
        minutes.add("destination", traffic(total))
        assert rules(minutes.ended()) == []
    return total


@pytest.mark.parametrize("per_minute", [6000, 0])
def test_a_destination_far_from_its_own_past_for_two_minutes(per_minute: int) -> None:
    minutes = Minutes()
    total = usual(minutes, 61)
    found = []
    for _ in range(2):
        total += per_minute
        minutes.add("destination", traffic(total))
        found.append(minutes.ended())
    assert [rules(each) for each in found] == [[], ["unusual-rate"]]
    record = found[1][0].record
    assert (record["destination"], record["in_per_s"]) == (A, per_minute / 60)
    assert 10 <= record["usual_per_s"] <= 10.4
    assert f"{A} gets {per_minute / 60:.1f} messages/s; usual are 10." in record["text"]


def test_a_short_past_and_small_numbers_are_never_unusual() -> None:
    minutes = Minutes()
    total = usual(minutes, 50)
    for _ in range(3):
        total += 60_000
        minutes.add("destination", traffic(total))
        assert rules(minutes.ended()) == []
    few = Minutes()
    total = usual(few, 70, per_minute=0)
    for _ in range(3):
        total += 45
        few.add("destination", traffic(total))
        assert rules(few.ended()) == []


def filling(depths: Iterator[int] | list[int], capacity: int) -> list[list[str]]:
    minutes, found = Minutes(), []
    for depth in depths:
        minutes.add("queue", {"destination": Q, "input_depth": depth, "capacity": capacity})
        found.append(rules(minutes.ended()))
    return found


def test_a_queue_that_will_be_full_within_an_hour() -> None:
    assert filling([100 * n for n in range(7)], 5000) == [[]] * 4 + [["queue-filling"]] * 3
    assert not any(filling([100 * n for n in range(7)], 50_000)), "in a day"
    assert not any(filling([900, 100, 800, 50, 700, 950, 20, 900], 1000)), "it comes and goes"
    assert not any(filling([100 * n for n in range(7)], 0)), "it has no limit"


def test_a_queue_that_is_gone_is_forgotten() -> None:
    minutes = Minutes()
    for depth in range(5):
        minutes.add("queue", {"destination": Q, "input_depth": depth * 100, "capacity": 1000})
        found = minutes.ended()
    assert rules(found) == ["queue-filling"]
    assert rules(minutes.ended()) == ["queue-filling"]
    assert rules(minutes.ended()) == rules(minutes.ended()) == []


def unacked(count: int, age_s: float) -> dict[str, Any]:
    figures = {"ack_depth": count, "oldest_unacked_age_s": age_s, "prefetch": 1000}
    return {"destination": Q, "subscription_id": "s1"} | figures


def test_a_consumer_that_leaks() -> None:
    minutes, found = Minutes(), []
    for number in range(18):
        minutes.add("queue", unacked(3 * number, 30 + 60 * number))
        found.append(minutes.ended())
    assert [rules(each) for each in found] == [[]] * 15 + [["leaking-consumer"]] * 3
    record = found[-1][-1].record
    assert (record["subscription"], record["unacked"], record["growth_per_h"]) == ("s1", 51, 180)
    # The oldest is acknowledged at last: it was slow.
    minutes.add("queue", unacked(54, 1))
    minutes.add("queue", unacked(57, 40))
    assert rules(minutes.ended()) == []


def test_a_consumer_that_is_late_but_acknowledges_does_not_leak() -> None:
    minutes = Minutes()
    for number in range(30):
        minutes.add("queue", unacked(3 * number, 45))
        assert rules(minutes.ended()) == []


def test_items_beyond_the_limits_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insight_module, "MAX_ITEMS", 3)
    monkeypatch.setattr(insight_module, "MAX_LISTED", 2)
    minutes = Minutes()
    for total in (0, 60):
        minutes.add("destination", *(traffic(total * (n + 1), f"/topic/{n}") for n in range(4)))
    (result,) = minutes.ended()
    assert [each["destination"] for each in rates([result])] == ["/topic/2", "/topic/1"]
    assert result.record["left_out"] == 3


def test_an_idle_destination_is_forgotten_after_its_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(insight_module, "HISTORY", 3)
    minutes = Minutes()
    minutes.add("destination", traffic(0))
    for _ in range(3):
        assert minutes.insight._traffic
        minutes.ended()
    assert not minutes.insight._traffic


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"ts":"soon"}', "\ufffd"])
def test_what_is_no_message_of_the_statistics_is_left_out(body: str) -> None:
    assert list(insight_module.Insight().add("destination", body)) == []
