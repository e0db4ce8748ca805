"""Explain tells the truth: different outcomes, the deciding rule, the user and the place."""

from typing import Any

import pytest

from tests.support.core import Core, Peer
from tests.support.explain_fakes import BROWSER, asks, facts, ids, what
from trio_stomp.base import Identity
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.delivery import BrokerPolicies
from trio_stomp.broker.queues import Consumer

MAX_FACTS = 200

# --- outcomes that differ -------------------------------------------------------------------------


def slow_core(policy: str, readers: int = 2) -> tuple[Core, list[Peer], Peer]:
    """One quick subscriber of /topic/t, the others with room for one message."""
    core = Core(BrokerPolicies(slow_consumer=policy))
    peers = [core.peer(capacity=1 if place else 1_000) for place in range(readers)]
    for peer in peers:
        peer.subscribes("/topic/t")
    return core, peers, core.peer()


def test_one_of_several_lost_it() -> None:
    core, (quick, _), sender = slow_core("drop-newest")
    sender.sends("/topic/t", "a")
    sender.sends("/topic/t", "b")
    core.now += 1
    core.broker.end_turn(core.now)
    sender.sends("/topic/t", "c")
    assert facts(core, ids(quick)[2]) == [
        "it reached 1 of 2 subscribers",
        "lost for session s2: slow-consumer by slow_consumer = 'drop-newest'",
    ]


def test_lost_one_of_two_runs_in_one_moment_is_unknown() -> None:
    core, (quick, slow), sender = slow_core("drop-newest")
    sender.sends("/topic/t", "a")
    sender.sends("/topic/t", "b")
    assert slow.bodies() == ["a"]
    for name in ids(quick):
        assert facts(core, name) == [
            "it was sent to 2 subscribers",
            "1 lost at that moment, possibly including this one, for session s2: slow-consumer by"
            " slow_consumer = 'drop-newest'",
        ]


def test_a_disconnected_subscriber_lost_it_for_certain() -> None:
    core, (quick, _), sender = slow_core("disconnect")
    sender.sends("/topic/t", "a")
    core.now += 1
    sender.sends("/topic/t", "b")
    assert facts(core, ids(quick)[1])[0] == "it reached 1 of 2 subscribers"


def test_work_that_another_member_lost() -> None:
    core = Core(BrokerPolicies(slow_consumer="disconnect"))
    quick, slow = core.peer(), core.peer()
    quick.subscribes("#work")
    slow.subscribes("#work")
    slow.outbox.is_jammed = True
    core.peer().sends("#work", "a", "b")
    assert quick.bodies() == ["a"]
    assert facts(core, ids(quick)[0]) == [
        "it was sent to 1 subscriber",
        "1 lost at that moment, possibly including this one, for session s2: slow-consumer by"
        " slow_consumer = 'disconnect'",
    ]


def test_loss_of_parked_messages_is_not_attributed_to_a_simultaneous_one() -> None:
    core = Core(BrokerPolicies(ttl_ms=60_000, slow_consumer="drop-newest"))
    core.peer().sends("/topic/t", "parked")
    late = core.peer()
    late.outbox.is_jammed = True
    late.subscribes("/topic/t")
    late.outbox.is_jammed = False
    core.peer().sends("/topic/t", "fresh")
    assert late.bodies() == ["fresh"]
    assert facts(core, ids(late)[0])[0] == "it was sent to 1 subscriber"


def test_nothing_is_certain_about_a_partly_forgotten_moment() -> None:
    core = Core(BrokerPolicies(slow_consumer="drop-newest", explain_events=2))
    reader = core.peer(capacity=1)
    reader.subscribes("/topic/t")
    sender = core.peer()
    for body in ("a", "b", "c"):
        sender.sends("/topic/t", body)
        core.passes(0)
    reader.drains()
    sender.sends("/topic/t", "d")
    assert reader.bodies() == ["a", "d"]
    core.peer()  # it pushes out when c was sent, so that d seems to be the only one
    (fact, unsure) = facts(core, ids(reader)[1])
    assert fact == "it was sent to 1 subscriber"
    assert unsure.startswith("2 lost at that moment, possibly including this one")


def test_which_the_oldest_was_is_not_known() -> None:
    core, (quick, slow), sender = slow_core("drop-oldest")
    sender.sends("/topic/t", "a")
    core.now += 1
    sender.sends("/topic/t", "b")
    assert slow.bodies() == ["b"]
    sentences = facts(core, ids(quick)[1])
    assert sentences[0] == "it was sent to 2 subscribers"
    assert sentences[1].startswith(
        "1 lost at that moment, possibly including this one, for session s2"
    )


