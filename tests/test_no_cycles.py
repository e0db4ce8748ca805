"""What has ended is gone at once: the program never looks through old objects for cycles."""

import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests._fakes import TRANSPORTS, Client, Dial, open_dial


@pytest.fixture(params=TRANSPORTS)
async def dial(request: pytest.FixtureRequest) -> AsyncIterator[Dial]:
    quiet = {"diag_interval_s": 0.0, "websocket_ping_s": 0.0}
    async with open_dial(request.param, **quiet) as dial:
        yield dial


@contextmanager
def cycles() -> Iterator[list[object]]:
    """What only the collector would have found, once the block has ended."""
    found: list[object] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += (each for each in gc.garbage if type(each).__module__.startswith("trio_stomp"))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def talk(client: Client) -> None:
    await client.connect()
    await client.subscribe("/queue/a", "1")
    await client.subscribe("/topic/a", "2")
    for destination in ("/queue/a", "/topic/a"):
        await client.publish(destination, b"x")
    await client.receive_many(2)


async def end(client: Client, way: str) -> None:
    if way == "disconnect":
        await client.disconnect()
    elif way == "error":
        await client.send("NONSENSE")
        await client.read_to_end()
    elif way == "reset":
        client.abort()
        return
    await client.aclose()


@pytest.mark.parametrize("way", ["disconnect", "error", "reset", "close"])
async def test_a_connection_leaves_no_cycle(dial: Dial, way: str) -> None:
    async def come_and_go() -> None:
        client = await dial.open()
        await talk(client)
        await end(client, way)
        with trio.fail_after(5):
            while dial.server.connections:
                await wait_all_tasks_blocked()

    await come_and_go()  # what is made once, for the first of all, may stay
    with cycles() as found:
        for _ in range(3):
            await come_and_go()
    assert found == []


def test_a_cycle_would_be_found() -> None:
    from trio_stomp import Settings

    class Cycle(Settings):
        __module__ = "trio_stomp"

    with cycles() as found:
        object.__setattr__(cycle := object.__new__(Cycle), "me", cycle)
        del cycle
    assert len(found) == 1
