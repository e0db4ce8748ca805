"""MESSAGE, ACK and NACK (CONFORMANCE.md 2.5)."""

import pytest

from tests.support.fakes import Client, Dial, Received, bodies, until

VERSIONS = ("1.0", "1.1", "1.2")
NEW = ("1.1", "1.2")
KINDS = ("/queue/a", "/topic/a", "#a")
MODES = ("client", "client-individual")

every_version = pytest.mark.parametrize("version", VERSIONS)
new_versions = pytest.mark.parametrize("version", NEW)
every_kind = pytest.mark.parametrize("destination", KINDS)
both_modes = pytest.mark.parametrize("mode", MODES)


def ack_headers(client: Client, message: Received) -> dict[str, str]:
    """The headers with which an ACK of ``message`` names it, and no others."""
    if client.version == "1.2":
        return {"id": message["ack"]}
    if client.version == "1.1":
        return {"message-id": message["message-id"], "subscription": message["subscription"]}
    return {"message-id": message["message-id"]}


async def ack(
    client: Client, message: Received, command: str = "ACK", **more: str
) -> list[Received]:
    """Acknowledge, and wait until that is processed. Return the frames received before it and with
    it.

    What a queue hands out for it comes at the end of the turn, hence before the second RECEIPT.
    """
    await client.send(command, {**ack_headers(client, message), **more, "receipt": "ack"})
    return [*await client.receive_until_receipt("ack"), *await client.fence()]


async def subscribe(
    client: Client, destination: str, mode: str, window: int = 100, id: str = "1"
) -> list[Received]:
    """Subscribe with a window of unacknowledged messages. Return the messages received first."""
    headers = {"ack": mode, "prefetch-count": str(window)}
    return [*await client.subscribe(destination, id, headers), *await client.fence()]


async def what_is_left(dial: Dial, destination: str) -> list[Received]:
    """Consume and return the messages of a queue that no consumer holds."""
    client = await dial.connect()
    return [*await client.subscribe(destination), *await client.fence()]


# Headers of a MESSAGE.


@pytest.mark.covers("A01", "A02", "A03")
@every_version
@pytest.mark.parametrize("mode", ["auto", *MODES])
@pytest.mark.parametrize("destination", [*KINDS, "/amq/queue/a", "bare"])
async def test_every_message_has_its_destination_id_and_subscription(
    dial: Dial, version: str, mode: str, destination: str
) -> None:
    client = await dial.connect(version)
    await subscribe(client, destination, mode, id="my sub")
    await client.publish(destination, b"x")
    message = await client.receive()
    assert message.command == "MESSAGE"
    # As its subscribers know it, however its sender spelt it.
    assert message["destination"] == destination.removeprefix("/amq")
    assert message["message-id"]
    assert message["subscription"] == "my sub"
    assert len(message.names) == len(set(message.names))


@pytest.mark.covers("A04", "A08")
@every_version
@every_kind
@pytest.mark.parametrize("mode", ["auto", *MODES])
async def test_only_messages_of_1_2_that_need_an_ack_have_the_ack_header(
    dial: Dial, version: str, destination: str, mode: str
) -> None:
    client = await dial.connect(version)
    await subscribe(client, destination, mode)
    await client.publish(destination, b"x", headers={"ack": "forged"})
    message = await client.receive()
    if version == "1.2" and mode != "auto":
        assert message["ack"] not in ("", "forged")
    else:
        assert message.get("ack") is None


@pytest.mark.covers("A05", "A06")
@every_version
@pytest.mark.parametrize("destination", ["/topic/a", "/queue/a"])
async def test_each_delivery_has_an_id_of_its_own(
    dial: Dial, version: str, destination: str
) -> None:
    """Two subscriptions, one message: each copy; in 1.2 each time that it is delivered."""
    client = await dial.connect(version)
    await subscribe(client, destination, "client-individual", id="a")
    await subscribe(client, destination, "client-individual", id="b")
    await client.publish(destination, b"1", b"2")
    count = 4 if destination == "/topic/a" else 2
    got = await client.receive_many(count)
    if version == "1.2":
        for message in list(got):
            await client.send("NACK", ack_headers(client, message))
        got += await client.receive_many(count)
    names = [next(iter(ack_headers(client, message).values())) for message in got]
    assert len(set(names)) == len(got)


