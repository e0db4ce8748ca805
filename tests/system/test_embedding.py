# ruff: noqa: SIM117
"""A broker inside a program: its events, log, TLS, session ids, connections in memory, its end."""

import logging
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import trio

import trio_stomp
import trio_stomp.cli
from tests.support.tls import authority, issue
from trio_stomp import (
    CloseReason,
    OptionError,
    Peer,
    ServerEvent,
    ServerHandle,
    Settings,
    open_peer,
    run,
    run_default,
    serve,
)
from trio_stomp.broker import BrokerEvent
from trio_stomp.cli.commands import _run
from trio_stomp.client import ConnectFailed, open_client
from trio_stomp.peer import frames
from trio_stomp.server import EventFeed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "use" / "embedding.md").read_text(encoding="utf-8")
QUIET = {"diag_interval_s": 0.0}
OURS = logging.getLogger("trio_stomp")


@asynccontextmanager
async def broker(settings: Settings | None = None, **given: object) -> AsyncIterator[ServerHandle]:
    """A broker without a port, stopped at the end."""
    reported = settings or Settings.of(**QUIET)
    async with trio.open_nursery() as nursery:
        call = partial(serve, reported, **{"listeners": [], **given})  # type: ignore[arg-type]
        handle: ServerHandle = await nursery.start(call)
        yield handle
        handle.stop()


@asynccontextmanager
async def joined(handle: ServerHandle) -> AsyncIterator[Peer]:
    """A peer with an open session."""
    async with open_peer(await handle.connect()) as peer:
        await peer.send.send(frames.connect())
        assert (await peer.receive.receive()).command == "CONNECTED"
        yield peer


async def ask(peer: Peer, frame: trio_stomp.Frame, receipt: str = "r") -> None:
    """Send a frame, and wait until it has been handled."""
    asking = trio_stomp.Frame(frame.command, (*frame.headers, ("receipt", receipt)), frame.body)
    await peer.send.send(asking)
    with trio.fail_after(5):
        while (answer := await peer.receive.receive()).command != "RECEIPT":
            assert answer.command == "MESSAGE"


