"""trio_stomp.testing: the behaviour of a link and of its faults."""

import math
from functools import partial

import pytest
import trio
import trio.testing
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.support.testing_links import Ends, ends, receive_all
from trio_stomp import OptionError
from trio_stomp.testing import Faults, Link

CUT = "the link was cut"
SILENT_S = 3600.0
"""No operation of a link takes this long."""


async def is_silent(stream: trio.abc.ReceiveStream) -> bool:
    with trio.move_on_after(SILENT_S):
        await stream.receive_some()
        return False
    return True


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


async def test_two_tasks_must_not_send_at_once_nor_end_each_others_sends() -> None:
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
async def test_data_before_the_reset_arrive(limit: int) -> None:
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
    link.faults = link.faults  # three more in each direction would exceed the old ones
    await one.send_all(b"abc")
    await other.send_all(b"def")
    assert link.faults == Faults(drop_after_bytes=4)
    link.faults = evolve(link.faults, delay_s=1)
    assert link.faults == Faults(drop_after_bytes=4, delay_s=1)


async def test_cut_reaches_both_ends_immediately_and_stops_data() -> None:
    link = Link("x")
    one, other = link.ends()
    reported: list[str] = []

    async def wait(end: trio.abc.ReceiveStream, name: str) -> None:
        with pytest.raises(trio.BrokenResourceError, match=CUT):
            await end.receive_some()
        reported.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, one, "one")
        nursery.start_soon(wait, other, "other")
        await trio.testing.wait_all_tasks_blocked()
        link.cut()
    assert sorted(reported) == ["one", "other"]
    link = Link("x")
    one, other = link.ends()
    await one.send_all(b"on its way")
    link.cut()
    assert await receive_all(other) == ([], True)
    with pytest.raises(trio.BrokenResourceError, match=CUT):
        await other.wait_send_all_might_not_block()


async def test_bytes_are_late_and_in_order(autojump_clock) -> None:
    link = Link("x", Faults(delay_s=2.5))
    one, other = link.ends()
    start = trio.current_time()
    await one.send_all(b"a")
    link.faults = Faults()
    await one.send_all(b"b")  # due earlier, but sent later
    assert await other.receive_some() == b"a"
    assert trio.current_time() - start == 2.5
    assert await other.receive_some() == b"b"
    assert trio.current_time() - start == 2.5


async def test_the_end_is_as_late_as_bytes(autojump_clock) -> None:
    one, other = ends(Faults(delay_s=2.5))
    await one.send_eof()
    await one.send_eof()
    assert await other.receive_some() == b""
    assert trio.current_time() == 2.5
    assert await other.receive_some() == b""
    assert trio.current_time() == 2.5


async def test_a_reset_overtakes_delayed_bytes(autojump_clock) -> None:
    link = Link("x", Faults(delay_s=9))
    one, other = link.ends()
    await one.send_all(b"a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive_all, other)
        await trio.testing.wait_all_tasks_blocked()
        link.cut()
    assert trio.current_time() == 0


async def test_half_open_loses_sent_bytes_silently(autojump_clock) -> None:
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


async def test_half_open_hides_the_end_until_it_is_whole_again(autojump_clock) -> None:
    link = Link("x", Faults(is_half_open=True))
    one, other = link.ends()
    await one.aclose()
    assert await is_silent(other)
    await other.send_all(b"x")  # no event has reached it
    link.faults = Faults()
    assert await other.receive_some() == b""
    with pytest.raises(trio.BrokenResourceError, match=CUT):
        await other.send_all(b"x")


@pytest.mark.parametrize("is_half_open", [False, True])
async def test_a_sender_waits_for_room(is_half_open: bool, autojump_clock) -> None:
    link = Link("x", Faults(buffer_bytes=8, is_half_open=is_half_open))
    one, other = link.ends()
    await one.send_all(b"x" * 8)
    with trio.move_on_after(SILENT_S) as waited:
        await one.send_all(b"y" * 20)
    assert waited.cancelled_caught
    if is_half_open:
        link.faults = Faults(buffer_bytes=8)  # lost bytes take no room
    else:
        assert await other.receive_some() == b"x" * 8
    with trio.fail_after(1):
        await one.send_all(b"z" * 8)
    assert await other.receive_some() == b"z" * 8


async def test_waiting_sender_gets_the_end() -> None:
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
def test_received_data_are_a_prefix_of_the_sent_data(
    sent: list[bytes], split: int, room: int, drop: float
) -> None:
    faults = Faults(drop, split_bytes=split, buffer_bytes=room)
    whole = b"".join(sent)

    async def main() -> None:
        one, other = ends(faults)
        reported: list[tuple[list[bytes], bool]] = []

        async def listen() -> None:
            reported.append(await receive_all(other))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            try:
                for data in sent:
                    await one.send_all(data)
                await one.send_eof()
                is_told = False
            except trio.BrokenResourceError:
                is_told = True
        (pieces, is_reset), arrived = reported[0], b"".join(reported[0][0])
        assert all(len(piece) <= min(split, room) for piece in pieces)
        assert arrived == whole[: len(whole) if drop == math.inf else int(drop)]
        # If the limit fell on the last byte, no later write could notice it.
        assert is_reset is (is_told or (bool(whole) and len(whole) == drop))

    trio.run(main)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"drop_after_bytes": -1}, "drop_after_bytes=-1 must be 0 or more"),
        ({"delay_s": -0.5}, "delay_s=-0.5 must be 0 or more"),
        ({"delay_s": math.nan}, "delay_s=nan must be 0 or more"),
        ({"split_bytes": 0}, "split_bytes=0 must be 1 or more"),
        ({"buffer_bytes": 0}, "buffer_bytes=0 must be 1 or more"),
    ],
)
def test_faults_that_make_no_sense(values: dict[str, float], expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        Faults(**values)  # type: ignore[arg-type]
    assert str(caught.value) == expected
