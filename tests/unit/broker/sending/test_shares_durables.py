"""A stored message for very many durable subscriptions: written and seen in pieces, as a whole."""

from itertools import pairwise

import pytest

from tests.support.core import Actor, run_of
from tests.support.durable_fakes import DurableBench
from tests.support.share_fakes import MOST, ClockedDurable
from trio_stomp.broker import BrokerPolicies, DestinationPolicy
from trio_stomp.broker.sending import _postponed
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Committed, Subscribed, Unsubscribed
from trio_stomp.store import Atomic

COUNT = 1400
"""Durable subscriptions: more than one turn writes copies for."""
SOME = 800
"""The same, in one turn more."""
TOPIC = "/topic/t"
KEPT = (("persistent", "true"),)
AMPLE = BrokerPolicies(max_subscriptions_per_connection=2 * COUNT, max_durables_per_user=2 * COUNT)


def settles(desk: ClockedDurable) -> None:
    while desk.broker.has_more or desk.turns:
        desk.answers()


def made(
    count: int = COUNT, *, book: dict[str, DestinationPolicy] | None = None, **headers: str
) -> tuple[ClockedDurable, Actor]:
    """Return a broker with durable subscriptions, and the client that has them all."""
    desk = ClockedDurable(policies=AMPLE, is_prompt=False, book=book or {})
    keeper = desk.actor()
    for n in range(count):
        pairs = (("durable-subscription-name", f"d{n}"), *headers.items())
        keeper.does(Subscribed(f"{n}", TOPIC, "client", pairs, None))
    settles(desk)
    return desk, keeper


def sent(text: str = "x", to: str = TOPIC, **headers: str) -> FrameRun:
    return run_of(to, [text], (*KEPT, *headers.items()), [(1, text.encode())])


def begun(desk: ClockedDurable, *events: FrameRun | Committed) -> Actor:
    """Some copies are written, and some are not."""
    busy = desk.actor()
    busy.does(*events)
    while not desk.log.is_writing:
        assert desk.broker.has_more
        desk.turn()
    desk.turn()
    assert desk.log.is_writing
    return busy


def held(desk: DurableBench) -> list[list[str]]:
    """Return the messages waiting for each durable subscription."""
    return [
        [message.body.decode() for message in binding.queue.waiting.in_order()]
        for binding in desk.broker.bindings.durables
    ]


def given(actor: Actor) -> dict[str, list[str]]:
    """Return the messages that each subscription of an actor received."""
    got: dict[str, list[str]] = {}
    for frame in actor.writes():
        if frame.command == "MESSAGE":
            got.setdefault(frame.get("subscription") or "", []).append(frame.text)
    return got


def receipts(actor: Actor) -> dict[str, dict[str, str]]:
    found = [dict(frame.headers) for frame in actor.writes() if frame.command == "RECEIPT"]
    return {each.pop("receipt-id"): each for each in found}


SENDS: dict[str, FrameRun | Committed] = {
    "send": sent("x"),
    "composite": sent("x", f"{TOPIC},/topic/other"),
    "commit": Committed([sent("x")], b"c"),
}


@pytest.mark.parametrize("kind", SENDS)
def test_copies_of_one_message_written_and_revealed_are_bounded_per_turn(kind: str):
    desk, keeper = made()
    keeper.outbox.is_logged = True
    busy, light = desk.actor(), desk.actor()
    busy.does(SENDS[kind])
    ids, turns = [desk.log.next_id], 0
    while not desk.turns:
        desk.turn()
        ids.append(desk.log.next_id)
        turns += 1
        light.sends("/queue/light", "x")
        assert len(desk.waiting("/queue/light")) == turns, "whoever else sends does not wait"
    assert ids[-1] - ids[0] >= COUNT - MOST * _postponed.STEP
    assert max(b - a for a, b in pairwise(ids)) <= MOST * _postponed.STEP < COUNT
    (turn,) = desk.turns
    (record,) = [each for each in turn.records if isinstance(each, Atomic)]
    assert len(record.records) >= COUNT, "all or nothing of it is stored"
    there = [0]
    while desk.turns or desk.broker.has_more:
        desk.answers()
        there.append(sum(map(len, held(desk))) + len(keeper.outbox.log))
    assert there[-1] == COUNT
    assert given(keeper) == {f"{n}": ["x"] for n in range(COUNT)}


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("k = 'v'", {"matched": f"{SOME + 1}", "stored": "memory"}),
        ("k = 'w'", {"matched": "1"}),
    ],
)
@pytest.mark.parametrize("to", [TOPIC, f"{TOPIC},/topic/other"])
def test_the_receipt_tells_how_many_match_and_whether_it_is_stored(
    to: str, text: str, reported: dict[str, str]
):
    desk, keeper = made(SOME, selector=text)
    desk.actor().subscribes(TOPIC)
    busy = desk.actor()
    busy.does(sent("x", to, k="v"))
    desk.turn()
    assert receipts(busy) == {}
    settles(desk)
    assert receipts(busy) == {"x": reported}
    assert sum(map(len, given(keeper).values())) == (SOME if "stored" in reported else 0)