class Reports(logging.Handler):
    """Records log messages."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def new_logger(level: int) -> tuple[logging.Logger, list[str]]:
    logger = logging.Logger("mine", level)
    logger.addHandler(reported := Reports())
    return logger, reported.lines


# --- events ---------------------------------------------------------------------------------------


async def test_all_events_arrive_in_order_and_the_channel_is_closed() -> None:
    send, receive = trio.open_memory_channel[ServerEvent](100)
    async with broker(events=send) as handle:
        async with joined(handle) as one:
            await ask(one, frames.subscribe("/t/a", id="1"))
            async with joined(handle) as other:
                await ask(other, frames.subscribe("/t/a", id="1"))
                await ask(other, frames.subscribe("/t/*", id="2"))
                await ask(other, frames.unsubscribe(id="1"))
                await ask(other, frames.disconnect())
            await ask(one, frames.unsubscribe(id="1"))
            await ask(one, frames.subscribe("/t/a", id="1"))
    reported = [event async for event in receive]
    assert [(event.kind, event.destination, event.reason) for event in reported] == [
        ("connect", "", ""),
        ("subscription-start", "/t/a", ""),
        ("connect", "", ""),
        ("subscription-start", "/t/*", ""),
        ("subscription-stop", "/t/*", ""),
        ("disconnect", "", "client-disconnect"),
        ("subscription-stop", "/t/a", ""),
        ("subscription-start", "/t/a", ""),
        ("subscription-stop", "/t/a", ""),
        ("disconnect", "", "client-closed"),
        ("stop", "", ""),
    ]
    first, second = reported[0].session_id, reported[2].session_id
    assert first != second
    assert (reported[5].session_id, reported[9].session_id) == (second, first)
    assert "STOMP 1.2 over" in reported[0].detail
    assert reported[9].detail == "from in-memory"
    assert handle.events_lost == 0


async def test_stop_reports_disconnected_clients() -> None:
    send, receive = trio.open_memory_channel[ServerEvent](100)
    async with broker(events=send) as handle, joined(handle) as peer:
        await ask(peer, frames.subscribe("/t", id="1"))
        handle.stop()
        assert [frame.command async for frame in peer.receive] == []
    reported = [event async for event in receive]
    assert [event.kind for event in reported[2:]] == ["subscription-stop", "disconnect", "stop"]
    assert reported[3].reason == CloseReason.SHUTTING_DOWN.text


async def test_each_session_of_a_socket_that_stays_has_its_end() -> None:
    send, receive = trio.open_memory_channel[ServerEvent](100)
    settings = Settings.of(**QUIET, dialect="stompica")
    async with broker(settings, events=send) as handle:
        async with open_peer(await handle.connect()) as peer:
            for number in range(2):
                await peer.send.send(frames.connect(f"user{number}"))
                assert (await peer.receive.receive()).command == "CONNECTED"
                await ask(peer, frames.subscribe("/t", id="1"))
                await ask(peer, frames.disconnect())
    reported = [event async for event in receive]
    one = ["connect", "subscription-start", "subscription-stop", "disconnect"]
    assert [event.kind for event in reported] == [*one, *one, "stop"]
    ends = [event for event in reported if event.kind == "disconnect"]
    assert [(event.user, event.reason) for event in ends] == [
        ("user0", "client-disconnect"),
        ("user1", "client-disconnect"),
    ]
    assert {event.detail for event in ends} == {"from in-memory"}


async def test_connection_without_a_session_is_no_event() -> None:
    send, receive = trio.open_memory_channel[ServerEvent](100)
    async with broker(events=send) as handle, open_peer(await handle.connect()) as peer:
        await peer.send.send(frames.send("/a"))
        assert [frame.command async for frame in peer.receive] == ["ERROR"]
    assert [event.kind async for event in receive] == ["stop"]


async def test_a_full_channel_blocks_no_task_and_losses_are_counted() -> None:
    send, receive = trio.open_memory_channel[ServerEvent](2)
    async with broker(events=send) as handle, joined(handle) as peer:
        for number in range(5):
            await ask(peer, frames.subscribe(f"/t/{number}", id=f"{number}"))
        assert handle.events_lost == 4
        assert (await receive.receive()).kind == "connect"
        assert (await receive.receive()).destination == "/t/0"
        await ask(peer, frames.unsubscribe(id="4"))
        lost, values = receive.receive_nowait(), receive.receive_nowait()
        assert (lost.kind, lost.count) == ("lost", 4)
        assert (values.kind, values.destination) == ("subscription-stop", "/t/4")


async def test_gap_is_reported_before_the_following_event_even_if_that_is_lost() -> None:
    send, receive = trio.open_memory_channel[ServerEvent](1)
    feed = EventFeed(send)
    for _ in range(3):
        feed.put(ServerEvent("stop"))
    receive.receive_nowait()
    feed.put(ServerEvent("connect"))
    assert receive.receive_nowait() == ServerEvent("lost", count=2)
    feed.put(ServerEvent("disconnect"))
    assert receive.receive_nowait() == ServerEvent("lost", count=1)
    assert feed.lost == 4


async def test_a_closed_channel_of_events_is_detached() -> None:
    send, receive = trio.open_memory_channel[ServerEvent](1)
    async with broker(events=send) as handle:
        receive.close()
        async with joined(handle) as peer:
            await ask(peer, frames.send("/a"))
            assert handle.feed.channel is None
        assert handle.events_lost == 0


async def test_events_of_the_core_that_are_not_published() -> None:
    send, receive = trio.open_memory_channel[ServerEvent](9)
    feed = EventFeed(send)
    for name in ("drop", "auth", "slow", "config", "trace"):
        feed.on_event(BrokerEvent(name))
    feed.on_event(BrokerEvent("unsubscribe", destination="/never"))
    assert receive.receive_nowait().kind == "subscription-stop"
    assert feed._subscriptions == {}
    feed.close()
    feed.close()
    feed.on_event(BrokerEvent("connect"))
    with pytest.raises(trio.EndOfChannel):
        receive.receive_nowait()


async def test_a_broker_that_cannot_start_closes_the_channel() -> None:
    send, receive = trio.open_memory_channel[ServerEvent](9)
    settings = Settings.of(host="0.0.0.0", port=0)
    with pytest.raises(OptionError, match="is reachable"):
        await serve(settings, events=send)
    assert [event async for event in receive] == []


# --- listeners ------------------------------------------------------------------------------------


class Wrapped(trio.abc.Listener[trio.abc.Stream]):
    """A listener of a program's own; its streams are around those of another."""

    def __init__(self, inner: trio.abc.Listener[trio.abc.Stream], *, tells: bool) -> None:
        self.inner, self.tells = inner, tells
        if tells:
            self.transport_listener = inner

    async def accept(self) -> trio.abc.Stream:
        return WrappedStream(await self.inner.accept(), tells=self.tells)

    async def aclose(self) -> None:
        await self.inner.aclose()


