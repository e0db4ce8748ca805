"""The broker as a whole: starting, stopping in order, being cancelled anywhere."""

import gc
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
import trio
from trio._core import _run
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.support.fakes import (
    MEMORY,
    TCP,
    WS_MEMORY,
    Client,
    Dial,
    MemoryListener,
    Received,
    StreamPipe,
    WebSocketPipe,
    abort,
    bodies,
    frame_bytes,
    open_dial,
    until,
)
from tests.support.hostile import QUIET, connect_narrow
from tests.support.hostile import dial as dial
from tests.support.startup import make_server
from trio_stomp import CloseReason, ServerHandle, Settings, serve
from trio_stomp.broker import Broker, MemoryBudget, Setup, assemble
from trio_stomp.broker import Client as BrokerClient
from trio_stomp.broker.delivery import Turns
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Codecs, Event
from trio_stomp.security import Authenticator
from trio_stomp.server import Entrance, Server
from trio_stomp.startup import Security
from trio_stomp.web import Site

# --- in somebody's nursery ------------------------------------------------------------------------


async def test_it_serves_in_a_nursery_until_it_is_stopped() -> None:
    async with trio.open_nursery() as nursery:
        handle: ServerHandle = await nursery.start(serve, Settings.of(port=0))
        host, _, port = handle.addresses[0].rpartition(":")
        client = Client(StreamPipe(await trio.open_tcp_stream(host, int(port))))
        assert (await client.connect())["version"] == "1.2"
        handle.stop()
        handle.stop()
        assert await client.read_to_end() == []
        await client.aclose()
    with pytest.raises(OSError):
        await trio.open_tcp_stream(host, int(port))


async def test_listeners_of_an_embedding_program() -> None:
    listeners = [MemoryListener(), MemoryListener()]
    async with trio.open_nursery() as nursery:
        handle: ServerHandle = await nursery.start(lambda **kw: serve(listeners=listeners, **kw))
        assert handle.addresses == ("in-memory", "in-memory")
        one = Client(StreamPipe(listeners[0].connect()))
        two = Client(StreamPipe(listeners[1].connect()))
        await one.connect()
        await two.connect()
        await one.subscribe("/t")
        await two.publish("/t", b"across")
        assert (await one.receive()).body == b"across"
        await one.aclose()
        await two.aclose()
        handle.stop()
    with pytest.raises(trio.BrokenResourceError):
        listeners[0].connect()


@pytest.mark.parametrize("steps", range(6))
async def test_cancelled_while_it_starts_it_closes_its_sockets(steps: int) -> None:
    """An unclosed socket would be a warning, and warnings are errors here."""
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, Settings.of(port=0))
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            scope.cancel()
    gc.collect()


# --- the ordered shutdown -------------------------------------------------------------------------


def without_farewell(frames: list[Received], farewell: str) -> list[Received]:
    """Return the frames before the farewell, which must be as the option says."""
    if farewell == "close":
        return frames
    assert frames[-1]["code"] == "shutting-down"
    assert frames[-1].command == "ERROR"
    return frames[:-1]


@pytest.mark.parametrize("farewell", ["close", "error"])
@pytest.mark.parametrize("transport", [MEMORY, TCP, WS_MEMORY])
async def test_all_that_was_received_before_a_stop_is_processed(
    transport: str, farewell: str
) -> None:
    async with open_dial(transport, **QUIET, farewell=farewell) as dial:
        watcher, publisher = await dial.connect(), await dial.connect()
        await watcher.subscribe("/t")
        data = b"".join(frame_bytes("SEND", {"destination": "/t"}, b"%d" % n) for n in range(500))
        connection = list(dial.server.connections)[1]
        before = connection.frames_in
        await publisher.send_bytes(data)
        await until(lambda: connection.frames_in > before)
        received = connection.frames_in - before
        dial.handle.stop()
        frames = without_farewell(await watcher.read_to_end(), farewell)
        assert bodies(frames)[:received] == [b"%d" % n for n in range(received)]


@pytest.mark.parametrize("farewell", ["close", "error"])
async def test_a_reader_that_waits_for_room_loses_nothing_to_a_stop(
    autojump_clock, farewell: str
) -> None:
    """The inbox is full, but the frames held by these readers have been received."""
    async with open_dial(**QUIET, farewell=farewell, max_input_queue_size=4) as dial:
        watcher = await dial.connect()
        await watcher.subscribe("/t")
        publishers = [await dial.connect() for _ in range(10)]
        connections = list(dial.server.connections)
        async with trio.open_nursery() as nursery:
            for number, publisher in enumerate(publishers):
                body = b"%d" % number
                nursery.start_soon(publisher.publish, "/t", body, body, body)
            # Immediately: all of them have been read from, and most wait for the inbox.
            await until(lambda: sum(each.frames_in for each in connections) == 1 + 30 + 11)
            dial.handle.stop()
        frames = without_farewell(await watcher.read_to_end(), farewell)
        assert sorted(bodies(frames)) == sorted([b"%d" % n for n in range(10)] * 3)


