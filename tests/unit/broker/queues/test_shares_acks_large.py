"""A cumulative ACK or NACK of very many messages is done in pieces, and never half undone."""

from collections.abc import Generator, Sequence
from itertools import pairwise

import pytest

from tests.support.core import Actor, Bench, numbered, run_of, texts
from tests.support.durable_fakes import DurableBench
from tests.support.share_fakes import MOST, STEP_S, Clocked, ClockedDurable
from trio_stomp.base._errors import CloseReason, ProtocolError
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.delivery._turns import SHARE_S
from trio_stomp.broker.queues._consumer import WIDENED
from trio_stomp.broker.queues._settlement import SETTLED, claim_all
from trio_stomp.protocol import Received

HELD = 6000
ALL = numbered("", HELD)
TIMEOUT_S = 5.0
PIECES = round(2 * SHARE_S / STEP_S) + 2
BOOK = {"/queue/q": DestinationPolicy(ack_timeout_ms=round(1000 * TIMEOUT_S))}


def has(desk: Bench, persistent: str = "false") -> tuple[Actor, Sequence[str]]:
    """Return a client that has HELD messages of a queue unacknowledged, and their ids."""
    actor = desk.actor()
    actor.subscribes("/queue/q", ack="client", prefetch_count=f"{HELD}")
    sender = desk.actor()
    sender.sends("/queue/q", *ALL, persistent=persistent)
    desk.turn()
    while desk.broker.has_more:
        desk.turn()
    frames = actor.writes()
    assert len(frames) == HELD
    return actor, [frame.get("ack") or "" for frame in frames]


def leaves(desk: Bench) -> None:
    """Let leaving clients finish."""
    while not desk.broker.is_finished:
        desk.passes(STEP_S)


def settle(desk: Bench) -> int:
    """Let all be done; the most that was settled in one turn."""
    acks, most = desk.broker.acks, 0
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


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("how", ["frame", "commit", "stored"])
def test_messages_settled_by_an_ack_are_bounded_per_turn(how: str, negative: bool):
    desk: Bench = ClockedDurable() if how == "stored" else Clocked()
    actor, ids = has(desk, "true" if how == "stored" else "false")
    if isinstance(desk, DurableBench):
        desk.is_prompt = False
    event = actor.acked(ids[-1], negative=negative, receipts=[(1, b"r")])
    if how == "frame":
        actor.does(event)
    else:
        actor.commits(event)
    assert settle(desk) <= MOST * SETTLED
    counts = desk.broker.acks
    assert (counts.nacked if negative else counts.acked) == HELD
    frames = actor.writes()
    assert [each.command for each in frames].count("RECEIPT") == 1
    again = texts([each for each in frames if each.command == "MESSAGE"])
    assert again == (ALL if negative else [])
    assert desk.queue("/queue/q").unacked == (HELD if negative else 0)
    assert actor.consumer().count_left == (0 if negative else HELD)
    if isinstance(desk, DurableBench) and not negative:
        assert desk.restarts().waiting("/queue/q") == []


