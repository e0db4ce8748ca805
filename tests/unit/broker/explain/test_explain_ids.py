"""Explain and the ids of messages that were browsed, parked, stored, read or never there."""

import json
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.core import Core, Peer
from tests.support.durable_fakes import DurableBench
from tests.support.explain_fakes import BROWSER, asks, facts, ids, what
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.delivery import BrokerPolicies, DeliveryReason, EventHistory, Numbered, Shown
from trio_stomp.protocol import Acked

MAX_SCATTERED = 64

OLDER = "older than what is remembered"


# --- deliveries that were never noted -------------------------------------------------------------


def test_browsed_message_is_followed_to_its_end(core: Core) -> None:
    core.peer().sends("/queue/q", "a", "b", "c")
    browser, reader = core.peer(), core.peer()
    browser.subscribes("/queue/q", headers=BROWSER)
    seen = ids(browser)[1]
    answer = asks(core, seen)
    assert answer["facts"] == ["it waits in its queue", "it was shown to a browser, session s2"]
    assert what(answer) == ["queued", "shown"]
    shown = answer["events"][1]
    tag = browser.client.subscriptions["0"].tag
    assert shown["text"] == f"3 to session s2 as {tag}-1 … {tag}-3, to look at"
    assert (shown["destination"], shown["count"], shown["first"]) == ("/queue/q", 3, 1)
    reader.subscribes("/queue/q", ack="client-individual")
    reader.acks(reader.messages()[1])
    assert facts(core, seen)[0] == "it was delivered and acknowledged"
    assert facts(core, ids(browser)[0])[0] == (
        "it was delivered, and has not been acknowledged so far"
    )


def test_a_browse_is_one_event_whatever_it_shows(core: Core) -> None:
    sender = core.peer()
    for place in range(10):
        sender.sends("/queue/q", "x", headers=(("priority", f"{place}"),))
    browser = core.peer(room=3)
    browser.subscribes("/queue/q", headers=BROWSER)
    browser.drains()
    events = [event for event in core.broker.event_history.routine if isinstance(event, Shown)]
    assert [event.count for event in events] == [10]  # it never stopped: no time passed
    for name, place in zip(ids(browser), range(10, 0, -1), strict=False):
        assert asks(core, name)["events"][0]["first"] == place


def test_message_in_the_store_alone_is_not_confused_with_others() -> None:
    core = DurableBench()
    core.actor().sends("/queue/q", "stored", persistent="true")
    core.turn()
    core = core.restarts()
    core.actor().sends("/queue/q", "fresh", priority="1")
    core.turn()
    browser = core.actor()
    browser.subscribes("/queue/q", "b", browser="true")
    stored, fresh, _ = (frame.get("message-id") or "" for frame in browser.reads())
    explain = partial(asks, core)
    assert explain(stored)["facts"] == [
        "it waits in its queue",
        "it was shown to a browser, session s2",
    ]
    assert [event["what"] for event in explain(stored)["events"]] == ["shown"]
    assert [event["what"] for event in explain(fresh)["events"]] == ["queued", "shown"]


def test_a_browse_notes_nothing_where_nothing_is_remembered() -> None:
    core = Core(BrokerPolicies(explain_events=0, ttl_ms=60_000))
    sender, reader = core.peer(), core.peer(room=1)
    sender.sends("/queue/q", "a")
    sender.sends("/topic/t", "a")
    sender.sends("/topic/t", "b")
    reader.subscribes("/queue/q", "q", headers=BROWSER)
    reader.drains()
    assert reader.bodies() == ["a", ""]
    reader.subscribes("/topic/t")
    sender.sends("/topic/t", "late")
    reader.is_gone()
    assert core.broker.fan_out.drops.backlog_abandoned == 1
    reader = core.peer(room=1)
    reader.subscribes("/topic/t")
    sender.sends("/topic/t", "c", headers=(("ttl", "1000"),))
    core.now += 2
    reader.drains()
    assert reader.bodies() == ["b"]
    assert not core.broker.event_history.routine
    assert not core.broker.event_history.trouble


