"""A COMMIT over queues, topics and streams, killed at every point: all of it is there, or nothing.

The broker is whole, its clients have sockets, and its journal writes what it writes to a disk that
is looked at before each change. A broker that is started on each of these states shows its content.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import combinations
from pathlib import Path

import pytest
from _oracle.store_disk import Disk
from attrs import evolve

from tests.support.durable_dial import dialled
from tests.support.fakes import TCP, Client, frame_bytes
from tests.support.journals import killed
from trio_stomp.broker import DestinationPolicy
from trio_stomp.store import JournalStore

SAVED = {"persistent": "true"}
DURABLE = {"durable-subscription-name": "d"}
SENDS = {
    "queue": "/queue/out",
    "topic": "/topic/news",
    "stream": "/topic/log",
    "both": "/topic/both",
    "second": "/topic/log2",
}
"""Where a COMMIT sends to: a queue, a durable subscription, streams, and a topic with both."""
READS = {
    "ack": ("/queue/in", {}),
    "queue": ("/queue/out", {}),
    "topic": ("/topic/news", {**DURABLE, "durable-subscription-name": "d1"}),
    "stream": ("/stream/topic/log", {"x-stream-offset": "first"}),
    "both": ("/topic/both", {**DURABLE, "durable-subscription-name": "d2"}),
    "streamed": ("/stream/topic/both", {"x-stream-offset": "first"}),
    "second": ("/stream/topic/log2", {"x-stream-offset": "first"}),
}
POLICY = DestinationPolicy(stream=True)
BOOK = tuple((SENDS[name], POLICY) for name in ("stream", "both", "second"))
MIXTURES = [mixture for size in range(2, 7) for mixture in combinations(("ack", *SENDS), size)]
PUSHED = (("ack", "stream"), ("queue", "stream"), ("stream", "second"), ("ack", *SENDS))


@asynccontextmanager
async def client_of(directory: Path, disk: Disk) -> AsyncIterator[Client]:
    """Yield a client of a broker on a disk."""
    store = JournalStore(str(directory), disk)
    async with dialled(store, TCP, diag_interval_s=0.0) as dial:
        assemble = dial.assemble
        dial.assemble = lambda settings, *more: assemble(evolve(settings, destinations=BOOK), *more)
        client = await dial.open()
        await client.connect("1.2", {"client-id": "c"})
        yield client


async def commit(client: Client, mixture: tuple[str, ...], ack: str, times: int) -> None:
    """Commit an ACK and SENDs, in the order of ``mixture``, each SEND several times."""
    inside = {"transaction": "t"}
    frames = [frame_bytes("BEGIN", inside, b"", "1.2")]
    for name in mixture:
        if name == "ack":
            frames.append(frame_bytes("ACK", {"id": ack, **inside}, b"", "1.2"))
        else:
            headers = {"destination": SENDS[name], **SAVED, **inside}
            frames += [frame_bytes("SEND", headers, b"result", "1.2")] * times
    frames.append(frame_bytes("COMMIT", {**inside, "receipt": "c"}, b"", "1.2"))
    await client.send_bytes(b"".join(frames))
    assert await client.receive_until_receipt("c") == []


async def shown(client: Client) -> list[str]:
    """Return the names of the reads that show what the COMMIT took part in, once for each time."""
    for name, (destination, headers) in READS.items():
        await client.send("SUBSCRIBE", {"destination": destination, "id": name, **headers})
    for destination in ("/queue/in", *SENDS.values()):
        await client.send("SEND", {"destination": destination, **SAVED}, b"end")
    found, ended = [], set[str]()
    while ended < READS.keys():
        message = await client.receive()
        assert message.command == "MESSAGE", message
        name = message["subscription"]
        if message.body == b"end":
            ended.add(name)
        elif message.body:
            assert name not in ended
            found.append(name)
    return sorted(found)


@pytest.mark.parametrize(
    ("mixture", "times"),
    [
        pytest.param(each, 1, marks=() if each in PUSHED else pytest.mark.full, id="-".join(each))
        for each in MIXTURES
    ]
    + [pytest.param(MIXTURES[-1], 200, id="in-pieces")],
)
async def test_a_killed_commit_is_there_as_a_whole_or_not_at_all(
    mixture: tuple[str, ...], times: int, tmp_path: Path
) -> None:
    disk, chance = Disk(), random.Random(1)
    states: list[Disk] = []

    def look() -> None:
        states.append(killed(disk))
        states.append(disk.cut_power(chance, 0.5))

    async with client_of(tmp_path, disk) as client:
        for name in ("topic", "both"):
            destination, headers = READS[name]
            await client.subscribe(destination, name, headers)
            await client.send("UNSUBSCRIBE", {"id": name})
        await client.publish("/queue/in", b"work", headers=SAVED, receipt=True)
        for destination in ("/topic/log", "/topic/log2"):
            await client.publish(destination, b"", headers=SAVED, receipt=True)
        await client.subscribe("/queue/in", headers={"ack": "client-individual"})
        work = await client.receive()
        disk.watcher = look
        await commit(client, mixture, work["ack"], times)
        look()
        disk.watcher = lambda: None
        await client.aclose()
    before = ["ack"]
    sent = {*mixture} - {"ack"} | ({"streamed"} if "both" in mixture else set())
    after = sorted([*sent] * times + ([] if "ack" in mixture else before))
    assert len(states) > 4
    seen = set[str]()
    for state in states:
        async with client_of(tmp_path, state) as client:
            found = await shown(client)
        assert found in (before, after), (mixture, found)
        seen.add("-".join(found))
    assert len(seen) == 2
