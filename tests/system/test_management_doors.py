"""Checks every request of the management interface, as its own description lists them.

A request that is new is tried without a line more here.
"""

import itertools
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import trio

from tests.support.fakes import Client
from tests.support.files import save
from tests.support.management import (
    ALICE,
    API,
    GUEST,
    OPERATIONS_AT_ONCE,
    RULES,
    USERS,
    VALUES,
    Interface,
    ask,
    description,
    operations,
)
from tests.support.served import Served, served_with
from trio_stomp.broker import DestinationPolicy
from trio_stomp.server import Send
from trio_stomp.web.management._overview import Reload

MIB = 1024 * 1024
HOSTILE = (
    "%00",
    "%FF%FE",
    "%ED%A0%80",  # a lone surrogate
    "%E2%80%AE%1B%5B2J%C2%9B",
    "%5B" * 3000,
    "-1",
    "9" * 400,
    "%27%20OR%201=1",
    "..%2F..%2Fetc%2Fpasswd",
    "a" * 5000,
)
SECRET = b"for one only"
BODIES = (
    b"[" * 3000,
    b"{" * 3000,
    b"a." * 20_000 + b"b = 1",
    b"x = {" + b"a." * 20_000 + b"b = 1}",
    b'{"version": 1, "queues": [{"name": "/queue/\\ud800"}]}',
    b'{"version": 1, "queues": [{"name": "/queue/\\u0000"}]}',
    b'{"version": 1, "queues": [{"name": ' + b"[" * 50 + b"]" * 50 + b"}]}",
    b'{"version": 1, "durables": [{"name": NaN}]}',
    b"version = 1\n[[durables]]\nname = 2020-01-01\n",
    b"\xff\xfe\x00",
)
QUESTIONS = (
    b"[" * 4000,
    b'{"a":' * 700,
    b'{"message-id": "BOOT.1\\ud800-1", "destination": "\\ud800"}',
    b'{"session": "\\ud800", "what": "\\ud800"}',
    b"\xff\xfe\x01",
)
"""Requests to ``DIAG/explain``, ``DIAG/left`` and ``DIAG/trace``."""
KINDS = ("application/json", "application/toml", "application/octet-stream")


def required(operation: Any) -> dict[str, str]:
    """Return values of the parameters that a request requires."""
    names = {each["name"] for each in operation["parameters"]}
    wanted = {each["name"] for each in operation["parameters"] if each["required"]}
    either = {"offset"} if {"offset", "time"} <= names else set()
    return {name: VALUES.get(name, "0") for name in wanted | either}


def is_public(operation: Any) -> bool:
    return "401" not in operation["responses"]


def has_body(operation: Any) -> bool:
    return "requestBody" in operation


@asynccontextmanager
async def guarded(directory: Path, **options: object) -> AsyncIterator[tuple[Served, Client]]:
    """Run a broker with users, whose queue, topic and stream have messages."""
    given = {
        "passwd_file": save(directory / "users", USERS),
        "acl_file": save(directory / "acl.toml", RULES),
        "max_memory_bytes": 128 * MIB,
        **options,
    }
    policies = {"/topic/t": DestinationPolicy(stream=True)}
    async with served_with(policies, given) as broker:
        client = await broker.connect({"login": "alice", "passcode": "wonder-land"})
        for name in ("/queue/q", "/topic/t"):
            await client.publish(name, *[b"\x01" * MIB] * 6, receipt=True)
        yield broker, client


async def used_bytes(broker: Served) -> int:
    reply = await Interface(broker).ask("GET", "overview", ALICE)
    found: int = reply.json["memory"]["used_bytes"]
    return found


async def bugs(broker: Served) -> int:
    """Return the number of faults of the broker itself."""
    stream = await broker.stream()
    await stream.send_all(
        f"GET /metrics HTTP/1.1\r\nHost: x\r\n{ALICE[0]}: {ALICE[1]}\r\n\r\n".encode()
    )
    text = b""
    while data := bytes(await stream.receive_some()):
        text += data
    await stream.aclose()
    lines = [each for each in text.splitlines() if each.startswith(b"trio_stomp_bugs_total")]
    return int(sum(float(each.rsplit(b" ", 1)[1]) for each in lines))