def test_an_id_is_known_again_after_a_restart():
    desk, _ = made(SOME, book={TOPIC: DestinationPolicy(dedup_window=5)})
    headers = {"x-dedup-id": "1"}
    busy = begun(desk, sent("x", **headers))
    settles(desk)
    busy.does(sent("y", **headers))
    settles(desk)
    again = desk.restarts()
    late = again.actor()
    late.does(sent("z", **headers))
    while again.broker.has_more:
        again.turn()
    assert "duplicate" in receipts(busy)["y"]
    assert "duplicate" in receipts(late)["z"]
    assert again.store.statistics().live_messages == SOME + 1, "each has one, beside the id"


def test_messages_sent_meanwhile_have_the_same_order_for_all():
    desk, keeper = made(SOME)
    actor = desk.actor()
    actor.subscribes(TOPIC)
    begun(desk, sent("one"))
    other, late = desk.actor(), desk.actor()
    other.does(sent("two"))
    other.sends(TOPIC, "three")
    late.does(Subscribed("d", TOPIC, "client", (("durable-subscription-name", "late"),), None))
    assert not late.client.subscriptions, "it gets all of it, or nothing"
    settles(desk)
    assert actor.bodies() == ["one", "two", "three"]
    got = given(keeper)
    assert len(got) == SOME
    for place, waiting in enumerate(held(desk)[:SOME]):
        assert got[f"{place}"] + waiting == ["one", "two", "three"]


def test_message_of_a_lost_sender_is_completed_and_ended_subscribers_get_none():
    desk, keeper = made(SOME)
    keeper.is_gone()
    settles(desk)
    busy = begun(desk, sent())
    busy.is_gone()
    other = desk.actor()
    other.does(Unsubscribed(None, None, b"bye", (("durable-subscription-name", f"d{SOME - 1}"),)))
    settles(desk)
    assert len(desk.broker.bindings.durables) == SOME - 1
    assert busy.client not in desk.broker.clients
    there = held(desk)
    assert there == [["x"]] * len(there)
    again = desk.restarts()
    assert again.failures == []
    assert again.store.statistics().live_messages == len(there) == SOME - 1


def test_copies_that_do_not_fit_are_left_out():
    desk, keeper = made(SOME, book={TOPIC: DestinationPolicy(max_messages=1)})
    desk.actor().does(sent("one"))
    desk.turn()
    settles(desk)
    busy = desk.actor()
    busy.does(sent("two"))
    desk.turn()
    settles(desk)
    assert receipts(busy) == {"two": {"matched": f"{SOME}"}}
    assert given(keeper) == {f"{n}": ["one"] for n in range(SOME)}


def test_a_store_that_fails_meanwhile_has_nothing_of_it():
    desk, keeper = made(SOME)
    before = desk.memory.kept_bytes
    busy = begun(desk, sent())
    desk.fails()
    settles(desk)
    (error,) = busy.writes()
    assert (error.command, error.get("code"), error.get("receipt-id")) == ("ERROR", "storage", "x")
    assert given(keeper) == {}
    assert desk.memory.kept_bytes == before
    assert desk.store.statistics().live_messages == 0
    desk.actor().does(sent("next"))
    settles(desk)
    assert given(keeper) == {f"{n}": ["next"] for n in range(SOME)}


