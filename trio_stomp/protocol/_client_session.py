"""The client's side of one session: bytes → events.

It is optimized for many small MESSAGEs in one chunk, whose cost is near that of finding their ends.
The headers that the broker writes first differ each time (message-id, ack, offset); the others
mostly do not. So a MESSAGE is split between them, and the second part is looked up among parsed
blocks. Other frames go through ``FrameDecoder``, with the same result.
"""

import re
from collections.abc import Iterable

from attrs import define, field

from trio_stomp.base import CloseReason, FrameError, OptionError, ProtocolError, value
from trio_stomp.frames import (
    CONNECT,
    CONNECTED,
    ERROR,
    MESSAGE,
    OPENING,
    RECEIPT,
    UNTIL_NUL,
    V1_0,
    AckRun,
    FrameDecoder,
    FrameLimits,
    FrameRun,
    Head,
    HeadCache,
    Side,
    encode_frame,
    encode_header,
    parse_head,
)
from trio_stomp.protocol._client_frames import ClientFrames
from trio_stomp.protocol._heartbeat import NO_HEARTBEATS, HeartbeatPlan, negotiate_heartbeats
from trio_stomp.protocol._options import ProtocolOptions
from trio_stomp.protocol._states import State
from trio_stomp.protocol._versions import STOMP_1_0, VERSIONS, Version

_FIRST = re.compile(
    rb"MESSAGE\nsubscription:([A-Za-z0-9._/+=#@-]{1,200})(?:\nack:([A-Za-z0-9._/+=#@-]{1,200}))?"
    rb"\nmessage-id:([A-Za-z0-9._/+=#@-]{1,200})"
    rb"(?:\nx-stream-offset:([0-9]{1,18})(?:\nx-stream-timestamp:([0-9]{1,18}))?)?(?=\n)"
)
"""The first headers of a MESSAGE of the broker, in texts that no version escapes or trims."""
_PLAIN_RECEIPT = re.compile(rb"RECEIPT\nreceipt-id:([A-Za-z0-9._/+=#@-]{1,200})(?=\n)")
_OWN_FIELDS = (b"\nack:", b"\nx-stream-offset:", b"\nx-stream-timestamp:")
"""Headers that are fields of ``Delivered``. Outside the lead, only the full parser finds them."""
_FIRST_BYTES = 256
"""Maximum length of these header lines. With a lower limit on lines the fast path is off."""
_FIRST_HEADERS = 5
_REST_BYTES = 4096
"""Incomplete frames up to this size are searched again with the next bytes. Larger ones go to the
decoder, which never searches a byte twice."""


@value
class Delivered:
    """A MESSAGE.

    Args:
      head: Its headers, perhaps without those of the fields below. Immutable.
      subscription: The id of the subscription; None = none (STOMP 1.0).
      message_id: The header ``message-id``.
      ack: The id for ACK and NACK; "" = none is expected.
      offset: Its offset in a stream; None = not from a stream.
      stored_ms: When the broker stored it in the stream, in ms since 1970; None = unknown.
    """

    head: Head
    subscription: str | None
    message_id: str
    ack: str
    offset: int | None
    stored_ms: int | None
    body: bytes

    def headers(self) -> dict[str, str]:
        """Return all headers as a new mapping, with the first of repeated ones."""
        found_first = {"subscription": self.subscription, "message-id": self.message_id}
        found = {name: text for name, text in found_first.items() if text}
        if self.ack:
            found["ack"] = self.ack
        if self.offset is not None:
            found["x-stream-offset"] = str(self.offset)
        if self.stored_ms is not None:
            found["x-stream-timestamp"] = str(self.stored_ms)
        for name, text in self.head.headers:
            found.setdefault(name, text)
        return found


@value
class Receipted:
    """A RECEIPT. ``headers`` are those that report the result, without ``receipt-id``."""

    receipt_id: str
    headers: tuple[tuple[str, str], ...]


@value
class SessionOpened:
    """A CONNECTED: the session is open."""

    version: Version
    heartbeats: HeartbeatPlan
    headers: tuple[tuple[str, str], ...]


@value
class Failed:
    """An ERROR of the broker, which ends the session."""

    headers: tuple[tuple[str, str], ...]
    body: bytes

    def get(self, name: str) -> str | None:
        """Return the value of header ``name``, or None."""
        return next((text for key, text in self.headers if key == name), None)


SessionEvent = Delivered | Receipted | SessionOpened | Failed


