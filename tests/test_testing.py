"""trio_stomp.testing: links and their faults, the brokers for tests, the fixtures."""

import math
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from importlib.metadata import entry_points

import pytest
import trio
import trio.testing
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import trio_stomp.testing
from trio_stomp import OptionError, Settings
from trio_stomp.client import ConnectFailed
from trio_stomp.testing import (
    Faults,
    Link,
    TestBroker,
    ThreadedBroker,
    _threaded,
    open_test_broker,
    threaded_broker,
)

PLUGIN = "trio_stomp.testing.pytest_plugin"

# Where trio-stomp is installed pytest has found it; a checkout that is only on the path has not.
IS_FOUND = any(each.value == PLUGIN for each in entry_points(group="pytest11"))
pytest_plugins = ["pytester", *([] if IS_FOUND else [PLUGIN])]
ARGUMENTS = ("-p", "no:cacheprovider", *(() if IS_FOUND else ("-p", PLUGIN)))

Ends = tuple[trio.abc.HalfCloseableStream, trio.abc.HalfCloseableStream]

CUT = "the link was cut"
SILENT_S = 3600.0
"""Nothing that a link does takes so long."""


def ends(faults: Faults | None = None) -> Ends:
    return Link("x", faults or Faults()).ends()


async def receive_all(stream: trio.abc.ReceiveStream) -> tuple[list[bytes], bool]:
    """What arrives, piece by piece, and whether it ended by a reset."""
    pieces = []
    try:
        while data := await stream.receive_some():
            pieces.append(bytes(data))
    except trio.BrokenResourceError:
        return pieces, True
    return pieces, False


async def is_silent(stream: trio.abc.ReceiveStream) -> bool:
    with trio.move_on_after(SILENT_S):
        await stream.receive_some()
        return False
    return True


# Links.


@pytest.mark.parametrize("faults", [Faults(), Faults(split_bytes=4000, buffer_bytes=9000)], ids=str)
async def test_an_end_is_a_stream_as_trio_wants_it(faults: Faults) -> None:
    async def make() -> Ends:
        return ends(faults)

    async def make_clogged() -> Ends:
        one, other = ends(evolve(faults, buffer_bytes=10))
        await one.send_all(b"x" * 10)
        await other.send_all(b"x" * 10)
        return one, other

    await trio.testing.check_half_closeable_stream(make, make_clogged)


async def test_two_tasks_must_not_send_at_once_nor_end_what_another_sends() -> None:
    one, _ = ends(Faults(buffer_bytes=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.send_all, b"xx")
        await trio.testing.wait_all_tasks_blocked()
        for use in (partial(one.send_all, b"x"), one.wait_send_all_might_not_block, one.send_eof):
            with pytest.raises(trio.BusyResourceError):
                await use()
        nursery.cancel_scope.cancel()
    await one.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await one.send_eof()


@pytest.mark.parametrize("limit", [0, 1, 5, 6])
async def test_what_passes_before_the_reset_arrives(limit: int) -> None:
    one, other = ends(Faults(drop_after_bytes=limit))
    with pytest.raises(trio.BrokenResourceError, match=CUT):
        await one.send_all(b"abcdefg")
    assert await receive_all(other) == ([b"abcdefg"[:limit]] if limit else [], True)
    with pytest.raises(trio.BrokenResourceError, match=CUT):
        await other.send_all(b"x")
    assert await receive_all(one) == ([], True)


async def test_the_last_byte_that_passes_is_sent_without_an_error() -> None:
    one, other = ends(Faults(drop_after_bytes=3))
    await one.send_all(b"abc")
    assert await receive_all(other) == ([b"abc"], True)
    with pytest.raises(trio.BrokenResourceError, match=CUT):
        await one.send_all(b"")


async def test_the_directions_are_counted_apart_and_anew_for_new_faults() -> None:
    link = Link("x", Faults(drop_after_bytes=4))
    one, other = link.ends()
    await one.send_all(b"abc")
    await other.send_all(b"def")
    assert link.bytes_passed == 6
    link.faults = link.faults  # three more in each direction would be too many for the old ones
    await one.send_all(b"abc")
    await other.send_all(b"def")
    assert link.faults == Faults(drop_after_bytes=4)
    link.faults = evolve(link.faults, delay_s=1)
    assert link.faults == Faults(drop_after_bytes=4, delay_s=1)


async def test_a_cut_is_told_to_both_at_once_and_nothing_more_arrives() -> None:
    link = Link("x")
    one, other = link.ends()
    told: list[str] = []

    async def wait(end: trio.abc.ReceiveStream, name: str) -> None:
        with pytest.raises(trio.BrokenResourceError, match=CUT):
            await end.receive_some()
        told.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, one, "one")
        nursery.start_soon(wait, other, "other")
        await trio.testing.wait_all_tasks_blocked()
        link.cut()
    assert sorted(told) == ["one", "other"]
    link = Link("x")
    one, other = link.ends()
    await one.send_all(b"on its way")
    link.cut()
    assert await receive_all(other) == ([], True)
    with pytest.raises(trio.BrokenResourceError, match=CUT):
        await other.wait_send_all_might_not_block()


