"""The fate of a message, and why a subscriber got none: queried as by an operator."""

import json
from typing import Any

import pytest

from tests.support.core import Core, Peer
from tests.support.explain_fakes import asks, what
from tests.support.fakes import open_dial
from trio_stomp.base import Identity, ProtocolError
from trio_stomp.broker import AccessRules, Action, DestinationPolicy, Rule
from trio_stomp.broker.delivery import BrokerPolicies, Delivered, EventHistory, Settled
from trio_stomp.protocol import Acked

MAX_SCATTERED = 64
QUIET = {"diag_interval_s": 0, "heartbeat_send_ms": 0, "heartbeat_expect_ms": 0}


def acked(*ids: bytes) -> Acked:
    return Acked(ids, "id", None, False, True, ())


def last_id(peer: Peer) -> str:
    return peer.messages()[-1].get("message-id") or ""


# --- by message-id --------------------------------------------------------------------------------


def test_a_message_of_a_topic_is_explained_with_sender_and_subscribers(core: Core) -> None:
    readers = [core.peer(), core.peer()]
    for reader in readers:
        reader.subscribes("/topic/t")
    core.peer().sends("/topic/t", "a", "b", "c")
    core.now += 2
    core.broker.end_turn(core.now)
    answer = asks(core, last_id(readers[0]))
    assert answer["summary"] == "it was sent to 2 subscribers"
    (event,) = answer["events"]
    assert (event["destination"], event["session"], event["ms_ago"]) == ("/topic/t", "s3", 2000)
    assert answer["horizon_s"] == 2  # the first event that it knows


def test_losses_of_a_slow_subscriber_are_explained_with_the_deciding_option() -> None:
    core = Core(BrokerPolicies(slow_consumer="drop-newest"))
    quick, slow = core.peer(), core.peer(capacity=1)
    quick.subscribes("/topic/t")
    slow.subscribes("/topic/t")
    sender = core.peer()
    sender.sends("/topic/t", "a")
    sender.sends("/topic/t", "b")
    answer = asks(core, last_id(quick))
    assert what(answer) == ["sent", "lost"]
    lost = answer["events"][1]
    assert lost["session"] == "s2"
    assert lost["text"] == "1 slow-consumer by slow_consumer = 'drop-newest'"
    assert (lost["count"], lost["fate"]) == (1, "slow-consumer")
    assert lost["rule"] == "slow_consumer = 'drop-newest'"
    assert lost["policy"] == ""  # an option decided


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_a_queues_message_from_its_send_to_its_ack(core: Core, ack: str) -> None:
    core.peer().sends("/queue/q", "a", "b", "c")
    reader = core.peer()
    reader.subscribes("/queue/q", ack=ack)
    waiting = asks(core, last_id(reader))
    assert waiting["summary"].startswith("it was delivered, and has not been acknowledged")
    assert what(waiting) == ["queued", "delivered"]
    reader.acks(*reader.messages())
    answer = asks(core, last_id(reader))
    assert answer["summary"] == "it was delivered and acknowledged"
    assert what(answer) == ["queued", "delivered", "acknowledged"]


def test_a_message_that_died_names_the_policy() -> None:
    policy = DestinationPolicy(max_redeliveries=1, backoff_s=(0,))
    core = Core(book={"/queue/q": policy})
    core.peer().sends("/queue/q", "poison")
    reader = core.peer()
    reader.subscribes("/queue/q", ack="client-individual")
    first = last_id(reader)
    for _ in range(2):
        reader.nacks(reader.messages()[-1])
        core.passes(1)
    answer = asks(core, first)
    assert what(answer)[:3] == ["queued", "delivered", "rejected"]
    died = answer["events"][-1]
    assert died["text"] == "1 delivery-limit by max_redeliveries = 1"
    assert (died["count"], died["fate"], died["rule"], died["policy"]) == (
        1,
        "delivery-limit",
        "max_redeliveries = 1",
        "'/queue/q'",
    )
    assert answer["summary"] == (
        "it was delivered 2 times, and died: delivery-limit by max_redeliveries = 1"
    )


