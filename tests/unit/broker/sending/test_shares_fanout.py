"""A SEND to very many: in pieces, and the order of its topic, and its RECEIPT, stay as they are."""

import pytest

from tests.support.core import Actor, OutboxFake, run_of, texts
from tests.support.share_fakes import MOST, Clocked, ClockedDurable
from trio_stomp.base._errors import ProtocolError
from trio_stomp.broker import BrokerPolicies, DestinationPolicy
from trio_stomp.broker.delivery import MANY_RECIPIENTS
from trio_stomp.broker.sending._duplicates import Duplicates
from trio_stomp.protocol import Committed, Subscribed, Unsubscribed

TOPIC = "/topic/t"
MANY = MANY_RECIPIENTS + 176
STEP = 4
"""So that they are many more pieces than fit into a turn."""


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trio_stomp.broker.routing._fanout_pieces.STEP", STEP)


def crowd(
    desk: Clocked | ClockedDurable,
    destination: str = TOPIC,
    count: int = MANY,
    ack: str = "auto",
    version: str = "1.2",
    **headers: str,
) -> Actor:
    """Return a client with ``count`` subscriptions."""
    reader = desk.actor(version)
    for number in range(count):
        reader.subscribes(destination, f"{number}", ack, **headers)
    while desk.broker.has_more:
        desk.turn()
    return reader


def bodies(actor: Actor, count: int = MANY) -> list[list[str]]:
    """Return the bodies that each of its subscriptions got."""
    frames = [each for each in actor.writes() if each.command == "MESSAGE"]
    got: dict[str, list[str]] = {f"{number}": [] for number in range(count)}
    for frame in frames:
        got[frame.get("subscription") or ""].append(frame.text)
    return list(got.values())


def receipt(actor: Actor) -> dict[str, str | None]:
    [frame] = [each for each in actor.writes() if each.command == "RECEIPT"]
    return {name: frame.get(name) for name in ("receipt-id", "matched", "stored")}


def given(reader: Actor) -> int:
    return len(reader.outbox.log)


@pytest.mark.parametrize("destination", [TOPIC, "/topic/*"])
@pytest.mark.parametrize("selector", ["", "n = '1'"])
def test_fanout_to_many_subscribers_is_bounded_per_turn(
    desk: Clocked, destination: str, selector: str
):
    reader = crowd(desk, destination, selector=selector)
    busy, light = desk.actor(), desk.actor()
    desk.pieces.clear()
    busy.sends(TOPIC, "a", "b", n="1", receipts=[(1, b"r")])
    busy.sends("/queue/b", "behind")
    light.sends("/queue/b", "light")
    assert 0 < given(reader) < MANY
    assert desk.waiting("/queue/b") == ["light"], "whoever else sends does not wait"
    assert desk.settles() > 1
    assert max(desk.pieces) <= MOST
    assert bodies(reader) == [["a", "b"]] * MANY
    assert receipt(busy)["matched"] == f"{MANY}"
    assert desk.waiting("/queue/b") == ["light", "behind"]
    assert desk.broker.fan_out.delivered == 2 * MANY
    assert not desk.broker.lines.busy


@pytest.mark.parametrize("no_local", ["false", "true"])
def test_without_much_to_do_it_is_done_at_once(monkeypatch: pytest.MonkeyPatch, no_local: str):
    monkeypatch.setattr("trio_stomp.broker.routing._fanout_pieces.STEP", MANY)
    monkeypatch.setattr("trio_stomp.broker.routing._recipients.STEP", MANY)
    desk = Clocked(policies=BrokerPolicies(explain_events=0))
    reader = crowd(desk, no_local=no_local)
    busy = desk.actor()
    busy.does(run_of(TOPIC, ["a"], (), [(1, b"r")]), run_of(TOPIC, ["b"]))
    assert not busy.client.is_blocked
    assert receipt(busy)["matched"] == f"{MANY}"
    assert bodies(reader) == [["a", "b"]] * MANY


def test_each_version_has_it_in_its_own_words(desk: Clocked):
    readers = [crowd(desk, version=version) for version in ("1.0", "1.1", "1.2")]
    desk.actor().sends(TOPIC, "a", n="x:y\\z")
    desk.settles()
    for reader in readers:
        frames = reader.writes()
        assert len(frames) == MANY
        assert {frame.get("n") for frame in frames} == {"x:y\\z"}


def test_later_messages_follow_a_fanout_in_pieces(desk: Clocked):
    reader = crowd(desk)
    busy, other = desk.actor(), desk.actor()
    other.sends(TOPIC, "due", AMQ_SCHEDULED_DELAY="1000")
    busy.sends(TOPIC, "first")
    other.sends(TOPIC, "second")
    desk.passes(2)
    desk.settles()
    got = bodies(reader)
    assert got == [got[0]] * MANY, "in the same order for all"
    assert got[0][0] == "first"
    assert sorted(got[0]) == ["due", "first", "second"]
    assert max(desk.pieces) <= MOST


