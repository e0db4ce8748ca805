"""One connection: its reader, its writer from the first back-pressure on, and its farewell."""

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from trio_stomp.base import CloseReason, ProtocolError, RemoteError
from trio_stomp.broker import internal_error
from trio_stomp.protocol import Opened, Refused, State
from trio_stomp.server._limits import ServerLimits
from trio_stomp.server._watchdog import Watchdog
from trio_stomp.server.connection._decoding import (
    BULK_BYTES,
    FIRST_BYTES,
    WebSocketReads,
    batch_of,
    decode,
    hold,
    room_of,
)
from trio_stomp.server.connection._farewell import say_farewell
from trio_stomp.server.connection._login import log_in
from trio_stomp.server.connection._opening import open_conversation
from trio_stomp.server.connection._pages import Pages
from trio_stomp.server.connection._pulse import look
from trio_stomp.server.io import Batch, Gone, Inbox
from trio_stomp.transport import StreamWire, TlsBox, TlsWire, WebSocketCodec, Wire

if TYPE_CHECKING:
    from trio_stomp.broker import AccessRules, Client, MemoryBudget
    from trio_stomp.protocol import Event, ServerSession
    from trio_stomp.security import Authenticator, Credentials
    from trio_stomp.server.io import Outbox

logger = logging.getLogger("trio_stomp")

BRAKE_S = 0.005
"""How long a producer pauses after it filled somebody's outbox to three quarters (NATS's stall),
and how long a reader waits before it looks again whether memory is free."""
BRAKES = 5
"""Pauses for each 256 KiB of a large frame that did so, until no outbox is that full: whoever takes
10 MB/s gets the largest bodies in a row."""
HIGH_WAIT_S = 2.0
"""The longest that a producer waits for memory before it is read a little, all the same."""
PARTING_AT_ONCE = 32
"""So many ends of connections wait for room in the input queue, and the others behind them."""
PARTING_S = 10.0
"""Bound of the wait for the dispatcher, which waits for nobody, and for the store, if something
that the client sent is not safe yet: a disk that hangs longer costs it its RECEIPTs, no more."""


@define(eq=False, repr=False)
class ConnectionShared:
    """What the connections of a broker have in common.

    Args:
      pages: Answer plain HTTP requests.
      relieve: Look who holds memory without using it; told the time.
      resume: Have the dispatcher give a connection more of what is parked for it.
      tell_late: Tell the diagnostics of a late heart-beat, and how late in seconds.
      tell_login: Tell the diagnostics of a login that failed, and the ERROR's code.
      authenticator: Finds out who clients are.
      tls: Makes connections secret; None = there is no certificate.
      rules: The rules of now.
    """

    limits: ServerLimits
    inbox: Inbox
    memory: "MemoryBudget"
    watchdog: Watchdog
    pages: Pages
    resume: "Callable[[Connection], None]"
    relieve: Callable[[float], None]
    tell_late: "Callable[[Connection, float], None]"
    tell_login: "Callable[[Connection, str], None]"
    authenticator: "Authenticator"
    tls: "TlsBox | None"
    rules: "Callable[[], AccessRules | None]"
    websocket_reads: WebSocketReads
    held_bytes: int = 0
    """Bytes of frames that are not complete yet, of all connections."""
    holding: "set[Connection]" = field(factory=set)
    """Those whose frames these are."""
    heard: int = 0
    """Open connections that have sent something."""
    websockets: int = 0
    """Open connections that are WebSockets."""
    parting: trio.Semaphore = field(factory=lambda: trio.Semaphore(PARTING_AT_ONCE))
    """Where thousands end at once, what others send must not queue behind them all."""
    one_page: trio.Lock = field(factory=trio.Lock)
    """Who has it makes a page that takes long."""