class WrappedStream(trio.abc.Stream):
    def __init__(self, inner: trio.abc.Stream, *, tells: bool) -> None:
        self.inner = inner
        if tells:
            self.transport_stream = inner

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self.inner.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self.inner.aclose()


async def tcp_listener(host: str) -> trio.SocketListener:
    (listener,) = await trio.open_tcp_listeners(0, host=host)
    return listener


@pytest.mark.parametrize("how", ["plain", "tls", "wrapped", "wrapped tls"])
async def test_a_wrapped_listener_on_a_public_address_needs_logins_too(how: str) -> None:
    public = await tcp_listener("0.0.0.0")
    port = public.socket.getsockname()[1]
    given: trio.abc.Listener[trio.abc.Stream] = public
    if "tls" in how:
        given = trio.SSLListener(given, server_context())
    if "wrapped" in how:
        given = Wrapped(given, tells=True)
    local = await tcp_listener("127.0.0.1")
    with pytest.raises(OptionError, match=r"^0\.0\.0\.0 is reachable"), trio.fail_after(5):
        await serve(Settings.of(**QUIET), listeners=[local, given])
    with pytest.raises(OSError):
        await trio.open_tcp_stream("127.0.0.1", port)  # nothing was left listening
    async with broker(
        Settings.of(**QUIET, insecure=True), listeners=[await tcp_listener("0.0.0.0")]
    ):
        pass


async def test_a_client_of_a_tls_listener_is_where_its_socket_is() -> None:
    send, receive = trio.open_memory_channel[ServerEvent](9)
    listener = await tcp_listener("127.0.0.1")
    port = listener.socket.getsockname()[1]
    given = [trio.SSLListener(listener, server_context())]
    async with broker(listeners=given, events=send) as handle:
        assert handle.addresses == (f"127.0.0.1:{port}",)
        trusted = authority().client_context()
        async with open_client(f"stomps://localhost:{port}", ssl_context=trusted) as client:
            assert client.is_connected
    assert "from 127.0.0.1:" in receive.receive_nowait().detail


@pytest.mark.parametrize("tells", [True, False])
async def test_client_on_an_unknown_kind_of_stream_must_log_in(tells: bool) -> None:
    listener = await tcp_listener("127.0.0.1")
    port = listener.socket.getsockname()[1]
    async with broker(listeners=[Wrapped(listener, tells=tells)]):
        async with open_peer(await trio.open_tcp_stream("127.0.0.1", port)) as peer:
            await peer.send.send(frames.connect())
            answer = await peer.receive.receive()
    if tells:
        assert answer.command == "CONNECTED"
    else:
        assert answer.get("code") == "authentication-required"


async def test_a_unix_socket_is_of_this_machine(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as raw:
        raw.bind(str(tmp_path / "s"))
        raw.listen()
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(raw))
        async with broker(listeners=[listener]) as handle:
            assert handle.addresses == ("unix",)
            async with open_peer(await trio.open_unix_socket(tmp_path / "s")) as peer:
                await peer.send.send(frames.connect())
                assert (await peer.receive.receive()).command == "CONNECTED"


# --- connections in memory ------------------------------------------------------------------------


