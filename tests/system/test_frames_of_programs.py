"""Frames that programs for other brokers send, which ended connections or were misunderstood.

Each over a socket. Reports: FAULTS.md I1, I3, I5 to I10, I12, I14, I16.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from attrs import evolve

from tests.support.durable_dial import dialled
from tests.support.fakes import TCP, Client, Dial, Received, open_dial
from trio_stomp.broker import DestinationPolicy
from trio_stomp.store import JournalStore

Q, T = "/queue/q", "/topic/t"
VERSIONS = ("1.0", "1.1", "1.2")


@asynccontextmanager
async def broker(dialect: str = "native", **options: object) -> AsyncIterator[Dial]:
    async with open_dial(TCP, dialect=dialect, **options) as dial:
        yield dial


async def ask(client: Client, command: str, **headers: str) -> Received:
    """Send a frame with a receipt, and return the answer."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    await client.send(command, {**named, "receipt": "r"})
    while (answer := await client.receive()).command == "MESSAGE":
        pass
    return answer


async def is_ignored(client: Client, command: str, header: str, **headers: str) -> bool:
    answer = await ask(client, command, **headers)
    return answer.command == "RECEIPT" and answer.get("ignored") == header


def named(client: Client, message: Received) -> dict[str, str]:
    if client.version == "1.2":
        return {"id": message["ack"]}
    return {"message-id": message["message-id"], "subscription": message["subscription"]}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["client", "client-individual"])
async def test_a_late_ack_is_ignored_and_said_to_be(version: str, mode: str) -> None:
    header = "id" if version == "1.2" else "message-id"
    async with broker() as dial:
        client, other = await dial.connect(version), await dial.connect(version)
        await client.subscribe(Q, "1", {"ack": mode})
        await client.publish(Q, b"1", b"2")
        messages = await client.receive_many(2)
        for message in reversed(messages):
            await client.send("ACK", named(client, message))
        for command in ("ACK", "NACK")[: 1 + (version != "1.0")]:
            for late in (client, other):  # other: as after a reconnection
                for message in messages:
                    assert await is_ignored(late, command, header, **named(client, message))
        await client.publish(Q, b"3")
        third = await client.receive()
        assert not await is_ignored(other, "UNSUBSCRIBE", "x", id="1")
        await client.send("UNSUBSCRIBE", {"id": "1"})
        assert await is_ignored(client, "ACK", header, **named(client, third))
        await other.subscribe(Q)
        assert (await other.receive()).body == b"3"
        # In a transaction it would be half done.
        await client.send("BEGIN", {"transaction": "t"})
        await client.send("ACK", {**named(client, third), "transaction": "t"})
        assert (await ask(client, "COMMIT", transaction="t"))["code"] == "unknown-ack"


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_end_of_what_has_ended_is_ignored_and_said_to_be(version: str) -> None:
    async with broker() as dial:
        client = await dial.connect(version)
        await client.subscribe(T, "1")
        await client.send("UNSUBSCRIBE", {"id": "1"})
        for name in ("1", "never"):
            assert await is_ignored(client, "UNSUBSCRIBE", "id", id=name)
        if version == "1.0":
            assert await is_ignored(client, "UNSUBSCRIBE", "destination", destination=T)
        for end in ("COMMIT", "ABORT"):
            await client.send("BEGIN", {"transaction": "t"})
            await client.send(end, {"transaction": "t"})
            assert await is_ignored(client, "ABORT", "transaction", transaction="t")
        # What would be believed to be done, or to be gone for good, is an ERROR.
        assert (await ask(client, "COMMIT", transaction="t"))["code"] == "unknown-transaction"
        client = await dial.connect(version)
        answer = await ask(client, "UNSUBSCRIBE", durable_subscription_name="typo", destination=T)
        assert answer["code"] == "unknown-subscription"


@pytest.mark.parametrize("spelling", [Q, "/amq/queue/q"])
async def test_a_subscription_with_an_id_ends_by_its_destination_in_1_0(spelling: str) -> None:
    async with broker() as dial:
        client = await dial.connect("1.0")
        await client.subscribe(Q, "mine")
        assert (await ask(client, "UNSUBSCRIBE", destination=spelling)).get("ignored") is None
        await client.subscribe(Q, "mine")
        answer = await ask(client, "UNSUBSCRIBE", id="mine", destination=spelling)
        assert (answer.command, answer.get("ignored")) == ("RECEIPT", None)


async def test_a_reader_of_a_stream_says_what_rabbitmq_requires(tmp_path: Path) -> None:
    book = ((T, DestinationPolicy(stream=True)),)
    async with dialled(JournalStore(str(tmp_path)), TCP, dialect="rabbitmq") as dial:
        assemble = dial.assemble
        dial.assemble = lambda settings, *more: assemble(evolve(settings, destinations=book), *more)
        sender, reader = await dial.connect(), await dial.connect()
        await sender.publish(T, b"1", headers={"persistent": "true"}, receipt=True)
        required = {"durable": "true", "auto-delete": "false", "ack": "client"}
        await reader.subscribe(T, "1", {**required, "x-stream-offset": "first"})
        assert (await reader.receive()).body == b"1"
        await reader.subscribe(T, "2", {**required, "x-queue-type": "stream"})
        await sender.publish(T, b"2", headers={"persistent": "true"}, receipt=True)
        found = [await reader.receive() for _ in range(2)]
        assert {(each["subscription"], each.body) for each in found} == {("1", b"2"), ("2", b"2")}


