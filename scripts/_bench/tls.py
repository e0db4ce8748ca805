"""TLS of the load generator: a socket that encrypts, with the few methods a connection calls."""

import socket
import ssl

CHUNK_BYTES = 64 * 1024
RECORD_BYTES = 16 * 1024
"""Most plaintext in one record (RFC 8446 section 5.1)."""
SPARE_BYTES = 2 * RECORD_BYTES
"""Space that a read leaves in its buffer for the rest of an incomplete record."""
HANDSHAKE_BYTES = 16 * 1024


class TlsSocket:
    """The client side of TLS over a connected socket. It never buffers decrypted data.

    OpenSSL works between two buffers in memory, as in the broker: one system call brings many
    records, where ``ssl.SSLSocket`` makes two for each.

    Args:
      context: The authorities to trust.
      host: The name that the broker's certificate must have.

    Raises:
      ssl.SSLError, OSError: the TLS handshake failed.
    """

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._socket = connected
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._held = 0
        self._ciphertext = memoryview(b"")
        self._shake_hands()

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._socket.sendall(self._outgoing.read())
                data = self._socket.recv(HANDSHAKE_BYTES)
                if not data:
                    raise ConnectionError(
                        "the broker left in the middle of the handshake"
                    ) from None
                self._incoming.write(data)
            else:
                self._socket.sendall(self._outgoing.read())
                return

    def recv_into(self, buffer: bytearray) -> int:
        """Receive like a socket, but return everything that has arrived.

        Raises:
          BlockingIOError: nothing has arrived, or only a part of a record.
        """
        size = self._decrypt(buffer)
        if size:
            return size
        data = self._socket.recv(len(buffer) - SPARE_BYTES)
        if not data:
            return 0
        self._incoming.write(data)
        size = self._decrypt(buffer)
        if not size:
            raise BlockingIOError("a record is not complete yet")
        return size

    def _decrypt(self, buffer: bytearray) -> int:
        view, size = memoryview(buffer), 0
        # Checked first, because an exception is expensive.
        while self._incoming.pending:
            try:
                read: int = self._tls.read(RECORD_BYTES, view[size:])  # type: ignore[assignment]
            except ssl.SSLWantReadError:
                continue  # OpenSSL has taken all that there was
            if not read:
                break  # a close_notify: the socket will tell
            size += read
        return size

    def recv(self, size: int) -> bytes:
        """Receive like a blocking socket, but perhaps a few bytes more than requested."""
        buffer = bytearray(size + SPARE_BYTES)
        while True:
            try:
                return bytes(buffer[: self.recv_into(buffer)])
            except BlockingIOError:
                continue

    def send(self, data: bytes | memoryview) -> int:
        """Send like a socket.

        Raises:
          BlockingIOError: not everything was sent. Send the same data again.
        """
        if not self._held:
            self._held = self._tls.write(data[:CHUNK_BYTES])
            self._ciphertext = memoryview(self._outgoing.read())
        while self._ciphertext:
            self._ciphertext = self._ciphertext[self._socket.send(self._ciphertext) :]
        held, self._held = self._held, 0
        return held

    def sendall(self, data: bytes) -> None:
        """Send all data like a blocking socket."""
        view = memoryview(data)
        while view:
            view = view[self.send(view) :]

    def setblocking(self, flag: bool) -> None:
        """As a socket's."""
        self._socket.setblocking(flag)

    def settimeout(self, seconds: float) -> None:
        """As a socket's."""
        self._socket.settimeout(seconds)

    def fileno(self) -> int:
        """As a socket's."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close without a close_notify."""
        self._socket.close()
