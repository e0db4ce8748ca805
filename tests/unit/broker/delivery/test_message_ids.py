"""The message-id of a queue's message stays, and names one delivery (S7, S8, B5)."""

from functools import partial

import pytest

from tests.support.core import Actor, Bench, bench, numbered
from tests.support.durable_fakes import DurableBench
from tests.support.explain_fakes import asks
from tests.support.fakes import TCP, Client, Received, bodies, open_dial
from trio_stomp.base import CloseReason
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.delivery import MessageNames
from trio_stomp.protocol import Acked, Unsubscribed

Q = "/queue/q"
KEPT = DestinationPolicy(persistent="always", backoff_s=())
every_version = pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])


async def fence(client: Client) -> list[Received]:
    """Do as the client's own fence, on a destination that is a topic in every dialect."""
    return await client.publish("/topic/fence", b"", receipt=True)


def ids_of(actor: Actor) -> list[str]:
    return [frame.get("message-id") or "" for frame in actor.reads()]


def by_id(*names: str, negative: bool = False, subscription: str | None = None) -> Acked:
    """Return ACKs or NACKs with message-ids, as in any version."""
    raw = [name.encode() for name in names]
    return Acked(raw, "message-id", subscription, negative, True, ())


@every_version
def test_a_message_id_is_the_same_for_every_consumer(version: str) -> None:
    desk = bench(backoff_s=())
    first, second, third = desk.actor(version), desk.actor("1.1"), desk.actor(version)
    first.subscribes(Q, ack="client-individual", prefetch_count="1")
    first.sends(Q, "a")
    [name] = ids_of(first)
    first.leaves()
    browser = desk.actor(version)
    browser.subscribes(Q, browser="true")
    assert ids_of(browser)[0] == name
    second.subscribes(Q, ack="client")
    assert ids_of(second) == [name]
    second.does(by_id(name, negative=True))
    assert ids_of(second) == [name]
    second.leaves()
    third.subscribes(Q)
    assert ids_of(third) == [name]
    desk.ends()


def test_each_copy_has_an_id_of_its_own(bench: Bench) -> None:
    actor = bench.actor("1.1")
    for id in "12":
        actor.subscribes("/topic/t", id, ack="client")
    actor.sends("/topic/t", "a", "b")
    frames = actor.reads()
    assert len({frame.get("message-id") for frame in frames}) == 4
    for frame in frames:
        if frame.get("subscription") == "2":
            actor.does(by_id(frame.get("message-id") or ""))
    assert actor.reads() == []
    assert not actor.consumer("2").unacked
    assert len(actor.consumer("1").unacked) == 2


def test_stored_messages_have_the_same_ids_after_restarts_and_no_others_ever() -> None:
    desk = DurableBench(book={Q: KEPT})
    actor = desk.actor()
    actor.sends(Q, "a", "b")
    actor.sends("/queue/fleeting", *numbered("", 5))
    actor.subscribes(Q, "q", ack="client")
    actor.subscribes("/queue/fleeting", "f", ack="client")
    frames = actor.reads()
    kept = [frame.get("message-id") for frame in frames if frame.get("subscription") == "q"]
    others = {frame.get("message-id") for frame in frames if frame.get("subscription") == "f"}
    assert (len(kept), len(others)) == (2, 5)
    for boot in ("b2", "b3"):
        desk = desk.restarts()
        names = MessageNames(boot, desk.log.named(boot))
        desk.broker.fan_out.names = desk.broker.acknowledger.names = names
        actor = desk.actor("1.1")
        actor.sends(Q, "more")
        actor.sends("/queue/fleeting", *numbered("", 5))
        actor.subscribes(Q, "q", ack="client")
        actor.subscribes("/queue/fleeting", "f", ack="client")
        frames = actor.reads()
        now = [frame.get("message-id") for frame in frames if frame.get("subscription") == "q"]
        assert now[: len(kept)] == kept
        assert len(now) == len(kept) + 1
        fresh = {frame.get("message-id") for frame in frames if frame.get("subscription") == "f"}
        assert len(fresh) == 5
        assert not {*fresh, now[-1]} & {*others, *kept}
        kept, others = now, others | fresh
    actor.does(by_id(kept[0] or ""))
    actor.reads()
    actor.leaves()
    assert desk.queue(Q).depth == 3


def test_a_store_without_a_name_gets_a_permanent_one() -> None:
    desk = DurableBench(book={Q: KEPT})
    actor = desk.actor()
    actor.sends(Q, "a")
    desk.turn()
    desk.log.forget("identity")  # as it was before there were names
    desk.turn()
    found = set()
    for _ in range(2):
        desk = desk.restarts()
        actor = desk.actor()
        actor.subscribes(Q, ack="client")
        found.update(ids_of(actor))
        settings = desk.store.recover(lambda done, total: None).settings
        assert settings["identity"] == "bs"
    assert found == {"bs-1"}