async def test_the_receipt_of_connect_is_answered_in_activemq() -> None:
    for dialect in ("activemq", "native"):
        async with broker(dialect) as dial:
            stream = await dial.stream()
            await stream.send_all(b"CONNECT\naccept-version:1.2\nhost:x\nreceipt:c\n\n\0")
            found = await stream.receive_some()
            lines = [b"receipt-id:c" in found, b"response-id:c" in found]
            assert lines == [dialect == "activemq"] * 2


@pytest.mark.parametrize("name", ["JMSTimestamp", "JMSRedelivered", "JMSXDeliveryCount"])
async def test_a_selector_that_would_never_match_is_refused(name: str) -> None:
    async with broker() as dial:
        client = await dial.connect()
        answer = await ask(client, "SUBSCRIBE", destination=Q, id="1", selector=f"{name} > 0")
        assert answer["code"] == "invalid-selector"
        assert name in answer["message"]


async def test_consumers_of_one_queue_name_share_the_messages_of_a_topic() -> None:
    async with broker() as dial:
        clients = [await dial.connect() for _ in range(3)]
        for client in clients[:2]:
            await client.subscribe(T, "1", {"x-queue-name": "work"})
        await clients[2].subscribe(T, "1", {"x-queue-name": "other"})
        await clients[2].publish(T, *[b"%d" % n for n in range(10)])
        assert len(await clients[2].receive_many(10)) == 10
        found = list[Received]()
        while len(found) < 10:
            found += [frame for client in clients[:2] for frame in await client.fence()]
        assert sorted(frame.body for frame in found) == [b"%d" % n for n in range(10)]
        await clients[0].send("UNSUBSCRIBE", {"id": "1", "receipt": "u"})
        await clients[0].receive_until_receipt("u")
        await clients[2].publish(T, b"last")
        assert (await clients[1].receive()).body == b"last"
        clients[1].abort()
        await clients[2].receive()


@pytest.mark.parametrize("dialect", ["activemq", "artemis", "native"])
@pytest.mark.parametrize("to", [Q, T])
async def test_a_text_comes_as_a_text(dialect: str, to: str) -> None:
    async with broker(dialect) as dial:
        client = await dial.connect()
        await client.subscribe(to)
        for headers, length in (({}, None), ({"content-length": "4"}, "4")):
            await client.send("SEND", {"destination": to, **headers}, b"text")
            message = await client.receive()
            assert message.body == b"text"
            assert message.get("content-length") == ("4" if dialect == "native" else length)


@pytest.mark.parametrize("kind", ["queue", "topic"])
async def test_a_reply_goes_where_activemq_says(kind: str) -> None:
    async with broker("activemq") as dial:
        asker, worker = await dial.connect(), await dial.connect()
        await asker.subscribe(f"/temp-{kind}/x", "1")
        await worker.subscribe(Q)
        await asker.send("SEND", {"destination": Q, "reply-to": f"/temp-{kind}/x"}, b"?")
        reply_to = (await worker.receive())["reply-to"]
        assert reply_to.startswith(f"/remote-temp-{kind}/")
        await worker.publish(reply_to, b"!")
        assert (await asker.receive()).body == b"!"


async def test_the_second_subscribe_to_a_durable_subscription_replaces_the_first() -> None:
    async with broker() as dial:
        client = await dial.connect("1.2", {"client-id": "c"})
        durable = {"durable-subscription-name": "d", "ack": "client"}
        await client.subscribe(T, "1", durable)
        await client.publish(T, b"1")
        assert (await client.receive())["subscription"] == "1"
        await client.subscribe(T, "2", durable)
        again = await client.receive()
        assert (again["subscription"], again.body) == ("2", b"1")
        await client.send("UNSUBSCRIBE", {"id": "2", **durable})
        assert await client.fence() == []


async def test_activemq_refuses_a_durable_subscription_to_a_queue() -> None:
    for dialect, command in (("activemq", "ERROR"), ("native", "RECEIPT")):
        async with broker(dialect) as dial:
            client = await dial.connect("1.2", {"client-id": "c"})
            headers = {"activemq.subscriptionName": "d", "destination": Q, "id": "1"}
            await client.send("SUBSCRIBE", {**headers, "receipt": "r"})
            answer = await client.receive()
            assert answer.command == command


@pytest.mark.parametrize("name", [" /queue/x", "//queue/x", "\\queue\\x", "/queue:x"])
async def test_a_slip_in_a_destination_gets_a_hint(name: str) -> None:
    async with broker() as dial:
        client = await dial.connect()
        answer = await ask(client, "SEND", destination=name)
        assert answer["matched"] == "0"
        assert answer["hint"] == "the name of a queue begins with /queue/"


async def test_a_connect_without_its_nul_is_told_what_is_missing() -> None:
    async with broker(connect_timeout_s=0.2) as dial:
        stream = await dial.stream()
        await stream.send_all(b"CONNECT\naccept-version:1.2\nhost:x\n\n")
        answer = b""
        while more := await stream.receive_some():
            answer += more
        assert b"a frame has begun, and ends with a blank line and a NUL byte" in answer
