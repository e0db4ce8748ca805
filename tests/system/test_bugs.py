"""Faults of the broker itself: counted, told to the operator, and no frame leads to them."""

import logging
import random
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.fakes import Client, frame_bytes
from tests.support.served import Served, served
from tests.support.small_queues import hand_out_by
from trio_stomp.base import BrokenInvariant
from trio_stomp.broker import Broker
from trio_stomp.broker.headers import (
    SCHEDULE_HEADERS,
    SEND_HEADERS,
    STREAM_HEADERS,
    SUBSCRIBE_HEADERS,
)
from trio_stomp.broker.queues import Consumer

Q, OTHER = "/queue/q", "/queue/other"
SAVED = {"persistent": "true"}


async def page(made: Served, path: str) -> str:
    """Return the answer to a request."""
    text = b""
    async with await made.stream() as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        async for data in stream:
            text += data
    return text.decode()


async def bugs(made: Served) -> dict[str, int]:
    """Return the kinds of bugs that were counted."""
    text = await page(made, "/metrics")
    found = re.findall(r'^trio_stomp_bugs_total{kind="(\w+)"} (\d+)\.0$', text, re.MULTILINE)
    assert len(found) == 4
    return {kind: int(count) for kind, count in found if count != "0"}


def fails_once(error: Exception) -> Callable[..., Any]:
    """Return what makes a hand-out fail once, after it has taken messages out."""
    left = [error]

    def made_of(real: Any) -> Any:
        def hand_out(queue: Any, ready: Any, now: float, served: dict[Any, Any]) -> bool:
            is_cut: bool = real(queue, ready, now, served)
            if left and served and queue.destination.name == Q:
                raise left.pop()
            return is_cut

        return hand_out

    return made_of


async def filled(made: Served) -> None:
    """Send messages to two queues."""
    sender = await made.connect({})
    for name in (Q, OTHER):
        await sender.publish(name, b"1", b"2", b"3", headers=SAVED, receipt=True)


async def ends(client: Client, count: int) -> list[bytes]:
    return [(await client.receive()).body for _ in range(count)]


