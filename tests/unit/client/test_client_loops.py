"""The client on Trio and on asyncio, over real sockets, with a real broker in another thread."""

import asyncio
import math
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest
import trio

from tests.support.gate import Gate, open_gate
from tests.support.tls import authority
from trio_stomp.client import (
    Client,
    ClientClosed,
    ConnectFailed,
    LinkLost,
    ProtocolViolation,
    ReconnectPolicy,
    RequestTimedOut,
    StaleMessage,
    Subscription,
    open_client,
)
from trio_stomp.client.loops import Loop, current_loop
from trio_stomp.testing import ThreadedBroker, threaded_broker

QUICK = ReconnectPolicy(first_delay_s=0.01, max_delay_s=0.05)
PATIENCE_S = 30
BIG = bytes(range(256)) * 4000

Main = Callable[[Loop], Awaitable[None]]
Play = Callable[[Main], None]


@pytest.fixture(params=["trio", "asyncio"])
def play(request: pytest.FixtureRequest) -> Play:
    """Run an async function on the library, for at most half a minute; it may leave no task."""

    async def limited(main: Main) -> bool:
        loop = current_loop()
        with loop.move_on_after(PATIENCE_S):
            await main(loop)
            assert request.param == "trio" or asyncio.all_tasks() == {asyncio.current_task()}
            return True
        return False

    def run(main: Main) -> None:
        is_done = trio.run(limited, main) if request.param == "trio" else asyncio.run(limited(main))
        assert is_done, f"it takes more than {PATIENCE_S} s"

    return run


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadedBroker]:
    with threaded_broker(diag_interval_s=0) as running:
        yield running


@pytest.fixture
def gate(broker: ThreadedBroker) -> Iterator[Gate]:
    """A way to the broker that can be cut."""
    with open_gate(broker.port) as running:
        yield running


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue for this test alone."""
    return f"/queue/{request.node.name}"


async def wait_until(loop: Loop, condition: Callable[[], bool]) -> None:
    while not condition():
        await loop.sleep(0.005)


# --- transports -------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["stomp", "stomps", "ws", "wss"])
def test_each_transport(play: Play, scheme: str) -> None:
    with threaded_broker(tls_cert=authority().certificate, diag_interval_s=0) as broker:
        path = "/ws" if scheme.startswith("ws") else ""
        url = f"{scheme}://{broker.host}:{broker.port}{path}"

        @play
        async def main(loop: Loop) -> None:
            async with (
                open_client(url, ssl_context=authority().client_context()) as client,
                client.subscribe("/topic/a") as messages,
            ):
                for _ in range(5):
                    await client.send("/topic/a", BIG, receipt=False)
                assert (await client.send("/topic/a", "end")).matched == 1
                bodies = [(await messages.receive()).body for _ in range(6)]
                assert bodies == [*[BIG] * 5, b"end"]
                with pytest.raises(trio.WouldBlock if sniffed() else asyncio.QueueEmpty):
                    messages.receive_nowait()


def sniffed() -> bool:
    """Return whether Trio runs the test."""
    return trio.lowlevel.in_trio_task()


def test_failures_to_connect(play: Play) -> None:
    with (
        threaded_broker(tls_cert=authority().certificate, diag_interval_s=0) as broker,
        socket.create_server(("127.0.0.1", 0)) as silent,
        answering(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n") as web,
        answering(b"CONNECTED\r\n\r\n", 2) as rude,
    ):
        mute = silent.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nobody = closed.getsockname()[1]
        context = ssl.create_default_context()

        @play
        async def main(loop: Loop) -> None:
            for url, why in (
                (f"stomp://127.0.0.1:{nobody}", f"no connection to 127.0.0.1:{nobody}: "),
                (f"stomps://127.0.0.1:{broker.port}", "its certificate is not trusted: "),
                (f"stomp://127.0.0.1:{mute}", "no session at .* within 0.3 s"),
                (f"stomps://127.0.0.1:{mute}", "no session at .* within 0.3 s"),
                (f"ws://127.0.0.1:{mute}/ws", "no session at .* within 0.3 s"),
                (f"ws://127.0.0.1:{web}/x", f"no WebSocket at 127.0.0.1:{web}/x: it answered 404"),
                (f"ws://127.0.0.1:{rude}/", "it does not speak WebSocket"),
                (f"stomp://127.0.0.1:{rude}", "closed the connection before CONNECTED"),
            ):
                wait_s = 0.3 if str(mute) in url else 10
                client = open_client(url, connect_timeout_s=wait_s, ssl_context=context)
                with pytest.raises(ConnectFailed, match=why):
                    await client.__aenter__()


@contextmanager
def answering(answer: bytes, times: int = 1) -> Iterator[int]:
    """A server in a thread that reads once from each connection, answers, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(times):
                with server.accept()[0] as connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(PATIENCE_S)


