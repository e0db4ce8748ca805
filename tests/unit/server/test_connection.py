"""One connection: every way to end, slow peers, floods, and no leftovers."""

import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked
from wsproto.events import Ping

from tests.support.fakes import (
    MEMORY,
    TCP,
    WS_MEMORY,
    Client,
    Dial,
    StreamPipe,
    bodies,
    frame_bytes,
    open_dial,
    until,
)
from tests.support.files import save
from tests.support.hostile import QUIET, connect_narrow, endings, expect_left
from tests.support.hostile import dial as dial
from tests.support.limits import REFUSALS_AT_ONCE
from tests.support.site import ask_over_wire
from trio_stomp import CloseReason
from trio_stomp.broker import Delivery
from trio_stomp.frames import FrameRun, Head
from trio_stomp.server import Connection, ServerLimits
from trio_stomp.server._admission import Admission
from trio_stomp.server._periodic import Relief
from trio_stomp.transport import StreamWire

FIRST_BYTES, RECEIVE_BYTES, BULK_BYTES = 8 * 1024, 64 * 1024, 256 * 1024
"""Of a read: at first, usually, and of a client that sends much."""


async def subscriber_and_publisher(dial: Dial, *, websocket: bool = False) -> tuple[Client, Client]:
    """Return a subscriber to /t, which the broker's writes wait for, and a second client."""
    subscriber = await connect_narrow(dial, websocket=websocket)
    await subscriber.subscribe("/t")
    return subscriber, await dial.connect()


def connection_of(dial: Dial, number: int = -1) -> Connection:
    return list(dial.server.connections)[number]


def deliveries() -> int:
    """Return the number of deliveries in this process."""
    return sum(type(each) is Delivery for each in gc.get_objects())


# --- every way to end is counted, once, by its reason ---------------------------------------------


async def disconnect(dial: Dial) -> None:
    await (await dial.connect()).disconnect()


async def hang_up(dial: Dial) -> None:
    await (await dial.connect()).aclose()


async def break_a_rule(dial: Dial) -> None:
    client = await dial.connect()
    await client.send("BOGUS")
    await client.expect_error("unknown-command")


async def break_a_rule_and_hang_up_at_once(dial: Dial) -> None:
    client = await dial.connect()
    await client.send("BOGUS")
    client.abort()


async def exceed_a_limit(dial: Dial) -> None:
    client = await dial.connect()
    await client.send("SEND", {"destination": "/t", "content-length": "99999999999"})
    await client.expect_error("body-too-large")


async def stay_silent(dial: Dial) -> None:
    await (await dial.open()).expect_error("connect-timeout")


async def miss_heart_beats(dial: Dial) -> None:
    client = await dial.open()
    await client.connect("1.2", {"heart-beat": "1000,0"})
    await client.expect_error("heart-beat-timeout")


async def speak_tls(dial: Dial) -> None:
    stream = await dial.stream()
    await stream.send_all(b"\x16\x03\x01")
    assert await stream.receive_some() == b""
    await stream.aclose()


async def speak_http(dial: Dial) -> None:
    await ask_over_wire(await dial.stream(), "/")


async def ask_for_what_is_not_served(dial: Dial) -> None:
    client = await dial.connect()
    await client.send("SUBSCRIBE", {"destination": "/reply-queue/1.other", "id": "1"})
    await client.expect_error("not-allowed")


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (disconnect, "client-disconnect"),
        (hang_up, "client-closed"),
        (break_a_rule, "protocol-error"),
        (break_a_rule_and_hang_up_at_once, "protocol-error"),
        (exceed_a_limit, "limit-exceeded"),
        (stay_silent, "connect-timeout"),
        (miss_heart_beats, "heart-beat-timeout"),
        (speak_tls, "tls-on-plain-port"),
        (speak_http, "http-answered"),
        (ask_for_what_is_not_served, "unsupported"),
    ],
)
async def test_an_end_is_counted_by_its_reason(
    autojump_clock, act: Callable[[Dial], Awaitable[None]], reason: str
) -> None:
    async with open_dial(**QUIET, connect_timeout_s=3.0) as dial:
        await act(dial)
        await expect_left(dial, 0, {reason: 1})
        assert dial.server.accepted == 1


@pytest.mark.parametrize(
    "act", [disconnect, hang_up, break_a_rule, exceed_a_limit, ask_for_what_is_not_served]
)
async def test_a_websocket_is_counted_by_the_same_reasons(
    autojump_clock, act: Callable[[Dial], Awaitable[None]]
) -> None:
    async with open_dial(**QUIET) as plain, open_dial(WS_MEMORY, **QUIET) as dial:
        await act(plain)
        await act(dial)
        await until(lambda: not plain.server.connections, 0.1)
        await until(lambda: not dial.server.connections, 0.1)
        assert endings(dial) == endings(plain)


