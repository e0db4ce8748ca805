"""Sockets that are read while Trio would wait: by whom, until when, and what Trio gets of it."""

import functools
import queue
import select
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests._fakes import TCP, TLS, WS_TCP, WSS, Client, Dial, open_dial
from tests._steps import Steps
from trio_stomp.server._dispatcher import Dispatcher
from trio_stomp.server._inbox import Batch, Control
from trio_stomp.transport import SlicedPoll, SocketWire
from trio_stomp.transport import _conversations as module
from trio_stomp.transport._conversations import Conversations
from trio_stomp.transport._trio_loop import TrioLoop

if TYPE_CHECKING:
    from trio_stomp.server import Connection

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="there is no epoll here")


class Talk:
    """A socket that is read in conversations, its task, and who is at the other end."""

    def __init__(self, conversations: Conversations, stack: ExitStack) -> None:
        ours, self.peer = socket.socketpair()
        ours.setblocking(False)
        stack.enter_context(self.peer)
        stack.callback(ours.close)
        self.poll = SlicedPoll(conversations)
        self.wire = SocketWire("peer", True, ours, self.poll)
        self.wire.is_direct = self.wire._is_drained = True
        self.took: list[bytes | None] = []
        self.refuses = False
        self.on_take: Callable[[], None] = lambda: None
        self.ended = False
        self.error: Exception | None = None

    def take(self, now: float) -> bool:
        if self.refuses:
            return False
        data = self.wire.receive_nowait(100)
        self.took.append(data)
        self.on_take()
        return data != b""

    def has_taken(self, count: int) -> bool:
        return len(self.took) >= count

    async def attend(self) -> None:
        self.ended = False
        try:
            await self.wire.attend(self.take)
        except Exception as error:
            self.error = error
        self.ended = True


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
async def conversations(stack: ExitStack) -> AsyncIterator[Conversations]:
    conversations = Conversations()
    conversations.open(stack.enter_context(select.epoll()))
    assert conversations.is_open, "this Trio has no loop that could be stood in for"
    yield conversations
    conversations.close()


@pytest.fixture
async def talk(conversations: Conversations, stack: ExitStack, nursery: trio.Nursery) -> Talk:
    talk = Talk(conversations, stack)
    nursery.start_soon(talk.attend)
    await wait_all_tasks_blocked()
    return talk


async def until(condition: Callable[[], object]) -> None:
    with trio.fail_after(5):
        while not condition():
            await trio.lowlevel.checkpoint()


# --- who reads --------------------------------------------------------------------------------


async def test_what_is_said_is_taken_without_waking_the_task(talk: Talk) -> None:
    steps = Steps(".attend")
    trio.lowlevel.add_instrument(steps)
    for number in range(3):
        talk.peer.send(b"%d" % number)
        await until(functools.partial(talk.has_taken, number + 1))
    trio.lowlevel.remove_instrument(steps)
    assert talk.took == [b"0", b"1", b"2"]
    assert not talk.ended
    assert steps.count == 0


async def test_a_task_whose_take_says_so_reads_itself(talk: Talk) -> None:
    talk.refuses = True
    talk.peer.send(b"x")
    await until(lambda: talk.ended)
    assert talk.took == []
    assert await talk.wire.receive_some(100) == b"x"


async def test_an_end_is_the_tasks(talk: Talk) -> None:
    talk.peer.close()
    await until(lambda: talk.ended)
    assert talk.took == [b""]
    assert await talk.wire.receive_some(100) == b""


async def test_what_taking_raises_the_task_raises(talk: Talk) -> None:
    def fail() -> None:
        raise ValueError("a bug")

    talk.on_take = fail
    talk.peer.send(b"x")
    await until(lambda: talk.ended)
    assert str(talk.error) == "a bug"


async def test_a_task_that_takes_an_end_of_itself_is_not_woken_twice(
    conversations: Conversations, stack: ExitStack
) -> None:
    talk = Talk(conversations, stack)
    with trio.CancelScope() as scope:

        def fail() -> None:
            scope.cancel()
            raise ValueError("too late")

        talk.on_take = fail
        talk.peer.send(b"x")
        await talk.attend()
    assert scope.cancelled_caught
    assert talk.error is None


