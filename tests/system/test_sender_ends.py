"""Connections that end in every way while their SENDs are held for every reason.

The tables are data for one client and one judge: ``ENDS`` says how the connection ends, and
``HELD`` why its frames wait meanwhile. The judge knows only what clients may rely on: a message
whose RECEIPT says that it is stored is there, after a restart too; and a client that sends again,
with the same ``x-dedup-id``, whatever got no such RECEIPT, leads to exactly one copy of each.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import pytest
import trio
from attrs import define, field

from tests.support.fakes import Client, Received, StreamPipe, frame_bytes
from tests.support.management import ask
from tests.support.served import Served, served_with
from trio_stomp.broker import DestinationPolicy

Q, SIDE = "/queue/q", "/queue/side"
SEEDS = range(2, 8)
PATIENCE_S = 30.0


# --- why frames are held --------------------------------------------------------------------------


@define
class Held:
    """Why the frames of a sender are held: the queue's policy, and the frames around its SENDs.

    Args:
      policy: The policy of ``Q``.
      count: The number of SENDs.
      is_mixed: Every third SEND is not durable, so it must wait until the others are stored.
      ahead: SENDs of a transaction to ``SIDE`` that is committed first.
      delay_ms: The SENDs are scheduled.
    """

    policy: DestinationPolicy = field(factory=DestinationPolicy)
    count: int = 12
    is_mixed: bool = False
    ahead: int = 0
    delay_ms: int = 0


def _full(overflow: str, most: int = 4) -> DestinationPolicy:
    return DestinationPolicy(max_messages=most, overflow=overflow)


HELD = {
    "full-queue": Held(_full("block")),
    "full-queue-time": Held(_full("block", 100), count=400),
    "full-queue-store": Held(_full("block"), is_mixed=True),
    "full-queue-transaction": Held(_full("block"), ahead=200),
    "full-queue-schedule": Held(_full("block"), delay_ms=20),
    "store": Held(is_mixed=True),
    "store-reject": Held(_full("reject"), is_mixed=True),
    "store-drop-newest": Held(_full("drop-newest"), is_mixed=True),
    "time": Held(count=400),
    "transaction": Held(ahead=200),
    "transaction-drop-newest": Held(_full("drop-newest"), ahead=200),
}


# --- how the connection ends ----------------------------------------------------------------------


async def _half_close(_broker: Served, sender: Client) -> None:
    assert isinstance(sender.pipe, StreamPipe)
    assert isinstance(sender.pipe.stream, trio.SocketStream)
    await sender.pipe.stream.send_eof()


async def _reset(_broker: Served, sender: Client) -> None:
    sender.abort()


async def _stop(broker: Served, _sender: Client) -> None:
    broker.handle.stop()


async def _close(broker: Served, _sender: Client) -> None:
    listed = await ask(await broker.stream(), "GET", "connections")
    for each in listed.json["connections"]:
        target = f"close?session={each['session_id']}"
        await ask(await broker.stream(), "POST", target)


async def _leave(_broker: Served, sender: Client) -> None:
    await sender.send_bytes(b"DISCONNECT\nreceipt:bye\n\n\0")


async def _leave_and_half_close(broker: Served, sender: Client) -> None:
    await _leave(broker, sender)
    await _half_close(broker, sender)


async def _err(_broker: Served, sender: Client) -> None:
    await sender.send_bytes(b"SUBSCRIBE\nno-header:1\n\n\0")


ENDS: Mapping[str, Callable[[Served, Client], Awaitable[None]]] = {
    "stop": _stop,
    "operator": _close,
    "half-close": _half_close,
    "reset": _reset,
    "disconnect": _leave,
    "disconnect-half-close": _leave_and_half_close,
    "error": _err,
}
WAITING = ("disconnect", "error", "disconnect-half-close", "half-close")
"""Ends that may wait for room, so that the judge's consumer has to make some."""


# --- the client and the judge ---------------------------------------------------------------------


def sends(held: Held, numbers: Sequence[int], *, is_again: bool = False) -> bytes:
    """Return SENDs, each with an id for duplicate detection and a receipt."""
    frames: list[bytes] = []
    for number in numbers:
        headers = {"destination": Q, "x-dedup-id": f"{number}", "receipt": f"{number}"}
        if not held.is_mixed or number % 3:
            headers["persistent"] = "true"
        if held.delay_ms and not is_again:
            headers["AMQ_SCHEDULED_DELAY"] = f"{held.delay_ms}"
        frames.append(frame_bytes("SEND", headers, b"%d" % number, "1.2"))
    return b"".join(frames)


