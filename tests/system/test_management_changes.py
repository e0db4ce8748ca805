"""Search, redelivery, streams, schedules and durable subscriptions by the management interface."""

import json
from pathlib import Path

import pytest
import trio

from tests.support.fakes import MEMORY, open_dial
from tests.support.management import Interface
from tests.support.served import Served, served, served_with
from tests.support.site import QUIET, add_all
from trio_stomp.broker import DestinationPolicy

Q = "/queue/q"
STREAM = "/stream/topic/log"


async def events(broker: Served, *names: str) -> "Events":
    """Return the events of these names from now on."""
    client = await broker.connect({})
    for name in names:
        await client.subscribe(f"DIAG/event/{name}", name)
    await client.fence()
    return Events(client)


class Events:
    """Events on DIAG."""

    def __init__(self, client: object) -> None:
        self.client = client

    async def next(self) -> tuple[str, str, str]:
        """Return the next event: its name, destination and detail."""
        event = json.loads((await self.client.receive()).body)  # type: ignore[attr-defined]
        return event["name"], event["destination"], event["detail"]


async def test_messages_are_searched_by_body_time_and_id() -> None:
    async with served() as broker:
        client, interface = await broker.connect({}), Interface(broker)
        await client.publish(Q, "grüne Äpfel".encode(), b"pears", receipt=True)
        search = f"messages?queue={Q}"
        (apples,) = (await interface.get(f"{search}&body=%C3%84pfel"))["messages"]
        assert apples["body"] == "grüne Äpfel"
        at_ms = apples["received_ms"]
        assert (await interface.get(f"{search}&until={at_ms}"))["messages"] == []
        assert len((await interface.get(f"{search}&since={at_ms}"))["messages"]) == 2
        assert (await interface.ask("GET", f"{search}&body=%FF")).status == 400
        moved = await interface.post(f"move?queue={Q}&to=/queue/r&id={apples['message_id']}&id=b-9")
        assert moved["moved"] == 1
        assert (await interface.post(f"purge?queue={Q}&body=ear"))["purged"] == 1


async def test_dead_letters_are_retried_by_their_origin() -> None:
    async with served(max_redeliveries=0) as broker:
        client, interface = await broker.connect({}), Interface(broker)
        await client.subscribe(Q, headers={"ack": "client-individual"})
        await client.publish(Q, b"a", receipt=True)
        message = await client.receive()
        await client.send("NACK", [("id", message["ack"])])
        await client.fence()
        dead = "/queue/DLQ.q"
        assert (await interface.post(f"retry?queue={dead}&origin=/queue/other"))["sent"] == 0
        assert (await interface.post(f"retry?queue={dead}&origin=/queue/other&origin={Q}")) == {
            "queue": dead,
            "sent": 1,
            "left": {},
        }


async def test_unacknowledged_messages_return_to_their_queue() -> None:
    async with served() as broker:
        client, interface = await broker.connect({}), Interface(broker)
        reported = await events(broker, "redeliver")
        await client.subscribe(Q, headers={"ack": "client-individual", "prefetch-count": "9"})
        await client.publish(Q, b"a", b"b", receipt=True)
        await client.receive_many(2)
        session = (await interface.get(f"queue?queue={Q}"))["consumers"][0]["session_id"]
        done = await interface.post(f"redeliver?queue={Q}&session={session}")
        assert done == {"queue": Q, "redelivered": 2}
        assert await reported.next() == ("redeliver", Q, "2 messages")
        again = await client.receive_many(2)
        assert {each["redelivered"] for each in again} == {"true"}
        reply = await interface.ask("POST", f"redeliver?queue={Q}&session=999")
        assert (reply.status, json.loads(reply.body)["code"]) == (404, "no-such-session")


