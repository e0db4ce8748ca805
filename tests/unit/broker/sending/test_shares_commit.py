"""A COMMIT of SENDs to many selectors, which are evaluated in pieces before it is carried out."""

import pytest

from tests.support.core import Actor, Bench, run_of, texts
from tests.support.share_fakes import MOST, Clocked, ClockedDurable
from trio_stomp.broker import AccessRules
from trio_stomp.broker.delivery._delivery import NEVER, Publication
from trio_stomp.broker.routing import _transaction_matches
from trio_stomp.broker.rules._rules import Action, Rule
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Committed, Subscribed

TOPIC = "/topic/s"
ASKED = 60
"""Selectors, each of which takes a piece of work to ask."""
BLOCKS = 40


def asked(desk: Bench) -> list[Actor]:
    """Return ASKED subscribers to TOPIC with a selector each. The even ones select k = 'v'."""
    actors = [desk.actor() for _ in range(ASKED)]
    for number, actor in enumerate(actors):
        actor.subscribes(TOPIC, selector=f"k = '{'vw'[number % 2]}' AND x <> 'x{number}'")
    return actors


def receipts(actor: Actor) -> list[str]:
    return [frame.get("receipt-id") or "" for frame in actor.frames() if frame.command == "RECEIPT"]


def wanted(*destinations: str, **headers: str) -> list[FrameRun]:
    """Return BLOCKS messages with different header blocks. asked() selects every other one."""
    return [
        run_of(name, [f"{n}"], (("k", "vw"[n % 2]), ("x", f"{n}"), *headers.items()))
        for n in range(BLOCKS)
        for name in destinations
    ]


def takes(number: int) -> list[str]:
    return [f"{n}" for n in range(BLOCKS) if n % 2 == number % 2]


@pytest.mark.parametrize("escaped", ["plain", "with\nline"])
def test_selectors_are_asked_about_a_commit_in_pieces_before_any_of_it_is_seen(
    desk: Clocked, escaped: str
):
    actors = asked(desk)
    plain, busy, other, late = [desk.actor() for _ in range(4)]
    plain.subscribes(TOPIC)
    desk.settles()
    busy.does(Committed(wanted(TOPIC, esc=escaped), b"done"), run_of("/queue/q", ["behind"]))
    desk.turn()
    other.sends("/queue/q", "other")
    assert desk.waiting("/queue/q") == ["other"], "whoever else sends does not wait"
    turns = 0
    while desk.broker.has_more:
        if turns == 10:
            actors[0].unsubscribes()
            late.subscribes(TOPIC, selector="k = 'v' AND x <> 'late'")
        if busy.client in desk.broker.turns and not desk.broker.lines.busy:
            assert all(actor.outbox.log == [] for actor in actors), (
                "nobody sees a part of it before"
            )
        desk.turn()
        turns += 1
    assert turns > 10
    assert max(desk.pieces) <= MOST
    assert texts(actors[0].reads()) == []
    assert [texts(actor.reads()) for actor in actors[1:]] == [takes(n) for n in range(1, ASKED)]
    assert texts(late.reads()) == takes(0)
    assert texts(plain.reads()) == [f"{n}" for n in range(BLOCKS)]
    assert receipts(busy) == ["done"]
    drained = desk.actor()
    drained.subscribes("/queue/q")
    desk.settles()
    assert desk.memory.kept_bytes == 0


def test_a_commit_to_more_recipients_than_are_remembered_is_done_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(_transaction_matches, "MAX_REMEMBERED", 3 * ASKED)
    desk = Clocked()
    actors = asked(desk)
    busy = desk.actor()
    busy.does(Committed([*wanted(TOPIC), *wanted(TOPIC)], b"done"))
    desk.settles()
    assert [texts(actor.reads()) for actor in actors] == [2 * takes(n) for n in range(ASKED)]
    assert desk.memory.kept_bytes == 0


