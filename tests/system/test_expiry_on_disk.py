"""Messages that expire while they are in the store only, and nobody consumes them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.support.management import Interface
from tests.support.served import Served, served_with
from trio_stomp.broker import DestinationPolicy

RETRY, WORK, SAVED = "/queue/retry", "/queue/work", {"persistent": "true"}
TTL_S = 1.0
POLICY = DestinationPolicy(ttl_ms=round(1000 * TTL_S), dead_letter=WORK, dead_letter_expired=True)
MEMORY = {"max_memory_bytes": 6 * 1024 * 1024}
STORES = ("journal", "sqlite")
PREFETCH = 50
"""Messages between two ACKs: fewer than the broker sends without one."""


@asynccontextmanager
async def broker(directory: Path, store: str) -> AsyncIterator[Served]:
    place = {"data_dir": str(directory / "data")}
    if store == "sqlite":
        pytest.importorskip("sqlalchemy")
        place = {"store_url": f"sqlite:///{directory}/q.db"}
    async with served_with({RETRY: POLICY}, {**MEMORY, **place}) as made:
        yield made


async def take(made: Served, count: int) -> list[bytes]:
    """Return the messages that come to the queue of expired ones."""
    consumer = await made.connect({})
    await consumer.subscribe(WORK, headers={"ack": "client"})
    bodies: list[bytes] = []
    while len(bodies) < count:
        frames = await consumer.receive_many(min(count - len(bodies), PREFETCH))
        await consumer.send("ACK", {"id": frames[-1]["ack"]})
        bodies += [frame.body[:6] for frame in frames]
    await consumer.disconnect()
    return bodies


@pytest.mark.parametrize("store", STORES)
async def test_a_retry_queue_gives_its_messages_back_after_a_restart(
    tmp_path: Path, store: str
) -> None:
    sent = [b"%06d" % n for n in range(10)]
    async with broker(tmp_path, store) as made:
        producer = await made.connect({})
        await producer.publish(RETRY, *sent, headers=SAVED, receipt=True)
    async with broker(tmp_path, store) as made:
        assert await take(made, len(sent)) == sent
        later = [b"%06d" % n for n in range(10, 12)]
        producer = await made.connect({})
        await producer.publish(RETRY, *later, headers=SAVED, receipt=True)
        assert await take(made, len(later)) == later


@pytest.mark.full
@pytest.mark.parametrize("store", STORES)
async def test_a_deep_retry_queue_gives_all_back(tmp_path: Path, store: str) -> None:
    sent = [b"%06d" % n for n in range(3_000)]
    async with broker(tmp_path, store) as made:
        producer = await made.connect({})
        bodies = [body.ljust(1_500, b"x") for body in sent]
        for start in range(0, len(sent), 300):
            part = bodies[start : start + 300]
            await producer.publish(RETRY, *part, headers=SAVED, receipt=True)
        assert await take(made, len(sent)) == sent


@pytest.mark.parametrize("store", STORES)
async def test_a_durable_subscription_of_an_absent_client_loses_what_has_expired(
    tmp_path: Path, store: str
) -> None:
    named = {"client-id": "absent"}
    durable = {"durable-subscription-name": "news", "activemq.subscriptionName": "news"}
    async with broker(tmp_path, store) as made:
        absent = await made.connect(named)
        await absent.subscribe("/topic/news", headers=durable)
        await absent.disconnect()
        producer = await made.connect({})
        ttl = {"ttl": f"{round(1000 * TTL_S)}"}
        await producer.publish("/topic/news", b"old", headers=SAVED | ttl, receipt=True)
        await producer.publish("/topic/news", b"new", headers=SAVED, receipt=True)
    async with broker(tmp_path, store) as made:
        interface = Interface(made)
        for _ in range(200):
            await trio.sleep(0.1)
            waiting = (await interface.get("durables"))["durables"][0]["waiting"]
            if waiting == 1:
                break
        assert waiting == 1
        back = await made.connect(named)
        await back.subscribe("/topic/news", headers=durable)
        assert (await back.receive()).body == b"new"