def test_ids_that_nothing_is_known_of(core: Core) -> None:
    boot = core.boot
    assert "another" in asks(core, "zzz.1-5")["summary"]
    assert asks(core, f"{boot}.1-5")["summary"] == (
        "no message has had that id: 0 is the last number that was given to one"
    )
    of_a_stream = asks(core, f"{boot}.1.S-5")["summary"]
    assert of_a_stream.startswith("it was read from a stream, at offset 5")
    for question in ("", "what?", "{", "[]x", '{"a": "b"}', '{"message-id": 5}', "x" * 5000, "{}"):
        with pytest.raises(ProtocolError) as caught:
            asks(core, question)
        assert caught.value.code == "invalid-question"


def test_history_is_bounded_and_can_be_off() -> None:
    core = Core(BrokerPolicies(explain_events=10))
    reader = core.peer()
    reader.subscribes("/topic/t")
    sender = core.peer()
    for number in range(50):
        core.now += 1
        sender.sends("/topic/t", f"{number}")
    old = reader.messages()[0].get("message-id") or ""
    answer = asks(core, old)
    assert answer["summary"] == (
        "nothing is known of it any more: it is older than what is remembered"
        " (option explain_events)"
    )
    assert answer["horizon_s"] < 20
    off = Core(BrokerPolicies(explain_events=0))
    reader = off.peer()
    reader.subscribes("/topic/t")
    off.peer().sends("/topic/t", "x")
    assert asks(off, last_id(reader))["summary"] == (
        "events are not recorded (option explain_events)"
    )
    assert not off.broker.event_history.routine


def test_no_body_is_kept_alive(core: Core) -> None:
    core.peer().subscribes("/topic/t")
    core.peer().sends("/topic/t", "secret-body")
    core.peer().sends("/queue/q", "secret-body")
    assert "secret-body" not in repr(core.broker.event_history.routine)


def test_loss_of_another_destination_is_not_reported() -> None:
    core = Core(BrokerPolicies(slow_consumer="drop-newest"))
    quick, slow = core.peer(), core.peer(capacity=1)
    quick.subscribes("/topic/t")
    slow.subscribes("/topic/other")
    core.peer().sends("/topic/other", "a")
    core.peer().sends("/topic/other", "b")
    core.peer().sends("/topic/t", "c")
    assert len(core.broker.event_history.trouble) == 1
    assert what(asks(core, last_id(quick))) == ["sent"]


def test_earlier_loss_of_the_same_destination_is_not_reported() -> None:
    core = Core(BrokerPolicies(slow_consumer="drop-newest"))
    quick, slow = core.peer(), core.peer(capacity=1)
    quick.subscribes("/topic/t")
    slow.subscribes("/topic/t")
    for body in "ab":
        core.peer().sends("/topic/t", body)
    core.now += 1
    slow.drains()
    core.peer().sends("/topic/t", "c")
    assert slow.bodies() == ["a", "c"]
    lost, whole = (message.get("message-id") or "" for message in quick.messages()[1:])
    assert what(asks(core, lost)) == ["sent", "lost"]
    assert what(asks(core, whole)) == ["sent"]


def test_rejected_and_waiting_messages_are_explained() -> None:
    core = Core(book={"/queue/q": DestinationPolicy(backoff_s=(60,))})
    reader = core.peer()
    reader.subscribes("/queue/q", ack="client", headers=(("prefetch-count", "1"),))
    core.peer().sends("/queue/q", "a")
    first = last_id(reader)
    reader.nacks(reader.messages()[-1])
    answer = asks(core, first)
    assert answer["facts"] == [
        "it was delivered and rejected (NACK)",
        "no delivery of it since then is known",
    ]
    assert (
        answer["events"][-1]["text"] == f"1 NACK: {reader.messages()[0].get('ack')}, and all before"
    )


def test_a_message_that_came_out_of_its_order(core: Core) -> None:
    sender, reader = core.peer(), core.peer()
    for priority in ("1", "9", "5"):
        sender.sends("/queue/q", priority, headers=(("priority", priority),))
    reader.subscribes("/queue/q", ack="client")
    assert reader.bodies() == ["9", "5", "1"]
    for message, place in zip(reader.messages(), (2, 3, 1), strict=True):
        answer = asks(core, message.get("message-id") or "")
        assert what(answer) == ["queued", "delivered"]
        assert answer["events"][0]["first"] == place


