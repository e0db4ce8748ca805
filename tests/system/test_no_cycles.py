"""Ended connections leave no reference cycles to the garbage collector, which runs rarely."""

import gc
import weakref
from collections import Counter
from collections.abc import Iterator

import pytest
import trio

from tests.support.fakes import MEMORY, TCP, TLS, TRANSPORTS, WS_TCP, Client, Dial, open_dial, until
from tests.support.served import QUIET

COUNT = 20


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Disable automatic garbage collection."""
    while gc.collect():  # garbage of other tests
        pass
    gc.freeze()  # and need not be walked again
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def expect_no_garbage() -> None:
    """Check that the collector finds no objects of ours, except those still in a frame."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = Counter(type(each).__module__ + "." + type(each).__qualname__ for each in gc.garbage)
    ours = {name: count for name, count in found.items() if name.startswith("trio_stomp")}
    assert all(count <= 2 for count in ours.values()), ours


async def leave(client: Client) -> None:
    await client.disconnect()


async def hang_up(client: Client) -> None:
    await client.aclose()


async def reset(client: Client) -> None:
    client.abort()
    await trio.lowlevel.checkpoint()


async def break_a_rule(client: Client) -> None:
    await client.send("SEND", {})
    await client.read_to_end()
    await client.aclose()


async def break_the_frame(client: Client) -> None:
    await client.send_bytes(b"SEND\ndestination:/t\nbad\\xheader:1\n\n\0")
    await client.read_to_end()
    await client.aclose()


async def die_in_a_frame(client: Client) -> None:
    await client.send_bytes(b"SEND\ndestination:/t\ncontent-length:500000\n\n" + b"x" * 200_000)
    client.abort()


@pytest.mark.parametrize(
    "transport",
    [
        pytest.param(each, marks=() if each in (MEMORY, TLS, WS_TCP) else pytest.mark.full)
        for each in TRANSPORTS
    ],
)
@pytest.mark.parametrize(
    "ends", [leave, hang_up, reset, break_a_rule, break_the_frame, die_in_a_frame]
)
async def test_a_connection_is_gone_when_it_has_ended(
    transport: str, ends, no_collector: None
) -> None:
    async with open_dial(transport, **QUIET) as dial:
        await dial.connect()
        for _ in range(COUNT):
            await _live_and_die(dial, ends)
        await until(lambda: len(dial.server.connections) == 1)
        expect_no_garbage()


async def _live_and_die(dial: Dial, ends) -> None:
    client = await dial.connect()
    await client.subscribe("/topic/a")
    await client.publish("/topic/b", b"x")
    await ends(client)
    dial._streams.pop()


@pytest.mark.parametrize("transport", [TCP, TLS])
async def test_a_connection_that_ends_with_unread_messages_is_gone(
    transport: str, no_collector: None
) -> None:
    async with open_dial(transport, **QUIET) as dial:
        sender = await dial.connect()
        clients = [await dial.connect() for _ in range(5)]
        for client in clients:
            for number in range(16):  # more in all than the kernel takes
                await client.subscribe("/topic/a", id=f"{number}")
        await sender.publish("/topic/a", b"x" * 1_000_000, receipt=True)
        for client in clients:
            client.abort()
        await until(lambda: len(dial.server.connections) == 1)
        await sender.fence()
        expect_no_garbage()


async def test_a_waiting_message_keeps_no_connection_in_memory(no_collector: None) -> None:
    known: list[weakref.ref[object]] = []
    async with open_dial(TCP, **QUIET) as dial:
        for number in range(COUNT):
            client = await dial.connect()
            await client.subscribe(f"/queue/a{number}")
            await client.subscribe("/topic/>", id="w")
            await client.publish(f"/queue/b{number}", b"x", receipt=True)
            await client.publish(f"/topic/{number}", b"x", receipt=True)
            for each in dial.server.connections:
                known += weakref.ref(each), weakref.ref(each.link)
            await client.aclose()
        del client, each
        dial._streams.clear()
        await until(lambda: not dial.server.connections)
        assert len(known) >= 2 * COUNT
        assert len({id(each()) for each in known if each() is not None}) <= 2
        last = await dial.connect()
        for number in range(COUNT):  # consume the waiting messages, so that nothing is left
            await last.subscribe(f"/queue/b{number}", id=str(number))
            await last.receive()


SUBSCRIPTIONS = (
    ("/queue/a", {"ack": "client-individual"}),
    ("/queue/a*", {"ack": "client"}),
    ("/queue/a", {"browser": "true"}),
    ("/topic/a", {"ack": "client"}),
    ("/topic/a", {"durable": "true", "client-id": "c"}),
    ("#work", {"ack": "client-individual"}),
    ("/topic/a", {"selector": "a > 1"}),
)


@pytest.mark.parametrize(("destination", "headers"), SUBSCRIPTIONS)
async def test_a_subscription_is_gone_when_it_has_ended(
    destination: str, headers: dict[str, str], no_collector: None
) -> None:
    async with open_dial(MEMORY, **QUIET) as dial:
        client = await dial.connect()
        for _ in range(COUNT):
            await client.subscribe(destination, headers=headers)
            more = {"durable": "true"} if "durable" in headers else {}
            await client.send("UNSUBSCRIBE", {"id": "1", **more})
        await client.fence()
        expect_no_garbage()


async def test_a_forgotten_destination_is_gone(no_collector: None) -> None:
    async with open_dial(MEMORY, **QUIET, max_destinations=1000) as dial:
        client = await dial.connect()
        for number in range(2000):
            await client.subscribe(f"/queue/{number}")
            await client.send("UNSUBSCRIBE", {"id": "1"})
        await client.fence()
        expect_no_garbage()
