"""Numbers at every entrance: each is taken with its meaning, or refused with its range.

Headers, options, fields of policies, arguments of commands and parameters of the management
interface come from their declarations, so that a new one is tested by itself. Whatever a client
writes, another client's durable SENDs get their RECEIPTs, and a restart finds them.
"""

import json
import logging
import math
import re
import tomllib
from argparse import Action, ArgumentError, ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

import attrs
import pytest
import trio

from tests.support.commands import names, parser_of
from tests.support.fakes import Client, Received
from tests.support.management import VALUES, Interface, description, operations
from tests.support.served import Served, served_with
from trio_stomp.base import OptionError
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.delivery import WallTime
from trio_stomp.broker.headers import (
    SCHEDULE_HEADERS,
    SEND_HEADERS,
    STREAM_HEADERS,
    SUBSCRIBE_HEADERS,
    encode_head,
)
from trio_stomp.broker.routing import read_policy
from trio_stomp.broker.sending import SCHEDULED
from trio_stomp.config import OptionSpec, build, from_text, options
from trio_stomp.frames import Head
from trio_stomp.store import JournalStore, Put, SqlStore, Store, Turn

T = TypeVar("T")
NUMBERS = ("0", "-1", *(str(2**bits) for bits in (31, 53, 64)), str(2**63 - 1), "1e400")
DIALECTS = next(spec.choices for spec in options() if spec.name == "dialect")
DELAYED = {"AMQ_SCHEDULED_DELAY": "1"}
QUEUE, STREAM, NEIGHBOUR = "/queue/numbers", "/topic/numbers", "/queue/neighbour"
POLICIES = {STREAM: DestinationPolicy(stream=True)}
SAVED = {"persistent": "true"}


def stores(tmp_path: Path) -> dict[str, dict[str, object]]:
    return {
        "journal": {"data_dir": str(tmp_path / "data")},
        "sqlite": {"store": "sql", "store_url": f"sqlite:///{tmp_path}/store.db"},
    }


async def page(made: Served, path: str) -> bytes:
    """Return the status line of a page."""
    stream = await made.stream()
    async with stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return (await stream.receive_some()).partition(b"\r\n")[0]


async def answer_of(made: Served, command: str, headers: Mapping[str, str]) -> Received:
    """Return the answer to one frame of a client of its own."""
    client = await made.connect({})
    every = {**headers, "receipt": "asked"}
    await client.send(command, every, b"" if command != "SEND" else b"body")
    while True:
        frame = await client.receive()
        if frame.command in ("RECEIPT", "ERROR"):
            client.abort()
            return frame


def faults_of(answer: Received, name: str, text: str) -> list[str]:
    """Return the answer if it neither takes a number nor refuses it by name, value and range."""
    if answer.command == "RECEIPT":
        return []
    message = answer["message"] + "\n" + answer.body.decode()  # RabbitMQ's says little
    is_clear = name in message and text in message
    if text != "1e400":  # which is no whole number
        is_clear = is_clear and not re.search("is not a whole number$", message, re.MULTILINE)
    is_refused = answer["code"].startswith(("invalid-", "unknown-", "unsupported"))
    return [] if is_clear and is_refused else [f"{name}:{text}: {message}"]


class Neighbour:
    """A client whose durable SENDs all get their RECEIPTs."""

    def __init__(self, client: Client) -> None:
        self.client, self.sent = client, 0

    async def send(self) -> None:
        await self.client.publish(NEIGHBOUR, b"durable", headers=SAVED, receipt=True)
        self.sent += 1


