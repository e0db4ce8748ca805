"""Requests to the brokers of a cluster: the owners of partitions, and the routers of nodes."""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol
from urllib.parse import urlencode

import trio
from attrs import frozen

from trio_stomp.base import Identity, innermost
from trio_stomp.cluster import Contact, Gate
from trio_stomp.server import ANSWER_BYTES
from trio_stomp.transport import HttpError, HttpRequest, Voucher, relay_header

READ_BYTES = 64 * 1024
MAX_ANSWER_BYTES = ANSWER_BYTES + READ_BYTES
"""The largest answer that is read as a whole, with its head."""
_NOT_PASSED_ON = frozenset(
    {b"origin", b"connection", b"authorization", b"cookie", b"content-length", b"expect"}
)
"""This node has authenticated the user, and has read the body."""

Take = Callable[[bytes], Awaitable[None]]
Hold = Callable[[int], None]
"""Charges bytes to the user who asked."""
Speak = Callable[[trio.abc.HalfCloseableStream, Contact], Awaitable[None]]


class Absent(HttpError):
    """A broker did not answer."""

    def __init__(self, place: "Place", rest: str = "") -> None:
        remedy = "try again in some seconds, or see which nodes run: trio-stomp cluster status"
        super().__init__(503, f"{place.name} does not answer at the moment{rest}; {remedy}")


class Place(Protocol):
    """A broker of the cluster that answers requests."""

    @property
    def name(self) -> str:
        """Return what it is, for people."""

    @property
    def choice(self) -> Sequence[tuple[str, str]]:
        """Return further parameters of requests to it."""

    async def reach(self, speak: Speak) -> None:
        """Call a function with a connection, unless there is nobody to answer."""


Asked = Sequence[tuple[Place, HttpRequest]]
"""Brokers, each with what it is asked."""


@frozen
class Partition:
    """The owner of a partition. Implements ``Place``."""

    number: int
    gate: Gate

    @property
    def name(self) -> str:
        """Implement ``Place.name``."""
        return f"partition {self.number}"

    @property
    def owner(self) -> str:
        """Return the node that owns it, or ""."""
        return self.gate.owner.node if self.gate.owner is not None else ""

    @property
    def choice(self) -> Sequence[tuple[str, str]]:
        """Implement ``Place.choice``."""
        return ()

    async def reach(self, speak: Speak) -> None:
        """Implement ``Place.reach``."""
        await self.gate.relay(speak)


@frozen
class Answer:
    """An answer that was read as a whole.

    Args:
      status: Its status.
      data: Its bytes, with the head.
    """

    status: int
    data: bytes

    def record(self) -> dict[str, Any]:
        """Return the JSON object in it.

        Raises:
          HttpError: There is none.
        """
        try:
            found = json.loads(self.data.partition(b"\r\n\r\n")[2])
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise HttpError(502, "another node of the cluster gave an answer that is no JSON")
        return found


async def pass_on(
    place: Place, request: HttpRequest, identity: Identity, body: bytes, send: Take
) -> bool:
    """Have a broker answer a request of a user. Return False if it did not answer.

    Raises:
      trio.BrokenResourceError: The client is gone.
    """
    head, has_answered = _head(_chosen(request, place), len(body)), False

    async def speak(stream: trio.abc.HalfCloseableStream, contact: Contact) -> None:
        nonlocal has_answered
        header = relay_header(
            "127.0.0.1", 0, "off", contact.secret.encode(), Voucher(identity, "http")
        )
        await stream.send_all(header + head + body)
        while data := await stream.receive_some(READ_BYTES):
            has_answered = True
            await send(bytes(data))

    await place.reach(speak)
    return has_answered


async def ask(
    place: Place, request: HttpRequest, identity: Identity, hold: Hold, body: bytes = b""
) -> Answer | None:
    """Return a broker's answer to a request of a user; None = it did not answer.

    Raises:
      HttpError: The answer is too large, or there is no room for it.
    """
    parts: list[bytes] = []
    size = 0

    async def take(data: bytes) -> None:
        nonlocal size
        size += len(data)
        if size > MAX_ANSWER_BYTES:
            raise HttpError(502, f"{place.name} gave an answer of over {MAX_ANSWER_BYTES} bytes")
        hold(len(data))
        parts.append(data)
        await trio.lowlevel.checkpoint()

    lost = False
    # Without lines of progress.
    headers = tuple(each for each in request.headers if each[0] != b"accept")
    request = HttpRequest(request.method, request.target, headers, request.http_version)
    try:
        await pass_on(place, request, identity, body, take)
    except* (trio.BrokenResourceError, OSError):
        lost = True
    data = b"" if lost else b"".join(parts)
    words = data[:20].split(b" ", 2)
    if len(words) < 3 or not words[1].isdigit():
        return None
    return Answer(int(words[1]), data)


def with_query(request: HttpRequest, query: str) -> HttpRequest:
    """Return a request with another query."""
    target = f"{request.path}?{query}" if query else request.path
    return HttpRequest(request.method, target, request.headers, request.http_version)


async def ask_all(
    asked: Asked, identity: Identity, hold: Hold, body: bytes = b""
) -> list[Answer | None]:
    """Return the answers of several brokers, which are asked at once."""
    found: dict[int, Answer | None] = {}

    async def one(number: int, place: Place, request: HttpRequest) -> None:
        found[number] = await ask(place, request, identity, hold, body)

    try:
        async with trio.open_nursery() as tasks:
            for number, each in enumerate(asked):
                tasks.start_soon(one, number, *each)
    except BaseExceptionGroup as group:
        raise innermost(group) from None
    return [found[number] for number in range(len(asked))]


def as_get(request: HttpRequest, target: str = "") -> HttpRequest:
    """Return a HEAD as a GET, whose answer has the figures; for another target if one is given."""
    return HttpRequest("GET", target or request.target, request.headers, request.http_version)


def _chosen(request: HttpRequest, place: Place) -> HttpRequest:
    """Return a request with the parameters that a broker needs."""
    query = request.target.partition("?")[2]
    choice = urlencode(place.choice)
    return with_query(request, "&".join([each for each in (query, choice) if each]))


def _head(request: HttpRequest, size: int) -> bytes:
    """Return the head of a request with a body of some bytes."""
    lines = [b"%b: %b\r\n" % each for each in request.headers if each[0] not in _NOT_PASSED_ON]
    if size:
        lines.append(b"content-length: %d\r\n" % size)
    start = f"{request.method} {request.target} HTTP/1.1\r\n".encode()
    return b"".join([start, *lines, b"\r\n"])