def test_history_of_a_browse_is_bounded() -> None:
    event_history = EventHistory(100)
    core = Core()
    core.peer().subscribes("/queue/q", headers=BROWSER)
    (subscription,) = core.peers[0].client.subscriptions.values()
    for number in range(1, 2 * MAX_SCATTERED + 3):
        event_history.shown("/queue/q", subscription, number, 2 * number)
    assert [each.count for each in event_history.routine if isinstance(each, Shown)] == [
        MAX_SCATTERED,
        MAX_SCATTERED,
        2,
    ]
    # A long range is not made an array of.
    event_history = EventHistory(100)
    for number in range(1, 1001):
        event_history.shown("/queue/q", subscription, number, number)
    event_history.shown("/queue/q", subscription, 1001, 5000)
    event_history.shown("/queue/q", subscription, 1002, 5001)
    assert [each.count for each in event_history.routine if isinstance(each, Shown)] == [1000, 2]
    assert [each.numbers for each in event_history.routine if isinstance(each, Shown)] == [
        range(1, 1001),
        range(5000, 5002),
    ]


def test_the_end_of_a_browse_is_no_message(core: Core) -> None:
    browser = core.peer()
    browser.subscribes("/queue/q", headers=(*BROWSER, ("browser-end", "true")))
    answer = asks(core, ids(browser)[-1])
    assert answer["facts"] == [
        "it is the end marker of a queue browser, not a message of the queue"
    ]
    assert what(answer) == ["browsed"]
    assert answer["events"][0]["text"].startswith(
        "session s1 was told that there is no more, by b7."
    )
    assert answer["events"][0]["destination"] == "/queue/q"


def test_parked_message_delivered_to_a_late_subscriber() -> None:
    core = Core(BrokerPolicies(ttl_ms=60_000))
    sender = core.peer()
    for body in "abc":
        sender.sends("/topic/t", body)
    late = core.peer()
    late.subscribes("/topic/t")
    answer = asks(core, ids(late)[2])
    assert answer["facts"] == [
        "it was parked, as there were no subscribers, and later delivered to session s2"
    ]
    (event,) = answer["events"]
    assert (event["what"], event["cause"], event["count"]) == ("given", "parked", 3)
    assert event["text"].endswith(": parked for a late subscriber")
    # To the destination alone, too; and to others it is none of theirs.
    assert "given" in what(asks(core, {"destination": "/topic/t"}))
    assert "given" not in what(asks(core, {"destination": "/topic/t", "session": "s1"}))


def test_message_parked_at_several_destinations_is_explained_for_each() -> None:
    core = Core(BrokerPolicies(ttl_ms=60_000))
    sender = core.peer()
    for name in ("/topic/a", "/topic/b", "/topic/a"):
        sender.sends(name, "x")
    late = core.peer()
    late.subscribes("/topic/*")
    found = [asks(core, name)["events"][0]["destination"] for name in ids(late)]
    assert found == ["/topic/a", "/topic/b", "/topic/a"]


def test_delivery_of_a_last_value_is_explained() -> None:
    core = Core()
    core.peer().sends("/topic/t", "a", headers=(("retain", "set"),))
    late = core.peer()
    late.subscribes("/topic/t")
    assert facts(core, ids(late)[0]) == [
        "it was the last value at a later SUBSCRIBE, and delivered to session s2"
    ]
    assert asks(core, ids(late)[0])["events"][0]["cause"] == "last-value"


def test_work_that_a_member_left(core: Core) -> None:
    first, second = core.peer(), core.peer()
    first.subscribes("#work", ack="client-individual")
    core.peer().sends("#work", "a")
    second.subscribes("#work")
    first.is_gone()
    assert second.bodies() == ["a"]
    assert facts(core, ids(second)[0]) == [
        "another member of the work queue left it, and it was delivered to session s2"
    ]
    assert what(asks(core, ids(first)[0])) == ["queued", "delivered"]


def test_the_loss_of_a_late_subscribers_backlog_is_explained() -> None:
    core = Core(BrokerPolicies(ttl_ms=60_000, slow_consumer="drop-newest"))
    sender = core.peer()
    sender.sends("/topic/t", "a", "b", headers=(("retain", "set"),))
    late = core.peer()
    late.outbox.is_jammed = True
    late.subscribes("/topic/t")
    answer = asks(core, "b7.1-1")
    (fact,) = answer["facts"]
    assert fact.endswith("but it did not arrive: slow-consumer by slow_consumer = 'drop-newest'")
    assert what(answer) == ["given", "lost"]


