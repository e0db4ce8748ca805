"""Operations requested by HTTP: their authorization, time limit and cancellation."""

from contextlib import suppress

import trio

from trio_stomp.base import Identity
from trio_stomp.server.connection._link import Link
from trio_stomp.server.connection._pages import admit, needs_no_login
from trio_stomp.server.connection._web_pages import Send, WebOperation
from trio_stomp.transport import HttpError, HttpRequest, check_origin

IGNORED_BYTES = 4096
"""What a client sends after its request is read in pieces of this size, and ignored."""


async def operate(link: Link, request: HttpRequest, operation: WebOperation, send: Send) -> None:
    """Carry out an operation if the client is authorized, and send the answer.

    If the client closes its connection, the operation ends at its current step.

    Raises:
        HttpError: the client is not authorized, or the operation cannot begin.
        trio.BrokenResourceError: the connection is lost, or accepts no bytes for ``write_stall_s``.
    Checkpoint: always.
    """
    slots = link.shared.operation_slots
    try:
        identity = await _identify(link, request, operation)
        slots.acquire_nowait()
    except trio.WouldBlock:
        raise HttpError(
            503, "too many operations are running; try again later", code="busy"
        ) from None
    link.is_operating = True
    try:
        await _operate(link, operation, identity, send)
    finally:
        slots.release()


async def _operate(link: Link, operation: WebOperation, identity: Identity, send: Send) -> None:
    failure: HttpError | trio.BrokenResourceError | None = None

    async def send_in_time(data: bytes) -> None:
        with trio.move_on_after(link.shared.limits.write_stall_s):
            await send(data)
            return
        raise trio.BrokenResourceError("the client does not read the answer")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_at_end, link, nursery.cancel_scope)
        try:
            await operation.run(identity, send_in_time)
        except (HttpError, trio.BrokenResourceError) as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _identify(link: Link, request: HttpRequest, operation: WebOperation) -> Identity:
    # Pages of other origins cannot read the answer, but could make a browser send the request.
    limits = link.shared.limits
    local_only = needs_no_login(link)
    check_origin(request, limits.allowed_origins, is_secret=link.is_secret, local_only=local_only)
    return await admit(link, request, operation.rights)


async def _cancel_at_end(link: Link, operation: trio.CancelScope) -> None:
    with suppress(trio.BrokenResourceError):
        while await link.wire.receive_some(IGNORED_BYTES):
            pass
    operation.cancel()