async def test_the_client_connects_in_memory() -> None:
    async with broker() as handle, open_client(handle.connect) as client:
        assert handle.addresses == ()
        async with client.subscribe("/a") as messages:
            await client.send("/a", "hello")
            assert (await messages.receive()).text == "hello"


async def test_connect_fails_when_no_broker_runs() -> None:
    with pytest.raises(ConnectionRefusedError, match="is not accepting connections"):
        await ServerHandle(()).connect()
    async with broker() as handle:
        await (await handle.connect()).aclose()
    with pytest.raises(ConnectionRefusedError):
        await handle.connect()
    with pytest.raises(ConnectFailed, match="is not accepting connections"):
        async with open_client(handle.connect, reconnect=None):
            raise AssertionError


async def test_connect_fails_after_a_hard_stop() -> None:
    async with trio.open_nursery() as nursery:
        handle = await nursery.start(partial(serve, Settings.of(**QUIET), listeners=[]))
        stream = await handle.connect()
        nursery.cancel_scope.cancel()
    with pytest.raises(ConnectionRefusedError):
        await handle.connect()
    assert await stream.receive_some() == b""


async def test_a_connection_in_memory_is_bounded_and_a_slow_reader_slow(autojump_clock) -> None:
    """Unread frames wait in the outbox, which is bounded, not in the stream."""
    settings = Settings.of(**QUIET, max_outbox_bytes=100_000, slow_consumer="disconnect")
    async with broker(settings) as handle:
        silent = await handle.connect()
        await silent.send_all(
            frames.encode(frames.connect()) + frames.encode(frames.subscribe("/a", id="1"))
        )
        async with joined(handle) as peer:
            for number in count():
                await ask(peer, frames.send("/a", bytes(50_000)), f"{number}")
                if number > 30:
                    break
        data = b""
        while part := await silent.receive_some():
            data += part
    # The stream holds 1 MiB, the outbox 100 kB.
    assert 1_000_000 < len(data) < 1_500_000


# --- the end in order (the seed's C3) -------------------------------------------------------------


@pytest.mark.parametrize("way", ["memory", "network"])
async def test_messages_before_a_stop_are_delivered_and_clients_see_a_clean_end(
    way: str,
) -> None:
    many = 50
    send, receive = trio.open_memory_channel[ServerEvent](1000)
    values = {"listeners": None} if way == "network" else {}

    async def dial() -> trio.abc.Stream:
        if way == "memory":
            return await handle.connect()
        host, port = handle.addresses[0].split(":")
        return await trio.open_tcp_stream(host, int(port))

    async with broker(Settings.of(**QUIET, port=0), events=send, **values) as handle:
        async with open_peer(await dial()) as reader, open_peer(await dial()) as writer:
            for peer in (reader, writer):
                await peer.send.send(frames.connect())
                assert (await peer.receive.receive()).command == "CONNECTED"
            for number in range(10):
                await ask(reader, frames.subscribe(f"/t/{number}", id=f"{number}"))
            for number in range(many):
                await writer.send.send(frames.send(f"/t/{number % 10}", b"%d" % number))
            # A client that ends cleanly has sent everything, but the broker may not have read it
            # yet.
            await writer.shutdown()
            bodies = [(await reader.receive.receive()).body for _ in range(many)]
            handle.stop()
            rest = [frame async for frame in reader.receive]
            assert bodies == [b"%d" % number for number in range(many)]
            assert rest == []
            assert reader.error is writer.error is None
    kinds = [event.kind async for event in receive]
    assert kinds[-12:] == [*["subscription-stop"] * 10, "disconnect", "stop"]


async def test_a_client_that_ends_its_stream_loses_nothing_and_its_subscriptions() -> None:
    send, receive = trio.open_memory_channel[ServerEvent](1000)
    async with broker(events=send) as handle, joined(handle) as reader:
        await ask(reader, frames.subscribe("/t", id="1"))
        stream = await handle.connect()
        sent = [frames.send("/t", b"%d" % number) for number in range(300)]
        values = [frames.connect(), frames.subscribe("/mine", id="1"), *sent]
        await stream.send_all(b"".join(frames.encode(each) for each in values))
        await stream.aclose()
        bodies = [(await reader.receive.receive()).body for _ in range(300)]
        assert bodies == [each.body for each in sent]
        with trio.fail_after(5):
            while (event := await receive.receive()).kind != "subscription-stop":
                pass
        assert event.destination == "/mine"


