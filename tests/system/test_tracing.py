"""The headers of W3C Trace Context pass through the broker unchanged, wherever a message goes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve

from tests.support.management import ask
from trio_stomp import Settings
from trio_stomp.broker import DestinationPolicy
from trio_stomp.client import Client, Message
from trio_stomp.testing import TestBroker, open_test_broker

TRACE = {
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
}


LOGGED = (("/topic/logged", DestinationPolicy(stream=True)),)


@pytest.fixture(params=["memory", "journal"])
def data_dir(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The directory of the store, or "" for memory."""
    return str(tmp_path) if request.param == "journal" else ""


@asynccontextmanager
async def connected(data_dir: str) -> AsyncIterator[tuple[Client, TestBroker]]:
    settings = Settings.of(
        diag_interval_s=0, ttl_ms=60_000, **({"data_dir": data_dir} if data_dir else {})
    )
    with trio.fail_after(30):
        async with (
            open_test_broker(evolve(settings, destinations=LOGGED)) as broker,
            broker.client(client_id="me") as client,
        ):
            yield client, broker


def check(message: Message) -> None:
    assert {name: message.headers.get(name) for name in TRACE} == TRACE


async def send(client: Client, destination: str, **headers: str) -> None:
    await client.send(destination, "x", headers={**TRACE, **headers}, persistent=True)


async def check_first(client: Client, destination: str, **subscribing: str) -> None:
    """Take one message, without a transaction or a redelivery."""
    async with client.subscribe(destination, headers=subscribing) as messages:
        check(await messages.receive())


async def test_through_queues(data_dir: str) -> None:
    """Delivered, redelivered, a dead letter, moved; in a transaction; scheduled."""
    async with connected(data_dir) as (client, broker):
        await send(client, "/queue/q")
        async with client.subscribe("/queue/q", ack="client-individual") as messages:
            check(first := await messages.receive())
            await first.nack()
            check(again := await messages.receive())
            assert again.redelivered
            await again.nack(requeue=False)
        async with client.subscribe("/queue/DLQ.q", ack="client-individual") as messages:
            check(await messages.receive())
        target = "move?queue=/queue/DLQ.q&to=/queue/moved"
        moved = await ask(await broker.connect(), "POST", target)
        assert moved.json["moved"] == 1
        await check_first(client, "/queue/moved")
        async with client.transaction() as transaction:
            await transaction.send("/queue/q", "x", headers=TRACE, persistent=True)
        await check_first(client, "/queue/q")
        await send(client, "/queue/q", AMQ_SCHEDULED_DELAY="1")
        await check_first(client, "/queue/q")


async def test_through_topics(data_dir: str) -> None:
    """To a subscriber, a durable subscription, a stream, as last value, from the stale queue."""
    async with connected(data_dir) as (client, _):
        async with client.subscribe("/topic/plain") as messages:
            await send(client, "/topic/plain", retain="set")
            check(await messages.receive())
        await check_first(client, "/topic/plain")
        await send(client, "/topic/stale")
        await check_first(client, "/topic/stale")
        async with client.subscribe("/topic/kept", ack="client-individual", durable="d"):
            pass
        await send(client, "/topic/kept")
        async with client.subscribe(
            "/topic/kept", ack="client-individual", durable="d"
        ) as messages:
            check(await messages.receive())
        await send(client, "/topic/logged")
        async with client.subscribe("/stream/topic/logged", offset="first") as messages:
            check(await messages.receive())


async def test_in_a_request_and_its_answer(data_dir: str) -> None:
    async with connected(data_dir) as (client, _), trio.open_nursery() as nursery:

        async def answer() -> None:
            async with client.subscribe("/queue/questions") as questions:
                check(question := await questions.receive())
                reported = {**TRACE, "correlation-id": question.headers["correlation-id"]}
                await client.send(question.headers["reply-to"], "y", headers=reported)

        nursery.start_soon(answer)
        check(await client.request("/queue/questions", timeout_s=20, headers=TRACE))


async def test_over_a_restart(tmp_path: Path) -> None:
    data_dir = str(tmp_path)
    async with connected(data_dir) as (client, _):
        async with client.subscribe("/topic/kept", ack="client-individual", durable="d"):
            pass
        for destination in ("/queue/q", "/topic/kept", "/topic/logged"):
            await send(client, destination)
    async with connected(data_dir) as (client, _):
        await check_first(client, "/queue/q")
        async with client.subscribe(
            "/topic/kept", ack="client-individual", durable="d"
        ) as messages:
            check(await messages.receive())
        async with client.subscribe("/stream/topic/logged", offset="first") as messages:
            check(await messages.receive())


async def test_the_example_of_the_page() -> None:
    pytest.importorskip("opentelemetry", reason="no opentelemetry-api: the page is NOT tested")
    from opentelemetry import context, propagate

    page = (Path(__file__).parents[2] / "docs" / "use" / "tracing.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(page.partition('title="traced.py"\n')[2].partition("```")[0], names)
    async with (
        connected("") as (client, _),
        client.subscribe("/queue/orders") as orders,
    ):
        token = context.attach(propagate.extract(TRACE))
        await names["order"](client, "tea")
        context.detach(token)
        found: dict[str, str] = {}

        async def work(message: Message) -> None:
            propagate.inject(found)

        await names["handle"](await orders.receive(), work)
        assert found == TRACE
