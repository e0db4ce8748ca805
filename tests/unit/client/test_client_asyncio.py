"""Features specific to asyncio: tasks, their cancellation, groups and timeouts, generators."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

import pytest

from tests.support.gate import Gate, open_gate
from tests.support.tls import authority
from trio_stomp.client import Client, ClientClosed, LinkLost, Subscription, open_client
from trio_stomp.client.loops import Loop, ParkingLot, Scope, current_loop
from trio_stomp.testing import ThreadedBroker, threaded_broker


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run on asyncio for at most half a minute."""
    asyncio.run(asyncio.wait_for(main, 30))


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadedBroker]:
    with threaded_broker(diag_interval_s=0) as running:
        yield running


@pytest.fixture
def gate(broker: ThreadedBroker) -> Iterator[Gate]:
    with open_gate(broker.port) as running:
        yield running


# --- the client -------------------------------------------------------------------------------


def test_a_task_that_is_cancelled(gate: Gate) -> None:
    async def stay(opened: "asyncio.Future[Client]") -> None:
        async with open_client(gate.url) as client:
            gate.hold()
            opened.set_result(client)
            await client.send("/topic/a")

    async def main() -> None:
        opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(stay(opened))
        client = await opened
        await asyncio.sleep(0.05)
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client._core.awaited == {}
        assert len(asyncio.all_tasks()) == 1 + (sys.version_info < (3, 12))  # and wait_for's

    run(main())


