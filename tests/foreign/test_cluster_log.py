"""The replicated store on real JetStream: durable there, applied here, one owner at a time."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.support.nats import running_nats
from tests.support.stores import ignore
from trio_stomp.cluster import InDoubt, JetStreamLog, LocalState, ReplicatedStore
from trio_stomp.nats import JetStream, NatsOptions, open_client
from trio_stomp.store import MemoryStore, Put, StaleSequence, Store, StoreUnavailable, Turn

pytestmark = pytest.mark.foreign
PLACE = "queue:/queue/a"


@asynccontextmanager
async def log_on(folder: Path, **config: object) -> AsyncGenerator[JetStreamLog, None]:
    """Open a log on a stream of a new server. A test may take at most 20 s."""
    with trio.fail_after(20), running_nats(folder) as (server,):
        async with open_client(NatsOptions([server.address], answer_s=0.5)) as client:
            await client.wait_until_connected()
            jetstream = JetStream(client)
            stream = {"name": "LOG_00", "subjects": ["log.00"], "storage": "file", **config}
            await jetstream.create_stream(stream)
            log = JetStreamLog(jetstream, "LOG_00", b"log.00", max_bytes=10_000)
            yield log
            log.close()


def store_on(log: JetStreamLog) -> ReplicatedStore:
    local = MemoryStore()
    return ReplicatedStore(
        log, LocalState(lambda is_new: MemoryStore() if is_new else local, lambda: None, log)
    )


def bodies(store: Store) -> list[bytes]:
    found: list[bytes] = []
    page = store.read(PLACE, 4, 0, 1 << 30)
    while page.runs:
        found += [body for run in page.runs for body in run.bodies]
        page = store.read(PLACE, 4, page.next, 1 << 30)
    return found


def fill(store: Store, count: int, size: int) -> None:
    commit = store.recover(ignore).commit
    for number in range(commit + 1, commit + 1 + count):
        body = b"%d " % number + bytes(size)
        store.append([Turn([Put(PLACE, number, b"h:1\n", [body])])], number - 1)


async def test_owners_follow_one_another_and_nothing_is_missing(tmp_path: Path) -> None:
    async with log_on(tmp_path) as log:
        former, owner = store_on(log), store_on(log)
        await trio.to_thread.run_sync(fill, former, 1500, 10)
        await trio.to_thread.run_sync(fill, owner, 5, 50_000)  # each of several entries
        assert [int(body.split()[0]) for body in bodies(owner)] == list(range(1, 1506))
        with pytest.raises(StaleSequence):
            await trio.to_thread.run_sync(former.append, [Turn([])], 1500)
        newcomer = store_on(log)
        await trio.to_thread.run_sync(newcomer.recover, ignore)
        assert bodies(newcomer) == bodies(owner)


async def test_entry_refused_by_a_full_stream_is_not_stored(tmp_path: Path) -> None:
    async with log_on(tmp_path, max_bytes=50_000, discard="new") as log:
        store = store_on(log)
        with pytest.raises(StoreUnavailable, match="maximum bytes"):
            await trio.to_thread.run_sync(fill, store, 100, 5000)
        count = len(bodies(store))
        assert 0 < count < 10
        small = partial(store.append, [Turn([Put(PLACE, 99, b"", [b"small"])])], count)
        assert await trio.to_thread.run_sync(small) == count + 1  # there is room for this


async def test_a_log_without_a_server_is_in_doubt(tmp_path: Path) -> None:
    async with log_on(tmp_path) as log:
        await log.jetstream.delete_stream("LOG_00")
        with pytest.raises(StoreUnavailable, match="not found"):
            await trio.to_thread.run_sync(log.last)
        with pytest.raises(InDoubt):
            await trio.to_thread.run_sync(log.publish, b"x", 0)


async def test_reading_after_a_purge_of_the_whole_log_does_not_wait(tmp_path: Path) -> None:
    async with log_on(tmp_path) as log:
        store = store_on(log)
        await trio.to_thread.run_sync(fill, store, 5, 10)
        await log.jetstream.purge("LOG_00", 5)
        found = await trio.to_thread.run_sync(log.read, 2)
        assert [each.sequence for each in found] == [5, 6]
        await log.jetstream.purge("LOG_00", 7)
        with trio.fail_after(2):
            assert await trio.to_thread.run_sync(log.read, 2, abandon_on_cancel=True) == []
