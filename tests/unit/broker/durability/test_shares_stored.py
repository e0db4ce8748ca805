"""Answers of the store take effect in pieces, too, and the state held until then is bounded."""

from itertools import pairwise

import pytest

from tests.support.core import Actor, run_of, texts
from tests.support.share_fakes import MOST, ClockedDurable
from trio_stomp.broker.selectors._selector import Selector
from trio_stomp.broker.sending import _postponed
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Committed, Subscribed, Unsubscribed

TOPIC = "/topic/t"
TAKERS = 20
RUNS = 200
ALL = [f"{n}" for n in range(RUNS)]


def made(*selectors: str) -> tuple[ClockedDurable, list[Actor]]:
    """A broker with a durable subscription, and TAKERS subscribers for each selector."""
    desk = ClockedDurable(is_prompt=False)
    actors = [desk.actor() for _ in range(TAKERS * max(1, len(selectors)))]
    for number, actor in enumerate(actors):
        headers = {"selector": selectors[number // TAKERS]} if selectors else {}
        actor.subscribes(TOPIC, **headers)
        actor.subscribes("/topic/u", "u")
    keeper = desk.actor()
    keeper.does(Subscribed("d", TOPIC, "client", (("durable-subscription-name", "d"),), None))
    while desk.turns or desk.broker.has_more:
        desk.answers()
    keeper.is_gone()
    desk.turn()
    return desk, actors


def runs(count: int = RUNS) -> list[FrameRun]:
    headers = (("persistent", "true"), ("k", "v"))
    return [run_of(TOPIC, [f"{n}"], (*headers, ("n", f"{n}"))) for n in range(count)]


def sent(desk: ClockedDurable, sender: Actor, *events: FrameRun | Committed) -> None:
    """It has been written, and the store has not answered."""
    sender.does(*events)
    desk.turn()
    while desk.broker.has_more:
        desk.turn()


def settles(desk: ClockedDurable) -> None:
    while desk.broker.has_more or desk.turns:
        desk.answers()


def given(actors: list[Actor]) -> int:
    return sum(len(actor.outbox.log) for actor in actors)


@pytest.mark.parametrize("kind", ["sends", "commit"])
def test_deliveries_after_a_store_answer_are_bounded_per_turn(kind: str):
    desk, actors = made()
    busy, other, light = desk.actor(), desk.actor(), desk.actor()
    if kind == "sends":
        sent(desk, busy, *runs())
    else:
        sent(desk, busy, Committed(runs(), b"done"))
    other.sends(TOPIC, "other", persistent="true")
    busy.sends("/topic/u", "behind")
    assert given(actors) == 0
    copies = [0]
    turns = 0
    while desk.turns or len(desk.broker.turns) or desk.broker.durability.has_more:
        desk.answers()
        copies.append(given(actors))
        turns += 1
        light.sends("/queue/light", "x")
        assert len(desk.waiting("/queue/light")) == turns, "whoever else sends does not wait"
        assert turns < 500
    most = max(after - before for before, after in pairwise(copies))
    assert most <= MOST * TAKERS < copies[-1] == (RUNS + 2) * TAKERS
    for actor in actors:
        frames = [frame for frame in actor.writes() if frame.command == "MESSAGE"]
        assert texts(frames) in ([*ALL, "other", "behind"], [*ALL, "behind", "other"])
    if kind == "commit":
        assert [frame.get("receipt-id") for frame in busy.writes()] == ["done"]
    assert not desk.broker.lines.busy


def test_confirmed_messages_of_a_lost_client_are_delivered():
    desk, actors = made()
    busy = desk.actor()
    sent(desk, busy, Committed(runs(), b"done"))
    desk.answers()
    assert desk.broker.lines.busy
    busy.is_gone()
    actors[0].does(Unsubscribed("0", None, b"bye"))
    settles(desk)
    assert [texts(actor.writes()) for actor in actors[1:]] == [ALL] * (TAKERS - 1)
    assert busy.client not in desk.broker.clients


@pytest.mark.parametrize("works", [True, False])
@pytest.mark.parametrize("kind", ["sends", "commit"])
def test_selector_results_are_charged_until_the_store_has_answered(kind: str, works: bool):
    desk, actors = made("k = 'v'", "k = 'w'")
    busy = desk.actor()
    before = desk.memory.kept_bytes
    events = runs(5)
    if kind == "sends":
        sent(desk, busy, *events)
        bound = 5 * 2 * _postponed.ANSWER_BYTES
    else:
        sent(desk, busy, Committed(events, b"done"))
        bound = 8 * (2 * TAKERS + 5 * TAKERS)
    held = desk.memory.kept_bytes
    assert held >= before + bound
    if works:
        settles(desk)
        assert [texts(actor.reads()) for actor in actors[:TAKERS]] == [ALL[:5]] * TAKERS
    else:
        desk.fails()
        assert given(actors) == 0
    assert desk.broker.publisher.postponed.remembered == 0
    assert desk.memory.kept_bytes <= held - bound


def test_selectors_whose_answers_are_too_many_are_asked_again_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(_postponed, "MAX_REMEMBERED", 3)
    desk, actors = made("k = 'v'", "k = 'w'")
    busy = desk.actor()
    sent(desk, busy, *runs(4))
    assert desk.broker.publisher.postponed.remembered == 2, "of the first alone"
    late = desk.actor()
    late.subscribes(TOPIC, selector="k = 'v'")
    settles(desk)
    assert [texts(actor.reads()) for actor in actors[:TAKERS]] == [ALL[:4]] * TAKERS
    assert given(actors[TAKERS:]) == 0
    assert late.bodies() == ALL[:4]
    assert desk.broker.publisher.postponed.remembered == 0


def test_a_stored_commit_looks_at_no_subscriber_when_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
):
    desk = ClockedDurable(is_prompt=False)
    actors = [desk.actor() for _ in range(TAKERS)]
    for actor in actors:
        actor.subscribes(TOPIC, selector="k = 'v'")
    stored = run_of("/queue/q", ["x"], (("persistent", "true"),))
    busy = desk.actor()
    asked = 0
    matches = Selector.matches

    def counted(self: Selector, headers: object) -> bool:
        nonlocal asked
        asked += 1
        return matches(self, headers)  # type: ignore[arg-type]

    monkeypatch.setattr(Selector, "matches", counted)
    sent(desk, busy, Committed([*runs(), stored], b"done"))
    assert 0 < asked <= RUNS * TAKERS, "each is asked once, beforehand"
    settles(desk)
    assert [texts(actor.writes()) for actor in actors] == [ALL] * TAKERS


def test_transient_messages_appear_with_the_stored_ones_of_their_commit():
    desk, actors = made()
    busy = desk.actor()
    stored = run_of("/queue/q", ["x"], (("persistent", "true"),))
    sent(desk, busy, Committed([run_of(TOPIC, ["transient"]), stored], b"done"))
    assert given(actors) == 0
    settles(desk)
    assert [texts(actor.writes()) for actor in actors] == [["transient"]] * TAKERS
    assert desk.waiting("/queue/q") == ["x"]
