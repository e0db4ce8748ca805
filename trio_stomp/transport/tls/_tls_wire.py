"""TLS over another wire, with a ``send_nowait`` for the dispatcher.

``trio.SSLStream`` can only ``await``. Here OpenSSL runs between two buffers in memory, and all its
calls are synchronous, so the output caused by reader, writer and dispatcher stays in order.

Handles: the handshake, its alerts, both directions, half-close, the peer's identity.
Does not handle: time limits, acceptable certificates and versions.
Spec: RFC 8446, RFC 5246.
"""

import math
import ssl
from collections.abc import Sequence
from contextlib import suppress

import trio

from trio_stomp.base import CloseReason, RemoteError
from trio_stomp.transport.tls._revocation import certificate_keys
from trio_stomp.transport.tls._tls_context import certificate_names, validity
from trio_stomp.transport.wire import Piece, SocketWire, Wire

RECORD_BYTES = 16 * 1024
"""Maximum plaintext in one record (RFC 8446 section 5.1)."""
ENCRYPT_BYTES = 2 * RECORD_BYTES
"""Bytes for one call of OpenSSL. More are slightly faster, but its buffer never shrinks."""
CHUNK_BYTES = 4 * RECORD_BYTES
"""Bytes encrypted in advance, which are all that a slow peer can pin."""
BURST_BYTES = 4 * CHUNK_BYTES
"""Maximum bytes sent after one wait while the kernel accepts them, so that other tasks run."""
RECEIVE_BYTES = 64 * 1024
BINDING_BYTES = RECORD_BYTES + 64
"""Bytes given to OpenSSL at once: a record with its overhead."""
HANDSHAKE_RECEIVE_BYTES = 16 * 1024
MAX_HANDSHAKE_BYTES = 64 * 1024
"""Enough for a ClientHello and a certificate chain; OpenSSL would accept more than 200 KiB."""
MAX_BARREN_BYTES = 32 * 1024
"""Maximum consecutive bytes without plaintext. A record has little more than 16 KiB, so more is a
flood of key updates: 27 bytes of each cost 20 µs for new keys, while all other tasks wait."""
MAX_UNREAD_BYTES = 64 * 1024
"""Maximum unsent answers of TLS itself, such as those to key updates (CVE-2026-39304)."""

_EXPLANATIONS = (
    ("NO_SHARED_CIPHER", "it offers no cipher that is allowed here (ECDHE with an AEAD)"),
    ("UNSUPPORTED_PROTOCOL", "it speaks only versions of TLS older than tls_min_version"),
    ("VERSION_TOO_LOW", "it speaks only versions of TLS older than tls_min_version"),
    ("HTTP_REQUEST", "it speaks plain HTTP, not TLS"),
    ("WRONG_VERSION_NUMBER", "it does not use TLS"),
    ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "it presents no certificate, but one is required"),
    ("ALERT_UNKNOWN_CA", "it does not know the authority of this broker's certificate"),
    ("ALERT_CERTIFICATE_UNKNOWN", "it does not accept the certificate of this broker"),
    ("ALERT_BAD_CERTIFICATE", "it does not accept the certificate of this broker"),
)
"""Explanations for the log, by the ends of OpenSSL's reasons."""


class TlsError(RemoteError):
    """The peer's TLS is invalid or insecure. The message has the cause, for the log."""

    def __init__(self, message: str) -> None:
        super().__init__("tls-failed", message, reason=CloseReason.TLS_FAILED)


