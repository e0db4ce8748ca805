"""Scheduled messages that are due when their queue is full: all come, once and in order."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

from tests.support.fakes import Received, frame_bytes
from tests.support.served import Served, served_with
from trio_stomp.broker import DestinationPolicy

Q, DEAD = "/queue/q", "/queue/dead"
MOST, COUNT = 4, 10
FIRST = [f"first-{number}" for number in range(MOST)]
LATER = [f"later-{number}" for number in range(COUNT)]
AGAIN = {"AMQ_SCHEDULED_REPEAT": "1", "AMQ_SCHEDULED_PERIOD": "60000"}


def policies(overflow: str) -> dict[str, DestinationPolicy]:
    """Return the policy of a small queue."""
    return {Q: DestinationPolicy(max_messages=MOST, overflow=overflow, dead_letter=DEAD)}


async def fill_and_schedule(broker: Served, more: Mapping[str, str], *, is_run: bool) -> None:
    """Fill the queue, schedule messages with RECEIPTs, and return when they are due."""
    sender, durable = await broker.connect({}), {"destination": Q, "persistent": "true"}
    frames = [frame_bytes("SEND", {**durable, "receipt": n}, n.encode(), "1.2") for n in FIRST]
    for name in LATER:
        own = {} if is_run else {"n": name}  # SENDs with equal headers are scheduled together
        later = {**durable, "AMQ_SCHEDULED_DELAY": "20", **more, **own, "receipt": name}
        frames.append(frame_bytes("SEND", later, name.encode(), "1.2"))
    await sender.send_bytes(b"".join(frames))
    receipts = await sender.receive_many(MOST + COUNT)
    assert [each["receipt-id"] for each in receipts] == FIRST + LATER
    assert {each.get("stored") for each in receipts} == {"journal"}
    await trio.sleep(0.1)


async def consumed(broker: Served, count: int, name: str = Q) -> list[str]:
    """Acknowledge the first messages of a queue, or all that come in some seconds, one by one."""
    reader, bodies, early = await broker.connect({}), list[str](), list[Received]()
    one_each = {"ack": "client-individual", "activemq.prefetchSize": "1"}
    await reader.subscribe(name, headers=one_each)
    with trio.move_on_after(4.0):
        while len(bodies) < count:
            message = early.pop(0) if early else await reader.receive()
            await reader.send("ACK", {"id": message["ack"], "receipt": "acked"})
            early += await reader.receive_until_receipt("acked")
            bodies.append(message.body.decode())
    reader.abort()
    return bodies


async def is_empty(broker: Served) -> bool:
    """Return whether a queue is empty, and stays so while the broker tries again."""
    reader = await broker.connect({})
    await reader.subscribe(Q)
    with trio.move_on_after(0.3):
        return not await reader.receive()
    return True


@pytest.mark.parametrize("is_run", [True, False], ids=["run", "single"])
@pytest.mark.parametrize("overflow", ["reject", "block", "drop-newest"])
async def test_they_wait_for_room(overflow: str, is_run: bool, tmp_path: Path) -> None:
    options = {"data_dir": str(tmp_path)}
    async with served_with(policies(overflow), options) as broker:
        await fill_and_schedule(broker, {}, is_run=is_run)
        assert await consumed(broker, MOST + COUNT) == FIRST + LATER
    async with served_with(policies(overflow), options) as broker:
        assert await is_empty(broker)


@pytest.mark.parametrize("more", [{}, AGAIN], ids=["once", "repeated"])
@pytest.mark.parametrize("is_run", [True, False], ids=["run", "single"])
@pytest.mark.parametrize("overflow", ["reject", "block", "drop-newest"])
async def test_they_wait_though_the_broker_is_killed(
    overflow: str, is_run: bool, more: Mapping[str, str], tmp_path: Path
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    async with served_with(policies(overflow), {"data_dir": str(before)}) as broker:
        await fill_and_schedule(broker, more, is_run=is_run)
        bodies = await consumed(broker, MOST + 2)
        await trio.sleep(0.3)  # some of the others have found room by now
        shutil.copytree(before, after)  # as a broker leaves it that is killed now
    async with served_with(policies(overflow), {"data_dir": str(after)}) as broker:
        bodies += await consumed(broker, COUNT - 2)
        assert bodies == FIRST + LATER
        assert await is_empty(broker)


@pytest.mark.parametrize("is_run", [True, False], ids=["run", "single"])
@pytest.mark.parametrize("overflow", ["drop-oldest", "dead-letter"])
async def test_old_messages_leave_for_them(overflow: str, is_run: bool, tmp_path: Path) -> None:
    options, everything = {"data_dir": str(tmp_path)}, FIRST + LATER
    async with served_with(policies(overflow), options) as broker:
        await fill_and_schedule(broker, {}, is_run=is_run)
    async with served_with(policies(overflow), options) as broker:
        assert await consumed(broker, MOST) == everything[-MOST:]
        assert await is_empty(broker)
        number_dead = COUNT * (overflow == "dead-letter")
        assert await consumed(broker, number_dead, DEAD) == everything[:number_dead]
