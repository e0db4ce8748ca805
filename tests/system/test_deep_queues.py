"""Consumers that may have only some of a deep queue's messages, over sockets, with real stores."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.support.fakes import Client, Received
from tests.support.served import Served, served_with
from trio_stomp.broker import DestinationPolicy

Q = "/queue/q"
DEEP = 5_000
"""More than a queue keeps in memory when memory is short."""
SHORT = {"max_memory_bytes": 4 * 1024 * 1024}
POLICIES = {Q: DestinationPolicy(priority=True)}
ONE = {"ack": "client-individual", "prefetch-count": "1"}
STORES = ("journal", "sqlite")


@asynccontextmanager
async def broker(store: str, at: Path) -> AsyncIterator[Served]:
    options: dict[str, object] = {}
    if store == "journal":
        options = {"data_dir": str(at / "data"), **SHORT}
    elif store == "sqlite":
        options = {"store_url": f"sqlite:///{at / 'store.db'}", **SHORT}
    with trio.fail_after(60):
        async with served_with(POLICIES, options) as made:
            yield made


async def fills(client: Client, *runs: tuple[int, dict[str, str]]) -> None:
    """Send runs of messages, each with headers of its own, numbered through all of them."""
    first = 0
    for count, headers in runs:
        for start in range(first, first + count, 500):
            stop = min(start + 500, first + count)
            numbered = (b"%-300d" % number for number in range(start, stop))
            sent = {**headers, "persistent": "true"}
            await client.publish(Q, *numbered, headers=sent, receipt=True)
        first += count


async def acks(client: Client, frame: Received) -> None:
    await client.send("ACK", {"id": frame["ack"]})


async def drained(client: Client, count: int) -> list[int]:
    """Take messages as a consumer without a selector, in order."""
    await client.send("SUBSCRIBE", {"destination": Q, "id": "rest"})
    return [int((await client.receive()).body) for _ in range(count)]


@pytest.mark.parametrize("store", ["memory", *STORES])
async def test_a_selector_finds_what_lies_behind_a_backlog(store: str, tmp_path: Path) -> None:
    async with broker(store, tmp_path) as made:
        await fills(await made.connect({}), (DEEP, {"type": "a"}), (3, {"type": "b"}))
        if store == "memory":
            await _takes_from_behind(made)
            return
    async with broker(store, tmp_path) as made:
        await _takes_from_behind(made)
    async with broker(store, tmp_path) as made:
        left = await drained(await made.connect({}), DEEP + 1)
        assert left == [*range(DEEP), DEEP + 2]


async def _takes_from_behind(made: Served) -> None:
    client = await made.connect({})
    await client.send("SUBSCRIBE", {"destination": Q, "id": "1", "selector": "type = 'b'", **ONE})
    for number in range(DEEP, DEEP + 2):
        frame = await client.receive()
        assert int(frame.body) == number
        await acks(client, frame)
    last = await client.receive()
    assert int(last.body) == DEEP + 2
    await client.disconnect()


async def test_a_page_of_tiny_messages_beyond_the_memory_limit_is_delivered(tmp_path: Path) -> None:
    options = {"data_dir": str(tmp_path / "data"), "max_memory_bytes": 1024 * 1024}
    bodies = [b"%d" % number for number in range(DEEP)]
    with trio.fail_after(60):
        async with served_with({}, options) as made:
            client = await made.connect({})
            for start in range(0, DEEP, 500):
                sent = bodies[start : start + 500]
                await client.publish(Q, *sent, headers={"persistent": "true"}, receipt=True)
        async with served_with({}, options) as made:
            assert await drained(await made.connect({}), DEEP) == list(range(DEEP))


@pytest.mark.parametrize("store", ["memory", *STORES])
async def test_a_busy_group_hides_no_other_messages(store: str, tmp_path: Path) -> None:
    async with broker(store, tmp_path) as made:
        busy, free = {"JMSXGroupID": "busy"}, {"JMSXGroupID": "free"}
        await fills(await made.connect({}), (DEEP, busy), (2, free), (2, {}))
        if store == "memory":
            await _passes_the_busy_group(made)
            return
    async with broker(store, tmp_path) as made:
        await _passes_the_busy_group(made)


async def _passes_the_busy_group(made: Served) -> None:
    busy, free = await made.connect({}), await made.connect({})
    await busy.send("SUBSCRIBE", {"destination": Q, "id": "1", **ONE})
    first = await busy.receive()
    assert int(first.body) == 0
    await free.send("SUBSCRIBE", {"destination": Q, "id": "1", **ONE})
    for number in range(DEEP, DEEP + 4):
        frame = await free.receive()
        assert int(frame.body) == number
        await acks(free, frame)
    await acks(busy, first)
    assert int((await busy.receive()).body) == 1
    await busy.disconnect()
    frame = await free.receive()
    assert int(frame.body) == 1


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", ["selector", "group"])
async def test_a_lower_priority_is_read_from_the_store_too(
    store: str, kind: str, tmp_path: Path
) -> None:
    async with broker(store, tmp_path) as made:
        client = await made.connect({})
        await fills(client, (2, {"type": "a", "JMSXGroupID": "busy", "priority": "4"}))
        await fills(client, (1, {"type": "b", "priority": "1"}))
    async with broker(store, tmp_path) as made:
        busy, client = await made.connect({}), await made.connect({})
        if kind == "group":
            await busy.send("SUBSCRIBE", {"destination": Q, "id": "1", **ONE})
            await busy.receive()
        selector = {"selector": "type = 'b'"} if kind == "selector" else {}
        await client.send("SUBSCRIBE", {"destination": Q, "id": "1", **selector})
        assert (await client.receive())["type"] == "b"


@pytest.mark.parametrize("name", ["/queue/x.*", "/queue/x.a,/queue/x.b"])
@pytest.mark.parametrize("prefetch", [1, 10])
async def test_a_busy_queue_hides_no_other_queue_of_a_consumer(name: str, prefetch: int) -> None:
    with trio.fail_after(30):
        async with served_with({}, {}) as made:
            client = await made.connect({})
            bodies = (b"%d" % number for number in range(1_000))
            await client.publish("/queue/x.a", *bodies, receipt=True)
            await client.publish("/queue/x.b", b"other", receipt=True)
            headers = {"destination": name, "id": "1", "prefetch-count": f"{prefetch}"}
            await client.send("SUBSCRIBE", {**headers, "ack": "client-individual"})
            found: list[bytes] = []
            while b"other" not in found:
                frame = await client.receive()
                found.append(frame.body)
                await client.send("ACK", {"id": frame["ack"]})
            assert len(found) <= 2 * prefetch + 1