def test_deliveries_are_recorded_as_ranges_or_in_events_of_bounded_size(core: Core) -> None:
    reader = core.peer()
    reader.subscribes("/queue/q")
    (subscription,) = reader.client.subscriptions.values()
    scattered = [2 * number for number in range(MAX_SCATTERED + 2)]
    history = EventHistory(9)
    history.delivered("/queue/q", subscription, 1, [5, 6, 7])
    history.delivered("/queue/q", subscription, 4, [5, 9, 7])  # its ends look consecutive
    history.delivered("/queue/q", subscription, 7, scattered)
    recorded = [each for each in history.routine if isinstance(each, Delivered)]
    assert [(each.first, each.count, list(each.numbers)) for each in recorded] == [
        (1, 3, [5, 6, 7]),
        (4, 3, [5, 9, 7]),
        (7, MAX_SCATTERED, scattered[:-2]),
        (7 + MAX_SCATTERED, 2, scattered[-2:]),
    ]
    assert recorded[0].numbers == range(5, 8)


def test_numbers_whose_ends_look_consecutive_are_no_range(core: Core) -> None:
    """Three are delivered as 0, 4, 2: the last is as far from the first as if they were 0, 1, 2."""
    sender, reader = core.peer(), core.peer()
    for number, priority in enumerate("90416"):
        sender.sends("/queue/q", f"{number}", headers=(("priority", priority),))
    reader.subscribes("/queue/q", ack="client-individual", headers=(("prefetch-count", "3"),))
    assert reader.bodies() == ["0", "4", "2"]
    reader.acks(*reader.messages())
    assert reader.bodies() == ["0", "4", "2", "3", "1"]
    for message in reader.messages():
        events = what(asks(core, message.get("message-id") or ""))
        assert events[:2] == ["queued", "delivered"]
        assert events.count("delivered") == 1


def test_an_ack_of_an_unknown_id_refers_to_no_message(core: Core) -> None:
    reader = core.peer()
    reader.subscribes("/topic/t")
    core.peer().sends("/topic/t", "x")
    name = last_id(reader)
    tag = name.rpartition("-")[0]
    core.broker.event_history.acknowledged(reader.client, acked(b"other-1"))
    core.broker.event_history.acknowledged(reader.client, acked(tag.encode() + b"-x"))
    core.broker.event_history.acknowledged(reader.client, acked())
    assert what(asks(core, name)) == ["sent"]


# --- why did he get none? -------------------------------------------------------------------------


def test_a_client_without_a_subscription_that_reaches_it(core: Core) -> None:
    reader = core.peer()
    reader.subscribes("/topic/other")
    answer = asks(core, {"destination": "/topic/t", "session": "s1"})
    assert "has no subscription that reaches /topic/t; it has /topic/other" in answer["summary"]
    assert what(answer)[-1] == "event"


def test_a_consumer_that_looks_for_a_match(core: Core) -> None:
    reader, sender = core.peer(), core.peer()
    sender.sends("/queue/q", *(f"{n}" for n in range(30)), headers=(("type", "a"),))
    reader.subscribes("/queue/q", headers=(("selector", "type = 'b'"),))
    core.broker.end_turn(core.now)
    core.broker.queues.may_hand_out = lambda: False
    sender.sends("/queue/q", "behind", headers=(("type", "a"),))
    summary = asks(core, {"destination": "/queue/q", "session": "s1"})["summary"]
    assert "looks through /queue/q, and has examined all up to message 30 so far" in summary


def test_obstacles_to_the_next_message_of_a_subscription(core: Core) -> None:
    reader = core.peer(room=1, capacity=1)
    reader.subscribes("/queue/q", ack="client", headers=(("prefetch-count", "1"),))
    core.peer().sends("/queue/q", "a", "b")
    summary = asks(core, {"destination": "/queue/q", "session": "s1"})["summary"]
    assert "has 1 unacknowledged of 1 (prefetch)" in summary
    assert "gets no further messages until it acknowledges some" in summary
    picky = core.peer()
    picky.subscribes("/topic/t", headers=(("selector", "a = 1"), ("no-local", "true")))
    summary = asks(core, {"destination": "/topic/t", "session": "s3"})["summary"]
    assert "selector" in summary
    assert "no-local" in summary


