"""The end of a broker that hands over to others: not ready first, then client after client."""

import pytest
import trio

from tests.support.fakes import MEMORY, WS_MEMORY, Client, StreamPipe, open_dial, until
from tests.support.served import QUIET
from tests.support.site import ask_over_wire

FAREWELLS = pytest.mark.parametrize("farewell", ["close", "error"])


async def expect_farewell(client: Client, farewell: str) -> None:
    """The client gets the chosen farewell and nothing else."""
    answers = [(frame.command, frame["code"]) for frame in await client.read_to_end()]
    assert answers == ([("ERROR", "shutting-down")] if farewell == "error" else [])


@FAREWELLS
async def test_it_is_not_ready_while_it_drains_and_takes_no_more_sessions(
    autojump_clock, farewell: str
) -> None:
    async with open_dial(**QUIET, farewell=farewell, drain_s=10) as dial:
        busy = await dial.connect()
        await busy.send("BEGIN", {"transaction": "t"})
        await busy.fence()
        dial.handle.stop()
        await trio.sleep(1)
        ready = await ask_over_wire(dial.listener.connect(), "/readyz")
        assert ready.status == 503
        assert "stopping" in ready.text
        assert (await ask_over_wire(dial.listener.connect(), "/livez")).status == 200
        late = Client(StreamPipe(dial.listener.connect()))
        await late.send("CONNECT", {"accept-version": "1.2", "host": "x"})
        if farewell == "error":
            error = await late.receive()
            assert error["code"] == "shutting-down"
            assert int(error["retry-after-ms"]) > 0
        assert await late.read_to_end() == []
        await late.aclose()
        assert await busy.fence() == [], "it is in the middle of something"
        await busy.send("COMMIT", {"transaction": "t", "receipt": "done"})
        await busy.receive_until_receipt("done")
        await expect_farewell(busy, farewell)


@FAREWELLS
@pytest.mark.parametrize("transport", [MEMORY, WS_MEMORY])
async def test_clients_are_sent_away_at_an_even_pace(
    autojump_clock, transport: str, farewell: str
) -> None:
    async with open_dial(transport, **QUIET, farewell=farewell, drain_s=4) as dial:
        clients = [await dial.connect() for _ in range(50)]
        left: list[int] = []

        async def read(client: Client) -> None:
            await expect_farewell(client, farewell)
            if transport == WS_MEMORY:
                assert client.websocket.close_code == 1001
            await client.aclose()

        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(read, client)
            dial.handle.stop()
            for _ in range(7):
                await trio.sleep(0.5)
                left.append(len(dial.server.connections))
        assert left == sorted(left, reverse=True)
        assert left[0] > 35
        assert 15 < left[3] < 35
        assert left[6] < 15


async def test_unfinished_client_is_closed_at_the_end(autojump_clock) -> None:
    async with open_dial(**QUIET, drain_s=3) as dial:
        holder = await dial.connect()
        await holder.subscribe("/queue/q", headers={"ack": "client"})
        await holder.publish("/queue/q", b"x")
        await holder.receive()
        began = trio.current_time()
        dial.handle.stop()
        assert await holder.read_to_end() == []
        assert 3 <= trio.current_time() - began < 4
        await until(lambda: not dial.server.connections, 0.1)
        dial.server.broker.queues.end("/queue/q", 0.0)


async def test_without_time_to_drain_it_stops_at_once(autojump_clock) -> None:
    async with open_dial(**QUIET) as dial:
        client = await dial.connect()
        await client.send("BEGIN", {"transaction": "t"})
        await client.fence()
        began = trio.current_time()
        dial.handle.stop()
        assert await client.read_to_end() == []
        assert trio.current_time() - began < 1
