"""TLS over another wire, server side: the dispatcher may send here without waiting, too.

``trio.SSLStream`` can only ``await``, so OpenSSL runs here between two buffers in memory, and all
calls of it are synchronous: what reader, writer and dispatcher make it say stays in one order.

Handles: the handshake, its alerts, both directions, half-close, who the peer proved to be.
Does not handle: how long a handshake may take, which certificates and versions are good enough.
Spec: RFC 8446, RFC 5246.
"""

import ssl
from collections.abc import Sequence
from contextlib import suppress

import trio

from trio_stomp.base import CloseReason, RemoteError
from trio_stomp.transport.tls._revocation import certificate_key
from trio_stomp.transport.tls._tls_context import certificate_names
from trio_stomp.transport.wire import Piece, SocketWire, Wire

RECORD_BYTES = 16 * 1024
"""Most plaintext in one record (RFC 8446 section 5.1)."""
ENCRYPT_BYTES = 2 * RECORD_BYTES
"""What OpenSSL encrypts in one go: more is a little faster, but its buffer never shrinks."""
CHUNK_BYTES = 4 * RECORD_BYTES
"""What is encrypted before it is known whether the peer takes it; all that a slow one can pin."""
BURST_BYTES = 4 * CHUNK_BYTES
"""What one wait is followed by at most, while the kernel takes it: others want to run, too."""
RECEIVE_BYTES = 64 * 1024
BINDING_BYTES = RECORD_BYTES + 64
"""What OpenSSL is fed at once: a record with its overhead."""
HANDSHAKE_RECEIVE_BYTES = 16 * 1024
MAX_HANDSHAKE_BYTES = 64 * 1024
"""A ClientHello and a chain of certificates; OpenSSL alone would take more than 200 KiB."""
MAX_BARREN_BYTES = 32 * 1024
"""Fed in a row without a byte of plaintext. A record is whole after 16 KiB and a little, so this
is a flood of key updates; 27 bytes each make us derive keys for 20 µs, while all others wait."""
MAX_UNREAD_BYTES = 64 * 1024
"""Answers of TLS's own (to key updates, say) that the peer does not read (CVE-2026-39304)."""

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
"""Parts of OpenSSL's reasons that say too little to who reads the log."""


class TlsError(RemoteError):
    """The peer's TLS is wrong, or not good enough. The message says why, for the log."""

    def __init__(self, message: str) -> None:
        super().__init__("tls-failed", message, reason=CloseReason.TLS_FAILED)