async def test_bytes_are_late_and_in_order(autojump_clock: trio.testing.MockClock) -> None:
    link = Link("x", Faults(delay_s=2.5))
    one, other = link.ends()
    start = trio.current_time()
    await one.send_all(b"a")
    link.faults = Faults()
    await one.send_all(b"b")  # due before, and yet behind
    assert await other.receive_some() == b"a"
    assert trio.current_time() - start == 2.5
    assert await other.receive_some() == b"b"
    assert trio.current_time() - start == 2.5


async def test_the_end_is_as_late_as_bytes(autojump_clock: trio.testing.MockClock) -> None:
    one, other = ends(Faults(delay_s=2.5))
    await one.send_eof()
    await one.send_eof()
    assert await other.receive_some() == b""
    assert trio.current_time() == 2.5
    assert await other.receive_some() == b""
    assert trio.current_time() == 2.5


async def test_a_reset_overtakes_what_is_late(autojump_clock: trio.testing.MockClock) -> None:
    link = Link("x", Faults(delay_s=9))
    one, other = link.ends()
    await one.send_all(b"a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive_all, other)
        await trio.testing.wait_all_tasks_blocked()
        link.cut()
    assert trio.current_time() == 0


async def test_half_open_loses_what_is_sent_and_tells_nobody(
    autojump_clock: trio.testing.MockClock,
) -> None:
    link = Link("x")
    one, other = link.ends()
    await one.send_all(b"before")
    link.faults = Faults(is_half_open=True, drop_after_bytes=1)
    await one.send_all(b"lost")
    assert await is_silent(other)
    assert await is_silent(one)
    assert link.bytes_passed == len(b"before")
    link.faults = Faults()
    await one.send_all(b"after")
    assert await other.receive_some() == b"before"
    assert await other.receive_some() == b"after"


async def test_half_open_hides_the_end_until_it_is_whole_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    link = Link("x", Faults(is_half_open=True))
    one, other = link.ends()
    await one.aclose()
    assert await is_silent(other)
    await other.send_all(b"x")  # nobody has told it
    link.faults = Faults()
    assert await other.receive_some() == b""
    with pytest.raises(trio.BrokenResourceError, match=CUT):
        await other.send_all(b"x")


@pytest.mark.parametrize("is_half_open", [False, True])
async def test_a_sender_waits_for_room(
    is_half_open: bool, autojump_clock: trio.testing.MockClock
) -> None:
    link = Link("x", Faults(buffer_bytes=8, is_half_open=is_half_open))
    one, other = link.ends()
    await one.send_all(b"x" * 8)
    with trio.move_on_after(SILENT_S) as waited:
        await one.send_all(b"y" * 20)
    assert waited.cancelled_caught
    if is_half_open:
        link.faults = Faults(buffer_bytes=8)  # what is lost takes no room any more
    else:
        assert await other.receive_some() == b"x" * 8
    with trio.fail_after(1):
        await one.send_all(b"z" * 8)
    assert await other.receive_some() == b"z" * 8


async def test_a_sender_that_waits_is_told_of_the_end() -> None:
    link = Link("x", Faults(buffer_bytes=1))
    one, other = link.ends()
    errors: list[str] = []

    async def send(end: trio.abc.SendStream) -> None:
        with pytest.raises((trio.BrokenResourceError, trio.ClosedResourceError)) as caught:
            await end.send_all(b"xx")
        errors.append(caught.type.__name__)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send, one)
        nursery.start_soon(send, other)
        await trio.testing.wait_all_tasks_blocked()
        await one.aclose()
    assert sorted(errors) == ["BrokenResourceError", "ClosedResourceError"]