# Which headers an ACK needs.


@pytest.mark.covers("A06", "A07", "A08")
@every_version
@both_modes
async def test_an_acknowledged_message_is_not_delivered_again(
    dial: Dial, version: str, mode: str
) -> None:
    client = await dial.connect(version)
    await subscribe(client, "/queue/a", mode)
    await client.publish("/queue/a", b"x")
    assert await ack(client, await client.receive()) == []
    client.abort()
    assert await what_is_left(dial, "/queue/a") == []
    await until(lambda: dial.server.memory.used_bytes == 0)


@pytest.mark.covers("A07")
async def test_an_ack_that_names_another_subscription(dial: Dial) -> None:
    client = await dial.connect("1.1")
    await subscribe(client, "/queue/a", "client", id="a")
    await subscribe(client, "/queue/b", "client", id="b")
    await client.publish("/queue/a", b"x")
    message = await client.receive()
    await client.send("ACK", {"message-id": message["message-id"], "subscription": "b"})
    error = await client.expect_error("unknown-ack")
    assert "subscription:b" in error["message"]
    assert bodies(await what_is_left(dial, "/queue/a")) == [b"x"]


# The reach of an ACK, shown by the window that it opens and by redeliveries.


@pytest.mark.covers("A09", "A10")
@every_version
@every_kind
@pytest.mark.parametrize(("mode", "opened"), [("client", 2), ("client-individual", 1)])
async def test_reach_of_an_ack(
    dial: Dial, version: str, destination: str, mode: str, opened: int
) -> None:
    client = await dial.connect(version)
    await subscribe(client, destination, mode, window=3)
    publisher = await dial.connect()
    await publisher.publish(destination, *[b"%d" % n for n in range(8)], receipt=True)
    got = await client.receive_many(3)
    assert bodies(got) == [b"0", b"1", b"2"]
    assert await client.fence() == []  # the window is full
    more = await ack(client, got[1])
    assert bodies(more) == [b"3", b"4"][:opened]


@pytest.mark.covers("A09")
@every_version
@every_kind
async def test_a_cumulative_ack_leaves_other_subscriptions_alone(
    dial: Dial, version: str, destination: str
) -> None:
    client = await dial.connect(version)
    other = destination + "b"
    await subscribe(client, destination, "client", window=2, id="one")
    await subscribe(client, other, "client", window=2, id="two")
    for number in range(4):  # in turn, so that those of the other are older in part
        await client.publish(other, b"b%d" % number)
        await client.publish(destination, b"a%d" % number)
    got = [*await client.fence(), *await client.fence()]
    last = next(frame for frame in got if frame.body == b"a1")
    more = await ack(client, last)
    assert bodies(more) == [b"a2", b"a3"]
    last = next(frame for frame in got if frame.body == b"b1")
    assert bodies(await ack(client, last)) == [b"b2", b"b3"]


@pytest.mark.covers("A09", "A15")
@every_version
async def test_two_consumers_of_one_queue_acknowledge_apart(dial: Dial, version: str) -> None:
    one, two = await dial.connect(version), await dial.connect(version)
    for client in (one, two):
        await subscribe(client, "/queue/a", "client")
    await one.publish("/queue/a", *[b"%d" % n for n in range(6)], receipt=True)
    of_one, of_two = await one.receive_many(3), await two.receive_many(3)
    assert await ack(one, of_one[2]) == []
    await two.aclose()
    again = await one.receive_many(3)
    assert bodies(again) == bodies(of_two) == [b"1", b"3", b"5"]
    assert [frame["redelivered"] for frame in again] == ["true"] * 3


