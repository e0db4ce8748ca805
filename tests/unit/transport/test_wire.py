"""Bytes of one connection: real sockets, driven without waiting, and any other Trio stream."""

import socket
import ssl

import pytest
import trio
from trio.testing import lockstep_stream_pair, memory_stream_pair, wait_all_tasks_blocked

from tests.support.fakes import until
from tests.support.wires import note_sent, reset, socket_pair
from trio_stomp.testing import Link
from trio_stomp.transport import SocketWire, StreamWire, wire_over
from trio_stomp.transport import memory_stream_pair as bounded_pair
from trio_stomp.transport.wire import MAX_BEHIND

MAX_LAYERS = 8


async def test_a_socket_gets_a_socket_wire() -> None:
    async with socket_pair() as (wire, peer):
        assert isinstance(wire, SocketWire)
        host, port = peer.socket.getsockname()
        assert wire.remote == f"{host}:{port}"
        assert wire.is_loopback
        assert wire._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert wire._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not wire._socket.getblocking()


async def test_a_socket_wire_sends_and_receives() -> None:
    async with socket_pair() as (wire, peer):
        await peer.send_all(b"ping")
        assert await wire.receive_some(100) == b"ping"
        assert wire.send_nowait(b"pong") == 4
        assert await peer.receive_some() == b"pong"
        assert await wire.wait_sent(memoryview(b"more")) == 4
        assert await peer.receive_some() == b"more"


async def test_pieces_are_sent_as_if_they_were_joined() -> None:
    async with socket_pair() as (wire, peer):
        assert wire.gathers
        behind: list[bytes | memoryview] = [memoryview(b"-b-")[1:], *[b"c"] * (MAX_BEHIND - 1)]
        assert wire.send_nowait(b"a", behind) == 1 + 2 + MAX_BEHIND - 1
        assert await peer.receive_some() == b"ab-" + b"c" * (MAX_BEHIND - 1)


async def test_a_socket_accepts_as_much_of_the_pieces_as_it_has_room_for() -> None:
    async with socket_pair(buffer_bytes=4096) as (wire, peer):
        pieces = [b"%d" % number * 40_000 for number in range(10)]
        sent = wire.send_nowait(pieces[0], pieces[1:])
        assert 0 < sent < 400_000
        wire_bytes = b"".join(pieces)[:sent]
        received = bytearray()
        while len(received) < sent:
            received += await peer.receive_some()
        assert received == wire_bytes


async def test_reading_waits_and_can_be_cancelled_without_loss() -> None:
    async with socket_pair() as (wire, peer):
        with trio.move_on_after(0):
            await wire.receive_some(100)
        await peer.send_all(b"kept")
        with trio.CancelScope() as scope:
            scope.cancel()
            await trio.lowlevel.checkpoint()
        assert await wire.receive_some(100) == b"kept"


async def test_a_full_socket_takes_nothing_and_then_again(nursery: trio.Nursery) -> None:
    async with socket_pair() as (wire, peer):
        sent = 0
        while taken := wire.send_nowait(b"x" * 65536):
            sent += taken
        got = 0
        results: list[int] = []
        nursery.start_soon(note_sent, wire, b"y" * 65536, results)
        with trio.fail_after(5):
            while not results:
                got += len(await peer.receive_some(65536))
            assert results[0] > 0
            while got < sent + results[0]:
                got += len(await peer.receive_some(65536))


async def test_bytes_not_taken_by_the_peer_are_known() -> None:
    async with socket_pair(4096) as (wire, peer):
        assert wire.untaken() == 0
        sent = 0
        while taken := wire.send_nowait(b"x" * 65536):
            sent += taken
        before = wire.untaken()
        assert 0 < before <= sent
        got = 0
        while got < sent:
            got += len(await peer.receive_some(65536))
        await until(lambda: wire.untaken() == 0, 0.01)
        await wire.aclose()
        assert wire.untaken() == 0


async def test_the_end_of_the_peers_data_leaves_the_other_direction_open() -> None:
    async with socket_pair() as (wire, peer):
        await peer.send_eof()
        assert await wire.receive_some(100) == b""
        assert wire.send_nowait(b"still there") == 11
        assert await peer.receive_some() == b"still there"
        await wire.send_eof()
        assert await peer.receive_some() == b""


async def test_a_reset_is_a_broken_resource() -> None:
    async with socket_pair() as (wire, peer):
        reset(peer)
        with pytest.raises(trio.BrokenResourceError), trio.fail_after(5):
            await wire.receive_some(100)
        with pytest.raises(trio.BrokenResourceError):
            wire.send_nowait(b"x")
        with pytest.raises(trio.BrokenResourceError):
            await wire.send_eof()


@pytest.mark.parametrize("doing", ["receive", "send"])
async def test_closing_ends_a_waiting_read_or_send(doing: str, nursery: trio.Nursery) -> None:
    async with socket_pair(4096) as (wire, _peer):
        while doing == "send" and wire.send_nowait(b"x" * 65536):
            pass
        ended = trio.Event()

        async def wait() -> None:
            waiting = wire.wait_sent(b"x") if doing == "send" else wire.receive_some(1)
            with pytest.raises(trio.BrokenResourceError):
                await waiting
            ended.set()

        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        await wire.aclose()
        with trio.fail_after(5):
            await ended.wait()
        await wire.aclose()  # and again