def test_a_sender_does_not_continue_before_earlier_waiters_of_its_topic(desk: Clocked):
    reader = crowd(desk)
    busy, other = desk.actor(), desk.actor()
    busy.does(*[run_of(TOPIC, [f"{n}"], (("n", f"{n}"),)) for n in range(5)])
    other.sends(TOPIC, "other")
    desk.settles()
    got = bodies(reader)[0]
    assert got.index("other") < 4


@pytest.mark.parametrize("how", ["unsubscribes", "leaves", "feed"])
def test_subscriber_that_leaves_during_a_fanout_gets_no_more(desk: Clocked, how: str):
    reader = crowd(desk, ack="client" if how == "feed" else "auto", prefetch_count="1000")
    stays = crowd(desk)
    desk.actor().sends(TOPIC, "a")
    last = str(MANY - 1)
    if how == "leaves":
        desk.broker.leaving.slice_size = 1
        reader.is_gone()
    else:
        reader.does(Unsubscribed(last, None, None))
    desk.settles()
    got = bodies(reader)
    assert got[-1] == []
    assert got.count(["a"]) == (MANY - 1 if how != "leaves" else got.count(["a"])) < MANY
    assert bodies(stays) == [["a"]] * MANY


def test_subscriber_that_joins_during_a_fanout_gets_none_of_it():
    desk = Clocked()
    crowd(desk)
    busy, late = desk.actor(), desk.actor()
    busy.sends(TOPIC, "a", retain="set")
    late.does(Subscribed("0", TOPIC, "auto", (), b"late"))
    assert late.client in desk.broker.turns
    desk.settles()
    busy.sends(TOPIC, "b")
    desk.settles()
    assert [frame.command for frame in late.writes()] == ["RECEIPT", "MESSAGE", "MESSAGE"]


def test_a_run_for_queues_of_many_subscriptions_is_put_there_in_pieces(desk: Clocked):
    reader = crowd(desk, count=300, ack="client", prefetch_count="1000")
    sender = desk.actor()
    desk.pieces.clear()
    sender.sends(TOPIC, *"abcdefgh", receipts=[(8, b"r")])
    assert desk.settles() > 1
    assert max(desk.pieces) <= MOST
    assert bodies(reader, 300) == [[*"abcdefgh"]] * 300
    assert receipt(sender)["matched"] == "300"


def test_a_reader_that_is_too_slow_loses_it(desk: Clocked, monkeypatch: pytest.MonkeyPatch):
    reader = crowd(desk)
    monkeypatch.setattr(OutboxFake, "stage", lambda *_: False)
    monkeypatch.setattr(OutboxFake, "discard", lambda _: 0)
    desk.actor().sends(TOPIC, "a")
    desk.settles()
    assert desk.broker.fan_out.delivered == 0
    assert reader.client.is_refused


# Composite.

NAMES = tuple(f"/topic/n{number}" for number in range(30))


def test_a_composite_send_looks_for_its_recipients_and_gives_to_them_in_pieces():
    desk = Clocked(dialect="apollo")
    reader = crowd(desk, "/topic/*")
    sender = desk.actor()
    desk.pieces.clear()
    sender.sends(",".join((*NAMES, "/queue/q")), "a", receipts=[(1, b"r")])
    assert given(reader) == 0, "first all are looked for"
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert bodies(reader) == [["a"] * len(NAMES)] * MANY
    assert receipt(sender) == {
        "receipt-id": "r",
        "matched": str(MANY * len(NAMES)),
        "stored": "memory",
    }
    destinations = [desk.broker.destinations.open(name) for name in NAMES]
    assert len({id(destination.subscribers) for destination in destinations}) == 1, (
        "topics of the same share them"
    )


@pytest.mark.parametrize("comes", [False, True])
def test_a_composite_send_gets_on_though_others_come_and_go(comes: bool):
    desk = Clocked(dialect="apollo")
    reader = crowd(desk, "/topic/*", MANY + 20)
    sender, churner = desk.actor(), desk.actor()
    churner.subscribes("/few/x")
    sender.sends(",".join((*NAMES, "/few/x")), "a", receipts=[(1, b"r")])
    for number in range(20):
        if comes:
            churner.subscribes(f"/other/{number}/*", f"c{number}")
        else:
            reader.does(Unsubscribed(f"{MANY + number}", None, None))
        desk.turn()
    desk.settles()
    assert bodies(reader, MANY + 20)[:MANY] == [["a"] * len(NAMES)] * MANY
    assert receipt(sender)["receipt-id"] == "r"


def test_a_topic_that_is_forgotten_while_others_are_looked_for_is_made_again():
    desk = Clocked(dialect="apollo")
    reader = crowd(desk, "/topic/*")
    one, two = desk.actor(), desk.actor()
    one.sends(",".join(("/topic/n0", TOPIC)), "a")
    two.sends(",".join(("/topic/n0", "/topic/n1")), "b")
    assert two.client in desk.broker.turns
    desk.broker.destinations.forget_new()
    desk.settles()
    got = bodies(reader)
    assert got == [got[0]] * MANY
    assert sorted(got[0]) == ["a", "a", "b", "b"]