def test_a_connector_of_each_library(play: Play, broker: ThreadedBroker) -> None:
    async def dial() -> trio.abc.Stream:
        return await trio.open_tcp_stream(broker.host, broker.port)

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(broker.host, broker.port)

    @play
    async def main(loop: Loop) -> None:
        async with open_client(dial if sniffed() else connect) as client:
            assert (await client.send("/topic/a", "x")).matched == 0


# --- connections that break -------------------------------------------------------------------


@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
def test_cuts_in_the_middle_of_messages(play: Play, gate: Gate, queue: str, resets: bool) -> None:
    """No acknowledged message is lost, and none acknowledged in time is redelivered."""
    gate.resets = resets

    @play
    async def main(loop: Loop) -> None:
        async with open_client(gate.url, reconnect=QUICK) as client:
            for number in range(30):
                await client.send(queue, str(number).encode() * 5000)
            taken: list[int] = []
            async with client.subscribe(queue, ack="client-individual", prefetch=3) as messages:
                gate.cut_after = 30_000
                while len(set(taken)) < 30:
                    message = await messages.receive()
                    try:
                        await message.ack()
                    except StaleMessage:
                        continue
                    if not math.isfinite(gate.cut_after):
                        gate.cut_after = 30_000
                    taken.append(int(message.text[: len(message.text) // 5000]))
            assert gate.links > 3
            assert set(taken) == set(range(30))


def test_a_send_whose_receipt_is_lost_is_taken_once(play: Play, gate: Gate, queue: str) -> None:
    @play
    async def main(loop: Loop) -> None:
        async with open_client(gate.url, reconnect=QUICK) as client:
            gate.cut_after = 5  # within the RECEIPT
            receipt = await client.send(queue, "once")
            assert receipt.duplicate
            assert gate.links == 2
            async with client.subscribe(queue) as messages:
                assert (await messages.receive()).text == "once"
                await client.send(queue, "next")
                assert (await messages.receive()).text == "next"
            kinds = [client.events.receive_nowait().kind for _ in range(4)]
            assert kinds == ["connected", "disconnected", "reconnecting", "connected"]


def test_state_that_ends_with_a_connection(play: Play, gate: Gate, queue: str) -> None:
    @play
    async def main(loop: Loop) -> None:
        async with open_client(gate.url, reconnect=QUICK) as client:
            async with AsyncExitStack() as stack:
                transaction = await stack.enter_async_context(client.transaction())
                await transaction.send(queue, "never")
                gate.cut()
                await wait_until(loop, lambda: gate.links == 2 and client.is_connected)
                with pytest.raises(LinkLost):
                    await stack.aclose()
            with pytest.raises(RequestTimedOut):
                await client.request(queue, "?", timeout_s=0.05)
            async with loop.open_nursery() as nursery:

                async def ask() -> None:
                    with pytest.raises(LinkLost):
                        await client.request(queue, "?", timeout_s=20)

                nursery.start_soon(ask)
                await wait_until(loop, lambda: len(client._core.replies) == 1)
                gate.cut()


def test_a_silent_broker_is_given_up(play: Play, gate: Gate) -> None:
    @play
    async def main(loop: Loop) -> None:
        async with open_client(gate.url, reconnect=QUICK, heart_beat=(0.5, 0.5)) as client:
            await loop.sleep(1.5)  # heart-beats hold the connection
            assert gate.links == 1
            gate.hold()
            events = client.events
            assert (await events.receive()).kind == "connected"
            assert "silent for" in str((await events.receive()).error)
            gate.release()
            await client.send("/topic/a", "x")


def test_an_end_for_good(play: Play, gate: Gate) -> None:
    """It cancels the block, and comes out of it alone; the task is then as it was before."""

    @play
    async def main(loop: Loop) -> None:
        async def stay() -> None:
            async with (
                open_client(gate.url, reconnect=None) as client,
                client.subscribe("/topic/a"),
            ):
                gate.cut()
                await loop.sleep(PATIENCE_S)

        with pytest.raises(LinkLost, match="closed the connection"):
            await stay()
        await loop.sleep(0.01)
        if not sniffed():
            task = asyncio.current_task()
            assert task is not None
            assert not task.cancelling()


# --- clients that do not read
# ------------------------------------------------------------------------


def test_a_sender_waits_for_a_broker_that_does_not_read(play: Play, gate: Gate, queue: str) -> None:
    """Cancelled in the middle of it, it has sent whole frames only."""

    @play
    async def main(loop: Loop) -> None:
        sent = 0

        async def send(client: Client) -> None:
            nonlocal sent
            while True:
                await client.send(queue, BIG, receipt=False, headers={"number": str(sent)})
                sent += 1

        async with open_client(gate.url, reconnect=None, heart_beat=(0, 0)) as client:
            gate.hold()
            for _ in range(3):
                before = -1
                async with loop.open_nursery() as nursery:
                    nursery.start_soon(lambda: send(client))
                    while before < sent:
                        before = sent
                        await loop.sleep(0.05)
                    assert sent < 50
                    nursery.cancel_scope.cancel()
            gate.release()
            async with client.subscribe(queue) as messages:
                for number in range(sent):
                    message = await messages.receive()
                    assert message.headers["number"] == str(number)
                    assert message.body == BIG


def test_the_client_stops_reading_while_messages_are_not_taken(
    play: Play, gate: Gate, queue: str
) -> None:
    @play
    async def main(loop: Loop) -> None:
        async with (
            open_client(gate.url, reconnect=None) as client,
            open_client(gate.url) as sender,
            client.subscribe(queue, prefetch=5) as messages,
        ):
            for _ in range(60):
                await sender.send(queue, BIG)
            before = -1
            while before < gate.passed:
                before = gate.passed
                await loop.sleep(0.1)
            assert gate.passed < 40 * len(BIG)
            for _ in range(60):
                assert (await messages.receive()).body == BIG


# --- cancelling and leaving -------------------------------------------------------------------


def test_a_cancelled_send_is_forgotten(play: Play, gate: Gate, queue: str) -> None:
    @play
    async def main(loop: Loop) -> None:
        async with open_client(gate.url, reconnect=None) as client:
            gate.hold()
            with loop.move_on_after(0.05):
                await client.send(queue, "given up")
                pytest.fail("nobody answers")
            assert client._core.awaited == {}
            gate.release()
            await client.send(queue, "next")


def test_leaving_with_receipts_outstanding(play: Play, gate: Gate, queue: str) -> None:
    """Leaving waits for a limited time; then the waiters for RECEIPTs get an error."""

    @play
    async def main(loop: Loop) -> None:
        printed: list[BaseException] = []

        async def send(client: Client) -> None:
            try:
                await client.send(queue, "x")
            except ClientClosed as error:
                printed.append(error)

        async def receive(messages: Subscription) -> None:
            async for _ in messages:
                pass
            printed.append(RuntimeError("no more"))

        async with loop.open_nursery() as nursery:
            async with open_client(gate.url, close_timeout_s=0.2) as client:
                async with client.subscribe(queue) as messages:
                    nursery.start_soon(lambda: receive(messages))
                    await loop.checkpoint()
                gate.hold()
                nursery.start_soon(lambda: send(client))
                await wait_until(loop, lambda: len(client._core.awaited) == 1)
                began = loop.current_time()
            assert 0.1 < loop.current_time() - began < 5
        assert [type(each) for each in printed] == [RuntimeError, ClientClosed]
        assert [event.kind async for event in client.events] == ["connected"]


def test_errors_leave_the_block_as_they_are(play: Play, broker: ThreadedBroker) -> None:
    @play
    async def main(loop: Loop) -> None:
        with pytest.raises(ValueError, match="mine"):
            async with open_client(broker.url):
                raise ValueError("mine")
        with pytest.raises(ExceptionGroup) as caught:
            async with open_client(broker.url):
                raise ExceptionGroup("mine", [ValueError(), TypeError()])
        assert caught.value.message == "mine"
        async with open_client(broker.url) as client:
            with pytest.raises(ProtocolViolation):
                await client.send(
                    "/temp-queue/of-somebody-else", "x", headers={"AMQ_SCHEDULED_DELAY": "soon"}
                )
            await client.send("/topic/a")


def test_a_cancelled_block_closes_at_once(play: Play, gate: Gate) -> None:
    @play
    async def main(loop: Loop) -> None:
        with loop.scope() as scope:
            async with open_client(gate.url, close_timeout_s=PATIENCE_S) as client:
                gate.hold()
                scope.cancel()
                await loop.sleep(PATIENCE_S)
        assert not client.is_connected
        with pytest.raises(ClientClosed):
            await client.send("/topic/a")
