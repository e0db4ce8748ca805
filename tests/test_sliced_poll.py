"""Sockets that wait together, and how few of them go on at once."""

import math
import select
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_stomp.transport import SlicedPoll, SocketWire
from trio_stomp.transport import _sliced_poll as module

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="there is no epoll here")

MANY = 200


class Room:
    """Wires over a poll, and who is at their other ends; ``read`` is what their readers read."""

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
        wire = SocketWire("peer", True, ours, self.poll)
        wire.woken_at = 0.0  # long ago: those that are new wait directly
        self.wires.append(wire)
        self.peers.append(theirs)
        return wire, theirs

    async def fill(self, count: int, *, known: bool = True) -> None:
        """Have readers wait, of peers that were heard before, or not."""
        for _ in range(count):
            wire, peer = self.add()
            if known:
                peer.send(b"CONNECT")
            self.nursery.start_soon(self.read_on, len(self.wires) - 1, wire)
        await wait_all_tasks_blocked()
        self.read.clear()
        assert not any(wire.is_direct for wire in self.wires)

    async def read_on(self, number: int, wire: SocketWire) -> None:
        data = b"?"
        try:
            while data:
                data = await wire.receive_some(100)
                self.read.append((number, data))
        except trio.BrokenResourceError:
            self.broken.append(number)

    async def slices(self, total: int) -> list[int]:
        """How many reads there are between two turns of this task, until there were ``total``.

        Trio shuffles the tasks of each run of its loop, so these may be of two slices.
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
async def room(stack: ExitStack, nursery: trio.Nursery) -> Room:
    poll = SlicedPoll()
    nursery.start_soon(poll.run)
    await wait_all_tasks_blocked()
    return Room(poll, nursery, stack)


async def test_data_wakes_who_waits(room: Room) -> None:
    await room.fill(2)
    room.peers[1].send(b"one")
    await wait_all_tasks_blocked()
    room.peers[0].send(b"two")
    await wait_all_tasks_blocked()
    assert room.read == [(1, b"one"), (0, b"two")]


async def test_data_that_came_before_anybody_waited(room: Room) -> None:
    wire, peer = room.add()
    peer.send(b"early")
    with trio.fail_after(5):
        await room.poll.wait_readable(wire)
        assert await wire.receive_some(100) == b"early"
        peer.send(b"late")
        assert await wire.receive_some(100) == b"late"


async def test_an_end_is_an_end(room: Room) -> None:
    await room.fill(1)
    room.peers[0].close()
    await wait_all_tasks_blocked()
    assert room.read == [(0, b"")]


async def test_all_that_leave_at_once_go_on_a_few_at_a_time(room: Room) -> None:
    await room.fill(MANY)
    for peer in room.peers:
        peer.close()
    sizes = await room.slices(MANY)
    assert max(sizes) <= 2 * module.BEHIND_AT_ONCE < MANY
    assert sorted(number for number, _ in room.read) == list(range(MANY))


async def test_all_that_speak_at_once_go_on_a_few_at_a_time(room: Room) -> None:
    await room.fill(MANY)
    for peer in room.peers:
        peer.send(b"x")
    sizes = await room.slices(MANY)
    assert max(sizes) <= 2 * module.AT_ONCE < MANY


@pytest.mark.parametrize("are_new", [False, True])
async def test_who_speaks_goes_before_who_leaves_or_comes(room: Room, are_new: bool) -> None:
    await room.fill(MANY, known=not are_new)
    for peer in room.peers:
        if are_new:
            peer.send(b"CONNECT")
        else:
            peer.close()
    wire, peer = room.add()
    wire.is_quiet = False
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
    assert wire.task is None
    peer.send(b"kept")
    await wait_all_tasks_blocked()  # the kernel tells of it, and nobody is there
    assert await wire.receive_some(100) == b"kept"


async def test_who_is_cancelled_in_the_line_is_passed_over(room: Room) -> None:
    await room.fill(4 * module.BEHIND_AT_ONCE)
    async with trio.open_nursery() as nursery:
        wire, _ = room.add()
        wire.is_quiet = False
        nursery.start_soon(wire.receive_some, 100)
        await wait_all_tasks_blocked()
        for peer in room.peers:
            peer.close()
        while wire not in room.poll._behind:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    await wait_all_tasks_blocked()
    assert len(room.read) == 4 * module.BEHIND_AT_ONCE
    assert await wire.receive_some(100) == b""


async def test_closing_ends_who_waits(room: Room) -> None:
    await room.fill(2)
    await room.wires[0].aclose()
    await wait_all_tasks_blocked()
    assert room.broken == [0]
    room.peers[1].send(b"still")
    await wait_all_tasks_blocked()
    assert room.read == [(1, b"still")]
    with pytest.raises(trio.BrokenResourceError):
        await room.wires[0].receive_some(1)


async def test_closing_who_is_in_the_line_already(room: Room) -> None:
    await room.fill(4 * module.BEHIND_AT_ONCE)
    for peer in room.peers:
        peer.close()
    while not room.poll._behind:
        await trio.lowlevel.checkpoint()
    closed = room.poll._behind[-1]
    assert isinstance(closed, SocketWire)
    await closed.aclose()
    await wait_all_tasks_blocked()
    assert room.broken == [room.wires.index(closed)]
    assert len(room.read) == 4 * module.BEHIND_AT_ONCE - 1


async def test_who_converses_waits_directly(room: Room) -> None:
    await room.fill(1)
    wire, peer = room.wires[0], room.peers[0]
    peer.send(b"one")
    await wait_all_tasks_blocked()
    assert not wire.is_direct
    peer.send(b"two")
    await wait_all_tasks_blocked()
    assert wire.is_direct
    peer.send(b"three")
    await wait_all_tasks_blocked()
    assert [data for _, data in room.read] == [b"one", b"two", b"three"]
    assert not room.poll._waiting
    peer.close()
    await wait_all_tasks_blocked()
    await wire.aclose()
    assert not room.poll._direct


async def test_who_is_heard_now_and_then_does_not(mock_clock: MockClock, room: Room) -> None:
    await room.fill(1)
    for _ in range(3):
        mock_clock.jump(module.CONVERSING_S)
        room.peers[0].send(b"\n")
        await wait_all_tasks_blocked()
    assert len(room.read) == 3
    assert not room.wires[0].is_direct


async def test_who_is_new_waits_directly_while_there_is_room(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NEWCOMERS", 1)
    for number in range(2):
        wire, _ = room.add()
        wire.woken_at = -math.inf
        room.nursery.start_soon(room.read_on, number, wire)
        await wait_all_tasks_blocked()
    assert [wire.is_direct for wire in room.wires] == [True, False]
    for _ in range(2):
        room.poll.sweep()
    await wait_all_tasks_blocked()
    assert not any(wire.is_direct for wire in room.wires)
    for peer in room.peers:
        peer.send(b"x")
    await wait_all_tasks_blocked()
    assert sorted(room.read) == [(0, b"x"), (1, b"x")]


async def test_few_wait_directly(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DIRECT", 2)
    await room.fill(3)
    for _ in range(3):
        for peer in room.peers:
            peer.send(b"x")
        await wait_all_tasks_blocked()
    assert len(room.read) == 9
    assert sum(wire.is_direct for wire in room.wires) == 2


async def converse(room: Room) -> tuple[SocketWire, socket.socket]:
    await room.fill(1)
    for _ in range(2):
        room.peers[0].send(b"x")
        await wait_all_tasks_blocked()
    assert room.wires[0].is_direct
    return room.wires[0], room.peers[0]


async def test_who_falls_silent_waits_with_the_others_again(room: Room) -> None:
    wire, peer = await converse(room)
    room.poll.sweep()
    assert wire.is_direct, "it was heard since the last sweep"
    peer.send(b"y")
    await wait_all_tasks_blocked()
    room.poll.sweep()
    assert wire.is_direct, "and again"
    room.poll.sweep()
    assert not wire.is_direct
    await wait_all_tasks_blocked()
    assert room.poll._waiting
    assert not room.poll._direct
    peer.send(b"z")
    await wait_all_tasks_blocked()
    assert room.read[-1] == (0, b"z")
    assert not room.broken


async def test_what_comes_between_the_sweep_and_the_reader_is_read(room: Room) -> None:
    _, peer = await converse(room)
    room.poll.sweep()
    room.poll.sweep()
    peer.send(b"z")
    await wait_all_tasks_blocked()
    assert room.read[-1] == (0, b"z")
    assert not room.broken


async def test_who_is_closed_between_the_sweep_and_the_reader(room: Room) -> None:
    wire, _ = await converse(room)
    room.poll.sweep()
    room.poll.sweep()
    await wire.aclose()
    await wait_all_tasks_blocked()
    assert room.broken == [0]


async def test_a_sweep_leaves_alone_who_sends(room: Room, nursery: trio.Nursery) -> None:
    wire, peer = await converse(room)
    while wire.send_nowait(b"x" * 65536):
        pass
    sent = []

    async def send() -> None:
        sent.append(await wire.wait_sent(b"y"))

    nursery.start_soon(send)
    await wait_all_tasks_blocked()
    for _ in range(3):
        room.poll.sweep()
    assert wire.is_direct
    with trio.fail_after(5):
        while not sent:
            with suppress(BlockingIOError):
                peer.recv(1 << 20)
            await trio.lowlevel.checkpoint()
    room.poll.sweep()
    assert not wire.is_direct


async def test_all_wait_directly_once_the_poll_has_ended(stack: ExitStack) -> None:
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as polling:
            poll = SlicedPoll()
            polling.start_soon(poll.run)
            await wait_all_tasks_blocked()
            room = Room(poll, nursery, stack)
            await room.fill(4 * module.BEHIND_AT_ONCE)
            waiting, waiting_peer = room.add()
            nursery.start_soon(room.read_on, 99, waiting)
            await wait_all_tasks_blocked()
            for peer in room.peers[:-1]:
                peer.close()
            while not poll._behind:
                await trio.lowlevel.checkpoint()
            polling.cancel_scope.cancel()
        waiting_peer.send(b"still")
        await wait_all_tasks_blocked()
        assert (99, b"still") in room.read
        assert len(room.read) == 4 * module.BEHIND_AT_ONCE + 1
        assert waiting.is_direct
        await waiting.aclose()
        assert not poll._waiting


async def test_without_epoll_all_wait_directly(
    stack: ExitStack, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = SlicedPoll()
    with monkeypatch.context() as patch:
        patch.delattr(select, "epoll")
        await poll.run()
    room = Room(poll, nursery, stack)
    _, peer = room.add()
    nursery.start_soon(room.read_on, 0, room.wires[0])
    await wait_all_tasks_blocked()
    peer.send(b"x")
    await wait_all_tasks_blocked()
    assert room.read == [(0, b"x")]
    assert room.wires[0].is_direct


class NoSocket:
    """What the kernel does not take: a file, which it says is always ready; or nothing."""

    def __init__(self, file: int) -> None:
        self.task: trio.lowlevel.Task | None = None
        self.is_known = self.is_direct = self.is_quiet = self.is_sending = False
        self.woken_at = 0.0
        self._file = file

    def fileno(self) -> int:
        return self._file

    def stop_waiting(self, _: object) -> trio.lowlevel.Abort:
        raise AssertionError("it does not wait")


async def test_what_the_kernel_refuses_waits_directly(room: Room) -> None:
    with tempfile.TemporaryFile() as file:
        refused = NoSocket(file.fileno())
        with trio.fail_after(5):
            await room.poll.wait_readable(refused)
    assert refused.is_direct
    assert not refused.is_known


async def test_what_is_closed_is_not_waited_for(room: Room) -> None:
    with pytest.raises(trio.ClosedResourceError):
        await room.poll.wait_readable(NoSocket(-1))