def test_a_client_that_may_not() -> None:
    core = Core(rules=AccessRules())
    core.peer(identity=Identity("alice", method="passcode"))
    summary = asks(core, {"destination": "/topic/t", "user": "alice"})["summary"]
    assert "denied, since no rule allows it" in summary


def test_explanation_of_an_absent_client_and_of_a_destination_alone() -> None:
    core = Core(book={"/queue/q": DestinationPolicy(max_messages=5)})
    assert "is not connected" in asks(core, {"destination": "/t", "session": "s9"})["summary"]
    assert "there were no messages" in asks(core, {"destination": "/topic/none"})["summary"]
    core.peer().sends("/queue/q", "a")
    summary = asks(core, {"destination": "/queue/q"})["summary"]
    assert summary.startswith("/queue/q: 0 consumers, 1 sent, ")
    assert "; 1 waits, 0 unacknowledged; " in summary
    assert "subscriber" not in summary
    assert "policy: '/queue/q'" in summary


def test_a_client_that_may_and_one_that_has_nothing() -> None:
    core = Core(rules=AccessRules((Rule(True, frozenset({Action.RECEIVE}), ("**",)),)))
    core.peer(identity=Identity("alice", method="passcode"))
    summary = asks(core, {"destination": "/topic/t", "user": "alice"})["summary"]
    assert "denied" not in summary
    assert summary.endswith("it has none at all")


def test_further_obstacles_to_the_next_message() -> None:
    core = Core(book={"/queue/b": DestinationPolicy(max_messages=1, overflow="block")})
    reader = core.peer()
    reader.subscribes("/queue/q", ack="client")
    summary = asks(core, {"destination": "/queue/q", "session": "s1"})["summary"]
    assert summary.endswith("has 0 unacknowledged of 100 (prefetch)")
    sender = core.peer()
    sender.sends("/queue/b", "a", "b")
    summary = asks(core, {"destination": "/queue/b", "session": "s2"})["summary"]
    assert summary.endswith(
        "is not read from: it waits for room in a full queue (overflow = block)"
    )
    slow = core.peer(capacity=1, room=1)
    slow.subscribes("/topic/t")
    sender = core.peer()
    sender.sends("/topic/t", "a")
    summary = asks(core, {"destination": "/topic/t", "session": "s3"})["summary"]
    assert summary.endswith("does not read its messages: its outbox is full")


def test_a_subscriber_that_still_gets_its_backlog() -> None:
    core = Core(BrokerPolicies(ttl_ms=60_000))
    core.peer().sends("/topic/t", *"abc")
    late = core.peer(capacity=1, room=1)
    late.subscribes("/topic/t")
    summary = asks(core, {"destination": "/topic/t", "session": "s2"})["summary"]
    assert "still gets earlier messages" in summary


def test_losses_of_a_destination_and_of_one_of_its_subscribers() -> None:
    core = Core(BrokerPolicies(slow_consumer="drop-newest"))
    for destination in ("/topic/t", "/topic/u"):
        core.peer(capacity=1).subscribes(destination)
        core.peer().sends(destination, "a")
        core.peer().sends(destination, "b")
    asked = {"destination": "/topic/t"}
    assert what(asks(core, asked)).count("lost") == 1
    assert what(asks(core, asked | {"session": "s1"})).count("lost") == 1
    assert what(asks(core, asked | {"session": "s4"})).count("lost") == 0
    events = asks(core, asked | {"session": "s1"})["events"]
    assert next(e["text"] for e in events if e["what"] == "event").startswith("connect")


