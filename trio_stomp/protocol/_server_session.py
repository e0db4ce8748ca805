"""One client's session: bytes → events, by the rules of its version."""

from collections.abc import Callable

from attrs import define, field

from trio_stomp._errors import CloseReason, ProtocolError, RemoteError
from trio_stomp.frames import (
    V1_0,
    Frame,
    FrameDecoder,
    FrameLimits,
    FrameRun,
    HeadCache,
    Headers,
    excerpt,
)
from trio_stomp.protocol._events import (
    Asked,
    Event,
    Left,
    Opened,
    Refused,
    Subscribed,
    Unsubscribed,
)
from trio_stomp.protocol._heartbeat import NO_HEARTBEATS, HeartbeatPlan, negotiate_heartbeats
from trio_stomp.protocol._options import ProtocolOptions
from trio_stomp.protocol._states import TABLE, Action, State
from trio_stomp.protocol._versions import STOMP_1_0, VERSIONS, Version, negotiate

ACK_MODES = ("auto", "client", "client-individual")


@define(eq=False)
class Codecs:
    """What the sessions of one broker share: limits, options, a head cache for each version."""

    limits: FrameLimits
    options: ProtocolOptions
    opening: HeadCache = field(factory=lambda: HeadCache(max_entries=64))
    caches: tuple[HeadCache, ...] = field(factory=lambda: tuple(HeadCache() for _ in VERSIONS))

    @property
    def cached_heads(self) -> int:
        """Header blocks remembered, over all versions."""
        return len(self.opening.heads) + sum(len(cache.heads) for cache in self.caches)