# --- TLS ------------------------------------------------------------------------------------------


def server_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority().certificate)
    return context


async def test_with_a_context_the_port_speaks_tls_alone() -> None:
    context = server_context()
    async with broker(Settings.of(**QUIET, port=0), listeners=None, ssl_context=context) as handle:
        assert handle.addresses == ()
        (address,) = handle.tls_addresses
        trusted = authority().client_context()
        url = f"stomps://{address.replace('127.0.0.1', 'localhost')}"
        async with open_client(url, ssl_context=trusted) as client:
            assert client.is_connected
        host, port = address.split(":")
        async with open_peer(await trio.open_tcp_stream(host, int(port))) as plain:
            await plain.send.send(frames.connect())
            assert frames.needed(await plain.receive.receive(), "code") == "tls-required"
        # It is the program's own: to read files again leaves it alone.
        await handle.reload()
        async with open_client(url, ssl_context=trusted) as client:
            assert client.is_connected
        # Connections within the program are not encrypted.
        async with joined(handle):
            pass


async def test_a_context_for_clients_is_refused() -> None:
    with pytest.raises(OptionError, match="ssl_context is for clients; create it with"):
        await serve(Settings.of(port=0), ssl_context=ssl.create_default_context())


async def test_a_context_and_a_file_are_too_many(tmp_path: Path) -> None:
    issue(authority(), tmp_path / "b.pem")
    settings = Settings.of(port=0, tls_cert=str(tmp_path / "b.pem"))
    with pytest.raises(OptionError, match="tls_cert, or ssl_context: not both"):
        await serve(settings, ssl_context=server_context())


# --- session ids ----------------------------------------------------------------------------------


async def test_session_ids_of_the_programs_own() -> None:
    numbers = count(1)
    send, receive = trio.open_memory_channel[ServerEvent](10)
    made = lambda: f"shop-{next(numbers)}"  # noqa: E731
    async with broker(new_session_id=made, events=send) as handle:
        for number in (1, 2):
            async with open_peer(await handle.connect()) as peer:
                await peer.send.send(frames.connect())
                assert (await peer.receive.receive()).get("session") == f"shop-{number}"
                assert (await receive.receive()).session_id == f"shop-{number}"
                await peer.shutdown()
            await receive.receive()


@pytest.mark.parametrize("wrong", ["", "a b", "a\n", "ü", "x" * 129, None, 7])
async def test_wrong_session_ids_cost_the_connection_and_are_logged(wrong: object) -> None:
    logger, result = new_logger(logging.ERROR)
    async with broker(new_session_id=lambda: wrong, logger=logger) as handle:
        async with open_peer(await handle.connect()) as peer:
            await peer.send.send(frames.connect())
            (refused,) = [frame async for frame in peer.receive]
            assert refused.get("code") == "internal-error"
    assert result == ["in-memory is refused: new_session_id failed"]


# --- the log --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def unchanged_log() -> Iterator[None]:
    before = OURS.level, list(OURS.filters)
    yield
    assert (OURS.level, OURS.filters) == before