@given(
    sent=st.lists(st.binary(max_size=40), max_size=20),
    split=st.integers(1, 50),
    room=st.integers(1, 50),
    drop=st.one_of(st.just(math.inf), st.integers(0, 300)),
)
def test_what_arrives_is_a_prefix_of_what_was_sent(
    sent: list[bytes], split: int, room: int, drop: float
) -> None:
    faults = Faults(drop, split_bytes=split, buffer_bytes=room)
    whole = b"".join(sent)

    async def main() -> None:
        one, other = ends(faults)
        heard: list[tuple[list[bytes], bool]] = []

        async def listen() -> None:
            heard.append(await receive_all(other))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            try:
                for data in sent:
                    await one.send_all(data)
                await one.send_eof()
                is_told = False
            except trio.BrokenResourceError:
                is_told = True
        (pieces, is_reset), arrived = heard[0], b"".join(heard[0][0])
        assert all(len(piece) <= min(split, room) for piece in pieces)
        assert arrived == whole[: len(whole) if drop == math.inf else int(drop)]
        # Where the last byte was the limit's, the sender had no more to be told of.
        assert is_reset is (is_told or (bool(whole) and len(whole) == drop))

    trio.run(main)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"drop_after_bytes": -1}, "drop_after_bytes=-1 must be 0 or more"),
        ({"delay_s": -0.5}, "delay_s=-0.5 must be 0 or more"),
        ({"delay_s": math.nan}, "delay_s=nan must be 0 or more"),
        ({"split_bytes": 0}, "split_bytes=0 must be 1 or more"),
        ({"buffer_bytes": 0}, "buffer_bytes=0 must be 1 or more"),
    ],
)
def test_faults_that_make_no_sense(values: dict[str, float], told: str) -> None:
    with pytest.raises(OptionError) as caught:
        Faults(**values)  # type: ignore[arg-type]
    assert str(caught.value) == told


# A broker in the loop of the test.


async def connected(stream: trio.abc.Stream, heart_beat: str = "0,0") -> trio.abc.Stream:
    await stream.send_all(
        f"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:{heart_beat}\n\n\0".encode()
    )
    assert (await stream.receive_some()).startswith(b"CONNECTED\n")
    return stream


async def test_a_client_exchanges_messages(stomp_broker: TestBroker) -> None:
    async with stomp_broker.client("shop") as client:
        async with client.subscribe("/queue/orders", ack="client-individual") as orders:
            receipt = await client.send("/queue/orders", "a lamp")
            async with await orders.receive() as order:
                assert order.text == "a lamp"
        assert receipt is not None
        assert list(stomp_broker.links) == ["shop"]
        assert stomp_broker.links["shop"].bytes_passed > 100


async def test_links_have_names(stomp_broker: TestBroker) -> None:
    await stomp_broker.connect("link2")
    await stomp_broker.connect()
    await stomp_broker.connect()
    assert list(stomp_broker.links) == ["link2", "link1", "link3"]
    first = stomp_broker.links["link1"]
    await stomp_broker.connect("link1")
    assert stomp_broker.links["link1"] is not first


async def test_a_dropped_client_comes_back_over_a_new_link(
    stomp_broker: TestBroker, autojump_clock: trio.testing.MockClock
) -> None:
    async with stomp_broker.client("shop") as client:
        first = stomp_broker.links["shop"]
        stomp_broker.drop_link("shop")
        await client.send("/topic/x", "is sent again, if it must be")
        assert stomp_broker.links["shop"] is not first


async def test_a_link_is_dropped_in_the_middle_of_a_frame(
    stomp_broker: TestBroker, autojump_clock: trio.testing.MockClock
) -> None:
    stream = await connected(await stomp_broker.connect("a", Faults(delay_s=1)))
    stomp_broker.drop_link("a", after_bytes=10)
    assert stomp_broker.links["a"].faults == Faults(delay_s=1, drop_after_bytes=10)
    with pytest.raises(trio.BrokenResourceError):
        await stream.send_all(b"SEND\ndestination:/topic/x\n\nbody\0")
    with pytest.raises(trio.BrokenResourceError):
        await stream.receive_some()