async def ask_all(made: Served, neighbour: Neighbour) -> list[str]:
    """Send every header with every number. Return what was neither taken nor refused clearly."""
    faults: list[str] = []
    for text in NUMBERS:
        for name in (*SEND_HEADERS, *SCHEDULE_HEADERS, "x-other"):
            plain = {"destination": QUEUE, **SAVED, name: text}
            for headers in (plain, {**DELAYED, **plain}, {**plain, "destination": STREAM}):
                faults += faults_of(await answer_of(made, "SEND", headers), name, text)
        await neighbour.send()
        for name in (*SUBSCRIBE_HEADERS, *STREAM_HEADERS):
            for destination in (STREAM,) if name in STREAM_HEADERS else (STREAM, QUEUE):
                headers = {"destination": destination, "id": "1", "ack": "client", name: text}
                faults += faults_of(await answer_of(made, "SUBSCRIBE", headers), name, text)
        for command in ("ACK", "NACK"):
            faults += faults_of(await answer_of(made, command, {"id": text}), "id", "")
        await neighbour.send()
    return faults


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("store", ["journal", pytest.param("sqlite", marks=pytest.mark.full)])
async def test_each_number_in_each_header_is_taken_or_refused(
    store: str, dialect: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {**stores(tmp_path)[store], "dialect": dialect}
    with caplog.at_level(logging.WARNING):
        async with served_with(POLICIES, options) as made:
            neighbour = Neighbour(await made.connect({}))
            assert await ask_all(made, neighbour) == []
            await trio.sleep(0.05)  # what is scheduled is due
            await neighbour.send()
            assert await page(made, "/readyz") == b"HTTP/1.1 200 OK"
        async with served_with(POLICIES, options) as made:
            assert await page(made, "/readyz") == b"HTTP/1.1 200 OK"
            client = await made.connect({})
            await client.subscribe(NEIGHBOUR)
            await client.receive_many(neighbour.sent)
            await Neighbour(client).send()
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.mark.parametrize("name", ["ttl", "expiration", "expires"])
@pytest.mark.parametrize("store", ["journal", "sqlite"])
async def test_a_schedule_of_an_older_version_is_sent_when_it_is_due(
    store: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a version accepted numbers that no store can hold when the message was due."""
    pairs = (("destination", QUEUE), ("persistent", "true"), *DELAYED.items(), (name, "9" * 19))
    put = Put(SCHEDULED, first=1, head=encode_head(Head("SEND", pairs, 1, QUEUE)), bodies=[b"m"])
    kept: Store = JournalStore(str(tmp_path / "data"))
    if store == "sqlite":
        kept = SqlStore(f"sqlite:///{tmp_path}/store.db")
    recovered = kept.recover(lambda _done, _total: None)
    kept.append([Turn([put])], recovered.commit)
    kept.close()
    for _ in range(2):
        async with served_with({}, stores(tmp_path)[store]) as made:
            client = await made.connect({})
            await client.subscribe(QUEUE, headers={"ack": "client"})
            assert (await client.receive()).body == b"m"
            await client.publish(NEIGHBOUR, b"m", headers=SAVED, receipt=True)
            assert await page(made, "/readyz") == b"HTTP/1.1 200 OK"
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.mark.bugs
@pytest.mark.parametrize("store", ["journal", "sqlite"])
async def test_a_record_that_no_store_can_hold_is_the_fault_of_its_sender_alone(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was before times beyond the calendar became never."""
    monkeypatch.setattr(
        WallTime, "expiry_ms", lambda wall, end: 0 if end == math.inf else wall.ms(end)
    )
    bad = {"destination": QUEUE, **SAVED, "ttl": "9" * 19, "receipt": "bad"}
    async with served_with({}, stores(tmp_path)[store]) as made:
        others = [Neighbour(await made.connect({})) for _ in range(10)]
        for delay in ({}, DELAYED, {}):
            client = await made.connect({})
            async with trio.open_nursery() as nursery:
                for each in others:
                    nursery.start_soon(each.send)
                await client.publish(QUEUE, b"good", headers=SAVED, receipt=True)
                await client.send("SEND", {**bad, **delay}, b"bad")
                answer = await client.receive()
            assert answer["receipt-id"] == "bad"
            if not delay:
                assert (answer.command, answer["code"]) == ("ERROR", "unstorable")
                assert "this cannot be stored: expires_ms is " in answer["message"]
            assert await page(made, "/readyz") == b"HTTP/1.1 200 OK"
        await trio.sleep(0.1)  # what is scheduled is due
        for each in others:
            await each.send()
    async with served_with({}, stores(tmp_path)[store]) as made:
        assert await page(made, "/readyz") == b"HTTP/1.1 200 OK"
        client = await made.connect({})
        await client.subscribe(NEIGHBOUR)
        await client.receive_many(sum(each.sent for each in others))
        await client.subscribe(QUEUE, "2")
        assert {(await client.receive()).body for _ in range(3)} == {b"good"}
    told = {each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR}
    assert told
    assert all("the store cannot hold" in each for each in told)


# --- the numbers of operators ---------------------------------------------------------------------


def taken(make: Callable[[], T], name: str) -> T | None:
    """Return what ``make`` makes of a number, or None if it refuses it by name and range."""
    try:
        return make()
    except OptionError as error:
        text = str(error)
    assert name in text
    assert "must be" in text
    return None


async def check_serves(options: Mapping[str, object], policy: DestinationPolicy) -> None:
    """Check that a broker stores, delivers, takes back and appends to a stream."""
    async with served_with({QUEUE: policy, STREAM: policy}, options) as made:
        client = await made.connect({})
        await client.subscribe(QUEUE, headers={"ack": "client"})
        await client.publish(QUEUE, b"m", headers=SAVED)
        message = await client.receive()
        await client.send("NACK", {"id": message["ack"]})
        await client.publish(STREAM, b"m", headers=SAVED, receipt=True)
        assert await page(made, "/readyz") == b"HTTP/1.1 200 OK"


NUMERIC = [spec for spec in options() if spec.type in (int, float)]


@pytest.mark.parametrize("spec", NUMERIC, ids=[spec.name for spec in NUMERIC])
async def test_each_number_of_an_option_is_taken_or_refused(
    spec: OptionSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for text in NUMBERS:

        def chosen(text: str = text) -> dict[str, object]:
            value = from_text(spec, text)
            build({spec.name: value})
            return {"data_dir": str(tmp_path / text), spec.name: value}

        if (options := taken(chosen, spec.name)) is not None:
            await check_serves(options, DestinationPolicy(stream=True))
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


FIELDS = [
    each.name for each in attrs.fields(DestinationPolicy) if type(each.default) in (int, tuple)
]


@pytest.mark.parametrize("name", FIELDS)
async def test_each_number_of_a_policy_is_taken_or_refused(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for text in NUMBERS:
        number = tomllib.loads(f"number = {text}")["number"]
        values = {name: [number] if name == "backoff_s" else number, "stream": True}
        policy = taken(partial(read_policy, QUEUE, values), name)
        if policy is not None:
            await check_serves({"data_dir": str(tmp_path / text)}, policy)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def arguments(parser: ArgumentParser) -> Iterator[Action]:
    """Yield the arguments of a command and of its own commands."""
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for each in action.choices.values():
                yield from arguments(each)
        elif callable(action.type):
            yield action


@pytest.mark.parametrize("command", names())
def test_each_number_of_an_argument_is_taken_or_refused(command: str) -> None:
    parser = parser_of(command)
    for action in arguments(parser):
        for text in (*NUMBERS, "9" * 5000, "1" + "0" * 400):
            with suppress(ArgumentError):
                assert parser._get_value(action, text) is not None


async def test_each_number_of_a_request_is_taken_or_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served_with(POLICIES, {}) as made:
        interface = Interface(made)
        for method, address, operation in operations(description()):
            needed = {
                each["name"]: VALUES[each["name"]]
                for each in operation["parameters"]
                if each["required"]
            }
            for each in operation["parameters"]:
                if each["schema"]["type"] != "integer":
                    continue
                for text in NUMBERS:
                    query = urlencode({**needed, each["name"]: text})
                    reply = await interface.ask(method, f"{address}?{query}")
                    refusal = json.loads(reply.body).get("error", "") if reply.status == 400 else ""
                    assert reply.status < 500, (address, query)
                    if refusal:
                        assert each["name"] in refusal
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    ("destination", "question"),
    [
        ("DIAG/trace", '{"destination": "/queue/numbers", "seconds": NUMBER}'),
        ("DIAG/explain", '{"message-id": "a-NUMBER"}'),
        ("DIAG/explain", '{"message-id": "a.1.S-NUMBER"}'),
        ("DIAG/left", '{"after": NUMBER}'),
        ("DIAG/left", "NUMBER"),
        ("DIAG/count", "NUMBER"),
    ],
)
async def test_each_number_of_a_question_is_taken_or_refused(
    destination: str, question: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served_with(POLICIES, {}) as made:
        for text in (*NUMBERS, "NaN", "9" * 5000):
            client = await made.connect({})
            body = question.replace("NUMBER", text).encode()
            await client.send("SEND", {"destination": destination, "receipt": "r"}, body)
            answer = await client.receive()
            if answer.command == "ERROR":
                assert answer["code"].startswith("invalid-")
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_each_number_of_a_connection_is_taken_or_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served_with(POLICIES, {}) as made:
        for text in (*NUMBERS, "9" * 5000):
            client = await made.open()
            headers = {"accept-version": "1.2", "host": "h", "heart-beat": f"{text},{text}"}
            await client.send("CONNECT", headers)
            answer = await client.receive()
            assert answer.command == "CONNECTED" or "heart-beat:" in answer["message"]
            client = await made.connect({})
            await client.send("SEND", {"destination": QUEUE, "content-length": text})
            if text != "0":
                assert f"content-length:{text[:40]}" in (await client.receive())["message"]
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