@pytest.mark.covers("A11", "A15")
@new_versions
@every_kind
@pytest.mark.parametrize(
    ("mode", "again"), [("client", [b"0", b"1"]), ("client-individual", [b"1"])]
)
async def test_reach_of_a_nack(
    dial: Dial, version: str, destination: str, mode: str, again: list[bytes]
) -> None:
    client = await dial.connect(version)
    await subscribe(client, destination, mode)
    publisher = await dial.connect()
    await publisher.publish(destination, b"0", b"1", b"2", receipt=True)
    got = await client.receive_many(3)
    assert [frame.get("redelivered") for frame in got] == [None] * 3
    more = await ack(client, got[1], "NACK")
    assert bodies(more) == again
    assert [(frame["redelivered"], frame["delivery-count"]) for frame in more] == (
        [("true", "2")] * len(again)
    )


@pytest.mark.covers("A11")
@new_versions
async def test_a_nack_offers_the_message_to_another_consumer(dial: Dial, version: str) -> None:
    one, two = await dial.connect(version), await dial.connect(version)
    for client in (one, two):
        await subscribe(client, "/queue/a", "client-individual")
    await one.publish("/queue/a", b"x", receipt=True)
    assert await ack(one, await one.receive(), "NACK") == []
    again = await two.receive()
    assert (again.body, again["redelivered"]) == (b"x", "true")
    await ack(two, again)
    two.abort()
    one.abort()
    assert await what_is_left(dial, "/queue/a") == []


@pytest.mark.covers("A11")
@new_versions
async def test_a_nack_without_requeue_buries_the_message(dial: Dial, version: str) -> None:
    client = await dial.connect(version)
    await subscribe(client, "/queue/a", "client-individual")
    await client.publish("/queue/a", b"x")
    assert await ack(client, await client.receive(), "NACK", requeue="false") == []
    (dead,) = await what_is_left(dial, "/queue/DLQ.a")
    assert (dead.body, dead["original-destination"]) == (b"x", "/queue/a")


# ACKs of unknown messages.


@pytest.mark.covers("A13", "R06", "R08")
@every_version
@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("name", ["nonsense", "", "-1", "1.2-", "1.2-99999999999999999999", "é:ü"])
async def test_an_ack_of_nothing(dial: Dial, version: str, command: str, name: str) -> None:
    if version == "1.0" and (command == "NACK" or not name):
        return
    client = await dial.connect(version)
    await subscribe(client, "/queue/a", "client")
    headers = {"id": name, "message-id": name, "subscription": "1", "receipt": "r"}
    await client.send(command, headers)
    error = await client.expect_error("unknown-ack")
    assert error["receipt-id"] == "r"
    assert ("ack" if version == "1.2" else "message-id") in error["message"]


async def is_ignored(client: Client, headers: dict[str, str]) -> bool:
    """Send a late ACK. Return whether its RECEIPT says that it has no effect."""
    await client.send("ACK", {**headers, "receipt": "r"})
    answer = await client.receive()
    header = "id" if client.version == "1.2" else "message-id"
    return answer.command == "RECEIPT" and answer["ignored"] == header


@pytest.mark.covers("A13")
@every_version
async def test_an_ack_of_another_connections_message_is_ignored(dial: Dial, version: str) -> None:
    owner, thief = await dial.connect(version), await dial.connect(version)
    await subscribe(owner, "/queue/a", "client")
    await owner.publish("/queue/a", b"x")
    message = await owner.receive()
    await subscribe(thief, "/queue/b", "client")
    assert await is_ignored(thief, ack_headers(owner, message))
    owner.abort()
    assert bodies(await what_is_left(dial, "/queue/a")) == [b"x"]


@pytest.mark.covers("A13")
@every_version
async def test_an_unknown_ack_may_be_ignored(dial: Dial, version: str) -> None:
    dial.use(unknown_ack="ignore")
    client = await dial.connect(version)
    await subscribe(client, "/queue/a", "client")
    for command in ("ACK", "NACK") if version != "1.0" else ("ACK",):
        headers = {"id": "x-1", "message-id": "x-1", "subscription": "1", "receipt": command}
        await client.send(command, headers)
        assert await client.receive_until_receipt(command) == []
    await client.publish("/queue/a", b"x")
    assert await ack(client, await client.receive()) == []