def test_one_loss_among_several_deliveries_names_no_message() -> None:
    core = Core(BrokerPolicies(slow_consumer="drop-newest"))
    reader = core.peer()
    reader.subscribes("/topic/t")
    (subscription,) = reader.client.subscriptions.values()
    core.broker.fan_out.number(2)
    core.broker.event_history.given("/topic/t", subscription, 1, 1, DeliveryReason.PARKED)
    core.broker.event_history.given("/topic/t", subscription, 2, 1, DeliveryReason.PARKED)
    core.broker.event_history.given("/topic/t", subscription, 3, 1, DeliveryReason.LAST_VALUE)
    core.broker.event_history.lost("slow-consumer", "/topic/t", session="s1")
    core.broker.event_history.lost("slow-consumer", "/topic/t", session="s9")
    answer = asks(core, f"{subscription.tag}-2")
    assert answer["facts"][1] == "1 lost at that moment, possibly including this one: slow-consumer"
    assert [event["count"] for event in answer["events"]] == [2, 1]


@pytest.mark.parametrize("name", ["DIAG/session", "DIAG*", "**", "/queue/monitor"])
def test_diag_messages_are_never_called_expired(core: Core, name: str) -> None:
    reader = core.peer()
    reader.subscribes(name)
    place = "/queue/monitor" if "monitor" in name else "DIAG/session"
    core.broker.publish(place, b"{}", (), core.now)
    mine = ids(reader)
    assert facts(core, mine[0]) == [
        "the broker's own messages are not recorded, so this may be one of session s1, subscribed"
        f" to {name}",
        "/stream/DIAG can be read again",
    ]
    reader.unsubscribes()
    assert facts(core, mine[0]) == [
        "no message had that id, or it was one of the broker's own messages (DIAG,"
        " /queue/monitor), whose deliveries are not recorded"
    ]


def test_only_messages_older_than_the_history_are_reported_as_such() -> None:
    core = Core(BrokerPolicies(explain_events=10))
    reader, progress_reporter = core.peer(), core.peer()
    reader.subscribes("/topic/t")
    progress_reporter.subscribes("DIAG/session", "d")
    sender = core.peer()
    for _ in range(5):
        sender.sends("/topic/t", "x")
        core.broker.publish("DIAG/session", b"{}", (), core.now)
    old, young = ids(reader)[0], ids(progress_reporter)[-1]
    progress_reporter.unsubscribes("d")
    assert OLDER not in asks(core, old)["summary"]
    for _ in range(5):
        sender.sends("/topic/t", "x")
    assert OLDER not in asks(core, young)["summary"]
    for _ in range(10):
        sender.sends("/topic/t", "x")
    assert OLDER in asks(core, old)["summary"]
    assert OLDER in asks(core, young)["summary"]
    for _ in range(10):
        core.peer()  # its events push the rest out
    assert OLDER in asks(core, ids(reader)[-1])["summary"]
    assert "no message has had that id: 25 is" in asks(core, "b7.1-26")["summary"]
    assert "no message has had that id" in asks(core, "b7.1-0")["summary"]


def test_a_number_is_of_one_subscription_alone(core: Core) -> None:
    reader, other = core.peer(), core.peer()
    reader.subscribes("/queue/q", ack="client-individual")
    other.subscribes("/topic/t")
    core.peer().sends("/queue/q", "a")
    core.peer().sends("/topic/t", "b")
    mine, its = reader.messages()[0].get("ack") or "", ids(other)[0]
    wrong = f"{its.rpartition('-')[0]}-1"
    assert facts(core, wrong) == [f"no message had that id: the delivery of that number was {mine}"]
    wrong = f"{mine.rpartition('-')[0]}-2"
    assert facts(core, wrong) == [
        "no message had that id: session s1 was not given that number by its subscription to"
        " /queue/q"
    ]


def test_work_for_a_member_that_numbers_it_later(core: Core) -> None:
    picky, plain = core.peer(), core.peer()
    picky.subscribes("#work", ack="client-individual")
    plain.subscribes("#work")
    core.peer().sends("#work", "a", "b")
    for peer, story in ((picky, ["queued", "delivered"]), (plain, ["sent"])):
        assert what(asks(core, ids(peer)[0])) == story


@pytest.mark.parametrize("digits", ["²", "1" * 21, "", "5x", "-5", "٣"])
def test_text_that_only_looks_like_a_number(core: Core, digits: str) -> None:
    with pytest.raises(Exception, match="is not a message-id") as caught:
        asks(core, f"b7.1-{digits}" if digits != "-5" else "-5")
    assert getattr(caught.value, "code", "") == "invalid-question"


