"""The first bytes of a connection: STOMP, a WebSocket, plain HTTP, or something else."""

import logging

import trio
from attrs import define

from trio_stomp.base import CloseReason, ProtocolError, RemoteError
from trio_stomp.server._limits import CLOSE
from trio_stomp.server.connection._lifecycle import Lifecycle
from trio_stomp.server.connection._link import Link
from trio_stomp.server.connection._operating import operate
from trio_stomp.server.connection._pages import answer_page, needs_no_login, read_login
from trio_stomp.server.connection._reader import Reader
from trio_stomp.server.connection._sockjs import speak_sockjs
from trio_stomp.server.connection._web_pages import API
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
    is_forwarded,
    sniff,
)

logger = logging.getLogger("trio_stomp")

_CODES = {400: "bad-request", 401: "authentication-failed", 403: "not-authorized"}
"""Codes for errors of the management interface without a code of their own."""


@define(eq=False, repr=False)
class Opening:
    """The detection of the peer's protocol, and the handshakes.

    Handles: TLS, plain HTTP, the WebSocket upgrade, refusing peers in their own protocol.
    Does not handle: CONNECT.

    Args:
      refusal: Why the peer is refused once its protocol is known; None = it is accepted.
      early: Bytes that were already read.
      tls: Whether TLS may or must be used: ``off``, ``optional`` or ``required``.
    """

    link: Link
    lifecycle: Lifecycle
    reader: Reader
    refusal: RemoteError | None
    early: bytes
    tls: str

    async def run(self) -> bytes:
        """Detect the protocol, shake hands with a WebSocket, and answer plain HTTP.

        Returns: The first bytes of STOMP or of the WebSocket, or b"" if the connection is to end
          for its reason or pending error.

        Raises:
          trio.BrokenResourceError: the connection is lost.

        Checkpoint: if it has to wait. Limits: the connect timeout and ``max_opening_bytes`` apply.
        """
        start = self.early
        while (speech := sniff(start)) is None:
            data = await self.reader.read_opening()
            if not data:
                return b""
            start += data
        match speech:
            case Speech.TLS:
                return await self._open_tls(start)
            case Speech.HTTP:
                return await self._open_http(start)
            case Speech.STOMP:
                refusal = self.refusal
                if refusal is not None and _is_stopping(refusal) and self._just_closes():
                    self.lifecycle.end(refusal.reason)
                    return b""
                error = refusal or self._tls_required()
                if error is not None:
                    self.lifecycle.fail(error)
                    return b""
                return start

    async def _open_tls(self, start: bytes) -> bytes:
        tls, remote = self.link.shared.tls, self.link.remote
        if tls is None or self.tls == "off" or self.link.is_secret:
            where = "within TLS" if self.link.is_secret else "to a port without TLS"
            logger.warning("%s used TLS %s: closed; use stomp:// or ws:// there", remote, where)
            self.lifecycle.end(CloseReason.TLS_ON_PLAIN_PORT)
            return b""
        wire = TlsWire(self.link.wire, tls.context, start)
        try:
            await wire.handshake()
            if not tls.revoked.isdisjoint(wire.certificate_keys()):
                raise TlsError("its certificate was revoked during the handshake")
            if wire.certificate_end() <= self.link.shared.authenticator.wall_s():
                raise TlsError("it resumed a session whose certificate has expired")
        except TlsError as error:
            logger.warning("%s: %s", remote, error)
            self.lifecycle.end(CloseReason.TLS_FAILED)
            return b""
        self.early = b""
        self.link.encrypt(wire)
        return await self.run()

    def _just_closes(self) -> bool:
        """Return whether clients see only a lost connection when the broker stops."""
        return self.link.shared.limits.farewell == CLOSE

    def _tls_required(self) -> ProtocolError | None:
        if self.tls != "required" or self.link.is_secret:
            return None
        return ProtocolError(
            "tls-required",
            "this port speaks TLS only: connect with stomps:// or wss://",
            reason=CloseReason.TLS_REQUIRED,
        )

    async def _open_http(self, start: bytes) -> bytes:
        self.link.speaks_http = True
        reader = RequestReader(self.link.shared.limits.max_opening_bytes)
        try:
            request = reader.receive_data(start)
            while request is None:
                data = await self.reader.read_opening()
                if self.lifecycle.pending_error is not None:
                    raise HttpError(431, self.lifecycle.pending_error.message)
                if not data:
                    return b""
                request = reader.receive_data(data)
            if is_forwarded(request):
                self.link.is_forwarded = True
                self.link.session.may_ask = self.link.shared.rules() is not None
            refusal = self.refusal
            if refusal is not None and (request.wants_websocket or not _is_stopping(refusal)):
                raise HttpError(503, refusal.message)
            required = self._tls_required()
            if required is not None:
                raise HttpError(403, required.message)
            if not request.wants_websocket:
                return await self._answer_plain(request, reader.trailing)
            return await self._upgrade(request, reader.trailing)
        except HttpError as error:
            return await self._answer(error.response())

    async def _answer_plain(self, request: HttpRequest, trailing: bytes) -> bytes:
        try:
            operation = self.link.shared.pages.operation(request)
            if operation is None:
                answer, share = await answer_page(self.link, request), self.link.shared.web
                share.check(self.link.asker, len(answer))
                with share.holding(self.link.asker, len(answer)):
                    return await self._answer(answer)
            self.lifecycle.end(CloseReason.HTTP_ANSWERED)
            await operate(self.link, request, operation, self._send, trailing)
        except HttpError as error:
            if request.path.startswith(API):
                error.code = error.code or _CODES.get(error.status, "refused")
            raise
        return b""

    async def _answer(self, response: bytes) -> bytes:
        self.lifecycle.end(CloseReason.HTTP_ANSWERED)
        await self._send(response)
        return b""

    async def _upgrade(self, request: HttpRequest, trailing: bytes) -> bytes:
        try:
            read_login(self.link, request, local_only=needs_no_login(self.link))
        except RemoteError as error:
            raise HttpError(400, error.message) from None
        upgrade = accept_websocket(request)
        is_sockjs = asks_sockjs(request, upgrade.subprotocol)
        await self._send(upgrade.response + (SOCKJS_OPEN if is_sockjs else b""))
        # A STOMP frame may be split over many messages (X07), so the limit of a message is that of
        # the largest frame; the decoder checks the limits of frames.
        limits = self.link.session.codecs.limits
        largest = limits.max_body_bytes + 2 * limits.max_header_block_bytes
        self.link.speaks_http = False
        if is_sockjs:
            speak_sockjs(self.link, self.lifecycle, largest)
        else:
            self.link.websocket = WebSocketCodec(max_message_bytes=largest)
            outbox = self.link.outbox
            outbox.framing = WebSocketMessages(outbox.shared.websocket_frames)
        self.link.shared.websockets += 1
        self.link.client.transport = "wss" if self.link.is_secret else "ws"
        return trailing or await self.reader.read_opening()

    async def _send(self, data: bytes) -> None:
        """Send before the session is open, when the outbox is not used yet.

        Raises:
          trio.BrokenResourceError: the connection is lost.
        """
        link, rest = self.link, memoryview(data)
        sent = link.wire.send_nowait(rest)
        while sent < len(rest):
            sent += await link.wire.wait_sent(rest[sent:])
        link.outbox.last_sent = trio.current_time()


def _is_stopping(refusal: RemoteError) -> bool:
    """Return whether the broker is stopping. It still answers pages, which then say so."""
    return refusal.reason is CloseReason.SHUTTING_DOWN
