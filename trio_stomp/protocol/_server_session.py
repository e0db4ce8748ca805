"""The broker's side of one session: bytes → events, by the rules of its version."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from attrs import define, field

from trio_stomp.base import UNBOUNDED, CloseReason, MemoryBudget, ProtocolError, Quota, RemoteError
from trio_stomp.frames import (
    OPENING,
    UNTIL_NUL,
    V1_0,
    AckRun,
    Frame,
    FrameDecoder,
    FrameLimits,
    FrameRun,
    Head,
    HeadCache,
    Headers,
    excerpt,
    is_blank,
)
from trio_stomp.protocol._events import (
    Acked,
    Committed,
    Disconnected,
    Event,
    Opened,
    Queried,
    Received,
    Refused,
)
from trio_stomp.protocol._heartbeat import NO_HEARTBEATS, HeartbeatPlan, negotiate_heartbeats
from trio_stomp.protocol._options import ProtocolOptions
from trio_stomp.protocol._requests import acked, needed, subscribed, unsubscribed
from trio_stomp.protocol._states import TABLE, Action, State
from trio_stomp.protocol._transactions import Transactions
from trio_stomp.protocol._versions import STOMP_1_0, VERSIONS, Version, negotiate


@define(eq=False)
class Codecs:
    """The state that all sessions of a broker share: limits, options, memory, head caches."""

    limits: FrameLimits
    options: ProtocolOptions
    memory: MemoryBudget = field(factory=MemoryBudget)
    is_lenient: bool = False
    """Headers that STOMP 1.0 does not require are optional in all versions (dialect rabbitmq)."""
    survives_errors: bool = False
    """A refused frame does not end the session (dialect stompica)."""
    reopens: bool = False
    """After DISCONNECT, CONNECT may open another session (dialect stompica)."""
    receipts_at_commit: bool = False
    """The RECEIPT of a SEND in a transaction follows that of COMMIT (dialect rabbitmq)."""
    judges_early: bool = False
    """SENDs added to a transaction are reported at once, so that the core can refuse them."""
    opening: HeadCache = field(factory=lambda: HeadCache(max_entries=64))
    caches: tuple[HeadCache, ...] = field(factory=lambda: tuple(HeadCache() for _ in VERSIONS))

    def forget_heads(self) -> None:
        """Clear the caches of parsed header blocks, because limits have changed."""
        for cache in (self.opening, *self.caches):
            cache.heads.clear()

    @property
    def cached_heads(self) -> int:
        """Return the number of cached header blocks of all versions."""
        return len(self.opening.heads) + sum(len(cache.heads) for cache in self.caches)


_OF_NODES = ProtocolOptions(heartbeat_send_ms=1, heartbeat_expect_ms=1)
"""Nodes get the heart-beats that they ask for."""


def _nobody() -> Quota | None:
    """Return None: the session has no quota."""
    return None


@define(eq=False)
class ServerSession:
    """The broker's side of one STOMP session, without clock and I/O.

    Handles: decoding, negotiation, allowed commands, required headers, buffering of transactions.
    Does not handle: destinations, subscriptions, receipts, deadlines.

    Args:
      codecs: Shared by all sessions of the broker.
      may_ask: Whether this client may use the DIAG command (loopback only).
      quota_of: Returns the quota that is charged for its transactions.
      is_relayed: Another node relays the client: heart-beats are agreed as this node asks, whatever
        the version and the options for clients.
    """

    codecs: Codecs
    may_ask: bool = False
    quota_of: Callable[[], Quota | None] = _nobody
    is_relayed: bool = False
    state: State = State.OPENING
    version: Version = STOMP_1_0
    heartbeats: HeartbeatPlan = NO_HEARTBEATS
    decoder: FrameDecoder = field(init=False)
    transactions: Transactions | None = None

    def __attrs_post_init__(self) -> None:
        codecs = self.codecs
        self.decoder = FrameDecoder(codecs.limits, codecs.opening, reopens=codecs.reopens)

    def receive_data(self, data: bytes, most: int = UNBOUNDED) -> list[Event]:
        """Return the events of ``data``, in order.

        Args:
          data: The next bytes from the client, in any pieces; b"" to continue if ``has_more``.
          most: The work after which to stop, as for ``FrameDecoder.receive_data``.

        Returns:
          Events. Nothing follows a ``Refused`` or a ``Disconnected`` that ends the session.
        """
        events: list[Event] = []
        decoder = self.decoder
        while self.state is not State.CLOSED:
            opening = self.state is State.OPENING
            runs = decoder.receive_data(data, most)
            for run in runs:
                self._receive_run(run, events)
            self._receive_error(events)
            # The decoder stops after CONNECT, to get the rules of the version; and after
            # DISCONNECT, if another session may follow.
            if not (runs and (opening or self.codecs.reopens)) or decoder.has_more:
                break
            data = b""
        return events

    @property
    def has_more(self) -> bool:
        """Return whether ``receive_data`` stopped for its bound on work."""
        return self.decoder.has_more and self.state is not State.CLOSED

    def _receive_run(self, run: FrameRun | AckRun, events: list[Event]) -> None:
        if isinstance(run, AckRun):
            if self.state is not State.CLOSED:
                events.append(
                    Acked(
                        run.ids,
                        header="id",
                        subscription=None,
                        negative=False,
                        requeue=True,
                        receipts=(),
                    )
                )
            return
        head = run.head
        action = TABLE.get((self.state, head.command), Action.REFUSE_UNKNOWN)
        if action is Action.SEND and head.destination and head.get("transaction") is None:
            events.append(run)
            return
        if action is Action.SEND and self._buffer_run(run, events):
            return
        handle = _HANDLERS[action]
        for frame in run.frames():
            if self.state is State.CLOSED:
                return
            try:
                events.append(handle(self, frame))
            except RemoteError as error:
                self._refuse(self._at_fault(error, frame), events)

    def _buffer_run(self, run: FrameRun, events: list[Event]) -> bool:
        """Add a run of SENDs to its transaction, and return False if a frame is invalid."""
        transaction = run.head.get("transaction")
        if transaction is None or not run.head.destination:
            return False
        try:
            receipts = self._take(transaction, run)
        except RemoteError:
            return False  # then frames are handled one by one, to report the one at fault
        if self.codecs.judges_early:
            events.append(Received(receipts, run.head))
        elif receipts:
            events.append(Received(receipts))
        return True

    def _take(self, transaction: str, run: FrameRun) -> Sequence[tuple[int, bytes]]:
        """Add SENDs to a transaction, and return the receipts to send at once."""
        if self.codecs.receipts_at_commit:
            self._transactions().add(transaction, run)
            return ()
        self._transactions().add(transaction, FrameRun(run.head, run.bodies, []))
        return run.receipts

    def _receive_error(self, events: list[Event]) -> None:
        if self.decoder.error is not None and self.state is not State.CLOSED:
            self._refuse(self.decoder.error, events)

    def _refuse(self, error: RemoteError, events: list[Event]) -> None:
        if not (self.codecs.survives_errors and error.is_survivable):
            self.state = State.CLOSED
        events.append(Refused(error.without_traceback()))

    def _at_fault(self, error: RemoteError, frame: Frame) -> RemoteError:
        # With a line feed in it, half of a passcode would become a line of its own.
        shown = ((name, text.replace("\n", "\\n")) for name, text in frame.headers)
        lines = "".join(f"\n{name}:{text}" for name, text in shown)
        error.excerpt = excerpt((frame.command + lines).encode())
        error.receipt_id = frame.receipt
        return error

    def _open(self, frame: Frame) -> Event:
        version = negotiate(frame.get("accept-version"))
        headers: Headers = frame.headers
        if frame.receipt is not None:  # the decoder takes it out
            headers = (*headers, ("receipt", frame.receipt.decode()))
        if version.rules is V1_0:
            headers = tuple((name, text.lstrip(" \t")) for name, text in headers)
        elif self.codecs.options.require_host and frame.get("host") is None:
            raise ProtocolError(
                "header-missing", f"CONNECT of STOMP {version.name} needs the header host"
            )
        self._check_host(frame.get("host"))
        if not is_blank(frame.body) and version.rules is not V1_0:
            raise ProtocolError(
                "body-not-allowed", f"{frame.command} has a body; only SEND may have one"
            )
        plan = NO_HEARTBEATS
        if self.is_relayed:
            plan = negotiate_heartbeats(frame.get("heart-beat"), _OF_NODES)
        elif version.heartbeats:
            plan = negotiate_heartbeats(frame.get("heart-beat"), self.codecs.options)
        self.version = version
        self.heartbeats = plan
        self.state = State.OPEN
        self.decoder.use(version.rules, self.codecs.caches[version.index])
        return Opened(version, plan, headers)

    def _check_host(self, host: str | None) -> None:
        hosts = self.codecs.options.hosts
        if hosts and host is not None and host not in hosts.split(","):
            raise ProtocolError(
                "unknown-host",
                f"host:{host[:80]} is not a virtual host of this broker (option hosts)",
            )

    def _subscribe(self, frame: Frame) -> Event:
        return subscribed(frame, self.version, is_lenient=self.codecs.is_lenient)

    def _unsubscribe(self, frame: Frame) -> Event:
        return unsubscribed(frame, self.version, is_lenient=self.codecs.is_lenient)

    def _acknowledge(self, frame: Frame) -> Event:
        event = acked(frame, self.version, is_lenient=self.codecs.is_lenient)
        transaction = frame.get("transaction")
        if transaction is None:
            return event
        self._transactions().add(transaction, event)
        return Received(event.receipts, None, (event,), transaction=transaction)

    def _send_in_transaction(self, frame: Frame) -> Event:
        needed(frame, "destination", self.version)
        head = Head(frame.command, frame.headers, UNTIL_NUL, frame.get("destination"))
        requested = [] if frame.receipt is None else [(1, frame.receipt)]
        run = FrameRun(head, [frame.body], requested)
        receipts = self._take(frame.get("transaction") or "", run)
        judged = head if self.codecs.judges_early else None
        return Received(receipts, judged)

    def _begin(self, frame: Frame) -> Event:
        self._transactions().begin(needed(frame, "transaction", self.version))
        return Received(() if frame.receipt is None else ((1, frame.receipt),))

    def _commit(self, frame: Frame) -> Event:
        transaction = needed(frame, "transaction", self.version)
        transactions, receipt = self._transactions(), frame.receipt
        size = transactions.size_of(transaction)
        return Committed(transactions.take(transaction), receipt, transaction, size)

    def _abort(self, frame: Frame) -> Event:
        transaction = needed(frame, "transaction", self.version)
        receipts = () if frame.receipt is None else ((1, frame.receipt),)
        if not self._transactions().has(transaction):
            # Clients abort what a COMMIT or an ERROR has ended: nothing of it is left, as wanted.
            return Received(receipts, ignored=b"ignored:transaction\n")
        actions = self._transactions().take(transaction)
        returned = tuple(action for action in actions if isinstance(action, Acked))
        return Received(receipts, returned=returned, transaction=transaction)

    def _transactions(self) -> Transactions:
        if self.transactions is None:
            codecs = self.codecs
            self.transactions = Transactions(codecs.options, codecs.memory, self.quota_of)
        return self.transactions

    def close(self) -> None:
        """End the session, and abort open transactions (T05)."""
        self.state = State.CLOSED
        self.decoder.discard()
        if self.transactions is not None:
            self.transactions.abort_all()

    def _leave(self, frame: Frame) -> Event:
        if self.transactions is not None:
            self.transactions.abort_all()
        if self.codecs.reopens:
            self.state = State.OPENING
            self.decoder.use(OPENING, self.codecs.opening)
        else:
            self.state = State.CLOSED
        return Disconnected(frame.receipt)

    def _ask(self, frame: Frame) -> Event:
        if not self.may_ask:
            raise ProtocolError(
                "not-allowed",
                "the DIAG command is answered on the loopback interface only;"
                " SUBSCRIBE to the DIAG topics instead",
                reason=CloseReason.UNSUPPORTED,
            )
        return Queried(frame.body.decode(errors="replace"))

    def _refuse_unconnected(self, frame: Frame) -> Event:
        raise ProtocolError(
            "not-connected", f"Not connected! {frame.command} came first; send CONNECT before it"
        )

    def _refuse_second_connect(self, _frame: Frame) -> Event:
        raise ProtocolError(
            "already-connected", "Can not connect, client is already connected! Send CONNECT once"
        )

    def _refuse_unknown(self, frame: Frame) -> Event:
        raise ProtocolError(
            "unknown-command",
            f"Invalid message! {frame.command[:40]!r} is not a STOMP command (commands are "
            "written in capitals)",
        )


_HANDLERS: Mapping[Action, Callable[[ServerSession, Frame], Event]] = MappingProxyType(
    {
        Action.OPEN: ServerSession._open,
        Action.SEND: ServerSession._send_in_transaction,
        Action.SUBSCRIBE: ServerSession._subscribe,
        Action.UNSUBSCRIBE: ServerSession._unsubscribe,
        Action.ACK: ServerSession._acknowledge,
        Action.NACK: ServerSession._acknowledge,
        Action.BEGIN: ServerSession._begin,
        Action.COMMIT: ServerSession._commit,
        Action.ABORT: ServerSession._abort,
        Action.LEAVE: ServerSession._leave,
        Action.ASK: ServerSession._ask,
        Action.REFUSE_UNCONNECTED: ServerSession._refuse_unconnected,
        Action.REFUSE_SECOND_CONNECT: ServerSession._refuse_second_connect,
        Action.REFUSE_UNKNOWN: ServerSession._refuse_unknown,
    }
)
