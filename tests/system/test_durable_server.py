"""A whole broker with a store: its promises to clients while the disk works, hangs and fails."""

import errno
import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio
from _oracle.store_disk import Disk
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.support.durable_dial import QUIET, SAVED, DurableDial, dialled, gated
from tests.support.fakes import (
    MEMORY,
    TCP,
    WS_MEMORY,
    WS_TCP,
    Client,
    MemoryListener,
    Received,
    StreamPipe,
    bodies,
    frame_bytes,
    until,
)
from tests.support.gated_store import GatedStore, eventually
from trio_stomp import Settings, serve
from trio_stomp.cli import parse
from trio_stomp.store import (
    JournalOptions,
    JournalStore,
    Keep,
    MemoryStore,
    Put,
    StoreBroken,
    StoreLocked,
    StoreUnavailable,
    Turn,
)

FULL = StoreUnavailable("journal: no space left on device")
TRANSPORTS = (MEMORY, TCP, WS_MEMORY, WS_TCP)


# --- a broker with a store ------------------------------------------------------------------------


async def save(client: Client, queue: str, body: bytes, receipt: str = "") -> None:
    """Send a message that is to survive; do not wait for anything."""
    headers = {"destination": queue, **SAVED}
    if receipt:
        headers["receipt"] = receipt
    await client.send("SEND", headers, body)


@asynccontextmanager
async def listening(client: Client) -> AsyncIterator[list[Received]]:
    """All frames that come to a client from now on, whenever they do."""
    frames: list[Received] = []

    async def listen() -> None:
        while not client.is_ended:
            await client._read()
            while (frame := client.reader.next()) is not None:
                frames.append(frame)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        yield frames
        nursery.cancel_scope.cancel()


async def unacked(client: Client) -> Received:
    """Return a message that survives, as its one consumer has it and has not acknowledged it."""
    await client.publish("/queue/q", b"m", headers=SAVED, receipt=True)
    await client.subscribe("/queue/q", headers={"ack": "client"})
    return await client.receive()


def receipts(frames: list[Received]) -> list[str]:
    return [frame["receipt-id"] for frame in frames if frame.command == "RECEIPT"]


# --- a RECEIPT is a promise -----------------------------------------------------------------------


@pytest.mark.parametrize("transport", [MEMORY, WS_MEMORY])
async def test_neither_receipt_nor_message_comes_before_the_commit(transport: str) -> None:
    async with gated(transport) as (dial, store):
        producer, consumer = await dial.connect(), await dial.connect()
        await consumer.subscribe("/queue/q")
        store.hang()
        async with listening(producer) as reported, listening(consumer) as got:
            await save(producer, "/queue/q", b"m", "r")
            await eventually(lambda: store.asked)
            await wait_all_tasks_blocked()
            assert (reported, got, dial.stored("/queue/q")) == ([], [], [])
            store.go_on()
            await eventually(lambda: reported and got)
            assert receipts(reported) == ["r"]
            assert bodies(got) == [b"m"]
            assert b"\nstored:memory\n" in reported[0].raw


async def test_later_frames_do_not_overtake_pending_ones() -> None:
    async with gated() as (dial, store):
        producer, watcher = await dial.connect(), await dial.connect()
        await watcher.subscribe("/topic/t")
        store.hang()
        async with listening(producer) as reported, listening(watcher) as got:
            await save(producer, "/queue/q", b"saved", "r1")
            await producer.send("SEND", {"destination": "/topic/t", "receipt": "r2"}, b"live")
            await save(producer, "/queue/q", b"saved too", "r3")
            await wait_all_tasks_blocked()
            assert (reported, got) == ([], [])
            store.go_on()
            await eventually(lambda: len(reported) == 3)
            assert receipts(reported) == ["r1", "r2", "r3"]
            assert bodies(got) == [b"live"]


# --- a store that hangs ---------------------------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_other_clients_are_served_while_the_store_hangs(transport: str) -> None:
    async with gated(transport) as (dial, store):
        stuck, one, two = [await dial.connect() for _ in range(3)]
        await one.subscribe("/topic/t")
        await one.subscribe("/queue/live", id="2")
        store.hang()
        await save(stuck, "/queue/q", b"m", "r")
        await eventually(lambda: store.asked)
        for number in range(50):
            await two.publish("/topic/t", b"%d" % number, receipt=True)
            assert (await one.receive()).body == b"%d" % number
        await two.publish("/queue/live", b"work", receipt=True)
        assert (await one.receive()).body == b"work"
        newcomer = await dial.connect()
        await newcomer.fence()
        await newcomer.disconnect()
        store.go_on()
        assert (await stuck.receive())["receipt-id"] == "r"


