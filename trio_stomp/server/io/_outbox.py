"""The output queue of one connection, and what all of a broker's queues share.

The dispatcher calls ``stage`` in the middle of a turn, and ``publish`` at its end: small output
goes to the socket at once, the rest to the writer. Items stay lazy, a prefix and a list of tails
shared by all subscribers, and are joined only just before they are sent.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

import trio
from attrs import define, field

from trio_stomp.base import BrokenInvariant, CloseReason, noop
from trio_stomp.broker import Delivery, MemoryBudget
from trio_stomp.broker import Outbox as Port
from trio_stomp.server._clock import Clock
from trio_stomp.server.io._framing import JOIN_BYTES as JOIN_BYTES
from trio_stomp.server.io._framing import Framing
from trio_stomp.server.io._items import (
    Item,
    cost_of,
    cut_off,
    is_bulk,
    join,
    lose,
    lose_some,
    pieces_of,
)
from trio_stomp.transport import MAX_BEHIND, Wire

INLINE_BYTES = 64 * 1024
"""Output up to this size is joined and sent by the dispatcher, if none is queued before it."""
BULK_INLINE_BYTES = 1024 * 1024
"""The same limit for large messages, which need not be joined."""
COUNTED_AT_ONCE = 2048
"""Runs that will never be sent, freed at once. They take some 0.1 µs each.