def test_a_topic_tells_what_the_full_queue_of_a_subscription_dropped() -> None:
    policy = DestinationPolicy(max_messages=1, slow_consumer="drop-newest")
    core = Core(book={"/topic/t": policy})
    core.peer().subscribes("/topic/t", ack="client-individual")
    core.peer().sends("/topic/t", "a", "b")
    assert what(asks(core, {"destination": "/topic/t"})).count("lost") == 1


def test_acks_tell_nothing_of_why_somebody_got_none(core: Core) -> None:
    reader, other = core.peer(), core.peer()
    for each, name in ((reader, "/queue/q"), (other, "/queue/other")):
        each.subscribes(name, ack="client")
        core.peer().sends(name, "a")
        each.acks(*each.messages())
    assert (
        len([each for each in core.broker.event_history.routine if isinstance(each, Settled)]) == 2
    )
    answer = asks(core, {"destination": "/queue/q", "session": "s1"})
    assert what(answer) == ["event", "event", "queued", "delivered"]


def test_nothing_is_noted_where_nothing_is_to_be_remembered() -> None:
    policies = {
        "/queue/full": DestinationPolicy(max_messages=1, overflow="drop-oldest"),
        "/queue/newest": DestinationPolicy(max_messages=1, overflow="drop-newest"),
        "/queue/q": DestinationPolicy(max_redeliveries=0),
    }
    core = Core(BrokerPolicies(explain_events=0), book=policies)
    reader, sender = core.peer(), core.peer()
    reader.subscribes("#work")
    sender.sends("#work", "a")
    sender.sends("/queue/full", "a", "b")
    sender.sends("/queue/newest", "a", "b")
    assert core.broker.overflow.dropped == 2
    reader.subscribes("/queue/q", "q", ack="client-individual")
    sender.sends("/queue/q", "poison", "good")
    poison, good = reader.messages()[-2:]
    reader.nacks(poison)
    reader.acks(good)
    assert not core.broker.event_history.routine
    assert not core.broker.event_history.trouble
    answer = asks(core, {"destination": "/queue/q"})
    assert answer["events"] == []
    assert answer["horizon_s"] == 0


# --- over the wire --------------------------------------------------------------------------------


async def test_at_diag_explain_with_a_reply() -> None:
    async with open_dial(**QUIET) as dial:
        client = await dial.connect()
        await client.subscribe("/topic/t")
        await client.publish("/topic/t", b"x")
        name = (await client.receive())["message-id"]
        headers = {
            "destination": "DIAG/explain",
            "reply-to": "/temp-queue/r",
            "correlation-id": "7",
        }
        await client.send("SEND", headers, name.encode())
        answer = await client.receive()
        assert (answer["correlation-id"], answer["content-type"]) == ("7", "application/json")
        assert json.loads(answer.body)["summary"] == "it was sent to 1 subscriber"
        await client.subscribe("DIAG/explain", id="2")
        await client.send("SEND", {"destination": "DIAG/explain"}, b'{"destination": "/topic/t"}')
        found = json.loads((await client.receive()).body)
        assert found["facts"][0].startswith("/topic/t: 1 subscriber, ")
        await client.send("SEND", {"destination": "DIAG/explain"}, b"nonsense")
        await client.expect_error("invalid-question")


async def test_an_explanation_is_served_as_a_page() -> None:
    async with open_dial(**QUIET) as dial:
        client = await dial.connect()
        await client.subscribe("/topic/t")
        await client.publish("/topic/t", b"x")
        name = (await client.receive())["message-id"]

        async def get(target: str) -> tuple[int, dict[str, Any]]:
            stream = await dial.stream()
            await stream.send_all(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            answer = b""
            while data := bytes(await stream.receive_some(65536)):
                answer += data
            head, _, body = answer.partition(b"\r\n\r\n")
            return int(head.split()[1]), json.loads(body)

        status, found = await get(f"/explain?q={name}")
        assert (status, found["summary"]) == (200, "it was sent to 1 subscriber")
        status, found = await get("/explain?destination=/topic/t&session=none")
        assert (status, found["summary"]) == (200, "session none is not connected")
        for target in ("/explain", "/explain?q=nonsense", "/explain?q=a&user=b", "/explain?x=y"):
            status, found = await get(target)
            assert status == 400
            assert "error" in found
