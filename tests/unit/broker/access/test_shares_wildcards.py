"""Permission for a wildcard is looked up in pieces if there are many rules."""

import pytest

from tests.support.core import Actor
from tests.support.share_fakes import MOST, Clocked
from trio_stomp.broker import AccessRules, Action, Rule
from trio_stomp.broker.names import compile_pattern
from trio_stomp.protocol import Subscribed, Unsubscribed

MANY = 4_096
DURABLE = ("activemq.subscriptionName", "d")
USE = frozenset({Action.SEND, Action.RECEIVE, Action.CREATE})


def rules(last: str, *actions: Action) -> AccessRules:
    """MANY that are about something else, and one that allows some."""
    others = tuple(f"/topic/{number}.*" for number in range(MANY))
    allowed = frozenset(actions) or USE
    return AccessRules(
        (
            Rule(True, USE, others, ("anonymous",)),
            Rule(True, allowed, (last,), ("anonymous",)),
        )
    )


def subscribe(actor: Actor, destination: str, *headers: tuple[str, str]) -> None:
    """SUBSCRIBE, with a RECEIPT."""
    actor.does(Subscribed("1", destination, "auto", headers, b"r"))


def judged(last: str, *actions: Action) -> Clocked:
    desk = Clocked()
    desk.broker.use_rules(rules(last, *actions), lambda _: True, desk.now)
    desk.settles()
    desk.pieces.clear()
    return desk


@pytest.mark.parametrize(("destination", "is_allowed"), [("/topic/a.*", True), ("/topic/*", False)])
def test_a_wildcard_is_judged_in_pieces(destination: str, is_allowed: bool):
    desk = judged("/topic/a.**")
    actor, other = desk.actor(), desk.actor()
    subscribe(actor, destination)
    actor.sends("/topic/a.b", "behind it")
    other.sends("/topic/a.b", "beside it")
    desk.turn()
    assert actor.writes() == []
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert len(desk.pieces) > 3
    frames = actor.writes()
    if is_allowed:
        assert [each.command for each in frames] == ["RECEIPT", "MESSAGE"]
        assert frames[1].text == "behind it"
    else:
        assert [each.get("code") for each in frames] == ["not-authorized"]


def test_cached_permission_is_not_looked_up_again():
    desk = judged("/topic/a.**")
    desk.actor().subscribes("/topic/a.*", "1")
    assert desk.settles() > 3
    actor = desk.actor()
    subscribe(actor, "/topic/a.*")
    assert [each.command for each in actor.writes()] == ["RECEIPT"]


def test_client_that_left_meanwhile_is_not_subscribed():
    desk = judged("/topic/a.**")
    actor = desk.reader("/topic/a.*", "1")
    actor.is_gone()
    desk.settles()
    assert len(desk.broker.subscriptions) == 0
    assert desk.broker.destinations.wildcards == 0


def test_connected_clients_are_rechecked_in_pieces():
    desk = judged("/topic/a.**")
    actor = desk.reader("/topic/a.*", "1")
    desk.settles()
    desk.pieces.clear()
    desk.broker.use_rules(rules("/topic/b.**"), lambda _: True, desk.now)
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert actor.error().get("code") == "not-authorized"


def test_durable_subscriptions_to_wildcards_are_judged_in_pieces():
    desk = judged("/topic/a.**")
    actor = desk.actor()
    for _ in range(2):
        subscribe(actor, "/topic/a.*", DURABLE)
        desk.settles()
        assert [each.command for each in actor.writes()] == ["RECEIPT"]
        actor.unsubscribes("1")
        desk.settles()
    desk.broker.use_rules(rules("/topic/b.**"), lambda _: True, desk.now)
    desk.settles()
    desk.pieces.clear()
    actor.does(Unsubscribed("1", None, b"end", (DURABLE,)))
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert actor.error().get("code") == "unknown-subscription"


def test_two_may_end_a_durable_subscription_at_once():
    desk = judged("/topic/a.**")
    actor, other = desk.actor(), desk.actor()
    subscribe(actor, "/topic/a.*", DURABLE)
    desk.settles()
    actor.writes()
    desk.broker.use_rules(rules("/topic/a.**"), lambda _: True, desk.now)
    actor.does(Unsubscribed("1", None, b"1", (DURABLE,)))
    other.does(Unsubscribed(None, None, b"2", (DURABLE,)))
    assert len(desk.broker.bindings.durables) == 1
    desk.settles()
    assert len(desk.broker.bindings.durables) == 0
    assert [each.command for each in (*actor.writes(), *other.writes())] == ["RECEIPT"] * 2


def test_a_long_wildcard_is_remembered_as_others_are():
    desk = judged("/topic/**")
    rights = desk.actor().client.rights
    assert rights is not None
    written = f"/topic/{'x' * 900}.*"
    pattern = compile_pattern(written, "native")
    assert pattern is not None
    assert rights.is_long(Action.RECEIVE, pattern)
    assert len(list(rights.asking(Action.RECEIVE, written, pattern))) > MANY / 100
    assert not rights.is_long(Action.RECEIVE, pattern)
    assert rights.allows_pattern(Action.RECEIVE, written, pattern)
    assert rights._cached_chars <= 512 + len("/topic/")
