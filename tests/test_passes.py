"""What comes alone is dispatched where it was read; what comes together waits for one turn."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests._fakes import TRANSPORTS, Client, Dial, MemoryListener, StreamPipe, open_dial
from tests.test_inbox import batch, inbox_of
from trio_stomp import CloseReason, ServerHandle, Settings
from trio_stomp._security import Security
from trio_stomp._serve import _assemble
from trio_stomp.server import Entrance
from trio_stomp.server._inbox import Batch, Gone
from trio_stomp.server._passes import ALONE, Passes


class Steps(trio.abc.Instrument):
    """Counts the steps of the dispatcher's task."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += "Server._dispatch" in task.name


@pytest.fixture(params=TRANSPORTS)
async def dial(request: pytest.FixtureRequest) -> AsyncIterator[Dial]:
    quiet = {"diag_interval_s": 0.0, "websocket_ping_s": 0.0}
    async with open_dial(request.param, **quiet) as dial:
        yield dial


# --- passes -----------------------------------------------------------------------------------


def passes_of(reads: list[int]) -> list[list[bool]]:
    """What is said of each read, in passes of so many."""
    passes = Passes()
    said = []
    for count in reads:
        said.append([passes.is_alone() for _ in range(count)])
        passes.before_io_wait(0.0)
    return said


def test_a_read_is_alone_once_those_before_were() -> None:
    said = passes_of([1] * (ALONE + 2))
    assert said == [[False]] * ALONE + [[True]] * 2


def test_passes_without_reads_say_nothing() -> None:
    said = passes_of([1, 0, 0] * ALONE + [0, 1])
    assert said[-1] == [True]


def test_the_second_of_a_pass_is_not_alone_and_company_is_remembered() -> None:
    said = passes_of([1] * ALONE + [2, 1] + [1] * (ALONE - 1) + [1])
    assert said[ALONE] == [True, False]
    assert said[ALONE + 1 : -1] == [[False]] * ALONE
    assert said[-1] == [True]


# --- the input queue ----------------------------------------------------------------------------


def be_alone(passes: Passes) -> None:
    passes.before_io_wait(0.0)
    for _ in range(ALONE):
        passes.is_alone()
        passes.before_io_wait(0.0)


async def test_a_lone_batch_goes_past_the_queue() -> None:
    inbox, taken = inbox_of(), list[Batch]()
    inbox.take_now = taken.append
    first, lone = batch(1), batch(2)
    await inbox.put_batch(first)
    assert (taken, inbox.frames) == ([], 1)
    assert await inbox.take() is first
    be_alone(inbox.passes)
    inbox.take_now = taken.append
    await inbox.put_batch(lone)
    assert (taken, inbox.frames) == ([lone], 0)


@pytest.mark.parametrize("way", ["put", "wake"])
async def test_nothing_overtakes_what_is_in_the_queue(way: str) -> None:
    inbox, taken = inbox_of(), list[Batch]()
    be_alone(inbox.passes)
    inbox.take_now = taken.append
    if way == "put":
        await inbox.put(Gone(batch(1).connection, CloseReason.CLIENT_CLOSED))
    else:
        inbox.wake()
    last = batch(1)
    await inbox.put_batch(last)
    assert not taken
    await inbox.take()
    assert await inbox.take() is last


async def test_without_a_dispatcher_there_is_nobody_to_take_it() -> None:
    inbox, taken = inbox_of(), list[Batch]()
    be_alone(inbox.passes)
    inbox.take_now = taken.append
    inbox.abandon()
    with pytest.raises(trio.BrokenResourceError):
        await inbox.put_batch(batch(1))
    assert not taken


# --- the broker -----------------------------------------------------------------------------------


async def asks(client: Client, number: int) -> None:
    headers = [("destination", "/t"), ("receipt", f"{number}")]
    await client.send("SEND", headers, b"x")
    assert (await client.receive())["receipt-id"] == f"{number}"


async def test_a_lone_client_is_served_without_waking_the_dispatcher(dial: Dial) -> None:
    client = await dial.open()
    await client.connect()
    for number in range(2 * ALONE):
        await asks(client, number)
    await wait_all_tasks_blocked()
    steps, turns = Steps(), dial.server.dispatcher.turns
    trio.lowlevel.add_instrument(steps)
    for number in range(10):
        await asks(client, number)
    trio.lowlevel.remove_instrument(steps)
    assert steps.count == 0
    assert dial.server.dispatcher.turns >= turns + 10


async def test_a_turn_that_fails_where_it_was_read_still_ends_the_broker() -> None:
    def die(now: float) -> None:
        raise KeyboardInterrupt

    listener, handle = MemoryListener(), ServerHandle(("in-memory",))
    settings = Settings.of(diag_interval_s=0.0, websocket_ping_s=0.0)
    server = _assemble(settings, Security(settings), handle)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.run, [Entrance(listener)], handle, lambda: None)
            client = Client(StreamPipe(listener.connect()))
            await client.connect()
            for number in range(2 * ALONE):
                await asks(client, number)
            await wait_all_tasks_blocked()
            server.dispatcher.end_turn = die
            assert server.inbox.take_now is not None
            await client.send("SEND", [("destination", "/t")], b"x")
            await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        await run()
    assert caught.group_contains(KeyboardInterrupt, match=None)
    assert server.connections == {}