Many connections may be lost at once, with 8 MiB of a topic's messages each: 6 ms for each of them,
of which 3 to copy the list.
"""
CLEARED_AT_ONCE = 64
"""Dropped runs freed at once. Those without other references take some 3 µs each."""
STUCK_S = 1.0
"""A wire that accepted nothing for this long may be cut off if memory is short."""
FREE_SHARE = 8
FED_AT_ONCE = 16
LOW_WATER_BYTES = 256 * 1024
"""Below this, or half of the limit, a source that can wait gives more."""

_NO_PIECES: Iterator[bytes] = iter(())


class Output(Port, Protocol):
    """An outbox as the dispatcher sees it: a turn stages to it, and publishes it at its end."""

    @property
    def owner(self) -> object | None:
        """Return the connection whose traffic it counts, for the diagnostics."""

    @property
    def remote(self) -> str:
        """Return the address of the peer, for the log."""

    def publish(self, now: float) -> None:
        """Send what the turn has staged."""

    def lose(self, reason: CloseReason) -> None:
        """End the connection without what waits: nothing more can be sent."""


@define(eq=False, repr=False)
class OutboxShared:
    """What all outboxes of a broker share: budget, limits, and the outboxes to be published.

    Args:
      memory: The budget for queued output.
      limit_bytes: Maximum number of bytes queued for one connection.
      clock: Gives the time for the expiry of messages.
      on_unsent: Called with messages that expired here although their consumer must ACK them.
      dirty: The outboxes that the current turn staged to; the dispatcher publishes them.
    """

    memory: MemoryBudget
    limit_bytes: int
    websocket_frames: str = "auto"
    on_unsent: Callable[[Delivery], None] = noop
    clock: Clock = field(factory=Clock)
    dirty: list[Output] = field(factory=list)
    touched: set[Output] = field(factory=set)
    """Open connections with input or output since the last statistics. Heart-beats do not count."""
    blocked: "set[Outbox]" = field(factory=set)
    """Outboxes with waiting output for their writers."""
    starved: "dict[Outbox, None]" = field(factory=dict)
    """Outboxes whose sources wait for memory, not for their own peer. The first has waited
    longest."""
    strained: int = 0
    """Number of times that a stage found an outbox more than three quarters full."""
    expired: int = 0
    unsent: int = 0
    """Number of messages that were lost because they still waited when their connection ended."""
    strain_bytes: int = field(init=False)
    low_water_bytes: int = field(init=False)
    flood_bytes: int = field(init=False)
    """Only a peer that requests answers and does not read them has a larger backlog."""

    def is_strained(self) -> bool:
        """Return whether an outbox is more than three quarters full."""
        return any(each.waiting_bytes > self.strain_bytes for each in self.blocked)

    def has_room_for(self, waiting_bytes: int) -> bool:
        """Return whether an outbox with ``waiting_bytes`` may get more from a source that can wait.

        Each may have an eighth of what is free, so something is always left for one more, however
        many peers do not read. The last tenth of the memory is for outboxes that are empty. Beyond
        the limit one goes on if no other has anything: what fills the memory may be what it gets.
        """
        memory = self.memory
        free = memory.limit_bytes * 9 // 10 - memory.charged_bytes
        if waiting_bytes:
            return waiting_bytes * FREE_SHARE < free
        return memory.used_bytes < memory.limit_bytes or not self.blocked

    def feed(self) -> None:
        """Let some of the sources go on that wait for memory, if there is some."""
        for outbox in list(islice(self.starved, FED_AT_ONCE)):
            if not self.has_room_for(outbox.waiting_bytes):
                return
            del self.starved[outbox]
            outbox.on_room()

    def __attrs_post_init__(self) -> None:
        self.strain_bytes = self.limit_bytes * 3 // 4
        self.low_water_bytes = min(LOW_WATER_BYTES, self.limit_bytes // 2)
        self.flood_bytes = self.limit_bytes + self.limit_bytes // 4


@define(eq=False, repr=False)
class Waste:
    """The dropped items of one outbox, which are counted and freed in small steps.

    Args:
      shared: Counts the lost messages. Not the outbox: it has this object, and would keep itself
        and its connection alive.
      lost: Items of a lost connection, not yet counted as dropped: counting takes time as well.
      counted: Items that are counted but not freed yet: freeing 8 MiB takes milliseconds.
    """

    shared: OutboxShared
    lost: deque[Item] = field(factory=deque)
    counted: list[Item] = field(factory=list)

    async def clear_away(self) -> None:
        """Count and free all items. Checkpoint: after each step. Cancel: the rest stays."""
        while self.lost:
            step = range(min(CLEARED_AT_ONCE, len(self.lost)))
            self.shared.unsent += lose([self.lost.popleft() for _ in step])
            await trio.lowlevel.checkpoint()
        while self.counted:
            del self.counted[-CLEARED_AT_ONCE:]
            await trio.lowlevel.checkpoint()


@define(eq=False, repr=False)
class Outbox:
    """One connection's output, in order, bounded in bytes.

    Args:
      shared: The objects shared by all outboxes.
      wire: The connection's wire.
      on_blocked: Called when the wire did not accept all bytes at once: start a writer.
      on_close: Called with the reason when the core ends the connection, or it proves lost.
      on_pause: Called when the core wants reading to pause or to resume.
      on_room: Called when there is room again after ``has_room`` returned False.
    """

    shared: OutboxShared
    wire: Wire
    on_blocked: Callable[[], None]
    on_close: Callable[[CloseReason], None]
    on_room: Callable[[], None]
    on_pause: Callable[[bool], None] = noop
    framing: Framing | None = None
    """The framing between its frames; None = plain."""
    waiting_bytes: int = 0
    last_sent: float = 0.0
    blocked_since: float = 0.0
    """When the wire last stopped taking bytes while some waited; 0 = it has not."""
    frames_out: int = 0
    bytes_out: int = 0
    peak_bytes: int = 0
    """Maximum backlog that the wire had not accepted at the end of a turn."""
    blocked_s: float = 0.0
    """Total time of ended stalls, in which the wire accepted nothing although data waited."""
    is_closed: bool = False
    is_over: bool = False
    """MESSAGEs are dropped, since the connection ends; frames of the broker may still follow."""
    is_broken: bool = False
    _staged: list[Item] = field(factory=list)
    _ready: deque[Item] | tuple[()] = ()
    """A deque, created as needed: an empty one takes 770 bytes, and most connections need none."""
    _parts: list[memoryview | bytes] = field(factory=list)
    """Buffers to be written next, already joined: a few, as many as go into one call."""
    _pieces: Iterator[bytes] = _NO_PIECES
    """The buffers after ``_parts`` and before ``_ready``."""
    _writing: list[Item] = field(factory=list)
    """The items being written in ``_parts`` and ``_pieces``, to count losses if the wire breaks."""
    _charged: int = 0
    """The charge of ``_parts`` and ``_pieces``, released when both are written."""
    _wake: trio.Event | None = None
    _empty: trio.Event | None = None
    _wants_room: bool = False
    _waste: Waste | None = None
    """Dropped items that are not freed yet; created as needed."""
    owner: object | None = None
    """The connection, until it has ended; for the diagnostics, not called here."""

    # The core's side: the port ``broker.Outbox``.

    def stage(self, prefix: bytes, delivery: Delivery) -> bool:
        """Queue a run of MESSAGEs. If the outbox is full, return False and queue nothing."""
        if self.is_over:
            return True
        shared, memory = self.shared, self.shared.memory
        size = delivery.size + delivery.count * len(prefix)
        waiting = self.waiting_bytes + size
        if waiting > shared.strain_bytes:
            shared.strained += 1
            # One run always fits, however large it is: two of the largest bodies are no overflow.
            if self.waiting_bytes >= shared.limit_bytes:
                return False
        # Not memory.take(size): this is called for every subscriber of every run.
        used = memory.used_bytes + size
        if used > memory.limit_bytes and not (
            delivery.is_paced and self.waiting_bytes < shared.low_water_bytes
        ):
            return False
        memory.used_bytes = used
        self.waiting_bytes = waiting
        staged = self._staged
        if not staged:
            shared.dirty.append(self)
        staged.append((prefix, delivery))
        return True

    def stage_frame(self, frame: bytes) -> None:
        """Queue a small frame of the broker itself."""
        if self.is_closed:
            return
        if self.framing is not None:
            frame = self.framing.frame(frame)
        self.stage_bytes(frame)

    def stage_bytes(self, data: bytes) -> None:
        """Queue bytes of the transport itself (a pong, a heart-beat)."""
        if self.is_broken:
            return
        self.shared.memory.used_bytes += len(data)
        self.waiting_bytes += len(data)
        if not self._staged:
            self.shared.dirty.append(self)
        self._staged.append((data, None))

    def drop_oldest(self, size: int) -> int:
        """Drop the oldest queued MESSAGEs of at least ``size`` bytes, and return how many.

        Messages of queues stay: a client's topics must not cause their loss.
        """
        self.shared.dirty.append(self)
        is_this_turn = not self._ready
        ready, lost = self._items_deque(), 0
        ready.extend(self._staged)
        self._staged = []
        remaining: list[Item] = []
        while ready and size > 0:  # no more than has to go: there may be a million
            item = ready.popleft()
            delivery = item[1]
            if delivery is None or delivery.is_paced:
                remaining.append(item)
                continue
            cost = cost_of(*item)
            self._release(cost)
            size -= cost
            lost += lose_some(delivery, delivery.count)
        ready.extendleft(reversed(remaining))
        if is_this_turn:
            self._staged, self._ready = list(ready), ()
        return lost

    def discard(self) -> int:
        """Drop all queued MESSAGEs except a half-written one, and return how many are lost."""
        self.shared.dirty.append(self)
        waiting = [*self._ready, *self._staged]
        remaining = [item for item in waiting if item[1] is None]
        self._release(
            self.waiting_bytes - self._charged - sum(len(frame) for frame, _ in remaining)
        )
        if self._ready:
            self._ready, self._staged = deque(remaining), []
        else:
            self._staged = remaining
        if waiting:
            self._get_waste().counted += waiting
        return lose(waiting)

    async def clear_away(self) -> None:
        """Count lost messages and free dropped ones, in small steps.

        Checkpoint: only if there are any. Cancel: the rest is freed with the outbox.
        """
        if self._waste is not None:
            await self._waste.clear_away()

    def has_room(self) -> bool:
        """Return whether a source that can wait may deliver more now."""
        if self.is_over:
            return False
        shared = self.shared
        if self.waiting_bytes < shared.low_water_bytes:
            if shared.has_room_for(self.waiting_bytes):
                return True
            shared.starved[self] = None
        self._wants_room = True
        return False

    def pause_reading(self, *, paused: bool) -> None:
        """Pause or resume reading from the client. Input already read is still processed."""
        self.on_pause(paused)

    def close(self, reason: CloseReason) -> None:
        """End the connection once the staged output is sent, and stage nothing more."""
        if not self.is_closed:
            self.is_closed = self.is_over = True
            self.on_close(reason)

    # The dispatcher's side.

    def publish(self, now: float) -> None:
        """End the turn: send what can be sent at once, and leave the rest to the writer."""
        dirty = self.shared.dirty
        if dirty and dirty[-1] is self:
            dirty.pop()  # staged outside of a turn: the next may be hours away
        staged = self._staged
        if not staged:
            return
        is_first = not (self._parts or self._ready or self.is_broken)
        if not is_first or self.waiting_bytes > INLINE_BYTES:
            self._items_deque().extend(staged)
            staged.clear()
            if not (is_first and self._send_bulk(now)):
                self._block(now)
            return
        charged = self.waiting_bytes
        slept_s = self.shared.clock.slept_s
        data, frames = join(staged, self.framing, now + slept_s, self._expire)
        self.frames_out += frames
        try:
            sent = self.wire.send_nowait(data)
        except trio.BrokenResourceError:
            self.lose(CloseReason.CONNECTION_LOST)
            return
        if sent:
            self.last_sent = now
            self.bytes_out += sent
        if sent == len(data):
            staged.clear()
            self.waiting_bytes = 0
            self.shared.memory.used_bytes -= charged
            if self._wants_room:
                self._wants_room = False
                self.on_room()
            return
        self._charged = charged
        self._parts.append(memoryview(data)[sent:])
        self._writing, self._staged = staged, []
        self._block(now)

    def _send_bulk(self, now: float) -> bool:
        """Send a large backlog without joining it. Return False if some of it is left."""
        if not self.wire.gathers or self.waiting_bytes > BULK_INLINE_BYTES:
            return False
        try:
            while self._fill(now):
                if not self._send_parts(now):
                    return False
        except trio.BrokenResourceError:
            self.lose(CloseReason.CONNECTION_LOST)
        return True

    def _send_parts(self, now: float) -> bool:
        """Send ``_parts`` as far as possible without waiting. Return False if some are left.

        Raises:
          trio.BrokenResourceError: the connection is lost.
        """
        sent = self.wire.send_nowait(self._parts[0], self._parts[1:])
        if sent:
            self._sent(sent, now)
        return not self._parts

    def lose(self, reason: CloseReason) -> None:
        """Break off, and end the connection for ``reason``."""
        self.break_off()
        self.on_close(reason)

    @property
    def remote(self) -> str:
        """Return the address of the peer."""
        return self.wire.remote

    def is_stuck(self, now: float) -> bool:
        """Return whether the wire has not accepted waiting bytes for ``STUCK_S``."""
        return bool(self.blocked_since) and now - self.blocked_since >= STUCK_S

    @property
    def waiting_messages(self) -> int:
        """Return the number of MESSAGEs that wait for the writer."""
        return sum(delivery.count for _, delivery in self._ready if delivery is not None)

    # The writer's side.

    async def write(self) -> None:
        """Send queued and new output until the connection ends.

        Raises:
          trio.BrokenResourceError: the connection is lost.

        Checkpoint: always. Cancel: a frame may be cut; nothing may be written afterwards.
        """
        while True:
            while self._fill(trio.current_time()):
                sent = await self.wire.wait_sent(self._parts[0])
                now = trio.current_time()
                self.blocked_s += now - self.blocked_since
                self.blocked_since = now
                self._sent(sent, now)
                if self._parts and self.wire.gathers:
                    self._send_parts(now)
            self.blocked_since = 0.0
            self.shared.blocked.discard(self)
            if self._empty is not None:
                self._empty.set()
            self._wake = trio.Event()
            await self._wake.wait()

    async def wait_empty(self) -> None:
        """Wait until everything is written, or cannot be any more. Checkpoint: only if it waits."""
        if (self._parts or self._ready) and not self.is_broken:
            self._empty = trio.Event()
            await self._empty.wait()

    def end(self) -> None:
        """Finish after the connection has ended: ``break_off``, and release all callbacks.

        One of its messages may stay in a queue for days, and must not keep the connection alive.
        """
        self.break_off()
        self.owner = None
        self.shared.touched.discard(self)
        self.shared.blocked.discard(self)
        self.shared.starved.pop(self, None)
        self.on_blocked = self.on_room = noop
        self.on_close = self.on_pause = noop

    def break_off(self) -> None:
        """Discard queued and future output: the wire is dead."""
        self.is_broken = self.is_closed = self.is_over = True
        unwritten = sum(map(len, self._parts)) + sum(map(len, self._pieces))
        for delivery, count in cut_off(self._writing, unwritten):
            self.shared.unsent += lose_some(delivery, count)
        waiting = self._items_deque()
        waiting.extend(self._staged)
        if len(waiting) > COUNTED_AT_ONCE:
            self._get_waste().lost = waiting
        elif waiting:
            self.shared.unsent += lose(waiting)
            self._get_waste().counted += waiting
        self._ready = ()
        if self._staged or self._writing:
            self._staged, self._writing = [], []
        self._parts, self._pieces = [], _NO_PIECES
        self.shared.memory.give(self.waiting_bytes)
        self.waiting_bytes = self._charged = 0
        if self._empty is not None:
            self._empty.set()

    def _items_deque(self) -> deque[Item]:
        """Return the queued items as a mutable deque."""
        if not self._ready:
            self._ready = deque()
        assert isinstance(self._ready, deque)
        return self._ready

    def _get_waste(self) -> Waste:
        if self._waste is None:
            self._waste = Waste(self.shared)
        return self._waste

    def _fill(self, now: float) -> bool:
        """Fill ``_parts`` if it is empty, and return False if nothing waits."""
        parts = self._parts
        while not parts:
            size = 0
            for piece in filter(None, self._pieces):
                parts.append(piece)
                size += len(piece)
                if size >= JOIN_BYTES or len(parts) > MAX_BEHIND:
                    break
            if not parts:
                self._release(self._charged)
                self._charged = 0
                self._offer_room()
                if not self._ready:
                    return False
                self._take_chunk(now)
        return True

    def _take_chunk(self, now: float) -> None:
        """Move the next items to ``_parts``, up to JOIN_BYTES. A larger item is sent alone."""
        ready, size = self._items_deque(), 0
        items: list[Item] = []
        while ready and size < JOIN_BYTES:
            cost = cost_of(*ready[0])
            if items and cost > JOIN_BYTES:
                break
            items.append(ready.popleft())
            size += cost
        self._charged = size
        self._writing = items
        is_alone = len(items) == 1 and size > JOIN_BYTES
        now += self.shared.clock.slept_s
        if is_alone or (self.wire.gathers and any(map(is_bulk, items))):
            self._pieces, frames = pieces_of(items, self.framing, now, self._expire)
        else:
            data, frames = join(items, self.framing, now, self._expire)
            self._pieces = iter((data,))
        self.frames_out += frames

    def _sent(self, sent: int, now: float) -> None:
        """Remove ``sent`` bytes from ``_parts``."""
        self.last_sent = now
        self.bytes_out += sent
        parts, written = self._parts, 0
        while written < len(parts) and sent >= len(parts[written]):
            sent -= len(parts[written])
            written += 1
        del parts[:written]
        if sent and parts:  # none, if it was broken off while the wire had them
            parts[0] = memoryview(parts[0])[sent:]

    def _offer_room(self) -> None:
        """Call a refused source as soon as there is room again."""
        self.shared.feed()
        if self._wants_room and self.waiting_bytes < self.shared.low_water_bytes:
            self._wants_room = False
            self.on_room()

    def _release(self, size: int) -> None:
        """Release the charge for bytes that are no longer queued."""
        self.waiting_bytes -= size
        self.shared.memory.give(size)
        if self.waiting_bytes < 0:
            raise BrokenInvariant("outbox", f"{self.waiting_bytes} bytes wait, after {size} left")

    def _block(self, now: float) -> None:
        """Wake or start the writer, because output waits."""
        if not self.blocked_since:
            self.blocked_since = now
            self.shared.blocked.add(self)
        if self.waiting_bytes > self.peak_bytes:
            self.peak_bytes = self.waiting_bytes
        if self._wake is not None:
            self._wake.set()
            self._wake = None
        self.on_blocked()

    def _expire(self, delivery: Delivery) -> None:
        """Drop a run that expired before it was written."""
        self.shared.expired += delivery.count
        delivery.publication.destination.expired += delivery.count
        if delivery.ticket is not None:
            self.shared.on_unsent(delivery)
