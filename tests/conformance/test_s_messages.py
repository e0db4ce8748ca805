"""SEND, SUBSCRIBE, UNSUBSCRIBE and deliveries (CONFORMANCE.md 2.4, parts of 2.5)."""

import pytest
import trio

from tests.support.fakes import Client, Dial, bodies, frame_bytes, gather, until

VERSIONS = ("1.0", "1.1", "1.2")


@pytest.mark.covers("S02", "R05", "R06", "R08")
@pytest.mark.parametrize(
    ("destination", "code"),
    [
        ("/topic/*", "wildcard-in-send"),
        ("/topic/>", "wildcard-in-send"),
        ("DIAG/session", "reserved-destination"),
        ("DIAG/event/connect", "reserved-destination"),
        ("/queue/*", "wildcard-in-send"),
        ("/queue/a.>", "wildcard-in-send"),
        ("/queue/monitor", "reserved-destination"),
        ("/" + "x" * 2000, "destination-too-long"),
    ],
)
async def test_a_send_that_cannot_be_processed(dial: Dial, destination: str, code: str) -> None:
    client = await dial.connect()
    await client.publish("/other", b"before")
    await client.send("SEND", {"destination": destination, "receipt": "s"}, b"x")
    error = await client.expect_error(code)
    assert error["receipt-id"] == "s"


@pytest.mark.covers("S04", "F38", "F39", "A01", "A02", "A03")
@pytest.mark.parametrize("reader", VERSIONS)
@pytest.mark.parametrize("writer", VERSIONS)
async def test_user_headers_arrive_in_order(dial: Dial, writer: str, reader: str) -> None:
    subscriber = await dial.connect(reader)
    await subscriber.subscribe("/topic/a", id="sub-1")
    publisher = await dial.connect(writer)
    own = [("zebra", "1"), ("apple", "two words"), ("content-type", "text/x"), ("Mixed-Case", "é")]
    await publisher.publish("/topic/a", b"body", headers=own, receipt=True)
    message = await subscriber.receive()
    assert message.command == "MESSAGE"
    assert message.body == b"body"
    assert [pair for pair in message.headers if pair in own] == own
    assert message["destination"] == "/topic/a"
    assert message["subscription"] == "sub-1"
    assert message["message-id"]
    assert message.get("receipt") is None
    assert message.get("ack") is None


@pytest.mark.covers("S07", "S10", "R08")
@pytest.mark.parametrize("destination", ["/t", "/other"])
async def test_an_id_in_use(dial: Dial, destination: str) -> None:
    client = await dial.connect()
    await client.subscribe("/t", id="1")
    other = await dial.connect()
    await other.subscribe("/t", id="1")  # of another connection: no clash
    await client.send("SUBSCRIBE", {"destination": destination, "id": "1", "receipt": "r"})
    error = await client.expect_error("duplicate-subscription")
    assert error["receipt-id"] == "r"
    await other.publish("/t", b"x")
    assert (await other.receive()).body == b"x"


@pytest.mark.covers("S08")
async def test_an_id_may_be_used_again(dial: Dial) -> None:
    client = await dial.connect()
    for destination in ("/a", "/b", "/a"):
        await client.subscribe(destination, id="1")
        await client.publish(destination, b"x", receipt=False)
        message = await client.receive()
        assert (message["destination"], message["subscription"]) == (destination, "1")
        await client.send("UNSUBSCRIBE", {"id": "1"})
    assert await client.fence() == []


@pytest.mark.covers("S10", "R08")
@pytest.mark.parametrize(
    ("destination", "code"),
    [
        ("/reply-queue/of-others", "not-allowed"),
        ("/queue/a*b/c", "invalid-wildcard"),
        ("/queue/a,/topic/b", "mixed-destinations"),
        ("/topic/a*b/c", "invalid-wildcard"),
        ("/" + "x" * 2000, "destination-too-long"),
    ],
)
async def test_a_failure_to_subscribe(dial: Dial, destination: str, code: str) -> None:
    client = await dial.connect()
    await client.subscribe("/t", id="0")
    await client.send("SUBSCRIBE", {"destination": destination, "id": "1", "receipt": "r"})
    assert (await client.expect_error(code))["receipt-id"] == "r"
    other = await dial.connect()
    await other.publish("/t", b"x", receipt=True)
    assert len(dial.server.broker.subscriptions) == 0


@pytest.mark.covers("S11")
@pytest.mark.parametrize("id_", [None, "my id"])
async def test_1_0_names_the_subscription_if_it_has_a_name(dial: Dial, id_: str | None) -> None:
    client = await dial.connect("1.0")
    pairs = {"destination": "/t"} if id_ is None else {"destination": "/t", "id": id_}
    await client.send("SUBSCRIBE", pairs)
    await client.publish("/t", b"x")
    assert (await client.receive()).get("subscription") == id_