async def test_idle_clients_do_not_hold_up_a_stop(autojump_clock) -> None:
    async with open_dial(**QUIET, shutdown_grace_s=30.0, linger_s=20.0) as dial:
        polite = [await dial.connect() for _ in range(3)]
        fresh = await dial.open()
        stream = await dial.stream()
        await stream.send_all(b"GET / HT")
        before = trio.current_time()

        async def leave(client: Client) -> None:
            assert await client.read_to_end() == []
            await client.aclose()

        async with trio.open_nursery() as nursery:
            for client in polite:
                nursery.start_soon(leave, client)
            dial.handle.stop()
            await fresh.expect_closed()
            await fresh.aclose()
            assert await stream.receive_some() == b""
            await stream.aclose()
            await dial.ended.wait()
        assert trio.current_time() - before < 1


@pytest.mark.parametrize("websocket", [False, True])
async def test_a_client_that_does_not_leave_is_waited_for_in_bounds(
    autojump_clock, websocket: bool
) -> None:
    async with open_dial(**QUIET, shutdown_grace_s=4.0, linger_s=60.0) as dial:
        client = await connect_narrow(dial, websocket=websocket, answers=False)
        await client.subscribe("/t")
        publisher = await dial.connect()
        await publisher.publish("/t", *[b"x" * 100_000] * 20, receipt=True)
        before = trio.current_time()
        dial.handle.stop()
        await publisher.read_to_end()
        await publisher.aclose()
        await dial.ended.wait()
        assert trio.current_time() - before == pytest.approx(4.0, abs=0.1)
        dial.assert_nothing_left()


async def test_no_grace_is_a_hard_stop(autojump_clock) -> None:
    async with open_dial(**QUIET, shutdown_grace_s=0.0) as dial:
        client = await dial.connect()
        dial.handle.stop()
        with trio.fail_after(1):
            await dial.ended.wait()
        await client.read_to_end()


@pytest.mark.parametrize("farewell", ["close", "error"])
async def test_messages_on_their_way_are_written_before_the_farewell(
    autojump_clock, farewell: str
) -> None:
    async with open_dial(**QUIET, farewell=farewell) as dial:
        slow = await connect_narrow(dial)
        await slow.subscribe("/t")
        publisher = await dial.connect()
        expected = [b"%d" % n + b"." * 50_000 for n in range(20)]
        await publisher.publish("/t", *expected, receipt=True)
        dial.handle.stop()
        await trio.sleep(0.5)
        frames = without_farewell(await slow.read_to_end(), farewell)
        assert bodies(frames) == expected


async def test_connections_that_come_with_the_stop_are_turned_away(autojump_clock) -> None:
    """They are accepted, but not yet served when the broker stops. It must not wait for them."""
    for steps in range(12):
        async with open_dial(**QUIET, shutdown_grace_s=50.0) as dial:
            await dial.start()
            await wait_all_tasks_blocked()
            streams = [dial.listener.connect() for _ in range(5)]
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            dial.handle.stop()
            before = trio.current_time()
            await dial.ended.wait()
            assert trio.current_time() - before < 3  # they are lingered for, but no longer
            for stream in streams:
                abort(stream)


async def test_statistics_and_sweeps_end_with_the_broker(autojump_clock) -> None:
    async with open_dial(diag_interval_s=0.5, ttl_ms=1000) as dial:
        client = await dial.connect()
        await client.subscribe("DIAG*")
        await client.publish("/nobody", b"x")
        await trio.sleep(10)
        assert dial.server.broker.stale.size == 0
        dial.handle.stop()
        with trio.fail_after(5):
            await client.read_to_end()


# --- being cancelled, or stopped, anywhere --------------------------------------------------------


class AtStep(trio.abc.Instrument):
    """Calls ``act`` at one step of the scheduler, counted from when it is armed."""

    def __init__(self, step: int, act: Callable[[], None]) -> None:
        self.step, self.act, self.steps = step, act, 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1
        if self.steps == self.step:
            self.act()


