"""Reading: from the bytes of a connection to events, and the obstacles that delay a read."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio
from attrs import define

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Event
from trio_stomp.server.connection._lifecycle import Lifecycle
from trio_stomp.server.connection._link import Link
from trio_stomp.server.io import Owner

if TYPE_CHECKING:
    from trio_stomp.transport import WebSocketCodec

logger = logging.getLogger("trio_stomp")

PAUSE_S = 0.005
"""Pause of a producer that filled an outbox to three quarters (as NATS stalls producers), and the
first one of a reader that waits for memory."""
PAUSES_PER_BULK = 5
"""Pauses for each 256 KiB of a large frame that filled an outbox, unless it drains earlier: a
consumer that reads 10 MB/s can then follow a stream of the largest bodies."""
MEMORY_WAIT_S = 2.0
"""Longest wait of a producer for free memory; then a little is read in any case."""
FIRST_BYTES = 8 * 1024
"""Read size for new clients."""
SLICE_WORK = 4096
"""The work (``FrameDecoder.receive_data``) of one slice: up to 2 ms, whatever is sent."""
SLICE_S = 0.003
"""Expected cost of a slice at most, so that two are always on their way: one is decoded while the
other is applied, however busy the machine is."""
NEW_BYTE_S = 0.5e-6
"""Expected cost of a byte of a new connection, which may be among many that come at once."""
BYTE_S = 20e-9
"""Expected cost of a byte at least: a connection may be cheap at first, to send what is dear later
together with many others."""
RECEIVE_BYTES = 64 * 1024
BULK_BYTES = 256 * 1024
"""Read size for peers that send large frames: bodies of 100 KB cost a tenth to a third less. As
many bytes of small frames would leave the processor's cache before they are sent."""
BULK_FRAME_BYTES = 8 * 1024
BULK_SHARE = 16
"""If incomplete frames take more than this part of the memory (1/16), all reads are small."""
HELD_SHARE = 4
"""Incomplete frames of all connections may take this part of the memory: 1/4."""