async def test_cancelling_loses_nothing(conversations: Conversations, stack: ExitStack) -> None:
    talk = Talk(conversations, stack)
    for number in range(2):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk.attend)
            await wait_all_tasks_blocked()
            assert len(talk.took) == number
            nursery.cancel_scope.cancel()
        assert talk.wire.task is None
        talk.peer.send(b"%d" % number)
        await wait_all_tasks_blocked()
        assert len(talk.took) == number, "nobody attends"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk.attend)
            await until(functools.partial(talk.has_taken, number + 1))
            nursery.cancel_scope.cancel()
    assert talk.took == [b"0", b"1"]


async def test_who_does_not_attend_is_not_looked_at_again_and_again(
    talk: Talk, conversations: Conversations
) -> None:
    talk.refuses = True
    talk.peer.send(b"x")
    await until(lambda: talk.ended)
    file = talk.wire.fileno()
    await until(lambda: file not in conversations._known)
    looks: list[object] = []
    conversations.end_look = lambda: looks.append(None)
    for _ in range(3):
        await trio.lowlevel.checkpoint()
    assert looks == []


async def test_the_first_read_after_a_full_one_is_the_tasks(
    conversations: Conversations, stack: ExitStack
) -> None:
    talk = Talk(conversations, stack)
    talk.peer.send(b"12345")
    assert await talk.wire.receive_some(3) == b"123"
    await talk.attend()
    assert talk.ended
    assert await talk.wire.receive_some(3) == b"45"


async def test_a_closed_socket_is_not_attended(
    conversations: Conversations, stack: ExitStack
) -> None:
    talk = Talk(conversations, stack)
    await talk.wire.aclose()
    await talk.attend()
    assert (talk.ended, talk.error) == (True, None)


async def test_closing_ends_attending(talk: Talk, conversations: Conversations) -> None:
    await talk.wire.aclose()
    await until(lambda: talk.ended)
    assert not conversations._known


async def test_who_falls_silent_waits_elsewhere(talk: Talk) -> None:
    talk.poll._make_direct(talk.wire)
    talk.poll.sweep()
    await trio.lowlevel.checkpoint()
    assert not talk.ended, "it was heard since the last sweep"
    talk.poll.sweep()
    await until(lambda: talk.ended)
    assert not talk.wire.is_direct


async def test_at_the_end_all_tasks_go_on(talk: Talk, conversations: Conversations) -> None:
    conversations.close()
    await until(lambda: talk.ended)
    talk.peer.send(b"x")
    await talk.attend()
    assert await talk.wire.receive_some(100) == b"x"
    conversations.close()  # again: nothing is left to end