class TlsWire:
    """A wire that encrypts what goes over another one.

    What ``send_nowait`` and ``wait_sent`` do not report as sent must be presented again, as the
    start of what is sent next: the wire may have encrypted it already. It reports plaintext as
    its ciphertext goes out, so a slow peer shows progress; but all of it only once nothing waits
    here any more, for nobody else would send the rest.

    Args:
      inner: What the ciphertext goes over; taken over.
      context: Certificate, versions, and whether the peer must show a certificate.
      received: What was read from ``inner`` already: the start of the handshake.
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
        "is_loopback",
        "remote",
    )

    def __init__(self, inner: Wire, context: ssl.SSLContext, received: bytes = b"") -> None:
        self.remote = inner.remote
        self.is_loopback = inner.is_loopback
        self._inner = inner
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._handshake_bytes = len(received)
        self._incoming.write(received)
        # What left OpenSSL and waits for the inner wire; it goes before what is in ``_outgoing``.
        self._ciphertext: Piece = b""
        # So many of the bytes that will be presented next are encrypted already.
        self._held = 0
        self._is_sending = False
        # What was read and not yet fed to OpenSSL, and what it gave before anybody asked.
        self._received: bytes | memoryview = b""
        self._plaintext = b""
        self._barren_bytes = 0
        self._at_end = False
        self._failure = ""

    @property
    def version(self) -> str:
        """Return ``TLSv1.3``, say, or "" before the handshake."""
        return self._ssl.version() or ""

    @property
    def cipher(self) -> str:
        """Return OpenSSL's name of the cipher, or "" before the handshake."""
        cipher = self._ssl.cipher()
        return cipher[0] if cipher is not None else ""

    def certificate_names(self) -> tuple[str, ...]:
        """Return the names that the peer proved by its certificate, none if it showed none.

        The whole subject as RFC 4514 writes it, then ``CN=…`` alone, then its other names as
        ``email:…``, ``DNS:…`` and ``URI:…``.
        """
        try:
            # Empty, too, for a certificate that nobody verified.
            decoded = self._ssl.getpeercert()
        except (ssl.SSLError, ValueError):
            return ()  # before the handshake, or a name that is not even text
        return certificate_names(decoded or {})

    def certificate_key(self) -> str:
        """Return the key that names the peer's certificate among all, or "" if it showed none."""
        try:
            der = self._ssl.getpeercert(binary_form=True)
            return certificate_key(der) if der else ""
        except (ssl.SSLError, ValueError, IndexError):
            return ""

    async def handshake(self) -> None:
        """Shake hands, before anything else and once.

        Raises:
          TlsError: The peer's fault; it has been told by an alert, and can be told no more.
          trio.BrokenResourceError: the connection is lost.

        Checkpoint: only if it has to wait. Cancel: only ``aclose`` may follow. Limits: time is
        the caller's; ``MAX_HANDSHAKE_BYTES`` hold.
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
        """Implement ``Wire.receive_some``. A peer that leaves without a close_notify is at its end.

        STOMP's frames show where they end, so a cut one is not taken for a whole one.
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
        """Return what can be had of what was received: empty if more is needed, or at the end."""
        pieces = []
        while max_bytes > 0 and not self._failure and self._has_input():
            try:
                piece = self._ssl.read(min(max_bytes, RECORD_BYTES))
            except ssl.SSLWantReadError:  # OpenSSL has taken all that it was fed
                if self._barren_bytes > MAX_BARREN_BYTES:
                    self._fail(f"TLS broke: {MAX_BARREN_BYTES} bytes had no data in them")
                continue
            except ssl.SSLZeroReturnError:
                piece = b""
            except ssl.SSLError as error:
                # What came before the bad record is good, and is handed out first.
                self._fail(f"TLS broke: {explain(error)}")
                break
            if not piece:
                self._at_end = True  # a close_notify; whatever follows it does not count
                break
            self._barren_bytes = 0
            pieces.append(piece)
            max_bytes -= len(piece)
        if self._outgoing.pending:
            self._answer()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _has_input(self) -> bool:
        """Feed OpenSSL if it is hungry, or return False if there is nothing to read for it.

        Bit by bit, as its buffer never shrinks; and asked first, as an exception is dear.
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
        """Send what reading has made TLS say, if that needs no wait, else later."""
        with suppress(trio.BrokenResourceError):  # reading will tell
            self._flush_nowait()
        # Of what waits, a part as large as ``_held`` is ciphertext of data, if any is.
        if self._waiting_bytes() - self._held > MAX_UNREAD_BYTES:
            self._fail(f"TLS broke: {MAX_UNREAD_BYTES} bytes of its own answers were not read")

    def _fail(self, failure: str) -> None:
        self._failure = self._failure or failure

    # Sending.

    def send_nowait(self, data: Piece, _behind: Sequence[Piece] = ()) -> int:
        """Implement ``Wire.send_nowait``.

        The class says what becomes of bytes not reported as sent.
        """
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
        """Implement ``Wire.wait_sent``. The class says what becomes of bytes not reported as sent.

        Cancel: over a socket nothing is lost; over any other stream nothing can be sent any more.
        """
        if self._failure:
            raise trio.BrokenResourceError(self._failure)
        while True:
            if not self._held and not self._waiting_bytes():
                self._encrypt(data, 0)
            if self._waiting_bytes():
                await self._send_some()
            else:
                await trio.lowlevel.checkpoint()  # the reader has sent it along with its answers
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
        """Send what is encrypted, a close_notify, and the end of the inner wire.

        Raises:
          trio.BrokenResourceError: the connection is lost.

        Checkpoint: only if it has to wait. Cancel: as ``wait_sent``.
        """
        if self._failure:
            raise trio.BrokenResourceError(self._failure)
        # OpenSSL looks for the peer's close_notify, too, and would take data for an error.
        while data := self._decrypt(RECORD_BYTES):
            self._plaintext += data
        with suppress(ssl.SSLError):  # it wants to read that: not now
            self._ssl.unwrap()
        self._held = 0
        await self._flush()
        await self._inner.send_eof()

    async def aclose(self) -> None:
        """Close at once, without a word. Checkpoint: always."""
        await self._inner.aclose()

    def _encrypt(self, data: Piece, start: int) -> None:
        """Encrypt the next chunk, only while no ciphertext waits."""
        tls, outgoing = self._ssl, self._outgoing
        end = min(len(data), start + CHUNK_BYTES)
        held = end - start
        try:
            if held == len(data) <= RECORD_BYTES:  # nearly always; and then no view is needed
                tls.write(data)
                self._ciphertext = outgoing.read()
                self._held = held
                return
            view, pieces = memoryview(data), []
            while start < end:
                start += tls.write(view[start : min(end, start + ENCRYPT_BYTES)])
                pieces.append(outgoing.read())
        except ssl.SSLError as error:
            # After ``send_eof``; or the peer stopped in the middle of a message of TLS's own.
            raise trio.BrokenResourceError(f"TLS broke: {explain(error)}") from None
        self._ciphertext = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._held = held

    def _waiting_bytes(self) -> int:
        return len(self._ciphertext) + self._outgoing.pending

    def _report(self, most: int) -> int:
        """Return how many of the bytes that are presented again are out and were not reported yet.

        Ciphertext is never shorter than its plaintext, so no more is in here than still waits.
        """
        kept = min(self._held, self._waiting_bytes())
        sent = min(self._held - kept, most)
        self._held -= sent
        return sent

    def _flush_nowait(self) -> bool:
        """Send ciphertext without waiting, and return whether all is out."""
        if self._is_sending:
            return False  # what the writer holds in its hands goes first
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
        """Wait until some of the ciphertext that waits is out. Checkpoint: always."""
        if self._is_sending:
            raise trio.BusyResourceError("another task is sending")
        if not self._ciphertext:
            self._ciphertext = self._outgoing.read()
        self._is_sending = True
        try:
            sent = await self._inner.wait_sent(self._ciphertext)
        except trio.Cancelled:
            # Nobody knows how much of it the stream has sent. A socket waits first, then sends.
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
    """Return one line for the log: what is wrong with the peer's TLS, without OpenSSL's places."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    reason: str | None = error.reason
    if not reason:
        return "OpenSSL gives no reason"
    for part, explanation in _EXPLANATIONS:
        if reason.endswith(part):
            return explanation
    return reason.replace("_", " ").lower()