async def test_each_broker_logs_to_its_own_logger(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    mine, result = new_logger(logging.INFO)
    other, nothing = new_logger(logging.ERROR)
    async with broker(logger=mine) as handle, broker(logger=other) as quiet, broker() as usual:
        for each in (handle, quiet, usual):
            async with joined(each):
                pass
        OURS.info("a word of the program's own, which is not shown")
        OURS.warning("another one, which is")
        await handle.reload()
    assert result == ["tcp in-memory opened: STOMP 1.2", "tcp in-memory closed: client-closed"]
    assert nothing == []
    assert caplog.messages == ["another one, which is"]


async def test_a_live_trace_goes_to_the_given_logger(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    mine, result = new_logger(logging.INFO)
    async with broker(logger=mine) as handle, joined(handle) as peer:
        start = frames.send_string("DIAG/trace", '{"destination": "/a"}')
        await ask(peer, start)
        await ask(peer, frames.send("/a"))
    assert [line for line in result if line.startswith("trace ") and ">>> SEND" in line]
    assert caplog.messages == []


async def test_the_usual_logger_is_as_usual(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with broker(logger=OURS) as handle, joined(handle):
        assert OURS.filters == [], "nothing is switched"
    assert len(caplog.messages) == 2


async def test_a_level_of_the_usual_logger_is_given_back(caplog: pytest.LogCaptureFixture) -> None:
    mine, result = new_logger(logging.DEBUG)
    OURS.setLevel(logging.ERROR)
    try:
        async with broker(logger=mine) as handle, joined(handle):
            OURS.warning("not shown")
            OURS.error("shown")
        assert OURS.level == logging.ERROR
    finally:
        OURS.setLevel(logging.NOTSET)
    assert caplog.messages == ["shown"]
    assert result


# --- run ------------------------------------------------------------------------------------------


@pytest.fixture
def gentle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo the setup of the process by ``run``, which must not affect the tests."""
    for name in ("set_up_log", "set_up_garbage_collection", "set_up_threads"):
        monkeypatch.setattr(_run, name, lambda *_: None)
    monkeypatch.setattr(_run, "raise_file_limit", lambda _: None)


@pytest.mark.usefixtures("gentle")
def test_run_ends_with_a_signal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    class Stop(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "listening on" in record.getMessage():
                signal.raise_signal(signal.SIGTERM)

    stop = Stop()
    logging.getLogger("trio_stomp").addHandler(stop)
    try:
        run(port=0, ttl_ms=5000)
    finally:
        logging.getLogger("trio_stomp").removeHandler(stop)
    assert "ttl 5000 ms" in caplog.messages[0]
    assert caplog.messages[1].startswith("stopping: got SIGTERM")


@pytest.mark.usefixtures("gentle")
def test_run_raises_the_cause_of_a_failed_start() -> None:
    with pytest.raises(OptionError, match="ttl"):
        run(ttl=1)
    with pytest.raises(OptionError, match="is reachable"):
        run(host="0.0.0.0", port=0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError) as caught:
            run(port=taken.getsockname()[1])
    assert "choose another --port" in "".join(caught.value.__notes__)


def test_run_default_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, object]] = []
    monkeypatch.setattr(_run, "run", lambda **settings: reported.append(settings))
    run_default()
    assert reported == [{}]


def test_a_program_that_only_runs_a_broker() -> None:
    program = "import trio_stomp; trio_stomp.run(port=0); print('stopped')"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert "listening on 127.0.0.1:" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "stopped\n"
    assert process.returncode == 0


# --- the page -------------------------------------------------------------------------------------

EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SAID = [
    "listening\nCONNECTED MESSAGE\n",
    "connect\nsubscription-start /topic/news\nsubscription-stop /topic/news\ndisconnect\nstop\n",
    "CONNECTED hello\n",
    "secret",
    "hello\n",
]


@pytest.mark.parametrize(("example", "expected"), list(zip(EXAMPLES, SAID, strict=True)))
async def test_the_examples_of_the_page(
    example: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, object] = {"CERTIFICATE": authority().certificate}
    exec(compile(textwrap.dedent(example), "docs/use/embedding.md", "exec"), names)
    with trio.fail_after(30):
        await names["main"]()  # type: ignore[operator]
    assert capsys.readouterr().out == expected


def test_the_page_tells_of_all_kinds_of_events() -> None:
    kinds = ServerEvent.__annotations__["kind"].__args__
    assert [kind for kind in kinds if f"`{kind}`" not in PAGE] == []


@pytest.mark.parametrize("name", ["Frame", "Peer", "memory_pipe", "open_peer", "ServerEvent"])
def test_public_names(name: str) -> None:
    assert name in dir(trio_stomp)
    assert getattr(trio_stomp, name).__module__.startswith("trio_stomp.")
    assert trio_stomp.run is trio_stomp.cli.run