@pytest.mark.covers("A13", "R08")
async def test_acks_before_a_wrong_one_count_and_later_ones_do_not(dial: Dial) -> None:
    """All in one packet: the fast way of the decoder."""
    client = await dial.connect()
    await subscribe(client, "/queue/a", "client-individual")
    await client.publish("/queue/a", b"1", b"2", b"3")
    got = await client.receive_many(3)
    names = [got[0]["ack"], "wrong-1", got[2]["ack"]]
    await client.send_bytes(b"".join(b"ACK\nid:%b\n\n\0" % name.encode() for name in names))
    await client.expect_error("unknown-ack")
    assert bodies(await what_is_left(dial, "/queue/a")) == [b"2", b"3"]


@pytest.mark.covers("A14")
@every_version
@every_kind
async def test_an_ack_of_an_auto_subscription_is_ignored_and_counted(
    dial: Dial, version: str, destination: str
) -> None:
    client = await dial.connect(version)
    await client.subscribe(destination)
    await client.publish(destination, b"x")
    name = (await client.receive())["message-id"]
    headers = {"id": name, "message-id": name, "subscription": "1", "receipt": "r"}
    for _ in range(2):
        await client.send("ACK", headers)
        assert await client.receive_until_receipt("r") == []
    assert sum(broker.acknowledger.counters.ignored for broker in dial.brokers) == 2


@pytest.mark.covers("A18")
@every_version
@both_modes
async def test_a_second_ack_of_a_message_is_ignored(dial: Dial, version: str, mode: str) -> None:
    client = await dial.connect(version)
    await subscribe(client, "/queue/a", mode)
    await client.publish("/queue/a", b"x")
    message = await client.receive()
    assert await ack(client, message) == []
    assert await is_ignored(client, ack_headers(client, message))


@pytest.mark.covers("A18", "A09")
@every_version
async def test_an_ack_of_a_message_that_a_cumulative_ack_covered_is_ignored(
    dial: Dial, version: str
) -> None:
    client = await dial.connect(version)
    await subscribe(client, "/queue/a", "client")
    await client.publish("/queue/a", b"1", b"2")
    first, second = await client.receive_many(2)
    assert await ack(client, second) == []
    assert await is_ignored(client, ack_headers(client, first))


# Redelivery.


@pytest.mark.covers("A15", "R12")
@every_version
@both_modes
@pytest.mark.parametrize("end", ["disconnect", "close", "reset", "error"])
async def test_unacknowledged_messages_go_to_another_consumer_in_order(
    dial: Dial, version: str, mode: str, end: str
) -> None:
    client = await dial.connect(version)
    await subscribe(client, "/queue/a", mode, window=3)
    publisher = await dial.connect()
    await publisher.publish("/queue/a", *[b"%d" % n for n in range(5)], receipt=True)
    first, *_ = await client.receive_many(3)
    more = await ack(client, first)
    assert bodies(more) == [b"3"]
    if end == "disconnect":
        await client.disconnect()
    elif end == "close":
        await client.aclose()
    elif end == "reset":
        client.abort()
    else:
        await client.send("BOGUS")
        await client.expect_error("unknown-command")
    await until(lambda: len(dial.server.broker.subscriptions) == 0)
    other = await dial.connect(version)
    got = await subscribe(other, "/queue/a", mode)
    assert bodies(got) == [b"1", b"2", b"3", b"4"]
    assert [frame.get("redelivered") for frame in got] == ["true", "true", "true", None]
    assert [frame.get("delivery-count") for frame in got] == ["2", "2", "2", None]


@pytest.mark.covers("A15")
@both_modes
async def test_work_that_was_not_acknowledged_goes_to_another_member(dial: Dial, mode: str) -> None:
    one, two = await dial.connect(), await dial.connect()
    for client in (one, two):
        await subscribe(client, "#a", mode)
    publisher = await dial.connect()
    await publisher.publish("#a", b"0", b"1", b"2", b"3", receipt=True)
    assert bodies(await two.receive_many(2)) == [b"1", b"3"]
    one.abort()
    again = await two.receive_many(2)
    assert bodies(again) == [b"0", b"2"]
    assert [frame["redelivered"] for frame in again] == ["true", "true"]
    await ack(two, again[0])


