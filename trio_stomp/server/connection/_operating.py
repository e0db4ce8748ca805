"""Operations requested by HTTP: their authorization, time limit and cancellation."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio
from attrs import define

from trio_stomp.base import Identity
from trio_stomp.broker import Action
from trio_stomp.server.connection._link import Link
from trio_stomp.server.connection._pages import WATCHING, admit, needs_no_login
from trio_stomp.server.connection._web_pages import WebOperation
from trio_stomp.transport import HttpError, HttpRequest, check_origin

IGNORED_BYTES = 4096
"""Read size for bytes that a client sends after its request, which are ignored."""

RECEIVE_BYTES = 64 * 1024
HELD_SHARE = 16
"""The body of a request may take this part of the memory: 1/16."""
TOO_LARGE = "too-large"
Sender = Callable[[bytes], Awaitable[None]]


async def operate(
    link: Link, request: HttpRequest, operation: WebOperation, send: Sender, received: bytes
) -> None:
    """Carry out an operation if the client is authorized, and send the answer.

    Rights come first, then the body, which is charged as it comes, and then the slot: who has no
    right, or sends slowly, keeps nothing from others. If the client closes its connection, the
    operation ends at its current step.

    Args:
        link: The connection.
        request: The request.
        operation: What it requests.
        send: Sends the answer.
        received: Bytes that came behind the head of the request.

    Raises:
        HttpError: the client is not authorized, or the operation cannot begin.
        trio.BrokenResourceError: the connection is lost, or accepts no bytes for ``write_stall_s``.
    Checkpoint: always.
    """
    share, rules = link.shared.web, link.shared.rules()
    # Pages of other origins cannot read the answer, but could make a browser send the request.
    allowed, local_only = link.shared.limits.allowed_origins, needs_no_login(link)
    check_origin(request, allowed, is_secret=link.is_secret, local_only=local_only)
    identity = await admit(link, request, operation.rights)
    link.ask_as(identity)
    length = body_length(request, operation.max_body_bytes)
    if length > share.memory.limit_bytes // HELD_SHARE:
        raise HttpError(413, "the broker's memory is too small for the body", code=TOO_LARGE)
    if length > len(received) and b"100-continue" in request.tokens(b"expect"):
        await send(b"HTTP/1.1 100 Continue\r\n\r\n")
    parts: list[bytes] = []
    try:
        await _read_body(link, received[:length], length, parts)
        is_admin = rules is None or rules.rights(identity).allows(Action.ADMIN, WATCHING)
        parts[:] = [b"".join(parts)]
        async with share.operating(link.asker, is_admin=is_admin):
            link.is_operating = True
            await _operate(link, operation, identity, send, parts[0])
    finally:
        share.charge(link.asker, -sum(map(len, parts)))


def body_length(request: HttpRequest, limit: int) -> int:
    """Return the length of the body that an operation takes.

    Raises:
        HttpError: it is longer than ``limit``, or its length is unknown.
    """
    if not limit:
        return 0
    if request.values(b"transfer-encoding"):
        text = "send the body with its length (Content-Length), not in chunks"
        raise HttpError(411, text, code="length-required")
    # h11 has checked that there is one length at most, and that it is a number.
    length = int(next(iter(request.values(b"content-length")), b"0"))
    if length > limit:
        text = f"the body has {length} bytes, but {limit} is the limit"
        raise HttpError(413, text, code=TOO_LARGE)
    return length


async def _read_body(link: Link, data: bytes, length: int, parts: list[bytes]) -> None:
    """Read the body of a request into ``parts``. The connect timeout applies to it as a whole.

    Args:
        link: The connection, whose user is charged for each part.
        data: The first part.
        length: The length of the body.
        parts: Gets the parts that are charged.

    Raises:
        HttpError: the client has closed its connection before, or there is no room.
        trio.BrokenResourceError: the connection is lost.
    """
    share, size = link.shared.web, 0
    while True:
        share.check(link.asker, len(data))
        share.charge(link.asker, len(data))
        parts.append(data)
        size += len(data)
        if size >= length:
            return
        data = await link.wire.receive_some(min(RECEIVE_BYTES, length - size))
        if not data:
            raise HttpError(400, f"the body ended after {size} of {length} bytes")


async def _operate(
    link: Link, operation: WebOperation, identity: Identity, send: Sender, body: bytes
) -> None:
    failure: HttpError | trio.BrokenResourceError | None = None
    answer = _Answer(link, send)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at_end, link, nursery.cancel_scope)
            try:
                await operation.run(identity, answer, body)
            except (HttpError, trio.BrokenResourceError) as error:
                failure = error
            nursery.cancel_scope.cancel()
    finally:
        answer.hold(-answer.held_bytes)
    if failure is not None:
        raise failure


@define(eq=False, repr=False)
class _Answer:
    """Sends the answer to a request, and charges what it holds. Implements ``Send``."""

    link: Link
    sender: Sender
    held_bytes: int = 0

    async def __call__(self, data: bytes) -> None:
        with self.link.shared.web.holding(self.link.asker, len(data)):
            with trio.move_on_after(self.link.shared.limits.write_stall_s):
                await self.sender(data)
                return
        raise trio.BrokenResourceError("the client does not read the answer")

    def hold(self, size: int) -> None:
        share, asker = self.link.shared.web, self.link.asker
        if size > 0:
            share.check(asker, size)
        share.charge(asker, size)
        self.held_bytes += size


async def _cancel_at_end(link: Link, operation: trio.CancelScope) -> None:
    with suppress(trio.BrokenResourceError):
        while await link.wire.receive_some(IGNORED_BYTES):
            pass
    operation.cancel()