@pytest.mark.parametrize("websocket", [False, True])
async def test_a_loss_while_writing_gives_everything_back(
    dial: Dial, autojump_clock, websocket: bool
) -> None:
    """The peer disappears in the middle of a large message, with more waiting behind it."""
    slow, publisher = await subscriber_and_publisher(dial, websocket=websocket)
    await publisher.publish("/t", *[b"x" * 300_000] * 5, receipt=True)
    assert dial.server.memory.used_bytes > 1_500_000
    assert await slow.pipe.stream.receive_some(10)  # type: ignore[attr-defined]
    slow.abort()
    await trio.aclose_forcefully(slow.pipe.stream)  # type: ignore[attr-defined]
    await expect_left(dial, 1)
    assert endings(dial) in ({"connection-lost": 1}, {"client-closed": 1})


async def test_the_reason_survives_a_loss_in_the_farewell(dial: Dial, autojump_clock) -> None:
    """A client that leaves before it has read an ERROR is counted by the ERROR's reason."""
    client = await connect_narrow(dial)
    await client.send("BOGUS")
    await wait_all_tasks_blocked()
    await trio.aclose_forcefully(client.pipe.stream)  # type: ignore[attr-defined]
    await expect_left(dial, 0, {"protocol-error": 1})


class Pest(trio.abc.Instrument):
    """Stages a heart-beat to a connection, once, at some step of its end."""

    def __init__(self, connection: Connection, step: int) -> None:
        self.connection, self.step = connection, step
        self.error: Exception | None = None

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        released = self.connection.lifecycle.core_released
        self.step -= released is not None and released.is_set()
        if self.step == 0:
            self.step = -1
            try:
                self.connection.outbox.stage_frame(b"\n")
                self.connection.outbox.publish(trio.current_time())
            except Exception as error:
                self.error = error


async def test_closing_connection_starts_no_writer(dial: Dial, autojump_clock) -> None:
    """A nursery that is about to end accepts no tasks, and would raise in the dispatcher."""
    await dial.start()
    for step in range(1, 25):
        stream = dial.listener.connect()
        await wait_all_tasks_blocked()
        pest = Pest(connection_of(dial), step)
        trio.lowlevel.add_instrument(pest)
        await stream.aclose()
        await until(lambda: not dial.server.connections, 0.1)
        trio.lowlevel.remove_instrument(pest)
        assert pest.error is None
        assert dial.server.memory.used_bytes == 0


async def test_the_end_of_a_lingering_connection_is_bounded(autojump_clock) -> None:
    async with open_dial(**QUIET, linger_s=0.0) as dial:
        client = await dial.connect()
        await client.send("BOGUS")
        await until(lambda: not dial.server.connections, 0.1)
        await client.aclose()


# --- slow peers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("websocket", [False, True])
async def test_a_slow_consumer_is_disconnected_and_others_get_everything(
    autojump_clock, websocket: bool
) -> None:
    async with open_dial(**QUIET, max_outbox_bytes=100_000) as dial:
        slow, publisher = await subscriber_and_publisher(dial, websocket=websocket)
        fast = await dial.connect()
        await fast.subscribe("/t")
        expected = [b"%d" % n + b"." * 5000 for n in range(200)]
        for body in expected:
            await publisher.publish("/t", body)
            assert (await fast.receive()).body == body
        assert await publisher.fence() == []
        # it may still read output that was on its way, and the reason of the end
        frames = await slow.read_to_end()
        assert frames[-1].command == "ERROR"
        assert frames[-1]["code"] == "slow-consumer"
        assert bodies(frames) == expected[: len(frames) - 1]
        assert 0 < len(frames) < 50
        if websocket:
            assert slow.websocket.close_code == 1008
        await expect_left(dial, 2, {"slow-consumer": 1})
        assert dial.server.broker.fan_out.drops.slow_consumer > 0