class TlsWire:
    """A wire that encrypts the bytes sent over another wire.

    Bytes that ``send_nowait`` and ``wait_sent`` do not report as sent must begin the next call, as
    the wire may have encrypted them already. Plaintext is reported as its ciphertext is sent, so
    that a slow peer shows progress; but the last of it only when no ciphertext is left, because the
    caller must call again to send the rest.

    Args:
      inner: The wire for the ciphertext, which this one owns from now on.
      context: Certificate, versions, and whether the peer must present a certificate.
      received: Bytes already read from ``inner``: the start of the handshake.
      host: The host that the peer's certificate must name, if this is the client's side.
      is_link: The peer is another node of a cluster. What it relays is not encrypted by this.
    """

    gathers = False
    __slots__ = (
        "_at_end",
        "_barren_bytes",
        "_ciphertext",
        "_failure",
        "_handshake_bytes",
        "_held",
        "_incoming",
        "_inner",
        "_is_sending",
        "_outgoing",
        "_plaintext",
        "_received",
        "_ssl",
        "is_link",
        "is_loopback",
        "remote",
    )

    def __init__(
        self,
        inner: Wire,
        context: ssl.SSLContext,
        received: bytes = b"",
        *,
        host: str = "",
        is_link: bool = False,
    ) -> None:
        self.remote = inner.remote
        self.is_loopback = inner.is_loopback
        self._inner = inner
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(
            self._incoming, self._outgoing, server_side=not host, server_hostname=host or None
        )
        self.is_link = is_link
        self._handshake_bytes = len(received)
        self._incoming.write(received)
        # Ciphertext to be sent before the content of ``_outgoing``.
        self._ciphertext: Piece = b""
        # The number of bytes of the next call that are encrypted already.
        self._held = 0
        self._is_sending = False
        # Bytes received but not given to OpenSSL yet, and plaintext decrypted in advance.
        self._received: bytes | memoryview = b""
        self._plaintext = b""
        self._barren_bytes = 0
        self._at_end = False
        self._failure = ""

    @property
    def version(self) -> str:
        """Return the version, such as ``TLSv1.3``, or "" before the handshake."""
        return self._ssl.version() or ""

    @property
    def cipher(self) -> str:
        """Return OpenSSL's name of the cipher, or "" before the handshake."""
        cipher = self._ssl.cipher()
        return cipher[0] if cipher is not None else ""

    def certificate_names(self) -> tuple[str, ...]:
        """Return the names in the peer's certificate, or () without one.

        They are the whole subject as in RFC 4514, then ``CN=…``, then the alternative names as
        ``email:…``, ``DNS:…`` and ``URI:…``.
        """
        try:
            # Also empty for a certificate that was not verified.
            decoded = self._ssl.getpeercert()
        except (ssl.SSLError, ValueError):
            return ()  # before the handshake, or with a name that is not text
        return certificate_names(decoded or {})

    def certificate_keys(self) -> frozenset[str]:
        """Return the keys of the peer's certificate and of its issuer, or none without one."""
        try:
            der = self._ssl.getpeercert(binary_form=True)
            return certificate_keys(der) if der else frozenset()
        except (ssl.SSLError, ValueError, IndexError):
            return frozenset()

    def certificate_end(self) -> float:
        """Return when the peer's certificate expires, in seconds since 1970; inf without one."""
        try:
            der = self._ssl.getpeercert(binary_form=True)
            return validity(der)[1] if der else math.inf
        except (ssl.SSLError, ValueError, IndexError):
            return math.inf

    async def handshake(self) -> None:
        """Do the handshake. Call this once, before all other methods.

        Raises:
          TlsError: the peer is at fault; it was sent an alert, and nothing more can be sent.
          trio.BrokenResourceError: the connection is lost.

        Checkpoint: only if it has to wait. Cancel: only ``aclose`` may follow. Limits:
        ``MAX_HANDSHAKE_BYTES``; no time limit.
        """
        while True:
            try:
                self._ssl.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
            except ssl.SSLError as error:
                self._failure = f"the TLS handshake failed: {explain(error)}"
                with suppress(trio.BrokenResourceError):
                    await self._flush()  # the alert
                raise TlsError(self._failure) from None
            else:
                await self._flush()
                return
            if self._handshake_bytes > MAX_HANDSHAKE_BYTES:
                self._failure = (
                    f"the TLS handshake failed: more than {MAX_HANDSHAKE_BYTES} bytes did not"
                    " complete it"
                )
                raise TlsError(self._failure)
            data = await self._inner.receive_some(HANDSHAKE_RECEIVE_BYTES)
            if not data:
                raise trio.BrokenResourceError("the peer left in the middle of the TLS handshake")
            self._handshake_bytes += len(data)
            self._incoming.write(data)

    # Reading.

    async def receive_some(self, max_bytes: int) -> bytes:
        """Implement ``Wire.receive_some``. A missing close_notify is accepted as the end.

        STOMP frames show where they end, so a truncated one cannot pass as complete.
        """
        if self._plaintext or self._has_input():
            await trio.lowlevel.checkpoint()
        while True:
            data = self._plaintext or self._decrypt(max_bytes)
            if data:
                self._plaintext = data[max_bytes:]
                return data[:max_bytes]
            if self._failure:
                raise trio.BrokenResourceError(self._failure)
            if self._at_end:
                return b""
            received = await self._inner.receive_some(RECEIVE_BYTES)
            if not received:
                self._at_end = True
            self._received = received

    def _decrypt(self, max_bytes: int) -> bytes:
        """Return plaintext of received bytes: b"" at the end, or if more bytes are needed."""
        pieces = []
        while max_bytes > 0 and not self._failure and self._has_input():
            try:
                piece = self._ssl.read(min(max_bytes, RECORD_BYTES))
            except ssl.SSLWantReadError:  # OpenSSL has consumed its input
                if self._barren_bytes > MAX_BARREN_BYTES:
                    self._fail(f"TLS broke: {MAX_BARREN_BYTES} bytes had no data in them")
                continue
            except ssl.SSLZeroReturnError:
                piece = b""
            except ssl.SSLError as error:
                # Return the valid plaintext before the bad record first.
                self._fail(f"TLS broke: {explain(error)}")
                break
            if not piece:
                self._at_end = True  # a close_notify; bytes after it are ignored
                break
            self._barren_bytes = 0
            pieces.append(piece)
            max_bytes -= len(piece)
        if self._outgoing.pending:
            self._answer()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _has_input(self) -> bool:
        """Give OpenSSL input if it has none, and return whether it has any now.

        The input is given in parts, as the buffer never shrinks. The check is cheaper than an
        exception.
        """
        if self._incoming.pending or self._ssl.pending():
            return True
        received = self._received
        if not received:
            return False
        if len(received) <= BINDING_BYTES:
            self._barren_bytes += self._incoming.write(received)
            self._received = b""
        else:
            view = memoryview(received)
            self._barren_bytes += self._incoming.write(view[:BINDING_BYTES])
            self._received = view[BINDING_BYTES:]
        return True

    def _answer(self) -> None:
        """Send answers of TLS itself to received bytes, without waiting."""
        with suppress(trio.BrokenResourceError):  # the next read will report it
            self._flush_nowait()
        # At most ``_held`` of the waiting bytes are data; the rest are answers.
        if self._waiting_bytes() - self._held > MAX_UNREAD_BYTES:
            self._fail(f"TLS broke: {MAX_UNREAD_BYTES} bytes of its own answers were not read")

    def _fail(self, failure: str) -> None:
        self._failure = self._failure or failure

    # Sending.

    def send_nowait(self, data: Piece, _behind: Sequence[Piece] = ()) -> int:
        """Implement ``Wire.send_nowait``. See the class for bytes not reported as sent."""
        if self._failure:
            raise trio.BrokenResourceError(self._failure)
        size, sent = len(data), 0
        while True:
            is_clear = self._flush_nowait()
            if self._held:
                sent += self._report(size - sent)
            if not is_clear or sent >= size:
                return sent
            self._encrypt(data, sent)

    async def wait_sent(self, data: Piece) -> int:
        """Implement ``Wire.wait_sent``. See the class for bytes not reported as sent.

        Cancel: over a socket nothing is lost; over other wires nothing can be sent any more.
        """
        if self._failure:
            raise trio.BrokenResourceError(self._failure)
        while True:
            if not self._held and not self._waiting_bytes():
                self._encrypt(data, 0)
            if self._waiting_bytes():
                await self._send_some()
            else:
                await trio.lowlevel.checkpoint()  # the reader sent it together with answers
            sent = self._report(len(data))
            if sent:
                break
        if sent < len(data) and not self._failure:
            sent += self.send_nowait(memoryview(data)[sent : sent + BURST_BYTES])
        return sent

    def untaken(self) -> int:
        """Implement ``Wire.untaken``, in bytes of ciphertext."""
        return self._inner.untaken()

    async def send_eof(self) -> None:
        """Send waiting ciphertext and a close_notify, then end the inner wire's sending side.

        Raises:
          trio.BrokenResourceError: the connection is lost.

        Checkpoint: only if it has to wait. Cancel: as ``wait_sent``.
        """
        if self._failure:
            raise trio.BrokenResourceError(self._failure)
        # OpenSSL expects the peer's close_notify next, and would report data as an error.
        while data := self._decrypt(RECORD_BYTES):
            self._plaintext += data
        with suppress(ssl.SSLError):  # it would wait for the peer's close_notify
            self._ssl.unwrap()
        self._held = 0
        await self._flush()
        await self._inner.send_eof()

    async def aclose(self) -> None:
        """Close at once, without a close_notify. Checkpoint: always."""
        await self._inner.aclose()

    def _encrypt(self, data: Piece, start: int) -> None:
        """Encrypt the next chunk of ``data`` from ``start`` on. No ciphertext may be waiting."""
        tls, outgoing = self._ssl, self._outgoing
        end = min(len(data), start + CHUNK_BYTES)
        held = end - start
        try:
            if held == len(data) <= RECORD_BYTES:  # the usual case, which needs no memoryview
                tls.write(data)
                self._ciphertext = outgoing.read()
                self._held = held
                return
            view, pieces = memoryview(data), []
            while start < end:
                start += tls.write(view[start : min(end, start + ENCRYPT_BYTES)])
                pieces.append(outgoing.read())
        except ssl.SSLError as error:
            # After ``send_eof``, or if the peer's handshake message is incomplete.
            raise trio.BrokenResourceError(f"TLS broke: {explain(error)}") from None
        self._ciphertext = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._held = held

    def _waiting_bytes(self) -> int:
        return len(self._ciphertext) + self._outgoing.pending

    def _report(self, most: int) -> int:
        """Return how many encrypted bytes were sent and not reported yet, at most ``most``.

        Ciphertext is never shorter than its plaintext, so the waiting bytes are an upper bound of
        the unsent plaintext.
        """
        unsent = min(self._held, self._waiting_bytes())
        sent = min(self._held - unsent, most)
        self._held -= sent
        return sent

    def _flush_nowait(self) -> bool:
        """Send ciphertext without waiting, and return whether all of it was sent."""
        if self._is_sending:
            return False  # the writer must send its part first
        while True:
            if not self._ciphertext:
                if not self._outgoing.pending:
                    return True
                self._ciphertext = self._outgoing.read()
            sent = self._inner.send_nowait(self._ciphertext)
            self._went_out(sent)
            if self._ciphertext:
                return False

    async def _flush(self) -> None:
        """Send all ciphertext. Checkpoint: only if it has to wait."""
        while not self._flush_nowait():
            await self._send_some()

    async def _send_some(self) -> None:
        """Wait until some of the waiting ciphertext is sent. Checkpoint: always."""
        if self._is_sending:
            raise trio.BusyResourceError("another task is sending")
        if not self._ciphertext:
            self._ciphertext = self._outgoing.read()
        self._is_sending = True
        try:
            sent = await self._inner.wait_sent(self._ciphertext)
        except trio.Cancelled:
            # It is unknown how much was sent, except by a socket, which sends only after the wait.
            if not isinstance(self._inner, SocketWire):
                self._fail("sending was cancelled")
            raise
        finally:
            self._is_sending = False
        self._went_out(sent)

    def _went_out(self, sent: int) -> None:
        if sent == len(self._ciphertext):
            self._ciphertext = b""
        else:
            self._ciphertext = memoryview(self._ciphertext)[sent:]


def explain(error: ssl.SSLError) -> str:
    """Return one line for the log about an error, without OpenSSL's source positions."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    reason: str | None = error.reason
    if not reason:
        return "OpenSSL gives no reason"
    for part, explanation in _EXPLANATIONS:
        if reason.endswith(part):
            return explanation
    return reason.replace("_", " ").lower()
