"""One connection: its parts, and the order in which the broker learns of its input and its end."""

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import trio
from attrs import define, evolve, field

from trio_stomp.base import CloseReason, RemoteError
from trio_stomp.broker import internal_error
from trio_stomp.frames import excerpt
from trio_stomp.protocol import Event, Opened, Refused, State
from trio_stomp.server.connection._deadlines import Deadlines
from trio_stomp.server.connection._farewell import send_farewell
from trio_stomp.server.connection._lifecycle import Lifecycle
from trio_stomp.server.connection._link import Link
from trio_stomp.server.connection._opening import Opening
from trio_stomp.server.connection._reader import Reader, count
from trio_stomp.server.connection._shared import ConnectionShared
from trio_stomp.server.io import CONNECTION, Batch, ConnectionEnd, Outbox
from trio_stomp.transport import WebSocketCodec, Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.broker import Client
    from trio_stomp.protocol import ServerSession

logger = logging.getLogger("trio_stomp")

DISCONNECT_S = 10.0
"""Longest wait for the dispatcher and, if some of the client's input is not stored yet, for the
store. A disk that hangs longer costs the client its RECEIPTs, nothing else."""


@define(eq=False, repr=False)
class Connection:
    """A connection, from its first byte to its last.

    Handles: its tasks; passing input and the end to the dispatcher. Does not handle: bytes
    (``Link``), reading (``Reader``), deadlines (``Deadlines``), the reason and time of its end
    (``Lifecycle``).

    Args:
      refusal: Why the connection is refused once its protocol is known; None = it is accepted.
      early: Bytes that were read before the connection was created.
      tls: Whether TLS may or must be used: ``off``, ``optional`` or ``required``.
    """

    link: Link
    lifecycle: Lifecycle
    reader: Reader
    deadlines: Deadlines
    client: "Client" = field(init=False)
    outbox: Outbox = field(init=False)
    refusal: RemoteError | None = None
    early: bytes = b""
    tls: str = "off"
    frames_in: int = 0
    _nursery: trio.Nursery | None = None
    _has_writer: bool = False

    @classmethod
    def over(
        cls, wire: Wire, session: "ServerSession", shared: ConnectionShared, opened_at: float
    ) -> "Connection":
        """Return a connection over ``wire``, without a client yet.

        Args:
          wire: The wire.
          session: The STOMP session.
          shared: The objects shared by all connections.
          opened_at: When it was accepted, in seconds of the broker's clock.
        """
        link, lifecycle = Link(shared, wire, session), Lifecycle()
        reader = Reader(link, lifecycle)
        return cls(link, lifecycle, reader, Deadlines(link, lifecycle, reader, opened_at))

    def join(self, client: "Client", outbox: Outbox) -> None:
        """Set the client and the outbox, which call the connection."""
        self.client = self.link.client = client
        self.outbox = self.link.outbox = outbox
        outbox.owner = self

    async def run(self) -> None:
        """Serve the connection until it has ended, however it ends.

        Checkpoint: always. Cancel: the core learns that it is gone; no farewell is sent.
        """
        link, deadlines = self.link, self.deadlines
        self.reader.last_received = deadlines.opened_at
        due = deadlines.opened_at + link.shared.limits.connect_timeout_s
        link.shared.watchdog.watch(deadlines, due)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    try:
                        await self._read()
                    finally:
                        await self._disconnect()
                    await send_farewell(link, self.lifecycle, self.reader.close_reply)
                finally:
                    # The nursery is about to close: no writer may be started in it any more.
                    self._nursery = None
                    self.lifecycle.finish()
                nursery.cancel_scope.cancel()
        finally:
            await self._clean_up()

    async def _clean_up(self) -> None:
        """Close the wire, and release the connection's resources."""
        link, reason = self.link, self.lifecycle.reason
        link.session.close()
        if link.websocket is not None:
            link.websocket.discard()
        link.outbox.end()
        self.deadlines.end()
        self.reader.hold(0)
        with trio.CancelScope(shield=True):
            await link.wire.aclose()
            await link.outbox.clear_away()
        fields = {**link.log_fields(), "reason": reason.text}
        is_page = reason is CloseReason.HTTP_ANSWERED  # probes and dashboards ask often
        level = logging.DEBUG if is_page else logging.INFO
        transport = link.client.transport
        why = reason.text
        if error := link.client.refusal:
            why, fields["error"] = f"{why} ({error})", error
        logger.log(level, "%s %s closed: %s", transport, link.remote, why, extra=fields)

    # For the server, the diagnostics and the pages.

    @property
    def session(self) -> "ServerSession":
        """Return the STOMP session."""
        return self.link.session

    @property
    def websocket(self) -> WebSocketCodec | None:
        """Return the codec of the WebSocket, if it is one."""
        return self.link.websocket

    @property
    def is_open(self) -> bool:
        """Return whether the session was opened."""
        return self.lifecycle.is_open

    @property
    def is_finished(self) -> bool:
        """Return whether the connection has ended."""
        return self.lifecycle.is_finished

    @property
    def reason(self) -> CloseReason:
        """Return why the connection ends, if that is known."""
        return self.lifecycle.reason

    @property
    def opened_at(self) -> float:
        """Return when the connection was accepted, in seconds of the broker's clock."""
        return self.deadlines.opened_at

    @property
    def last_received(self) -> float:
        """Return when bytes last arrived, in seconds of the broker's clock."""
        return self.reader.last_received

    @property
    def bytes_in(self) -> int:
        """Return the number of bytes received."""
        return self.reader.bytes_in

    @property
    def heartbeats_missed(self) -> int:
        """Return how often a heart-beat was late."""
        return self.deadlines.heartbeats_missed

    def end(self, error: RemoteError) -> None:
        """Stop reading, and send ``error`` once earlier input is processed."""
        self.lifecycle.abort(error)

    # For the dispatcher.

    def throttle_next_read(self) -> None:
        """Pause before the next read, because the last batch filled an outbox."""
        self.reader.throttle_next_read = True

    def release(self) -> None:
        """Note that the core has released the client."""
        self.lifecycle.release()

    # For the outbox.

    def on_blocked(self) -> None:
        """Start the writer, and set its deadline: the wire did not accept all bytes."""
        link = self.link
        stalled_at = link.outbox.blocked_since + link.shared.limits.write_stall_s
        link.shared.watchdog.watch(self.deadlines, stalled_at)
        if not self._has_writer and self._nursery is not None:
            self._has_writer = True
            self._nursery.start_soon(self._write)

    def on_room(self) -> None:
        """Request more of the client's backlog from the dispatcher, because the outbox has room."""
        self.link.shared.resume(self.client)

    async def _write(self) -> None:
        outbox = self.link.outbox
        try:
            await outbox.write()
        except trio.BrokenResourceError:
            outbox.lose(CloseReason.CONNECTION_LOST)

    # Reading.

    async def _read(self) -> None:
        link, lifecycle, reader = self.link, self.lifecycle, self.reader
        reader.count_opening(len(self.early))
        opening = Opening(
            link, lifecycle, reader, refusal=self.refusal, early=self.early, tls=self.tls
        )
        with lifecycle.reading:
            try:
                data = await opening.run()
                del opening
                while data:
                    await self._receive(data)
                    data = await reader.read()
            except trio.BrokenResourceError:
                lifecycle.end(CloseReason.CONNECTION_LOST)
            except Exception:
                text = "%s: a bug in the broker ends this connection"
                link.shared.bugs.note(CONNECTION, text, link.remote)
                lifecycle.fail(internal_error())

    async def _receive(self, data: bytes) -> None:
        """Decode ``data`` slice by slice, and pass the events to the dispatcher.

        Checkpoint: if it waits for its turn or for room.
        """
        received_at = trio.current_time()
        reader, session, inbox = self.reader, self.link.session, self.link.shared.inbox
        is_first = True
        while is_first or session.has_more:
            if reader.throttle_next_read:
                await reader.slow_down()
            expected_s = await reader.wait_turn(len(data))
            began = trio.current_time()
            try:
                events = reader.decode(data, received_at)
            except BaseException:
                reader.finish(0, expected_s, 0.0)  # others wait for it
                raise
            decode_s = trio.current_time() - began
            is_opening = not self.lifecycle.is_open and session.state is not State.OPENING
            if is_opening or session.codecs.reopens or not events:
                reader.finish(len(data), expected_s, decode_s)  # a login may take long
                expected_s = decode_s = 0.0
                events = await log_in(self.link, self.lifecycle, self.deadlines, events)
            if is_opening:
                self._note_open(events)
            if events:
                frames = count(events)
                self.frames_in += frames
                batch = Batch(
                    self,
                    events,
                    frames,
                    size=len(data),
                    received_at=received_at,
                    expected_s=expected_s,
                    decode_s=decode_s,
                    finish=reader.finish,
                )
                if not inbox.offer(batch):
                    await inbox.put_batch(batch)
            is_first, data = False, b""

    def _note_open(self, events: "Sequence[Event]") -> None:
        self.lifecycle.open()
        if self.lifecycle.pending_error is not None:
            return
        link, deadlines = self.link, self.deadlines
        link.shared.watchdog.watch(deadlines, deadlines.look(trio.current_time()))
        transport, version = link.client.transport, link.session.version.name
        # The client has no name yet, as the core has not processed CONNECT.
        users = [event.identity.name for event in events if isinstance(event, Opened)]
        fields = {**link.log_fields(), "user": "".join(users), "version": version}
        logger.info("%s %s opened: STOMP %s", transport, link.remote, version, extra=fields)

    # The end.

    async def _disconnect(self) -> None:
        """Pass the peer's error, then the end, to the dispatcher."""
        lifecycle, inbox = self.lifecycle, self.link.shared.inbox
        error = lifecycle.pending_error
        # If the dispatcher has died, its own error ends the broker, and there is nothing to do.
        with trio.move_on_after(DISCONNECT_S, shield=True), suppress(trio.BrokenResourceError):
            if error is not None:
                if not self.link.speaks_http:
                    await inbox.put_batch(Batch(self, [Refused(error)], 0, 0, trio.current_time()))
            elif lifecycle.reason is CloseReason.SHUTTING_DOWN and lifecycle.is_open:
                # An empty batch, because the peer still gets earlier messages that wait for room.
                await inbox.put_batch(Batch(self, [], 0, 0, trio.current_time()))
            released = lifecycle.disconnect(error)
            async with self.link.shared.disconnect_slots:
                await inbox.put(ConnectionEnd(self, lifecycle.reason))
            await released.wait()


async def log_in(
    link: Link, lifecycle: Lifecycle, deadlines: Deadlines, events: list[Event]
) -> list[Event]:
    """Authenticate the client that opened a session, before later frames are processed.

    Returns:
      The events, with the identity in that of CONNECT. If the login is refused, they end before
      CONNECT, and the connection's pending error has the reason.

    Checkpoint: only if a passcode must be hashed. Limits: the connect timeout holds.
    """
    passed: list[Event] = []
    for event in events:
        if isinstance(event, Opened):
            try:
                identity = link.vouched
                if identity is None:
                    authenticator = link.shared.authenticator
                    identity = await authenticator.identify(event.headers, link)
            except RemoteError as error:
                lines = "".join(f"\n{name}:{text}" for name, text in event.headers)
                error.excerpt = excerpt(f"CONNECT{lines}".encode())
                lifecycle.fail(error)
                link.session.close()
                link.shared.report_failed_login(link.client, error.code)
                return passed
            event = evolve(event, identity=identity, generation=link.shared.generation())
            deadlines.expires_at = min(identity.expires_at, link.certificate_end)
        passed.append(event)
    return passed