@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_stream_is_shown_and_trimmed(tmp_path: Path, is_stored: bool) -> None:
    options = {"data_dir": str(tmp_path)} if is_stored else {}
    policies = {"/topic/log": DestinationPolicy(stream=True)}
    async with served_with(policies, options) as broker:
        client, interface = await broker.connect({}), Interface(broker)
        reported = await events(broker, "trim")
        await client.subscribe(STREAM, "r", {"from-seq": "1"})
        await client.publish("/topic/log", b"a", b"\xff", b"c" * 9, receipt=True)
        await client.receive_many(2)
        names = [each["stream"] for each in (await interface.get("streams"))["streams"]]
        assert names == [STREAM]
        shown = await interface.get(f"stream?stream={STREAM}")
        assert (shown["messages"], shown["stored"], shown["total"]) == (3, is_stored, 1)
        assert shown["readers"][0]["offset"] == 3
        page = await interface.get(f"records?stream={STREAM}&offset=1&bytes=4")
        assert (page["offset"], page["next_offset"], page["next"]) == (1, 3, 3)
        second, third = page["records"]
        assert (second["body_base64"], second["size"]) == ("/w==", 1)
        assert (third["body"], third["headers"]["destination"]) == ("cccc", "/topic/log")
        at_ms = second["written_ms"]
        assert len((await interface.get(f"records?stream={STREAM}&time={at_ms}"))["records"]) == 3
        assert (await interface.get(f"records?stream={STREAM}&topic=/topic/x"))["records"] == []
        trimmed = await interface.post(f"trim?stream={STREAM}&offset=2")
        assert trimmed == {"stream": STREAM, "first": 2, "trimmed": 2}
        assert await reported.next() == ("trim", STREAM, "2 records")
        assert (await interface.get(f"records?stream={STREAM}"))["offset"] == 2
        for bad in ("", "&offset=1&time=1"):
            reply = await interface.ask("POST", f"trim?stream={STREAM}{bad}")
            assert reply.status == 400
    if is_stored:
        async with served_with(policies, options) as broker:
            assert (await Interface(broker).get(f"stream?stream={STREAM}"))["first"] == 2


async def test_schedules_and_durable_subscriptions_are_ended() -> None:
    async with served() as broker:
        client, interface = await broker.connect({}), Interface(broker)
        reported = await events(broker, "cancel", "end")
        for _ in range(2):
            await client.publish(Q, b"x", headers={"AMQ_SCHEDULED_DELAY": "60000"}, receipt=True)
        listed = await interface.get("schedules?limit=1")
        assert (listed["total"], listed["count"]) == (2, 1)
        assert (await interface.get("schedules?user=nobody"))["total"] == 0
        cancelled = await interface.post(f"cancel?id={listed['schedules'][0]['id']}&id=77")
        assert cancelled == {"cancelled": 1}
        assert await reported.next() == ("cancel", "", "1 message")
        await client.subscribe("/topic/t", "d", {"durable-subscription-name": "n", "ack": "client"})
        await client.fence()
        reply = await interface.ask("POST", "end?name=other")
        assert (reply.status, json.loads(reply.body)["code"]) == (404, "no-such-subscription")
        assert await interface.post("end?name=n&destination=/topic/t") == {"name": "n", "ended": 1}
        assert await reported.next() == ("end", "/topic/t", "n")
        assert (await interface.get("durables"))["total"] == 0


@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_queue_is_created_and_deleted(tmp_path: Path, is_stored: bool) -> None:
    options = {"data_dir": str(tmp_path)} if is_stored else {}
    async with served(**options) as broker:
        interface = Interface(broker)
        reported = await events(broker, "create", "delete")
        assert await interface.post(f"create?queue={Q}") == {"queue": Q, "created": True}
        assert await interface.post(f"create?queue={Q}") == {"queue": Q, "created": False}
        assert await reported.next() == ("create", Q, "")
        (queue,) = (await interface.get("queues"))["queues"]
        assert (queue["declared"], queue["input_depth"]) == (True, 0)
    async with served(**options) as broker:
        interface = Interface(broker)
        if not is_stored:
            await interface.post(f"create?queue={Q}")
        reported = await events(broker, "delete")
        client = await broker.connect({})
        await client.subscribe(Q, headers={"ack": "client"})
        await client.fence()
        reply = await interface.ask("POST", f"delete?queue={Q}")
        assert (reply.status, json.loads(reply.body)["code"]) == (409, "queue-in-use")
        await interface.post(f"pause?queue={Q}")
        await interface.post(f"send?destination={Q}&header=persistent:true", b"x")
        reply = await interface.ask("POST", f"delete?queue={Q}")
        assert (reply.status, json.loads(reply.body)["code"]) == (409, "queue-not-empty")
        assert await interface.post(f"delete?queue={Q}&force=1") == {
            "queue": Q,
            "deleted": True,
            "purged": 1,
            "held": 0,
        }
        await client.expect_error("queue-deleted")
        assert await reported.next() == ("delete", Q, "1 messages purged, 0 held by consumers")
        assert (await interface.get("queues"))["total"] == 0


