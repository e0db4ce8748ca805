"""BEGIN, COMMIT and ABORT (CONFORMANCE.md 2.6)."""

import pytest

from tests.support.fakes import Client, Dial, Received, bodies, frame_bytes, until

COLOCATE = ">"
"""In a cluster with partitions, a transaction lies in one of them."""

VERSIONS = ("1.0", "1.1", "1.2")
KINDS = ("/queue/a", "/topic/a", "#a")

every_version = pytest.mark.parametrize("version", VERSIONS)
every_kind = pytest.mark.parametrize("destination", KINDS)
IN_TX = {"transaction": "tx"}


async def settled(client: Client) -> list[Received]:
    """The frames that are due to a client; a queue hands out at the end of the first turn."""
    return [*await client.fence(), *await client.fence()]


async def end(client: Client, command: str, name: str = "tx") -> list[Received]:
    """COMMIT or ABORT, and wait until that is processed. Return the frames received before."""
    await client.send(command, {"transaction": name, "receipt": "end"})
    return await client.receive_until_receipt("end")


async def what_is_left(dial: Dial, destination: str) -> list[bytes]:
    """Consume and return the messages of a queue that no consumer holds."""
    client = await dial.connect()
    return bodies([*await client.subscribe(destination), *await client.fence()])


def wrong_ack(version: str) -> dict[str, str]:
    """The headers of an ACK that names no delivery."""
    if version == "1.2":
        return {"id": "x-1"}
    return {"message-id": "x-1", "subscription": "1"}


@pytest.mark.covers("T04", "T06", "T08")
@every_version
@every_kind
async def test_messages_are_visible_at_commit_and_not_before(
    dial: Dial, version: str, destination: str
) -> None:
    watcher = await dial.connect()
    await watcher.subscribe(destination)
    client = await dial.connect(version)
    await client.send("BEGIN", IN_TX)
    # The receipt confirms that it was received, and nothing else.
    await client.publish(destination, b"1", b"2", headers=IN_TX, receipt=True)
    await client.publish(destination, b"outside", receipt=True)
    assert bodies(await settled(watcher)) == [b"outside"]
    await end(client, "COMMIT")
    messages = await watcher.receive_many(2)
    assert bodies(messages) == [b"1", b"2"]
    assert [frame.get("transaction") for frame in messages] == [None, None]


@pytest.mark.covers("T04", "T06")
@every_version
@every_kind
async def test_aborted_messages_are_never_visible(
    dial: Dial, version: str, destination: str
) -> None:
    watcher = await dial.connect()
    await watcher.subscribe(destination)
    client = await dial.connect(version)
    await client.send("BEGIN", IN_TX)
    await client.publish(destination, b"1", b"2", headers=IN_TX, receipt=True)
    assert await end(client, "ABORT") == []
    await client.publish(destination, b"3", receipt=True)
    assert bodies(await settled(watcher)) == [b"3"]


@pytest.mark.covers("T04", "R05", "R06")
@every_version
@pytest.mark.parametrize("fault", ["send", "ack"])
@pytest.mark.parametrize("place", ["first", "last"])
async def test_a_commit_that_cannot_be_done_does_nothing(
    dial: Dial, version: str, fault: str, place: str
) -> None:
    watcher = await dial.connect()
    await watcher.subscribe("/topic/a")
    await watcher.subscribe("#a", id="2")
    client = await dial.connect(version)
    await client.subscribe("/queue/b", headers={"ack": "client"})
    await client.publish("/queue/b", b"kept")
    message = await client.receive()
    name = message.get("ack") or message["message-id"]
    await client.send("BEGIN", IN_TX)

    async def go_wrong() -> None:
        if fault == "send":
            await client.publish("/topic/*", b"x", headers=IN_TX)
        else:
            await client.send("ACK", {**wrong_ack(version), **IN_TX})

    if place == "first":
        await go_wrong()
    for destination in KINDS:
        await client.publish(destination, b"x", headers=IN_TX)
    pairs = {"id": name, "message-id": name, "subscription": "1"}
    await client.send("ACK", {**pairs, **IN_TX})
    if place == "last":
        await go_wrong()
    await client.send("COMMIT", {**IN_TX, "receipt": "c"})
    error = await client.expect_error("wildcard-in-send" if fault == "send" else "unknown-ack")
    assert error["receipt-id"] == "c"
    assert bodies(await settled(watcher)) == []
    assert await what_is_left(dial, "/queue/a") == []
    assert await what_is_left(dial, "/queue/b") == [b"kept"]


