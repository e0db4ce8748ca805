"""The client's side of one session: bytes → what the broker says.

Operations wanted: many small MESSAGEs in one chunk, at a cost near that of finding their ends.
Whatever the broker writes in front of a message's own headers changes each time (message-id, ack,
offset), what stands behind mostly does not. So a MESSAGE is split there, and the back is looked up
among blocks already parsed. What does not look like that takes the way through ``FrameDecoder``,
which gives the same.
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

_LEAD = re.compile(
    rb"MESSAGE\nsubscription:([A-Za-z0-9._/+=#@-]{1,200})(?:\nack:([A-Za-z0-9._/+=#@-]{1,200}))?"
    rb"\nmessage-id:([A-Za-z0-9._/+=#@-]{1,200})(?:\nx-stream-offset:([0-9]{1,18}))?(?=\n)"
)
"""What the broker writes for one delivery, in texts that no version escapes or trims."""
_PLAIN_RECEIPT = re.compile(rb"RECEIPT\nreceipt-id:([A-Za-z0-9._/+=#@-]{1,200})(?=\n)")
_LEAD_LINE_BYTES = 256
"""No header line of a lead is longer; where the limit is below that, the decoder does it all."""
_LEAD_HEADERS = 4
_REST_BYTES = 4096
"""A frame that is not complete is kept as it is up to this size, and searched anew; beyond it the
decoder has it, which never looks at a byte twice."""


@value
class Delivered:
    """A MESSAGE.

    Args:
      head: Its headers, those of the fields below perhaps left out. Not to be changed.
      subscription: The id told in SUBSCRIBE; None = STOMP 1.0, where none was told.
      message_id: As the broker wrote it.
      ack: What ACK and NACK repeat; "" = the broker wants none.
      offset: Place in its stream; None = it is of no stream.
    """

    head: Head
    subscription: str | None
    message_id: str
    ack: str
    offset: int | None
    body: bytes

    def headers(self) -> dict[str, str]:
        """Return all headers as a new mapping. The first of a repeated header counts."""
        lead = {"subscription": self.subscription, "message-id": self.message_id}
        found = {name: text for name, text in lead.items() if text}
        if self.ack:
            found["ack"] = self.ack
        if self.offset is not None:
            found["x-stream-offset"] = str(self.offset)
        for name, text in self.head.headers:
            found.setdefault(name, text)
        return found


@value
class Receipted:
    """A RECEIPT: ``headers`` are its evidence, without the id."""

    receipt_id: str
    headers: tuple[tuple[str, str], ...]


@value
class Welcomed:
    """CONNECTED: the session is open."""

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


Told = Delivered | Receipted | Welcomed | Failed


@define(eq=False)
class ClientSession:
    """The client's side of one STOMP session. No clock, no I/O.

    Handles: framing, what was negotiated; what the client says is in ``frames``.
    Does not handle: who waits for a receipt, which subscriptions there are, when to beat.

    Args:
      limits: Bounds of one frame of the broker's.
      options: Of these the heart-beats: what the client offers to send, and asks for.
      versions: Names of the versions that are offered.
    """

    limits: FrameLimits = field(factory=FrameLimits)
    options: ProtocolOptions = field(factory=ProtocolOptions)
    versions: tuple[str, ...] = ("1.0", "1.1", "1.2")
    state: State = State.OPENING
    version: Version = STOMP_1_0
    heartbeats: HeartbeatPlan = NO_HEARTBEATS
    error: FrameError | ProtocolError | None = None
    """Set when the broker has broken a rule; everything after it is ignored."""
    frames: ClientFrames = field(init=False)
    """What the client says, as the version of the open session writes it."""
    decoder: FrameDecoder = field(init=False)
    _cache: HeadCache = field(factory=HeadCache)
    _rest: bytes = b""
    _has_fast_way: bool = False

    def __attrs_post_init__(self) -> None:
        self.frames = ClientFrames(self.version)
        self.decoder = FrameDecoder(self.limits, HeadCache(), side=Side.SERVER)

    def receive_data(self, data: bytes) -> list[Told]:
        """Return the meaning of ``data``, in order.

        Args:
          data: What came next from the broker, cut anywhere.

        Returns:
          Events. Nothing follows a ``Failed``, or an ``error``.
        """
        told: list[Told] = []
        decoder = self.decoder
        while self.state is not State.CLOSED:
            opening = self.state is State.OPENING
            if self._has_fast_way and not decoder.buffered_bytes:
                if self._rest:
                    data, self._rest = self._rest + data, b""
                at, is_short = self._receive_plain(data, told)
                if is_short and len(data) - at <= _REST_BYTES:
                    self._rest = data[at:]
                    break
                data = data[at:] if at else data
            runs = decoder.receive_data(data)
            for run in runs:
                self._receive_run(run, told)
            if decoder.error is not None:
                self._refuse(decoder.error)
            if self._has_fast_way:
                self._rest = decoder.reclaim(_REST_BYTES)
            if not (opening and runs):
                break
            data = b""
        return told

    def _receive_plain(self, data: bytes, told: list[Told]) -> tuple[int, bool]:
        """Take the frames that look as our broker writes them.

        Returns: Where the first other begins, and whether it surely is incomplete.
        """
        heads, limits = self._cache.heads, self.limits
        match_lead, find, add = _LEAD.match, data.find, told.append
        needs_ack_header = self.version.acks_by_header
        position, size = 0, len(data)
        while position < size:
            if data[position] == 10:
                position += 1
                continue
            lead = match_lead(data, position)
            if lead is None:
                after = self._receive_receipt(data, position, told)
                if after < 0:
                    break
                position = after
                continue
            blank = find(b"\n\n", position)
            if blank < 0 or blank - position > limits.max_header_block_bytes:
                break
            tail = data[lead.end() : blank]
            head = heads.get(tail) or self._parse_tail(tail)
            if head is None:
                return position, False
            start, length = blank + 2, head.content_length
            end = find(b"\0", start) if length == UNTIL_NUL else start + length
            if end < 0 or end >= size:
                return position, True
            if data[end] or end - start > limits.max_body_bytes:
                return position, False
            subscription, ack, message_id, offset = lead.groups()
            identity = message_id.decode()
            ack_id = identity
            if needs_ack_header:
                ack_id = ack.decode() if ack else ""
            number = None if offset is None else int(offset)
            body = data[start:end]
            add(
                Delivered(
                    head,
                    subscription=subscription.decode(),
                    message_id=identity,
                    ack=ack_id,
                    offset=number,
                    body=body,
                )
            )
            position = end + 1
        return position, find(b"\0", position) < 0

    def _receive_receipt(self, data: bytes, position: int, told: list[Told]) -> int:
        """Return the place behind a plain RECEIPT at ``position``, or -1 if there is none."""
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
        told.append(Receipted(plain[1].decode(), head.headers))
        return blank + 3

    def _parse_tail(self, tail: bytes) -> Head | None:
        """Return the headers behind a block's lead, or None if they need the full parser."""
        if b"\r" in tail or b"\0" in tail or b"\nack:" in tail or b"\nx-stream-offset:" in tail:
            return None
        if tail.count(b"\n") > self.limits.max_headers - _LEAD_HEADERS:
            return None
        try:
            block = MESSAGE.encode() + tail
            head = parse_head(block, self.version.rules, self.limits, side=Side.SERVER)
        except FrameError:
            return None  # whatever is wrong with it, the decoder says it better
        self._cache.put(tail, head)
        return head

    def _receive_run(self, run: FrameRun | AckRun, told: list[Told]) -> None:
        assert isinstance(run, FrameRun)
        for body in run.bodies:
            if self.state is State.CLOSED:
                return
            try:
                told.append(self._receive_frame(run.head, body))
            except ProtocolError as error:
                self._refuse(error)

    def _receive_frame(self, head: Head, body: bytes) -> Told:
        command = head.command
        if command == ERROR:
            self.state = State.CLOSED
            return Failed(head.headers, body)
        if self.state is State.OPENING and command == CONNECTED:
            return self._welcome(head)
        if self.state is State.OPEN and command == MESSAGE:
            return self._deliver(head, body)
        if self.state is State.OPEN and command == RECEIPT:
            evidence = tuple(pair for pair in head.headers if pair[0] != "receipt-id")
            return Receipted(head.get("receipt-id") or "", evidence)
        when = "before CONNECTED" if self.state is State.OPENING else "in an open session"
        raise ProtocolError(
            "unknown-command", f"the broker sent {command[:40]!r} {when}, where STOMP has no such"
        )

    def _welcome(self, head: Head) -> Welcomed:
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
            self.limits.takes_lines_of(_LEAD_LINE_BYTES) and self.limits.max_headers > _LEAD_HEADERS
        )
        # What 1.0 trims, and that its blocks end in a line feed alone, is left to the decoder.
        self._has_fast_way = roomy and version.rules is not V1_0
        self.frames = ClientFrames(version)
        return Welcomed(version, self.heartbeats, head.headers)

    def _deliver(self, head: Head, body: bytes) -> Delivered:
        identity = head.get("message-id") or ""
        ack = (head.get("ack") or "") if self.version.acks_by_header else identity
        offset = head.get("x-stream-offset") or ""
        is_number = offset.isascii() and offset.isdigit() and len(offset) <= 18
        number = int(offset) if is_number else None
        return Delivered(
            head,
            subscription=head.get("subscription"),
            message_id=identity,
            ack=ack,
            offset=number,
            body=body,
        )

    def _refuse(self, error: FrameError | ProtocolError) -> None:
        if self.state is not State.CLOSED:  # nothing is looked at behind an ERROR
            self.state = State.CLOSED
            self.error = error

    def connect(self, headers: Iterable[tuple[str, str]]) -> bytes:
        """CONNECT: ``host``, credentials and the like, beside what the session negotiates.

        Raises:
          OptionError: a header that CONNECT cannot carry; its text is not repeated.
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
