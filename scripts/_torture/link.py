"""A blocking connection to the broker: frames over TCP, TLS, WebSocket or both."""

import select
import socket
import ssl
import struct
import time
from collections.abc import Sequence
from random import Random

from _crash.link import Reply

from _torture.wire import (
    CLOSE,
    PING,
    PONG,
    TEXT,
    UPGRADE,
    FrameCutter,
    Tls,
    WebSocketCutter,
    client_frame,
    client_messages,
    cut,
)

TRANSPORTS = ("tcp", "tls", "ws", "wss")
HOST = "127.0.0.1"
MAX_GAP_S = 0.02
"""Maximum pause between the pieces of cut data."""
READ_BYTES = 1 << 16
SLOW_BYTES, SLOW_GAP_S = 1024, 0.02
NARROW_BYTES = 8 * 1024
"""The receive buffer of a distant client, so that unread data waits in the broker."""
_RESET = struct.pack("ii", 1, 0)


class LinkError(Exception):
    """The connection cannot be used any longer. ``kind`` is one of the model's."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Link:
    """One connection.

    Args:
      transport: One of ``TRANSPORTS``.
      context: The TLS context.
      patience_s: Timeout of all operations.
      is_narrow: Whether the kernel's receive buffer is small.
    """

    def __init__(
        self,
        port: int,
        transport: str,
        context: ssl.SSLContext,
        dice: Random,
        patience_s: float,
        *,
        is_narrow: bool = False,
    ) -> None:
        self.dice = dice
        self.slow_s = 0.0
        """The remaining time of slow reading."""
        self.is_secret = transport in ("tls", "wss")
        self.is_websocket = transport in ("ws", "wss")
        self.is_at_end = False
        self.close_code = 0
        """The code of a received Close, or 0."""
        self._frames = FrameCutter()
        self._websocket: WebSocketCutter | None = None
        self._tls: Tls | None = None
        self._patience_s = patience_s
        self._socket = socket.socket()
        try:
            if is_narrow:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES)
            self._socket.settimeout(patience_s)
            self._socket.connect((HOST, port))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.is_secret:
                self._shake_hands(Tls(context))
            if self.is_websocket:
                self._upgrade()
        except (OSError, ssl.SSLError) as error:
            self._socket.close()
            raise LinkError("ended", f"no connection: {error!r}") from error

    def _shake_hands(self, tls: Tls) -> None:
        result, is_done = tls.shake(b"")
        while True:
            for piece in cut(result, self.dice) if result else ():
                self._socket.sendall(piece)
            if is_done:
                break
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise ConnectionError("the broker left in the middle of the handshake")
            result, is_done = tls.shake(data)
        self._tls = tls

    def _upgrade(self) -> None:
        self._send([UPGRADE])
        head = b""
        while b"\r\n\r\n" not in head:
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise ConnectionError("the broker left in the middle of the upgrade")
            head += self._tls.decrypt(data) if self._tls else data
        if not head.startswith(b"HTTP/1.1 101 "):
            raise ConnectionError(f"no upgrade: {head[:60]!r}")
        self._websocket = WebSocketCutter()

    # Sending.

    def say(self, pieces: Sequence[bytes]) -> None:
        """Send STOMP data, each piece as a separate message, record or segment."""
        many = [piece for piece in pieces if piece]
        if self._websocket is not None:
            many = client_messages(many, self.dice)
        self._send(many)

    def say_raw(self, frame: bytes) -> None:
        """Send a whole WebSocket frame."""
        self._send([frame])

    def _send(self, pieces: Sequence[bytes]) -> None:
        dice = self.dice
        has_gaps = dice.random() < 0.5
        try:
            for piece in pieces:
                data = self._tls.encrypt(piece) if self._tls else piece
                # Most pieces cut above are not cut again, which would make them tiny.
                for part in cut(data, dice) if dice.random() < 0.15 else (data,):
                    self._socket.sendall(part)
                    if has_gaps and dice.random() < 0.5:
                        time.sleep(dice.random() ** 3 * MAX_GAP_S)
        except ssl.SSLError as error:
            raise LinkError("tls", f"while sending: {error!r}") from error
        except TimeoutError as error:
            raise LinkError("silence", "the broker does not read") from error
        except OSError:
            pass  # the broker left: what it said last is there to be read

    # Reading.

    def hear(self, wait_s: float) -> list[Reply]:
        """Return the frames that arrive within ``wait_s``, or none at the end of the connection.

        Raises:
          LinkError: the connection broke.
        """
        if self.is_at_end:
            return []
        try:
            if not select.select([self._socket], [], [], max(wait_s, 0))[0]:
                return []
            if is_slow := self.slow_s > 0:
                self.slow_s -= SLOW_GAP_S
                time.sleep(SLOW_GAP_S)
            data = self._socket.recv(SLOW_BYTES if is_slow else READ_BYTES)
            if not data:
                self.is_at_end = True
                return []
            if self._tls is not None:
                data = self._tls.decrypt(data)
        except ssl.SSLError as error:
            raise LinkError("tls", f"while reading: {error!r}") from error
        except OSError as error:
            raise LinkError("ended", f"while reading: {error!r}") from error
        if self._websocket is None:
            return self._frames.feed(data)
        return [
            reply
            for opcode, payload in self._websocket.feed(data)
            for reply in self._take(opcode, payload)
        ]

    def _take(self, opcode: int, payload: bytes) -> list[Reply]:
        if opcode == CLOSE:
            self.close_code = int.from_bytes(payload[:2], "big") or 1005
        elif opcode == PING:
            self._send([client_frame(PONG, payload, self.dice)])
        elif opcode != PONG:
            return self._frames.feed(payload)
        return []

    # Leaving.

    def say_close(self) -> None:
        """Begin a WebSocket's orderly end."""
        self.say_raw(client_frame(CLOSE, (1000).to_bytes(2, "big"), self.dice))

    def break_rules(self) -> int:
        """Violate RFC 6455. Return the code of the Close that must follow."""
        dice = self.dice
        frame, code = dice.choice(
            (
                (client_frame(TEXT, b"\n", dice, is_masked=False), 1002),
                (client_frame(TEXT, b"\xff\xfe", dice), 1007),
                (client_frame(3, b"\n", dice), 1002),
            )
        )
        self.say_raw(frame)
        return code

    def half_close(self) -> None:
        """Close the sending side. The rest can still be received."""
        try:
            if self._tls is not None and self.dice.random() < 0.5:
                self._socket.sendall(self._tls.close_notify())
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise LinkError("ended", f"while leaving: {error!r}") from error

    def reset(self) -> None:
        """Have the kernel end it by a RST."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._socket.close()

    def close(self) -> None:
        """Close without DISCONNECT."""
        self._socket.close()