async def test_a_link_that_is_not_there_cannot_be_dropped(stomp_broker: TestBroker) -> None:
    with pytest.raises(OptionError, match="no link is called 'a'; there are: none"):
        stomp_broker.drop_link("a")
    await stomp_broker.connect("b")
    await stomp_broker.connect("c")
    with pytest.raises(OptionError, match="no link is called 'a'; there are: b, c"):
        stomp_broker.drop_link("a")
    with pytest.raises(OptionError, match="must be 0 or more"):
        stomp_broker.drop_link("b", after_bytes=-1)


async def test_a_stopped_broker_refuses(
    stomp_broker: TestBroker, autojump_clock: trio.testing.MockClock
) -> None:
    peer = await connected(await stomp_broker.connect())
    await stomp_broker.stop()
    pieces, _ = await receive_all(peer)
    assert b"\ncode:shutting-down\n" in b"".join(pieces)
    with pytest.raises(ConnectionRefusedError, match="takes no connections now"):
        await stomp_broker.connect("late")
    assert "late" not in stomp_broker.links


async def test_more_links_than_anybody_accepts_are_refused(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr("trio_stomp.testing._broker.MAX_WAITING_LINKS", 2)
    async with open_test_broker(diag_interval_s=0) as broker:
        for _ in range(3):  # one of them is waited for
            broker._listener.offer(ends()[0])
        with pytest.raises(ConnectionRefusedError):
            broker._listener.offer(ends()[0])


async def test_a_client_of_a_stopped_broker_says_so(
    stomp_broker: TestBroker, autojump_clock: trio.testing.MockClock
) -> None:
    await stomp_broker.stop()
    await trio.sleep(60)
    with pytest.raises(ConnectFailed, match="the broker takes no connections now"):
        async with stomp_broker.client():
            pytest.fail("it is connected")


HEART_BEAT_S = 60.0


async def test_a_heart_beat_of_a_minute_takes_no_time(
    stomp_broker: TestBroker, autojump_clock: trio.testing.MockClock
) -> None:
    begun = time.perf_counter()
    stream = await connected(await stomp_broker.connect(), "60000,60000")
    start = trio.current_time()
    pieces, _ = await receive_all(stream)
    assert 2 * HEART_BEAT_S <= trio.current_time() - start <= 2 * HEART_BEAT_S + 5
    beats, _, error = b"".join(pieces).partition(b"ERROR")
    assert len(beats) >= 2
    assert set(beats) == set(b"\n")
    assert b"\ncode:heart-beat-timeout\n" in error
    assert time.perf_counter() - begun < 10  # of a minute and more: not measured, but bounded


async def test_heart_beats_keep_a_quiet_client_for_an_hour(
    stomp_broker: TestBroker, autojump_clock: trio.testing.MockClock
) -> None:
    async with stomp_broker.client("quiet", heart_beat=(60, 60)) as client:
        link = stomp_broker.links["quiet"]
        before = link.bytes_passed
        await trio.sleep(3600)
        assert client.is_connected
        assert stomp_broker.links["quiet"] is link
        assert link.bytes_passed - before >= 2 * 60


async def test_a_half_open_link_is_noticed_by_both(
    stomp_broker: TestBroker, autojump_clock: trio.testing.MockClock
) -> None:
    async with stomp_broker.client("a", heart_beat=(10, 10)) as client:
        link = stomp_broker.links["a"]
        link.faults = Faults(is_half_open=True)
        with trio.fail_after(120):
            await client.send("/topic/x", "over the next link")
        assert stomp_broker.links["a"] is not link


async def test_a_reader_that_does_not_read_is_cut_off(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_test_broker(diag_interval_s=0, write_stall_s=5.0) as broker:
        slow = await connected(await broker.connect("slow", Faults(buffer_bytes=4096)))
        await slow.send_all(b"SUBSCRIBE\nid:1\ndestination:/topic/x\nreceipt:r\n\n\0")
        assert (await slow.receive_some()).startswith(b"RECEIPT")
        async with broker.client("fast") as client:
            receipt = await client.send("/topic/x", b"x" * 65536)
            assert receipt.matched == 1
            await trio.sleep(60)
        assert broker.links["slow"].bytes_passed < 65536
        with pytest.raises(trio.BrokenResourceError):
            await slow.send_all(b"\n")


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_test_broker():
            raise ZeroDivisionError
    with pytest.raises(ExceptionGroup) as caught:
        async with open_test_broker():
            raise ExceptionGroup("two", [ValueError(), KeyError()])
    assert caught.value.message == "two"
    with pytest.raises(OptionError, match="ttl"):
        async with open_test_broker(ttl=1):
            pytest.fail("it runs")
    with pytest.raises(OptionError, match=r"single options \(ttl_ms\): not both"):
        async with open_test_broker(Settings(), ttl_ms=1):
            pytest.fail("it runs")
    with pytest.raises(OptionError, match="/not/there: no such file"):
        async with open_test_broker(passwd_file="/not/there"):
            pytest.fail("it runs")


async def test_a_bug_of_the_broker_beside_an_error_of_the_block_hides_neither(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def serve(*_: object, task_status: trio.TaskStatus[object], **__: object) -> None:
        class Handle:
            def stop(self) -> None:
                pass

        task_status.started(Handle())
        try:
            await trio.sleep_forever()
        finally:
            raise RuntimeError("bug")

    monkeypatch.setattr("trio_stomp.testing._broker.serve", serve)
    with pytest.raises(ExceptionGroup) as caught:
        async with open_test_broker():
            raise KeyError
    assert {type(error) for error in caught.value.exceptions} == {KeyError, RuntimeError}


async def test_a_cancelled_block_ends_the_broker_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with trio.move_on_after(5) as stopped:
        async with open_test_broker(Settings.of(diag_interval_s=0.0)) as broker:
            await connected(await broker.connect())
            await trio.sleep_forever()
    assert trio.current_time() == 5
    assert stopped.cancelled_caught


async def test_the_end_needs_no_time_even_with_clients_about(
    mock_clock: trio.testing.MockClock,
) -> None:
    """The clock stands still: nothing may wait for a deadline."""
    async with open_test_broker(diag_interval_s=0) as broker:
        for name in ("a", "a", "b"):
            await connected(await broker.connect(name))
    assert 0 < trio.current_time() < 0.01  # no broker of the real world begins at 0


def test_names_are_looked_up_when_they_are_used() -> None:
    assert {"Faults", "open_test_broker", "threaded_broker"} <= set(dir(trio_stomp.testing))
    with pytest.raises(AttributeError, match=r"'trio_stomp\.testing' has no attribute 'nothing'"):
        _ = trio_stomp.testing.nothing  # type: ignore[attr-defined]


# A broker in a thread.


def greeted(broker: ThreadedBroker) -> bytes:
    with socket.create_connection((broker.host, broker.port)) as peer:
        peer.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        return peer.recv(9)


def test_a_broker_for_everybody(stomp_broker_port: ThreadedBroker) -> None:
    assert greeted(stomp_broker_port) == b"CONNECTED"
    assert stomp_broker_port.url == f"stomp://127.0.0.1:{stomp_broker_port.port}"
    stomp_broker_port.stop()
    stomp_broker_port.stop()
    with pytest.raises(ConnectionRefusedError):
        greeted(stomp_broker_port)


def test_an_address_of_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("THERE IS NO IPv6 HERE")
    with threaded_broker(host="::1") as broker:
        assert broker.host == "::1"
        assert broker.url == f"stomp://[::1]:{broker.port}"
        assert greeted(broker) == b"CONNECTED"


def test_wrong_options_are_told_as_they_are() -> None:
    for options in ({"ttl": 1}, {"passwd_file": "/not/there"}):
        with pytest.raises(OptionError), threaded_broker(**options):
            pytest.fail("it runs")
    with threaded_broker() as first, pytest.raises(OSError), threaded_broker(port=first.port):
        pytest.fail("it runs")


Serving = Callable[..., Awaitable[None]]


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def serving_until(released: threading.Event, *, starts: bool) -> Serving:
    """A broker that does not listen to anybody who wants to stop it."""

    async def serve(_: object, task_status: trio.TaskStatus[object]) -> None:
        class Handle:
            addresses = ("127.0.0.1:1",)

            def stop(self) -> None:
                pass

        if starts:
            task_status.started(Handle())
        await trio.to_thread.run_sync(released.wait)

    return serve


def test_a_broker_that_does_not_start(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_threaded, "serve", serving_until(released, starts=False))
    runner = _threaded._Runner(Settings(), patience_s=0.01)
    with pytest.raises(TimeoutError, match=r"did not start in 0\.01 s"):
        runner.start()
    with pytest.raises(TimeoutError, match=r"did not stop in 0\.01 s"):
        runner.stop()


def test_a_broker_that_does_not_stop(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_threaded, "serve", serving_until(released, starts=True))
    runner = _threaded._Runner(Settings())
    runner.start()
    runner.patience_s = 0.01
    with pytest.raises(TimeoutError, match=r"did not stop in 0\.01 s"):
        runner.stop()


def test_a_broker_that_breaks_is_told_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(_: object, task_status: trio.TaskStatus[object]) -> None:
        class Handle:
            addresses = ("127.0.0.1:1",)

            def stop(self) -> None:
                pass

        task_status.started(Handle())
        raise KeyError("bug")

    monkeypatch.setattr(_threaded, "serve", serve)
    with pytest.raises(KeyError, match="bug"), threaded_broker() as broker:
        broker._runner._thread.join()
    broker.stop()  # it was told once


def test_two_errors_of_a_broker_are_told_both(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(_: object, task_status: trio.TaskStatus[object]) -> None:
        raise ExceptionGroup("two", [KeyError(), ValueError()])

    monkeypatch.setattr(_threaded, "serve", serve)
    with pytest.raises(ExceptionGroup, match="two"), threaded_broker():
        pytest.fail("it runs")


# The fixtures, in a project of somebody else.

SUITE = """
import pytest
import trio

pytestmark = pytest.mark.stomp_broker(ttl_ms=1000, max_headers=100)

@pytest.mark.trio
@pytest.mark.stomp_broker(ttl_ms=5000)
async def test_ttl(stomp_broker, autojump_clock):
    async with stomp_broker.client() as client:
        await client.send("/topic/late", "kept")
        await trio.sleep(4)
        async with client.subscribe("/topic/late") as messages:
            assert (await messages.receive()).text == "kept"

@pytest.mark.trio
async def test_ttl_of_the_module(stomp_broker, autojump_clock):
    async with stomp_broker.client() as client:
        await client.send("/topic/late", "gone")
        await trio.sleep(4)
        async with client.subscribe("/topic/late") as messages:
            await client.send("/topic/late", "new")
            assert (await messages.receive()).text == "new"

def test_port(stomp_broker_port):
    import socket
    with socket.create_connection((stomp_broker_port.host, stomp_broker_port.port)) as peer:
        peer.sendall(b"CONNECT\\naccept-version:1.2\\nhost:x\\n\\n\\0")
        assert peer.recv(9) == b"CONNECTED"
"""


@pytest.mark.parametrize("mode", ["false", "true"])
def test_the_fixtures_work_with_and_without_trio_mode(pytester: pytest.Pytester, mode: str) -> None:
    pytester.makeini(f"[pytest]\ntrio_mode = {mode}\naddopts = --strict-markers\n")
    pytester.makepyfile(SUITE)
    pytester.runpytest_inprocess(*ARGUMENTS).assert_outcomes(passed=3)


def test_a_marker_takes_names_only(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.stomp_broker({'ttl_ms': 1})\n"
        "def test_port(stomp_broker_port): pass\n"
        "@pytest.mark.stomp_broker(ttl=1)\n"
        "def test_option(stomp_broker_port): pass\n"
    )
    result = pytester.runpytest_inprocess(*ARGUMENTS)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        ["*stomp_broker takes options by name, as in stomp_broker(ttl_ms=5000), not {'ttl_ms': 1}"]
    )
    result.stdout.fnmatch_lines(["*OptionError*ttl*"])


def test_a_sync_test_is_told_that_the_fixture_is_trios(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(stomp_broker): pass")
    result = pytester.runpytest_inprocess(*ARGUMENTS)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*Trio fixtures can only be used by Trio tests"])


def test_without_pytest_trio_the_fixture_says_what_is_missing(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        from trio_stomp.testing import pytest_plugin

        async def broker(request):
            yield

        found = pytest_plugin.find_spec
        pytest_plugin.find_spec = lambda name: None
        try:
            stomp_broker = pytest_plugin.trio_fixture(broker)
        finally:
            pytest_plugin.find_spec = found

        def test_it(stomp_broker):
            pass
        """
    )
    result = pytester.runpytest_inprocess(*ARGUMENTS)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*UsageError: broker needs pytest-trio: pip install 'trio-stomp?testing?'"]
    )


def test_the_plugin_imports_no_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\n"
        "def test_it():\n"
        "    assert 'trio_stomp.testing.pytest_plugin' in sys.modules\n"
        "    assert 'trio_stomp.broker' not in sys.modules\n"
    )
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=1)
