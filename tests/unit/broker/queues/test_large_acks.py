"""A cumulative ACK or NACK of very many messages is done in pieces, and never half undone."""

from collections.abc import Sequence

from tests.support.core import LOOK_S, Actor, Bench, numbered, run_of, texts
from tests.support.durable_fakes import DurableBench, answered
from tests.support.share_fakes import MOST, Clocked

SETTLED, WIDENED = 64, 128

HELD = 6000
ALL = numbered("", HELD)


def has(desk: Bench, persistent: str = "false") -> tuple[Actor, Sequence[str]]:
    """Return a client that has HELD messages of a queue unacknowledged, and their ids."""
    actor = desk.actor()
    actor.subscribes("/queue/q", ack="client", prefetch_count=f"{HELD}")
    sender = desk.actor()
    sender.sends("/queue/q", *ALL, persistent=persistent)
    desk.turn()
    desk.settles()
    frames = actor.writes()
    assert len(frames) == HELD
    return actor, [frame.get("ack") or "" for frame in frames]


def leaves(desk: Bench) -> None:
    """Let leaving clients finish."""
    while not desk.broker.is_finished:
        desk.passes(LOOK_S)


def settle(desk: Bench) -> int:
    """Let all be done; the most that was settled in one turn."""
    acks, most = desk.broker.acknowledger.counters, 0
    done = acks.acked + acks.nacked
    turns = 0
    while not turns or desk.broker.has_more or (isinstance(desk, DurableBench) and desk.turns):
        if isinstance(desk, DurableBench):
            desk.answers()
        else:
            desk.turn()
        most = max(most, acks.acked + acks.nacked - done)
        done = acks.acked + acks.nacked
        turns += 1
        assert turns < 10_000
    return most


def test_cumulative_frame_keeps_or_moves_newer_messages():
    for place in (HELD // 3, 2 * HELD // 3):
        desk = Clocked()
        actor, ids = has(desk)
        actor.acks(ids[place])
        settle(desk)
        consumer = actor.consumer()
        assert desk.broker.acknowledger.counters.acked == place + 1
        assert [each.body.decode() for each in consumer.unacked.values()] == ALL[place + 1 :]
        assert consumer.count_left == place + 1
        actor.acks(ids[-1])
        settle(desk)
        assert desk.broker.acknowledger.counters.acked == HELD


def test_a_run_is_done_up_to_its_faulty_frame(desk: Clocked):
    actor, ids = has(desk)
    last = ids[-1].rpartition("-")[0] + "-999999"
    actor.acks(ids[3], ids[2], last)  # the second is covered by the first
    settle(desk)
    assert desk.broker.acknowledger.counters.acked == 4
    leaves(desk)
    error = actor.writes()[-1]
    assert error.get("code") == "unknown-ack"
    assert desk.waiting("/queue/q") == ALL[4:]


def test_a_run_of_many_nacks_is_done_in_pieces_in_order(desk: Clocked):
    actor = desk.actor()
    actor.subscribes("/queue/q", ack="client-individual", prefetch_count=f"{HELD}")
    desk.actor().sends("/queue/q", *ALL[:3000])
    desk.settles()
    frames = actor.writes()
    actor.nacks(*frames, requeue=True)
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert texts(actor.writes()) == ALL[:3000]
    assert desk.broker.acknowledger.counters.nacked == 3000


def test_a_transaction_gives_each_of_its_acks_its_part(desk: Clocked):
    actor, ids = has(desk)
    other = desk.actor()
    half = HELD // 2
    actor.commits(
        actor.acked(ids[half - 1]),
        run_of("/queue/r", ["sent"]),
        actor.acked(ids[half], ids[10], negative=True, requeue=False),
        actor.acked(ids[-1]),
    )
    settle(desk)
    counts = desk.broker.acknowledger.counters
    assert (counts.acked, counts.nacked, counts.ignored) == (HELD - 1, 1, 1)
    other.subscribes("/queue/r")
    assert other.bodies() == ["sent"]
    assert [each.command for each in actor.writes()] == ["RECEIPT"]


def test_a_large_transaction_may_acknowledge_messages_one_by_one(desk: Clocked):
    actor, ids = has(desk)
    actor.subscribes("/queue/r", "r", ack="client-individual")
    actor.sends("/queue/r", "a", "b")
    desk.turn()
    a, b = actor.writes()
    tag = actor.client.subscriptions["r"].tag
    actor.subscribes("/queue/s", "s")
    unasked = f"{actor.client.subscriptions['s'].tag}-1"
    assert tag in (b.get("ack") or "")
    actor.commits(actor.acked(b), actor.acked(ids[-1], unasked), actor.acked(b))
    settle(desk)
    counts = desk.broker.acknowledger.counters
    assert (counts.acked, counts.ignored) == (HELD + 1, 2)
    left = [each.body for each in actor.consumer("r").unacked.values()]
    assert left == [b"a"]
    assert a.text == "a"


def test_charge_is_released_after_a_store_failure():
    desk = DurableBench(is_prompt=False)
    actor = desk.actor()
    actor.subscribes("/queue/q", ack="client", prefetch_count=f"{HELD}")
    desk.actor().sends("/queue/q", *ALL, persistent="true")
    desk.turn()
    answered(desk)
    frames = actor.writes()
    actor.commits(actor.acked(frames[-1]))
    desk.turn()
    assert desk.turns
    desk.fails()
    answered(desk)
    assert desk.broker.acknowledger.counters.acked == 0
    assert actor.writes()[-1].command == "ERROR"
    leaves(desk)
    assert desk.waiting("/queue/q") == ALL