def test_cumulative_frame_keeps_or_moves_newer_messages():
    for place in (HELD // 3, 2 * HELD // 3):
        desk = Clocked()
        actor, ids = has(desk)
        actor.acks(ids[place])
        settle(desk)
        consumer = actor.consumer()
        assert desk.broker.acks.acked == place + 1
        assert [each.message.body.decode() for each in consumer.unacked.values()] == ALL[
            place + 1 :
        ]
        assert consumer.count_left == place + 1
        actor.acks(ids[-1])
        settle(desk)
        assert desk.broker.acks.acked == HELD


def test_later_messages_wait_until_all_returned_ones_are_back(desk: Clocked):
    actor, ids = has(desk)
    other = desk.actor()
    actor.nacks(ids[-1])
    other.subscribes("/queue/q", ack="client", prefetch_count="3")
    desk.actor().sends("/queue/q", "behind")
    desk.turn()
    assert 0 < desk.broker.acks.nacked < HELD
    assert other.writes() == actor.writes() == []
    settle(desk)
    given = texts(other.writes()) + texts(actor.writes())
    assert given[:3] == sorted(given[:3], key=int), "in order"
    assert given[-1] == "behind" or "behind" not in given
    assert sorted(given, key=[*ALL, "behind"].index)[:HELD] == ALL


def test_half_settled_acks_do_not_time_out_and_later_frames_wait():
    desk = Clocked(book=BOOK)
    actor, ids = has(desk)
    actor.does(actor.acked(ids[-1]), run_of("/queue/later", ["x"]))
    desk.turn()
    assert 0 < desk.broker.acks.acked < HELD
    assert desk.waiting("/queue/later") == []
    desk.passes(2 * TIMEOUT_S)
    settle(desk)
    assert desk.broker.acks.acked == HELD
    assert desk.broker.acks.redelivered == 0
    assert desk.waiting("/queue/later") == ["x"]


@pytest.mark.parametrize("how", ["gone", "refused"])
@pytest.mark.parametrize("what", ["ack", "nack", "commit"])
def test_client_that_leaves_half_way_loses_and_repeats_nothing(desk: Clocked, how: str, what: str):
    actor, ids = has(desk)
    event = actor.acked(ids[HELD // 2 - 1], negative=what == "nack")
    if what == "commit":
        actor.commits(event)
    else:
        actor.does(event)
    desk.turn()
    assert 0 < desk.broker.acks.acked + desk.broker.acks.nacked < HELD // 2
    if how == "gone":
        actor.is_gone()
    else:
        error = ProtocolError("slow", "too slow", reason=CloseReason.SLOW_CONSUMER)
        desk.broker.refuse(actor.client, error, desk.now)
    settle(desk)
    leaves(desk)
    left = ALL if what == "nack" else ALL[HELD // 2 :]
    assert desk.waiting("/queue/q") == left
    assert desk.broker.acks.acked == (0 if what == "nack" else HELD // 2)
    assert desk.queue("/queue/q").unacked == 0


def test_charge_is_released_after_a_bug(desk: Clocked):
    actor, ids = has(desk)
    [claim], error = claim_all(
        desk.broker.acknowledger, actor.client, [actor.acked(ids[-1], negative=True)]
    )
    assert error is None
    work = claim.all_of_it(desk.now)
    assert isinstance(work, Generator)
    while not desk.broker.acks.nacked:
        next(work)
    assert desk.broker.queues.frozen
    work.close()
    assert not desk.broker.queues.frozen
    assert desk.waiting("/queue/q") == ALL
    assert desk.queue("/queue/q").unacked == 0


def test_claimed_deliveries_are_not_found_by_message_id(desk: Clocked):
    actor = desk.actor()
    actor.subscribes("/queue/plain", "plain")
    actor.subscribes("/queue/q", ack="client")
    actor.sends("/queue/plain", "a")
    actor.sends("/queue/q", "b", "c", "d", "e")
    plain, *frames = actor.reads()
    ids = [frame.get("message-id") or "" for frame in frames]
    acknowledger = desk.broker.acknowledger
    [first], _ = claim_all(acknowledger, actor.client, [actor.acked(frames[0])])
    actor.acks(plain.get("message-id") or "")  # the client's first ACK by message id
    event = acknowledger.resolve(actor.client, actor.acked(ids[1]))
    [second], _ = claim_all(acknowledger, actor.client, [event])
    for id in ids[:2]:
        actor.acks(id)
    for claim in (second, first):
        for _ in claim.all_of_it(desk.now):
            pass
    actor.acks(ids[3])
    assert actor.reads() == []
    assert (desk.broker.acks.acked, desk.broker.acks.ignored) == (4, 3)
    assert actor.client.lent == {}


def test_a_run_is_done_up_to_its_faulty_frame(desk: Clocked):
    actor, ids = has(desk)
    last = ids[-1].rpartition("-")[0] + "-999999"
    actor.acks(ids[3], ids[2], last)  # the second is covered by the first
    settle(desk)
    assert desk.broker.acks.acked == 4
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
    assert desk.broker.acks.nacked == 3000


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
    counts = desk.broker.acks
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
    counts = desk.broker.acks
    assert (counts.acked, counts.ignored) == (HELD + 1, 2)
    left = [each.message.body for each in actor.consumer("r").unacked.values()]
    assert left == [b"a"]
    assert a.text == "a"


def test_charge_is_released_after_a_store_failure():
    desk = ClockedDurable(is_prompt=False)
    actor = desk.actor()
    actor.subscribes("/queue/q", ack="client", prefetch_count=f"{HELD}")
    desk.actor().sends("/queue/q", *ALL, persistent="true")
    desk.turn()
    while desk.turns or desk.broker.has_more:
        desk.answers()
    frames = actor.writes()
    actor.commits(actor.acked(frames[-1]))
    desk.turn()
    assert desk.turns
    desk.fails()
    while desk.turns or desk.broker.has_more:
        desk.answers()
    assert desk.broker.acks.acked == 0
    assert actor.writes()[-1].command == "ERROR"
    leaves(desk)
    assert desk.waiting("/queue/q") == ALL


def test_messages_added_to_a_transaction_by_an_ack_are_bounded_per_turn():
    """The largest window, 65,535 deliveries, took one step of 9 to 10 ms."""
    desk = Clocked(book=BOOK)
    actor, ids = has(desk)
    consumer = actor.consumer()
    desk.actor().sends("/queue/q", "behind")
    acked = actor.acked(ids[-1])
    seen = [0]

    actor.does(Received([(1, b"bound")], acked=(acked,)), Received([], returned=(acked,)))
    seen.append(len(consumer.excused))
    while desk.broker.has_more:
        desk.turn()
        seen.append(len(consumer.excused))
    assert max(abs(after - before) for before, after in pairwise(seen)) <= PIECES * WIDENED
    frames = actor.writes()
    assert [each.command for each in frames] == ["RECEIPT", "MESSAGE"], "it filled no window"
    assert consumer.excused == {}
    assert (consumer.count_left, len(consumer.unacked)) == (-1, HELD + 1)


@pytest.mark.parametrize("is_freed", [False, True])
def test_message_that_times_out_meanwhile_is_not_in_the_transaction(is_freed: bool):
    desk = Clocked(book=BOOK)
    actor, ids = has(desk)
    consumer = actor.consumer()
    acked = actor.acked(ids[-1])
    works = [desk.broker.acknowledger.binding(actor.client, (acked,), ())]
    if is_freed:
        list(works.pop())
        works.append(desk.broker.acknowledger.binding(actor.client, (), (acked,)))
    next(works[0])
    gone = next(iter(consumer.unacked))
    assert not any(desk.broker.acknowledger.timing_out(consumer, [gone], desk.now))
    list(works[0])
    assert len(consumer.unacked) == HELD - 1
    assert len(consumer.excused) == (0 if is_freed else HELD - 1)
    assert consumer.count_left == (1 if is_freed else HELD)
