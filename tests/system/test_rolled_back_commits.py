"""A bug in the middle of a COMMIT: nothing of it is there, and its sender gets an ERROR.

A bug after it, where the turn writes the ids of its messages, costs nothing: the next turn does.

The broker is whole, its clients have sockets, and the store is a journal. A method deep inside
fails once, in each step of the COMMIT in turn.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve

from tests.support.durable_dial import dialled
from tests.support.fakes import TCP, Client, Dial, frame_bytes
from trio_stomp.broker import DestinationPolicy, Log
from trio_stomp.store import JournalStore

SAVED = {"persistent": "true"}
DURABLE = {"durable-subscription-name": "d"}
IN, OUT, NEWS, LOG, LATER = "/queue/in", "/queue/out", "/topic/news", "/topic/log", "/queue/later"
BOOK = ((LOG, DestinationPolicy(stream=True)), (NEWS, DestinationPolicy(retain="always")))
READS = {
    "queue": (OUT, {}),
    "topic": (NEWS, DURABLE),
    "stream": (f"/stream{LOG}", {"x-stream-offset": "first"}),
    "later": (LATER, {}),
}
MANY = 150


@define
class Fault:
    """Makes a method raise an exception once, at one of its calls."""

    left: int = 0
    """The number of calls until then; 0 = it does not fail."""

    def wrap(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method, which fails when told to."""

        def call(log: Log, *arguments: Any, **named: Any) -> Any:
            self.left -= log.is_atomic
            if log.is_atomic and not self.left:
                raise KeyError("a bug")
            return method(log, *arguments, **named)

        return call


@asynccontextmanager
async def broker(directory: Path) -> AsyncIterator[Dial]:
    """Run a broker on a journal."""
    store = JournalStore(str(directory))
    async with dialled(store, TCP, diag_interval_s=0.0) as dial:
        assemble = dial.assemble
        dial.assemble = lambda settings, *more: assemble(evolve(settings, destinations=BOOK), *more)
        yield dial


async def observer(dial: Dial) -> Client:
    """Return a client that gets what the COMMIT sends, also what was there before it came."""
    client = await dial.connect("1.2", {"client-id": "observer"})
    for name, (destination, headers) in READS.items():
        await client.subscribe(destination, name, headers)
    return client


def transaction(ack: str, copies: int) -> bytes:
    """Return a COMMIT of an ACK and of SENDs to each kind of destination."""
    inside = {"transaction": "t", **SAVED}
    once = {"x-dedup-id": "1"}
    delay = {"AMQ_SCHEDULED_DELAY": "500"}
    sends: list[tuple[str, dict[str, str]]] = [
        *[(OUT, {"n": f"{n}"}) for n in range(copies)],
        (OUT, once),
        (NEWS, {}),
        (LOG, {}),
        (f"{OUT},{LOG}", {}),
        ("/temp-queue/own", {}),
        (LATER, delay),
    ]
    frames = [frame_bytes("BEGIN", {"transaction": "t"}, b"", "1.2")]
    frames += [
        frame_bytes("SEND", {"destination": to, **inside, **headers}, b"result", "1.2")
        for to, headers in sends
    ]
    frames.insert(len(frames) // 2, frame_bytes("ACK", {"id": ack, **inside}, b"", "1.2"))
    frames.append(frame_bytes("COMMIT", {"transaction": "t", "receipt": "c"}, b"", "1.2"))
    return b"".join(frames)


async def attempt(dial: Dial, fault: Fault, at: int, copies: int) -> bool:
    """Take the message of IN, and commit with a fault at a call. Return whether it succeeded."""
    worker = await dial.connect()
    await worker.subscribe("/temp-queue/own", "own")
    await worker.subscribe(IN, "in", {"ack": "client-individual"})
    job = await worker.receive()
    assert job.body == b"job"
    fault.left = at
    await worker.send_bytes(transaction(job["ack"], copies))
    came = set()
    while (frame := await worker.receive()).command == "MESSAGE":
        came.add(frame["subscription"])
    assert came <= ({"own"} if frame.command == "RECEIPT" else {"in"})
    if frame.command == "RECEIPT":
        # It succeeded before the fault, or the fault came later, at the end of the turn.
        assert fault.left > 0 or dial.server.dispatcher.bugs.counts["turn"]
        fault.left = 0
        worker.abort()
        return True
    assert frame["code"] == "internal-error", frame
    assert frame["receipt-id"] == "c"
    await worker.expect_closed()
    return False


@pytest.mark.bugs
@pytest.mark.parametrize("method", ["write", "when_safe", "finish_all"])
@pytest.mark.parametrize("copies", [1, pytest.param(MANY, marks=pytest.mark.full)])
async def test_a_bug_in_any_step_leaves_nothing(
    method: str, copies: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Fault()
    monkeypatch.setattr(Log, method, fault.wrap(getattr(Log, method)))
    step = 1 if copies == 1 else 31
    async with broker(tmp_path) as dial:
        neighbour = await dial.connect()
        await neighbour.publish(IN, b"job", headers=SAVED, receipt=True)
        reader = await observer(dial)
        memory = dial.server.broker.memory
        assert await reader.fence() == []
        used, at = set[tuple[int, int]](), 1
        while not await attempt(dial, fault, at, copies):
            assert await reader.fence() == []
            used.add((memory.charged_bytes, memory.stored_bytes))
            await neighbour.publish("/queue/else", b"1", headers=SAVED, receipt=True)
            await neighbour.subscribe("/queue/else", f"{at}")
            assert (await neighbour.receive()).body == b"1"
            await neighbour.send("UNSUBSCRIBE", {"id": f"{at}"})
            assert dial.server.dispatcher.bugs.counts["connection"]
            at += step
        assert len(used) == 1, used
        found = [await reader.receive() for _ in range(copies + 6)]
        assert await reader.fence() == []
        names = [frame["subscription"] for frame in found]
        assert [names.count(name) for name in READS] == [copies + 2, 1, 2, 1]
    async with broker(tmp_path) as dial:
        client = await dial.connect()
        await client.subscribe(IN)
        assert await client.fence() == []
        again = {"destination": OUT, "x-dedup-id": "1", "receipt": "again", **SAVED}
        await client.send("SEND", again)
        assert (await client.receive())["duplicate"] == "true"