async def test_a_bug_leaves_nobody_waiting(
    talk: Talk, conversations: Conversations, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    conversations.end_look = fail
    talk.peer.send(b"x")
    await until(lambda: talk.ended)
    assert not conversations.is_open
    assert "before_io_wait" in caplog.text
    talk.peer.send(b"y")
    await talk.attend()
    assert await talk.wire.receive_some(100) == b"y"


async def test_what_the_kernel_refuses_its_task_reads(
    conversations: Conversations, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk(conversations, stack)
    talk.peer.send(b"x")

    class Full:
        def register(self, file: int, events: int) -> None:
            raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(conversations, "_epoll", Full())
        await talk.attend()
    assert talk.ended
    assert await talk.wire.receive_some(100) == b"x"


# --- looks ----------------------------------------------------------------------------------------


async def test_a_look_is_at_a_few_and_ends_with_a_turn(
    conversations: Conversations,
    stack: ExitStack,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 4)
    talks = [Talk(conversations, stack) for _ in range(10)]
    for talk in talks:
        nursery.start_soon(talk.attend)
    await wait_all_tasks_blocked()
    counts: list[int] = []
    conversations.end_look = lambda: counts.append(sum(len(talk.took) for talk in talks))
    for talk in talks:
        talk.peer.send(b"x")
    await until(lambda: all(talk.took for talk in talks))
    assert all(talk.took == [b"x"] for talk in talks)
    sizes = [after - before for before, after in zip([0, *counts], counts, strict=False)]
    assert max(sizes) <= 4
    assert sum(sizes) == 10


# --- what Trio gets -------------------------------------------------------------------------------


async def test_what_trio_waits_for_is_not_held_up(talk: Talk, stack: ExitStack) -> None:
    ours, theirs = socket.socketpair()
    stack.enter_context(ours)
    stack.enter_context(theirs)
    token = trio.lowlevel.current_trio_token()
    # From a thread, while this one waits in the place of Trio.
    await trio.to_thread.run_sync(lambda: trio.from_thread.run_sync(theirs.send, b"x"))
    with trio.fail_after(5):
        await trio.lowlevel.wait_readable(ours)
    told = trio.Event()
    await trio.to_thread.run_sync(token.run_sync_soon, told.set)
    with trio.fail_after(5):
        await told.wait()
    assert not talk.ended


async def test_a_task_that_a_look_wakes_goes_on(talk: Talk) -> None:
    told = trio.Event()
    talk.on_take = told.set
    talk.peer.send(b"x")
    with trio.fail_after(5):
        await told.wait()
    assert talk.took == [b"x"]


async def test_a_deadline_that_a_look_brings_forward_holds(talk: Talk) -> None:
    with trio.fail_after(5), trio.CancelScope() as scope:

        def hurry() -> None:
            scope.deadline = trio.current_time()

        talk.on_take = hurry
        talk.peer.send(b"x")
        await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_deadline_holds_while_nobody_speaks(talk: Talk) -> None:
    with trio.move_on_after(0.001) as scope:
        await trio.sleep_forever()
    assert scope.cancelled_caught
    assert not talk.ended


async def test_who_waits_for_quiet_is_told(talk: Talk) -> None:
    for _ in range(3):
        talk.peer.send(b"x")
        with trio.fail_after(5):
            await wait_all_tasks_blocked(0.001)
    assert talk.took == [b"x"] * 3


@pytest.mark.parametrize("threshold", [0, 0.001])
async def test_a_clock_that_jumps_still_does(
    mock_clock: MockClock, talk: Talk, threshold: float
) -> None:
    mock_clock.autojump_threshold = threshold
    before = trio.current_time()
    await trio.sleep(10_000)
    assert trio.current_time() == before + 10_000


# --- where it cannot be done ------------------------------------------------------------------


async def test_a_trio_that_hides_its_loop_reads_as_usual(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrioLoop, "is_watched", property(lambda loop: loop.no_such_thing))
    conversations = Conversations()
    conversations.open(stack.enter_context(select.epoll()))
    assert not conversations.is_open
    talk = Talk(conversations, stack)
    talk.peer.send(b"x")
    await talk.attend()
    assert await talk.wire.receive_some(100) == b"x"


def test_in_guest_mode_the_other_loop_is_not_held_up() -> None:
    calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
    found: list[TrioLoop | None] = []
    is_done: list[object] = []

    async def look() -> None:
        found.append(TrioLoop.current())

    trio.lowlevel.start_guest_run(
        look,
        run_sync_soon_threadsafe=calls.put,
        done_callback=is_done.append,
        host_uses_signal_set_wakeup_fd=True,
    )
    while not is_done:
        calls.get(timeout=5)()
    assert found == [None]


# --- the broker -----------------------------------------------------------------------------------


@pytest.fixture(params=[TCP, WS_TCP, TLS, WSS])
async def dial(request: pytest.FixtureRequest) -> AsyncIterator[Dial]:
    quiet = {"diag_interval_s": 0.0, "websocket_ping_s": 0.0}
    async with open_dial(request.param, **quiet) as dial:
        yield dial


async def asks(client: Client, number: int) -> None:
    headers = [("destination", "/t"), ("receipt", f"{number}")]
    await client.send("SEND", headers, b"x")
    assert (await client.receive())["receipt-id"] == f"{number}"


async def test_a_client_is_served_without_waking_a_task(dial: Dial) -> None:
    client = await dial.open()
    await client.connect()
    await asks(client, 0)
    await wait_all_tasks_blocked()
    steps, turns = Steps("._dispatch", "._serve_stream"), dial.server.dispatcher.turns
    trio.lowlevel.add_instrument(steps)
    for number in range(10):
        await asks(client, number)
    trio.lowlevel.remove_instrument(steps)
    assert steps.count == 0
    assert dial.server.dispatcher.turns >= turns + 10


async def test_nothing_overtakes_what_is_in_the_queue(dial: Dial) -> None:
    client = await dial.open()
    await client.connect()
    await asks(client, 0)
    await wait_all_tasks_blocked()
    connection = next(iter(dial.server.connections))
    order: list[str] = []
    inbox, dispatcher = dial.server.inbox, dial.server.dispatcher
    take_now = inbox.take_now
    assert take_now is not None

    async def nothing(number: int) -> None:
        await inbox.put(Control(lambda now: order.append(f"put {number}")))

    await nothing(1)
    await nothing(2)
    take_now(Batch(connection, [], 0, 0, 0.0))
    assert order == ["put 1", "put 2"]
    assert inbox.waiting == 0
    dispatcher.end_look()
    await nothing(3)
    await wait_all_tasks_blocked()
    assert order == ["put 1", "put 2", "put 3"]


async def test_a_turn_that_fails_in_no_task_still_ends_the_broker() -> None:
    def die(now: float) -> None:
        raise KeyboardInterrupt

    servers = []

    async def run() -> None:
        async with open_dial(TCP, diag_interval_s=0.0) as dial:
            client = await dial.open()
            await client.connect()
            await asks(client, 0)
            await wait_all_tasks_blocked()
            servers.append(dial.server)
            dial.server.dispatcher.end_turn = die
            assert dial.server.inbox.take_now is not None
            await client.send("SEND", [("destination", "/t")], b"x")
            await dial.ended.wait()

    with trio.fail_after(5), pytest.raises(BaseExceptionGroup) as caught:
        await run()
    assert caught.group_contains(KeyboardInterrupt)
    assert servers[0].connections == {}


async def fail_in_a_look(then: Callable[[Dispatcher], None]) -> None:
    """Have a turn fail in the midst of a look, do something, end the look; it ends the broker."""

    async def run() -> None:
        async with open_dial(TCP, diag_interval_s=0.0) as dial:
            await dial.start()
            await wait_all_tasks_blocked()
            inbox, dispatcher = dial.server.inbox, dial.server.dispatcher
            assert inbox.take_now is not None
            inbox.take_now(Batch(cast("Connection", None), [], 0, 0, 0.0))
            then(dispatcher)
            dispatcher.end_look()
            assert inbox.take_now is None
            await dial.ended.wait()

    with trio.fail_after(5), pytest.raises(BaseExceptionGroup) as caught:
        await run()
    assert caught.group_contains(AttributeError)


async def test_a_turn_that_failed_is_not_ended_as_if_it_had_not() -> None:
    ends: list[float] = []
    await fail_in_a_look(lambda dispatcher: setattr(dispatcher, "end_turn", ends.append))
    assert ends == []


async def test_what_a_look_hears_after_a_turn_failed_begins_none() -> None:
    told: list[float] = []
    await fail_in_a_look(lambda dispatcher: dispatcher.call_in_look(told.append))
    assert told == []


async def test_what_a_look_hears_is_called_in_the_turn_that_ends_it() -> None:
    async with open_dial(TCP, diag_interval_s=0.0) as dial:
        await dial.start()
        await wait_all_tasks_blocked()
        dispatcher = dial.server.dispatcher
        told: list[float] = []
        turns = dispatcher.turns
        dispatcher.call_in_look(told.append)
        dispatcher.call_in_look(told.append)
        assert told == []
        dispatcher.end_look()
        assert len(told) == 2
        dispatcher.end_look()
        assert (len(told), dispatcher.turns) == (2, turns + 1)
