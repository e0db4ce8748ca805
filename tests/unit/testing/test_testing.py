"""trio_stomp.testing: a broker in the loop of a test, and one in a thread."""

import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest
import trio
import trio.testing

import trio_stomp.testing
from tests.support.testing_links import NEEDED_PLUGINS, ends, receive_all
from trio_stomp import OptionError, Settings
from trio_stomp.client import ConnectFailed
from trio_stomp.testing import (
    Faults,
    TestBroker,
    ThreadedBroker,
    _threaded,
    open_test_broker,
    threaded_broker,
)

pytest_plugins = [*NEEDED_PLUGINS]


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
    stomp_broker: TestBroker, autojump_clock
) -> None:
    async with stomp_broker.client("shop") as client:
        first = stomp_broker.links["shop"]
        stomp_broker.drop_link("shop")
        await client.send("/topic/x", "is sent again, if it must be")
        assert stomp_broker.links["shop"] is not first


async def test_a_link_is_dropped_in_the_middle_of_a_frame(
    stomp_broker: TestBroker, autojump_clock
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


async def test_a_stopped_broker_refuses(stomp_broker: TestBroker, autojump_clock) -> None:
    peer = await connected(await stomp_broker.connect())
    await stomp_broker.stop()
    pieces, _ = await receive_all(peer)
    assert b"ERROR" not in b"".join(pieces)
    with pytest.raises(ConnectionRefusedError, match="is not accepting connections"):
        await stomp_broker.connect("late")
    assert "late" not in stomp_broker.links


async def test_links_beyond_the_limit_of_waiting_ones_are_refused(
    monkeypatch: pytest.MonkeyPatch, autojump_clock
) -> None:
    monkeypatch.setattr("trio_stomp.testing._broker.MAX_WAITING_LINKS", 2)
    async with open_test_broker(diag_interval_s=0) as broker:
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):  # one of them is awaited
            broker._listener.offer(ends()[0])
        with pytest.raises(ConnectionRefusedError):
            broker._listener.offer(ends()[0])


async def test_a_client_of_a_stopped_broker_says_so(
    stomp_broker: TestBroker, autojump_clock
) -> None:
    await stomp_broker.stop()
    await trio.sleep(60)
    with pytest.raises(ConnectFailed, match="the broker is not accepting connections"):
        async with stomp_broker.client():
            pytest.fail("it is connected")


HEART_BEAT_S = 60.0


async def test_a_heart_beat_of_a_minute_takes_no_time(
    stomp_broker: TestBroker, autojump_clock
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
    # The clock jumped; otherwise the minutes would have passed.
    assert time.perf_counter() - begun < trio.current_time() - start


async def test_a_half_open_link_is_noticed_by_both(
    stomp_broker: TestBroker, autojump_clock
) -> None:
    async with stomp_broker.client("a", heart_beat=(10, 10)) as client:
        link = stomp_broker.links["a"]
        link.faults = Faults(is_half_open=True)
        with trio.fail_after(120):
            await client.send("/topic/x", "over the next link")
        assert stomp_broker.links["a"] is not link


async def test_a_reader_that_does_not_read_is_cut_off(autojump_clock) -> None:
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


async def test_exception_of_the_block_is_not_wrapped() -> None:
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


class Handle:
    """A handle whose broker cannot be stopped."""

    addresses = ("127.0.0.1:1",)

    def stop(self) -> None:
        pass


async def test_a_bug_of_the_broker_beside_an_error_of_the_block_hides_neither(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def serve(*_: object, task_status: trio.TaskStatus[object], **__: object) -> None:
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


async def test_a_cancelled_block_ends_the_broker_at_once(autojump_clock) -> None:
    with trio.move_on_after(5) as stopped:
        async with open_test_broker(Settings.of(diag_interval_s=0.0)) as broker:
            await connected(await broker.connect())
            await trio.sleep_forever()
    assert trio.current_time() == 5
    assert stopped.cancelled_caught


async def test_the_end_needs_no_time_even_with_clients_about(
    mock_clock: trio.testing.MockClock,
) -> None:
    """The clock stands still, so nothing may wait for a deadline."""
    async with open_test_broker(diag_interval_s=0) as broker:
        for name in ("a", "a", "b"):
            await connected(await broker.connect(name))
    assert 0 < trio.current_time() < 0.01  # no real broker begins at 0


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


def test_wrong_options_raise_their_own_error() -> None:
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
    """A broker that ignores all requests to stop."""

    async def serve(_: object, task_status: trio.TaskStatus[object]) -> None:
        if starts:
            task_status.started(Handle())
        await trio.to_thread.run_sync(released.wait)

    return serve


@pytest.mark.parametrize("starts", [False, True])
def test_a_broker_that_does_not_start_or_stop(
    released: threading.Event, starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_threaded, "serve", serving_until(released, starts=starts))
    runner = _threaded._Runner(Settings())
    if starts:
        runner.start()
    runner.patience_s = 0.01
    if not starts:
        with pytest.raises(TimeoutError, match=r"did not start in 0\.01 s"):
            runner.start()
    with pytest.raises(TimeoutError, match=r"did not stop in 0\.01 s"):
        runner.stop()


def test_broken_broker_is_reported_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(_: object, task_status: trio.TaskStatus[object]) -> None:
        task_status.started(Handle())
        raise KeyError("bug")

    monkeypatch.setattr(_threaded, "serve", serve)
    with pytest.raises(KeyError, match="bug"), threaded_broker() as broker:
        broker._runner._thread.join()
    broker.stop()  # it was asked once


def test_both_errors_of_a_broker_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(_: object, task_status: trio.TaskStatus[object]) -> None:
        raise ExceptionGroup("two", [KeyError(), ValueError()])

    monkeypatch.setattr(_threaded, "serve", serve)
    with pytest.raises(ExceptionGroup, match="two"), threaded_broker():
        pytest.fail("it runs")