@define(eq=False)
class ClientSession:
    """The client's side of one STOMP session, without clock and I/O.

    Handles: decoding, negotiation. ``frames`` encodes the client's frames.
    Does not handle: pending receipts, subscriptions, the times of heart-beats.

    Args:
      limits: Limits on one frame from the broker.
      options: The heart-beat intervals to offer and to request; other options are not used.
      versions: Names of the versions to offer.
    """

    limits: FrameLimits = field(factory=FrameLimits)
    options: ProtocolOptions = field(factory=ProtocolOptions)
    versions: tuple[str, ...] = ("1.0", "1.1", "1.2")
    state: State = State.OPENING
    version: Version = STOMP_1_0
    heartbeats: HeartbeatPlan = NO_HEARTBEATS
    error: FrameError | ProtocolError | None = None
    """Set when the broker violated a rule. Later bytes are ignored."""
    frames: ClientFrames = field(init=False)
    """Encodes the client's frames for the negotiated version."""
    decoder: FrameDecoder = field(init=False)
    _cache: HeadCache = field(factory=HeadCache)
    _rest: bytes = b""
    _has_fast_way: bool = False

    def __attrs_post_init__(self) -> None:
        self.frames = ClientFrames(self.version)
        self.decoder = FrameDecoder(self.limits, HeadCache(), side=Side.SERVER)

    def receive_data(self, data: bytes) -> list[SessionEvent]:
        """Return the events of ``data``, in order.

        Args:
          data: The next bytes from the broker, in any pieces.

        Returns:
          Events. Nothing follows a ``Failed`` or an ``error``.
        """
        events: list[SessionEvent] = []
        decoder = self.decoder
        while self.state is not State.CLOSED:
            opening = self.state is State.OPENING
            if self._has_fast_way and not decoder.buffered_bytes:
                if self._rest:
                    data, self._rest = self._rest + data, b""
                at, is_short = self._receive_plain(data, events)
                if is_short and len(data) - at <= _REST_BYTES:
                    self._rest = data[at:]
                    break
                data = data[at:] if at else data
            runs = decoder.receive_data(data)
            for run in runs:
                self._receive_run(run, events)
            if decoder.error is not None:
                self._refuse(decoder.error)
            if self._has_fast_way:
                self._rest = decoder.reclaim(_REST_BYTES)
            if not (opening and runs):
                break
            data = b""
        return events

    def _receive_plain(self, data: bytes, events: list[SessionEvent]) -> tuple[int, bool]:
        """Decode frames in the form in which this broker writes them.

        Returns:
          The position of the first other frame, and whether it is certainly incomplete.
        """
        heads, limits = self._cache.heads, self.limits
        match_first, find, add = _FIRST.match, data.find, events.append
        needs_ack_header = self.version.acks_by_header
        position, size = 0, len(data)
        while position < size:
            if data[position] == 10:
                position += 1
                continue
            found_first = match_first(data, position)
            if found_first is None:
                after = self._receive_receipt(data, position, events)
                if after < 0:
                    break
                position = after
                continue
            blank = find(b"\n\n", position)
            if blank < 0 or blank - position > limits.max_header_block_bytes:
                break
            tail = data[found_first.end() : blank]
            head = heads.get(tail) or self._parse_tail(tail)
            if head is None:
                return position, False
            start, length = blank + 2, head.content_length
            end = find(b"\0", start) if length == UNTIL_NUL else start + length
            if end < 0 or end >= size:
                return position, True
            if data[end] or end - start > limits.max_body_bytes:
                return position, False
            subscription, ack, message_id, offset, stored = found_first.groups()
            identity = message_id.decode()
            ack_id = identity
            if needs_ack_header:
                ack_id = ack.decode() if ack else ""
            number = None if offset is None else int(offset)
            stored_ms = None if stored is None else int(stored)
            body = data[start:end]
            add(
                Delivered(
                    head,
                    subscription=subscription.decode(),
                    message_id=identity,
                    ack=ack_id,
                    offset=number,
                    stored_ms=stored_ms,
                    body=body,
                )
            )
            position = end + 1
        return position, find(b"\0", position) < 0

    def _receive_receipt(self, data: bytes, position: int, events: list[SessionEvent]) -> int:
        """Decode a plain RECEIPT at ``position``. Return its end, or -1 if there is none."""
        plain = _PLAIN_RECEIPT.match(data, position)
        blank = data.find(b"\n\n", position) if plain is not None else -1
        if plain is None or blank < 0 or data[blank + 2 : blank + 3] != b"\0":
            return -1
        if blank - position > self.limits.max_header_block_bytes:
            return -1
        tail = data[plain.end() : blank]
        head = self._cache.heads.get(tail) or self._parse_tail(tail)
        if head is None or head.content_length > 0:
            return -1
        events.append(Receipted(plain[1].decode(), head.headers))
        return blank + 3

    def _parse_tail(self, tail: bytes) -> Head | None:
        """Parse the headers after the broker's own, or return None if they need the full parser."""
        if b"\r" in tail or b"\0" in tail or any(name in tail for name in _OWN_FIELDS):
            return None
        if tail.count(b"\n") > self.limits.max_headers - _FIRST_HEADERS:
            return None
        try:
            block = MESSAGE.encode() + tail
            head = parse_head(block, self.version.rules, self.limits, side=Side.SERVER)
        except FrameError:
            return None  # the decoder reports the error
        self._cache.put(tail, head)
        return head

    def _receive_run(self, run: FrameRun | AckRun, events: list[SessionEvent]) -> None:
        assert isinstance(run, FrameRun)
        for body in run.bodies:
            if self.state is State.CLOSED:
                return
            try:
                events.append(self._receive_frame(run.head, body))
            except ProtocolError as error:
                self._refuse(error)

    def _receive_frame(self, head: Head, body: bytes) -> SessionEvent:
        command = head.command
        if command == ERROR:
            self.state = State.CLOSED
            return Failed(head.headers, body)
        if self.state is State.OPENING and command == CONNECTED:
            return self._open_session(head)
        if self.state is State.OPEN and command == MESSAGE:
            return self._deliver(head, body)
        if self.state is State.OPEN and command == RECEIPT:
            headers = tuple(pair for pair in head.headers if pair[0] != "receipt-id")
            return Receipted(head.get("receipt-id") or "", headers)
        when = "before CONNECTED" if self.state is State.OPENING else "in an open session"
        raise ProtocolError(
            "unknown-command", f"the broker sent {command[:40]!r} {when}, where it is not allowed"
        )

    def _open_session(self, head: Head) -> SessionOpened:
        name = head.get("version") or "1.0"
        version = next((each for each in VERSIONS if each.name == name.strip()), None)
        if version is None or version.name not in self.versions:
            raise ProtocolError(
                "unsupported-version",
                f"the broker answered version:{name[:20]}, but {', '.join(self.versions)}"
                " was offered",
                reason=CloseReason.UNSUPPORTED,
            )
        if version.heartbeats:
            self.heartbeats = negotiate_heartbeats(head.get("heart-beat"), self.options)
        self.version = version
        self.state = State.OPEN
        self.decoder.use(version.rules, HeadCache())
        roomy = (
            self.limits.takes_lines_of(_FIRST_BYTES) and self.limits.max_headers > _FIRST_HEADERS
        )
        # The fast path does not know the trimming and line ends of STOMP 1.0.
        self._has_fast_way = roomy and version.rules is not V1_0
        self.frames = ClientFrames(version)
        return SessionOpened(version, self.heartbeats, head.headers)

    def _deliver(self, head: Head, body: bytes) -> Delivered:
        identity = head.get("message-id") or ""
        ack = (head.get("ack") or "") if self.version.acks_by_header else identity
        return Delivered(
            head,
            subscription=head.get("subscription"),
            message_id=identity,
            ack=ack,
            offset=_number(head, "x-stream-offset"),
            stored_ms=_number(head, "x-stream-timestamp"),
            body=body,
        )

    def _refuse(self, error: FrameError | ProtocolError) -> None:
        if self.state is not State.CLOSED:  # frames after an ERROR are ignored
            self.state = State.CLOSED
            self.error = error

    def connect(self, headers: Iterable[tuple[str, str]]) -> bytes:
        """Return a CONNECT with these headers, in addition to those of the negotiation.

        Raises:
          OptionError: CONNECT cannot carry a header. The error does not quote its value.
        """
        beats = f"{self.options.heartbeat_send_ms},{self.options.heartbeat_expect_ms}"
        own = (("accept-version", ",".join(self.versions)), ("heart-beat", beats))
        pairs = (*own, *headers)
        for name, text in pairs:
            if text and not encode_header(name, text, OPENING):
                raise OptionError(
                    f"the header {name[:40]!r} holds a line end or NUL: CONNECT has no escapes"
                )
        return encode_frame(CONNECT, pairs, OPENING)


def _number(head: Head, name: str) -> int | None:
    text = head.get(name) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
