# ruff: noqa: PT012
"""trio_stomp.peer: frames over any stream, its end, and the errors at both sides."""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio
import trio.testing
from _oracle.strategies import frames_of
from hypothesis import given
from hypothesis import strategies as st

from tests.support.client_fakes import BreakingStream
from trio_stomp import Frame, OptionError, Peer, memory_pipe, open_peer
from trio_stomp.base import FrameError, ProtocolError
from trio_stomp.frames import FrameDecoder, FrameLimits, HeadCache, Side
from trio_stomp.peer import IncompleteFrame, frames
from trio_stomp.peer.frames import rules_of
from trio_stomp.transport import MemoryStream, memory_stream_pair

Pair = tuple[Peer, trio.abc.HalfCloseableStream]


@asynccontextmanager
async def memory(**options: object) -> AsyncIterator[Pair]:
    """A peer, and the raw far end of its stream."""
    ours, theirs = memory_stream_pair()
    async with open_peer(ours, linger_s=0, **options) as peer:  # type: ignore[arg-type]
        yield peer, theirs


@asynccontextmanager
async def network(**options: object) -> AsyncIterator[Pair]:
    """The same over TCP."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        ours = await trio.testing.open_stream_to_socket_listener(listener)
        theirs = await listener.accept()
    async with theirs, open_peer(ours, linger_s=0, **options) as peer:  # type: ignore[arg-type]
        yield peer, theirs


both = pytest.mark.parametrize("joined", [memory, network])
Joined = Callable[..., AbstractAsyncContextManager[Pair]]


async def read_all(stream: trio.abc.ReceiveStream) -> bytes:
    data = b""
    with trio.fail_after(5):
        while part := await stream.receive_some():
            data += part
    return data


async def received(peer: Peer) -> list[Frame]:
    with trio.fail_after(5):
        return [frame async for frame in peer.receive]


# --- frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "wire"),
    [
        (
            frames.connect("me", "secret"),
            b"CONNECT\naccept-version:1.2\nhost:localhost\nlogin:me\npasscode:secret\n\n\0\n",
        ),
        (frames.connect(versions="", headers={"a:b": "c"}), None),
        (
            frames.connect(versions="", host="", headers={"heart-beat": "1,2"}),
            b"CONNECT\nheart-beat:1,2\n\n\0\n",
        ),
        (frames.connect(passcode="a:b\\c"), b"a:b\\c\n\n\0\n"),
        (frames.connected("7"), b"CONNECTED\nversion:1.2\nsession:7\n\n\0\n"),
        (frames.connected(version="", headers=[("x", "y")]), b"CONNECTED\nx:y\n\n\0\n"),
        (frames.send("/a:b"), b"SEND\ndestination:/a\\cb\n\n\0\n"),
        (
            frames.send("/a", b"x\0y", {"content-length": "9"}),
            b"SEND\ndestination:/a\ncontent-length:3\n\nx\0y\0\n",
        ),
        (
            frames.send_string("/a", "ü"),
            b"SEND\ndestination:/a\ncontent-type:text/plain\ncontent-length:2\n\n\xc3\xbc\0\n",
        ),
        (
            frames.send_string("/a", "1", {"content-type": "text/csv"}),
            b"SEND\ndestination:/a\ncontent-type:text/csv\ncontent-length:1\n\n1\0\n",
        ),
        (
            frames.subscribe("/a", id="1", ack="client", headers={"selector": "b = 1"}),
            b"SUBSCRIBE\nid:1\ndestination:/a\nack:client\nselector:b = 1\n\n\0\n",
        ),
        (frames.subscribe("/a"), b"SUBSCRIBE\ndestination:/a\n\n\0\n"),
        (frames.unsubscribe("/a"), b"UNSUBSCRIBE\ndestination:/a\n\n\0\n"),
        (frames.unsubscribe(id="1", headers={"a": ""}), b"UNSUBSCRIBE\nid:1\na:\n\n\0\n"),
        (frames.disconnect(), b"DISCONNECT\n\n\0\n"),
        (frames.disconnect("9"), b"DISCONNECT\nreceipt:9\n\n\0\n"),
        (frames.error("no"), b"ERROR\nmessage:no\n\n\0\n"),
        (frames.error("no", "never"), b"content-length:6\n\nnever\n\0\n"),
        (Frame("ACK", (("id", "1"),)), b"ACK\nid:1\n\n\0\n"),
    ],
)
def test_encoding_of_a_frame(frame: Frame, wire: bytes | None) -> None:
    if wire is None:
        with pytest.raises(OptionError, match="the header 'a:b' has no name, or holds"):
            frames.encode(frame)
    else:
        assert frames.encode(frame).endswith(wire)


def test_an_error_quotes_the_frame_without_its_secrets() -> None:
    refused = Frame("SEND", (("login", "me"), (" Passcode", "s3cret"), ("x", "\0")))
    error = frames.error("no", "never", refused)
    assert error.body == (b"The frame\n-----\nSEND\nlogin:me\n Passcode:***\nx:?\n-----\nnever\n")
    long = frames.error("no", frame=frames.send("/" + "x" * 5000))
    assert len(long.body) < 600
    assert b"s3cret" not in frames.error("no", frame=frames.connect("", "s3cret")).body


@pytest.mark.parametrize(
    ("frame", "version", "why"),
    [
        (Frame("SEND\nx:y", ()), "1.2", "is no command"),
        (Frame("", ()), "1.2", "is no command"),
        (Frame("S" * 33, ()), "1.2", "is no command"),
        (frames.send("a\0b"), "1.2", "the header 'destination'"),
        (frames.send("a\nb"), "1.0", "what STOMP 1.0 cannot carry"),
        (frames.connect("a\nb"), "1.2", "what STOMP CONNECT cannot carry"),
        (Frame("SEND", (("", "x"),)), "1.2", "the header '' has no name"),
        (Frame("SEND", (), receipt=b"1"), "1.2", "in the headers"),
        (frames.send("a"), "2.0", "version='2.0' must be one of 1.0, 1.1, 1.2"),
    ],
)
def test_invalid_frames_are_refused(frame: Frame, version: str, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        frames.encode(frame, version)


def test_secrets_are_not_in_errors() -> None:
    with pytest.raises(OptionError) as caught:
        frames.encode(frames.connect("me", "s3cret\n"))
    assert "s3cret" not in str(caught.value)


def test_version_1_0_omits_empty_headers() -> None:
    assert frames.encode(Frame("SEND", (("a", ""), ("b", "c"))), "1.0") == b"SEND\nb:c\n\n\0\n"


def test_headers_that_must_be_there() -> None:
    frame = frames.send("/a")
    assert frames.needed(frame, "destination") == "/a"
    with pytest.raises(ProtocolError, match="SEND needs the header id") as caught:
        frames.needed(frame, "id")
    assert caught.value.code == "header-missing"


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


def make_decoder(version: str) -> FrameDecoder:
    return FrameDecoder(FrameLimits(), HeadCache(), rules_of(version), side=Side.EITHER)


some = st.builds(
    Frame,
    st.sampled_from(["SEND", "MESSAGE", "ERROR", "RECEIPT", "NEW"]),
    st.dictionaries(names.filter(lambda name: name != "content-length"), names | st.just(""))
    .map(dict.items)
    .map(tuple),
    st.binary(),
)


@given(some, st.integers(1, 50))
def test_encoded_frame_is_decoded(frame: Frame, step: int) -> None:
    data = b"\n" + frames.encode(frame) + b"\r\n" + frames.encode(frame)
    decoder = make_decoder("1.2")
    came = frames_of(decoder, [data[at : at + step] for at in range(0, len(data), step)])
    assert decoder.error is None
    for got in came:
        assert (got.command, got.body, got.receipt) == (frame.command, frame.body, None)
        assert tuple(each for each in got.headers if each[0] != "content-length") == frame.headers
    assert len(came) == 2


@given(st.binary())
def test_any_bytes_are_frames_or_an_error(data: bytes) -> None:
    decoder = make_decoder("1.2")
    whole = frames_of(decoder, [data])
    again = make_decoder("1.2")
    assert frames_of(again, [bytes([byte]) for byte in data]) == whole
    assert (decoder.error is None) == (again.error is None)


@pytest.mark.parametrize(
    ("version", "wire", "headers"),
    [
        ("1.2", b"MESSAGE\r\na:\\c\r\nreceipt:x\\cy\r\n\r\n\0", (("a", ":"), ("receipt", "x:y"))),
        ("1.1", b"MESSAGE\na:\\c\nreceipt:\nreceipt:2\n\n\0", (("a", ":"), ("receipt", ""))),
        ("1.0", b"MESSAGE\na: \\c\nreceipt: 2\n\n\0", (("a", "\\c"), ("receipt", "2"))),
        ("1.2", b"CONNECTED\na:b:\\c\n\n\0", (("a", "b:\\c"),)),
        ("1.2", b"ACK\nid:1\n\n\0", (("id", "1"),)),
    ],
)
def test_each_version_reads_headers_by_its_rules(
    version: str, wire: bytes, headers: tuple[tuple[str, str], ...]
) -> None:
    (frame,) = frames_of(make_decoder(version), [wire])
    assert frame.headers == headers


# --- a peer ---------------------------------------------------------------------------------------


@both
async def test_frames_go_both_ways_in_order(joined: Joined) -> None:
    async with joined() as (peer, far):
        for number in range(300):
            await peer.send.send(frames.send("/a", b"%d" % number))
            if number == 150:
                await far.send_all(b"\n\nMESSAGE\nsubscription:1\n\nx\0\r\nRECEIPT\nrec")
        await far.send_all(b"eipt-id:2\n\n\0")
        assert (await peer.receive.receive()).body == b"x"
        assert (await peer.receive.receive()).get("receipt-id") == "2"
        peer.send.close()
        with trio.fail_after(5):
            data = b""
            while data.count(b"\0") < 300:
                data += await far.receive_some()
        assert data == b"".join(
            frames.encode(frames.send("/a", b"%d" % number)) for number in range(300)
        )


@both
async def test_data_before_a_clean_end_arrives_without_an_error(joined: Joined) -> None:
    async with joined() as (peer, far):
        for number in range(100):
            await far.send_all(frames.encode(frames.send("/a", b"%d" % number)))
        await far.send_all(b"\n")
        await far.send_eof()
        assert [frame.body for frame in await received(peer)] == [b"%d" % n for n in range(100)]
        with pytest.raises(trio.EndOfChannel):
            await peer.receive.receive()
        assert peer.error is None
        # The other direction is open still.
        await peer.send_and_shutdown(frames.disconnect())
        assert await read_all(far) == b"DISCONNECT\n\n\0\n"
        await peer.shutdown()


@both
@pytest.mark.parametrize("rest", [b"S", b"SEND\n", b"SEND\na:b\n\n", b"SEND\n\nabc"])
async def test_an_end_within_a_frame_is_an_error(joined: Joined, rest: bytes) -> None:
    with pytest.raises(IncompleteFrame, match=f"of which {len(rest)} bytes had come") as caught:
        async with joined() as (peer, far):
            await far.send_all(frames.encode(frames.send("/a", b"whole")) + rest)
            await far.send_eof()
            assert [frame.body for frame in await received(peer)] == [b"whole"]
            assert isinstance(peer.error, IncompleteFrame)
            assert peer.error.held_bytes == len(rest)
    assert caught.value.code == "incomplete-frame"


@both
async def test_an_invalid_frame_is_an_error_after_earlier_frames(joined: Joined) -> None:
    async with joined() as (peer, far):
        await far.send_all(frames.encode(frames.send("/a", b"1")) + b"SEND\nno colon\n\n\0")
        assert [frame.body for frame in await received(peer)] == [b"1"]
        assert peer.error is not None
        # It can still be answered.
        with pytest.raises(FrameError, match="no colon") as caught:
            await peer.send_and_shutdown(frames.error("no"))
        assert caught.value is peer.error
        assert await read_all(far) == b"ERROR\nmessage:no\n\n\0\n"
        # It was told, once.
        await peer.shutdown()


async def test_a_frame_over_a_limit_is_an_error() -> None:
    with pytest.raises(FrameError, match="max_body_bytes"):
        async with memory(limits=FrameLimits(max_body_bytes=10)) as (peer, far):
            await far.send_all(frames.encode(frames.send("/a", bytes(11))))
            assert await received(peer) == []


async def test_the_error_is_raised_in_place_of_the_end_of_a_channel() -> None:
    with pytest.raises(FrameError, match="does not begin a STOMP frame") as caught:
        async with memory() as (peer, far):
            await far.send_all(b"x" * 100)
            await peer.receive.receive()
    assert isinstance(caught.value.__cause__, trio.EndOfChannel)


async def test_the_end_of_a_channel_comes_out_where_there_is_no_error() -> None:
    with pytest.raises(trio.EndOfChannel):
        async with memory() as (peer, far):
            await far.send_eof()
            await peer.receive.receive()


async def test_exception_of_the_block_is_not_wrapped() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with memory() as (peer, far):
            await far.send_all(b"x" * 100)
            await received(peer)
            raise KeyError("mine")


async def test_several_errors_stay_a_group() -> None:
    with pytest.raises(BaseExceptionGroup):
        async with memory():
            raise ExceptionGroup("two", [KeyError(1), KeyError(2)])


async def test_a_lost_connection_is_an_error_after_earlier_frames() -> None:
    broken = BreakingStream(frames.encode(frames.send("/a", b"1")), takes=False)
    with pytest.raises(trio.BrokenResourceError, match="reset"):
        async with open_peer(broken) as peer:
            assert [frame.body for frame in await received(peer)] == [b"1"]


async def test_a_connection_that_is_lost_within_a_frame_says_so() -> None:
    with pytest.raises(IncompleteFrame) as caught:
        async with open_peer(BreakingStream(b"SEND\n", takes=False)) as peer:
            assert await received(peer) == []
    assert caught.value.held_bytes == 5


async def test_frames_that_cannot_be_sent_are_an_error_and_received_ones_stay() -> None:
    with pytest.raises(trio.BrokenResourceError, match="other end"):
        async with memory() as (peer, far):
            await far.send_all(frames.encode(frames.error("you", "are out")))
            await far.aclose()
            await peer.send.send(frames.send("/a"))
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BrokenResourceError):
                await peer.send.send(frames.send("/b"))
            assert [frame.command for frame in await received(peer)] == ["ERROR"]


@pytest.mark.parametrize("is_told", [False, True])
async def test_unsendable_last_frame_is_reported(is_told: bool) -> None:
    async with memory() as (peer, far):
        await far.aclose()
        await peer.send.send(frames.send("/a"))
        await trio.testing.wait_all_tasks_blocked()
        if is_told:
            with pytest.raises(trio.BrokenResourceError, match="other end"):
                peer.check()
        with pytest.raises(trio.BrokenResourceError, match=None if is_told else "other end"):
            await peer.send_and_shutdown(frames.send("/b"))
        if not is_told:
            with pytest.raises(trio.ClosedResourceError):
                await peer.send_and_shutdown(frames.send("/b"))


async def test_a_frame_that_cannot_be_written_is_the_callers_error() -> None:
    ours, theirs = memory_stream_pair()
    with pytest.raises(OptionError, match="the header 'destination'"):
        async with open_peer(ours, linger_s=0) as peer:
            for name in ("/a", "/b", "/\0", "/c"):
                peer.send.send_nowait(frames.send(name))
    assert await read_all(theirs) == frames.encode(frames.send("/a")) + frames.encode(
        frames.send("/b")
    )


async def test_a_stream_that_was_closed_from_elsewhere_is_an_error() -> None:
    ours, _theirs = memory_stream_pair()
    with pytest.raises(trio.ClosedResourceError):
        async with open_peer(ours) as peer:
            await ours.aclose()
            assert await received(peer) == []


# --- bounds ---------------------------------------------------------------------------------------


async def test_peer_that_does_not_receive_blocks_the_other_side() -> None:
    ours, theirs = memory_stream_pair(1)
    data = frames.encode(frames.send("/a"))
    async with open_peer(ours, max_frames=2, linger_s=0) as peer:
        sent = 0
        with trio.move_on_after(1) as scope:
            trio.lowlevel.spawn_system_task(until_blocked, scope)
            for sent in range(100):  # noqa: B007
                await theirs.send_all(data)
        # Two wait, one is in the reader's hand, and a byte is under way.
        assert sent == 3
        assert peer.receive.statistics().current_buffer_used == 2


async def until_blocked(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


async def test_a_slow_peer_blocks_the_sender() -> None:
    ours, theirs = memory_stream_pair(1)
    scope = trio.CancelScope()
    async with open_peer(ours, linger_s=0) as peer:
        trio.lowlevel.spawn_system_task(until_blocked, scope)
        sent = 0
        with scope:
            while True:
                await peer.send.send(frames.send("/a", bytes(70_000)))
                sent += 1
        assert sent == 129
        with trio.move_on_after(0):
            await peer.shutdown()  # hard, for it cannot wait
        await theirs.aclose()
    assert scope.cancelled_caught


async def test_frames_that_are_not_wanted_are_no_error() -> None:
    async with memory() as (peer, far):
        peer.receive.close()
        await far.send_all(frames.encode(frames.send("/a")))
        await trio.testing.wait_all_tasks_blocked()
        await peer.send_and_shutdown(frames.disconnect())
        assert await read_all(far) == b"DISCONNECT\n\n\0\n"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"max_frames": -1}, "max_frames=-1 must be a number, 0 or more"),
        ({"max_frames": math.inf}, "max_frames=inf must be a number, 0 or more"),
        ({"version": "3"}, "version='3' must be one of"),
    ],
)
async def test_options_that_cannot_be(options: dict[str, object], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        async with memory(**options):
            raise AssertionError


async def test_without_room_a_frame_is_handed_over() -> None:
    async with memory_pipe(max_frames=0) as (one, other), trio.open_nursery() as nursery:
        nursery.start_soon(one.send.send, frames.send("/a"))
        assert (await other.receive.receive()).get("destination") == "/a"


# --- the end in order -----------------------------------------------------------------------------


@both
async def test_a_shutdown_sends_all_that_waits(joined: Joined) -> None:
    async with joined() as (peer, far):
        for number in range(128):
            peer.send.send_nowait(frames.send("/a", b"%d" % number))
        await peer.shutdown()
        assert (await read_all(far)).count(b"\0") == 128


@both
async def test_received_frames_are_available_after_a_shutdown(joined: Joined) -> None:
    async with joined() as (peer, far):
        await far.send_all(frames.encode(frames.send("/a", b"1")) * 3)
        while peer.receive.statistics().current_buffer_used < 3:
            await trio.lowlevel.checkpoint()
        await peer.shutdown()
        assert len(await received(peer)) == 3


async def test_a_shutdown_waits_for_the_other_side_but_not_for_ever(autojump_clock) -> None:
    ours, theirs = memory_stream_pair()
    async with open_peer(ours, linger_s=5) as peer:
        await theirs.send_all(b"SEND\n\n")  # half a frame: what is cut off by us is no error
        await peer.shutdown()
        assert trio.current_time() == 5
    ours, theirs = memory_stream_pair()
    async with open_peer(ours, linger_s=5) as peer, trio.open_nursery() as nursery:
        nursery.start_soon(peer.shutdown)
        await theirs.send_all(bytes(100_000))
        await trio.sleep(1)
        await theirs.send_eof()
    assert trio.current_time() == 6


async def test_several_tasks_may_shut_down(autojump_clock) -> None:
    ours, theirs = memory_stream_pair()
    async with open_peer(ours, linger_s=5) as peer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.shutdown)
            nursery.start_soon(peer.shutdown)
        assert trio.current_time() == 5
    assert await read_all(theirs) == b""


async def test_a_shutdown_waits_for_clones(autojump_clock) -> None:
    async with memory_pipe() as (one, other):
        clone = one.send.clone()
        with trio.move_on_after(1) as scope:
            await other.close()
            await one.shutdown()
        assert scope.cancelled_caught
        clone.close()


async def test_a_stream_that_cannot_be_half_closed_is_closed() -> None:
    there, here = trio.testing.memory_stream_one_way_pair()

    class Whole(trio.abc.Stream):
        async def send_all(self, data: bytes | bytearray | memoryview) -> None:
            await there.send_all(data)

        async def receive_some(self, max_bytes: int | None = None) -> bytes:
            await trio.sleep_forever()
            raise AssertionError

        async def wait_send_all_might_not_block(self) -> None:
            raise AssertionError

        async def aclose(self) -> None:
            await there.aclose()

    async with open_peer(Whole()) as peer:
        await peer.send.send(frames.disconnect())
    assert await read_all(here) == b"DISCONNECT\n\n\0\n"


async def test_cancelling_closes_the_stream_at_once() -> None:
    ours, theirs = memory_stream_pair(1)
    with trio.CancelScope() as scope:
        async with open_peer(ours) as peer:
            for _ in range(100):
                peer.send.send_nowait(frames.send("/a"))
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert len(await read_all(theirs)) <= 1
    with pytest.raises(trio.ClosedResourceError):
        peer.send.send_nowait(frames.send("/a"))


@pytest.mark.parametrize("steps", range(12))
async def test_wherever_a_shutdown_is_cancelled_the_stream_is_closed(steps: int) -> None:
    ours, theirs = memory_stream_pair()
    with trio.CancelScope() as scope:
        async with open_peer(ours) as peer, trio.open_nursery() as nursery:
            nursery.start_soon(peer.send_and_shutdown, frames.disconnect())
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            scope.cancel()
    await read_all(theirs)
    with pytest.raises(trio.BrokenResourceError):
        await theirs.send_all(b"x")


# --- two of them ----------------------------------------------------------------------------------


async def test_two_peers_speak() -> None:
    async with memory_pipe() as (client, server):
        await client.send.send(frames.connect("me", "a:b\\c"))
        hello = await server.receive.receive()
        assert frames.needed(hello, "passcode") == "a:b\\c"
        await server.send.send(frames.connected("1:\\"))
        assert (await client.receive.receive()).get("session") == "1:\\"
        odd = frames.send("/a:\\\r\n", b"\0\n", {"receipt": "a:b", "": "x"} | {"k": "v"})
        with pytest.raises(OptionError):
            frames.encode(odd)
        await client.send.send(frames.send("/a:\\\r\n", b"\0\n", {"receipt": "a:b"}))
        message = await server.receive.receive()
        assert (message.get("destination"), message.body) == ("/a:\\\r\n", b"\0\n")
        assert message.get("receipt") == "a:b"
        # A received message can be sent on unchanged.
        await server.send.send(message)
        assert (await client.receive.receive()) == message


async def test_the_pipe_ends_without_waiting(autojump_clock) -> None:
    async with memory_pipe() as (client, server):
        for peer in (client, server):
            for _ in range(100):
                peer.send.send_nowait(frames.send("/a"))
    assert trio.current_time() == 0
    assert client.error is server.error is None


async def test_an_error_of_one_comes_out_of_the_pipe() -> None:
    with pytest.raises(OptionError):
        async with memory_pipe() as (client, _server):
            await client.send.send(Frame("", ()))


# --- streams in memory ----------------------------------------------------------------------------


async def make_pair() -> tuple[MemoryStream, MemoryStream]:
    return memory_stream_pair()


async def make_full_pair() -> tuple[MemoryStream, MemoryStream]:
    ours, theirs = memory_stream_pair(3)
    await ours.send_all(b"abc")
    await theirs.send_all(b"abc")
    return ours, theirs


async def test_they_are_streams_as_trio_wants_them() -> None:
    await trio.testing.check_half_closeable_stream(make_pair, make_full_pair)


@pytest.mark.parametrize("wrong", [0, -1])
async def test_the_most_to_receive_is_a_number(wrong: int) -> None:
    ours, _theirs = memory_stream_pair()
    with pytest.raises(ValueError, match="max_bytes"):
        await ours.receive_some(wrong)
    with pytest.raises(TypeError, match="max_bytes"):
        await ours.receive_some(1.5)  # type: ignore[arg-type]


async def test_an_exactly_full_stream_does_not_wait() -> None:
    ours, theirs = memory_stream_pair(3)
    with trio.fail_after(1):
        await ours.send_all(b"abc")
        await ours.send_all(b"")
    with trio.move_on_after(0) as scope:
        await ours.send_all(b"d")
    assert scope.cancelled_caught
    assert await theirs.receive_some(2) == b"ab"
    await ours.aclose()
    assert await theirs.receive_some() == b"c"
    assert await theirs.receive_some() == b""
