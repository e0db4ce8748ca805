"""A client of a node whose cluster has three partitions, each with a broker of its own."""

import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from tests.support.fakes import (
    INSIDE,
    ROUTED,
    ROUTED_WS,
    Client,
    Dial,
    Received,
    StreamPipe,
    bodies,
    open_dial,
    until,
)
from trio_stomp.broker import Delivery
from trio_stomp.cluster import Contact
from trio_stomp.cluster.routing import Placement, Router
from trio_stomp.server import InnerServer

PLACEMENT = Placement(3)
A, B, C = (
    next(name for number in range(99) if PLACEMENT.of(name := f"/queue/q{number}") == partition)
    for partition in range(3)
)
"""A queue in each partition."""
EACH = {"ack": "client-individual"}
pytestmark = pytest.mark.parametrize("transport", [ROUTED, INSIDE])


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session ends because a slow machine takes long to bring an owner back."""
    monkeypatch.setattr("trio_stomp.cluster._gate.WAIT_S", 60)


@asynccontextmanager
async def routed(transport: str = ROUTED, **options: object) -> AsyncGenerator[Dial, None]:
    """A node, and the brokers of its partitions. A test may take at most a minute."""
    with trio.fail_after(60):
        async with open_dial(transport, **options) as dial:
            await dial.start()
            yield dial


async def absent(dial: Dial, partition: int) -> Contact:
    """Take away the owner of a partition, and return it."""
    contact = dial.gates[partition].owner
    assert contact is not None
    dial.gates[partition].point_to(None)
    return contact


def router(dial: Dial) -> Router:
    core = dial.server.dispatcher.core
    assert isinstance(core, Router)
    return core


async def consume(
    client: Client, *names: str, count: int, headers: Mapping[str, str] = EACH
) -> list[Received]:
    """Subscribe to destinations, with their numbers as ids, and return messages."""
    got: list[Received] = []
    for number, name in enumerate(names):
        got += await client.subscribe(name, id=f"{number}", headers=headers)
    return [*got, *await client.receive_many(count - len(got))]


async def nothing_more(client: Client) -> None:
    """Check that no frame comes for a while."""
    with trio.move_on_after(0.1) as scope:
        raise AssertionError(await client.receive())
    assert scope.cancelled_caught


def receipts(frames: list[Received]) -> list[str]:
    return [frame["receipt-id"] for frame in frames if frame.command == "RECEIPT"]


async def test_destinations_are_spread_over_the_brokers_of_partitions(transport: str) -> None:
    async with routed(transport) as dial:
        client = await dial.connect()
        for name in (A, B, C):
            await client.publish(name, name.encode(), receipt=True)
        assert [[queue.name for queue in broker.queues] for broker in dial.brokers] == [
            [A],
            [B],
            [C],
        ]
        got = await consume(client, "/queue/>", count=3, headers={})
        assert set(bodies(got)) == {A.encode(), B.encode(), C.encode()}


async def test_a_client_is_connected_only_to_the_owners_that_it_uses(transport: str) -> None:
    async with routed(transport) as dial:
        client = await dial.connect()
        await client.publish(B, b"x", receipt=True)
        assert [len(broker.clients) for broker in dial.brokers] == [0, 1, 0]
        (theirs,) = dial.brokers[1].clients
        (ours,) = dial.server.broker.clients
        assert (theirs.remote, theirs.transport) == (ours.remote, ours.transport)


async def test_the_receipt_of_a_wildcard_comes_after_all_partitions(transport: str) -> None:
    async with routed(transport) as dial:
        contact = await absent(dial, 2)
        client = await dial.connect()
        await client.send("SUBSCRIBE", {"destination": "/topic/>", "id": "1", "receipt": "all"})
        await until(lambda: len(dial.brokers[0].subscriptions) == 1)
        await nothing_more(client)
        dial.gates[2].point_to(contact)
        assert (await client.receive())["receipt-id"] == "all"
        await client.send("UNSUBSCRIBE", {"id": "1", "receipt": "none"})
        assert (await client.receive())["receipt-id"] == "none"
        assert [len(broker.subscriptions) for broker in dial.brokers] == [0, 0, 0]


@pytest.mark.parametrize(
    ("version", "command"),
    [("1.0", "ACK"), ("1.1", "ACK"), ("1.1", "NACK"), ("1.2", "ACK"), ("1.2", "NACK")],
)
async def test_acks_and_nacks_reach_the_partition_of_their_message(
    transport: str, version: str, command: str
) -> None:
    async with routed(transport) as dial:
        client = await dial.connect(version)
        for number, name in enumerate((A, B, C)):
            await client.publish(name, b"%d" % number)
        got = {frame.body: frame for frame in await consume(client, A, B, C, count=3)}
        for number in range(3):
            frame = got[b"%d" % number]
            named = {"message-id": frame["message-id"]}
            if version == "1.2":
                named = {"id": frame["ack"]}
            more = {"subscription": f"{number}", "requeue": "false", "receipt": f"{number}"}
            await client.send(command, {**named, **more})
            assert (await client.receive())["receipt-id"] == f"{number}"
        assert [broker.acknowledger.counters.ignored for broker in dial.brokers] == [0, 0, 0]
        waiting = sum(queue.message_count for broker in dial.brokers for queue in broker.queues)
        assert waiting == (0 if command == "ACK" else 3)  # dead letters


async def test_a_dead_letter_stays_in_the_partition_of_its_queue(transport: str) -> None:
    async with routed(transport) as dial:
        client = await dial.connect()
        for name in (A, B, C):
            await client.publish(name, name.encode())
            (frame,) = await consume(client, name, count=1)
            await client.send("NACK", {"id": frame["ack"], "requeue": "false"})
            await client.send("UNSUBSCRIBE", {"id": "0"})
            dead = f"/queue/DLQ.{name.removeprefix('/queue/')}"
            assert bodies(await consume(client, dead, count=1, headers={})) == [name.encode()]
            await client.send("UNSUBSCRIBE", {"id": "0"})


async def test_a_run_of_acks_is_split_by_partition(transport: str) -> None:
    async with routed(transport) as dial:
        client = await dial.connect()
        for name in (A, B):
            await client.publish(name, b"1", b"2")
        names = [frame["ack"] for frame in await consume(client, "/queue/>", count=4)]
        await client.send_bytes(b"".join(b"ACK\nid:%b\n\n\0" % each.encode() for each in names))
        await client.send("DISCONNECT", {"receipt": "bye"})
        assert (await client.receive())["receipt-id"] == "bye"
        assert [queue.message_count for broker in dial.brokers for queue in broker.queues] == [0, 0]


async def test_a_cumulative_ack_includes_messages_of_other_partitions(transport: str) -> None:
    async with routed(transport) as dial:
        client = await dial.connect()
        await client.subscribe("/queue/>", headers={"ack": "client"})
        got = []
        for name, body in ((A, b"1"), (B, b"2"), (A, b"3"), (C, b"4"), (B, b"5")):
            await client.send("SEND", {"destination": name}, body)
            got.append(await client.receive())
        await client.send("ACK", {"id": got[3]["ack"], "receipt": "four"})
        assert (await client.receive())["receipt-id"] == "four"
        left = {
            queue.name: queue.message_count for broker in dial.brokers for queue in broker.queues
        }
        assert left == {A: 0, B: 1, C: 0}
        await client.send("ACK", {"id": got[4]["ack"]})
        await client.fence()


async def test_receipts_come_in_the_order_of_the_frames(transport: str) -> None:
    async with routed(transport) as dial:
        contact = await absent(dial, 0)
        client = await dial.connect()
        for number, name in enumerate((B, A, C, B)):
            await client.send("SEND", {"destination": name, "receipt": f"{number}"}, b"x")
        await client.send("BEGIN", {"transaction": "t", "receipt": "t"})
        assert (await client.receive())["receipt-id"] == "0"
        await until(lambda: any(queue.message_count for queue in dial.brokers[2].queues))
        await nothing_more(client)
        dial.gates[0].point_to(contact)
        assert receipts(await client.receive_many(4)) == ["1", "2", "3", "t"]
        for number, name in enumerate((A, B, C)):
            await client.subscribe(name, id=f"{number}")


async def test_the_error_of_an_owner_ends_the_session(transport: str) -> None:
    async with routed(transport) as dial:
        client = await dial.connect()
        await client.publish(A, b"x", receipt=True)
        await client.send(
            "SUBSCRIBE", {"destination": B, "id": "1", "selector": "(", "receipt": "r"}
        )
        error = await client.receive()
        assert (error.command, error["receipt-id"]) == ("ERROR", "r")
        await client.expect_closed()
        await until(lambda: not any(broker.clients for broker in dial.brokers))
        assert await taken(dial, A) == [b"x"]


async def taken(dial: Dial, name: str) -> list[bytes]:
    """Consume all messages of a queue."""
    client = await dial.connect()
    queues = [queue for broker in dial.brokers for queue in broker.queues if queue.name == name]
    count = sum(queue.message_count for queue in queues)
    return bodies(await consume(client, name, count=count, headers={}))


async def test_an_error_of_the_node_follows_the_receipts_of_owners(transport: str) -> None:
    async with routed(transport) as dial:
        contact = await absent(dial, 0)
        client = await dial.connect()
        await client.send("SEND", {"destination": A, "receipt": "1"}, b"x")
        wrong = {"destination": "DIAG/explain", "x-partition": "9", "receipt": "2"}
        await client.send("SEND", wrong, b"{}")
        await until(lambda: len(router(dial).routes) == 1)
        dial.gates[0].point_to(contact)
        first, error = await client.receive_many(2)
        assert first["receipt-id"] == "1"
        assert (error["code"], error["receipt-id"]) == ("invalid-header-value", "2")
        assert await taken(dial, A) == [b"x"]


async def test_disconnect_is_confirmed_by_all_owners(transport: str) -> None:
    async with routed(transport) as dial:
        client = await dial.connect()
        await client.publish(A, b"x")
        contact = await absent(dial, 1)
        await client.publish(B, b"y")
        await client.send("DISCONNECT", {"receipt": "bye"})
        await nothing_more(client)
        dial.gates[1].point_to(contact)
        assert (await client.receive())["receipt-id"] == "bye"
        await client.expect_closed()
        assert await taken(dial, B) == [b"y"]
        assert await taken(dial, A) == [b"x"]


async def test_messages_sent_before_a_client_is_lost_arrive(transport: str) -> None:
    async with routed(transport) as dial:
        contact = await absent(dial, 1)
        client = await dial.connect()
        await client.publish(B, *[b"%d" % number for number in range(10)])
        await until(lambda: any(route.upstreams for route in router(dial).routes.values()))
        client.abort()
        await until(lambda: not router(dial).routes)
        dial.gates[1].point_to(contact)
        await until(lambda: any(queue.message_count == 10 for queue in dial.brokers[1].queues))
        assert await taken(dial, B) == [b"%d" % number for number in range(10)]


async def test_a_change_of_owner_ends_only_the_clients_of_its_partition(transport: str) -> None:
    async with routed(transport) as dial:
        user, other = await dial.connect(), await dial.connect()
        await user.subscribe("/topic/>")
        await other.publish(A, b"x", receipt=True)
        await absent(dial, 1)
        await user.expect_closed()
        await other.publish(A, b"y", receipt=True)
        assert await taken(dial, A) == [b"x", b"y"]


async def test_a_send_does_not_overtake_a_subscription(transport: str) -> None:
    async with routed(transport) as dial:
        contact = await absent(dial, 1)
        topic = next(name for number in range(99) if PLACEMENT.of(name := f"/topic/t{number}") == 1)
        client, server = await dial.connect(), await dial.connect()
        await client.send("SUBSCRIBE", {"destination": topic, "id": "1"})
        await client.publish(A, b"question")
        await server.subscribe(A)
        await nothing_more(server)
        dial.gates[1].point_to(contact)
        assert (await server.receive()).body == b"question"
        await server.publish(topic, b"answer")
        assert (await client.receive()).body == b"answer"


async def test_replies_reach_the_client_through_any_partition(transport: str) -> None:
    async with routed(transport) as dial:
        client, server = await dial.connect(), await dial.connect()
        await client.subscribe("/temp-queue/replies", id="r")
        for number, name in enumerate((A, B, C)):
            await server.subscribe(name, id=f"{number}")
            await client.publish(name, b"question", headers={"reply-to": "/temp-queue/replies"})
            question = await server.receive()
            await server.publish(question["reply-to"], name.encode())
            assert (await client.receive()).body == name.encode()
        await client.publish("/temp-queue/replies", b"to myself")
        assert (await client.receive()).body == b"to myself"


async def test_replies_arrive_without_a_subscription(transport: str) -> None:
    async with routed(transport) as dial:
        client, server = await dial.connect(), await dial.connect()
        await server.subscribe(B)
        await client.publish(B, b"question", headers={"reply-to": "/temp-queue/x"})
        await server.publish((await server.receive())["reply-to"], b"answer")
        answer = await client.receive()
        assert (answer.body, answer["subscription"]) == (b"answer", "/temp-queue/x")


async def test_a_transaction_in_one_partition_is_committed_or_aborted(transport: str) -> None:
    async with routed(transport) as dial:
        client = await dial.connect()
        await client.publish(A, b"job")
        (job,) = await consume(client, A, count=1)
        in_it = {"transaction": "t"}
        for end, left in (("ABORT", 1), ("COMMIT", 2)):
            await client.send("BEGIN", in_it)
            await client.send("ACK", {"id": job["ack"], **in_it})
            await client.publish(A, b"1", b"2", headers=in_it)
            await client.send(end, {**in_it, "receipt": end})
            before = await client.receive_until_receipt(end)
            before += await client.fence()
            (queue,) = dial.brokers[0].queues
            assert queue.message_count == left
        for frame in [*before, *await client.receive_many(2 - len(before))]:
            await client.send("ACK", {"id": frame["ack"]})
        await client.fence()


async def test_acks_of_two_partitions_in_one_transaction_are_refused(transport: str) -> None:
    async with routed(transport) as dial:
        client = await dial.connect()
        names = (A, B)
        for name in names:
            await client.publish(name, b"x", receipt=True)
        got = await consume(client, *names, count=2)
        got.sort(key=lambda frame: names.index(frame["destination"]))
        in_it = {"transaction": "t"}
        await client.send("BEGIN", in_it)
        for frame in got:
            await client.send("ACK", {"id": frame["ack"], **in_it})
        error = await client.expect_error("partitions-apart")
        assert "transaction:t lies in the partitions 0, 1" in error["message"]
        assert "cluster_colocate" in error["message"]
        await until(lambda: not any(broker.clients for broker in dial.brokers))
        for name in names:
            assert await taken(dial, name) == [b"x"]


async def test_an_id_in_use_is_refused_for_another_partition(transport: str) -> None:
    async with routed(transport) as dial:
        client = await dial.connect()
        await client.subscribe(A)
        await client.send("SUBSCRIBE", {"destination": B, "id": "1"})
        await client.expect_error("duplicate-subscription")


async def test_durable_subscriptions_keep_messages_of_all_partitions(transport: str) -> None:
    async with routed(transport) as dial:
        headers = {"durable-subscription-name": "d", **EACH}
        identity = {"client-id": "me"}
        client = await dial.connect(headers=identity)
        await client.subscribe("/topic/>", headers=headers)
        await client.send("DISCONNECT", {"receipt": "r"})
        await client.receive()
        sender = await dial.connect()
        for number in range(6):
            await sender.publish(f"/topic/t{number}", b"%d" % number, receipt=True)
        again = await dial.connect(headers=identity)
        await again.send("SUBSCRIBE", {"destination": "/topic/>", "id": "1", **headers})
        got = await again.receive_many(6)
        assert sorted(bodies(got)) == [b"%d" % number for number in range(6)]
        for frame in got:
            await again.send("ACK", {"id": frame["ack"]})
        await again.send("UNSUBSCRIBE", {"id": "1", "receipt": "paused"})
        await again.receive()
        nameless = {"durable-subscription-name": "d", "receipt": "over"}
        await again.send("UNSUBSCRIBE", {**nameless, "destination": "/topic/>"})
        assert (await again.receive())["receipt-id"] == "over"
        await again.send("UNSUBSCRIBE", nameless)
        assert "destination" in (await again.expect_error("header-missing"))["message"]


async def test_a_client_that_does_not_read_pauses_its_owners(transport: str) -> None:
    async with routed(transport) as dial:
        client, sender = await dial.connect(), await dial.connect()
        assert isinstance(client.pipe, StreamPipe)
        assert isinstance(client.pipe.stream, trio.SocketStream)
        client.pipe.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        await client.subscribe(A, headers={"ack": "auto"})
        body = b"x" * 250_000
        for _ in range(400):
            await sender.publish(A, body)
        (queue,) = dial.brokers[0].queues
        await until(lambda: queue.message_count > 100)  # 25 MB of 100
        assert dial.server.memory.used_bytes < 4 * 1024 * 1024
        got = await client.receive_many(400)
        assert all(frame.body == body for frame in got)


async def test_a_partition_that_does_not_read_pauses_its_clients(transport: str) -> None:
    async with routed(transport) as dial:
        contact = await absent(dial, 0)
        client = await dial.connect()
        bodies_sent = [b"x" * 50_000] * 600
        async with trio.open_nursery() as sending:
            sending.start_soon(partial(client.publish, A, *bodies_sent, receipt=True))
            await until(lambda: any(is_stopped(route) for route in router(dial).routes.values()))
            (route,) = router(dial).routes.values()
            assert route.upstreams[0].waiting_bytes < 2 * 1024 * 1024  # of 30 MB
            dial.gates[0].point_to(contact)
        assert await taken(dial, A) == bodies_sent


def is_stopped(route: Any) -> bool:
    return not route.may_read()


async def test_a_websocket_gets_each_frame_as_a_message_of_its_own(transport: str) -> None:
    del transport
    async with routed(ROUTED_WS) as dial:
        client = await dial.connect()
        for name in (A, B, C):
            await client.publish(name, *[name.encode()] * 5)
        got = await consume(client, "/queue/>", count=15, headers={})
        assert sorted(bodies(got)) == sorted([A.encode(), B.encode(), C.encode()] * 5)


async def test_figures_come_from_one_partition(transport: str) -> None:
    async with routed(transport, diag_interval_s=0.05) as dial:
        client = await dial.connect()
        await client.publish(C, b"x", receipt=True)
        await client.subscribe("DIAG/destinations", headers={"x-partition": "2"})
        await client.send("SEND", {"destination": C}, b"y")
        while C.encode() not in (await client.receive()).body:
            pass
        wrong = {"destination": "DIAG/destinations", "id": "2", "x-partition": "3"}
        await client.send("SUBSCRIBE", wrong)
        while (frame := await client.receive()).command != "ERROR":
            pass
        assert "from 0 to 2" in frame["message"]
        assert await taken(dial, C) == [b"x", b"y"]


async def test_messages_that_expire_before_they_are_written_return_to_their_owner(
    transport: str,
) -> None:
    if transport != INSIDE:
        return  # elsewhere the owner writes them itself
    async with routed(transport) as dial:
        client = await dial.connect()
        await client.publish(A, b"x", headers={"x-message-ttl": "60000"})
        await consume(client, A, count=1)
        (queue,) = dial.brokers[0].queues
        (consumer,) = queue.consumers
        ((number, message),) = consumer.unacked.items()
        origin = message.publication
        dial.server.on_unsent(Delivery([b""], 1, 0, origin, ticket=(consumer, number)))
        await until(lambda: queue.message_count == 0)


async def test_a_client_of_an_owner_that_stops_in_this_process_is_closed(transport: str) -> None:
    if transport != INSIDE:
        return
    async with routed(transport) as dial:
        client, other = await dial.connect(), await dial.connect()
        await client.publish(A, b"x", receipt=True)
        await other.publish(B, b"x", receipt=True)
        inside = dial.gates[0].inside
        assert isinstance(inside, InnerServer)
        inside.ended.set()
        await client.expect_closed()
        await other.publish(B, b"y", receipt=True)
