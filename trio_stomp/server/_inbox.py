"""The input queue: what connections received, on its way to the dispatcher, bounded."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from trio_stomp._errors import CloseReason
from trio_stomp._value import value
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Event
from trio_stomp.server._limits import ServerLimits

if TYPE_CHECKING:
    from trio_stomp.server._connection import Connection

_CAPACITY = 256
"""Items; the bounds that an operator sees are in frames and bytes."""


@value(eq=False, repr=False)
class Batch:
    """What one read of a connection meant."""

    connection: "Connection"
    events: Sequence[Event]
    frames: int
    size: int
    received_at: float


@value(eq=False, repr=False)
class Gone:
    """The last that is heard of a connection."""

    connection: "Connection"
    reason: CloseReason


@value(eq=False, repr=False)
class Control:
    """Something else that the dispatcher shall do in its turn; told the time."""

    action: Callable[[float], None]


Item = Batch | Gone | Control


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
    _sender: "trio.MemorySendChannel[Item]" = field(init=False)
    _receiver: "trio.MemoryReceiveChannel[Item]" = field(init=False)
    _turnstile: trio.StrictFIFOLock = field(factory=trio.StrictFIFOLock)
    """Held by the reader that waits for room; the others wait behind it, in order of arrival."""
    _room: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot)
    _is_abandoned: bool = False
    _input: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot)
    """Where the dispatcher waits: in the channel itself the next item would be its own already,
    and what was read meanwhile could not be taken behind it by somebody else."""
    is_closed: bool = False
    waiting: int = 0
    """Items in it."""
    take_now: "Callable[[Batch], None] | None" = None
    """The dispatcher's, while there is one: takes what was read in no task, behind what waits."""

    def __attrs_post_init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[Item](_CAPACITY)

    async def put_batch(self, batch: Batch) -> None:
        """Hand a batch over, waiting while the queue is full; first come, first served.

        Checkpoint: if it waits; reading is one already. Cancel: does not end the waiting, which
        the dispatcher bounds: what was received is processed, in the order in which it came,
        whatever ends its connection.

        Raises:
          trio.BrokenResourceError: the dispatcher has died.
        """
        if self._turnstile.locked() or self._is_full(batch):
            if self.limits.input_overflow == "drop":
                batch = self._without_sends(batch)
            else:
                await self._put_in_turn(batch)
                return
        self._charge(batch)
        try:
            self._sender.send_nowait(batch)
        except trio.WouldBlock:
            self._release(batch)
            await self._put_in_turn(batch)
        else:
            self._note_put()

    async def _put_in_turn(self, batch: Batch) -> None:
        with trio.CancelScope(shield=True):
            async with self._turnstile:
                while self._is_full(batch) and not self._is_abandoned:
                    await self._room.park()
                self._charge(batch)
                try:
                    await self._sender.send(batch)
                except BaseException:
                    self._release(batch)
                    raise
                self._note_put()
        await trio.lowlevel.checkpoint_if_cancelled()

    async def put(self, item: Gone | Control) -> None:
        """Hand over something that takes no room. Checkpoint: always."""
        await self._sender.send(item)
        self._note_put()

    def wake(self) -> None:
        """Have the dispatcher take a turn; if the queue is full, it is awake anyway."""
        with suppress(trio.WouldBlock, trio.ClosedResourceError, trio.BrokenResourceError):
            self._sender.send_nowait(Control(_nothing))
            self._note_put()

    def _note_put(self) -> None:
        self.waiting += 1
        self._input.unpark()

    async def wait(self) -> None:
        """Wait until something is in it, or it is closed. Checkpoint: always."""
        if self.waiting or self.is_closed:
            await trio.lowlevel.checkpoint()
        else:
            await self._input.park()

    def take_nowait(self) -> Item:
        """The next of those that are ``waiting``."""
        return self._took(self._receiver.receive_nowait())

    def close(self) -> None:
        """Nothing more comes; what is in it can still be taken."""
        self._sender.close()
        self.is_closed = True
        self._input.unpark()

    def abandon(self) -> None:
        """Nobody takes from it any more: whoever waits for room, or comes, is told so."""
        self._is_abandoned = True
        self.take_now = None
        self._receiver.close()
        self._room.unpark_all()

    def _took(self, item: Item) -> Item:
        self.waiting -= 1
        if type(item) is Batch:
            self._release(item)
        return item

    def _charge(self, batch: Batch) -> None:
        self.frames += batch.frames
        self.bytes += batch.size

    def _release(self, batch: Batch) -> None:
        self.frames -= batch.frames
        self.bytes -= batch.size
        if self._room:
            self._room.unpark_all()

    def _is_full(self, batch: Batch) -> bool:
        if not self.frames:
            return False  # one batch always fits, whatever its size
        return (
            self.frames + batch.frames > self.limits.max_input_queue_size
            or self.bytes + batch.size > self.limits.max_input_queue_bytes
        )

    def _without_sends(self, batch: Batch) -> Batch:
        kept: list[Event] = []
        for event in batch.events:
            if type(event) is FrameRun:
                self.dropped += len(event.bodies)
            else:
                kept.append(event)
        return Batch(batch.connection, kept, 0, 0, batch.received_at)


def _nothing(now: float) -> None:
    """What a wake-up does by itself."""