@every_version
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_an_ack_by_message_id_is_of_the_latest_delivery(version: str, ack: str) -> None:
    desk = bench(ack_timeout_ms=1000, backoff_s=(), max_redeliveries=9)
    actor = desk.actor(version)
    actor.subscribes(Q, ack=ack)
    actor.sends(Q, "a", "b", "c")
    frames = actor.reads()
    names = [frame.get("message-id") or "" for frame in frames]
    desk.passes(1.0)
    again = actor.reads()
    assert [frame.get("message-id") for frame in again] == names
    actor.does(by_id(names[1]))
    assert actor.reads() == []
    left = ["c"] if ack == "client" else ["a", "c"]
    held = [each.body.decode() for each in actor.consumer().unacked.values()]
    assert held == left
    actor.does(by_id(names[2], negative=True))
    assert actor.bodies() == ["c"]  # no other messages of the mode client are left
    desk.ends()


def test_the_ack_header_of_1_2_names_the_delivery_and_no_other() -> None:
    desk = bench(ack_timeout_ms=1000, backoff_s=(), max_redeliveries=9)
    actor = desk.actor()
    actor.subscribes(Q, ack="client")
    actor.sends(Q, "a")
    [late] = actor.reads()
    desk.passes(1.0)
    [again] = actor.reads()
    assert late.get("ack") != again.get("ack")
    actor.acks(late)
    assert actor.error().get("code") == "unknown-ack"
    desk.ends()


@pytest.mark.parametrize("wrong", ["b-9", "bs-1", "b-x", "b-", "-1", "b-" + "1" * 30, "b-1 "])
def test_id_of_another_consumer_is_unknown(bench: Bench, wrong: str) -> None:
    actor = bench.actor("1.1")
    actor.subscribes(Q, ack="client")
    actor.sends(Q, "a")
    assert ids_of(actor) == ["b-1"]
    actor.does(by_id(wrong))
    assert actor.error().get("code") == "unknown-ack"


def test_acknowledged_id_is_unknown_unless_some_need_no_ack(bench: Bench) -> None:
    actor = bench.actor("1.1")
    actor.subscribes(Q, ack="client")
    actor.sends(Q, "a", "b")
    names = ids_of(actor)
    actor.subscribes("/queue/r", "r")
    actor.does(by_id(names[0]), by_id(names[0]))
    assert actor.reads() == []  # it could be a message of the mode auto
    assert bench.broker.acknowledger.counters.ignored == 1
    actor.does(by_id("c-1"))
    assert actor.error().get("code") == "unknown-ack"


def test_offsets_of_a_stream_are_not_taken_for_numbers_of_messages() -> None:
    desk = Bench(book={"/topic/s": DestinationPolicy(stream=True)})
    actor = desk.actor("1.1")
    actor.sends("/topic/s", *numbered("s", 3))
    actor.subscribes("/topic/s", "s", ack="client-individual", x_stream_offset="first")
    actor.subscribes(Q, "q", ack="client-individual")
    actor.sends(Q, *numbered("q", 3))
    frames = {frame.text: frame.get("message-id") or "" for frame in actor.reads()}
    assert len(set(frames.values())) == 6
    actor.does(by_id(frames["q1"]), by_id(frames["s1"]), by_id(frames["s0"]))
    assert actor.reads() == []
    assert len(actor.consumer("s").unacked) == 1
    assert [each.body for each in actor.consumer("q").unacked.values()] == [b"q0", b"q2"]
    actor.unsubscribes("s")
    actor.does(by_id(frames["q0"]), by_id(frames["q2"]))
    assert actor.reads() == []
    assert desk.broker.acknowledger.counters.ignored == 0
    actor.leaves()


def test_runs_and_transactions_may_name_messages_too() -> None:
    desk = bench()
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, *numbered("", 6))
    names = ids_of(actor)
    actor.does(by_id(*names[:2]))
    actor.commits(by_id(names[2]), by_id(names[4]), receipt=None)
    assert actor.reads() == []
    assert desk.broker.acknowledger.counters.acked == 4
    asked = asks(desk, names[0])
    assert asked["summary"] == "it was delivered and acknowledged"
    actor.leaves()
    assert desk.waiting(Q) == ["3", "5"]
    desk.ends()


def test_index_entries_are_removed_with_the_deliveries() -> None:
    desk = bench()
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual", prefetch_count="3")
    actor.sends(Q, *numbered("", 9))
    frames = actor.reads()
    actor.does(by_id(frames[0].get("message-id") or ""))
    more = actor.reads()
    assert len(actor.client.lent or {}) == 3
    actor.acks(*frames[1:], *more)
    actor.reads()
    assert len(actor.client.lent or {}) == 3
    actor.unsubscribes()
    assert actor.client.lent == {}
    desk.ends()


# Explain, by the id of a message.


