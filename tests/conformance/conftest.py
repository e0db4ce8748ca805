"""The broker under test, dialled over each transport."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from tests.support.fakes import MEMORY, TRANSPORTS, WS_MEMORY, WS_TCP, Dial, open_dial, until


async def empty_queues(dial: Dial) -> None:
    """Consume the messages left in queues: at the end of a test a broker must hold nothing."""
    if not dial._is_started or dial.ended.is_set():
        return
    queues = [queue for broker in dial.brokers for queue in broker.queues]
    if not any(queue.message_count for queue in queues):
        return
    step_s = 0.1 if isinstance(trio.lowlevel.current_clock(), MockClock) else 0.0
    for stream in [*dial._streams]:
        await trio.aclose_forcefully(stream)
    await until(lambda: not dial.server.connections, step_s)
    client = await dial.connect()
    for number, queue in enumerate([queue for queue in queues if queue.message_count]):
        await client.subscribe(queue.name, id=str(number))

    async def read() -> None:
        while await client.pipe.receive_bytes():
            pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await until(lambda: not any(queue.message_count for queue in queues), step_s)
        nursery.cancel_scope.cancel()


@pytest.fixture(params=TRANSPORTS)
async def dial(request: pytest.FixtureRequest) -> AsyncIterator[Dial]:
    """Return a dialler of a new broker for each test, over each transport."""
    async with open_dial(request.param) as opened:
        opened.colocate = getattr(request.module, "COLOCATE", "")
        yield opened
        await empty_queues(opened)


@pytest.fixture(params=(MEMORY, WS_MEMORY))
async def timed_dial(request: pytest.FixtureRequest) -> AsyncIterator[Dial]:
    """Return a dialler for virtual time, which cannot see data waiting in a real socket.

    The test must ask for ``autojump_clock`` itself: pytest-trio looks no deeper.
    """
    async with open_dial(request.param) as opened:
        yield opened
        await empty_queues(opened)


@pytest.fixture(params=(WS_MEMORY, WS_TCP))
async def ws_dial(request: pytest.FixtureRequest) -> AsyncIterator[Dial]:
    """The same for WebSockets alone."""
    async with open_dial(request.param) as opened:
        yield opened
        await empty_queues(opened)


@pytest.fixture(params=(MEMORY, "tcp"))
async def raw_dial(request: pytest.FixtureRequest) -> AsyncIterator[Dial]:
    """Return a dialler for transports other than WebSocket."""
    async with open_dial(request.param) as opened:
        yield opened
        await empty_queues(opened)