@pytest.mark.covers("S13")
async def test_1_0_unsubscribes_by_destination_the_oldest_without_an_id(dial: Dial) -> None:
    client = await dial.connect("1.0")
    await client.send("SUBSCRIBE", {"destination": "/t", "id": "named"})
    await client.send("SUBSCRIBE", {"destination": "/t"})
    await client.send("SUBSCRIBE", {"destination": "/t"})
    await client.send("SUBSCRIBE", {"destination": "/other"})

    async def copies() -> list[str | None]:
        await client.publish("/t", b"x")
        return [frame.get("subscription") for frame in await client.fence()]

    assert await copies() == ["named", None, None]
    await client.send("UNSUBSCRIBE", {"destination": "/t"})
    assert await copies() == ["named", None]
    await client.send("UNSUBSCRIBE", {"destination": "/t"})
    assert await copies() == ["named"]
    await client.send("UNSUBSCRIBE", {"id": "named"})
    assert await copies() == []
    await client.send("UNSUBSCRIBE", {"destination": "/t", "receipt": "r"})
    assert (await client.receive())["ignored"] == "destination"


@pytest.mark.covers("S14", "R08")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "header-missing"),
        ({"destination": "/t"}, "header-missing"),
        ({"id": "2", "durable-subscription-name": "d"}, "unknown-subscription"),
        ({"id": "1", "destination": "/wrong"}, "destination-mismatch"),
    ],
)
async def test_unsubscribe_needs_an_id_in_use(
    dial: Dial, version: str, headers: dict[str, str], code: str
) -> None:
    client = await dial.connect(version)
    await client.subscribe("/t", id="1")
    other = await dial.connect()
    await other.subscribe("/t", id="2")
    await client.send("UNSUBSCRIBE", {**headers, "receipt": "r"})
    assert (await client.expect_error(code))["receipt-id"] == "r"
    await other.publish("/t", b"x")
    assert (await other.receive()).body == b"x"


@pytest.mark.covers("S15")
@pytest.mark.parametrize("version", VERSIONS)
async def test_nothing_arrives_after_the_receipt_to_unsubscribe(dial: Dial, version: str) -> None:
    client = await dial.connect(version)
    await client.subscribe("/t", id="1")
    publisher = await dial.connect()
    await publisher.publish("/t", b"before", receipt=True)
    await client.send("UNSUBSCRIBE", {"id": "1", "receipt": "gone"})
    assert bodies(await client.receive_until_receipt("gone")) == [b"before"]
    await publisher.publish("/t", b"after", receipt=True)
    assert await client.fence() == []


@pytest.mark.covers("S15")
async def test_nothing_arrives_after_it_in_the_midst_of_a_flood_either(dial: Dial) -> None:
    """Messages published, but not yet written, before the UNSUBSCRIBE arrive before its RECEIPT."""
    client = await dial.connect()
    publisher = await dial.connect()
    await client.subscribe("/t", id="keep")
    seen = 0

    async def flood() -> None:
        for _ in range(30):
            await publisher.publish("/t", *[b"x" * 500] * 100)
            await trio.lowlevel.checkpoint()

    async def come_and_go() -> None:
        nonlocal seen
        for number in range(20):
            seen += len(await client.subscribe("/t", id=f"s{number}"))
            await client.send("UNSUBSCRIBE", {"id": f"s{number}", "receipt": f"u{number}"})
            seen += len(await client.receive_until_receipt(f"u{number}"))
            for frame in await client.fence():
                assert frame["subscription"] == "keep"

    await gather(flood, come_and_go)
    assert await publisher.fence() == []


@pytest.mark.covers("S12")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("destination", ["/t", "/queue/a"])
async def test_a_selector(dial: Dial, version: str, destination: str) -> None:
    pytest.importorskip("lark")
    client = await dial.connect(version)
    await client.subscribe(destination, headers={"selector": "colour = 'red'"})
    for colour in ("red", "blue", "red"):
        await client.publish(destination, colour.encode(), headers={"colour": colour})
    got = [*await client.fence(), *await client.fence()]
    assert bodies(got) == [b"red", b"red"]
    bad = {"destination": destination, "id": "2", "selector": "colour = ", "receipt": "r"}
    await client.send("SUBSCRIBE", bad)
    assert (await client.expect_error("invalid-selector"))["receipt-id"] == "r"