@define(eq=False, repr=False)
class Reader:
    """The reader and decoder of a connection's bytes.

    Handles: the size and time of reads, obstacles to reading, counters of input, and the memory of
    incomplete frames.
    Does not handle: the events (``Connection``).
    """

    link: Link
    lifecycle: Lifecycle
    last_received: float = 0.0
    bytes_in: int = 0
    is_reading: bool = False
    throttle_next_read: bool = False
    """Whether the last batch filled an outbox to three quarters."""
    read_bytes: int = FIRST_BYTES
    """Size of the next read, if there is memory for it."""
    close_reply: bytes = b""
    """The answer to the peer's Close frame, kept until all data is sent: none may follow it."""
    incomplete_bytes: int = 0
    """Bytes of an incomplete frame, as charged to the memory."""
    read_s: float = 0.0
    """Its use of reading, if it shares with no other connection (``io.ReadTurns``)."""
    _cost_s: float = 0.0
    """The largest recent cost of a slice, in seconds, halved with each slice."""
    _byte_s: float = NEW_BYTE_S
    """The same for a byte of a read."""
    _may_read: trio.Event | None = None
    """Set when a queue lets a paused producer continue; None = it is not paused."""
    _read_before: int = 0
    """``bytes_in`` when the last frames were decoded."""
    _decoded: int = 0
    """Bytes from which these were decoded."""
    _owner: Owner | None = None
    """Whose share of reading it uses: its user's or network's; None = its own."""

    def pause(self, paused: bool) -> None:
        """Pause reading because a queue is full, or continue."""
        if paused:
            # A reader may be waiting for the event already, so it must not be replaced.
            if self._may_read is None:
                self._may_read = trio.Event()
        elif self._may_read is not None:
            self._may_read.set()
            self._may_read = None

    def count_opening(self, size: int) -> None:
        """Count bytes that were read before the session is open."""
        if size and not self.bytes_in:
            self.link.shared.active_connections += 1
        self.bytes_in += size

    async def read_opening(self) -> bytes:
        """Read before the session is open.

        Returns:
          Bytes; none at the end of the stream, or after more than ``max_opening_bytes``.

        Raises:
          trio.BrokenResourceError: the connection is lost.
        """
        link = self.link
        limit = link.shared.limits.max_opening_bytes
        # At most one byte beyond the limit, so that a CONNECT within the limit is always seen.
        room = min(FIRST_BYTES, max(1, limit - self.bytes_in))
        data = await link.wire.receive_some(room)
        self.count_opening(len(data))
        if self.bytes_in <= limit:
            return data
        error = ProtocolError(
            "opening-too-large",
            f"more than {limit} bytes were received before a session was open (option "
            "max_opening_bytes)",
            reason=CloseReason.LIMIT_EXCEEDED,
        )
        self.lifecycle.fail(error)
        return b""

    async def read(self) -> bytes:
        """Read the next bytes as soon as nothing blocks reading.

        Returns:
          Bytes, or b"" at the end of the connection.

        Raises:
          trio.BrokenResourceError: the connection is lost.
        """
        link, websocket = self.link, self.link.websocket
        if self.lifecycle.pending_error is not None:
            return b""
        if websocket is not None and websocket.closed is not None:
            return b""
        while self._may_read is not None:
            await self._may_read.wait()
        if not self.lifecycle.is_open:
            return await self.read_opening()
        if link.outbox.waiting_bytes > link.outbox.shared.flood_bytes:
            error = ProtocolError(
                "slow-consumer",
                "unread answers exceed max_outbox_bytes; read them sooner",
                reason=CloseReason.SLOW_CONSUMER,
            )
            self.lifecycle.fail(error)
            return b""
        if link.shared.memory.is_high:
            await self._wait_for_memory()
        room, shared = self.read_bytes, link.shared
        if room > RECEIVE_BYTES and shared.held_bytes * BULK_SHARE > shared.memory.limit_bytes:
            room = RECEIVE_BYTES
        self.is_reading = True
        data = await link.wire.receive_some(room)
        self.is_reading = False
        self.bytes_in += len(data)
        return data

    async def slow_down(self) -> None:
        """Pause after a batch that filled an outbox.

        Checkpoint: always. Cancel: does not end the pause, because the input that was read
        is processed in any case.
        """
        self.throttle_next_read = False
        outboxes = self.link.outbox.shared
        with trio.CancelScope(shield=True):
            for _ in range(max(1, PAUSES_PER_BULK * (self._decoded // BULK_BYTES))):
                await trio.sleep(PAUSE_S)
                if not outboxes.is_strained():
                    return

    async def _wait_for_memory(self) -> None:
        """Slow a producer down while memory is short.

        Consumers are slowed only a little, since their ACKs may free the memory. No client waits
        for ever, since it may be about to consume; a SEND that does not fit is refused anyway.
        """
        shared = self.link.shared
        began = now = trio.current_time()
        while shared.memory.is_high:
            shared.relieve(now)
            # At most twice as long as memory is short: hundreds that look each time are a load.
            await trio.sleep(max(PAUSE_S, now - began))
            if self.link.client.subscriptions or now >= began + MEMORY_WAIT_S:
                return
            now = trio.current_time()

    async def wait_turn(self, size: int) -> float:
        """Wait for a turn to decode ``size`` bytes, or a rest.

        Returns:
          The expected cost in seconds, for ``finish``.

        Checkpoint: if it has to wait. Cancel: as for ``slow_down``.
        """
        expected_s = min(SLICE_S, max(self._cost_s, size * self._byte_s))
        await self.link.shared.inbox.turns.wait(self._owner or self, expected_s)
        return expected_s

    def finish(self, size: int, expected_s: float, cost_s: float) -> None:
        """Note what a slice, the first of ``size`` bytes, has cost, and what was expected."""
        self._cost_s = max(cost_s, self._cost_s / 2)
        if size:
            self._byte_s = max(BYTE_S, min(NEW_BYTE_S, max(cost_s / size, self._byte_s / 2)))
        # The core knows the user once CONNECT is applied, and not before.
        client = self.link.client
        self._owner = client.quota if client.network or client.identity.name else None
        self.link.shared.inbox.turns.finish(self._owner or self, expected_s, cost_s)

    def decode(self, data: bytes, now: float) -> list[Event]:
        """Decode a slice of bytes, and charge the bytes of an incomplete frame.

        Too large a frame sets the connection's pending error, and a violation of the WebSocket
        protocol its reason.

        Args:
          data: The bytes that were read.
          now: The time, in seconds of the broker's clock.
        """
        self.last_received = now
        link = self.link
        size = len(data)
        # A later slice of the same read has none: the answer to a Close must not be lost by it.
        if link.websocket is not None and data:
            data = self._unwrap(link.websocket, data, now)
        events = link.session.receive_data(data, SLICE_WORK)
        held = link.session.decoder.buffered_bytes
        if link.websocket is not None and link.websocket.is_in_frame:
            held += link.websocket.statistics().buffered_bytes
        if held != self.incomplete_bytes:
            self.hold(held)
        if events:
            self._decoded, self._read_before = self.bytes_in - self._read_before, self.bytes_in
        if size >= FIRST_BYTES:
            # A flood of heart-beats has no frames, and what comes in slices is not bulk.
            may_grow = (bool(events) or held > 0) and not link.session.has_more
            self.read_bytes = _next_room(self.read_bytes, events, size, may_grow)
        return events

    def hold(self, held: int) -> None:
        """Charge ``held`` bytes of an incomplete frame, in place of the previous charge."""
        shared = self.link.shared
        grown = held - self.incomplete_bytes
        self.incomplete_bytes = held
        if held:
            shared.holding.add(self.link)
        else:
            shared.holding.discard(self.link)
        shared.held_bytes += grown
        shared.memory.used_bytes += grown
        limit = shared.memory.limit_bytes // HELD_SHARE
        if shared.held_bytes > limit and held > RECEIVE_BYTES and grown > 0:
            error = ProtocolError(
                "memory-limit",
                f"incomplete frames exceed {limit} bytes, a quarter of the broker's memory "
                "(option max_memory_bytes); try again later",
                reason=CloseReason.MEMORY_LIMIT,
            )
            self.lifecycle.fail(error)

    def _unwrap(self, websocket: "WebSocketCodec", data: bytes, now: float) -> bytes:
        link = self.link
        reads = link.shared.websocket_reads
        if websocket.is_in_frame:
            reads.hits += 1
            began = websocket.frame_number
            payload = websocket.receive_data(data)
            if websocket.frame_number > began:
                reads.underruns_fixed += 1
        else:
            reads.misses += 1
            payload = websocket.receive_data(data)
        replies = websocket.take_replies()
        closed = websocket.closed
        if closed is not None:
            self.close_reply = replies
        elif replies:
            link.send_now(replies, now, beat=True)
        if closed is not None and not closed.by_peer:
            self.lifecycle.end(CloseReason.WEBSOCKET_ERROR)
            logger.info("%s broke WebSocket: %d %s", link.remote, closed.code, closed.reason)
        return payload


def _next_room(room: int, events: list[Event], size: int, may_grow: bool) -> int:
    """Return the size of the next read, after one that returned ``size`` of ``room`` bytes."""
    if size < min(room, RECEIVE_BYTES):
        return room  # the socket was drained
    is_bulk = may_grow and count(events) * BULK_FRAME_BYTES <= size
    return BULK_BYTES if is_bulk and size >= RECEIVE_BYTES else RECEIVE_BYTES


def count(events: Sequence[Event]) -> int:
    """Return the number of frames in ``events``."""
    frames = 0
    for event in events:
        frames += len(event.bodies) if type(event) is FrameRun else 1
    return frames