@define(eq=False, repr=False)
class Connection:
    """A peer, from its first byte to its last.

    Args:
      wire: Its bytes.
      session: What they mean.
      opened_at: When it was accepted, in seconds of the broker's clock.
      refusal: Why it is to be turned away as soon as it is known what it speaks, or None.
      early: What was read of it before it was known whose connection it is.
      tls: Whether it may be, or must be, secret: ``off``, ``optional`` or ``required``.
    """

    shared: ConnectionShared
    wire: Wire
    session: "ServerSession"
    opened_at: float
    refusal: RemoteError | None = None
    early: bytes = b""
    tls: str = "off"
    client: "Client" = field(init=False)
    outbox: "Outbox" = field(init=False)
    websocket: WebSocketCodec | None = None
    offered: "Credentials | None" = None
    """What it told of itself with the WebSocket's upgrade."""
    expires_at: float = math.inf
    """When the proof of who it is ends, in seconds of the broker's clock."""
    reason: CloseReason = CloseReason.CLIENT_CLOSED
    verdict: RemoteError | None = None
    """An error found outside the core, to be told by it once what came before is done."""
    brake: bool = False
    is_open: bool = False
    is_reading: bool = False
    is_finished: bool = False
    last_received: float = 0.0
    late_since: float = -1.0
    pinged_at: float = 0.0
    next_look: float = math.inf
    bytes_in: int = 0
    frames_in: int = 0
    heartbeats_missed: int = 0
    speaks_http: bool = False
    """It asked in HTTP, and is no WebSocket yet: an ERROR frame would be no answer to that."""
    is_forwarded: bool = False
    """It says that it was passed on by a proxy."""
    forgotten: trio.Event = field(init=False)
    """The core is done with it. Made when it parts: 300 bytes less as long as it lives."""
    _reading: trio.CancelScope = field(factory=trio.CancelScope)
    _nursery: trio.Nursery | None = None
    _has_writer: bool = False
    _may_read: trio.Event | None = None
    _has_parted: bool = False
    read_bytes: int = FIRST_BYTES
    """How much to read at once, if there is memory for it."""
    _read_before: int = 0
    """``bytes_in`` at the last batch."""
    _handed_over: int = 0
    """Bytes that the frames of the last batch were read from."""
    held: int = 0
    """Bytes of a frame that is not complete yet, as accounted for."""
    close_reply: bytes = b""
    """The answer to the peer's Close, kept back until all data is out: none may follow it."""

    async def run(self) -> None:
        """Serve the connection until it has ended, however it ends.

        Checkpoint: always. Cancel: the core is told that it is gone; no farewell is sent.
        """
        self.last_received = self.opened_at
        self.shared.watchdog.watch(self, self.opened_at + self.shared.limits.connect_timeout_s)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    try:
                        await self._read()
                    finally:
                        await self._part()
                    await say_farewell(self)
                finally:
                    # The nursery is about to close: nobody may start a writer in it any more.
                    self._nursery = None
                    self.is_finished = True
                nursery.cancel_scope.cancel()
        finally:
            self.session.close()
            self.outbox.end()
            hold(self, 0)
            with trio.CancelScope(shield=True):
                await self.wire.aclose()
                await self.outbox.clear_away()
            transport, reason = self.client.transport, self.reason.text
            told = {**self.log_fields(), "reason": reason}
            is_page = self.reason is CloseReason.HTTP_ANSWERED  # probes and dashboards ask often
            level = logging.DEBUG if is_page else logging.INFO
            logger.log(level, "%s %s closed: %s", transport, self.remote, reason, extra=told)

    @property
    def remote(self) -> str:
        """Its address, ``host:port``."""
        return self.wire.remote

    @property
    def is_loopback(self) -> bool:
        """Whether it comes from this machine, and from nobody else through it."""
        return self.wire.is_loopback and not self.is_forwarded

    @property
    def is_exposed(self) -> bool:
        """Whether others than this machine and the peer can read what it says."""
        return not (self.wire.is_loopback or self.is_secret)

    @property
    def is_secret(self) -> bool:
        """Whether its bytes are encrypted."""
        wire = self.wire
        return isinstance(wire, TlsWire) or (isinstance(wire, StreamWire) and wire.is_secret)

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """What its certificate says; empty if it showed none."""
        return self.wire.certificate_names() if isinstance(self.wire, TlsWire) else ()

    @property
    def certificate_key(self) -> str:
        """What names its certificate among all; "" if it showed none."""
        return self.wire.certificate_key() if isinstance(self.wire, TlsWire) else ""

    def log_fields(self) -> dict[str, str]:
        """What a line of the log about it tells beside its text."""
        client = self.client
        return {
            "connection": client.session_id,
            "user": client.identity.name,
            "remote": self.remote,
            "transport": client.transport,
        }

    def encrypt(self, wire: TlsWire) -> None:
        """Go on over ``wire``, before anything has been said in the clear."""
        self.wire = self.outbox.wire = wire
        self.client.transport = "tls"

    def end(self, error: RemoteError) -> None:
        """Stop reading; the peer is told ``error`` once what it sent before has been done."""
        if self.verdict is None:
            self.verdict = error.kept()
        self._reading.cancel()

    def look(self, now: float) -> float:
        """The watchdog's call."""
        return look(self, now)

    def send_now(self, data: bytes, now: float, *, beat: bool = False) -> None:
        """Send bytes of the transport's own, behind what waits.

        Args:
          beat: Let a heart-beat follow, if the peer was promised any. A browser does not show its
            JavaScript pings and pongs, so they must not take the place of STOMP's heart-beats.
        """
        self.outbox.stage_bytes(data)
        if beat and self.session.heartbeats.send_every_s:
            self.outbox.stage_frame(b"\n")
        self.outbox.publish(now)

    def note_late(self, late_s: float) -> None:
        """The peer's heart-beat is late; marked once for each silence."""
        self.late_since = self.last_received
        self.heartbeats_missed += 1
        self.shared.tell_late(self, late_s)

    # For the outbox.

    def on_blocked(self) -> None:
        """Bytes wait: start the writer, and watch that they do not wait for ever."""
        stall = self.shared.limits.write_stall_s
        self.shared.watchdog.watch(self, self.outbox.blocked_since + stall)
        if not self._has_writer and self._nursery is not None:
            self._has_writer = True
            self._nursery.start_soon(self._write)

    def on_close(self, reason: CloseReason) -> None:
        """The core has ended the connection, or the wire is dead: stop reading."""
        if not self._has_parted:
            self.reason = reason
        self._reading.cancel()

    def on_room(self) -> None:
        """The outbox has room again for what is parked."""
        self.shared.resume(self)

    def on_pause(self, paused: bool) -> None:
        """A queue makes this producer wait; or lets it go on."""
        if paused:
            # Again, perhaps: a reader that waits already must not be forgotten.
            if self._may_read is None:
                self._may_read = trio.Event()
        elif self._may_read is not None:
            self._may_read.set()
            self._may_read = None

    async def _write(self) -> None:
        try:
            await self.outbox.write()
        except trio.BrokenResourceError:
            self.outbox.break_off()
            self.on_close(CloseReason.CONNECTION_LOST)

    # Reading.

    async def read_opening(self) -> bytes:
        """Read before the conversation proper; empty at the end, or after too many bytes.

        Raises:
          trio.BrokenResourceError: the connection is lost.
        """
        limit = self.shared.limits.max_opening_bytes
        # Never more than may come, so that a CONNECT within the limit is always seen.
        room = min(FIRST_BYTES, max(1, limit - self.bytes_in))
        data = await self.wire.receive_some(room)
        if data and not self.bytes_in:
            self.shared.heard += 1
        self.bytes_in += len(data)
        if self.bytes_in <= limit:
            return data
        self.verdict = ProtocolError(
            "opening-too-large",
            f"more than {limit} bytes came before a session was open (option max_opening_bytes)",
            reason=CloseReason.LIMIT_EXCEEDED,
        )
        return b""

    async def send_opening(self, data: bytes) -> None:
        """Send before the conversation proper, when the outbox is not used yet.

        Raises:
          trio.BrokenResourceError: the connection is lost.
        """
        sent = self.wire.send_nowait(data)
        while sent < len(data):
            sent += await self.wire.wait_sent(data[sent:])
        self.outbox.last_sent = trio.current_time()

    async def _read(self) -> None:
        with self._reading:
            try:
                data = await open_conversation(self)
                while data:
                    await self._receive(data)
                    data = await self._read_on()
            except trio.BrokenResourceError:
                self.reason = CloseReason.CONNECTION_LOST
            except Exception:
                logger.exception("%s: a bug of the broker ends this connection", self.wire.remote)
                self.verdict = internal_error()

    async def _read_on(self) -> bytes:
        """The next bytes, once there is memory for them; empty at the end."""
        websocket = self.websocket
        if self.verdict is not None or (websocket is not None and websocket.closed is not None):
            return b""
        while self._may_read is not None:
            await self._may_read.wait()
        if not self.is_open:
            return await self.read_opening()
        shared = self.shared
        if self.outbox.waiting_bytes > self.outbox.shared.flood_bytes:
            self.verdict = ProtocolError(
                "slow-consumer",
                "more answers wait to be read than max_outbox_bytes allows; read them sooner",
                reason=CloseReason.SLOW_CONSUMER,
            )
            return b""
        if shared.memory.is_high:
            await self._wait_for_memory()
        self.is_reading = True
        data = await self.wire.receive_some(room_of(self))
        self.is_reading = False
        self.bytes_in += len(data)
        return data

    async def _slow_down(self) -> None:
        """Pause after frames that filled somebody's outbox.

        Checkpoint: always. Cancel: does not end it, as what was read is processed all the same.
        """
        self.brake = False
        with trio.CancelScope(shield=True):
            for _ in range(max(1, BRAKES * (self._handed_over // BULK_BYTES))):
                await trio.sleep(BRAKE_S)
                if not self.outbox.shared.is_strained():
                    return

    async def _wait_for_memory(self) -> None:
        """Slow a producer down while memory is short.

        Who consumes is slowed only a little: its ACKs may be what frees the memory. Nobody is
        kept out for ever: he may be about to consume, and what does not fit is refused anyway.
        """
        until = trio.current_time() + HIGH_WAIT_S
        while self.shared.memory.is_high:
            now = trio.current_time()
            self.shared.relieve(now)
            await trio.sleep(BRAKE_S)
            if self.client.subscriptions or now >= until:
                return

    async def _receive(self, data: bytes) -> None:
        """Hand on what ``data`` means to the dispatcher. Checkpoint: if it waits for room."""
        now = trio.current_time()
        events = decode(self, data, now)
        if not self.is_open and self.session.state is not State.OPENING:
            events = await log_in(self, events)
            self._note_open(events)
        elif self.session.codecs.reopens:
            events = await log_in(self, events)
        if events:
            if self.brake:
                await self._slow_down()
            self._handed_over, self._read_before = self.bytes_in - self._read_before, self.bytes_in
            await self.shared.inbox.put_batch(batch_of(self, events, len(data), now))

    def _note_open(self, events: "Sequence[Event]") -> None:
        self.is_open = True
        if self.verdict is None:
            self.shared.watchdog.watch(self, look(self, trio.current_time()))
            transport, version = self.client.transport, self.session.version.name
            # The core has not heard of it yet.
            users = [event.identity.name for event in events if isinstance(event, Opened)]
            told = {**self.log_fields(), "user": "".join(users), "version": version}
            logger.info("%s %s opened: STOMP %s", transport, self.remote, version, extra=told)

    # Leaving.

    async def _part(self) -> None:
        """Tell the core, in order: what the peer is to be told, then that it is gone."""
        inbox = self.shared.inbox
        # If the dispatcher has died, its own error ends the broker: there is nobody to tell.
        with trio.move_on_after(PARTING_S, shield=True), suppress(trio.BrokenResourceError):
            if self.verdict is not None:
                if not self.speaks_http:
                    now = trio.current_time()
                    await inbox.put_batch(Batch(self, [Refused(self.verdict)], 0, 0, now))
                self.reason = self.verdict.reason
            elif self.reason is CloseReason.SHUTTING_DOWN and self.is_open:
                # It still gets what others had sent before the stop, and which waits for room.
                await inbox.put_batch(Batch(self, [], 0, 0, trio.current_time()))
            self._has_parted = True
            self.forgotten = trio.Event()
            async with self.shared.parting:
                await inbox.put(Gone(self, self.reason))
            await self.forgotten.wait()