@pytest.mark.covers("S16", "A13")
@pytest.mark.parametrize("mode", ["client", "client-individual"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_unacknowledged_messages_at_unsubscribe_go_back_at_once(
    dial: Dial, version: str, mode: str
) -> None:
    client, other = await dial.connect(version), await dial.connect()
    await client.subscribe("/queue/a", headers={"ack": mode, "prefetch-count": "2"})
    await client.publish("/queue/a", b"1", b"2", b"3", receipt=True)
    first, _ = await client.receive_many(2)
    await other.subscribe("/queue/a", headers={"ack": "client-individual", "prefetch-count": "1"})
    assert (await other.receive()).body == b"3"
    await client.send("UNSUBSCRIBE", {"id": "1", "receipt": "u"})
    assert await client.receive_until_receipt("u") == []
    # At the head, in order. The other consumer's credit is used up, so it receives nothing.
    reader = await dial.connect()
    await reader.subscribe("/queue/a", headers={"ack": "client-individual"})
    again = await reader.receive_many(2)
    assert bodies(again) == [b"1", b"2"]
    assert [(each["redelivered"], each["delivery-count"]) for each in again] == [("true", "2")] * 2
    late = {"id": first.get("ack") or "", "message-id": first["message-id"], "subscription": "1"}
    await client.send("ACK", {**late, "receipt": "r"})
    assert (await client.receive())["ignored"] == ("id" if version == "1.2" else "message-id")
    assert bodies([*await reader.fence(), *await reader.fence()]) == []


@pytest.mark.covers("S08", "S16")
async def test_a_late_ack_does_not_touch_the_next_subscription_of_that_id(dial: Dial) -> None:
    """In 1.2, where the header ack names the delivery; before it, an ACK names the message."""
    client = await dial.connect("1.2")
    await client.subscribe("/queue/a", headers={"ack": "client"})
    await client.publish("/queue/a", b"1")
    old = await client.receive()
    await client.send("UNSUBSCRIBE", {"id": "1"})
    await client.subscribe("/queue/a", headers={"ack": "client"})
    new = await client.receive()
    assert (new.body, new["redelivered"]) == (b"1", "true")
    assert new["message-id"] == old["message-id"]
    assert new["ack"] != old["ack"]
    await client.send("ACK", {"id": old["ack"], "receipt": "r"})
    assert (await client.receive())["ignored"] == "id"
    client.abort()
    other = await dial.connect()
    await other.subscribe("/queue/a")
    assert (await other.receive()).body == b"1"


@pytest.mark.covers("S17", "A05")
@pytest.mark.parametrize("version", VERSIONS)
async def test_two_subscriptions_get_two_copies(dial: Dial, version: str) -> None:
    client = await dial.connect(version)
    await client.subscribe("/t", id="a")
    await client.subscribe("/t", id="b")
    await client.subscribe("/*", id="c")
    await client.publish("/t", b"1", b"2")
    got = [frame for frame in await client.fence() if frame.command == "MESSAGE"]
    assert sorted((frame["subscription"], frame.body) for frame in got) == [
        (name, body) for name in "abc" for body in (b"1", b"2")
    ]
    ids = [frame["message-id"] for frame in got]
    assert len(set(ids)) == 6
    assert all(character.isalnum() or character in "._-" for id_ in ids for character in id_)


async def test_order_is_kept_for_each_publisher_and_destination(dial: Dial) -> None:
    subscriber = await dial.connect()
    await subscriber.subscribe("/t/*")
    publishers = [await dial.connect() for _ in range(4)]

    async def publish(number: int, client: Client) -> None:
        for start in range(0, 100, 10):
            part = [b"%d:%d" % (number, n) for n in range(start, start + 10)]
            await client.publish(f"/t/{number}", *part)
            await trio.lowlevel.checkpoint()

    async def run(number: int, client: Client) -> None:
        await publish(number, client)

    async with trio.open_nursery() as nursery:
        for number, client in enumerate(publishers):
            nursery.start_soon(run, number, client)
    got = await subscriber.receive_many(400)
    for number in range(4):
        own = [frame.body for frame in got if frame["destination"] == f"/t/{number}"]
        assert own == [b"%d:%d" % (number, n) for n in range(100)]


async def test_the_receipt_of_a_subscribe_precedes_its_first_message(
    timed_dial: Dial, autojump_clock
) -> None:
    timed_dial.use(ttl_ms=60_000)
    publisher = await timed_dial.connect()
    await publisher.publish("/t", b"parked", receipt=True)
    client = await timed_dial.connect()
    data = frame_bytes("SUBSCRIBE", {"destination": "/t", "id": "1", "receipt": "r"})
    await client.send_bytes(data + frame_bytes("SEND", {"destination": "/t"}, b"live"))
    frames = await client.receive_many(3)
    assert [frame.command for frame in frames] == ["RECEIPT", "MESSAGE", "MESSAGE"]
    assert bodies(frames) == [b"parked", b"live"]


# --- the time to live ---------------------------------------------------------------------------


async def test_unwanted_messages_are_dropped_without_a_ttl(dial: Dial) -> None:
    client = await dial.connect()
    await client.publish("/t", b"early", receipt=True)
    await client.subscribe("/t")
    assert await client.fence() == []
    assert dial.server.broker.stale.size == 0


@pytest.mark.parametrize("destination", ["/topic/a", "bare", "#work"])
async def test_within_its_ttl_a_message_waits_for_a_subscriber(
    timed_dial: Dial, autojump_clock, destination: str
) -> None:
    timed_dial.use(ttl_ms=5000, diag_interval_s=0.0)
    publisher = await timed_dial.connect()
    await publisher.publish(destination, b"1", headers={"a": "b"})
    await trio.sleep(3)
    await publisher.publish(destination, b"2", b"3", receipt=True)
    await publisher.disconnect()  # the messages outlive their sender
    await trio.sleep(1.9)
    client = await timed_dial.connect()
    await client.subscribe(destination)
    messages = await client.receive_many(3)
    assert bodies(messages) == [b"1", b"2", b"3"]
    assert messages[0]["destination"] == destination
    assert messages[0]["a"] == "b"
    second = await timed_dial.connect()
    await second.subscribe(destination)
    assert await second.fence() == []  # each was for one late subscriber


async def test_after_its_ttl_a_message_is_never_delivered(timed_dial: Dial, autojump_clock) -> None:
    timed_dial.use(ttl_ms=5000, diag_interval_s=0.0)
    publisher = await timed_dial.connect()
    await publisher.publish("/t", b"old", receipt=True)
    await trio.sleep(3)
    await publisher.publish("/t", b"young", receipt=True)
    await trio.sleep(2.1)
    client = await timed_dial.connect()
    await client.subscribe("/t")
    assert bodies(await client.fence()) == [b"young"]


async def test_expired_messages_are_swept_without_a_subscriber(
    timed_dial: Dial, autojump_clock
) -> None:
    timed_dial.use(ttl_ms=5000, diag_interval_s=0.0)
    publisher = await timed_dial.connect()
    await publisher.publish("/t", *[b"x"] * 100, receipt=True)
    assert timed_dial.server.broker.stale.size == 100
    await trio.sleep(6.5)
    assert timed_dial.server.broker.stale.size == 0
    assert timed_dial.server.memory.used_bytes == 0


# --- wildcards and work queues, from outside ----------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("/topic/*", ["/topic/", "/topic/a", "/topic/a/b"], ["/topic", "/topics/a"]),
        ("/topic/*/eu", ["/topic/a/eu"], ["/topic/a/b/eu", "/topic/a/us", "/topic//eu"]),
        ("/topic/p.*", ["/topic/p.a"], ["/topic/p.a.b", "/topic/p"]),
        ("/topic/p.>", ["/topic/p", "/topic/p.a", "/topic/p.a.b"], ["/topic/pa"]),
        ("price*", ["price", "prices", "price/a.b"], ["/price", "pric"]),
    ],
)
async def test_wildcards(dial: Dial, pattern: str, matching: list[str], others: list[str]) -> None:
    client = await dial.connect()
    await client.subscribe(pattern)
    for name in [*others, *matching]:
        await client.publish(name, name.encode())
    got, expected = bodies(await client.receive_many(len(matching))), list(matching)
    if dial.is_routed:  # each partition has an order of its own
        got, expected = sorted(got), sorted(matching)
    assert got == [name.encode() for name in expected]
    assert await client.fence() == []