def test_message_that_none_of_several_subscribers_got() -> None:
    core, peers, sender = slow_core("drop-newest", readers=10)
    for peer in peers:
        peer.outbox.is_jammed = True
    sender.sends("/topic/t", "a")
    sentences = facts(core, "b7.1-1")
    assert sentences[0] == "it reached none of 10 subscribers"
    assert (len(sentences), sentences[-1]) == (7, "and 5 more likewise")
    core, (peer,), sender = slow_core("drop-newest", readers=1)
    peer.outbox.is_jammed = True
    sender.sends("/topic/t", "a")
    assert facts(core, "b7.1-1")[0] == "it did not arrive"


def test_message_without_subscribers_is_not_attributed_to_the_next_one(core: Core) -> None:
    sender, reader = core.peer(), core.peer()
    sender.sends("/topic/t", "a")
    reader.subscribes("/topic/t")
    sender.sends("/topic/t", "b")
    assert facts(core, ids(reader)[0]) == ["it was sent to 1 subscriber"]


def test_message_behind_parked_ones_when_its_subscriber_leaves() -> None:
    core = Core(BrokerPolicies(ttl_ms=60_000))
    sender, quick = core.peer(), core.peer()
    sender.sends("/topic/t", "a")
    sender.sends("/topic/t", "b")
    late = core.peer(room=1)
    late.subscribes("/topic/t")
    quick.subscribes("/topic/t")
    core.now += 1
    sender.sends("/topic/t", "c", "d")
    sender.sends("/topic/t", "e")
    core.now += 1
    late.is_gone()
    sender.sends("/topic/t", "f")
    assert quick.bodies() == ["c", "d", "e", "f"]
    for name in ids(quick)[:3]:
        assert facts(core, name) == [
            "it reached 1 of 2 subscribers",
            "lost for session s3: backlog-abandoned",
        ]
    assert facts(core, ids(quick)[3]) == ["it was sent to 1 subscriber"]


def test_message_that_expires_behind_parked_ones() -> None:
    core = Core(BrokerPolicies(ttl_ms=60_000))
    sender, quick = core.peer(), core.peer()
    sender.sends("/topic/t", "a")
    sender.sends("/topic/t", "b")
    late = core.peer(room=1)
    late.subscribes("/topic/t")
    quick.subscribes("/topic/t")
    sender.sends("/topic/t", "c", headers=(("ttl", "1000"),))
    core.now += 2
    late.drains()
    assert late.bodies() == ["a", "b"]
    assert facts(core, ids(quick)[0]) == [
        "it reached 1 of 2 subscribers",
        "lost for session s3: expired by header ttl or expiration = 1000",
    ]


def test_a_message_that_came_again_is_followed_to_its_last_ack() -> None:
    core = Core(book={"/queue/q": DestinationPolicy(backoff_s=(0,))})
    reader = core.peer()
    reader.subscribes("/queue/q", ack="client-individual")
    core.peer().sends("/queue/q", "a")
    reader.nacks(reader.messages()[0])
    first, second = ids(reader)
    assert facts(core, first) == ["it was delivered 2 times, and has not been acknowledged so far"]
    reader.acks(reader.messages()[1])
    for name in (first, second):
        assert facts(core, name) == ["it was delivered 2 times and acknowledged"]
        assert what(asks(core, name)) == [
            "queued",
            "delivered",
            "rejected",
            "delivered",
            "acknowledged",
        ]


def test_unneeded_or_unknown_ack(core: Core) -> None:
    reader = core.peer()
    reader.subscribes("/queue/q")
    core.peer().sends("/queue/q", "a")
    assert facts(core, ids(reader)[0]) == ["it was delivered, and needs no ACK (ack:auto)"]
    reader.unsubscribes()
    assert facts(core, ids(reader)[0]) == [
        "it was delivered, and no ACK of it is known",
        "that subscription has ended: unless it was ack:auto, the message went back",
    ]


def test_an_ack_in_a_transaction_is_not_denied() -> None:
    core = Core()
    reader = core.peer()
    reader.subscribes("/queue/q", ack="client-individual")
    core.peer().sends("/queue/q", "a")
    (unacked,) = reader.client.subscriptions.values()
    assert isinstance(unacked.consumer, Consumer)
    unacked.consumer.take_all()
    assert facts(core, ids(reader)[0]) == [
        "it was delivered, and no ACK of it is known",
        "no ACK is awaited any more: it came in a transaction, or the message went back",
    ]


def test_browsed_message_dropped_by_a_full_queue() -> None:
    policy = DestinationPolicy(max_messages=2, overflow="drop-oldest")
    core = Core(book={"/queue/q": policy})
    sender, browser = core.peer(), core.peer()
    sender.sends("/queue/q", "a", "b")
    browser.subscribes("/queue/q", headers=BROWSER)
    sender.sends("/queue/q", "c")
    assert facts(core, ids(browser)[0]) == [
        "it did not arrive: queue-full by overflow = 'drop-oldest'",
        "it was shown to a browser, session s2",
    ]
    assert facts(core, ids(browser)[1])[0] == "it waits in its queue"