@pytest.mark.covers("A15")
async def test_returned_messages_precede_waiting_ones(dial: Dial) -> None:
    one, two = await dial.connect(), await dial.connect()
    await subscribe(one, "/queue/a", "client-individual", window=2)
    await one.publish("/queue/a", *[b"%d" % n for n in range(4)])
    await one.receive_many(2)
    (held,) = await subscribe(two, "/queue/a", "client-individual", window=1)
    assert held.body == b"2"
    one.abort()
    await until(lambda: sum(len(broker.subscriptions) for broker in dial.brokers) == 1)
    for expected in (b"0", b"1", b"3"):
        (held,) = await ack(two, held)
        assert held.body == expected


@pytest.mark.covers("A16")
@every_version
async def test_an_auto_message_is_not_delivered_again(dial: Dial, version: str) -> None:
    client = await dial.connect(version)
    await client.publish("/queue/a", b"1", b"2", receipt=True)
    got = [*await client.subscribe("/queue/a"), *await client.fence()]
    assert bodies(got) == [b"1", b"2"]
    client.abort()
    assert await what_is_left(dial, "/queue/a") == []


# In transactions.


@pytest.mark.covers("A17")
@every_version
@pytest.mark.parametrize("end", ["COMMIT", "ABORT", "reset"])
async def test_an_ack_belongs_to_its_transaction(dial: Dial, version: str, end: str) -> None:
    client = await dial.connect(version)
    await subscribe(client, "/queue/a", "client-individual", window=2)
    await client.publish("/queue/a", b"1", b"2", b"3", receipt=True)
    first, _ = await client.receive_many(2)
    await client.send("BEGIN", {"transaction": "t"})
    # Its credit is free immediately, or a small prefetch would block the end of the transaction.
    assert bodies(await ack(client, first, transaction="t")) == [b"3"]
    if end == "reset":
        client.abort()
        assert bodies(await what_is_left(dial, "/queue/a")) == [b"1", b"2", b"3"]
        return
    await client.send(end, {"transaction": "t", "receipt": "end"})
    more = [*await client.receive_until_receipt("end"), *await client.fence()]
    assert more == []
    if end == "ABORT":
        assert await ack(client, first) == []  # it has no effect
    client.abort()
    assert bodies(await what_is_left(dial, "/queue/a")) == [b"2", b"3"]


@pytest.mark.covers("A17", "A11")
@new_versions
@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
async def test_a_nack_belongs_to_its_transaction(dial: Dial, version: str, end: str) -> None:
    client = await dial.connect(version)
    await subscribe(client, "/queue/a", "client-individual")
    await client.publish("/queue/a", b"1")
    message = await client.receive()
    await client.send("BEGIN", {"transaction": "t"})
    assert await ack(client, message, "NACK", transaction="t") == []
    await client.send(end, {"transaction": "t", "receipt": "end"})
    more = [*await client.receive_until_receipt("end"), *await client.fence()]
    assert [frame.get("redelivered") for frame in more] == (["true"] if end == "COMMIT" else [])


@pytest.mark.covers("A18", "A17")
@every_version
async def test_within_a_transaction_a_cumulative_ack_may_cover_another(
    dial: Dial, version: str
) -> None:
    client = await dial.connect(version)
    await subscribe(client, "/queue/a", "client")
    await client.publish("/queue/a", b"1", b"2", b"3")
    first, second, _ = await client.receive_many(3)
    await client.send("BEGIN", {"transaction": "t"})
    for message in (second, first):
        assert await ack(client, message, transaction="t") == []
    await client.send("COMMIT", {"transaction": "t", "receipt": "end"})
    assert await client.receive_until_receipt("end") == []
    client.abort()
    assert bodies(await what_is_left(dial, "/queue/a")) == [b"3"]