async def busy_client(listener: MemoryListener, number: int) -> None:
    """Perform all operations of a client, as long as the broker lets it."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError, AssertionError):
        websocket = number % 2 == 1
        stream = listener.connect()
        try:
            client = Client(StreamPipe(stream))
            if websocket:
                pipe = WebSocketPipe(stream)
                await pipe.shake_hands()
                client = Client(pipe)
            await client.connect("1.2", {"heart-beat": "1000,1000"})
            await client.subscribe("/t/*")
            await client.publish(f"/t/{number}", b"1", b"x" * 70_000, receipt=True)
            await client.publish("#work", b"parked", receipt=True)
            await client.subscribe("#work", id="w")
            await client.fence()
            if number == 2:
                await client.send("BOGUS")
            elif number == 3:
                await client.disconnect()
            else:
                await trio.sleep(3)
        finally:
            await trio.aclose_forcefully(stream)


async def silent_client(listener: MemoryListener) -> None:
    """Subscribes and never reads."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        stream = listener.connect_narrow()
        try:
            hello = frame_bytes("CONNECT", {"accept-version": "1.2", "host": "x"})
            subscribe = frame_bytes("SUBSCRIBE", {"destination": "/t/*", "id": "1"})
            await stream.send_all(hello + subscribe)
            await trio.sleep(3)
        finally:
            await trio.aclose_forcefully(stream)


def run_until(step: int, how: str) -> int:
    """Run a busy broker, end it at ``step``; how many steps there were before it was idle."""

    async def main() -> int:
        await trio.sleep(1)
        listener = MemoryListener()
        handle = ServerHandle(("in-memory",))
        options = {"ttl_ms": 60_000, "max_outbox_bytes": 150_000, "linger_s": 0.2}
        settings = Settings.of(**options, diag_interval_s=0.1)
        server: Server = make_server(settings, Security(settings), handle)
        base = trio.lowlevel.current_statistics().tasks_living
        ended = False

        async def run() -> None:
            nonlocal ended
            await server.run([Entrance(listener)], handle, lambda: None)
            ended = True

        scope = trio.CancelScope()

        async def serve_in_scope() -> None:
            with scope:
                await run()

        def stop_then_cancel() -> None:
            handle.stop()
            scope.deadline = trio.current_time() + 0.05

        acts: dict[str, Callable[[], None]] = {
            "cancel": scope.cancel,
            "stop": handle.stop,
            "both": stop_then_cancel,
        }
        instrument = AtStep(step, acts[how])
        trio.lowlevel.add_instrument(instrument)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_in_scope)
            nursery.start_soon(silent_client, listener)
            for number in range(4):
                nursery.start_soon(busy_client, listener, number)
            await trio.sleep(4)
            steps = instrument.steps
            instrument.act()
            await until(lambda: ended or scope.cancelled_caught, 0.05)
        trio.lowlevel.remove_instrument(instrument)
        assert server.connections == {}
        assert server.memory.used_bytes == server.broker.stale.bytes
        assert (server.inbox.frames, server.inbox.bytes) == (0, 0)
        assert server.admission.admitted == 0
        assert len(server.broker.clients) == len(server.broker.subscriptions) == 0
        assert trio.lowlevel.current_statistics().tasks_living == base
        return steps

    _run._r.seed(step)  # Trio's scheduler throws dice: the same ones in every run, please
    return trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("how", ["cancel", "stop", "both"])
def test_it_can_be_ended_at_any_step(how: str) -> None:
    idle = run_until(1 << 60, how)
    assert idle > 300
    step = 1
    while step < idle:
        run_until(step, how)
        step += 1 + step // 40  # each step in the beginning, where most begins


# --- bugs of the core -----------------------------------------------------------------------------