def test_fate_of_a_message_is_found_by_its_id() -> None:
    desk = bench(backoff_s=())
    actor = desk.actor("1.1")
    explain = partial(asks, desk)
    actor.sends(Q, "a")
    assert explain("b-1")["summary"] == "it waits in its queue"
    actor.subscribes(Q, ack="client")
    [name] = ids_of(actor)
    assert explain(name)["summary"] == "it was delivered, and has not been acknowledged so far"
    actor.does(by_id(name, negative=True))
    actor.reads()
    actor.does(by_id(name))
    actor.reads()
    assert explain(name)["summary"] == "it was delivered 2 times and acknowledged"
    assert explain("b-7")["facts"] == [
        "there is no record of a message with that id, or none any more"
    ]
    desk.broker.event_history.capacity = 0
    assert "explain_events" in str(explain("b-7")["summary"])
    desk.ends()


# Over the wire, by dialect.


async def settles(dialect: str, version: str, command: str, **reported: str) -> list[bytes]:
    """ACK or NACK the second of three messages. Return the remaining deliveries."""
    async with open_dial(TCP, dialect=dialect) as dial:
        client = await dial.connect(version)
        await client.publish(Q, b"1", b"2", b"3", receipt=True)
        got = await client.subscribe(Q, "s", {"ack": "client-individual"})
        got += await client.receive_many(3 - len(got))
        await client.send(command, {"message-id": got[1]["message-id"], **reported})
        if command == "NACK":
            assert (await client.receive())["redelivered"] == "true"
        await fence(client)
        client.abort()
        other = await dial.connect(version)
        while len(dial.server.broker.clients) > 1:
            await fence(other)
        found = bodies([*await other.subscribe(Q), *await fence(other)])
        await other.disconnect()
        return found


@pytest.mark.parametrize("dialect", ["native", "rabbitmq", "activemq"])
@every_version
@pytest.mark.parametrize("command", ["ACK", "NACK"])
async def test_a_message_id_alone_is_enough(dialect: str, version: str, command: str) -> None:
    if (command, version) == ("NACK", "1.0") and dialect != "rabbitmq":
        return
    left = [b"1", b"3"] if command == "ACK" else [b"1", b"2", b"3"]
    assert await settles(dialect, version, command) == left


async def test_rabbitmq_does_not_look_at_the_subscription_of_an_ack() -> None:
    assert await settles("rabbitmq", "1.1", "ACK", subscription="other") == [b"1", b"3"]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
async def test_rabbitmq_needs_no_id_to_subscribe(version: str) -> None:
    async with open_dial(TCP, dialect="rabbitmq") as dial:
        client = await dial.connect(version)
        await client.send("SUBSCRIBE", {"destination": Q, "ack": "client"})
        await client.publish(Q, b"1")
        message = await client.receive()
        assert message["subscription"] == Q
        name = "ack" if version == "1.2" else "message-id"
        headers = {"id": message[name]} if version == "1.2" else {"message-id": message[name]}
        await client.send("ACK", headers)
        await client.send("UNSUBSCRIBE", {"destination": Q})
        await client.publish(Q, b"2", receipt=True)
        assert await fence(client) == []
        assert bodies([*await client.subscribe(Q), *await fence(client)]) == [b"2"]


# By durable name (S13).


@every_version
@pytest.mark.parametrize("is_subscribed", [False, True])
def test_a_durable_subscription_ends_by_its_name_alone(
    bench: Bench, version: str, is_subscribed: bool
) -> None:
    named = {"durable_subscription_name": "n"}
    for is_there in (True, is_subscribed):
        actor = bench.actor(version)
        if is_there:
            actor.subscribes("/topic/t", "0", ack="client", **named)
        actor.sends("/topic/t", "a")
        actor.reads()
        if is_there is not is_subscribed or not is_subscribed:
            bench.broker.forget(actor.client, CloseReason.CLIENT_CLOSED, bench.now)
            actor = bench.actor(version)
    headers = (("durable-subscription-name", "n"),)
    actor = bench.actor(version)
    actor.does(Unsubscribed(None, None, b"gone", headers))
    assert [frame.command for frame in actor.frames()] == ["RECEIPT"]
    assert list(bench.broker.bindings.durables) == []
    actor.does(Unsubscribed(None, None, None, headers))
    error = actor.error()
    assert error.get("code") == "unknown-subscription"
    assert (error.get("message") or "").startswith("what it names is no subscription")


@every_version
def test_unsubscribe_by_name_ends_the_connections_own_subscription_too(
    bench: Bench, version: str
) -> None:
    actor = bench.actor(version)
    actor.subscribes("/topic/t", "0", ack="client", durable_subscription_name="n")
    actor.does(Unsubscribed(None, None, b"gone", (("durable-subscription-name", "n"),)))
    assert [frame.command for frame in actor.frames()] == ["RECEIPT"]
    assert actor.client.subscriptions == {}
    actor.sends("/topic/t", "a")
    assert actor.reads() == []
