"""Queues in short memory whose senders mix durable and other messages, over real sockets."""

from collections import Counter
from pathlib import Path

import pytest
import trio

from tests.support.served import Served, served, served_with
from trio_stomp.broker import DestinationPolicy

QUEUE = "/queue/orders"
SAVED = {"persistent": "true"}
FILLERS = 1_500
"""More than a queue keeps in memory, and fewer than those among which it looks for a match."""
ROUNDS = 20
MEMORY = {"max_memory_bytes": 6 * 1024 * 1024}
"""More than half of it is in use with the fillers."""
BODY_BYTES = 1_500
PATIENCE_S, EXTRA_S = 20.0, 0.2


def place(directory: Path, store: str) -> dict[str, str]:
    if store == "sqlite":
        pytest.importorskip("sqlalchemy")
        return {"store_url": f"sqlite:///{directory}/q.db"}
    return {"data_dir": str(directory / "data")}


async def take(broker: Served, count: int, selector: str = "") -> Counter[bytes]:
    """Take and acknowledge messages until ``count`` have come, and see whether more come."""
    got: Counter[bytes] = Counter()
    consumer = await broker.connect({})
    headers = {"ack": "client-individual"} | ({"selector": selector} if selector else {})
    await consumer.subscribe(QUEUE, headers=headers)
    with trio.move_on_after(PATIENCE_S) as scope:
        while True:
            frame = await consumer.receive()
            got[frame.body.rstrip(b"x")] += 1
            await consumer.send("ACK", {"id": frame["ack"]})
            if got.total() == count:
                scope.deadline = trio.current_time() + EXTRA_S
    await consumer.disconnect()
    return got


async def borrow(broker: Served, count: int, selector: str) -> None:
    """Take messages, and return them by leaving."""
    consumer = await broker.connect({})
    await consumer.subscribe(QUEUE, headers={"ack": "client-individual", "selector": selector})
    await consumer.receive_many(count)
    await consumer.disconnect()


@pytest.mark.parametrize("store", ["journal", "sqlite"])
async def test_saved_messages_mixed_with_others_come_once(tmp_path: Path, store: str) -> None:
    async with served(**MEMORY, **place(tmp_path, store)) as broker:
        durable, plain = await broker.connect({}), await broker.connect({})
        await durable.subscribe(QUEUE, headers={"selector": "kind = 'none'"})
        others = [b"%d" % n for n in range(FILLERS + ROUNDS)]
        bodies = [other.ljust(BODY_BYTES, b"x") for other in others]
        await plain.publish(QUEUE, *bodies[:FILLERS], receipt=True)
        for n in range(ROUNDS):
            await durable.publish(QUEUE, b"early %d" % n, headers=SAVED | {"kind": "early"})
            await plain.publish(QUEUE, bodies[FILLERS + n], receipt=True)
            late = SAVED | {"kind": "late"}
            await durable.publish(QUEUE, b"late %d" % n, headers=late, receipt=True)
        await borrow(broker, ROUNDS, "kind = 'late'")
        early = await take(broker, ROUNDS, "kind = 'early'")
        assert early == {b"early %d" % n: 1 for n in range(ROUNDS)}
        rest = others + [b"late %d" % n for n in range(ROUNDS)]
        assert await take(broker, len(rest)) == dict.fromkeys(rest, 1)


async def test_a_message_of_a_group_that_is_delayed_holds_its_group() -> None:
    policy = DestinationPolicy(backoff_s=(0.3,))
    async with served_with({QUEUE: policy}, {}) as broker:
        client = await broker.connect({})
        grouped = {"JMSXGroupID": "g"}
        await client.publish(QUEUE, *[b"m%d" % n for n in range(4)], headers=grouped, receipt=True)
        await client.publish(QUEUE, b"free", receipt=True)
        one = {"ack": "client-individual", "prefetch-count": "1"}
        await client.subscribe(QUEUE, headers=one)
        got: list[bytes] = []
        while len(got) < 7:
            frame = await client.receive()
            got.append(frame.body)
            is_refused = got.count(b"m0") < 3 and frame.body == b"m0"
            await client.send("NACK" if is_refused else "ACK", {"id": frame["ack"]})
        got.remove(b"free")  # it need not wait
        assert got == [b"m0", b"m0", b"m0", b"m1", b"m2", b"m3"]
