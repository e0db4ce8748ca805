"""Failed deliveries, which bring a message closer to becoming a dead letter (S3)."""

import pytest

from tests.support.core import Bench, bench, numbered
from tests.support.durable_fakes import DurableBench
from trio_stomp.base import CloseReason
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.durability import _log
from trio_stomp.store import Forget, Keep

Q, DEAD = "/queue/q", "/queue/DLQ.q"
STRICT = DestinationPolicy(max_redeliveries=0, backoff_s=())
KEPT = DestinationPolicy(max_redeliveries=1, backoff_s=(), persistent="always")


@pytest.mark.parametrize("ends_by", ["DISCONNECT", "UNSUBSCRIBE", "shutdown", "slow-consumer"])
def test_prefetched_messages_never_become_dead_letters(ends_by: str) -> None:
    """100 messages; each consumer takes all, ACKs ten, and leaves in order."""
    desk = bench(STRICT)
    desk.actor().sends(Q, *numbered("", 100))
    for start in range(0, 100, 10):
        actor = desk.actor()
        actor.subscribes(Q, ack="client", prefetch_count="1000")
        frames = actor.reads()
        assert [each.text for each in frames] == numbered("", 100)[start:]
        times = f"{start // 10 + 1}" if start else None
        assert {each.get("delivery-count") for each in frames} == {times}
        assert {each.get("redelivered") for each in frames} == {"true" if start else None}
        actor.acks(frames[9])
        if ends_by == "UNSUBSCRIBE":
            actor.unsubscribes()
        elif ends_by == "DISCONNECT":
            actor.leaves()
            actor.is_gone()
        else:
            reasons = {"shutdown": CloseReason.SHUTTING_DOWN}
            reason = reasons.get(ends_by, CloseReason.SLOW_CONSUMER)
            desk.broker.forget(actor.client, reason, desk.now)
    assert desk.waiting(DEAD) == []
    desk.ends()


@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize("how", ["connection-lost", "error"])
def test_only_messages_that_a_lost_consumer_can_have_begun_have_failed(ack: str, how: str) -> None:
    desk = bench(max_redeliveries=1, backoff_s=())
    desk.actor().sends(Q, *numbered("", 5))
    for count in ("1", "2"):
        actor = desk.actor()
        actor.subscribes(Q, ack=ack)
        frames = actor.reads()
        if count == "1":
            actor.acks(frames.pop(0))
        assert {each.get("delivery-count") or "1" for each in frames} == {count}
        assert [each.text for each in frames] == ["1", "2", "3", "4"]
        if how == "error":
            actor.acks("nonsense")
            assert actor.error().get("code") == "unknown-ack"
        actor.is_gone()
    assert desk.waiting(DEAD) == ["1"]
    assert desk.waiting(Q) == ["2", "3", "4"]
    desk.ends()


def test_idle_consumer_takes_no_messages_along() -> None:
    desk = bench(STRICT)
    actor = desk.actor()
    actor.subscribes(Q, ack="client")
    actor.sends(Q, "a")
    actor.acks(*actor.reads())
    actor.is_gone()
    assert desk.waiting(DEAD) == []
    desk.ends()


def test_a_back_off_is_for_failures_and_not_for_deliveries() -> None:
    desk = bench(max_redeliveries=9, backoff_s=(0.0, 5.0))
    actor = desk.actor()
    actor.sends(Q, "a")
    for _ in range(3):
        actor.subscribes(Q, ack="client")
        actor.reads()
        actor.unsubscribes()
    actor.subscribes(Q, ack="client")
    actor.nacks(*actor.reads())
    [again] = actor.reads()  # immediately: it is the first failure
    assert again.get("delivery-count") == "5"
    desk.ends()


# Across restarts.


def kept_bench() -> DurableBench:
    return DurableBench(book={Q: KEPT})


def settings_of(desk: DurableBench) -> dict[str, str]:
    found = desk.store.recover(lambda done, total: None).settings
    return {key: text for key, text in found.items() if key.startswith("failed:")}


def fails_once(desk: DurableBench) -> None:
    actor = desk.actor()
    actor.subscribes(Q, ack="client")
    first, *_ = actor.reads()
    actor.nacks(first)
    actor.reads()
    actor.leaves()
    actor.is_gone()
    desk.turn()


def test_failures_are_counted_on_after_a_restart_and_deliveries_are_not() -> None:
    desk = kept_bench()
    desk.actor().sends(Q, "a", "b")
    for _ in range(5):  # prefetched and given back, again and again
        actor = desk.actor()
        actor.subscribes(Q, ack="client")
        actor.reads()
        actor.leaves()
    fails_once(desk)
    assert list(settings_of(desk).values()) == ["1"]
    desk = desk.restarts()
    assert desk.failures == []
    fails_once(desk)
    actor = desk.actor()
    actor.subscribes(DEAD)
    assert actor.bodies() == ["a"]
    actor.unsubscribes()
    assert settings_of(desk) == {}  # nothing is left of settled messages
    desk = desk.restarts()
    fails_once(desk)
    actor = desk.actor()
    actor.subscribes(Q, ack="client")
    [last] = actor.reads()
    assert (last.text, last.get("redelivered")) == ("b", "true")
    actor.acks(last)
    actor.reads()
    assert settings_of(desk) == {}


def test_failed_and_acknowledged_messages_leave_nothing_in_the_store() -> None:
    desk = kept_bench()
    actor = desk.actor()
    actor.sends(Q, "a", "b")
    actor.subscribes(Q, ack="client-individual")
    actor.nacks(*actor.reads())
    frames = actor.reads()
    assert list(settings_of(desk).values()) == ["1", "1"]
    actor.acks(*frames)
    actor.reads()
    assert settings_of(desk) == {}


def test_a_transaction_that_fails_takes_no_failure_with_it() -> None:
    desk = kept_bench()
    actor = desk.actor()
    actor.sends(Q, "a")
    actor.subscribes(Q, ack="client-individual")
    actor.nacks(*actor.reads())
    [again] = actor.reads()
    desk.is_prompt = False
    actor.commits(actor.acked(again))
    desk.turn()
    desk.fails()
    desk.is_prompt = True
    desk.turn()
    assert settings_of(desk) == {}  # it is removed on its own, or it could stay forever
    actor.is_gone()
    other = desk.actor()
    other.subscribes(Q, ack="client")
    assert other.bodies() == ["a"]


def test_number_of_remembered_failures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_log, "MAX_FAILED", 2)
    failed = _log.Failed()
    assert list(failed.note(1, 1)) == [Keep("failed:1", "1")]
    assert list(failed.note(2, 1)) == [Keep("failed:2", "1")]
    assert list(failed.note(1, 2)) == [Keep("failed:1", "2")]
    assert list(failed.note(3, 1)) == [Forget("failed:1"), Keep("failed:3", "1")]
    assert list(failed.forget([1, 3])) == [Forget("failed:3")]
    assert failed.counts == {2: 1}


def test_settings_of_others_are_no_failures() -> None:
    failed = _log.Failed()
    failed.restore({"failed:7": "2", "failed:x": "2", "failed:8": "x", "durable:9": "1"})
    assert failed.counts == {7: 2}


def test_deliveries_of_transient_messages_are_not_stored() -> None:
    desk = Bench(book={Q: DestinationPolicy(max_redeliveries=1, backoff_s=())})
    actor = desk.actor()
    actor.sends(Q, "a")
    actor.subscribes(Q, ack="client")
    actor.nacks(*actor.reads())
    actor.nacks(*actor.reads())
    assert desk.waiting(DEAD) == ["a"]
    desk.ends()