def test_commit_in_turns_is_authorized_beforehand(desk: Clocked):
    actors = [desk.actor() for _ in range(ASKED)]
    for number, actor in enumerate(actors):
        selector = f"k = '{'vw'[number % 2]}' AND x <> 'x{number}'"
        actor.subscribes("#w", None, selector=selector)
    desk.settles()
    busy = desk.actor()
    busy.does(Committed([*wanted("#w"), run_of("/topic/none", ["x"])], b"done"))
    desk.settles()
    got = [texts(actor.reads()) for actor in actors]
    given = [int(body) for bodies in got for body in bodies]
    assert sorted(given) == list(range(BLOCKS))
    assert max(map(len, got)) <= 2
    assert max(desk.pieces) <= MOST


def test_selectors_are_asked_about_a_stored_commit_once(monkeypatch: pytest.MonkeyPatch):
    desk = ClockedDurable(is_prompt=False)
    actors = asked(desk)
    keeper = desk.actor()
    keeper.does(Subscribed("d", TOPIC, "client", (("durable-subscription-name", "d"),), None))
    while desk.turns or desk.broker.has_more:
        desk.answers()
    busy = desk.actor()
    busy.does(Committed(wanted(TOPIC, persistent="true"), b"done"))
    while busy.client in desk.broker.turns:
        desk.turn()
    for actor in actors:
        selector = actor.client.subscriptions["0"].selector
        assert selector is not None
        monkeypatch.setattr(selector, "_run", lambda _: 1 / 0)
    late = desk.actor()
    late.subscribes(TOPIC, selector="k = 'v' AND x <> 'late'")
    actors[0].unsubscribes()
    assert [actor.writes() for actor in actors] == [[]] * ASKED, "none before it is safe"
    desk.answers()
    while desk.broker.has_more:
        desk.turn()
    assert texts(actors[0].writes()) == []
    assert [texts(actor.writes()) for actor in actors[1:]] == [takes(n) for n in range(1, ASKED)]
    assert texts(late.writes()) == takes(0)
    assert receipts(busy) == ["done"]


@pytest.mark.parametrize("names", [(TOPIC,), (TOPIC, "/topic/none")])
def test_rights_that_change_while_selectors_are_asked_hold_for_all_of_a_commit(
    desk: Clocked,
    names: tuple[str, ...],
):
    asked(desk)
    busy = desk.actor()
    first, *others = wanted(TOPIC)
    busy.does(Committed([first, run_of("/topic/none", ["x"]), *others], b"done"))
    for _ in range(10):
        desk.turn()
    assert busy.client in desk.broker.turns
    is_allowed = len(names) > 1
    no = Rule(is_allowed, frozenset(Action), ("/topic/none",), ("anonymous",))
    rules = AccessRules((no, Rule(True, frozenset(Action), ("**",), ("anonymous",))))
    desk.broker.use_rules(rules, lambda _: True, desk.now)
    desk.settles()
    answers = [(frame.command, frame.get("code")) for frame in busy.frames()]
    assert answers == [("RECEIPT", None) if is_allowed else ("ERROR", "not-authorized")]
    sent = desk.broker.destinations.open(TOPIC).enqueued
    assert sent == (BLOCKS if is_allowed else 0), "nothing is done before the one refused"


def test_answer_for_one_header_block_is_not_used_for_another(desk: Clocked):
    asked(desk)
    destination = desk.broker.destinations.open(TOPIC)
    values, other = (run_of(TOPIC, ["x"], (("k", k),)).head for k in "vw")
    result = _transaction_matches.Matches(
        values, _transaction_matches.Evaluated(destination.filtered), []
    )
    assert (
        result.among(destination.filtered, Publication(destination, values, [b"x"], 0.0, NEVER))
        == []
    )
    assert (
        result.among(destination.filtered, Publication(destination, other, [b"x"], 0.0, NEVER))
        is destination.filtered
    )
