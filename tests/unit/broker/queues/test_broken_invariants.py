"""Conditions that queues rely on: what breaks one is told, and nothing is lost by it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.core import Actor, Bench, bench, counted_turns, numbered
from tests.support.small_queues import hand_out_by
from trio_stomp.base import BrokenInvariant
from trio_stomp.broker import Log
from trio_stomp.broker.queues import Consumer

Q = "/queue/q"


def waiting(ack: str = "client") -> tuple[Bench, Actor]:
    """Return a bench with three messages and a consumer that has not got them yet."""
    desk = bench()
    reader = desk.actor()
    reader.subscribes(Q, ack=ack)
    desk.turn()
    desk.actor().sends(Q, *numbered("", 3))
    return desk, reader


def failing(call: Callable[..., Any], error: Exception) -> Callable[..., Any]:
    """Return ``call``, but the first time it fails after its work."""
    left = [error]

    def fails(*arguments: Any) -> Any:
        result = call(*arguments)
        if left:
            raise left.pop()
        return result

    return fails


@pytest.mark.parametrize("ack", ["auto", "client"])
@pytest.mark.parametrize("error", [BrokenInvariant("queue-order", "7 is behind 8"), KeyError(7)])
def test_a_failed_hand_out_gives_back_messages_and_credit(
    ack: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, reader = waiting(ack)
    before = reader.consumer().count_left, reader.consumer().bytes_left
    hand_out_by(monkeypatch, lambda hand_out: failing(hand_out, error))
    with pytest.raises(type(error)):
        desk.turn()
    queue = desk.queue(Q)
    assert (queue.waiting.count, queue.unacked) == (3, 0)
    assert (reader.consumer().count_left, reader.consumer().bytes_left) == before
    assert getattr(error, "concerns", Q) == Q
    desk.actor().sends(Q, "3")
    assert [frame.text for frame in reader.reads()] == ["0", "1", "2", "3"]
    desk.ends()


def test_what_was_delivered_does_not_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, reader = waiting()
    monkeypatch.setattr(Consumer, "deliver", failing(Consumer.deliver, KeyError(7)))
    with pytest.raises(KeyError):
        desk.turn()
    assert (desk.queue(Q).waiting.count, desk.queue(Q).unacked) == (0, 3)
    frames = reader.reads()
    reader.acks(frames[-1])
    assert (desk.queue(Q).unacked, reader.consumer().count_left) == (0, 100)


def test_more_credit_than_the_prefetch_is_told() -> None:
    desk, reader = waiting()
    reader.consumer().count_left += 1
    with pytest.raises(BrokenInvariant, match="consumer-credit: 98 left and 101 in all of 100"):
        desk.turn()
    assert desk.queue(Q).waiting.count == 3


def test_a_negative_count_is_told() -> None:
    desk, _ = waiting()
    desk.queue(Q).arriving = -1
    with pytest.raises(BrokenInvariant, match=r"queue-counts: .*: \(3, -1, 0, 0, 0\)"):
        desk.turn()


def test_a_commit_number_that_is_left_out_is_told() -> None:
    log = Log("memory", counted_turns())
    log.finish(7)
    log.take()
    log.commit(1, 0.0)
    log.finish(8)
    log.take()
    log.committed = 0
    with pytest.raises(BrokenInvariant, match="commit-numbers: 2 comes after 0"):
        log.commit(2, 0.0)
