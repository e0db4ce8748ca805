"""The first bytes of a connection: STOMP, a WebSocket, plain HTTP, or something else."""

import logging
from typing import TYPE_CHECKING

from trio_stomp.base import CloseReason, ProtocolError, RemoteError
from trio_stomp.security import from_http
from trio_stomp.server._limits import CLOSE
from trio_stomp.server.connection._pages import answer_page, needs_no_login
from trio_stomp.server.connection._sockjs import speak_sockjs
from trio_stomp.server.io import WebSocketMessages
from trio_stomp.transport import (
    SOCKJS_OPEN,
    HttpError,
    HttpRequest,
    RequestReader,
    Speech,
    TlsError,
    TlsWire,
    WebSocketCodec,
    accept_websocket,
    asks_sockjs,
    check_origin,
    is_forwarded,
    sniff,
)

if TYPE_CHECKING:
    from trio_stomp.server.connection._connection import Connection

logger = logging.getLogger("trio_stomp")


async def open_conversation(connection: "Connection") -> bytes:
    """Find out what the peer speaks, shake hands if it is a WebSocket, answer if it is HTTP.

    Returns: what came first of the conversation proper; empty if there will be none, and then the
    connection's reason or verdict says why.

    Raises:
      trio.BrokenResourceError: the connection is lost.

    Checkpoint: if it has to wait. Limits: the connect timeout and ``max_opening_bytes`` hold.
    """
    start = connection.early
    while (speech := sniff(start)) is None:
        data = await connection.read_opening()
        if not data:
            return b""
        start += data
    match speech:
        case Speech.TLS:
            return await _open_tls(connection, start)
        case Speech.HTTP:
            return await _open_http(connection, start)
        case Speech.STOMP:
            refusal = connection.refusal
            if refusal is not None and _is_stopping(refusal) and _just_closes(connection):
                connection.reason = refusal.reason
                return b""
            connection.verdict = refusal or _tls_required(connection)
            return b"" if connection.verdict else start


async def _open_tls(connection: "Connection", start: bytes) -> bytes:
    tls, remote = connection.shared.tls, connection.remote
    if tls is None or connection.tls == "off" or connection.is_secret:
        where = "within TLS" if connection.is_secret else "to a port without TLS"
        logger.warning("%s spoke TLS %s: closed; use stomp:// or ws:// there", remote, where)
        connection.reason = CloseReason.TLS_ON_PLAIN_PORT
        return b""
    wire = TlsWire(connection.wire, tls.context, start)
    try:
        await wire.handshake()
    except TlsError as error:
        logger.warning("%s: %s", remote, error)
        connection.reason = CloseReason.TLS_FAILED
        return b""
    connection.early = b""
    connection.encrypt(wire)
    return await open_conversation(connection)


def _is_stopping(refusal: RemoteError) -> bool:
    """Whether it is no reason to keep pages back: they say that the broker is not ready."""
    return refusal.reason is CloseReason.SHUTTING_DOWN


def _just_closes(connection: "Connection") -> bool:
    """Whether clients hear of the broker's stop as of a lost connection."""
    return connection.shared.limits.farewell == CLOSE


def _tls_required(connection: "Connection") -> ProtocolError | None:
    if connection.tls != "required" or connection.is_secret:
        return None
    return ProtocolError(
        "tls-required",
        "this port speaks TLS only: connect with stomps:// or wss://",
        reason=CloseReason.TLS_REQUIRED,
    )


async def _open_http(connection: "Connection", start: bytes) -> bytes:
    connection.speaks_http = True
    reader = RequestReader(connection.shared.limits.max_opening_bytes)
    try:
        request = reader.receive_data(start)
        while request is None:
            data = await connection.read_opening()
            if connection.verdict is not None:
                raise HttpError(431, connection.verdict.message)
            if not data:
                return b""
            request = reader.receive_data(data)
        if is_forwarded(request):
            connection.is_forwarded = True
            connection.session.may_ask = connection.shared.rules() is not None
        refusal = connection.refusal
        if refusal is not None and (request.wants_websocket or not _is_stopping(refusal)):
            raise HttpError(503, refusal.message)
        required = _tls_required(connection)
        if required is not None:
            raise HttpError(403, required.message)
        if not request.wants_websocket:
            return await _answer(connection, await answer_page(connection, request))
        return await _upgrade(connection, request, reader.trailing)
    except HttpError as error:
        return await _answer(connection, error.response())


async def _answer(connection: "Connection", response: bytes) -> bytes:
    connection.reason = CloseReason.HTTP_ANSWERED
    await connection.send_opening(response)
    return b""


async def _upgrade(connection: "Connection", request: HttpRequest, trailing: bytes) -> bytes:
    shared = connection.shared
    is_ours = check_origin(
        request,
        shared.limits.allowed_origins,
        is_secret=connection.is_secret,
        local_only=needs_no_login(connection),
    )
    try:
        connection.offered = from_http(
            request.headers,
            request.target,
            ambient=is_ours,
            cookie_name=shared.authenticator.options.token_cookie,
            tokens=shared.authenticator.accounts.tokens is not None,
        )
    except RemoteError as error:
        raise HttpError(400, error.message) from None
    upgrade = accept_websocket(request)
    is_sockjs = asks_sockjs(request, upgrade.subprotocol)
    await connection.send_opening(upgrade.response + (SOCKJS_OPEN if is_sockjs else b""))
    # A STOMP frame may be split over many messages (X07), so the bound of a message is the
    # largest frame; the decoder holds frames to their own limits.
    limits = connection.session.codecs.limits
    largest = limits.max_body_bytes + 2 * limits.max_header_block_bytes
    connection.speaks_http = False
    if is_sockjs:
        speak_sockjs(connection, largest)
    else:
        connection.websocket = WebSocketCodec(max_message_bytes=largest)
        outbox = connection.outbox
        outbox.framing = WebSocketMessages(outbox.shared.websocket_frames)
    connection.shared.websockets += 1
    connection.client.transport = "wss" if connection.is_secret else "ws"
    return trailing or await connection.read_opening()