@define(eq=False)
class ServerSession:
    """The broker's side of one STOMP session. No clock, no I/O.

    Handles: framing, negotiation, which command is allowed when, the headers that each needs.
    Does not handle: destinations, subscriptions and receipts, which are the core's; deadlines.

    Args:
      codecs: Shared by all sessions of the broker.
      may_ask: Whether this client may use the DIAG command (loopback only).
    """

    codecs: Codecs
    may_ask: bool = False
    state: State = State.OPENING
    version: Version = STOMP_1_0
    heartbeats: HeartbeatPlan = NO_HEARTBEATS
    decoder: FrameDecoder = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.decoder = FrameDecoder(self.codecs.limits, self.codecs.opening)

    def receive_data(self, data: bytes) -> list[Event]:
        """What ``data`` means, in order. Nothing follows a ``Refused`` or a ``Left``.

        Args:
          data: What came next from the client, cut anywhere.
        """
        events: list[Event] = []
        decoder = self.decoder
        while self.state is not State.CLOSED:
            opening = self.state is State.OPENING
            runs = decoder.receive_data(data)
            for run in runs:
                self._receive_run(run, events)
            self._receive_error(events)
            # Before CONNECT the decoder yields one frame at a time and waits for its rules.
            if not (opening and runs):
                break
            data = b""
        return events

    def _receive_run(self, run: FrameRun, events: list[Event]) -> None:
        head = run.head
        action = TABLE.get((self.state, head.command), Action.REFUSE_UNKNOWN)
        if action is Action.SEND and head.destination and not head.get("transaction"):
            events.append(run)
            return
        perform = self._perform(action)
        for frame in run.frames():
            if self.state is State.CLOSED:
                return
            try:
                events.append(perform(frame))
            except RemoteError as error:
                self._refuse(self._at_fault(error, frame), events)

    def _receive_error(self, events: list[Event]) -> None:
        if self.decoder.error is not None and self.state is not State.CLOSED:
            self._refuse(self.decoder.error, events)

    def _refuse(self, error: RemoteError, events: list[Event]) -> None:
        self.state = State.CLOSED
        events.append(Refused(error))

    def _at_fault(self, error: RemoteError, frame: Frame) -> RemoteError:
        # An unescaped line feed would let half a passcode pass as a line of its own.
        shown = ((name, text.replace("\n", "\\n")) for name, text in frame.headers)
        lines = "".join(f"\n{name}:{text}" for name, text in shown)
        error.excerpt = excerpt((frame.command + lines).encode())
        error.receipt_id = frame.receipt
        return error

    def _perform(self, action: Action) -> Callable[[Frame], Event]:
        match action:
            case Action.OPEN:
                return self._open
            case Action.SEND:
                return self._refuse_send
            case Action.SUBSCRIBE:
                return self._subscribe
            case Action.UNSUBSCRIBE:
                return self._unsubscribe
            case Action.LEAVE:
                return self._leave
            case Action.ASK:
                return self._ask
            case Action.REFUSE_UNCONNECTED:
                return self._refuse_unconnected
            case Action.REFUSE_SECOND_CONNECT:
                return self._refuse_second_connect
            case Action.REFUSE_UNAVAILABLE:
                return self._refuse_unavailable
            case Action.REFUSE_UNKNOWN:  # pragma: no branch (mypy proves the match total)
                return self._refuse_unknown

    def _open(self, frame: Frame) -> Event:
        version = negotiate(frame.get("accept-version"))
        headers: Headers = frame.headers
        if version.rules is V1_0:
            headers = tuple((name, text.lstrip(" \t")) for name, text in headers)
        elif self.codecs.options.require_host and frame.get("host") is None:
            raise ProtocolError(
                "header-missing", f"CONNECT of STOMP {version.name} needs the header host"
            )
        if frame.body and version.rules is not V1_0:
            raise ProtocolError(
                "body-not-allowed", f"{frame.command} has a body; only SEND may have one"
            )
        plan = NO_HEARTBEATS
        if version.heartbeats:
            plan = negotiate_heartbeats(frame.get("heart-beat"), self.codecs.options)
        self.version = version
        self.heartbeats = plan
        self.state = State.OPEN
        self.decoder.use(version.rules, self.codecs.caches[version.index])
        return Opened(version, plan, headers)

    def _subscribe(self, frame: Frame) -> Event:
        destination = self._needed(frame, "destination")
        identity = frame.get("id")
        if identity is None and self.version.needs_id:
            raise self._missing(frame, "id")
        ack = frame.get("ack") or "auto"
        if ack not in ACK_MODES:
            raise ProtocolError(
                "invalid-ack-mode", f"ack:{ack[:40]} is none of {', '.join(ACK_MODES)}"
            )
        return Subscribed(identity, destination, ack, frame.headers, frame.receipt)

    def _unsubscribe(self, frame: Frame) -> Event:
        identity, destination = frame.get("id"), frame.get("destination")
        if identity is None and self.version.needs_id:
            raise self._missing(frame, "id")
        if identity is None and not destination:
            raise self._missing(frame, "id or destination")
        return Unsubscribed(identity, destination, frame.receipt)

    def _leave(self, frame: Frame) -> Event:
        self.state = State.CLOSED
        return Left(frame.receipt)

    def _ask(self, frame: Frame) -> Event:
        if not self.may_ask:
            raise ProtocolError(
                "not-allowed",
                "the DIAG command is answered on the loopback interface only;"
                " SUBSCRIBE to the DIAG topics instead",
                reason=CloseReason.UNSUPPORTED,
            )
        return Asked(frame.body.decode(errors="replace"))

    def _refuse_send(self, frame: Frame) -> Event:
        self._needed(frame, "destination")
        transaction = frame.get("transaction") or ""
        raise ProtocolError(
            "unknown-transaction",
            f"transaction:{transaction[:60]} was not begun on this connection",
        )

    def _refuse_unconnected(self, frame: Frame) -> Event:
        raise ProtocolError(
            "not-connected", f"Not connected! {frame.command} came first; send CONNECT before it"
        )

    def _refuse_second_connect(self, frame: Frame) -> Event:
        raise ProtocolError(
            "already-connected", "Can not connect, client is already connected! Send CONNECT once"
        )

    def _refuse_unavailable(self, frame: Frame) -> Event:
        raise ProtocolError(
            "unsupported",
            f"{frame.command} is not available in this release of the broker",
            reason=CloseReason.UNSUPPORTED,
        )

    def _refuse_unknown(self, frame: Frame) -> Event:
        raise ProtocolError(
            "unknown-command",
            f"Invalid message! {frame.command[:40]!r} is no command of STOMP"
            " (commands are written in capitals)",
        )

    def _needed(self, frame: Frame, name: str) -> str:
        text = frame.get(name)
        if not text:
            raise self._missing(frame, name)
        return text

    def _missing(self, frame: Frame, name: str) -> ProtocolError:
        return ProtocolError(
            "header-missing",
            f"{frame.command} of STOMP {self.version.name} needs the header {name}",
        )