def test_an_ack_of_an_id_that_only_looks_like_a_number(core: Core) -> None:
    reader = core.peer()
    reader.subscribes("/topic/t")
    core.peer().sends("/topic/t", "x")
    name = ids(reader)[0]
    odd = f"{name.rpartition('-')[0]}-²".encode()
    core.broker.event_history.acknowledged(reader.client, Acked([odd], "id", None, False, True, []))
    assert what(asks(core, name)) == ["sent"]


def test_messages_of_a_stream() -> None:
    core = Core(book={"/topic/t": DestinationPolicy(stream=True)})
    core.peer().sends("/topic/t", "a", "b")
    reader = core.peer()
    headers = (("x-stream-offset", "first"), ("x-stream-until", "2"))
    reader.subscribes("/stream/topic/t", ack="client", headers=headers)
    core.broker.end_turn(core.now)
    names = ids(reader)
    tag = names[0].rpartition("-")[0]
    assert facts(core, names[0]) == [
        "it was read from /stream/topic/t, at offset 0; the stream has its whole history"
    ]
    assert "the next one read from" in asks(core, f"{tag}-7")["summary"]
    assert "the end marker of a range of" in asks(core, f"{tag}-02")["summary"]
    reader.unsubscribes()
    assert "read from a stream, at offset 1" in asks(core, names[1])["summary"]


DOINGS = st.sampled_from(
    ["topic", "queue", "late", "browse", "diag", "ack", "nack", "work", "kept", "wait", "leave"]
)


@example(["queue", "nack", "topic", "nack"], 3)  # its deliveries are forgotten, its end is not
@given(st.lists(DOINGS, max_size=40), st.sampled_from([0, 3, 12, 1000]))
def test_every_id_has_a_true_explanation(doings: list[str], capacity: int) -> None:
    policies = BrokerPolicies(explain_events=capacity, ttl_ms=5_000, slow_consumer="drop-newest")
    core = Core(policies, book={"/queue/q": DestinationPolicy(max_redeliveries=1)})
    sender, reader = core.peer(), core.peer(capacity=3)
    reader.subscribes("/topic/t", "t")
    reader.subscribes("/queue/q", "q", ack="client-individual", headers=(("prefetch", "3"),))
    reader.subscribes("DIAG/session", "d")
    peers = [reader]
    for doing in doings:
        unacked = [each for each in reader.messages() if each.get("ack")][-1:]
        settles = [each for each in unacked if _is_unacked(reader, each.get("ack") or "")]
        match doing:
            case "topic" | "kept":
                sender.sends("/topic/t" if doing == "topic" else "/topic/late", "a", "b")
            case "queue" | "work":
                sender.sends("/queue/q" if doing == "queue" else "#w", "a", "b")
            case "late" | "browse":
                peers.append(core.peer(room=2))
                place = "/queue/q" if doing == "browse" else "/topic/*"
                peers[-1].subscribes(place, headers=BROWSER if doing == "browse" else ())
                peers[-1].subscribes("#w", "w", ack="client" if doing == "late" else "auto")
            case "diag":
                core.broker.publish("DIAG/session", b"{}", (), core.now)
            case "ack" if settles:
                reader.acks(*settles)
            case "nack" if settles:
                reader.nacks(*settles)
            case "wait":
                for peer in peers:
                    peer.drains()
                core.passes(2)
            case "leave" if len(peers) > 1:
                peers.pop().is_gone()
    events = core.broker.event_history.routine
    known = [event.first for event in events if isinstance(event, Numbered)]
    oldest = min(known, default=0)
    for peer in core.peers:
        for name in ids(peer):
            answer = asks(core, name)
            json.dumps(answer)
            assert answer["summary"] == "; ".join(answer["facts"])
            assert not answer["summary"].startswith(("it reached none", "it did not arrive"))
            number = int(name.rpartition("-")[2])
            if OLDER in answer["summary"]:
                assert len(core.broker.event_history.routine) == capacity
                assert number < oldest or not known
            elif capacity == 1000 and peer is not reader:
                assert answer["events"], name
    for question in ("/topic/t", "/queue/q", "#w"):
        for who in ({}, {"session": "s2"}, {"user": ""}):
            json.dumps(asks(core, {"destination": question, **who}))


def _is_unacked(peer: Peer, name: str) -> bool:
    number = int(name.rpartition("-")[2])
    consumers = (each.consumer for each in peer.client.subscriptions.values())
    return any(each is not None and number in each.unacked for each in consumers)