def test_it_is_refused_as_a_whole_after_earlier_replies():
    desk, keeper = made(SOME, book={"/queue/q": DestinationPolicy(max_messages=1)})
    busy = desk.actor()
    busy.does(sent("full", "/queue/q"), sent("x", f"{TOPIC},/queue/q"))
    desk.turn()
    settles(desk)
    first, error = busy.writes()
    assert (first.command, first.get("receipt-id")) == ("RECEIPT", "full")
    assert (error.get("code"), error.get("receipt-id")) == ("queue-full", "x")
    assert given(keeper) == {}
    assert not desk.broker.lines.busy


def due(count: int = COUNT, to: str = TOPIC, **headers: str) -> tuple[ClockedDurable, Actor]:
    """Return a broker with a scheduled message that is due now, and the client with the durable
    subscriptions."""
    desk, keeper = made(count, book={"/queue/q": DestinationPolicy(max_messages=1)})
    desk.actor().sends("/queue/q")  # it is full
    desk.actor().does(sent("x", to, AMQ_SCHEDULED_DELAY="1000", **headers))
    desk.turn()
    settles(desk)
    desk.actor().subscribes("/other/>")  # the topic's list of subscribers is out of date
    desk.now += 2
    desk.broker.tick(desk.now)
    return desk, keeper


def test_a_scheduled_message_is_written_in_pieces_and_seen_once():
    desk, keeper = due()
    ids = []
    while not desk.turns:
        desk.turn()
        ids.append(desk.log.next_id)
    assert len(ids) > 3
    assert max(b - a for a, b in pairwise(ids)) <= MOST * _postponed.STEP < COUNT
    settles(desk)
    assert given(keeper) == {f"{n}": ["x"] for n in range(COUNT)}
    again = desk.restarts()
    assert desk.broker.scheduler.waiting == again.broker.scheduler.waiting == 0
    assert again.store.statistics().live_messages == COUNT


def test_a_scheduled_message_is_sent_after_a_restart_if_its_record_was_not_written():
    desk, keeper = due(SOME)
    while not desk.log.is_writing:
        desk.turn()
    desk.turn()
    desk.fails()
    settles(desk)
    assert given(keeper) == {}
    again = desk.restarts()
    assert again.broker.scheduler.waiting == 1
    again.passes(2)
    while again.broker.has_more:
        again.turn()
    assert held(again) == [["x"]] * SOME


def test_a_repeated_message_for_many_is_sent_as_often_as_it_should_be():
    desk, keeper = due(SOME, AMQ_SCHEDULED_REPEAT="1", AMQ_SCHEDULED_PERIOD="1000")
    settles(desk)
    desk.now += 2
    desk.broker.tick(desk.now)
    settles(desk)
    assert given(keeper) == {f"{n}": ["x", "x"] for n in range(SOME)}
    assert not desk.broker.scheduler.waiting


def test_a_scheduled_message_that_is_refused_waits_as_a_whole():
    desk, keeper = due(SOME, f"{TOPIC},/queue/q")
    settles(desk)
    assert given(keeper) == {}
    assert desk.broker.scheduler.lost == 0
    assert desk.broker.scheduler.waiting == 1
    assert desk.restarts().broker.scheduler.waiting == 1


def test_scheduled_messages_for_many_wait_for_room_one_after_the_other():
    desk, keeper = made(SOME, book={"/queue/q": DestinationPolicy(max_messages=1)})
    desk.actor().sends("/queue/q", "full")
    desk.actor().sends(f"{TOPIC},/queue/q", "x", "y", persistent="true", AMQ_SCHEDULED_DELAY="1000")
    desk.turn()
    settles(desk)
    reader = desk.actor()
    desk.now += 2
    for body in ("full", "x", "y"):
        desk.now += 2
        desk.broker.tick(desk.now)
        settles(desk)
        reader.subscribes("/queue/q", "q")
        settles(desk)
        assert reader.bodies() == [body]
        reader.unsubscribes("q")
    assert given(keeper) == {f"{n}": ["x", "y"] for n in range(SOME)}
    assert desk.broker.scheduler.waiting == 0
    again = desk.restarts()
    assert again.broker.scheduler.waiting == 0
    assert again.store.statistics().live_messages == 2 * SOME
