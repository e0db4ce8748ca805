"""An open WebSocket, server side: decodes received frames to STOMP bytes.

``cut_run`` splits small, complete frames, which nearly all frames are, and those of one read are
unmasked by one XOR of two big integers. All others (control frames, fragments, large frames,
invalid ones) go to ``wsproto``, which implements every rule of RFC 6455. Its object exists only
while it is needed, so that an idle connection stays small.

Handles: data frames, fragments, ping and pong, the closing handshake, limits, text validity.
Does not handle: the opening handshake (``_http``), extensions (none is offered), borders of
messages (the STOMP decoder ignores them), time and sockets.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from attrs import define, field
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

from trio_stomp.base import value
from trio_stomp.transport.websocket._websocket_frames import (
    MAX_CONTROL_BYTES,
    MAX_WHOLE_BYTES,
    NO_CODE,
    PING,
    PONG,
    close_frame,
    cut_run,
    frame_header,
    unmask,
    valid_bytes,
)

if TYPE_CHECKING:
    from wsproto.events import Event

PROTOCOL_ERROR = 1002
INVALID_TEXT = 1007
TOO_BIG = 1009

# RFC 6455 section 7.4: these are for local use, and never sent in a frame.
NEVER_SENT = frozenset({1004, NO_CODE, 1006, 1015})


@value
class WebSocketClose:
    """The reason why no more data is received.

    Args:
      code: A code of RFC 6455 section 7.4; 1005 if the peer gave none.
      reason: The peer's text, or a description of its error.
      by_peer: The peer sent a Close frame; else it violated the protocol.
    """

    code: int
    reason: str
    by_peer: bool


@value
class WebSocketStatistics:
    """Counts of received frames, and a gauge, ``buffered_bytes``.

    Args:
      fast_frames: Frames parsed by ``cut_run``.
      slow_frames: Frames parsed by wsproto, including the next three.
      fragments: Frames that were only a part of a message.
      buffered_bytes: Bytes of an incomplete frame.
    """

    fast_frames: int
    slow_frames: int
    fragments: int
    pings: int
    pongs: int
    buffered_bytes: int


@define(eq=False)
class WebSocketCodec:
    """The codec of one open connection, until ``closed`` is set.

    Args:
      max_message_bytes: Maximum payload of one message, with all fragments. A larger one ends the
        connection with 1009 as soon as it is announced (RFC 6455 section 10.4).
    """

    closed: WebSocketClose | None = field(default=None, init=False)
    _max_message_bytes: int = field(kw_only=True)
    _connection: Connection | None = field(default=None, init=False)
    # The start of an incomplete frame, and the length needed to continue.
    _held: bytes | bytearray = field(default=b"", init=False)
    _needed: int = field(default=0, init=False)
    # Missing payload bytes of a large frame, which is passed on in pieces.
    _streaming: int = field(default=0, init=False)
    # A message is open in wsproto; bytes announced by the frames of the latest message.
    _in_message: bool = field(default=False, init=False)
    _message_bytes: int = field(default=0, init=False)
    _pong_due: bytes = field(default=b"", init=False)
    _close_due: bytes = field(default=b"", init=False)
    _close_sent: bool = field(default=False, init=False)
    _fast_frames: int = field(default=0, init=False)
    _slow_frames: int = field(default=0, init=False)
    _fragments: int = field(default=0, init=False)
    _pings: int = field(default=0, init=False)
    _pongs: int = field(default=0, init=False)

    @property
    def is_in_frame(self) -> bool:
        """Return whether the next bytes continue a frame that has begun."""
        return bool(self._held) or self._streaming > 0

    @property
    def frame_number(self) -> int:
        """Return the number of the frame that the next byte belongs to, from 1."""
        # A frame passed on in pieces was counted with its first piece.
        return self._fast_frames + self._slow_frames + (0 if self._streaming else 1)

    def receive_data(self, data: bytes) -> bytes:
        """Return the payload of the data messages in ``data``, joined.

        Once ``closed`` is set, input is ignored, but payload before the failure is still returned.
        Call ``take_replies`` after each call.
        """
        if self.closed is not None:
            return b""
        if self._held:
            if len(self._held) + len(data) < self._needed:
                self._held += data
                return b""
            data = b"".join((self._held, data))
            self._held = b""
        out: list[bytes] = []
        position = 0
        while position < len(data) and self.closed is None:
            if not (self._in_message or self._streaming):
                position = self._take_fast(data, position, out)
            if position < len(data):
                position = self._take_slow(data, position, out)
        if not (self._in_message or self._streaming):
            self.discard()
        return out[0] if len(out) == 1 else b"".join(out)

    def discard(self) -> None:
        """Discard what wsproto has of an incomplete message.

        Its parser is a generator that refers to itself, so it would stay in memory until a full
        collection of garbage.
        """
        if self._connection is not None:
            with suppress(AttributeError):  # of another version of wsproto, which may differ
                self._connection._proto._parse_more.close()
            self._connection = None

    def take_replies(self) -> bytes:
        """Return the frames to send to the peer now: a pong, the answer to a Close, or b"".

        Only the latest ping is answered (RFC 6455 section 5.5.3), so a flood of pings costs one
        pong for each call.
        """
        replies = self._pong_due + self._close_due
        self._pong_due = self._close_due = b""
        return replies

    def close(self, code: int, reason: str) -> bytes:
        """Return the Close frame that begins the closing handshake, or b"" if already sent.

        A connection closes once (RFC 6455 section 5.5.1). Input is still accepted until the peer
        answers and ``closed`` is set.

        Raises:
          ValueError: ``code`` must not be sent (RFC 6455 section 7.4).
        """
        if not 1000 <= code <= 4999 or code in NEVER_SENT:
            raise ValueError(f"close code {code} must never be sent")
        if self._close_sent:
            return b""
        self._close_sent = True
        self._pong_due = b""  # nothing may follow a Close
        return close_frame(code, reason)

    def ping(self, payload: bytes) -> bytes:
        """Return a Ping frame, or b"" after ``close``.

        Raises:
          ValueError: ``payload`` is longer than the 125 bytes of RFC 6455 section 5.5.
        """
        if len(payload) > MAX_CONTROL_BYTES:
            raise ValueError(f"a ping holds 125 bytes, not {len(payload)}")
        if self._close_sent:
            return b""
        return frame_header(PING, len(payload)) + payload

    def statistics(self) -> WebSocketStatistics:
        """Return the counts so far."""
        return WebSocketStatistics(
            fast_frames=self._fast_frames,
            slow_frames=self._slow_frames,
            fragments=self._fragments,
            pings=self._pings,
            pongs=self._pongs,
            buffered_bytes=len(self._held),
        )

    def _take_fast(self, data: bytes, position: int, out: list[bytes]) -> int:
        """Decode the run of small, complete messages at ``position``, and return its end."""
        end, opcodes, payloads, keys = cut_run(data, position, self._max_message_bytes)
        if not payloads:
            return position
        self._fast_frames += len(payloads)
        payload = unmask(b"".join(payloads), b"".join(keys))
        if opcodes & 1 and not payload.isascii():  # it has text, which may be invalid
            valid = valid_bytes(data, position, payload, payloads)
            if valid < len(payload):
                payload = payload[:valid]
                end = len(data)
                self._end(INVALID_TEXT, "text message is not valid UTF-8", by_peer=False)
        out.append(payload)
        return end

    def _take_slow(self, data: bytes, position: int, out: list[bytes]) -> int:
        """Pass one frame, or a part of a large one, to wsproto, and return its end."""
        size = len(data)
        if self._streaming:
            end = min(position + self._streaming, size)
            self._streaming -= end - position
            self._pass_to_wsproto(data[position:end], out)
            return end
        start = position + _header_length(data[position : position + 2])
        if start > size:
            return self._hold(data, position, start)
        first = data[position]
        is_data = first & 0x08 == 0
        continues = first & 0x0F == 0
        length = _payload_length(data, position)
        total = length + self._message_bytes if continues else length
        if is_data and (complaint := self._complaint(data[position + 1], length, total)):
            # Pass the header alone first: if it is invalid, that is the error to report.
            self._pass_to_wsproto(data[position:start], out)
            self._end(*complaint, by_peer=False)
            return size
        end = start + length
        if end > size and length <= MAX_WHOLE_BYTES:
            return self._hold(data, position, end)
        self._slow_frames += 1
        if is_data:
            self._message_bytes = total
            self._fragments += continues or first < 0x80
        self._streaming = max(0, end - size)
        self._pass_to_wsproto(data[position:end], out)
        return min(end, size)

    def _complaint(self, second: int, length: int, total: int) -> tuple[int, str] | None:
        if total > self._max_message_bytes:
            return TOO_BIG, f"message is longer than {self._max_message_bytes} bytes"
        if second & 0x7F == 126 and length < 126:  # wsproto checks the 64-bit form only
            return PROTOCOL_ERROR, "payload length is not in its shortest form"
        return None

    def _hold(self, data: bytes, position: int, end: int) -> int:
        # A bytearray grows in place, and is not parsed before it is long enough, so receiving a
        # frame byte by byte takes linear time.
        self._held = bytearray(data[position:])
        self._needed = end - position
        return len(data)

    def _pass_to_wsproto(self, data: bytes, out: list[bytes]) -> None:
        if self._connection is None:
            self._connection = Connection(ConnectionType.SERVER)
        self._connection.receive_data(data)
        for event in self._connection.events():
            self._handle(event, self._connection.state, out)

    def _handle(self, event: "Event", state: ConnectionState, out: list[bytes]) -> None:
        if isinstance(event, TextMessage | BytesMessage):
            data = event.data
            out.append(data.encode() if isinstance(data, str) else bytes(data))
            self._in_message = not event.message_finished
        elif isinstance(event, Ping):
            self._pings += 1
            if not self._close_sent:
                self._pong_due = frame_header(PONG, len(event.payload)) + event.payload
        elif isinstance(event, Pong):
            self._pongs += 1
        else:
            assert isinstance(event, CloseConnection), event
            # wsproto reports a violation by the same event, but then stays open.
            by_peer = state is ConnectionState.REMOTE_CLOSING
            self._end(event.code, event.reason or "", by_peer=by_peer)

    def _end(self, code: int, reason: str, *, by_peer: bool) -> None:
        """Set ``closed`` to the first reason, and send a Close unless one was sent."""
        if self.closed is not None:
            return
        self.closed = WebSocketClose(int(code), reason, by_peer)
        self._in_message = False
        self._streaming = 0
        if not self._close_sent:
            self._close_sent = True
            # The answer to a Close repeats its code (RFC 6455 section 5.5.1), but not its text.
            self._close_due = close_frame(int(code), "" if by_peer else reason)


def _header_length(start: bytes) -> int:
    """Return the length of a frame's header from its first two bytes, or 2 if there are fewer."""
    if len(start) < 2:
        return 2
    extended = {126: 2, 127: 8}.get(start[1] & 0x7F, 0)
    return 2 + extended + (4 if start[1] & 0x80 else 0)


def _payload_length(data: bytes, position: int) -> int:
    short = data[position + 1] & 0x7F
    if short < 126:
        return short
    width = 2 if short == 126 else 8
    return int.from_bytes(data[position + 2 : position + 2 + width], "big")
