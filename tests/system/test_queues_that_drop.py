"""Queues that drop old messages for new ones get more than they may hold, at once."""

from pathlib import Path

import pytest
import trio

from tests.support.fakes import Client, frame_bytes
from tests.support.served import Served, served_with
from trio_stomp.broker import DestinationPolicy

Q, DEAD, TOPIC = "/queue/q", "/queue/dead", "/topic/t"
COUNT, MOST = 100, 30
STORES = ("memory", "journal", "sqlite")


def options_of(store: str, directory: Path) -> dict[str, object]:
    """Return the options of a broker with a store."""
    if store == "memory":
        return {}
    if store == "sqlite":
        pytest.importorskip("sqlalchemy")
        return {"store_url": f"sqlite:///{directory}/q.db"}
    return {"data_dir": str(directory / "data")}


def sends(destination: str, *, is_commit: bool) -> bytes:
    """Return SENDs with a receipt each, or in a transaction whose COMMIT has one."""
    frames: list[bytes] = []
    for number in range(COUNT):
        headers = {"destination": destination, "persistent": "true"}
        headers |= {"transaction": "t"} if is_commit else {"receipt": f"{number}"}
        frames.append(frame_bytes("SEND", headers, b"%d" % number, "1.2"))
    if is_commit:
        frames.insert(0, frame_bytes("BEGIN", {"transaction": "t"}, b"", "1.2"))
        frames.append(frame_bytes("COMMIT", {"transaction": "t", "receipt": "0"}, b"", "1.2"))
    return b"".join(frames)


async def bodies(client: Client, count: int) -> list[int]:
    """Return the first messages of a subscription, and make sure that no more follow."""
    found = [int(each.body) for each in await client.receive_many(count)]
    with trio.move_on_after(0.05):
        found.append(int((await client.receive()).body))
    return found


async def drained(broker: Served, name: str, count: int) -> list[int]:
    """Consume a queue, and return the bodies of its messages."""
    reader = await broker.connect({})
    await reader.subscribe(name)
    return await bodies(reader, count)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("is_commit", [False, True], ids=["sends", "commit"])
@pytest.mark.parametrize("overflow", ["drop-oldest", "dead-letter"])
async def test_the_newest_messages_remain(
    overflow: str, is_commit: bool, store: str, tmp_path: Path
) -> None:
    policy = DestinationPolicy(max_messages=MOST, overflow=overflow, dead_letter=DEAD)
    options, policies = options_of(store, tmp_path), {Q: policy}
    number_dead = (COUNT - MOST) * (overflow == "dead-letter")

    async def look(broker: Served) -> None:
        assert await drained(broker, Q, MOST) == list(range(COUNT - MOST, COUNT))
        assert await drained(broker, DEAD, number_dead) == list(range(number_dead))

    async with served_with(policies, options) as broker:
        sender = await broker.connect({})
        await sender.send_bytes(sends(Q, is_commit=is_commit))
        receipts = await sender.receive_many(1 if is_commit else COUNT)
        assert {each.command for each in receipts} == {"RECEIPT"}
        assert {each.get("dropped") for each in receipts} == {None}
        assert {each.get("stored") for each in receipts} == {store}
        if store == "memory":
            await look(broker)
    if store != "memory":
        async with served_with(policies, options) as broker:
            await look(broker)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("is_commit", [False, True], ids=["sends", "commit"])
async def test_the_newest_messages_remain_for_a_durable_subscription(
    is_commit: bool, store: str, tmp_path: Path
) -> None:
    policies = {TOPIC: DestinationPolicy(max_messages=MOST, slow_consumer="drop-oldest")}
    options, name = options_of(store, tmp_path), {"client-id": "c"}
    durable = {"activemq.subscriptionName": "s", "id": "1", "ack": "client-individual"}
    async with served_with(policies, options) as broker:
        reader = await broker.connect(name)
        await reader.subscribe(TOPIC, headers=durable)
        await reader.disconnect()
        sender = await broker.connect({})
        await sender.send_bytes(sends(TOPIC, is_commit=is_commit))
        receipts = await sender.receive_many(1 if is_commit else COUNT)
        assert {each.command for each in receipts} == {"RECEIPT"}
        reader = await broker.connect(name)
        await reader.subscribe(TOPIC, headers=durable)
        assert await bodies(reader, MOST) == list(range(COUNT - MOST, COUNT))
