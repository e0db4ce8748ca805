"""Requests to the broker's pages, with or without a connection."""

import json
from collections.abc import AsyncIterator, Generator
from typing import Any, TypeVar

import h11
import pytest
import trio
from attrs import frozen

from tests.support.fakes import Dial, open_dial
from trio_stomp.diag import Reporter
from trio_stomp.transport import HttpRequest
from trio_stomp.web import Core, Site, WebOptions, add_interface, add_pages

T = TypeVar("T")
QUIET = {"diag_interval_s": 0.0, "monitor_interval_s": 0.0}
"""Options of a broker that publishes nothing on its own initiative."""


@frozen
class Reply:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @property
    def json(self) -> Any:
        """The body, decoded."""
        assert self.headers["content-type"] == "application/json"
        assert self.headers["cache-control"] == "no-store"
        assert self.body.isascii()
        return json.loads(self.body)


def whole(pieces: Generator[None, None, T]) -> T:
    """Run a generator of pieces to its end, and return the result."""
    try:
        while True:
            next(pieces)
    except StopIteration as made:
        value: T = made.value
        return value


def parse(answer: bytes, method: str = "GET") -> Reply:
    """Read an answer as a client does, to the last byte."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(answer)
    client.receive_data(b"")  # the broker closes
    response = client.next_event()
    assert isinstance(response, h11.Response)
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert client.trailing_data[0] == b""
    headers = {name.decode(): value.decode() for name, value in response.headers}
    return Reply(response.status_code, headers, body)


def add_all(dial: Dial, *, limit: int = 50, data_dir: str = "") -> None:
    """Let a broker that runs answer all pages."""
    site, diagnostics = dial.server.pages, dial.server.diagnostics
    assert isinstance(site, Site)
    assert isinstance(diagnostics, Reporter)
    options = WebOptions(metrics_destinations=limit)
    add_pages(site, dial.server, diagnostics.figures, options, data_dir)
    broker = dial.server.broker
    core = Core(broker.manager, broker.explainer.explain)
    add_interface(site, dial.server, core, diagnostics.figures)


def empty_queues(dial: Dial) -> None:
    """Empty all queues, as the fake requires at the end."""
    for queue in list(dial.server.broker.queues):
        dial.server.broker.queues.end(queue.name, 0.0)
        for consumer in queue.consumers:
            consumer.take_all()


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Yield a quiet broker with all its pages."""
    async with open_dial(**QUIET) as dial:
        await dial.start()
        add_all(dial)
        yield dial


def ask(
    dial: Dial, target: str, method: str = "GET", headers: tuple[tuple[bytes, bytes], ...] = ()
) -> Reply:
    """Return the response of a broker's site."""
    request = HttpRequest(method, target, headers)
    return parse(whole(dial.server.pages.respond(request)), method)


async def ask_over_wire(
    stream: trio.abc.Stream, target: str, method: str = "GET", host: str = "localhost"
) -> Reply:
    """Return the response over a connection that the broker closes."""
    await stream.send_all(f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = b""
    with trio.fail_after(5):
        while data := bytes(await stream.receive_some(65536)):
            answer += data
    await stream.aclose()
    return parse(answer, method)
