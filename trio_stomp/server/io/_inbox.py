"""The input queue: a bounded queue of decoded input from connections to the dispatcher."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import trio
from attrs import define, field

from trio_stomp.base import CloseReason, RemoteError, noop, value
from trio_stomp.broker import Client
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Event
from trio_stomp.server._limits import ServerLimits
from trio_stomp.server.io._outbox import Output
from trio_stomp.server.io._read_turns import ReadTurns

_CAPACITY = 256
"""Maximum number of items; the operator's limits are in frames and bytes."""


class Source(Protocol):
    """The interface to connections, used by the inbox and the dispatcher."""

    client: Client

    @property
    def outbox(self) -> Output:
        """Return the output queue of the peer."""

    def end(self, error: RemoteError) -> None:
        """End the connection with ``error``, because of a bug."""

    def throttle_next_read(self) -> None:
        """Pause before the next read, because the last batch filled an outbox."""

    def release(self) -> None:
        """Note that the core has released the client."""


@value(eq=False, repr=False)
class Batch:
    """Events that a connection has sent, at most those of one read.

    Args:
      expected_s: What it was expected to cost, as it was admitted (``ReadTurns``), in seconds.
      decode_s: What decoding has cost.
      finish: Called when it was applied, with its size, and its expected and real cost in seconds.
    """

    source: Source
    events: Sequence[Event]
    frames: int
    size: int
    received_at: float
    expected_s: float = 0.0
    decode_s: float = 0.0
    finish: Callable[[int, float, float], None] = noop


@value(eq=False, repr=False)
class ConnectionEnd:
    """The end of a connection: the last item from it."""

    source: Source
    reason: CloseReason


@value(eq=False, repr=False)
class Control:
    """A call that the dispatcher makes in its turn, with the time as argument."""

    action: Callable[[float], None]


Item = Batch | ConnectionEnd | Control


@define(eq=False, repr=False)
class Inbox:
    """A memory channel of items, with bounds in frames and bytes around it.

    When it is full, readers wait here, their sockets fill, and TCP slows the producers. With
    ``input_overflow = "drop"`` new SENDs are dropped and counted instead, as in stompica.
    """

    limits: ServerLimits
    frames: int = 0
    bytes: int = 0
    dropped: int = 0
    turns: ReadTurns = field(init=False)
    """Keeps the queue short, and readers in turn."""
    _sender: "trio.MemorySendChannel[Item]" = field(init=False)
    _receiver: "trio.MemoryReceiveChannel[Item]" = field(init=False)
    _turnstile: trio.StrictFIFOLock = field(factory=trio.StrictFIFOLock)
    """Held by the reader that waits for room; others queue for the lock in order of arrival."""
    _room: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot)
    _is_abandoned: bool = False

    def __attrs_post_init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[Item](_CAPACITY)
        self.turns = ReadTurns(self.wake)

    async def put_batch(self, batch: Batch) -> None:
        """Add a batch; while the queue is full, wait in order of arrival.

        Checkpoint: if it waits; reading is one already. Cancel: does not end the wait, which the
        dispatcher bounds, because received input is processed in order even if its connection ends.

        Raises:
          trio.BrokenResourceError: the dispatcher has died.
        """
        drops = self.limits.input_overflow == "drop"
        if drops and (self._turnstile.locked() or self._is_full(batch)):
            batch = self._without_sends(batch)
        if not self.offer(batch):
            await self._put_in_turn(batch)

    def offer(self, batch: Batch) -> bool:
        """Add a batch if there is room for it now, and return whether there was.

        Raises:
          trio.ClosedResourceError, trio.BrokenResourceError: the queue takes nothing any more.
        """
        if self._turnstile.locked() or self._is_full(batch):
            return False
        try:
            self._sender.send_nowait(batch)
        except trio.WouldBlock:
            return False
        self.frames += batch.frames
        self.bytes += batch.size
        return True

    async def _put_in_turn(self, batch: Batch) -> None:
        with trio.CancelScope(shield=True):
            async with self._turnstile:
                while self._is_full(batch) and not self._is_abandoned:
                    await self._room.park()
                self.frames += batch.frames  # before it is taken, which may be during ``send``
                self.bytes += batch.size
                try:
                    await self._sender.send(batch)
                except BaseException:
                    self._took(batch)
                    raise
        await trio.lowlevel.checkpoint_if_cancelled()

    async def put(self, item: ConnectionEnd | Control) -> None:
        """Add an item that does not count against the limits. Checkpoint: always."""
        await self._sender.send(item)

    def wake(self) -> None:
        """Make the dispatcher take a turn. If the queue is full, it is awake anyway."""
        with suppress(trio.WouldBlock, trio.ClosedResourceError, trio.BrokenResourceError):
            self._sender.send_nowait(Control(noop))

    async def take(self) -> Item:
        """Wait for the next item and return it.

        Raises:
          trio.EndOfChannel: it is closed and empty.

        Checkpoint: always. Cancel: nothing is lost.
        """
        return self._took(await self._receiver.receive())

    def take_nowait(self) -> Item:
        """Return the next item.

        Raises:
          trio.WouldBlock: it is empty.
          trio.EndOfChannel: it is closed as well.
        """
        return self._took(self._receiver.receive_nowait())

    def close(self) -> None:
        """Accept nothing more. Queued items can still be taken."""
        self._sender.close()

    def abandon(self) -> None:
        """Fail present and later writers with BrokenResourceError: the dispatcher died."""
        self._is_abandoned = True
        self._receiver.close()
        self._room.unpark_all()
        self.turns.abandon()

    def _took(self, item: Item) -> Item:
        """Count an item no more, and return it."""
        if type(item) is Batch:
            self.frames -= item.frames
            self.bytes -= item.size
            if self._room:
                self._room.unpark_all()
        return item

    def _is_full(self, batch: Batch) -> bool:
        if not (self.frames and batch.frames):
            return False  # one batch always fits, whatever its size, and one without frames
        return (
            self.frames + batch.frames > self.limits.max_input_queue_size
            or self.bytes + batch.size > self.limits.max_input_queue_bytes
        )

    def _without_sends(self, batch: Batch) -> Batch:
        remaining: list[Event] = []
        for event in batch.events:
            if type(event) is FrameRun:
                self.dropped += len(event.bodies)
            else:
                remaining.append(event)
        return Batch(
            batch.source,
            remaining,
            frames=0,
            size=0,
            received_at=batch.received_at,
            expected_s=batch.expected_s,
            decode_s=batch.decode_s,
            finish=batch.finish,
        )