@pytest.mark.bugs
@pytest.mark.parametrize("ack", ["auto", "client-individual"])
async def test_a_broken_invariant_stops_one_queue_and_loses_nothing(
    ack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = BrokenInvariant("queue-order", "message 7 is behind 8")
    hand_out_by(monkeypatch, fails_once(broken))
    async with served(data_dir=str(tmp_path)) as made:
        await filled(made)
        assert "200 OK" in await page(made, "/readyz")
        client = await made.connect({})
        await client.send("SUBSCRIBE", {"destination": Q, "id": "1", "ack": ack})
        await client.subscribe(OTHER, "2")
        assert await ends(client, 3) == [b"1", b"2", b"3"]
        assert await client.fence() == []
        answer = await page(made, "/readyz")
        assert "503" in answer
        assert "broken invariant queue-order of /queue/q: restart the broker" in answer
        assert await bugs(made) == {"invariant": 1}
        await client.publish(OTHER, b"4", headers=SAVED, receipt=True)
        client.abort()
    told = next(each for each in caplog.records if each.levelno == logging.CRITICAL)
    assert "message 7 is behind 8" in told.getMessage()
    async with served(data_dir=str(tmp_path)) as made:
        assert "200 OK" in await page(made, "/readyz")
        client = await made.connect({})
        await client.subscribe(Q)
        assert await ends(client, 3) == [b"1", b"2", b"3"]


@pytest.mark.bugs
@pytest.mark.parametrize("ack", ["auto", "client-individual"])
async def test_another_bug_in_a_hand_out_gives_back_what_it_took(
    ack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_out_by(monkeypatch, fails_once(KeyError("a bug")))
    async with served(data_dir=str(tmp_path)) as made:
        await filled(made)
        client = await made.connect({})
        await client.subscribe(Q, headers={"ack": ack})
        await client.publish(Q, b"4", headers=SAVED)
        assert await ends(client, 4) == [b"1", b"2", b"3", b"4"]
        assert await bugs(made) == {"turn": 1}
        assert "200 OK" in await page(made, "/readyz")


@pytest.mark.bugs
async def test_a_bug_in_the_delivery_gives_back_what_is_not_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver, left = Consumer.deliver, [KeyError("a bug")]

    def fails(consumer: Any, source: Any, destination: Any, messages: Any) -> int:
        if left and consumer.subscription.client.remote and len(source.consumers) == 2:
            raise left.pop()
        return deliver(consumer, source, destination, messages)

    monkeypatch.setattr(Consumer, "deliver", fails)
    async with served(data_dir=str(tmp_path)) as made:
        readers = [await made.connect({}) for _ in range(2)]
        for reader in readers:
            await reader.subscribe(Q, headers={"ack": "client", "prefetch-count": "3"})
        await filled(made)
        await (await made.connect({})).publish(Q, b"4", b"5", b"6", headers=SAVED)
        got = [await ends(reader, 3) for reader in readers]
        assert sorted([*got[0], *got[1]]) == [b"1", b"2", b"3", b"4", b"5", b"6"]
        assert await bugs(made) == {"turn": 1}


@pytest.mark.bugs
async def test_a_bug_in_the_input_of_one_client_ends_it_and_logs_the_shape(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send = Broker._send

    def fails(broker: Any, client: Any, events: Any, index: int, *times: float) -> Any:
        if events[index].head.destination == Q:
            raise KeyError("a bug")
        return send(broker, client, events, index, *times)

    monkeypatch.setattr(Broker, "_send", fails)
    async with served() as made:
        client = await made.connect({})
        await client.send("SEND", {"destination": Q, "secret": "hidden"}, b"body")
        assert (await client.receive())["code"] == "internal-error"
        other = await made.connect({})
        await other.publish(OTHER, b"1", receipt=True)
        assert await bugs(made) == {"connection": 1}
        assert "200 OK" in await page(made, "/readyz")
    (told,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert told.endswith("ends this, after 1 events: SEND(destination,secret) of 1 x 4 bytes")


NAMES = sorted({*SEND_HEADERS, *SUBSCRIBE_HEADERS, *STREAM_HEADERS, *SCHEDULE_HEADERS, "x-any"})
VALUES = ("", "0", "1", "-1", "9" * 19, "true", "g", "a = 1", "1,1", Q, "* * * * *")
COMMANDS = ("SEND", "SEND", "SUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "OTHER")
OTHERS = ("UNSUBSCRIBE", "ABORT", "DISCONNECT", "CONNECT", "ERROR", "X")
PLACES = (
    Q,
    OTHER,
    "/topic/t",
    "/topic/>",
    "/queue/>",
    "/temp-queue/a",
    f"{Q},/topic/t",
    "DIAG/count",
)


async def rampage(client: Client, chance: random.Random) -> None:
    """Send frames in any order, until the broker ends the connection."""
    acks = ["1"]
    frames: list[bytes] = []
    for _ in range(60):
        pairs = {chance.choice(NAMES): chance.choice(VALUES) for _ in range(chance.randrange(3))}
        if chance.random() < 0.3:
            pairs["transaction"] = chance.choice("tu")
        if chance.random() < 0.5:
            pairs["receipt"] = "r"
        match chance.choice(COMMANDS):
            case "SEND":
                headers = {"destination": chance.choice(PLACES), **SAVED, **pairs}
                data = frame_bytes("SEND", headers, b"body" * chance.choice((1, 5000)), "1.2")
            case "SUBSCRIBE":
                ids = {"id": chance.choice("1234"), "ack": chance.choice(("auto", "client"))}
                headers = {"destination": chance.choice(PLACES), **ids, **pairs}
                data = frame_bytes("SUBSCRIBE", headers, b"", "1.2")
            case "OTHER":
                word = chance.choice(OTHERS)
                data = frame_bytes(word, {"id": "1", "transaction": "t", **pairs}, b"", "1.2")
            case word:
                id = chance.choice(acks)
                data = frame_bytes(word, {"id": id, "transaction": "t", **pairs}, b"", "1.2")
        frames.append(data)
        if chance.random() < 0.5:
            with trio.move_on_after(0.01):
                await client.send_bytes(b"".join(frames))
                frames.clear()
                acks += [(await client.receive()).get("ack") or "1" for _ in range(3)]
    await client.send_bytes(b"".join(frames))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("door", ["open", "closed"])
async def test_no_frame_leads_to_a_bug(door: str, seed: int, tmp_path: Path) -> None:
    options: dict[str, object] = {"data_dir": str(tmp_path / "data"), "max_memory_bytes": 4 << 20}
    if door == "closed":
        rules = tmp_path / "acl.toml"
        rules.write_text(f'[[rule]]\nallow = "receive"\nto = "{OTHER}"\n')
        options["acl_file"] = str(rules)
    chance = random.Random(seed)
    async with served(**options) as made:
        for _ in range(15):
            client = await made.connect({})
            # The broker may end it at any moment.
            with suppress(AssertionError, trio.BrokenResourceError, trio.ClosedResourceError):
                await rampage(client, chance)
            if chance.random() < 0.5:
                client.abort()
        if door == "open":  # else the page needs a login, and the log tells
            assert await bugs(made) == {}
        assert "200 OK" in await page(made, "/readyz")
