"""Each code that the description declares for a request is the answer to some request."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from attrs import define

from tests.support.files import save
from tests.support.management import ALICE, API, GUEST, RULES, USERS, Interface, description
from tests.support.served import Served, served, served_with
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.sending import SendLater
from trio_stomp.server.connection._web_share import WebShare
from trio_stomp.store import StoreError
from trio_stomp.store.journal import JournalStore

Q, FULL, USED, STREAM = "/queue/q", "/queue/full", "/queue/used", "/stream/topic/log"
POLICIES = {
    FULL: DestinationPolicy(max_messages=1, overflow="reject"),
    "/topic/log": DestinationPolicy(stream=True),
}
FOREIGN = ("Host", "evil.example"), ("Origin", "http://other.example")
VALUES = {
    "queue": Q,
    "to": "/queue/to",
    "destination": "/topic/t",
    "session": "none",
    "stream": STREAM,
    "id": "1",
    "name": "none",
    "offset": "0",
}
"""Values of parameters that requests require."""
GOOD = {"destination": "/topic/log", "session": ""}
"""Values that exist."""
APART = "/queue/apart"
"""A destination of another partition."""
WRONG = {
    "bad-request": {"x-y": "1"},
    "no-such-queue": {"queue": "/queue/none"},
    "no-such-destination": {"destination": "/topic/none"},
    "no-such-session": {"session": "none"},
    "no-such-subscription": {"name": "none"},
    "unknown-stream": {"stream": "/stream/topic/none"},
    "invalid-selector": {"selector": "a ="},
    "no-subscriber": {"to": "/topic/nobody"},
    "partitions-apart": {"to": APART},
    "ambiguous-subscription": {"name": "twice"},
    "invalid-schedule": {"id": "x"},
    "queue-in-use": {"queue": USED},
}
"""By code, parameters that provoke it."""
NAMES = {
    "invalid-destination": "/queue/a,/queue/b",
    "wildcard-in-send": "/queue/*",
    "destination-too-long": "/queue/" + "x" * 2000,
    "queue-full": FULL,
    "not-allowed": "/reply-queue/1-secret.a",
}
"""By code, names of destinations that provoke it."""
HEADERS = {
    "length-required": ("Transfer-Encoding", "chunked"),
    "too-large": ("Content-Length", f"{10**12}"),
}


@define
class Case:
    """A request that is to be refused."""

    method: str
    name: str
    code: str
    parameters: list[str]
    needs: str

    def target(self) -> str:
        """Return the target, with all parameters that it requires."""
        query = {name: VALUES[name] for name in self.parameters if name in VALUES}
        wrong = {} if self.name == "history" and self.code == "unknown-stream" else WRONG
        query |= wrong.get(self.code, {})
        if self.code == "busy":  # pages are made before
            query |= {"q": "a-1"} if self.name == "explain" else {}
            query |= {name: GOOD[name] for name in GOOD if name in query}
        # Anybody may send to a private destination, if rules allow it, so it may be a target.
        targets = () if self.code == "not-allowed" else ("to",)
        for where in [each for each in (*targets, "queue", "destination") if each in query][:1]:
            query[where] = NAMES.get(self.code, query[where])
        return f"{self.name}?{urlencode(query)}"

    def body(self) -> bytes:
        """Return the body."""
        if self.name != "definitions" or self.code not in ("invalid-definitions", *NAMES):
            return b""
        queues = [{"name": "/topic/t"}] if self.code in NAMES else 5
        return json.dumps({"version": 1, "queues": queues}).encode()

    async def answer(self, broker: Served, *headers: tuple[str, str]) -> str:
        """Return the code of the answer."""
        method = "DELETE" if self.code == "method-not-allowed" else self.method
        own = (HEADERS[self.code],) if self.code in HEADERS else ()
        reply = await Interface(broker).ask(method, self.target(), *headers, *own, body=self.body())
        found: str = json.loads(reply.body).get("code", f"{reply.status}")
        return found


def cases() -> list[Case]:
    """Return a case for each declared code."""
    return [
        Case(
            method.upper(),
            path.removeprefix(API),
            code,
            [each["name"] for each in one["parameters"] if each["required"]]
            + ["offset"] * path.endswith("trim")
            + ["destination"] * (path.endswith("whoami")),
            one["description"],
        )
        for path, methods in description()["paths"].items()
        for method, one in methods.items()
        for status, answer in one["responses"].items()
        if status != "200"
        for code in codes(answer)
    ]


def codes(answer: Any) -> list[str]:
    """Return the codes of an answer. ``examples`` are codes beside those of a SEND."""
    code = answer["content"]["application/json"]["schema"]["properties"]["code"]
    found: list[str] = code.get("enum") or code["examples"]
    return found


@asynccontextmanager
async def guarded(directory: Path) -> AsyncIterator[Served]:
    """Run a broker with users, with what the cases need."""
    options = {
        "passwd_file": save(directory / "users", USERS),
        "acl_file": save(directory / "acl.toml", RULES),
        "connect_timeout_s": 60.0,
    }
    async with served_with(POLICIES, options) as broker:
        client = await broker.connect({"login": "alice", "passcode": "wonder-land"})
        for name in ("/topic/a", "/topic/b"):
            await client.subscribe(name, name, {"durable-subscription-name": "twice"})
        await client.subscribe(USED, "2")
        for name in (Q, FULL, "/topic/log"):
            await client.publish(name, b"x", receipt=True)
        yield broker


async def test_each_declared_code_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong: list[tuple[Case, str]] = []
    monkeypatch.setattr(SendLater, "lacks", lambda _, name: name == APART)

    async def check(chosen: list[Case], broker: Served, *headers: tuple[str, str]) -> None:
        for each in chosen:
            code = await each.answer(broker, *headers)
            if code != each.code:
                wrong.append((each, code))

    left = cases()

    def take(matches: Callable[[Case], bool]) -> list[Case]:
        nonlocal left
        taken = [each for each in left if matches(each)]
        left = [each for each in left if not matches(each)]
        return taken

    has_public = any(each.needs.endswith("none.") for each in left)
    assert has_public
    foreign = take(
        lambda each: (
            each.code == "not-authorized"
            and each.needs.startswith(("Required right: none", "Required right: a login"))
        )
    )
    refused = take(lambda each: each.code == "not-authorized")
    unknown = take(lambda each: each.code == "authentication-failed")
    memory = take(lambda each: each.code == "memory-limit")
    storage = take(lambda each: each.code == "storage")
    busy = take(lambda each: each.code == "busy")
    long = take(
        lambda each: (each.method, each.name, each.code) == ("GET", "definitions", "too-large")
    )
    settings = take(lambda each: each.code == "invalid-settings")
    async with guarded(tmp_path) as broker:
        await check(unknown, broker)
        await check(refused, broker, GUEST)
        await check(left, broker, ALICE)
        save(tmp_path / "users", "alice")
        await check(settings, broker, ALICE)
        save(tmp_path / "users", USERS)
        with monkeypatch.context() as patch:
            patch.setattr("trio_stomp.web.management._definitions.MAX_BYTES", -1)
            await check(long, broker, ALICE)
        connections = (await Interface(broker).ask("GET", "connections", ALICE)).json["connections"]
        monkeypatch.setitem(GOOD, "session", connections[0]["session_id"])
        monkeypatch.setattr(WebShare, "limit_bytes", 0)
        monkeypatch.setattr(f"{WebShare.__module__}.OPERATIONS_AT_ONCE", 0)
        await check(busy, broker, ALICE)
        monkeypatch.undo()
    async with served(max_memory_bytes=2 * 1024 * 1024) as broker:
        await check(foreign, broker, *FOREIGN)
        later = f"send?destination={Q}&header=AMQ_SCHEDULED_DELAY:900000"
        while (reply := await Interface(broker).ask("POST", later, body=BODY)).status == 200:
            pass
        code = reply.json["code"]
        wrong += [(each, code) for each in memory if (each.name, each.code) != ("send", code)]
    async with served(data_dir=str(tmp_path / "data")) as broker:
        monkeypatch.setattr(JournalStore, "append", no_store)
        target = f"send?destination={Q}&header=persistent:true"
        code = (await Interface(broker).ask("POST", target, body=b"x")).json["code"]
        wrong += [(each, code) for each in storage if (each.name, each.code) != ("send", code)]
        monkeypatch.undo()
    assert not [(each.method, each.name, each.code, code) for each, code in wrong]


BODY = b"x" * 60_000


def no_store(*_arguments: object) -> None:
    raise StoreError("journal: no space left on the device")