async def test_a_wildcard_never_reaches_into_the_queues_or_breaks_out_of_its_words(
    dial: Dial,
) -> None:
    client = await dial.connect()
    await client.subscribe("a.*")
    for name in ("a/b", "a.b/c", "a.", "A.b"):
        await client.publish(name, b"wrong")
    await client.publish("a.b", b"right")
    assert bodies(await client.fence()) == [b"right"]


async def test_a_work_queue_gives_each_message_to_one_member(dial: Dial) -> None:
    members = [await dial.connect() for _ in range(3)]
    for member in members:
        await member.subscribe("#work/*")
    publisher = await dial.connect()
    await publisher.publish("#work/a", *[b"%d" % n for n in range(7)], receipt=True)
    got = [bodies(await member.fence()) for member in members]
    assert got == [[b"0", b"3", b"6"], [b"1", b"4"], [b"2", b"5"]]
    members[1].abort()
    await until(lambda: all(len(broker.clients) <= 3 for broker in dial.brokers))
    await publisher.publish("#work/a", *[b"%d" % n for n in range(4)], receipt=True)
    rest = [bodies(await members[place].fence()) for place in (0, 2)]
    assert sorted(len(part) for part in rest) == [2, 2]
    assert sorted(rest[0] + rest[1]) == [b"0", b"1", b"2", b"3"]