@pytest.mark.parametrize("transport", [MEMORY, WS_MEMORY])
async def test_heart_beats_flow_both_ways_while_the_store_hangs(
    mock_clock: MockClock, transport: str
) -> None:
    async with gated(transport) as (dial, store):
        client = await dial.connect("1.2", {"heart-beat": "1000,1000"})
        store.hang()
        async with listening(client) as reported:
            await save(client, "/queue/q", b"m", "r")
            await client.send("SEND", {"destination": "/topic/t", "receipt": "held"})
            await eventually(lambda: store.asked)
            before = client.reader.heartbeats
            for _ in range(120):
                mock_clock.jump(0.5)
                await client.send_bytes(b"\n")
                await wait_all_tasks_blocked()
            assert reported == []
            assert client.reader.heartbeats - before >= 55
            assert not client.is_ended
            store.go_on()
            await eventually(lambda: len(reported) == 2)
            assert receipts(reported) == ["r", "held"]


async def test_a_silent_client_is_found_out_though_the_store_hangs(mock_clock: MockClock) -> None:
    async with gated() as (dial, store):
        client = await dial.connect("1.2", {"heart-beat": "1000,0"})
        store.hang()
        await save(client, "/queue/q", b"m", "r")
        await eventually(lambda: store.asked)
        async with listening(client):
            for _ in range(60):
                mock_clock.jump(0.5)
                await wait_all_tasks_blocked()
            assert client.is_ended
        assert dial.server.connections == {}


async def test_memory_is_bounded_while_the_store_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    bound, size, count = 256 * 1024, 1000, 5000
    monkeypatch.setattr("trio_stomp.broker.durability._log.MAX_PENDING_BYTES", bound)
    async with gated() as (dial, store):
        producer, other = await dial.connect(), await dial.connect()
        await other.subscribe("/topic/t")
        connection = next(iter(dial.server.connections))
        store.hang()
        data = b"".join(
            frame_bytes("SEND", {"destination": "/queue/q", **SAVED}, b"%05d" % n + b"x" * size)
            for n in range(count)
        )
        await producer.send_bytes(data)
        await wait_all_tasks_blocked()
        log = dial.server.broker.log
        assert log is not None
        assert log.is_full
        # The excess over the bound is at most one read and another that had already begun.
        assert bound < log.pending_bytes < bound + 3 * 65536
        assert connection.bytes_in < log.pending_bytes + 3 * 65536
        assert dial.server.inbox.bytes == 0
        await other.publish("/topic/t", b"live", receipt=True)
        store.go_on()
        await producer.send("SEND", {"destination": "/queue/q", "receipt": "last", **SAVED}, b"")
        assert (await producer.receive())["receipt-id"] == "last"
        assert len(dial.stored("/queue/q")) == count + 1
        assert log.pending_bytes == 0


# --- who leaves with something under way ----------------------------------------------------------


@pytest.mark.parametrize("transport", [MEMORY, WS_MEMORY])
async def test_disconnecting_client_gets_its_receipts_first(transport: str) -> None:
    async with gated(transport) as (dial, store):
        client = await dial.connect()
        store.hang()
        async with listening(client) as reported:
            await save(client, "/queue/q", b"1", "r1")
            await save(client, "/queue/q", b"2", "r2")
            await client.send("DISCONNECT", {"receipt": "bye"})
            await eventually(lambda: store.asked)
            await wait_all_tasks_blocked()
            assert reported == []
            store.go_on()
            await eventually(lambda: client.is_ended)
            assert [frame.command for frame in reported] == ["RECEIPT"] * 3
            assert receipts(reported) == ["r1", "r2", "bye"]
        assert dial.stored("/queue/q") == [b"1", b"2"]


