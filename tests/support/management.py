"""Requests to the management interface. Each answer is compared with the published description."""

import json
from functools import cache
from typing import Any
from unittest.mock import MagicMock
from urllib.parse import urlsplit

import trio
from jsonschema import Draft202012Validator

from tests.support.logins import basic
from tests.support.served import Served
from tests.support.site import Reply, parse
from trio_stomp.web.management._interface import endpoints
from trio_stomp.web.management.requests import (
    openapi,
)

OPERATIONS_AT_ONCE = 8
"""Operations of one broker; further ones wait, and are then refused."""

API = "/api/v1/"
RULES = """
[[rule]]
user = "alice"
allow = ["admin", "monitor", "send", "receive", "browse", "create"]
to = "**"
"""
USERS = "alice:wonder-land\nguest:no-rights\n"
ALICE, GUEST = basic("alice", "wonder-land"), basic("guest", "no-rights")
"""A user with all rights, and one with none."""


async def ask(
    stream: trio.abc.Stream,
    method: str,
    target: str,
    *headers: tuple[str, str],
    body: bytes = b"",
) -> Reply:
    """Return the answer of the broker, which then closes."""
    lines = [f"{method} {API}{target} HTTP/1.1"]
    fields = {"Host": "localhost"} | ({"Content-Length": f"{len(body)}"} if body else {})
    lines += [f"{name}: {text}" for name, text in (fields | dict(headers)).items()]
    answer = b""
    async with stream:
        await stream.send_all(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
        with trio.fail_after(60):
            while data := bytes(await stream.receive_some(65536)):
                answer += data
    return parse(answer, method)


@cache
def description() -> Any:
    """Return the description of the interface. Requests are only declared, not made."""
    declared = MagicMock()
    return json.loads(json.dumps(openapi(endpoints(declared, declared, declared))))


class Interface:
    """The management interface of a broker."""

    def __init__(self, broker: Served) -> None:
        self.broker = broker

    async def ask(
        self, method: str, target: str, *headers: tuple[str, str], body: bytes = b""
    ) -> Reply:
        """Return an answer, which is as described."""
        stream = await self.broker.stream()
        reply = await ask(stream, method, target, *headers, body=body)
        described = description()["paths"].get(API + urlsplit(target).path, {})
        if method.lower() in described and ("Accept", "application/x-ndjson") not in headers:
            answers = described[method.lower()]["responses"]
            assert f"{reply.status}" in answers, f"{method} {target}: {reply.status} {reply.text}"
            for kind, content in answers[f"{reply.status}"]["content"].items():
                if kind == reply.headers["content-type"]:
                    Draft202012Validator(content["schema"]).validate(json.loads(reply.body))
        return reply

    async def get(self, target: str) -> Any:
        """Return the result of a GET that succeeds."""
        return await self._does("GET", target)

    async def post(self, target: str, body: bytes = b"") -> Any:
        """Return the result of a POST that succeeds."""
        return await self._does("POST", target, body)

    async def _does(self, method: str, target: str, body: bytes = b"") -> Any:
        reply = await self.ask(method, target, body=body)
        assert reply.status == 200, reply.text
        return reply.json


def operations(document: Any) -> list[tuple[str, str, Any]]:
    """Return each request: its method, the end of its address, its description."""
    return [
        (method.upper(), path.removeprefix(API), operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


VALUES = {
    "queue": "/queue/q",
    "to": "/queue/to",
    "destination": "/topic/t",
    "session": "1",
    "stream": "/stream/topic/t",
    "id": "1",
    "name": "n",
}
"""Values of required parameters."""