async def test_without_rights_nothing_is_done_and_no_body_is_awaited(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (broker, _):
        before = await used_bytes(broker)
        for method, name, operation in operations(description()):
            target = f"{name}?{urlencode(required(operation))}"
            long = [("Content-Length", f"{4 * MIB}")] if has_body(operation) else []
            with trio.fail_after(5):
                stranger = await ask(await broker.stream(), method, target, *long)
                guest = await ask(await broker.stream(), method, target, GUEST, *long)
            assert stranger.status in ({200} if is_public(operation) else {400, 401}), target
            is_own = (
                "none, except" in operation["description"] or "a login" in operation["description"]
            )
            wanted = {200, 400, 404} if is_own or is_public(operation) else {403}
            assert guest.status in wanted, (target, guest.status)
            if is_own and guest.status == 200:
                assert b"alice" not in guest.body
        assert await used_bytes(broker) == before


async def test_a_slow_body_keeps_nothing_from_others(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (broker, _):
        before = await used_bytes(broker)
        for method, name, operation in operations(description()):
            if not has_body(operation):
                continue
            target = f"{API}{name}?{urlencode(required(operation))}"
            head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n{ALICE[0]}: {ALICE[1]}\r\n"
            streams = [await broker.stream() for _ in range(OPERATIONS_AT_ONCE + 2)]
            for stream in streams:
                await stream.send_all(f"{head}Content-Length: {MIB}\r\n\r\n12345".encode())
            await trio.sleep(0.05)
            with trio.fail_after(5):
                reply = await ask(
                    await broker.stream(), "GET", "messages?queue=/queue/q&limit=1", ALICE
                )
            assert reply.status == 200
            assert await used_bytes(broker) - before < 1000
            for stream in streams:
                await stream.aclose()


async def unread(broker: Served, method: str, target: str) -> socket.socket:
    """Send a request whose answer is not read."""
    host, _, port = broker.handle.addresses[0].rpartition(":")
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(raw))
    await stream.socket.connect((host, int(port)))
    head = f"{method} {API}{target} HTTP/1.1\r\nHost: localhost\r\n{ALICE[0]}: {ALICE[1]}\r\n\r\n"
    await stream.send_all(head.encode())
    return raw


async def test_unread_answers_are_bounded_and_counted(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (broker, client):
        before = await used_bytes(broker)
        for method, name, operation in operations(description()):
            if method != "GET":
                continue
            parameters = {each["name"] for each in operation["parameters"]}
            query = {
                **required(operation),
                **({"bytes": 16 * MIB} if "bytes" in parameters else {}),
            }
            hoarders = [
                await unread(broker, method, f"{name}?{urlencode(query)}") for _ in range(12)
            ]
            await trio.sleep(0.1)
            with trio.fail_after(10):
                await client.fence()
                # Nobody else waits for them. (She herself may have to.)
                reply = await ask(await broker.stream(), "GET", "whoami", GUEST)
                assert reply.status == 200, name
            assert await used_bytes(broker) - before < 16 * MIB + 8 * MIB, name
            for each in hoarders:
                each.close()
            for _ in range(200):
                if await used_bytes(broker) <= before:
                    break
                await trio.sleep(0.01)
            else:
                pytest.fail(f"{name}: not all is given back")


async def test_what_an_answer_is_made_of_is_charged_until_the_operation_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    async with guarded(tmp_path) as (broker, _):
        before = await used_bytes(broker)

        async def run(_self: Reload, _user: object, send: Send, _body: bytes = b"") -> None:
            send.hold(4 * MIB)
            send.hold(-MIB)
            held.append(await used_bytes(broker) - before)
            send.hold(16 * MIB)

        monkeypatch.setattr(Reload, "run", run)
        reply = await Interface(broker).ask("POST", "reload", ALICE)
        assert (reply.status, json.loads(reply.body)["code"]) == (503, "busy")
        assert 3 * MIB <= held[0] < 4 * MIB
        assert await used_bytes(broker) <= before


async def test_answers_end_at_4_mib_and_say_so(tmp_path: Path) -> None:
    headers = {f"h{number}": "\u00e9" * 1000 for number in range(25)}
    async with guarded(tmp_path) as (broker, client):
        for _ in range(60):
            await client.publish("/queue/h", b"", headers=headers, receipt=True)
        interface = Interface(broker)
        for target, title in (
            ("messages?queue=/queue/q&bytes=16777216", "messages"),
            ("messages?queue=/queue/h&bytes=0&limit=1000", "messages"),
            ("records?stream=/stream/topic/t&bytes=16777216", "records"),
        ):
            seen, at = 0, 0
            while True:
                step = f"&offset={at}"
                reply = await interface.ask("GET", target + step, ALICE)
                assert reply.status == 200
                assert len(reply.body) <= 4 * MIB
                found = reply.json
                for each in found[title]:
                    assert len(json.dumps(each.get("body", ""))) <= MIB + 2
                seen += len(found[title])
                at = found["next_offset"] if title == "records" else seen
                if not found["more"]:
                    break
            assert seen == (60 if "/queue/h" in target else 6)


async def owner_of_private_names(broker: Served) -> tuple[Client, str, str]:
    """Return a client with a private queue, its public name, and the ack of its first message."""
    owner = await broker.connect({"login": "alice", "passcode": "wonder-land"})
    await owner.subscribe("/queue/ask", "ask")
    await owner.subscribe("/temp-queue/mine", "mine", {"ack": "client", "prefetch-count": "1"})
    await owner.publish("/queue/ask", b"", headers={"reply-to": "/temp-queue/mine"})
    name = (await owner.receive())["reply-to"]
    await owner.publish(name, b"first", SECRET, receipt=True)
    held = await owner.receive()
    assert held.body == b"first"
    return owner, name, held["ack"]


def trials(name: str) -> Iterator[tuple[str, str, str]]:
    """Yield each request with a private name in each place that takes the name of something."""
    for method, address, operation in operations(description()):
        query = required(operation)
        for each in operation["parameters"]:
            if each["schema"]["type"] == "string" and each["name"] not in (
                "to",
                "selector",
                "body",
            ):
                values = {**query, each["name"]: name}
                if "destination" in query and "header" in {
                    x["name"] for x in operation["parameters"]
                }:
                    continue  # everybody may send there
                yield method, f"{address}?{urlencode(values)}", each["name"]


@pytest.mark.parametrize("user", [(), (ALICE,)])
async def test_private_names_are_private(tmp_path: Path, user: tuple[tuple[str, str], ...]) -> None:
    """Even an operator with all rights, and everybody where there are no users."""
    options: dict[str, object] = {} if user else {"passwd_file": "", "acl_file": ""}
    async with guarded(tmp_path, **options) as (broker, _):
        owner, name, ack = await owner_of_private_names(broker)
        forms = [name, f"/stream{name}", f"/reply-topic/{name.rpartition('/')[2]}"]
        for form in forms:
            for method, target, _ in trials(form):
                reply = await ask(await broker.stream(), method, target, *user)
                assert SECRET not in reply.body, target
                changed = json.loads(reply.body or b"{}")
                assert not any(
                    changed.get(key) for key in ("purged", "moved", "sent", "redelivered")
                ), target
        moved = f"move?{urlencode({'queue': name, 'to': '/queue/mine'})}"
        assert (await ask(await broker.stream(), "POST", moved, *user)).status == 403
        await owner.send("ACK", [("id", ack)])
        assert (await owner.receive()).body == SECRET
        for question in (
            {"destination": name},
            {"destination": name, "user": "alice"},
        ):
            asker = await broker.connect({"login": "alice", "passcode": "wonder-land"})
            await asker.publish("DIAG/explain", json.dumps(question).encode())
            await asker.expect_error("not-allowed")
        asker = await broker.connect({"login": "alice", "passcode": "wonder-land"})
        await asker.publish(
            "DIAG/trace", json.dumps({"destination": name, "bodies": True}).encode()
        )
        await asker.expect_error("not-allowed")


async def test_hostile_bytes_are_refused_in_words(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (broker, client):
        for method, address, operation in operations(description()):
            values = {name: quote(text) for name, text in required(operation).items()}
            for each in operation["parameters"]:
                for text in HOSTILE:
                    query = "&".join(f"{n}={v}" for n, v in {**values, each["name"]: text}.items())
                    reply = await ask(await broker.stream(), method, f"{address}?{query}", ALICE)
                    assert reply.status in {200, 400, 403, 404, 409}, (address, each["name"], text)
                    assert (
                        reply.body.isascii() or reply.headers["content-type"] != "application/json"
                    )
            for body in BODIES if has_body(operation) else ():
                for kind in KINDS:
                    query = urlencode(required(operation))
                    with trio.fail_after(5):
                        reply = await ask(
                            await broker.stream(),
                            method,
                            f"{address}?{query}",
                            ALICE,
                            ("Content-Type", kind),
                            body=body,
                        )
                    assert reply.status in {200, 400}, (address, body[:20], kind)
        await client.fence()
        for place, question in itertools.product(("explain", "left", "trace"), QUESTIONS):
            asker = await broker.connect({"login": "alice", "passcode": "wonder-land"})
            boot = (await Interface(broker).ask("GET", "overview", ALICE)).json["boot"]
            await asker.publish(f"DIAG/{place}", question.replace(b"BOOT", boot.encode()))
            await asker.send("DISCONNECT", [("receipt", "r")])
            answer = await asker.receive()
            assert answer.command == "RECEIPT" or answer["code"] == "invalid-question", answer
        assert await bugs(broker) == 0