def test_timeouts_and_groups(broker: ThreadedBroker) -> None:
    async def consume(messages: Subscription, taken: list[str]) -> None:
        async for message in messages:
            taken.append(message.text)
            if message.text == "bad":
                raise ValueError(message.text)

    async def work(client: Client, messages: Subscription, taken: list[str]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(consume(messages, taken))
            for text in ("good", "bad"):
                await client.send("/topic/a", text)
            await asyncio.sleep(30)

    async def main() -> None:
        taken: list[str] = []
        async with open_client(broker.url) as client, client.subscribe("/topic/a") as messages:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(messages.receive(), 0.05)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await messages.receive_batch()
            with pytest.raises(ExceptionGroup) as caught:
                await work(client, messages, taken)
            assert [type(each) for each in caught.value.exceptions] == [ValueError]
            await client.send("/topic/a", "later")
            assert (await messages.receive()).text == "later"
        assert taken == ["good", "bad"]

    run(main())


def test_an_end_for_good_and_a_cancellation_at_once(gate: Gate) -> None:
    """The cancellation from outside counts: it is not lost in the end of the client."""

    async def stay() -> None:
        async with open_client(gate.url, reconnect=None) as client:
            core = client._core
            task = asyncio.current_task()
            assert task is not None
            core.failure = LinkLost("for good")
            core._end()
            asyncio.get_running_loop().call_soon(task.cancel)
            await asyncio.sleep(30)

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(stay())

    run(main())


def test_a_client_of_a_generator_that_others_resume(gate: Gate) -> None:
    """As a fixture of pytest-asyncio, whose parts run in different tasks."""

    async def fixture(reconnect: None = None) -> AsyncIterator[Client]:
        async with open_client(gate.url, reconnect=reconnect) as client:
            yield client

    async def first(generator: AsyncIterator[Client]) -> Client:
        return await anext(generator)

    async def main() -> None:
        for is_cut in (False, True):
            generator = fixture()
            client = await asyncio.create_task(first(generator))
            assert (await client.send("/topic/a")).matched == 0
            if is_cut:
                gate.hold()
                sending = asyncio.create_task(client.send("/topic/a"))
                gate.cut()
                with pytest.raises(LinkLost):
                    await sending
            with pytest.raises(LinkLost if is_cut else StopAsyncIteration):
                await asyncio.create_task(first(generator))
            with pytest.raises(LinkLost if is_cut else ClientClosed):
                await client.send("/topic/a")

    run(main())


def test_two_receivers_of_which_one_is_cancelled(broker: ThreadedBroker) -> None:
    async def main() -> None:
        async with open_client(broker.url) as client, client.subscribe("/topic/a") as messages:
            first, second = (asyncio.create_task(messages.receive()) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            await client.send("/topic/a", "x")
            assert (await second).text == "x"
            assert first.cancelled()

    run(main())


def test_uvloop_over_each_transport() -> None:
    """It takes fewer arguments than the loop of asyncio itself, and has streams of its own."""
    uvloop = pytest.importorskip("uvloop", reason="no uvloop: the client is NOT tested on it")

    async def main(url: str) -> None:
        context = authority().client_context()
        async with (
            asyncio.timeout(30),
            open_client(url, ssl_context=context) as client,
            client.subscribe("/queue/a", ack="client-individual") as messages,
        ):
            for _ in range(10):
                await client.send("/queue/a", bytes(500_000), receipt=False)
            for _ in range(10):
                await (await messages.receive()).ack()

    with threaded_broker(tls_cert=authority().certificate, diag_interval_s=0) as broker:
        for scheme in ("stomp", "stomps", "ws", "wss"):
            path = "/ws" if scheme.startswith("ws") else ""
            uvloop.run(main(f"{scheme}://{broker.host}:{broker.port}{path}"))


ALONE = """
import sys
import {mine}
from trio_stomp.client import open_client

async def main():
    async with open_client({url!r}) as client, client.subscribe("/queue/a") as messages:
        await client.send("/queue/a", "x")
        assert (await messages.receive()).text == "x"

{run}
assert {other!r} not in sys.modules
"""


@pytest.mark.parametrize("scheme", ["stomp", "ws"])
def test_neither_library_needs_the_other(broker: ThreadedBroker, scheme: str) -> None:
    url = broker.url.replace("stomp", scheme)
    for mine, run_, other in (
        ("asyncio", "asyncio.run(main())", "trio"),
        ("trio", "trio.run(main)", "asyncio"),
    ):
        code = ALONE.format(mine=mine, run=run_, other=other, url=url)
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- the primitives ---------------------------------------------------------------------------


def test_a_client_needs_a_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        current_loop()


def test_a_parked_task_that_is_woken_and_cancelled_wakes_the_next() -> None:
    async def main() -> None:
        lot: ParkingLot = current_loop().parking_lot()
        first, second, third = (asyncio.create_task(lot.park()) for _ in range(3))
        await asyncio.sleep(0)
        third.cancel()
        await asyncio.sleep(0)
        lot.unpark()
        first.cancel()
        await second
        assert first.cancelled()
        assert not lot

    run(main())


class Sleeper:
    """A task in a scope."""

    def __init__(self, loop: Loop, deadline: float = float("inf")) -> None:
        self.scope: Scope = loop.scope(deadline=deadline)
        self.inner: Scope = loop.scope()
        self.reached: list[str] = []

    async def sleep(self) -> None:
        with self.scope:
            with self.inner:
                await asyncio.sleep(30)
            self.reached.append("inner")
            await asyncio.sleep(0.01)
            self.reached.append("not cancelled")
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0)
        self.reached.append(f"after, {task.cancelling()} left")


def test_scopes() -> None:
    async def main() -> None:
        loop = current_loop()
        inner = Sleeper(loop)
        task = asyncio.create_task(inner.sleep())
        await asyncio.sleep(0)
        inner.inner.cancel()
        inner.inner.cancel()
        await task
        assert inner.reached == ["inner", "not cancelled", "after, 0 left"]

        outer = Sleeper(loop)
        task = asyncio.create_task(outer.sleep())
        await asyncio.sleep(0)
        outer.scope.cancel()
        outer.inner.cancel()
        await task
        assert outer.reached == ["after, 0 left"]

        early = Sleeper(loop)
        early.scope.cancel()
        await early.sleep()
        assert early.reached == ["after, 0 left"]

        timed = Sleeper(loop, loop.current_time())
        timed.inner.deadline = loop.current_time() - 1
        await timed.sleep()
        assert timed.reached == ["after, 0 left"]

        spared = Sleeper(loop, loop.current_time() + 0.02)
        task = asyncio.create_task(spared.sleep())
        await asyncio.sleep(0)
        spared.scope.deadline = float("inf")
        await asyncio.sleep(0.05)
        spared.scope.deadline = 0
        await task
        assert spared.reached == ["after, 0 left"]

        killed = Sleeper(loop)
        task = asyncio.create_task(killed.sleep())
        await asyncio.sleep(0)
        killed.scope.cancel()
        asyncio.get_running_loop().call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert killed.reached == []

    run(main())


def test_the_end_of_a_scope_takes_back_a_cancellation_that_has_not_struck() -> None:
    async def main() -> None:
        with current_loop().scope() as scope:
            scope.cancel()
        await asyncio.sleep(0.01)

    run(main())


async def _cancel_and_wake(*, wakes_first: bool) -> None:
    """Cancel a task that waits, and wake it in the same turn, in one of both orders."""
    lot = current_loop().parking_lot()
    tasks = [asyncio.create_task(lot.park()) for _ in range(2)]
    await asyncio.sleep(0)
    if wakes_first:
        lot.unpark()
    tasks[0].cancel()
    if not wakes_first:
        lot.unpark()
    await asyncio.wait_for(tasks[1], 5)  # no wake-up is lost
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]


@pytest.mark.parametrize("wakes_first", [False, True])
def test_a_task_that_is_cancelled_and_woken_in_one_turn(wakes_first: bool) -> None:
    asyncio.run(_cancel_and_wake(wakes_first=wakes_first))


def test_leaving_a_subscription_while_a_task_that_receives_is_cancelled() -> None:
    async def main(url: str) -> None:
        async with open_client(url) as client, client.subscribe("/topic/t") as subscription:
            task = asyncio.create_task(subscription.receive())
            await asyncio.sleep(0.05)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with threaded_broker() as broker:
        asyncio.run(main(f"stomp://{broker.host}:{broker.port}"))