class FaultyCore:
    """A core with bugs, where messages are sent to them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self.broker, name)

    def apply(
        self, client: BrokerClient, events: Sequence[Event], received_at: float, now: float
    ) -> None:
        for event in events:
            if isinstance(event, FrameRun) and event.head.destination == "/bug":
                raise ZeroDivisionError("secret detail")
        self.broker.apply(client, events, received_at, now)

    def forget(
        self,
        client: BrokerClient,
        reason: CloseReason,
        now: float,
        forgotten: Callable[[], None] = lambda: None,
    ) -> None:
        self.broker.forget(client, reason, now, lambda: None)
        if client.user == "bug":
            raise ZeroDivisionError("secret detail")
        forgotten()


class FaultyDiagnostics:
    """Diagnostics that fail in every turn."""

    interval_s = 1.0

    def begin(self) -> None:
        pass

    def tick(self, now: float) -> None:
        raise ZeroDivisionError("secret detail")

    def end_turn(self, now: float) -> None:
        raise ZeroDivisionError("secret detail")


def assemble_faulty(settings: Settings, security: Security, handle: ServerHandle) -> Server:
    memory = MemoryBudget(settings.server.max_memory_bytes)
    codecs = Codecs(settings.frames, settings.protocol)
    authenticator = Authenticator(settings.security)
    server = Server(settings.server, codecs, memory, 1, Site("", "", str), authenticator)
    broker = assemble(
        Setup(
            policies=settings.broker,
            memory=memory,
            server=server,
            turns=Turns(trio.current_time),
            boot="b",
        )
    )
    server.assemble(broker, FaultyDiagnostics(), core=FaultyCore(broker))
    return server


@pytest.mark.bugs
async def test_a_bug_in_the_core_costs_the_connection_that_met_it(
    autojump_clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_dial() as dial:
        dial.assemble = assemble_faulty
        other = await dial.connect()
        await other.subscribe("/t")
        unlucky = await dial.connect()
        await unlucky.send("SEND", {"destination": "/bug", "receipt": "r"}, b"x")
        error = await unlucky.expect_error("internal-error")
        assert b"secret" not in error.raw
        assert "ZeroDivisionError" in caplog.text
        leaving = await dial.connect("1.2", {"login": "bug"})
        await leaving.disconnect()
        await trio.sleep(10)
        await other.publish("/t", b"still here")
        assert (await other.receive()).body == b"still here"
        assert len(dial.server.connections) == 1


async def test_when_the_dispatcher_dies_everybody_is_let_go_at_once(autojump_clock) -> None:
    """Nothing may wait for it any more, and the caller of the broker sees why it ended."""

    def die(now: float) -> None:
        raise KeyboardInterrupt

    listener = MemoryListener()
    handle = ServerHandle(("in-memory",))
    settings = Settings.of(**QUIET, max_input_queue_size=4)
    server = make_server(settings, Security(settings), handle)
    before = 0.0

    async def flood_and_kill(nursery: trio.Nursery) -> None:
        nonlocal before
        clients = [Client(StreamPipe(listener.connect())) for _ in range(10)]
        for client in clients:
            await client.connect()
        sends = frame_bytes("SEND", {"destination": "/t"}, b"x") * 3
        for client in clients:
            nursery.start_soon(client.send_bytes, sends)
        before = trio.current_time()
        server.dispatcher.call_soon(die)
        await trio.sleep_forever()

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.run, [Entrance(listener)], handle, lambda: None)
            await flood_and_kill(nursery)

    with pytest.raises(BaseExceptionGroup) as caught:
        await run()
    assert caught.group_contains(KeyboardInterrupt, match=None)
    assert trio.current_time() - before < 1
    assert server.connections == {}


async def test_heart_beats_of_an_idle_broker_pile_nothing_up(dial: Dial, autojump_clock) -> None:
    """Nothing wakes the dispatcher, whose turns clean up after the outboxes."""
    await dial.connect("1.2", {"heart-beat": "0,1000"})
    before = dial.server.dispatcher.turns
    await trio.sleep(3600)
    assert dial.server.dispatcher.turns == before
    assert len(dial.server.outboxes.dirty) == 0
    assert len(dial.server.watchdog._wheel) < 100


# --- figures --------------------------------------------------------------------------------------


async def test_the_census(dial: Dial, autojump_clock) -> None:
    await dial.start()
    await dial.stream()  # has sent nothing
    await dial.connect()
    websocket = WebSocketPipe(await dial.stream())
    await websocket.shake_hands()
    whole = websocket.wrap(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
    await websocket.stream.send_all(whole[:20])
    await wait_all_tasks_blocked()
    census = dial.server.census()
    assert (census.clients, census.websockets) == (2, 1)
    assert census.ws_allocated == 20
    before = census.ws_hits
    await websocket.stream.send_all(whole[20:])
    assert (await Client(websocket).receive()).command == "CONNECTED"
    after = dial.server.census()
    assert after.ws_allocated == 0
    assert after.ws_hits == before + 1
    assert after.ws_misses >= 1


async def test_the_output_queue_is_counted(dial: Dial, autojump_clock) -> None:
    slow = await connect_narrow(dial)
    await slow.subscribe("/t")
    publisher = await dial.connect()
    for _ in range(5):
        await publisher.publish("/t", b"x", b"y", receipt=True)
    await wait_all_tasks_blocked()
    assert dial.server.census().output_queue_size == 8  # and two are being written
    await slow.receive_many(10)
    assert dial.server.census().output_queue_size == 0


@pytest.mark.parametrize("transport", [MEMORY, WS_MEMORY])
async def test_the_log_tells_of_ends(
    autojump_clock, caplog: pytest.LogCaptureFixture, transport: str
) -> None:
    caplog.set_level(logging.INFO, "trio_stomp")
    async with open_dial(transport, **QUIET) as dial:
        await (await dial.connect()).disconnect()
        await until(lambda: not dial.server.connections, 0.1)
        lines = [record.getMessage() for record in caplog.records if record.name == "trio_stomp"]
        kind = "ws" if transport == WS_MEMORY else "tcp"
        assert [line for line in lines if "client-disconnect" in line] == [
            f"{kind} in-memory closed: client-disconnect"
        ]