async def test_a_peer_that_was_gone_before_it_was_accepted() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        peer = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        reset(peer)
        served = await listener.accept()
    wire = wire_over(served)
    with pytest.raises(trio.BrokenResourceError), trio.fail_after(5):
        await wire.receive_some(10)
    await wire.aclose()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1"])
async def test_loopback_is_recognised(host: str) -> None:
    try:
        listeners = await trio.open_tcp_listeners(0, host=host)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    listener = listeners[0]
    async with listener:
        port = listener.socket.getsockname()[1]
        peer = await trio.open_tcp_stream(host, port)
        wire = wire_over(await listener.accept())
    assert wire.is_loopback
    expected = f"[{host}]:" if ":" in host else "127.0.0.1:"
    assert wire.remote.startswith(expected)
    await wire.aclose()
    await peer.aclose()


class FarSocket(trio.socket.SocketType):
    """A connected socket whose peer has an address chosen by the test."""

    type = socket.SOCK_STREAM

    def __init__(self, peer: object) -> None:
        self.peer = peer

    def setsockopt(self, *_: object) -> None:
        """Accept any option."""

    def getpeername(self) -> object:
        if isinstance(self.peer, OSError):
            raise self.peer
        return self.peer


class Plain(trio.abc.Stream):
    """One end of a pair in memory, which cannot be half-closed."""

    def __init__(self) -> None:
        self.inner, self.peer = memory_stream_pair()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        raise NotImplementedError

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self.inner.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self.inner.aclose()


class Around(Plain):
    """A stream around another one, with no other attribute."""

    def __init__(self, inner: object) -> None:
        super().__init__()
        if inner is not None:
            self.transport_stream = inner


FAR = ("192.0.2.7", 4711)


@pytest.mark.parametrize(
    ("peer", "origin"),
    [
        (FAR, ("192.0.2.7:4711", False)),
        (("2001:db8::7", 4711, 0, 0), ("[2001:db8::7]:4711", False)),
        (("127.0.0.9", 4711), ("127.0.0.9:4711", True)),
        ("/run/socket", ("unix", True)),
        (OSError(), ("unknown", False)),
    ],
)
@pytest.mark.parametrize("layers", [1, 2])
async def test_a_stream_around_a_socket_is_where_the_socket_is(
    peer: object, origin: tuple[str, bool], layers: int
) -> None:
    stream: trio.abc.Stream = trio.SocketStream(FarSocket(peer))
    for _ in range(layers):
        stream = trio.SSLStream(stream, ssl.create_default_context())
    wire = wire_over(stream)
    assert isinstance(wire, StreamWire)
    assert (wire.remote, wire.is_loopback) == origin


async def test_only_streams_known_to_be_in_memory_count_as_local() -> None:
    far = trio.SocketStream(FarSocket(FAR))
    one, other = memory_stream_pair()
    link_end = Link("a").ends()[1]
    turned = trio.StapledStream(lockstep_stream_pair()[0], bounded_pair()[1])
    for ours in (one, lockstep_stream_pair()[1], bounded_pair()[0], link_end, turned, Around(one)):
        wire = wire_over(ours)
        assert (wire.remote, wire.is_loopback) == ("in-memory", True), ours
    around_itself = Around(None)
    around_itself.transport_stream = around_itself
    deep: trio.abc.Stream = other
    for _ in range(MAX_LAYERS):
        deep = Around(deep)
    half_far = (trio.StapledStream(one, far), trio.StapledStream(far, one))
    for theirs in (Around(None), Around(5), *half_far, around_itself, deep):
        wire = wire_over(theirs)
        assert (wire.remote, wire.is_loopback) == ("unknown", False), theirs


async def test_a_stream_that_is_no_socket_becomes_a_wire() -> None:
    ours, theirs = memory_stream_pair()
    wire = wire_over(theirs)
    assert isinstance(wire, StreamWire)
    assert wire.is_loopback
    assert wire.send_nowait(b"x") == 0
    assert await wire.wait_sent(memoryview(b"hello")) == 5
    assert await ours.receive_some() == b"hello"
    await ours.send_all(b"answer")
    data = await wire.receive_some(100)
    assert (data, type(data)) == (b"answer", bytes)
    await wire.send_eof()
    assert await ours.receive_some() == b""
    await wire.aclose()
    with pytest.raises(trio.BrokenResourceError):
        await wire.receive_some(1)
    with pytest.raises(trio.BrokenResourceError):
        await wire.wait_sent(b"x")


async def test_a_stream_that_cannot_be_half_closed() -> None:
    stream = Plain()
    wire = wire_over(stream)
    await wire.send_eof()
    assert await wire.wait_sent(b"after all") == 9
    assert await stream.peer.receive_some() == b"after all"
    await wire.aclose()
    assert await stream.peer.receive_some() == b""


async def test_a_stream_waits_until_its_peer_reads(nursery: trio.Nursery) -> None:
    ours, theirs = lockstep_stream_pair()
    wire = wire_over(theirs)
    results: list[int] = []
    nursery.start_soon(note_sent, wire, b"x" * 100, results)
    for reads, expected in ((0, []), (99, []), (1, [100])):
        if reads:
            await ours.receive_some(reads)
        await wait_all_tasks_blocked()
        assert results == expected