def transaction(count: int) -> bytes:
    """Return a transaction that is carried out in pieces."""
    side = {"destination": SIDE, "persistent": "true", "transaction": "t"}
    frames = [frame_bytes("SEND", {**side, "n": f"{n}"}, b"s", "1.2") for n in range(count)]
    begin = frame_bytes("BEGIN", {"transaction": "t"}, b"", "1.2")
    commit = frame_bytes("COMMIT", {"transaction": "t"}, b"", "1.2")
    return begin + b"".join(frames) + commit


async def read_on(client: Client, frames: list[Received], most: int = 1 << 30) -> None:
    """Collect frames until the connection ends, or there are ``most``."""
    while True:
        while (frame := client.reader.next()) is not None:
            frames.append(frame)
        if client.is_ended or len(frames) >= most:
            return
        try:
            await client._read()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            client.is_ended = True


def confirmed(frames: Sequence[Received]) -> set[int]:
    """Return the numbers of the SENDs whose RECEIPTs say that their messages are kept."""
    receipts = [each for each in frames if each.command == "RECEIPT"]
    kept = [each for each in receipts if each.get("stored") and not each.get("dropped")]
    return {int(each["receipt-id"]) for each in kept if each["receipt-id"].isdigit()}


async def drained(broker: Served, is_done: Callable[[Counter[int]], bool]) -> Counter[int]:
    """Consume the queue until ``is_done`` and it stays empty. Return the count of each body."""
    reader, found = await broker.connect({}), Counter[int]()
    await reader.subscribe(Q, headers={"ack": "client-individual"})
    frames: list[Received] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_on, reader, frames)
        with trio.move_on_after(PATIENCE_S):
            quiet = 0
            while quiet < 5 or not is_done(found):
                quiet += 1
                await trio.sleep(0.02)
                while frames:
                    quiet = 0
                    frame = frames.pop(0)
                    assert frame.command == "MESSAGE", frame
                    found[int(frame.body)] += 1
                    await reader.send("ACK", {"id": frame["ack"]})
        nursery.cancel_scope.cancel()
    reader.abort()
    return found


async def send_again(broker: Served, held: Held, numbers: set[int]) -> None:
    """Send messages again, with their ids, until each has a RECEIPT that it is kept."""
    while numbers:
        client, frames = await broker.connect({}), list[Received]()
        await client.send_bytes(sends(held, sorted(numbers), is_again=True))
        with trio.move_on_after(PATIENCE_S):
            await read_on(client, frames, most=len(numbers))
        client.abort()
        numbers = numbers - confirmed(frames)


async def judge(tmp_path: Path, how: str, held: Held, seed: int) -> None:
    """End a sender's connection, and judge what its RECEIPTs promised."""
    random = Random(f"{how}{seed}")
    options = {"data_dir": str(tmp_path), "shutdown_grace_s": 5.0}
    policies = {Q: held.policy}
    frames: list[Received] = []
    found, everything = Counter[int](), set(range(held.count))
    async with served_with(policies, options) as broker:
        sender = await broker.connect({})
        await sender.send_bytes(transaction(held.ahead) if held.ahead else b"\n")
        await sender.send_bytes(sends(held, range(held.count)))
        await trio.sleep(random.choice((0.0, 0.002, 0.05)))
        with trio.move_on_after(PATIENCE_S) as patience:
            await ENDS[how](broker, sender)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read_on, sender, frames)
                if how in WAITING:
                    found += await drained(broker, lambda _: sender.is_ended)
        assert not patience.cancelled_caught
    kept = confirmed(frames)
    async with served_with(policies, options) as broker:
        durable = {n for n in kept if not held.is_mixed or n % 3}
        missing = durable - found.keys()
        found += await drained(broker, lambda new: missing <= new.keys())
        assert durable <= found.keys(), f"lost in spite of a RECEIPT: {durable - found.keys()}"
        again = everything - found.keys()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_again, broker, held, everything - durable)
            found += await drained(broker, lambda new: again <= new.keys())
        assert found.keys() == everything, f"nowhere: {sorted(everything - found.keys())}"
        twice = {n for n, count in found.items() if count > 1 and (not held.is_mixed or n % 3)}
        assert not twice, f"twice: {sorted(twice)}"


@pytest.mark.parametrize("why", HELD)
async def test_a_receipt_is_kept_however_its_connection_ends(why: str, tmp_path: Path) -> None:
    for how in ENDS:
        await judge(tmp_path / how, how, HELD[why], seed=1)


@pytest.mark.full
@pytest.mark.parametrize("why", HELD)
@pytest.mark.parametrize("how", ENDS)
async def test_more_seeds(how: str, why: str, tmp_path: Path) -> None:
    for seed in SEEDS:
        await judge(tmp_path / f"{seed}", how, HELD[why], seed)
