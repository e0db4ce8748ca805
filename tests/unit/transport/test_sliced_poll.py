"""Sockets that wait together, and the small number of them that continue in one slice."""

import select
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_stomp.transport import SlicedPoll, SocketWire
from trio_stomp.transport.wire import _sliced_poll as module

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="there is no epoll here")

MANY = 200


def polled_of(wire: SocketWire) -> module.PolledSocket:
    """Return the poll's state of a wire."""
    assert isinstance(wire._waiter, module.PolledSocket)
    return wire._waiter


class Room:
    """Wires over a poll, and their peers; ``read`` has the bytes that their readers got."""

    def __init__(self, poll: SlicedPoll, nursery: trio.Nursery, stack: ExitStack) -> None:
        self.poll = poll
        self.nursery = nursery
        self.read: list[tuple[int, bytes]] = []
        self.broken: list[int] = []
        self.peers: list[socket.socket] = []
        self.wires: list[SocketWire] = []
        self._stack = stack

    def add(self) -> tuple[SocketWire, socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self._stack.enter_context(theirs)
        self._stack.callback(ours.close)
        wire = SocketWire("peer", True, ours, self.poll.enter(ours.fileno()))
        self.wires.append(wire)
        self.peers.append(theirs)
        return wire, theirs

    async def fill(self, count: int, *, known: bool = True) -> None:
        """Make readers wait for peers that were heard before, or not."""
        for _ in range(count):
            wire, peer = self.add()
            if known:
                peer.send(b"CONNECT")
            self.nursery.start_soon(self.read_on, len(self.wires) - 1, wire)
        await wait_all_tasks_blocked()
        self.read.clear()

    async def read_on(self, number: int, wire: SocketWire) -> None:
        data = b"?"
        try:
            while data:
                data = await wire.receive_some(100)
                self.read.append((number, data))
        except trio.BrokenResourceError:
            self.broken.append(number)

    async def slices(self, total: int) -> list[int]:
        """Return the numbers of reads between turns of this task, up to a sum of ``total``.

        Trio shuffles the tasks of each run of its loop, so a number may include two slices.
        """
        sizes = []
        while len(self.read) < total:
            before = len(self.read)
            await trio.lowlevel.checkpoint()
            sizes.append(len(self.read) - before)
        return [size for size in sizes if size]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def nobody_waits_with_trio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DIRECT", 0)


@pytest.fixture
async def room(stack: ExitStack, nursery: trio.Nursery, nobody_waits_with_trio: None) -> Room:
    poll = SlicedPoll()
    nursery.start_soon(poll.run)
    await wait_all_tasks_blocked()
    return Room(poll, nursery, stack)


async def test_data_and_an_end_wake_the_waiting_reader(room: Room) -> None:
    await room.fill(2)
    room.peers[1].send(b"one")
    await wait_all_tasks_blocked()
    room.peers[0].send(b"two")
    await wait_all_tasks_blocked()
    room.peers[1].close()
    await wait_all_tasks_blocked()
    assert room.read == [(1, b"one"), (0, b"two"), (1, b"")]


async def test_data_that_arrived_before_the_read_are_received(room: Room) -> None:
    wire, peer = room.add()
    peer.send(b"early")
    await wait_all_tasks_blocked()
    with trio.fail_after(5):
        assert await wire.receive_some(100) == b"early"
        peer.send(b"late")
        assert await wire.receive_some(100) == b"late"


@pytest.mark.parametrize(
    ("does", "most"),
    [
        pytest.param(socket.socket.close, module.BEHIND_AT_ONCE, id="leave"),
        pytest.param(lambda peer: peer.send(b"x"), module.AT_ONCE, id="speak"),
    ],
)
async def test_sockets_that_end_or_have_data_at_once_are_read_a_few_at_a_time(
    room: Room, does: Callable[[socket.socket], object], most: int
) -> None:
    await room.fill(MANY)
    for peer in room.peers:
        does(peer)
    sizes = await room.slices(MANY)
    assert max(sizes) <= 2 * most < MANY
    assert sorted(number for number, _ in room.read) == list(range(MANY))


@pytest.mark.parametrize("are_new", [False, True])
async def test_sockets_with_data_precede_ends_and_new_ones(room: Room, are_new: bool) -> None:
    await room.fill(MANY, known=not are_new)
    for peer in room.peers:
        if are_new:
            peer.send(b"CONNECT")
        else:
            peer.close()
    wire, peer = room.add()
    polled_of(wire).is_new = False
    room.nursery.start_soon(room.read_on, MANY, wire)
    peer.send(b"now")
    await room.slices(4 * module.BEHIND_AT_ONCE)
    assert (MANY, b"now") in room.read


async def test_waiting_can_be_cancelled_and_nothing_is_lost(room: Room) -> None:
    wire, peer = room.add()
    with trio.move_on_after(0):
        await wire.receive_some(100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.receive_some, 100)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert polled_of(wire).task is None
    peer.send(b"kept")
    await wait_all_tasks_blocked()  # the kernel reports it, and no reader waits
    assert await wire.receive_some(100) == b"kept"


async def test_cancelled_waiter_is_skipped(room: Room) -> None:
    await room.fill(4 * module.BEHIND_AT_ONCE)
    async with trio.open_nursery() as nursery:
        wire, _ = room.add()
        nursery.start_soon(wire.receive_some, 100)
        await wait_all_tasks_blocked()
        for peer in room.peers:
            peer.close()
        while polled_of(wire) not in room.poll._behind:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    await wait_all_tasks_blocked()
    assert len(room.read) == 4 * module.BEHIND_AT_ONCE
    assert await wire.receive_some(100) == b""


async def test_closing_ends_the_waiting_reader(room: Room) -> None:
    await room.fill(2)
    await room.wires[0].aclose()
    await wait_all_tasks_blocked()
    assert room.broken == [0]
    room.peers[1].send(b"still")
    await wait_all_tasks_blocked()
    assert room.read == [(1, b"still")]
    with pytest.raises(trio.BrokenResourceError):
        await room.wires[0].receive_some(1)


async def test_a_wire_that_is_closed_while_it_waits_is_not_read(room: Room) -> None:
    await room.fill(4 * module.BEHIND_AT_ONCE)
    for peer in room.peers:
        peer.close()
    while not room.poll._behind:
        await trio.lowlevel.checkpoint()
    last = room.poll._behind[-1]
    closed = next(wire for wire in room.wires if polled_of(wire) is last)
    await closed.aclose()
    await wait_all_tasks_blocked()
    assert room.broken == [room.wires.index(closed)]
    assert len(room.read) == 4 * module.BEHIND_AT_ONCE - 1


async def test_data_that_arrive_meanwhile_are_read(room: Room, nursery: trio.Nursery) -> None:
    """Its writer waits with Trio, on the same descriptor."""
    await room.fill(1)
    wire, peer = room.wires[0], room.peers[0]
    while wire.send_nowait(b"x" * 65536):
        pass
    nursery.start_soon(wire.wait_sent, b"y")
    await wait_all_tasks_blocked()
    peer.send(b"one")
    await wait_all_tasks_blocked()
    assert room.read == [(0, b"one")]
    with trio.fail_after(5):
        got = b""
        while not got.endswith(b"y"):
            with suppress(BlockingIOError):
                got = peer.recv(1 << 20)
            await trio.lowlevel.checkpoint()
    peer.send(b"two")
    await wait_all_tasks_blocked()
    assert room.read[-1] == (0, b"two")


async def test_socket_that_is_not_read_is_not_reported_repeatedly(room: Room) -> None:
    """Neither data nor an end may keep the poll busy while no reader waits for them."""
    _, data = room.add()
    _, end = room.add()
    data.send(b"x")
    end.close()
    with trio.fail_after(5):
        await wait_all_tasks_blocked()
    assert await room.wires[0].receive_some(100) == b"x"
    assert await room.wires[1].receive_some(100) == b""


@pytest.mark.usefixtures("nobody_waits_with_trio")
async def test_waiters_continue_when_the_poll_ends(stack: ExitStack, nursery: trio.Nursery) -> None:
    async with trio.open_nursery() as polling:
        poll = SlicedPoll()
        polling.start_soon(poll.run)
        await wait_all_tasks_blocked()
        room = Room(poll, nursery, stack)
        await room.fill(4 * module.BEHIND_AT_ONCE)
        for peer in room.peers[1:]:
            peer.close()
        while not poll._behind:
            await trio.lowlevel.checkpoint()
        polling.cancel_scope.cancel()
    await wait_all_tasks_blocked()
    assert 0 in room.broken
    assert len(room.broken) + len(room.read) == 4 * module.BEHIND_AT_ONCE
    await room.wires[0].aclose()


async def test_without_epoll_all_wait_with_trio(
    stack: ExitStack, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = SlicedPoll()
    with monkeypatch.context() as patch:
        patch.delattr(select, "epoll")
        await poll.run()
    room = Room(poll, nursery, stack)
    await room.fill(1)
    room.peers[0].send(b"x")
    await wait_all_tasks_blocked()
    assert room.read == [(0, b"x")]


async def test_socket_refused_by_epoll_waits_with_trio(room: Room) -> None:
    with tempfile.TemporaryFile() as file:
        assert isinstance(room.poll.enter(file.fileno()), module.DirectSocket)


async def test_few_wait_with_trio_and_give_their_room_back(
    stack: ExitStack, nursery: trio.Nursery
) -> None:
    poll = SlicedPoll()
    nursery.start_soon(poll.run)
    await wait_all_tasks_blocked()
    room = Room(poll, nursery, stack)
    await room.fill(module.DIRECT + 1)
    *few, last = (wire._waiter for wire in room.wires)
    assert all(isinstance(place, module.DirectSocket) for place in few)
    assert isinstance(last, module.PolledSocket)
    room.peers[0].send(b"one")
    await wait_all_tasks_blocked()
    room.peers[-1].send(b"two")
    await wait_all_tasks_blocked()
    assert room.read == [(0, b"one"), (module.DIRECT, b"two")]
    await room.wires[0].aclose()
    await wait_all_tasks_blocked()
    assert room.broken == [0]
    with pytest.raises(trio.BrokenResourceError):
        await room.wires[0].receive_some(1)
    assert isinstance(room.add()[0]._waiter, module.DirectSocket)
    assert isinstance(room.add()[0]._waiter, module.PolledSocket)