def test_a_composite_send_that_does_not_fit_is_nowhere():
    desk = Clocked(book={"/queue/q": DestinationPolicy(max_messages=1)}, dialect="apollo")
    reader = crowd(desk)
    sender = desk.actor()
    sender.sends("/queue/q", "before")
    sender.sends(f"{TOPIC},/queue/q", "a", receipts=[(1, b"r")])
    desk.settles()
    assert sender.error().get("receipt-id") == "r"
    assert given(reader) == 0


def test_a_composite_send_that_is_refused_half_way_reaches_no_subscriber(
    monkeypatch: pytest.MonkeyPatch,
):
    desk = Clocked(dialect="apollo")
    reader = crowd(desk)
    sender = desk.actor()
    rooms: list[str] = []

    def check_room(*args: object) -> None:
        rooms.append("room")
        if len(rooms) == 2:
            raise ProtocolError("memory-limit", "no room for an id")

    monkeypatch.setattr(Duplicates, "check_room", check_room)
    sender.sends(f"{TOPIC},/topic/u", "a", x_dedup_id="i")
    assert sender.error().get("code") == "memory-limit"
    desk.actor().sends(TOPIC, "b")
    desk.settles()
    assert bodies(reader) == [["b"]] * MANY


# Messages other than a client's immediate SEND.


def test_due_message_for_many_subscribers_is_delivered_in_pieces(desk: Clocked):
    reader = crowd(desk)
    desk.actor().sends(TOPIC, "due", AMQ_SCHEDULED_DELAY="1000")
    desk.pieces.clear()
    desk.passes(2)
    assert given(reader) < MANY
    reader.does(Unsubscribed(f"{MANY - 1}", None, None))
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert bodies(reader) == [*[["due"]] * (MANY - 1), []]
    assert desk.memory.kept_bytes == 0


def test_subscribers_at_a_messages_turn_receive_it(desk: Clocked):
    reader = crowd(desk)
    busy, other = desk.actor(), desk.actor()
    other.sends(TOPIC, "due", AMQ_SCHEDULED_DELAY="1")
    busy.sends(TOPIC, "first")
    desk.broker.tick(desk.now + 1)
    reader.does(Unsubscribed("0", None, None))
    desk.settles()
    assert bodies(reader)[1:] == [["first", "due"]] * (MANY - 1)


def test_a_commit_gives_each_of_its_messages_in_pieces(desk: Clocked):
    reader = crowd(desk, selector="n = '1'")
    busy = desk.actor()
    desk.pieces.clear()
    busy.does(Committed([run_of(TOPIC, [each], (("n", "1"),)) for each in "ab"], b"done"))
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert bodies(reader) == [["a", "b"]] * MANY
    assert receipt(busy)["receipt-id"] == "done"


def test_a_commit_to_new_topics_looks_for_recipients_in_pieces():
    desk = Clocked(dialect="apollo")
    reader = crowd(desk, "/topic/*")
    busy = desk.actor()
    desk.pieces.clear()
    busy.does(Committed([run_of(",".join(NAMES), ["a"])], b"done"))
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert bodies(reader) == [["a"] * len(NAMES)] * MANY


def test_a_commit_of_a_long_run_to_few_queues_is_done_in_pieces(desk: Clocked):
    reader = crowd(desk, count=60, ack="client", prefetch_count="1000")
    busy = desk.actor()
    desk.pieces.clear()
    busy.does(Committed([run_of(TOPIC, [*"a" * 20]), run_of(TOPIC, ["b"])], b"done"))
    assert desk.settles() > 1
    assert bodies(reader, 60) == [[*"a" * 20, "b"]] * 60


def test_stored_message_is_delivered_in_pieces():
    desk = ClockedDurable(is_prompt=False)
    reader = crowd(desk)
    keeper = desk.actor()
    keeper.does(Subscribed("d", TOPIC, "client", (("durable-subscription-name", "d"),), None))
    while desk.turns or desk.broker.has_more:
        desk.answers()
    busy = desk.actor()
    busy.sends(TOPIC, "a", persistent="true", receipts=[(1, b"r")])
    desk.turn()
    desk.answers()
    assert given(reader) < MANY
    busy.sends(TOPIC, "b")
    while desk.turns or desk.broker.has_more:
        desk.answers()
    assert bodies(reader) == [["a", "b"]] * MANY
    assert texts(keeper.writes()) == ["a", "b"]


@pytest.mark.parametrize("is_due", [False, True])
def test_durable_message_without_a_store_is_delivered_in_pieces(is_due: bool):
    desk = ClockedDurable()
    reader = crowd(desk)
    busy = desk.actor()
    headers = (("persistent", "true"), *((("AMQ_SCHEDULED_DELAY", "1000"),) if is_due else ()))
    busy.does(run_of(TOPIC, ["a"], headers))
    desk.turn()
    desk.passes(2)
    desk.turn()
    while desk.broker.has_more:
        desk.turn()
    assert bodies(reader) == [["a"]] * MANY
