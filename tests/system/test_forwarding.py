"""Transactions and composites over partitions: all or nothing, whoever dies at whatever step."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.fakes import Client, Received, until
from tests.support.files import save
from tests.support.partitions import AFTER, BEFORE, PLACEMENT, A, B, C, Partitions, partitions
from trio_stomp import Settings
from trio_stomp.broker import DestinationPolicy
from trio_stomp.cluster.routing._forwarder import Lane
from trio_stomp.cluster.routing._upstream import Upstream
from trio_stomp.server import EventFeed
from trio_stomp.startup._serve import Embedding, serve_one
from trio_stomp.store import MemoryStore, Put, StoreError, Turn

IN_IT = {"transaction": "t"}
STORED = {"persistent": "true"}
BODY = b"made of job"
BESIDE = next(name for number in range(99) if PLACEMENT.of(name := f"/queue/r{number}") == 1)
"""Another queue in the partition of B."""


async def job(here: Partitions) -> tuple[Client, Received]:
    """Return a client, and a message of a queue that it has got."""
    client = await here.client()
    await client.publish(A, b"job", headers=STORED, receipt=True)
    found = await client.subscribe(A, headers={"ack": "client-individual"})
    return client, found[0] if found else await client.receive()


async def begin(client: Client, got: Received, *names: str) -> None:
    """Begin a transaction with an ACK and a SEND to each destination."""
    await client.send("BEGIN", IN_IT)
    await client.send("ACK", {"id": got["ack"], **IN_IT})
    for name in names:
        await client.publish(name, BODY, headers={**IN_IT, **STORED})


async def settled(here: Partitions) -> None:
    """Wait until no owner has anything for others."""
    await until(lambda: not any(owner.forwards for owner in here.owners), 0.01)


def waiting(here: Partitions) -> list[int]:
    return [owner.waits(name) for owner, name in zip(here.owners, (A, B, C), strict=True)]


async def taken(here: Partitions, name: str, count: int) -> list[Received]:
    """Receive and acknowledge messages of a queue."""
    client = await here.client()
    early = await client.subscribe(name, headers={"ack": "client-individual"})
    got: list[Received] = []
    while len(got) < count:
        got.append(early.pop(0) if early else await client.receive())
        await client.send("ACK", {"id": got[-1]["ack"]})
    await client.disconnect()
    return got


async def test_a_transaction_reaches_all_its_partitions() -> None:
    async with partitions() as here:
        client, got = await job(here)
        await begin(client, got, B, C, A, B)
        await client.send("COMMIT", {**IN_IT, "receipt": "r"})
        await client.receive_until_receipt("r")
        await settled(here)
        assert waiting(here) == [1, 2, 1]
        first, second = await taken(here, B, 2)
        assert first.get("transaction") is None
        names = {name for name, _ in (*first.headers, *second.headers)}
        assert not {name for name in names if name.startswith("x-")}  # nobody sees how it came


@pytest.mark.parametrize("header", ["x-dedup-id", "x-trio-stomp-forward"])
async def test_nobody_else_can_use_the_ids_of_messages_that_are_sent_on(header: str) -> None:
    """They can be guessed, so messages of a transaction would count as duplicates of his."""
    async with partitions() as here:
        client, got = await job(here)
        other = await here.client()
        for number in range(20):
            headers = {**STORED, header: f"forwarded-0-{number}"}
            await other.publish(B, b"theirs", headers=headers, receipt=True)
        await begin(client, got, B)
        await client.send("COMMIT", {**IN_IT, "receipt": "r"})
        await client.receive_until_receipt("r")
        await settled(here)
        assert BODY in [each.body for each in await taken(here, B, waiting(here)[1])]


@pytest.mark.parametrize("routing", [{}, {"destination-type": "ANYCAST"}])
async def test_a_transaction_with_temporary_names_reaches_all_its_partitions(
    routing: dict[str, str],
) -> None:
    """With ANYCAST the public name of a temporary topic may be in any partition."""
    composites = [f"/temp-topic/u,{name}" for name in (A, B, C)] + [f"{B},/temp-queue/u,{A}"]
    for composite in composites:
        async with partitions() as here:
            client, got = await job(here)
            await begin(client, got, B)
            await client.publish(composite, BODY, headers={**IN_IT, **STORED, **routing})
            await client.send("COMMIT", {**IN_IT, "receipt": "r"})
            await client.receive_until_receipt("r")
            await settled(here)
            assert waiting(here) == [A in composite, 1 + (B in composite), C in composite]


STEPS = [(0, "commit"), (1, "sent on"), (0, "end")]
"""The partition whose owner dies, and the entry of its log at which it dies."""


@pytest.mark.parametrize("moment", [BEFORE, AFTER])
@pytest.mark.parametrize(("partition", "entry"), STEPS)
async def test_an_owner_that_dies_at_any_step_leaves_all_or_nothing(
    partition: int, entry: str, moment: str
) -> None:
    async with partitions() as here:
        client, got = await job(here)
        await begin(client, got, B)
        target = here.owners[1].log

        def is_deadly(payload: bytes) -> bool:
            if entry == "end":
                return any(BODY in each.payload for each in target.entries)
            return BODY in payload

        here.owners[partition].dies(moment, is_deadly)
        await client.send("COMMIT", {**IN_IT, "receipt": "r"})
        await here.owners[partition].died.wait()
        await here.replace(partition)
        await settled(here)
        is_done = (entry, moment) != ("commit", BEFORE)
        assert waiting(here) == ([0, 1, 0] if is_done else [1, 0, 0])


async def test_the_next_coordinator_forwards_messages_that_the_last_one_confirmed() -> None:
    async with partitions() as here:
        client, got = await job(here)
        here.owners[1].gate.point_to(None)
        await begin(client, got, B)
        await client.send("COMMIT", {**IN_IT, "receipt": "r"})
        await client.receive_until_receipt("r")
        await here.replace(0)
        assert (here.owners[0].forwards, waiting(here)) == (1, [0, 0, 0])
        await here.replace(1)
        await settled(here)
        assert waiting(here) == [0, 1, 0]


async def test_a_broker_without_partitions_does_not_start_with_messages_for_others() -> None:
    store = MemoryStore()
    store.recover(lambda _done, _total: None)
    store.append([Turn([Put("forwards:", 1, b"destination:/queue/a\n", [b"x", b"y"])])], 0)
    embedding = Embedding(EventFeed(), None, None, store=store)
    with pytest.raises(StoreError, match="the store has 2 messages of transactions for other"):
        await serve_one(Settings.of(port=0), None, embedding, trio.TASK_STATUS_IGNORED)


async def test_a_composite_over_partitions_reaches_all_of_them() -> None:
    async with partitions() as here:
        client = await here.client()
        await client.publish(f"{B},{A},{C}", b"x", b"y", headers=STORED, receipt=True)
        await settled(here)
        assert waiting(here) == [2, 2, 2]
        assert [frame.body for frame in await taken(here, C, 2)] == [b"x", b"y"]


async def transact(client: Client, receipt: str, *names: str) -> None:
    """Commit a transaction of a SEND to each destination."""
    await client.send("BEGIN", IN_IT)
    for name in names:
        await client.publish(name, receipt.encode(), headers={**IN_IT, **STORED})
    await client.send("COMMIT", {**IN_IT, "receipt": receipt})


async def alone(client: Client, receipt: str, *names: str) -> None:
    """Send to each destination."""
    for name in names:
        headers = {"destination": name, "receipt": receipt, **STORED}
        await client.send("SEND", headers, receipt.encode())


LATER = [(alone, (B,)), (alone, (f"{B},{A}",)), (transact, (B,)), (transact, (C, B))]
"""SENDs to a queue that the first coordinator forwards to, with another coordinator or none."""


@pytest.mark.parametrize(("send", "names"), LATER)
async def test_later_messages_of_a_client_do_not_overtake_forwarded_ones(
    monkeypatch: pytest.MonkeyPatch,
    send: Callable[..., Awaitable[None]],
    names: tuple[str, ...],
) -> None:
    speak, may_send = Lane.speak, trio.Event()

    async def held(lane: Lane, *args: Any) -> None:
        await may_send.wait()
        await speak(lane, *args)

    monkeypatch.setattr(Lane, "speak", held)
    async with partitions() as here:
        client = await here.client()
        for receipt in ("1", "2"):  # the same coordinator keeps their order
            await transact(client, receipt, A, B)
            await client.receive_until_receipt(receipt)
        await send(client, "3", *names)
        await until(lambda: any(owner.asks for owner in here.owners), 0.01)
        assert waiting(here) == [2, 0, 0]
        may_send.set()
        await client.receive_until_receipt("3")
        await settled(here)
        assert [frame.body for frame in await taken(here, B, 3)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize(("send", "names"), [(alone, (f"{A},{B}",)), (transact, (A, B))])
async def test_forwarded_messages_do_not_overtake_earlier_ones_that_were_sent_alone(
    monkeypatch: pytest.MonkeyPatch,
    send: Callable[..., Awaitable[None]],
    names: tuple[str, ...],
) -> None:
    held: list[Upstream] = []
    with monkeypatch.context() as patch:
        flush = Upstream.flush
        patch.setattr(
            Upstream, "flush", lambda self: held.append(self) if self.partition else flush(self)
        )
        async with partitions() as here:
            client = await here.client()
            await alone(client, "1", B)
            await send(client, "2", *names)
            await until(lambda: bool(held) and len(held[0]._events) == 2, 0.01)
            assert waiting(here) == [0, 0, 0]
            patch.undo()
            held[0].flush()
            await client.receive_until_receipt("1")
            await client.receive_until_receipt("2")
            await settled(here)
            assert waiting(here) == [1, 2, 0]
            assert [frame.body for frame in await taken(here, B, 2)] == [b"1", b"2"]


async def test_a_request_to_the_broker_is_no_part_of_a_transaction() -> None:
    async with partitions() as here:
        client = await here.client()
        await client.send("BEGIN", IN_IT)
        await client.publish(A, b"x", headers=IN_IT)
        await client.publish("DIAG/explain", b"{}", headers=IN_IT)
        await client.send("COMMIT", IN_IT)
        error = await client.expect_error("partitions-apart")
        assert "send requests to the broker outside of it" in error["message"]


async def test_a_reply_to_a_message_that_was_sent_on_finds_its_client() -> None:
    async with partitions() as here:
        client, server = await here.client(), await here.client()
        await server.subscribe(B)
        await client.send("BEGIN", IN_IT)
        await client.publish(A, b"x", headers=IN_IT)
        headers = {**IN_IT, "reply-to": "/temp-queue/x"}
        await client.publish(B, b"question", headers=headers)
        await client.send("COMMIT", IN_IT)
        await server.publish((await server.receive())["reply-to"], b"answer")
        assert (await client.receive()).body == b"answer"


async def test_messages_that_the_target_refuses_wait_and_stop_no_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trio_stomp.cluster.routing._forwarder.RETRY_S", 0.01)
    full = {B: DestinationPolicy(max_messages=1, overflow="reject")}
    async with partitions(policies=full) as here:
        client = await here.client()
        await client.publish(B, b"first", headers=STORED, receipt=True)
        for body in (b"second", b"third"):
            await client.send("BEGIN", IN_IT)
            await client.publish(A, b"x", headers=IN_IT)
            await client.publish(B, body, headers={**IN_IT, **STORED})
            await client.publish(BESIDE, body, headers=IN_IT)
            await client.send("COMMIT", {**IN_IT, "receipt": "r"})
            await client.receive_until_receipt("r")
        await until(lambda: here.owners[1].waits(BESIDE) == 2, 0.01)
        await until(lambda: here.owners[0].forwards == 2, 0.01)
        assert here.owners[1].waits(B) == 1
        await until(lambda: "wait for /queue/" in caplog.text, 0.01)
        got = await taken(here, B, 3)
        assert [frame.body for frame in got] == [b"first", b"second", b"third"]
        await settled(here)


RULES = """
[[rule]]
user = "app"
allow = ["send", "receive"]
to = "/queue/**"

[[rule]]
user = "boss"
allow = "all"
to = "**"
"""


@pytest.mark.parametrize("is_there", [True, False])
async def test_the_owner_of_a_queue_knows_whether_it_may_be_sent_to(
    tmp_path: Path, is_there: bool
) -> None:
    users = save(tmp_path / "users", "app:wonder-land\nboss:wonder-land\n")
    rules = save(tmp_path / "acl.toml", RULES)
    async with partitions(passwd_file=users, acl_file=rules) as here:
        boss = await here.client(login="boss", passcode="wonder-land")
        for name in (A, B) if is_there else (A,):
            await boss.publish(name, b"x", receipt=True)
        app = await here.client(login="app", passcode="wonder-land")
        await app.send("BEGIN", IN_IT)
        await app.publish(A, b"y", headers=IN_IT)
        await app.publish(B, b"y", headers=IN_IT)
        await app.publish(B, b"z", headers=IN_IT)
        await app.send("COMMIT", {**IN_IT, "receipt": "r"})
        if is_there:
            await app.receive_until_receipt("r")
            await settled(here)
        else:
            error = await app.expect_error("not-authorized")
            assert "app may not create /queue/" in error["message"]
        assert waiting(here) == ([2, 3, 0] if is_there else [1, 0, 0])