def test_browsed_message_with_an_unknown_end(core: Core) -> None:
    sender, browser = core.peer(), core.peer()
    sender.sends("/queue/q", "a", "b")
    browser.subscribes("/queue/q", headers=BROWSER)
    core.broker.queues.end("/queue/q", core.now)
    core.turn()
    known = facts(core, ids(browser)[0])
    assert known[0] == "it did not arrive: queue-ended"
    core.broker.event_history.trouble.clear()
    assert facts(core, ids(browser)[0])[0] == "it waits in its queue, as far as known"
    core.broker.queues.open("/queue/q")
    assert facts(core, ids(browser)[0])[:2] == [
        "it has left its queue, and no delivery of it is known",
        "the queue has dropped 2 messages so far",
    ]


def test_messages_of_a_queue_that_ends_are_counted_without_a_history_too() -> None:
    core = Core(BrokerPolicies(explain_events=0))
    core.peer().sends("/queue/q", "a")
    destination = core.broker.destinations.open("/queue/q")
    core.broker.queues.end("/queue/q", core.now)
    core.turn()
    assert destination.dropped == 1


def test_a_message_that_expired_before_anybody_took_it() -> None:
    core = Core(book={"/queue/q": DestinationPolicy(ttl_ms=5000)})
    sender, browser = core.peer(), core.peer()
    sender.sends("/queue/q", "a")
    browser.subscribes("/queue/q", headers=BROWSER)
    core.passes(10)
    core.peer().subscribes("/queue/q")
    assert facts(core, ids(browser)[0])[0] == "it did not arrive: expired by ttl_ms = 5000"
    lost = asks(core, ids(browser)[0])["events"][-1]
    assert (lost["rule"], lost["policy"]) == ("ttl_ms = 5000", "'/queue/q'")


# --- which rule decided ---------------------------------------------------------------------------


def the_loss(core: Core, destination: str) -> dict[str, Any]:
    events = asks(core, {"destination": destination})["events"]
    (lost,) = (event for event in events if event["what"] == "lost")
    return dict(lost)


def test_message_without_subscribers_and_without_a_stale_lifetime(core: Core) -> None:
    for name in ("/topic/t", "#work", "DIAG/mine"):
        core.peer().sends(name, "a", "b")
    for name in ("/topic/t", "#work"):
        lost = the_loss(core, name)
        assert (lost["fate"], lost["count"], lost["rule"]) == ("no-subscriber", 2, "ttl_ms = 0")
        assert lost["text"] == "2 no-subscriber by ttl_ms = 0"
    assert the_loss(core, "DIAG/mine")["rule"] == ""


@pytest.mark.parametrize(
    ("headers", "rule"),
    [
        ((("ttl", "1000"),), "header ttl or expiration = 1000"),
        ((("expires", "105000"),), "header expires = 105000"),
        ((), "ttl_ms = 60000"),
    ],
)
def test_setting_that_decided_the_lifetime(headers: tuple[tuple[str, str], ...], rule: str) -> None:
    core = Core(book={"/queue/q": DestinationPolicy(ttl_ms=60_000)})
    core.peer().sends("/queue/q", "a", headers=headers)
    core.passes(100)
    core.peer().subscribes("/queue/q")
    assert the_loss(core, "/queue/q")["rule"] == rule


def test_a_lifetime_of_which_the_rule_has_changed() -> None:
    core = Core(book={"/queue/q": DestinationPolicy(ttl_ms=60_000)})
    core.peer().sends("/queue/q", "a")
    core.broker.destinations.open("/queue/q").ttl_s = 5.0
    core.passes(100)
    core.peer().subscribes("/queue/q")
    assert the_loss(core, "/queue/q")["rule"] == ""


def test_a_header_that_bounds_how_often_a_message_comes_again(core: Core) -> None:
    reader = core.peer()
    reader.subscribes("/queue/q", ack="client-individual")
    core.peer().sends("/queue/q", "a", headers=(("max-exceptions", "0"),))
    reader.nacks(reader.messages()[0])
    assert the_loss(core, "/queue/q")["rule"] == "header max-exceptions = 0"


def test_rejection_by_a_consumer_names_no_rule(core: Core) -> None:
    reader = core.peer()
    reader.subscribes("/queue/q", ack="client-individual")
    core.peer().sends("/queue/q", "a")
    reader.nacks(reader.messages()[0], requeue=False)
    lost = the_loss(core, "/queue/q")
    assert (lost["fate"], lost["rule"], lost["policy"]) == ("rejected", "", "")
    assert facts(core, ids(reader)[0]) == ["it was delivered, and died: rejected"]