@pytest.mark.covers("T04", "S02", "R06")
async def test_a_commit_that_does_not_fit_does_nothing(dial: Dial) -> None:
    dial.use(max_memory_bytes=1024 * 1024)
    filler = await dial.connect()
    await filler.publish("/queue/a", *[b"x" * 10_000] * 200)
    await filler.expect_error("queue-full")
    watcher = await dial.connect()
    await watcher.subscribe("/topic/a")
    client = await dial.connect()
    await client.send("BEGIN", IN_TX)
    await client.publish("/topic/a", b"1", headers=IN_TX)
    await client.publish("/queue/b", b"2", headers=IN_TX)
    # It fits as long as it is one message, but not as four.
    await client.publish("/queue/a,/queue/c,/queue/d,/queue/e", b"x" * 2000, headers=IN_TX)
    await client.send("COMMIT", {**IN_TX, "receipt": "c"})
    assert (await client.expect_error("queue-full"))["receipt-id"] == "c"
    assert bodies(await settled(watcher)) == []
    assert await what_is_left(dial, "/queue/b") == []


@pytest.mark.covers("T05", "R12")
@every_version
@pytest.mark.parametrize("how", ["disconnect", "close", "reset", "error"])
async def test_the_end_of_a_connection_aborts(dial: Dial, version: str, how: str) -> None:
    watcher = await dial.connect()
    for number, destination in enumerate(KINDS):
        await watcher.subscribe(destination, id=str(number))
    client = await dial.connect(version)
    await client.send("BEGIN", IN_TX)
    for destination in KINDS:
        await client.publish(destination, b"x" * 1000, headers=IN_TX)
    await client.fence()
    assert dial.server.memory.used_bytes >= 3000
    if how == "disconnect":
        await client.disconnect()
    elif how == "close":
        await client.aclose()
    elif how == "reset":
        client.abort()
    else:
        await client.send("BOGUS")
        await client.expect_error("unknown-command")
        await client.aclose()
    await until(lambda: len(dial.server.broker.clients) == 1)
    assert bodies(await settled(watcher)) == []
    await until(lambda: dial.server.memory.used_bytes == 0)
    # Another client may use the name, and its transaction is empty.
    again = await dial.connect(version)
    await again.send("BEGIN", IN_TX)
    await end(again, "COMMIT")
    assert bodies(await settled(watcher)) == []


@pytest.mark.covers("T05")
async def test_a_commit_in_the_last_packet_counts(dial: Dial) -> None:
    """The client does not wait: every complete frame is processed."""
    watcher = await dial.connect()
    await watcher.subscribe("/queue/a")
    client = await dial.connect()
    in_tx = {"destination": "/queue/a", **IN_TX}
    data = frame_bytes("BEGIN", IN_TX) + frame_bytes("SEND", in_tx, b"1")
    data += frame_bytes("COMMIT", IN_TX) + frame_bytes("BEGIN", IN_TX)
    await client.send_bytes(data + frame_bytes("SEND", in_tx, b"2") + b"COMMIT\ntransaction:t")
    await client.aclose()
    assert (await watcher.receive()).body == b"1"
    await until(lambda: len(dial.server.broker.clients) == 1)
    assert bodies(await settled(watcher)) == []