async def test_large_bodies_in_a_row_do_not_throw_out_a_subscriber_that_reads(
    autojump_clock,
) -> None:
    """Two of the largest messages exceed an outbox (S11), so their producer waits."""
    sizes = {"max_body_bytes": 300_000, "max_outbox_bytes": 600_000}
    async with open_dial(**QUIET, **sizes) as dial:
        reader, publisher = await subscriber_and_publisher(dial)
        sent = [b"%c" % (65 + number) * 300_000 for number in range(6)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(publisher.publish, "/t", *sent)
            with trio.fail_after(30):
                assert bodies(await reader.receive_many(6)) == sent
        assert not endings(dial)


async def test_unread_messages_of_a_slow_consumer_are_freed_before_it_is_closed(
    autojump_clock,
) -> None:
    async with open_dial(**QUIET, max_outbox_bytes=100_000, linger_s=60.0) as dial:
        _, publisher = await subscriber_and_publisher(dial)
        lost = connection_of(dial, 0)
        before = deliveries()
        for _ in range(60):
            await publisher.publish("/t", b"x" * 5000, receipt=True)
        await wait_all_tasks_blocked()
        assert lost in dial.server.connections  # its peer may still read the reason
        assert dial.server.broker.fan_out.drops.slow_consumer > 10
        assert deliveries() - before <= 2  # one is half written


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
async def test_a_slow_consumer_may_lose_messages_instead(autojump_clock, policy: str) -> None:
    options = {**QUIET, "max_outbox_bytes": 100_000, "slow_consumer": policy}
    async with open_dial(**options, write_stall_s=1000.0) as dial:
        slow, publisher = await subscriber_and_publisher(dial)
        fast = await dial.connect()
        await fast.subscribe("/t")
        expected = [b"%d" % n + b"." * 5000 for n in range(200)]
        for body in expected:
            await publisher.publish("/t", body)
            assert (await fast.receive()).body == body
            assert dial.server.memory.used_bytes < 110_000
        got = bodies(await slow.fence())
        assert set(got) <= set(expected)
        assert [expected.index(body) for body in got] == sorted(map(expected.index, got))
        assert len(got) == 200 - dial.server.broker.fan_out.drops.slow_consumer
        assert 10 < len(got) < 30
        assert (expected[-1] in got) == (policy == "drop-oldest")
        assert expected[0] in got  # it was being written
        await publisher.publish("/t", b"afterwards")
        assert (await slow.receive()).body == b"afterwards"


async def test_a_stalled_write_ends_the_connection(autojump_clock) -> None:
    async with open_dial(**QUIET, write_stall_s=7.0, linger_s=1.0) as dial:
        _, publisher = await subscriber_and_publisher(dial)
        await publisher.publish("/t", b"x" * 1000, receipt=True)
        await trio.sleep(6.9)
        assert len(dial.server.connections) == 2
        await trio.sleep(1.2)
        assert len(dial.server.connections) == 1
        await expect_left(dial, 1, {"write-stalled": 1})


async def test_slow_but_steady_is_no_stall(autojump_clock) -> None:
    """Between two turns of the wheel, the peer always reads something."""
    async with open_dial(**QUIET, write_stall_s=7.0) as dial:
        slow, publisher = await subscriber_and_publisher(dial)
        for _ in range(12):
            await publisher.publish("/t", b"x" * 300_000, receipt=True)
        got = 0
        for _ in range(12):
            await trio.sleep(6)
            got += len(await slow.receive_many(1))
        assert got == 12
        assert await slow.fence() == []
        await trio.sleep(100)
        assert await slow.fence() == []  # an idle connection is not stalled either


async def test_a_flood_of_pings_is_bounded_too(autojump_clock) -> None:
    options = {**QUIET, "max_outbox_bytes": 50_000, "write_stall_s": 1000.0}
    async with open_dial(WS_MEMORY, **options) as dial:
        rude = await connect_narrow(dial, websocket=True)
        with trio.move_on_after(30), suppress(trio.BrokenResourceError):
            while dial.server.connections:
                await rude.websocket.send_event(Ping(payload=b"p" * 125))
                assert dial.server.memory.used_bytes < 100_000
        await expect_left(dial, 0, {"slow-consumer": 1})


async def test_a_lost_websocket_owes_nothing(autojump_clock) -> None:
    async with open_dial(WS_MEMORY, diag_interval_s=0.0, websocket_ping_s=1.0) as dial:
        for _ in range(5):
            client = await dial.connect()
            await client.subscribe("/t")
            publisher = await dial.connect()
            client.abort()
            await publisher.publish("/t", b"x", receipt=True)
            await publisher.disconnect()
            await trio.sleep(5)
        assert not dial.server.connections
        assert dial.server.memory.used_bytes == 0


@pytest.mark.covers("R09", "R10")
@pytest.mark.parametrize("how", ["disconnect", "half-close"])
@pytest.mark.parametrize("websocket", [False, True])
async def test_slow_but_steady_reader_gets_all_waiting_data(
    autojump_clock, how: str, websocket: bool
) -> None:
    """Its RECEIPT follows megabytes, which the client reads in more time than the linger."""
    async with open_dial(**QUIET, linger_s=2.0) as dial:
        slow, publisher = await subscriber_and_publisher(dial, websocket=websocket)
        await publisher.publish("/t", *[b"x" * 300_000] * 10, receipt=True)
        if how == "disconnect":
            await slow.send("DISCONNECT", {"receipt": "bye"})
        else:
            await slow.send("SEND", {"destination": "/u", "receipt": "bye"})
            await slow.pipe.stream.send_eof()  # type: ignore[attr-defined]
        for _ in range(10):
            await trio.sleep(1)
            assert len((await slow.receive()).body) == 300_000
        assert (await slow.receive())["receipt-id"] == "bye"
        await slow.expect_closed()


async def test_a_reader_that_stops_in_its_farewell_is_given_up(autojump_clock) -> None:
    async with open_dial(**QUIET, linger_s=60.0, write_stall_s=2.0) as dial:
        slow, publisher = await subscriber_and_publisher(dial)
        await publisher.publish("/t", *[b"x" * 300_000] * 10, receipt=True)
        await slow.send("DISCONNECT", {"receipt": "bye"})
        before = trio.current_time()
        await slow.receive()
        await until(lambda: len(dial.server.connections) == 1, 0.1)
        assert trio.current_time() - before < 5
        assert dial.server.memory.used_bytes == 0


async def test_a_reader_that_takes_next_to_nothing_in_its_farewell_is_given_up(
    autojump_clock,
) -> None:
    """At 256 B/s, 3 MB take hours; such a client must not be waited for."""
    async with open_dial(**QUIET, write_stall_s=2000.0) as dial:
        slow, publisher = await subscriber_and_publisher(dial)
        await publisher.publish("/t", *[b"x" * 300_000] * 10, receipt=True)
        await slow.send("DISCONNECT", {"receipt": "bye"})
        for _ in range(9):
            await trio.sleep(1500)
            await slow.receive()
            assert len(dial.server.connections) == 2
        await trio.sleep(1500)
        assert len(dial.server.connections) == 1
        assert dial.server.memory.used_bytes == 0


# --- memory ---------------------------------------------------------------------------------------


async def test_producers_wait_in_nearly_full_memory_until_its_holder_is_ended(
    autojump_clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def relieve(relief: Relief, now: float) -> None:
        """Send a message before the end of the holder is known to the core."""
        actual(relief, now)
        later = FrameRun(Head("SEND", (("destination", "/t"),), destination="/t"), [b"999."], [])
        relief.broker.publisher.send_for(later, None, now)

    actual = Relief.relieve
    monkeypatch.setattr(Relief, "relieve", relieve)
    async with open_dial(**QUIET, max_memory_bytes=1 << 20) as dial:
        slow, publisher = await subscriber_and_publisher(dial)
        bystander = await dial.connect()
        limit = dial.server.memory.limit_bytes
        for number in range(200):
            await publisher.publish("/t", b"%d" % number + b"." * 20_000)
        await trio.sleep(0.2)
        assert limit * 0.9 < dial.server.memory.used_bytes <= limit
        assert await bystander.fence() == []  # its next read had begun before
        await bystander.send("SEND", {"destination": "/other", "receipt": "r"})
        with trio.move_on_after(0.5) as waiting:
            await bystander.receive()
        assert waiting.cancelled_caught  # no producer's bytes are read
        before = trio.current_time()
        assert (await bystander.receive())["receipt-id"] == "r"
        assert trio.current_time() - before < 1
        assert await publisher.fence() == []
        numbers = list[int]()
        while (frame := await slow.receive()).command == "MESSAGE":
            numbers.append(int(frame.body.partition(b".")[0]))
        assert frame["code"] == "memory-limit"
        assert numbers == [*range(len(numbers))]  # nothing after what was dropped
        await expect_left(dial, 2, {"memory-limit": 1})


async def test_consumer_is_read_from_when_memory_is_nearly_full(autojump_clock) -> None:
    """Its ACKs may be what releases memory."""
    async with open_dial(**QUIET, max_memory_bytes=1 << 20) as dial:
        _, publisher = await subscriber_and_publisher(dial)
        consumer = await dial.connect()
        await consumer.subscribe("/other")
        for number in range(200):
            await publisher.publish("/t", b"%d" % number + b"." * 20_000)
        await trio.sleep(0.2)
        assert dial.server.memory.is_high
        for _ in range(5):
            assert await consumer.fence() == []
        assert dial.server.memory.is_high


@pytest.mark.parametrize("transport", [MEMORY, WS_MEMORY])
async def test_frames_that_never_end_do_not_take_all_memory(autojump_clock, transport: str) -> None:
    """Each of them is within its limit, but all together exceed the memory limit."""
    async with open_dial(transport, **QUIET, max_memory_bytes=4 << 20) as dial:
        start = frame_bytes("SEND", {"destination": "/t", "content-length": "450000"})[:-1]
        clients = [await dial.connect() for _ in range(8)]
        for client in clients:
            if transport == WS_MEMORY:
                client.websocket.binary = True
            with suppress(trio.BrokenResourceError):
                await client.send_bytes(start + b"x" * 400_000)
            await wait_all_tasks_blocked()
            memory = dial.server.memory
            assert memory.used_bytes < memory.limit_bytes / 4 + 8 * 2 * 65536
        bystander = await dial.connect()
        await bystander.subscribe("/t")
        await bystander.publish("/t", b"small", receipt=True)
        for client in clients[3:]:
            error = await client.receive()
            assert error["code"] == "memory-limit"
            await client.expect_closed()
            if transport == WS_MEMORY:
                assert client.websocket.close_code == 1013
        for client in clients[:2]:  # the earlier clients continue
            await client.send_bytes(b"x" * 50_000 + b"\0")
            assert (await bystander.receive()).command == "MESSAGE"
        for client in clients:
            client.abort()
        await expect_left(dial, 1)


async def test_a_producer_is_braked_while_a_subscriber_is_strained(autojump_clock) -> None:
    async with open_dial(**QUIET, max_outbox_bytes=100_000) as dial:
        _, publisher = await subscriber_and_publisher(dial)
        before = trio.current_time()
        for _ in range(10):
            await publisher.publish("/t", b"x" * 5000, receipt=True)
        assert trio.current_time() == before
        for _ in range(8):
            await publisher.publish("/t", b"x" * 5000, receipt=True)
        assert await publisher.fence() == []
        assert 0 < trio.current_time() - before < 0.1


# --- late subscribers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "limit"),
    [(size, limit) for size in (10, 2000, 70_000) for limit in (300_000, 1 << 24)] + [(10, 20_000)],
)
async def test_a_late_subscriber_gets_all_in_order_at_its_own_pace(
    autojump_clock, size: int, limit: int
) -> None:
    """More messages wait than the outbox takes; later ones are sent after them."""
    options = {**QUIET, "ttl_ms": 3_600_000, "max_outbox_bytes": limit}
    async with open_dial(**options, max_backlog_bytes=1 << 26) as dial:
        publisher = await dial.connect()
        count = 3000 if size == 10 else 400 if size == 2000 else 30
        parked = [b"%d" % n + b"." * size for n in range(count)]
        for place in range(0, count, 50):
            await publisher.publish("/t", *parked[place : place + 50], receipt=True)
        late = await connect_narrow(dial)
        await late.send("SUBSCRIBE", {"destination": "/t", "id": "late", "receipt": "r"})
        live = [b"live%d" % n + b"." * size for n in range(count // 4)]
        got: list[bytes] = []

        async def publish() -> None:
            for body in live:
                await publisher.publish("/t", body)
                await trio.sleep(0.01)

        async def read() -> None:
            assert (await late.receive())["receipt-id"] == "r"
            for number in range(len(parked) + len(live)):
                got.append((await late.receive()).body)
                if number % 10 == 0:
                    await trio.sleep(0.003)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            nursery.start_soon(read)
        assert got == parked + live
        assert dial.server.broker.stale.size == 0
        assert await late.fence() == []
        await publisher.publish("/t", b"last", receipt=True)
        assert (await late.receive()).body == b"last"
        await until(lambda: dial.server.memory.used_bytes == dial.server.broker.stale.bytes, 0.1)


async def test_a_late_subscriber_whose_backlog_expires_still_gets_new_messages(
    autojump_clock,
) -> None:
    """All its waiting messages expire while it does not read; then it counts as fast again."""
    async with open_dial(**QUIET, ttl_ms=5000, write_stall_s=1000.0) as dial:
        publisher = await dial.connect()
        late = await connect_narrow(dial)
        await late.subscribe("/live", id="live")
        for number in range(10):
            await publisher.publish("/t", b"parked%d" % number, receipt=True)
            await publisher.publish("/live", b"%d" % number + b"." * 60_000, receipt=True)
        subscribe = frame_bytes("SUBSCRIBE", {"destination": "/t", "id": "late"})
        await late.send_bytes(subscribe)
        await trio.sleep(10)
        async with trio.open_nursery() as nursery:
            got: list[bytes] = []

            async def read() -> None:
                while b"new" not in got:
                    got.extend(bodies([await late.receive()]))

            nursery.start_soon(read)
            await trio.sleep(1)
            await publisher.publish("/t", b"new", receipt=True)
        assert [body[:1] for body in got] == [*(b"%d" % n for n in range(len(got) - 1)), b"n"]
        assert len(got) < 10
        await until(lambda: dial.server.memory.used_bytes == 0, 0.1)


async def test_a_late_subscriber_that_leaves_leaves_the_rest_to_the_next(autojump_clock) -> None:
    async with open_dial(**QUIET, ttl_ms=3_600_000) as dial:
        publisher = await dial.connect()
        count = 60
        for number in range(count):
            await publisher.publish("/t", b"%d." % number + b"." * 60_000, receipt=True)
        late = await connect_narrow(dial)
        await late.send("SUBSCRIBE", {"destination": "/t", "id": "late"})
        first = bodies(await late.receive_many(3))
        await trio.aclose_forcefully(late.pipe.stream)  # type: ignore[attr-defined]
        await until(lambda: len(dial.server.connections) == 1, 0.1)
        left = dial.server.broker.stale.size
        assert 0 < left < count
        second = await dial.connect()
        await second.subscribe("/t")
        got = bodies(await second.receive_many(left))
        numbers = [int(body.partition(b".")[0]) for body in first + got]
        assert numbers == [0, 1, 2, *range(count - left, count)]
        await until(lambda: dial.server.memory.used_bytes == 0, 0.1)


# --- bugs, ours and others' -----------------------------------------------------------------------


class FaultyStream(trio.abc.HalfCloseableStream):
    """A stream that breaks its contract at a call chosen by the test."""

    def __init__(self, inner: trio.abc.HalfCloseableStream, fault: str, after: int) -> None:
        self.inner, self.fault, self.after = inner, fault, after
        self.transport_stream = inner  # so the broker knows the peer's address

    def _maybe_fail(self, name: str) -> None:
        if name == self.fault:
            self.after -= 1
            if self.after < 0:
                raise ZeroDivisionError(name)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._maybe_fail("send_all")
        await self.inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        self._maybe_fail("receive_some")
        return await self.inner.receive_some(max_bytes)

    async def send_eof(self) -> None:
        self._maybe_fail("send_eof")
        await self.inner.send_eof()

    async def aclose(self) -> None:
        await self.inner.aclose()


@pytest.mark.bugs
@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("fault", ["send_all", "receive_some", "send_eof"])
async def test_a_bug_costs_one_connection_and_no_other(
    dial: Dial, autojump_clock, caplog: pytest.LogCaptureFixture, fault: str, after: int
) -> None:
    other = await dial.connect()
    ours, theirs = memory_stream_pair()
    dial.listener.hand_over(FaultyStream(theirs, fault, after))
    await ours.send_all(frame_bytes("CONNECT", {"accept-version": "1.2", "host": "x"}))
    subscribe = {"destination": "/t", "id": "1", "receipt": "r"}
    await wait_all_tasks_blocked()
    with suppress(trio.BrokenResourceError):
        await ours.send_all(frame_bytes("SUBSCRIBE", subscribe))
        await wait_all_tasks_blocked()
        await ours.send_all(frame_bytes("DISCONNECT", {"receipt": "s"}))
        await ours.send_eof()
    await trio.sleep(10)
    await trio.aclose_forcefully(ours)
    assert await other.fence() == []
    await expect_left(dial, 1)
    assert dial.server.admission.admitted == 1
    if after == 0:
        traces = [record for record in caplog.records if record.exc_info]
        assert traces
        assert "ZeroDivisionError" in caplog.text


@pytest.mark.bugs
async def test_internal_error_is_reported_without_details(dial: Dial, autojump_clock) -> None:
    await dial.start()
    ours, theirs = memory_stream_pair()
    dial.listener.hand_over(FaultyStream(theirs, "receive_some", 1))
    client = Client(StreamPipe(ours))
    await client.connect()
    error = await client.receive()
    assert error["code"] == "internal-error"
    assert b"ZeroDivision" not in error.raw
    await client.aclose()


# --- fairness -------------------------------------------------------------------------------------


async def test_a_reader_lets_others_run_between_two_reads() -> None:
    """A socket that always has bytes never blocks its reader, so the reader must yield itself."""
    async with open_dial(TCP, **QUIET) as dial:
        flooder = await dial.connect()
        steps = 0
        done = False

        async def count() -> None:
            nonlocal steps
            while not done:
                steps += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            connection = connection_of(dial)
            before = connection.bytes_in
            await flooder.send_bytes(b"\n" * 3_000_000)
            await until(lambda: connection.bytes_in == before + 3_000_000)
            done = True
        # At least 46 reads of 65,536 bytes; the last may share a step with the check above.
        # A reader that never yields would leave two or three.
        assert steps >= 3_000_000 / 65536 / 2


async def send_all(client: Client, connection: Connection, data: bytes) -> None:
    """Send bytes, and wait until the broker has read them."""
    before = connection.bytes_in
    await client.send_bytes(data)
    await until(lambda: connection.bytes_in == before + len(data))


async def test_large_frames_are_read_in_larger_pieces_until_small_ones_come() -> None:
    async with open_dial(TCP, **QUIET) as dial:
        sender = await dial.connect()
        connection = connection_of(dial)
        # Frames have the size of a read, so some reads end exactly with a frame.
        large = b"SEND\ndestination:/topic/a\n\n".ljust(RECEIVE_BYTES - 1, b"x") + b"\0"
        await send_all(sender, connection, large * 50)
        assert connection.reader.read_bytes == BULK_BYTES
        await send_all(sender, connection, b"SEND\ndestination:/topic/a\n\nx\0" * 100_000)
        assert connection.reader.read_bytes == RECEIVE_BYTES


async def test_reading_is_charged_to_the_user_from_login_to_logout(tmp_path: Path) -> None:
    users = save(tmp_path / "users", "alice:secret\n")
    login = {"login": "alice", "passcode": "secret"}
    async with open_dial(passwd_file=users, dialect="stompica", **QUIET) as dial:
        client = await dial.open()
        await wait_all_tasks_blocked()
        connection = connection_of(dial)
        reader = connection.reader

        async def payer(data: bytes) -> str:
            """Return who has paid for some bytes."""
            quota, own = connection.client.quota, reader.read_s
            before = 0.0 if quota is None else quota.read_s
            await send_all(client, connection, data)
            await wait_all_tasks_blocked()
            is_own, is_users = reader.read_s != own, quota is not None and quota.read_s != before
            assert is_own != is_users
            return "own" if is_own else "user"

        assert await payer(b"\n") == "own"
        for _ in range(2):
            await client.connect("1.2", login)
            assert await payer(b"\n") == "user"
            assert await payer(b"SEND\ndestination:/t\n\nx\0") == "user"
            await client.send("DISCONNECT", {"receipt": "bye"})
            await client.receive_until_receipt("bye")
            assert await payer(b"\n") == "own"
        assert connection.frames_in == 6


def subscribing(numbers: range) -> bytes:
    frames = (
        frame_bytes("SUBSCRIBE", [("id", f"{number}"), ("destination", f"/topic/{number}")])
        for number in numbers
    )
    return b"".join(frames)


def unsubscribing(numbers: range) -> bytes:
    return b"".join(frame_bytes("UNSUBSCRIBE", [("id", f"{number}")]) for number in numbers)


async def test_thousands_of_subscribes_are_decoded_in_small_slices() -> None:
    """1,500 SUBSCRIBEs in one read held up all clients for 50 ms."""
    async with open_dial(TCP, **QUIET) as dial:
        client = await dial.connect()
        connection, dispatcher = connection_of(dial), dial.server.dispatcher

        async def turns_for(data: bytes) -> int:
            before = dispatcher.turns
            await send_all(client, connection, data)
            return dispatcher.turns - before

        assert connection.reader.read_bytes == FIRST_BYTES
        many = range(4_000)
        for data in (subscribing(many), unsubscribing(many)):
            await turns_for(b"SEND\ndestination:/topic/a\n\nx\0" * 10_000)
            assert connection.reader.read_bytes == RECEIVE_BYTES
            # A slice or two that arrive while the dispatcher waits are processed in the same turn.
            assert await turns_for(data) >= (len(data) - RECEIVE_BYTES) / FIRST_BYTES / 2
        await until(lambda: not connection.client.subscriptions)


@pytest.mark.parametrize(
    ("data", "following"),
    [
        (subscribing(range(8)), RECEIVE_BYTES),
        (b"SEND\ndestination:/topic/a\n\n" + b"x" * FIRST_BYTES, RECEIVE_BYTES),
    ],
    ids=["small frames", "half a frame"],
)
async def test_the_first_full_read_decides_the_size_of_later_reads(
    data: bytes, following: int
) -> None:
    async with open_dial(MEMORY, **QUIET) as dial:
        client = await dial.connect()
        connection = connection_of(dial)
        await send_all(client, connection, data[: FIRST_BYTES - 1])
        assert connection.reader.read_bytes == FIRST_BYTES  # the batch was not full
        client = await dial.connect()
        connection = connection_of(dial)
        data = data[:FIRST_BYTES].ljust(FIRST_BYTES, b"\n")
        await send_all(client, connection, data)
        assert connection.reader.read_bytes == following


async def test_a_departing_crowd_does_not_delay_other_clients() -> None:
    async with open_dial(MEMORY, **QUIET) as dial:
        crowd = [await dial.connect() for _ in range(1000)]
        last = await dial.connect()
        for each in crowd:
            each.abort()
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        await last.publish("/topic/a", b"x", receipt=True)
        # Before it came the clients in the input queue, and those that waited for room there.
        assert len(list(dial.server.broker.clients)) > 500


async def test_clients_with_many_subscriptions_do_not_all_end_in_one_turn() -> None:
    async with open_dial(MEMORY, **QUIET) as dial:
        crowd = [await dial.connect() for _ in range(10)]
        for each in crowd:
            for number in range(300):
                await each.send("SUBSCRIBE", {"id": str(number), "destination": f"/t/{number}"})
            await each.fence()
        before = dial.server.dispatcher.turns
        for each in crowd:
            each.abort()
        await until(lambda: not dial.server.connections)
        # Each has more than MAX_TURN_FRAMES, and others have their turns in between.
        assert dial.server.dispatcher.turns - before >= 10


# --- who may connect ------------------------------------------------------------------------------


def far_wire(remote: str) -> StreamWire:
    return StreamWire(remote, False, memory_stream_pair()[0])


def test_each_address_has_a_limit_of_its_own() -> None:
    admission = Admission(ServerLimits(max_connections_per_address=2, max_connections=5))
    wires = [far_wire(f"10.0.0.1:{port}") for port in range(3)]
    refusals = [admission.enter(wire) for wire in wires]
    assert [refusal is None for refusal in refusals] == [True, True, False]
    assert refusals[2] is not None
    assert refusals[2].code == "too-many-from-address"
    assert admission.enter(far_wire("10.0.0.2:1")) is None
    assert admission.enter(far_wire("[10::1]:1")) is None
    assert admission.refused == 1
    admission.leave(wires[0], None)
    assert admission.enter(wires[2]) is None


@pytest.mark.parametrize(
    ("each", "most", "site"), [(10, 1000, 40), (10, 60, 30), (50, 60, 50), (1000, 20_000, 4000)]
)
def test_an_ipv6_site_has_a_limit_above_that_of_its_networks(
    each: int, most: int, site: int
) -> None:
    limits = ServerLimits(max_connections_per_address=each, max_connections=most)
    admission = Admission(limits)
    networks = range(most // each + 1)
    wires = [far_wire(f"[2001:db8:1:{n}::{k:x}]:1") for n in networks for k in range(each + 1)]
    assert sum(admission.enter(wire) is None for wire in wires) == site
    refusal = admission.enter(wires[0])
    assert refusal is not None
    assert refusal.code == "too-many-from-address"
    assert admission.enter(far_wire("[2001:db8:2:1::1]:1")) is None
    assert admission.enter(far_wire("10.0.0.1:1")) is None


def test_loopback_is_exempt_from_the_limit_of_an_address_only() -> None:
    admission = Admission(ServerLimits(max_connections_per_address=1, max_connections=3))
    wire = StreamWire("127.0.0.1:1", True, memory_stream_pair()[0])
    assert [admission.enter(wire) is None for _ in range(4)] == [True, True, True, False]
    for _ in range(3):
        admission.leave(wire, None)
    assert admission.admitted == 0


def test_addresses_are_forgotten() -> None:
    admission = Admission(ServerLimits())
    wires = [far_wire(f"10.0.{n}.1:5") for n in range(25)]
    wires += [far_wire(f"[2001:db8:1:{n}::1]:5") for n in range(25)]
    for wire in wires:
        admission.enter(wire)
    for wire in wires:
        admission.leave(wire, None)
    assert (admission.admitted, admission._by_network) == (0, {})


def test_a_refused_connection_counts_for_nothing_but_itself() -> None:
    admission = Admission(ServerLimits(max_connections=1))
    first = far_wire("10.0.0.1:1")
    admission.enter(first)
    others = [far_wire(f"10.0.0.2:{port}") for port in range(REFUSALS_AT_ONCE)]
    refusals = [admission.enter(wire) for wire in others]
    assert admission.is_flooded
    admission.leave(others[0], refusals[0])
    assert not admission.is_flooded
    assert admission.admitted == 1


async def test_many_refusals_do_not_lock_out_permitted_clients(dial: Dial, autojump_clock) -> None:
    """One address over its limit leaves its refused connections open; others must not suffer."""
    await dial.start()
    admission = dial.server.admission
    admission.limits = ServerLimits(max_connections_per_address=1)
    attacker = far_wire("10.0.0.1:1")
    refusals = [admission.enter(attacker) for _ in range(REFUSALS_AT_ONCE + 1)]
    assert admission.is_flooded
    client = await dial.connect()
    assert await client.fence() == []
    for refusal in refusals:
        admission.leave(attacker, refusal)


async def test_a_flood_of_refusals_is_closed_without_a_word(autojump_clock) -> None:
    async with open_dial(**QUIET, max_connections=1) as dial:
        await dial.connect()
        streams = [await dial.stream() for _ in range(REFUSALS_AT_ONCE + 20)]
        await wait_all_tasks_blocked()
        assert len(dial.server.connections) == 1 + REFUSALS_AT_ONCE
        assert dial.server.admission.refused == REFUSALS_AT_ONCE + 20
        with trio.fail_after(1):
            assert await streams[-1].receive_some() == b""
        result = Client(StreamPipe(streams[0]))
        await result.send("CONNECT")
        await result.expect_error("too-many-connections")
        dial._streams.clear()
        for stream in streams:
            await stream.aclose()
        await until(lambda: len(dial.server.connections) == 1, 0.1)
        assert dial.server.ended[CloseReason.TOO_MANY_CONNECTIONS] == 1


# --- figures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", [MEMORY, WS_MEMORY])
async def test_a_connection_counts_its_traffic(autojump_clock, transport: str) -> None:
    async with open_dial(transport, **QUIET) as dial:
        client = await dial.connect()
        await client.subscribe("/t")
        await client.publish("/t", b"1", b"2", b"3")
        await client.fence()
        (connection,) = dial.server.connections
        assert connection.frames_in == 6
        assert connection.outbox.frames_out == 3
        assert connection.bytes_in > 100
        assert connection.outbox.bytes_out > 100
        census = dial.server.census()
        assert census.clients == 1
        assert census.websockets == (transport == WS_MEMORY)
        assert census.input_queue_size == census.output_queue_size == 0
