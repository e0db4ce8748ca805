"""Many cumulative ACKs in one transaction: covered messages are checked once, not for each."""

from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve

from tests.support.core import Actor, numbered, run_of
from tests.support.durable_fakes import DurableBench
from trio_stomp.broker.names import PRIVATE_QUEUE
from trio_stomp.protocol import Acked, Received

HELD = 500


class Seen(dict[Any, Any]):
    """Counts how many of its items were looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        for key in super().__iter__():
            self.looks += 1
            yield key

    def items(self) -> Any:
        """Yield the items, as far as requested."""
        return ((key, self[key]) for key in self)


def reader() -> tuple[DurableBench, Actor, list[Acked]]:
    """Return a client with HELD messages, and a cumulative ACK of each of the newer half."""
    desk = DurableBench()
    actor = desk.actor()
    actor.subscribes("/queue/q", ack="client", prefetch_count=f"{HELD}")
    desk.actor().sends("/queue/q", *numbered("", HELD))
    frames = actor.reads()
    return desk, actor, [actor.acked(each) for each in frames[HELD // 2 :]]


def test_messages_covered_by_a_commit_are_checked_once():
    desk, actor, acks = reader()
    consumer = actor.consumer()
    seen = consumer.unacked = Seen(consumer.unacked)
    actor.commits(*acks)
    assert [frame.command for frame in actor.frames()] == ["RECEIPT"]
    assert desk.broker.acknowledger.counters.acked == HELD
    assert seen.looks <= 6 * HELD


def test_commit_with_acks_of_stored_messages_is_recognized_in_any_order():
    desk, actor, acks = reader()
    desk.actor().sends("/queue/q", "stored", persistent="true")
    consumer = actor.consumer()
    consumer.options = evolve(consumer.options, prefetch_count=HELD + 1)
    consumer.count_left += 1
    desk.broker.queues.want(consumer)
    [last] = actor.reads()
    desk.is_prompt = False
    actor.commits(actor.acked(last), *acks[:2])
    assert actor.frames() == [], "it waits for the store"
    desk.answers()
    assert [frame.command for frame in actor.frames()] == ["RECEIPT"]


@pytest.mark.parametrize("how", ["abort", "refused"])
def test_aborted_acks_count_against_the_window_once(how: str):
    _, actor, acks = reader()
    consumer = actor.consumer()
    for ack in acks:
        actor.does(Received((), acked=(ack,)))
    assert len(consumer.excused) == HELD
    seen = consumer.excused = Seen(consumer.excused)
    acks = [*acks[:-1:2], acks[-1]]
    if how == "abort":
        actor.does(Received((), returned=acks))
    else:
        actor.commits(*acks, actor.acked("b.9-1"))
        assert actor.error().get("code") == "unknown-ack"
    assert consumer.excused == {}
    assert seen.looks <= 2 * HELD


def test_a_commit_may_have_needless_acks_and_outlive_its_client():
    desk = DurableBench()
    actor = desk.actor()
    actor.subscribes("/queue/q")
    tag = actor.client.subscriptions["0"].tag
    actor.commits(actor.acked(f"{tag}-1"), run_of(f"{PRIVATE_QUEUE}nobody", ["late"]))
    assert [frame.command for frame in actor.frames()] == ["RECEIPT"]
    assert desk.broker.fan_out.drops.no_subscriber == 1