@pytest.mark.parametrize("transport", [MEMORY, TCP])
@pytest.mark.parametrize("hangs", [False, True])
async def test_client_that_half_closes_gets_all_receipts(transport: str, hangs: bool) -> None:
    """``printf … | nc``: everything in one write, then the end."""
    async with gated(transport) as (dial, store):
        client = await dial.open()
        if hangs:
            store.hang()
        data = frame_bytes("CONNECT", {"accept-version": "1.2", "host": "x"})
        for number in range(100):
            headers = {"destination": "/queue/q", "receipt": f"{number}", **SAVED}
            data += frame_bytes("SEND", headers, b"%d" % number)
        data += frame_bytes("SEND", {"destination": "/topic/t", "receipt": "live"}, b"x")
        assert isinstance(client.pipe, StreamPipe)
        stream = client.pipe.stream
        assert isinstance(stream, trio.abc.HalfCloseableStream)
        await stream.send_all(data)
        await stream.send_eof()
        if hangs:
            await eventually(lambda: store.asked)
            await wait_all_tasks_blocked()
            store.go_on()
        connected, *result = await client.read_to_end()
        assert connected.command == "CONNECTED"
        assert receipts(result) == [*map(str, range(100)), "live"]
        assert len(dial.stored("/queue/q")) == 100


async def test_messages_of_a_lost_client_are_stored() -> None:
    async with gated() as (dial, store):
        client, consumer = await dial.connect(), await dial.connect()
        store.hang()
        await save(client, "/queue/q", b"1")
        await save(client, "/queue/q", b"2")
        await eventually(lambda: store.asked)
        client.abort()
        await wait_all_tasks_blocked()
        store.go_on()
        await consumer.subscribe("/queue/q")
        assert [(await consumer.receive()).body for _ in range(2)] == [b"1", b"2"]
        await until(lambda: len(dial.server.connections) == 1)


# --- the end in the middle of a commit ------------------------------------------------------------


@pytest.mark.parametrize("transport", [MEMORY, TCP, WS_MEMORY])
async def test_an_ordered_stop_waits_for_the_commit(transport: str) -> None:
    async with gated(transport) as (dial, store):
        client = await dial.connect()
        store.hang()
        async with listening(client) as reported:
            await save(client, "/queue/q", b"1", "r1")
            await save(client, "/queue/q", b"2", "r2")
            await eventually(lambda: store.asked)
            await wait_all_tasks_blocked(0.01)
            dial.handle.stop()
            await wait_all_tasks_blocked(0.01)
            assert reported == []
            assert store.closed == 0
            store.go_on()
            await eventually(lambda: client.is_ended)
            assert receipts(reported) == ["r1", "r2"]
            assert [frame.command for frame in reported] == ["RECEIPT"] * 2
        await dial.ended.wait()
        assert store.closed == 1
        assert dial.stored("/queue/q") == [b"1", b"2"]


async def test_a_hard_end_waits_for_the_commit_too() -> None:
    store = GatedStore()
    dial = DurableDial(MEMORY, dict(QUIET), store=store)
    async with trio.open_nursery() as nursery:
        dial._nursery = nursery
        client = await dial.connect()
        store.hang()
        await save(client, "/queue/q", b"1", "r1")
        await eventually(lambda: store.asked)
        await save(client, "/queue/q", b"2", "r2")
        await wait_all_tasks_blocked()
        nursery.start_soon(go_on_when_all_wait, store)
        nursery.cancel_scope.cancel()
    assert store.closed == 1
    assert dial.stored("/queue/q") == [b"1", b"2"]


async def go_on_when_all_wait(store: GatedStore) -> None:
    with trio.CancelScope(shield=True):
        await wait_all_tasks_blocked()
    assert store.closed == 0
    store.go_on()


async def test_records_without_a_waiter_are_stored_at_the_end() -> None:
    """The last ACK may still wait for company when the broker is stopped."""
    async with dialled() as dial:
        client = await dial.connect()
        message = await unacked(client)
        await client.send("ACK", {"id": message["ack"]})
        await client.fence()
        await dial.stop()
        assert dial.stored("/queue/q") == []


@pytest.mark.parametrize(("checkpoint_s", "wait_s"), [(0.0, 0.005), (0.5, 0.5)])
async def test_an_ack_without_receipt_is_stored_by_the_checkpoint(
    mock_clock: MockClock, checkpoint_s: float, wait_s: float
) -> None:
    async with gated(checkpoint_s=checkpoint_s) as (dial, store):
        client = await dial.connect()
        message = await unacked(client)
        mock_clock.jump(2.0)  # so that nothing else is delayed any more
        await eventually(lambda: len(store.asked) == 2)
        before = len(store.asked)
        await client.send("ACK", {"id": message["ack"]})
        await wait_all_tasks_blocked()
        mock_clock.jump(0.9 * wait_s)
        await wait_all_tasks_blocked()
        committer = dial.server.committer
        assert committer is not None
        assert not committer._busy
        assert len(store.asked) == before
        assert dial.stored("/queue/q") == [b"m"]
        mock_clock.jump(0.2 * wait_s)
        await eventually(lambda: not dial.stored("/queue/q"))