def test_a_policy_that_has_changed_is_not_blamed() -> None:
    policy = DestinationPolicy(max_messages=1, overflow="drop-newest")
    core = Core(book={"/queue/q": policy})
    core.peer().sends("/queue/q", "a", "b")
    assert the_loss(core, "/queue/q")["policy"] == "'/queue/q'"
    core.broker.use_policies(Core(book={"/queue/q": DestinationPolicy()}).broker.queues.policies)
    lost = the_loss(core, "/queue/q")
    assert (lost["rule"], lost["policy"]) == ("overflow = 'drop-newest'", "")


# --- users and destinations
# -------------------------------------------------------------------------------


def test_explanation_shows_only_a_users_own_messages(core: Core) -> None:
    anna = core.peer(identity=Identity("anna", method="passcode"))
    bob = core.peer(identity=Identity("bob", method="passcode"))
    for reader in (anna, bob):
        reader.subscribes("/queue/q", ack="client-individual")
    core.peer().sends("/queue/q", "a", "b")
    asked = {"destination": "/queue/q", "user": "anna"}
    events = asks(core, asked)["events"]
    assert [each["session"] for each in events if each["what"] == "delivered"] == ["s1"]
    assert {each["session"] for each in events if each["what"] == "event"} == {"s1"}
    anna.is_gone()
    answer = asks(core, asked)
    assert answer["summary"] == "user anna is not connected"
    assert {each["session"] for each in answer["events"] if each["what"] == "event"} == {"s1"}
    assert answer["events"][0]["user"] == "anna"
    assert asks(core, asked | {"user": "carl"})["summary"] == "user carl is not connected"


def test_a_session_of_somebody_else(core: Core) -> None:
    core.peer(identity=Identity("anna", method="passcode"))
    asked = {"destination": "/queue/q", "session": "s1"}
    assert "session s1 (anna)" in asks(core, asked | {"user": "anna"})["summary"]
    assert asks(core, asked | {"user": "bob"})["summary"] == (
        "session s1 of user bob is not connected"
    )


def test_all_names_of_a_composite() -> None:
    core = Core(dialect="activemq")
    reader = core.peer()
    reader.subscribes("/queue/b", ack="client")
    core.peer().sends("/queue/a,/queue/b", "x")
    sentences = asks(core, {"destination": "/queue/a,/queue/b"})["facts"]
    assert [fact.partition(",")[0] for fact in sentences] == [
        "/queue/a: 0 consumers",
        "/queue/a: 1 waits",
        "/queue/a: policy: none names it",
        "/queue/b: 1 consumer",
        "/queue/b: 0 wait",
        "/queue/b: policy: none names it",
    ]
    sentences = asks(core, {"destination": "/queue/a,/queue/b", "session": "s1"})["facts"]
    assert [fact.partition(";")[0] for fact in sentences[:3]] == [
        "session s1 (nobody) from 10.0.0.1",
        "has no subscription that reaches /queue/a",
        "subscribed as /queue/b (id 0)",
    ]


def test_the_facts_of_one_answer_are_bounded(core: Core) -> None:
    for _ in range(MAX_FACTS):
        core.peer()
    sentences = asks(core, {"destination": "/topic/t", "user": ""})["facts"]
    assert (len(sentences), sentences[-1]) == (MAX_FACTS + 1, "and more")


def test_a_message_that_its_groups_consumer_does_not_select_says_why_it_waits() -> None:
    core = Core()
    owner, browser, sender = core.peer(), core.peer(), core.peer()
    owner.subscribes("/queue/q", headers=(("selector", "color = 'red'"),))
    for color in ("red", "blue"):
        sender.sends("/queue/q", color, headers=(("JMSXGroupID", "g"), ("color", color)))
    sender.sends("/queue/q", "free", headers=(("color", "blue"),))
    assert owner.bodies() == ["red"]
    browser.subscribes("/queue/q", headers=BROWSER)
    why = (
        "its group 'g' belongs to session s1, whose selector excludes it: it waits until that"
        " subscription ends"
    )
    held, free, *_ = ids(browser)
    assert facts(core, held)[:2] == ["it waits in its queue", why]
    assert facts(core, free)[:1] == ["it waits in its queue"]
    assert why not in facts(core, free)
    found = facts(core, '{"destination": "/queue/q"}')
    assert found[1:3] == ["2 wait, 0 unacknowledged", f"of one of the first messages: {why}"]
    owner.is_gone()
    core.turn()
    assert why not in str(facts(core, '{"destination": "/queue/q"}'))