async def test_a_deleted_queue_tells_of_the_messages_that_consumers_held() -> None:
    async with served() as broker:
        interface = Interface(broker)
        client = await broker.connect({})
        await client.publish(Q, b"held", b"held, too", b"waits", receipt=True)
        reader = await broker.connect({})
        await reader.subscribe(Q, headers={"ack": "client", "prefetch-count": "2"})
        held = [frame["message-id"] for frame in await reader.receive_many(2)]
        deleted = await interface.post(f"delete?queue={Q}&force=1")
        assert (deleted["purged"], deleted["held"]) == (1, 2)
        await reader.expect_error("queue-deleted")
        for each in held:
            explained = await interface.get(f"explain?q={each}")
            assert "queue-ended" in explained["summary"]


async def test_a_message_is_sent_with_headers_and_any_body() -> None:
    async with served() as broker:
        client, interface = await broker.connect({}), Interface(broker)
        reported = await events(broker, "send")
        body = bytes(range(256)) * 1000
        sent = await interface.post(f"send?destination={Q}&header=a:b:c&header=d%3A%0A", body)
        assert sent == {"destination": Q, "receipt": {"stored": "memory"}}
        assert await reported.next() == ("send", Q, "1 message")
        await client.subscribe(Q)
        message = await client.receive()
        assert (message.body, message["a"], message["d"]) == (body, "b:c", "\n")
        assert (await interface.post("send?destination=/topic/t"))["receipt"]["matched"] == "0"
        for header in ("novalue", "receipt:1", ":x"):
            reply = await interface.ask("POST", f"send?destination={Q}&header={header}")
            assert (reply.status, json.loads(reply.body)["code"]) == (400, "bad-request")
        reply = await interface.ask("POST", "send?destination=DIAG/session")
        assert (reply.status, json.loads(reply.body)["code"]) == (400, "reserved-destination")
        reply = await interface.ask("POST", f"send?destination={'x' * 2000}")
        assert json.loads(reply.body)["code"] == "destination-too-long"


async def test_bodies_are_bounded_and_whole(autojump_clock: trio.testing.MockClock) -> None:
    async with open_dial(MEMORY, connect_timeout_s=5.0, max_body_bytes=100, **QUIET) as dial:
        await dial.start()
        add_all(dial)

        async def answer(*parts: bytes, ends: bool = False) -> bytes:
            stream = await dial.stream()
            for part in parts:
                await stream.send_all(part)
                await trio.testing.wait_all_tasks_blocked()
            if ends:
                assert isinstance(stream, trio.abc.HalfCloseableStream)
                await stream.send_eof()
            found = b""
            while data := bytes(await stream.receive_some(4096)):
                found += data
            await stream.aclose()
            return found

        head = b"POST /api/v1/send?destination=/topic/t HTTP/1.1\r\nHost: localhost\r\n"
        used = dial.server.memory.used_bytes
        assert b" 413 " in await answer(head + b"Content-Length: 101\r\n\r\n")
        assert b" 411 " in await answer(head + b"Transfer-Encoding: chunked\r\n\r\n")
        length = head + b"Content-Length: 4\r\n"
        expecting = await answer(length + b"Expect: 100-continue\r\n\r\n", b"bo", b"dy")
        assert expecting.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")
        assert b" 200 " in await answer(length + b"\r\nbo", b"dy and more")
        assert b"the body ended after 2 of 4 bytes" in await answer(length + b"\r\nbo", ends=True)
        began = trio.current_time()
        assert b" 200 " not in await answer(length + b"\r\nbo")
        assert trio.current_time() - began == pytest.approx(5, abs=1)
        assert dial.server.memory.used_bytes == used
