"""SENDs with ids for duplicate detection that come in one read, each with an outcome of its own.

Frames that the broker reads together and that have the same headers share work, but no outcome:
the first one of an id is taken, the others are duplicates, and no number of a RECEIPT is another's.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.fakes import Client, Received, frame_bytes
from tests.support.served import Served, served, served_with
from trio_stomp.broker import DestinationPolicy

QUEUE, TOPIC, STREAM, BOTH = "/queue/q", "/topic/t", "/topic/log", "/queue/q,/topic/t"
POLICIES = {STREAM: DestinationPolicy(stream=True)}
SAVED = {"persistent": "true"}
SOON, LATE = {"AMQ_SCHEDULED_DELAY": "50"}, {"AMQ_SCHEDULED_DELAY": "600000"}
OFFSET, JOB = "x-stream-offset", "scheduledJobId"
SCHEDULER = "ActiveMQ.Scheduler.Management"
FEW = DestinationPolicy(max_messages=1, overflow="drop-newest")


def sends(destination: str, ids: Iterable[str | None], headers: Mapping[str, str]) -> bytes:
    """Return a SEND for each id (None = none), with its number as receipt and body."""
    frames: list[bytes] = []
    for number, id in enumerate(ids, 1):
        own = {"destination": destination, **headers, "receipt": f"{number}"}
        if id is not None:
            own["x-dedup-id"] = id
        frames.append(frame_bytes("SEND", own, b"%d" % number, "1.2"))
    return b"".join(frames)


async def receipts(client: Client, count: int) -> list[Received]:
    """Return the next frames, which are RECEIPTs in order."""
    found = await client.receive_many(count)
    assert [each.get("receipt-id") for each in found] == [f"{n}" for n in range(1, count + 1)]
    return found


async def subscribed(broker: Served, destination: str) -> Client:
    """Return a client with a subscription to each destination of a composite one."""
    client = await broker.connect({})
    for name in destination.split(","):
        await client.subscribe(name, id=name)
    return client


async def bodies(reader: Client, sender: Client, destination: str) -> list[bytes]:
    """Return the bodies that a subscriber has got before that of a last SEND."""
    end = {"destination": destination, "persistent": "true"}
    await sender.send("SEND", end, b"end")
    found: list[bytes] = []
    for _ in destination.split(","):
        while (frame := await reader.receive()).body != b"end":
            found.append(frame.body)
    return found


def options(tmp_path: Path, store: str) -> dict[str, str]:
    return {"data_dir": str(tmp_path)} if store == "journal" else {}


@pytest.mark.parametrize("store", ["memory", "journal"])
@pytest.mark.parametrize("headers", [{}, SAVED], ids=["plain", "persistent"])
@pytest.mark.parametrize("destination", [QUEUE, TOPIC, STREAM, BOTH])
async def test_repeats_are_duplicates(
    destination: str, headers: dict[str, str], store: str, tmp_path: Path
) -> None:
    async with served_with(POLICIES, options(tmp_path, store)) as broker:
        reader, sender = await subscribed(broker, destination), await broker.connect({})
        await sender.send_bytes(sends(destination, "aaa", headers))
        found = await receipts(sender, 3)
        assert [each.get("duplicate") for each in found] == [None, "true", "true"]
        assert [each.get(OFFSET) for each in found[1:]] == [None, None]
        got = await bodies(reader, sender, destination)
        assert got == [b"1"] * len(destination.split(","))


@pytest.mark.parametrize("store", ["memory", "journal"])
async def test_repeats_of_a_scheduled_message_are_duplicates(store: str, tmp_path: Path) -> None:
    async with served(**options(tmp_path, store)) as broker:
        reader, sender = await subscribed(broker, QUEUE), await broker.connect({})
        await sender.send_bytes(sends(QUEUE, "aaa", SAVED | SOON))
        found = await receipts(sender, 3)
        assert [each.get("duplicate") for each in found] == [None, "true", "true"]
        assert [each.get(JOB) is None for each in found] == [False, True, True]
        assert (await reader.receive()).body == b"1"
        assert await bodies(reader, sender, QUEUE) == []


async def test_repeats_are_known_after_a_restart(tmp_path: Path) -> None:
    stored = options(tmp_path, "journal")
    async with served(**stored) as broker:
        sender = await broker.connect({})
        await sender.send_bytes(sends(QUEUE, "aba", SAVED))
        await receipts(sender, 3)
    async with served(**stored) as broker:
        sender = await broker.connect({})
        await sender.send_bytes(sends(QUEUE, "aabbc", SAVED))
        found = await receipts(sender, 5)
        assert [each.get("duplicate") for each in found] == ["true"] * 4 + [None]
        reader = await subscribed(broker, QUEUE)
        assert await bodies(reader, sender, QUEUE) == [b"1", b"2", b"5"]


async def test_dropped_messages_are_no_duplicates() -> None:
    """A full queue that drops new messages makes nobody wait."""
    async with served_with({QUEUE: FEW}, {}) as broker:
        sender = await broker.connect({})
        await sender.publish(QUEUE, b"full", receipt=True)
        await sender.send_bytes(sends(QUEUE, "aaa", {}))
        found = await receipts(sender, 3)
        assert [each.get("dropped") for each in found] == ["queue-full"] * 3
        assert [each.get("duplicate") for each in found] == [None] * 3


@pytest.mark.parametrize("store", ["memory", "journal"])
@pytest.mark.parametrize("destination", [QUEUE, STREAM, BOTH])
async def test_repeats_in_a_transaction(destination: str, store: str, tmp_path: Path) -> None:
    """They are left out, and its other messages are not."""
    async with served_with(POLICIES, options(tmp_path, store)) as broker:
        reader, sender = await subscribed(broker, destination), await broker.connect({})
        name = {"transaction": "t"}
        await sender.send_bytes(
            frame_bytes("BEGIN", name, b"", "1.2")
            + sends(destination, ["a", "a", None, None, "b", "b", "a"], SAVED | name)
            + frame_bytes("COMMIT", {**name, "receipt": "8"}, b"", "1.2")
        )
        await receipts(sender, 8)
        got = await bodies(reader, sender, destination)
        assert sorted(got) == sorted([b"1", b"3", b"4", b"5"] * len(destination.split(",")))


async def removed(client: Client, jobs: Sequence[str]) -> list[str]:
    """Cancel jobs by their numbers. Return how many messages each request cancelled."""
    found: list[str] = []
    for job in jobs:
        action = {"AMQ_SCHEDULER_ACTION": "REMOVE", JOB: job}
        await client.send("SEND", {"destination": SCHEDULER, "receipt": "r", **action})
        found.append((await client.receive())["removed"])
    return found


@pytest.mark.parametrize("store", ["memory", "journal"])
async def test_a_job_number_is_that_of_its_message(store: str, tmp_path: Path) -> None:
    """A client that cancels by the numbers in its RECEIPTs cancels its own messages only."""
    async with served(**options(tmp_path, store)) as broker:
        other, client = await broker.connect({}), await broker.connect({})
        await other.send_bytes(sends(QUEUE, [None] * 4, SAVED | LATE))
        others = [each[JOB] for each in await receipts(other, 4)]
        await client.send_bytes(sends(QUEUE, ["a", "a", "a", None, None, "b", "b"], SAVED | LATE))
        found = await receipts(client, 7)
        jobs = {each["receipt-id"]: job for each in found if (job := each.get(JOB))}
        assert list(jobs) == ["1", "4", "5", "6"]
        assert len({*jobs.values(), *others}) == 8
        assert await removed(client, [*jobs.values()]) == ["1"] * 4
        assert await removed(other, others) == ["1"] * 4


@pytest.mark.parametrize("store", ["memory", "journal"])
async def test_an_offset_is_that_of_its_message(store: str, tmp_path: Path) -> None:
    """Offsets in RECEIPTs are those that a subscriber sees, with ids, without, and mixed."""
    ids = [None, None, "a", "a", "a", None, "a", "b", "b", "c", None, None, None, "c", "d"]
    async with served_with(POLICIES, options(tmp_path, store)) as broker:
        reader, sender = await subscribed(broker, STREAM), await broker.connect({})
        await sender.send_bytes(sends(STREAM, ids, SAVED))
        told = {each["receipt-id"]: each.get(OFFSET) for each in await receipts(sender, len(ids))}
        taken = ["1", "2", "3", "6", "8", "10", "11", "12", "13", "15"]
        assert [number for number, offset in told.items() if offset] == taken
        read = await broker.connect({})
        await read.subscribe(STREAM, headers={OFFSET: "first"})
        seen = {each.body.decode(): each[OFFSET] for each in await read.receive_many(len(taken))}
        assert seen == {number: told[number] for number in taken}
        assert await bodies(reader, sender, STREAM) == [number.encode() for number in taken]


@pytest.mark.parametrize("ids", [[None] * 5, ["a", None, None, "b", "b"]], ids=["without", "with"])
async def test_a_receipt_within_a_run_has_the_offset_of_its_message(
    ids: list[str | None],
) -> None:
    """Also if only some SENDs of a run request a RECEIPT."""
    async with served_with(POLICIES, {}) as broker:
        sender = await broker.connect({})
        data = sends(STREAM, ids, {}).replace(b"receipt:2\n", b"").replace(b"receipt:5\n", b"")
        await sender.send_bytes(data)
        found = [(each["receipt-id"], each.get(OFFSET)) for each in await sender.receive_many(3)]
        assert found == [("1", "0"), ("3", "2"), ("4", "3")]


@pytest.mark.parametrize("to", [QUEUE, TOPIC, BOTH, STREAM])
@pytest.mark.parametrize("more", [{}, LATE], ids=["now", "later"])
@pytest.mark.parametrize("is_stored", [True, False])
async def test_receipts_tell_how_many_ids_are_remembered(
    to: str, more: Mapping[str, str], is_stored: bool, tmp_path: Path
) -> None:
    policies = {TOPIC: DestinationPolicy(dedup_window=7), **POLICIES}
    headers = {**more, **(SAVED if is_stored else {})}
    async with served_with(policies, {"data_dir": str(tmp_path)}) as broker:
        client = await broker.connect({})
        await client.send_bytes(sends(to, ["a", "a", None], headers))
        found = [
            (each.get("dedup-window"), each.get("duplicate")) for each in await receipts(client, 3)
        ]
    # What is scheduled is compared with those of the first destination, now.
    is_few = to == TOPIC or (to == BOTH and not more)
    window = "7" if is_few else "10000"
    assert found == [(window, None), (window, "true"), (None, None)]