@pytest.mark.covers("T07", "R02", "R04")
@every_version
async def test_the_receipt_of_a_commit_comes_when_all_is_done(dial: Dial, version: str) -> None:
    client = await dial.connect(version)
    await client.subscribe("/topic/a", id="t")
    await client.subscribe("/queue/b", id="q", headers={"ack": "client"})
    await client.publish("/queue/b", b"work")
    message = await client.receive()
    name = message.get("ack") or message["message-id"]
    await client.send("BEGIN", IN_TX)
    await client.publish("/topic/a", b"1", b"2", headers=IN_TX)
    await client.publish("/queue/a", *[b"%d" % n for n in range(50)], headers=IN_TX)
    await client.send("ACK", {"id": name, "message-id": name, "subscription": "q", **IN_TX})
    # A topic's messages are on their way before it.
    assert bodies(await end(client, "COMMIT")) == [b"1", b"2"]
    client.abort()
    assert await what_is_left(dial, "/queue/a") == [b"%d" % n for n in range(50)]
    assert await what_is_left(dial, "/queue/b") == []


@pytest.mark.covers("T08", "R01", "R04")
@every_version
async def test_each_frame_of_a_transaction_has_its_own_receipt_in_order(
    dial: Dial, version: str
) -> None:
    client = await dial.connect(version)
    await client.subscribe("/queue/b", headers={"ack": "client"})
    await client.publish("/queue/b", b"work")
    message = await client.receive()
    name = message.get("ack") or message["message-id"]
    pairs = {"id": name, "message-id": name, "subscription": "1"}
    frames = [
        ("BEGIN", {}, b""),
        ("SEND", {"destination": "/queue/a"}, b"1"),
        ("SEND", {"destination": "/queue/a"}, b"2"),
        ("ACK", pairs, b""),
        ("SEND", {"destination": "/topic/a"}, b"3"),
        ("COMMIT", {}, b""),
    ]
    data = b""
    for number, (command, headers, body) in enumerate(frames):
        every = {**headers, **IN_TX, "receipt": f"r{number}"}
        data += frame_bytes(command, every, body, version)
    await client.send_bytes(data)
    got = await client.receive_many(len(frames))
    assert [frame.command for frame in got] == ["RECEIPT"] * len(frames)
    assert [frame["receipt-id"] for frame in got] == [f"r{n}" for n in range(len(frames))]
    # The outcome of a message is not known before COMMIT.
    assert [frame.get("stored") for frame in got[:-1]] == [None] * (len(frames) - 1)


@pytest.mark.covers("T10")
@every_version
@every_kind
async def test_order_is_kept_for_each_destination(
    dial: Dial, version: str, destination: str
) -> None:
    """Two transactions at once, two destinations, and SENDs outside between them."""
    watcher = await dial.connect()
    await watcher.subscribe(destination, id="one")
    await watcher.subscribe(destination + "b", id="two")
    client = await dial.connect(version)
    for name in ("u", "v"):
        await client.send("BEGIN", {"transaction": name})
    for number in range(4):
        for name in ("u", "v", ""):
            in_tx = {"transaction": name} if name else {}
            body = name.encode() + b"%d" % number
            await client.publish(destination, body, headers=in_tx)
            await client.publish(destination + "b", body, headers=in_tx)
    for name in ("v", "u"):
        await end(client, "COMMIT", name)
    got = await watcher.receive_many(24)
    expected = [name + b"%d" % n for name in (b"", b"v", b"u") for n in range(4)]
    for id_ in ("one", "two"):
        assert bodies(frame for frame in got if frame["subscription"] == id_) == expected


@pytest.mark.covers("T04", "T10", "A17")
@every_version
async def test_work_is_moved_from_queue_to_queue_in_one(dial: Dial, version: str) -> None:
    """The purpose of transactions: consume a message and send its result, both or neither."""
    client = await dial.connect(version)
    await client.subscribe("/queue/in", headers={"ack": "client-individual"})
    await client.publish("/queue/in", b"1", b"2", b"3", b"4")
    for number, message in enumerate(await client.receive_many(4)):
        name = message.get("ack") or message["message-id"]
        await client.send("BEGIN", IN_TX)
        await client.send("ACK", {"id": name, "message-id": name, "subscription": "1", **IN_TX})
        await client.publish("/queue/out", message.body, headers=IN_TX)
        await end(client, "COMMIT" if number % 2 else "ABORT")
    client.abort()
    assert await what_is_left(dial, "/queue/in") == [b"1", b"3"]
    assert await what_is_left(dial, "/queue/out") == [b"2", b"4"]