@pytest.mark.bugs
@pytest.mark.parametrize("how", ["stop", "cancel"])
@pytest.mark.parametrize(
    "fault", [FULL, StoreBroken("nobody knows"), ZeroDivisionError("bug")], ids=type
)
async def test_the_broker_stops_though_its_store_fails_for_ever(how: str, fault: Exception) -> None:
    store = GatedStore()
    dial = DurableDial(MEMORY, dict(QUIET), store=store)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            dial._nursery = nursery
            client = await dial.connect()
            message = await unacked(client)
            store.faults += [fault] * 100
            store.hang()
            await client.send("ACK", {"id": message["ack"]})
            await wait_all_tasks_blocked()
            if how == "cancel":
                nursery.cancel_scope.cancel()
            dial.handle.stop()
            nursery.start_soon(go_on_when_all_wait, store)
    assert store.closed == 1


class UnclosableStore(GatedStore):
    def close(self) -> None:
        super().close()
        raise StoreUnavailable("journal: input/output error")


async def test_a_store_that_cannot_be_closed_is_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with dialled(UnclosableStore()) as dial:
        client = await dial.connect()
        await client.publish("/queue/q", b"m", headers=SAVED, receipt=True)
        await dial.stop()
    assert "the store could not be closed: journal: input/output error" in caplog.text


