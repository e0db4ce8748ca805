"""Features that meet in one queue: expiry, back-off, groups, exclusive consumers, dead letters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.fakes import Client, Received
from tests.support.management import Interface
from tests.support.served import Served, is_quiet, sends, served, served_with, taken
from trio_stomp.broker import DestinationPolicy

Q, DEAD = "/queue/q", "/queue/DLQ.q"
STORES = ("memory", "journal", "sqlite")
TTL = {"expiration": "300"}
SOON_S = 8
"""Time within which expired messages must have left."""


def place_of(store: str, directory: Path) -> dict[str, object]:
    """Return the options of a broker with a store."""
    if store == "sqlite":
        pytest.importorskip("sqlalchemy")
        return {"store_url": f"sqlite:///{directory}/q.db"}
    return {"data_dir": str(directory / "data")} if store == "journal" else {}


async def consumer(broker: Served, name: str = Q, **headers: str) -> Client:
    """Subscribe with an ACK for each message."""
    client = await broker.connect({})
    more = {key.replace("_", "-"): text for key, text in headers.items()}
    await client.subscribe(name, headers={"ack": "client-individual", **more})
    return client


async def comes(look: Callable[[], Any], wanted: object) -> None:
    """Wait until an answer is as it is to be."""
    for _ in range(SOON_S * 20):
        if await look() == wanted:
            break
        await trio.sleep(0.05)
    assert await look() == wanted


async def queue(broker: Served, name: str = Q) -> Any:
    """Return what the lists say of a queue."""
    found = (await Interface(broker).get(f"queues?name={name}"))["queues"]
    return found[0] if found else None


async def nacks(client: Client, message: Received) -> None:
    await client.send("NACK", {"id": message["ack"], "receipt": "nacked"})
    await client.receive_until_receipt("nacked")


# What expires leaves, wherever it is.


@pytest.mark.parametrize("store", STORES)
async def test_messages_expire_behind_one_that_stays(store: str, tmp_path: Path) -> None:
    policy = DestinationPolicy(dead_letter_expired=True, max_messages=21)
    async with served_with({Q: policy}, place_of(store, tmp_path)) as broker:
        await sends(broker, Q, "stays")
        await sends(broker, Q, *map(str, range(20)), **TTL)
        reader = await consumer(broker, DEAD)
        assert await taken(reader, 20) == list(map(str, range(20)))
        await sends(broker, Q, *map(str, range(20)))  # there is room again
        assert (await queue(broker))["input_depth"] == 21


@pytest.mark.parametrize("store", STORES)
async def test_messages_expire_behind_one_that_stays_after_a_restart(
    store: str, tmp_path: Path
) -> None:
    policies = {Q: DestinationPolicy(dead_letter_expired=True)}
    if store == "memory":
        return
    async with served_with(policies, place_of(store, tmp_path)) as broker:
        await sends(broker, Q, "stays")
        await sends(broker, Q, *map(str, range(20)), expiration="1500")
    async with served_with(policies, place_of(store, tmp_path)) as broker:
        reader = await consumer(broker, DEAD)
        assert await taken(reader, 20) == list(map(str, range(20)))


@pytest.mark.parametrize("store", STORES)
async def test_a_message_expires_while_it_is_in_back_off(store: str, tmp_path: Path) -> None:
    policy = DestinationPolicy(dead_letter_expired=True, backoff_s=(600.0,), max_messages=1)
    async with served_with({Q: policy}, place_of(store, tmp_path)) as broker:
        await sends(broker, Q, "x", expiration="1000")
        reader = await consumer(broker)
        await nacks(reader, await reader.receive())
        assert await taken(await consumer(broker, DEAD), 1) == ["x"]
        await sends(broker, Q, "y")
        assert await taken(reader, 1) == ["y"]


@pytest.mark.parametrize("store", STORES)
async def test_a_message_expires_when_it_returns_to_nobody(store: str, tmp_path: Path) -> None:
    policy = DestinationPolicy(dead_letter_expired=True)
    async with served_with({Q: policy}, place_of(store, tmp_path)) as broker:
        await sends(broker, Q, "stays")
        await sends(broker, Q, "x", expiration="500")
        reader = await consumer(broker)
        await reader.receive_many(2)
        await trio.sleep(0.6)
        await reader.disconnect()
        assert await taken(await consumer(broker, DEAD), 1) == ["x"]
        assert (await queue(broker))["input_depth"] == 1


@pytest.mark.parametrize("store", STORES)
async def test_last_values_expire(store: str, tmp_path: Path) -> None:
    async def number(broker: Served) -> int:
        return len((await Interface(broker).get("last-values"))["last_values"])

    async with served_with({}, place_of(store, tmp_path)) as broker:
        names = [f"/topic/t{n}" for n in range(20)]
        for name in names:
            await sends(broker, name, "old", expiration="1000", retain="set")
        await sends(broker, "/topic/stays", "new", retain="set")
        assert await number(broker) == 21
        await comes(lambda: number(broker), 1)
    if store != "memory":
        async with served_with({}, place_of(store, tmp_path)) as broker:
            assert await number(broker) == 1


# One active consumer.


async def test_groups_go_on_when_a_reload_makes_a_queue_exclusive() -> None:
    async with served() as broker:
        first, second = await consumer(broker), await consumer(broker)
        for group in "abcd":
            await sends(broker, Q, group, **{"message-group": group})
        assert len(await taken(first, 2) + await taken(second, 2)) == 4
        await broker.use({Q: DestinationPolicy(exclusive=True)})
        for group in "abcd":
            await sends(broker, Q, group, **{"message-group": group})
        assert await taken(first, 4) == ["a", "b", "c", "d"]
        assert await is_quiet(second)


async def test_an_exclusive_consumer_keeps_a_queue_whatever_priority_others_have() -> None:
    async with served() as broker:
        first = await consumer(broker, exclusive="true", prefetch_count="1")
        await sends(broker, Q, "1", "2", "3")
        held = await first.receive()
        later = await consumer(broker, exclusive="true", x_priority="9")
        assert await is_quiet(later)
        await first.send("ACK", {"id": held["ack"]})
        assert (await first.receive()).body == b"2"
        await first.disconnect()
        assert await taken(later, 2) == ["2", "3"]


async def test_an_exclusive_consumer_waits_for_the_messages_of_a_group_that_others_hold() -> None:
    async with served() as broker:
        first = await consumer(broker, prefetch_count="1")
        await sends(broker, Q, "1", "2", **{"message-group": "g"})
        held = await first.receive()
        later = await consumer(broker, exclusive="true")
        assert await is_quiet(later)
        await first.send("ACK", {"id": held["ack"]})
        assert await taken(later, 1) == ["2"]
        assert await is_quiet(first)


# Dead letters are messages like others.


@pytest.mark.parametrize("store", STORES)
async def test_a_dead_letter_queue_keeps_the_newest(store: str, tmp_path: Path) -> None:
    policies = {
        DEAD: DestinationPolicy(max_messages=3, overflow="drop-oldest"),
        Q: DestinationPolicy(max_redeliveries=0, backoff_s=()),
    }
    async with served_with(policies, place_of(store, tmp_path)) as broker:
        await sends(broker, Q, *"12345")
        reader = await consumer(broker)
        for message in await reader.receive_many(5):
            await nacks(reader, message)
        assert await taken(await consumer(broker, DEAD), 3) == ["3", "4", "5"]


@pytest.mark.parametrize("store", STORES[1:])
async def test_a_dead_letter_queue_that_is_always_stored_keeps_all(
    store: str, tmp_path: Path
) -> None:
    policies = {
        DEAD: DestinationPolicy(persistent="always"),
        Q: DestinationPolicy(max_redeliveries=0, backoff_s=()),
    }
    async with served_with(policies, place_of(store, tmp_path)) as broker:
        await sends(broker, Q, "1", persistent="false")
        reader = await consumer(broker)
        await nacks(reader, await reader.receive())
        await comes(lambda: _depth(broker, DEAD), 1)
    async with served_with(policies, place_of(store, tmp_path)) as broker:
        assert await taken(await consumer(broker, DEAD), 1) == ["1"]


async def _depth(broker: Served, name: str) -> int:
    found = await queue(broker, name)
    return 0 if found is None else found["input_depth"]


async def test_a_refused_private_answer_stays_private() -> None:
    async with served_with({}, {}) as broker:
        owner, other = await broker.connect({}), await broker.connect({})
        await owner.subscribe("/temp-queue/answers", headers={"ack": "client-individual"})
        await owner.subscribe(Q, "2", headers={"ack": "auto"})
        await owner.publish(Q, b"question", headers={"reply-to": "/temp-queue/answers"})
        question = await owner.receive()
        await other.publish(question["reply-to"], b"secret", receipt=True)
        answer = await owner.receive()
        for _ in range(6):
            await nacks(owner, answer)
            with trio.move_on_after(0.5):
                answer = await owner.receive()
        names = [each["destination"] for each in (await Interface(broker).get("queues"))["queues"]]
        assert not [name for name in names if "DLQ" in name]


# Full queues.


@pytest.mark.parametrize("store", STORES[1:])
async def test_the_oldest_make_room_just_after_a_start(store: str, tmp_path: Path) -> None:
    policies = {Q: DestinationPolicy(max_messages=3, overflow="drop-oldest")}
    async with served_with(policies, place_of(store, tmp_path)) as broker:
        await sends(broker, Q, *"123")
    async with served_with(policies, place_of(store, tmp_path)) as broker:
        await sends(broker, Q, "4", "5")
        assert await taken(await consumer(broker), 3) == ["3", "4", "5"]


async def test_the_newest_is_taken_while_all_others_are_held() -> None:
    policies = {Q: DestinationPolicy(max_messages=2, overflow="drop-oldest")}
    async with served_with(policies, {}) as broker:
        await sends(broker, Q, "1", "2")
        reader = await consumer(broker)
        held = await reader.receive_many(2)
        await sends(broker, Q, "3")
        for message in held:
            await reader.send("ACK", {"id": message["ack"]})
        assert await taken(reader, 1) == ["3"]