# --- disk trouble ---------------------------------------------------------------------------------


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that failed is tried again at once."""
    monkeypatch.setattr("trio_stomp.server._committer.RETRY_S", 0.0)


async def test_a_store_failure_is_an_error_for_the_sender_and_fails_readyz(
    mock_clock: MockClock,
) -> None:
    async with gated() as (dial, store):
        unlucky, other, consumer = [await dial.connect() for _ in range(3)]
        await consumer.subscribe("/queue/q")
        await other.subscribe("/topic/t")
        assert await dial.ask_http("/readyz") == 200
        store.faults.append(FULL)
        async with listening(unlucky) as reported, listening(consumer) as got:
            await save(unlucky, "/queue/q", b"lost", "r")
            await eventually(lambda: reported)
            assert (reported[0].command, reported[0]["code"]) == ("ERROR", "storage")
            assert reported[0]["receipt-id"] == "r"
            assert await dial.ask_http("/readyz") == 503
            assert await dial.ask_http("/livez") == 200
            await other.publish("/topic/t", b"live", receipt=False)
            assert (await other.receive()).body == b"live"
            await wait_all_tasks_blocked()
            mock_clock.jump(1.0)
            await eventually(lambda: not dial.server.why_unready())
            assert await dial.ask_http("/readyz") == 200
            await save(other, "/queue/q", b"kept", "r")
            assert (await other.receive())["receipt-id"] == "r"
            await eventually(lambda: got)
            assert bodies(got) == [b"kept"]
            mock_clock.jump(0.01)
            await eventually(lambda: not dial.stored("/queue/q"))


async def test_an_ack_is_stored_after_the_disk_recovers(soon: None) -> None:
    async with gated() as (dial, store):
        client = await dial.connect()
        await client.publish("/queue/q", b"1", b"2", headers=SAVED, receipt=True)
        await client.subscribe("/queue/q", headers={"ack": "client-individual"})
        first = await client.receive()
        store.faults += [FULL] * 3
        await client.send("ACK", {"id": first["ack"], "receipt": "acked"})
        assert (await client.receive()).body == b"2"
        assert (await client.receive())["receipt-id"] == "acked"
        assert dial.stored("/queue/q") == [b"2"]


async def test_a_full_disk_below_a_journal(tmp_path: Path, soon: None) -> None:
    disk = Disk()
    async with dialled(JournalStore(str(tmp_path), disk)) as dial:
        one, two, three = [await dial.connect() for _ in range(3)]
        await one.publish("/queue/q", b"1", headers=SAVED, receipt=True)
        disk.fail("write", errno.ENOSPC)
        await save(one, "/queue/q", b"2", "r")
        await one.expect_error("storage")
        await eventually(lambda: not dial.server.why_unready())
        await two.publish("/queue/q", b"3", headers=SAVED, receipt=True)
        disk.fail("sync", errno.EIO)
        await save(two, "/queue/q", b"4", "r")
        await two.expect_error("storage")
        await eventually(lambda: not dial.server.why_unready())
        await three.publish("/queue/q", b"5", headers=SAVED, receipt=True)
        assert dial.stored("/queue/q") == [b"1", b"3", b"5"]
        await three.subscribe("/queue/q")
        assert bodies(await three.receive_many(3)) == [b"1", b"3", b"5"]
    assert disk.open_files == []


# --- the next start -------------------------------------------------------------------------------


@asynccontextmanager
async def client_of(**options: object) -> AsyncIterator[Client]:
    """A client of a broker that runs by ``serve`` until the block ends."""
    listener = MemoryListener()
    settings = Settings.of(websocket_ping_s=0.0, **options)
    async with trio.open_nursery() as nursery:
        handle = await nursery.start(lambda **kw: serve(settings, listeners=[listener], **kw))
        client = Client(StreamPipe(listener.connect()))
        await client.connect("1.2", {"client-id": "c"})
        yield client
        await client.aclose()
        handle.stop()


SUBSCRIPTION = {"durable-subscription-name": "d", "ack": "client"}


async def test_a_restart_recovers_queues_schedules_last_values_and_durable_subscriptions(
    tmp_path: Path,
) -> None:
    async with client_of(data_dir=str(tmp_path)) as client:
        await client.publish("/queue/q", b"1", b"2", b"3", headers=SAVED, receipt=True)
        await client.subscribe("/topic/news", "d", SUBSCRIPTION)
        await client.send("UNSUBSCRIBE", {"id": "d"})
        await client.publish("/topic/news", b"news", headers=SAVED, receipt=True)
        later = {**SAVED, "AMQ_SCHEDULED_DELAY": "1"}
        await client.publish("/queue/later", b"later", headers=later, receipt=True)
        last = {**SAVED, "retain": "set"}
        await client.publish("/topic/price", b"42", headers=last, receipt=True)
        await client.subscribe("/queue/q", headers={"ack": "client-individual"})
        first = await client.receive()
        await client.send("ACK", {"id": first["ack"]})
    async with client_of(data_dir=str(tmp_path)) as client:
        await client.subscribe("/topic/price", "p")
        assert (await client.receive()).body == b"42"
        await client.subscribe("/queue/later", "l")
        assert (await client.receive()).body == b"later"
        await client.subscribe("/topic/news", "d", SUBSCRIPTION)
        assert (await client.receive()).body == b"news"
        await client.subscribe("/queue/q")
        assert bodies(await client.receive_many(2)) == [b"2", b"3"]


async def test_the_stream_of_diagnostics_continues_its_offsets_over_restarts(
    tmp_path: Path,
) -> None:
    found: list[tuple[str, int]] = []
    boots = set()
    stamps: dict[int, int] = {}
    for _ in range(2):
        async with client_of(data_dir=str(tmp_path), diag_interval_s=0.05) as client:
            start = {"x-stream-offset": "first"}
            early = await client.subscribe("/stream/DIAG", headers=start)
            seen = {}
            messages = [*early, *await client.receive_many(20)]
            for message in messages:
                body = json.loads(message.body)
                boots.add(body["boot"])
                offset, stamp = int(message["x-stream-offset"]), int(message["x-stream-timestamp"])
                seen[offset] = message["x-stream-epoch"]
                assert stamps.setdefault(offset, stamp) == stamp
                assert (body["offset"], body["epoch"]) == (offset, message["x-stream-epoch"])
            assert list(seen) == list(range(len(messages)))
            found.append((message["x-stream-epoch"], max(seen)))
    assert found[0][0] == found[1][0]
    assert [stamps[offset] for offset in sorted(stamps)] == sorted(stamps.values())
    async with client_of(data_dir=str(tmp_path), diag_interval_s=0.05) as client:
        await client.subscribe("/stream/DIAG", headers={"x-stream-offset": "first"})
        offsets = [int((await client.receive())["x-stream-offset"]) for _ in range(100)]
        assert offsets == list(range(100))


async def test_the_stream_of_diagnostics_is_on_unless_it_is_switched_off(tmp_path: Path) -> None:
    assert Settings().diag.diag_stream
    assert not parse(["--no-diag-stream"]).settings.diag.diag_stream
    async with client_of(data_dir=str(tmp_path), diag_stream=False) as client:
        await client.send("SUBSCRIBE", {"destination": "/stream/DIAG", "id": "1"})
        await client.expect_error("unknown-stream")


@pytest.mark.parametrize("steps", range(12))
async def test_cancelled_while_it_starts_it_lets_go_of_everything(
    tmp_path: Path, steps: int
) -> None:
    """A socket or a file left open would be a warning, and warnings are errors here."""
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, Settings.of(port=0, data_dir=str(tmp_path)))
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            scope.cancel()
    with in_use(tmp_path):
        pass


# --- a store that cannot be had -------------------------------------------------------------------


@contextmanager
def in_use(path: Path) -> Iterator[None]:
    """Hold a directory as a broker does."""
    store = JournalStore(str(path))
    store.recover(lambda done, total: None)
    yield
    store.close()


async def test_a_directory_that_another_broker_uses_is_the_callers_to_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listens(*arguments: object) -> None:
        raise AssertionError("the port was opened")

    monkeypatch.setattr("trio_stomp.startup._serve.open_entrances", listens)
    with in_use(tmp_path), pytest.raises(StoreLocked, match=f"used by process {os.getpid()}"):
        await serve(Settings.of(port=0, data_dir=str(tmp_path)))


async def test_listeners_are_closed_if_the_store_cannot_be_had(tmp_path: Path) -> None:
    listener = MemoryListener()
    with in_use(tmp_path), pytest.raises(StoreLocked):
        await serve(Settings.of(data_dir=str(tmp_path)), listeners=[listener])
    with pytest.raises(trio.BrokenResourceError):
        listener.connect()


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trio_stomp", "--port", "0", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_second_broker_says_one_line_and_ends(tmp_path: Path) -> None:
    with in_use(tmp_path):
        result = run_cli("--data-dir", str(tmp_path))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert f"{tmp_path} is used by process {os.getpid()}" in line


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run_cli("--data-dir", str(tmp_path / "file" / "data"))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert str(tmp_path / "file" / "data") in line


@pytest.mark.parametrize(("progress_s", "lines"), [(0.0, 2), (3600.0, 0)])
async def test_a_start_that_takes_long_tells_how_far_it_is(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    progress_s: float,
    lines: int,
) -> None:
    monkeypatch.setattr("trio_stomp.startup._starting.PROGRESS_S", progress_s)
    caplog.set_level("INFO", "trio_stomp")
    store = JournalStore(str(tmp_path), options=JournalOptions(segment_bytes=1 << 20))
    commit = store.recover(lambda done, total: None).commit
    for id in (1, 2):
        put = Put("queue:/queue/q", id, b"destination:/queue/q\n", [bytes(2 << 20)])
        commit = store.append([Turn([put])], commit)
    store.close()
    settings = Settings.of(**QUIET, data_dir=str(tmp_path))
    async with trio.open_nursery() as nursery:
        handle = await nursery.start(
            lambda **kw: serve(settings, listeners=[MemoryListener()], **kw)
        )
        handle.stop()
    text = [line for line in caplog.messages if line.startswith("reading the journal: ")]
    assert text == [f"reading the journal: {done} of 4 MB" for done in (2, 4)][:lines]


async def test_without_a_store_the_first_message_that_should_survive_is_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = MemoryListener()
    async with trio.open_nursery() as nursery:
        handle = await nursery.start(
            lambda **kw: serve(Settings.of(**QUIET), listeners=[listener], **kw)
        )
        for _ in range(2):
            client = Client(StreamPipe(listener.connect()))
            await client.connect()
            await client.publish("/queue/q", b"live", receipt=True)
            for _ in range(2):
                await save(client, "/queue/q", b"m", "r")
                assert b"stored:memory" in (await client.receive()).raw
            await client.aclose()
        handle.stop()
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "--data-dir" in warnings[0].getMessage()


async def test_a_store_in_memory_serves_an_embedding_program() -> None:
    store = MemoryStore()
    async with dialled(store) as dial:
        client = await dial.connect()
        await client.publish("/queue/q", b"m", headers=SAVED, receipt=True)
        assert store.append([Turn([Keep("x", ".")])], 1) == 2  # nobody else has
