"""The one task that changes the core. It waits for input, and never for a client."""

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import outcome
import trio
from attrs import define, field

from trio_stomp.base import CloseReason
from trio_stomp.broker import Broker, Client, Histogram, internal_error
from trio_stomp.server._alarm import Alarm
from trio_stomp.server._clock import Clock
from trio_stomp.server._committer import StoreCommitter
from trio_stomp.server.io import (
    CONNECTION,
    TURN,
    Batch,
    Bugs,
    ConnectionEnd,
    Control,
    Inbox,
    Item,
    OutboxShared,
    Output,
    shape_of,
)

if TYPE_CHECKING:
    from trio_stomp.protocol import Event

T = TypeVar("T")

logger = logging.getLogger("trio_stomp")

MAX_TURN_FRAMES = 1024
"""Maximum number of frames in a turn.

So staged output stays in the processor's cache, and other tasks wait only a few milliseconds. With
256, ten consumers of a queue cost a fifth more.
"""
TURN_S = 0.003
"""Time after which a turn takes no more input. Input already taken and work left from earlier turns
still get their share, and queues hand out for a while (``broker/delivery/_turns.py``).
"""
SENT_AT_ONCE = 64
"""Outboxes sent between two looks at the clock."""
OUTPUT_S = 0.01
"""Time after which a turn sends no more. Output goes on in the next one, new output first: 20,000
clients take 80 ms."""
PASSES = 3
"""Passes of the loop after a dear event: what came meanwhile is polled, read and decoded, and goes
first."""
ENDING_FRAMES = 4
"""The cost of ending a subscription, in frames."""


class FrameHandler(Protocol):
    """What the dispatcher gives the frames of clients to: a broker, or the router of a node.

    Everything else that it needs of a broker a router has, too.
    """

    @property
    def has_more(self) -> bool:
        """Return whether work is left for another turn."""

    def apply(
        self, client: Client, events: "Sequence[Event]", received_at: float, now: float
    ) -> None:
        """Apply events of a client, in order, up to the first error."""

    def writable(self, client: Client, now: float) -> None:
        """Resume delivery to a client whose outbox has room again."""

    def end_turn(self, now: float, *, is_last: bool = True) -> None:
        """Resume waiting clients and works, while there is time."""

    def forget(
        self, client: Client, reason: CloseReason, now: float, forgotten: Callable[[], None]
    ) -> None:
        """Release a disconnected client, and call ``forgotten`` at the end."""

    def finish(self, now: float) -> None:
        """Finish all deferred work, at the end of the broker."""


@define(eq=False, repr=False)
class Dispatcher:
    """The loop that drains the inbox in turns: apply the input, then publish the output.

    Args:
      core: The broker, or a router in front of others.
      clock: Gives the core its elapsed time; everything else uses Trio's clock.
      end_turn: Called before each turn's output is published, for events of the diagnostics.
      committer: The store's, if there is one.
    """

    broker: Broker
    core: FrameHandler
    inbox: Inbox
    outboxes: OutboxShared
    end_turn: Callable[[float], None]
    alarm: Alarm
    clock: Clock = field(factory=Clock)
    committer: StoreCommitter | None = None
    bugs: Bugs = field(factory=Bugs)
    turns: int = 0
    turn_times: Histogram = field(factory=Histogram)
    """Times for which turns held the loop, output included; renewed in each interval of DIAG."""
    _resumed: deque[Client] = field(factory=deque)
    _calls: deque[Callable[[float], None]] = field(factory=deque)
    _cut: int = 0
    """The number of last turns that were too short for all input."""
    _behind: list[Output] = field(factory=list)
    """Outboxes whose output goes on in this turn, in order."""

    def resume(self, client: Client) -> None:
        """Resume delivery of ``client``'s backlog in the next turn."""
        self._resumed.append(client)
        self.inbox.wake()

    def call_soon(self, call: Callable[[float], None]) -> None:
        """Call ``call`` with the time in the next turn."""
        self._calls.append(call)
        self.inbox.wake()

    def call_now(self, action: Callable[[], T]) -> T:
        """Call what changes nothing but the output of clients, send that, and return the result.

        A turn for it would cost as much as the rest of the way of 50 frames.
        """
        result = action()
        self._publish(self.clock.now())
        if self._behind:
            self.inbox.wake()
        return result

    async def call(self, action: Callable[[float], T]) -> T:
        """Call ``action`` with the time in the next turn, and return its result or raise its error.

        Checkpoint: always. Cancel: the call is made nevertheless.
        """
        found: list[outcome.Value[T] | outcome.Error] = []
        called = trio.Event()

        def run(now: float) -> None:
            found.append(outcome.capture(action, now))
            called.set()

        self.call_soon(run)
        await called.wait()
        return found[0].unwrap()

    async def run(self) -> None:
        """Dispatch until the inbox is closed and empty.

        Checkpoint: always, once a turn. Cancel: between turns, never within one.
        """
        with suppress(trio.EndOfChannel):
            while True:
                self._turn(await self.inbox.take())
                if self.broker.turns.has_dear:
                    self.broker.turns.has_dear = False
                    for _ in range(PASSES):
                        await trio.lowlevel.checkpoint()
        if not self.broker.is_finished:
            self._turn(Control(self.core.finish))
        if self.committer is not None:
            await self._finish(self.committer)
        while self._behind:
            self._publish(self.clock.now())

    async def _finish(self, committer: StoreCommitter) -> None:
        """Append the remaining records, if the store works."""
        while (self._has_more or not committer.is_idle) and not committer.error:
            committer.hurry()
            if not self._has_more:
                await committer.wait_answer()
            self._end_turn(self.clock.now())

    @property
    def _has_more(self) -> bool:
        return bool(self._calls) or self.core.has_more

    def _turn(self, item: Item) -> None:
        """Apply ``item`` and as much further input as fits a turn, then publish."""
        frames, is_last = 0, False
        differences = self.clock.look()
        if differences is not None:
            self._follow(*differences)
        began = now = self.clock.now()
        while True:
            frames += self._apply(item, now)
            before, now = now, self.clock.now()
            if type(item) is Batch:
                item.finish(item.size, item.expected_s, item.decode_s + now - before)
            if frames >= MAX_TURN_FRAMES or now - began >= TURN_S:
                break
            try:
                item = self.inbox.take_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                is_last = True
                break
        self._cut = 0 if is_last else self._cut + 1
        self._end_turn(now)
        if self.inbox.turns.grant() or self.core.has_more or self._behind:
            self.inbox.wake()
        self.turns += 1
        self.turn_times.observe(self.clock.now() - began, 1)

    def _follow(self, slept_s: float, step_s: float) -> None:
        """Follow a new setting of the wall clock, and count the time that the machine slept."""
        offset_s = self.clock.follow(slept_s, step_s)
        if offset_s is None:
            return
        logger.warning(
            "the wall clock was set by %+.3f s: schedules and expiry times follow it", step_s
        )
        self._guarded(self.broker.use_wall, offset_s, self.clock.now())

    def _end_turn(self, now: float) -> None:
        for _ in range(len(self._calls)):
            self._guarded(self._calls.popleft(), now)
        if self.outboxes.starved:
            self.outboxes.feed()
        for _ in range(len(self._resumed)):
            self._guarded(self.core.writable, self._resumed.popleft(), now)
        if self.broker.turns.waiting:
            self._publish(now)  # what waits may be dear
        is_last = not 0 < self._cut < PASSES
        self._guarded(partial(self.core.end_turn, is_last=is_last), now)
        self._guarded(self.broker.memory.check)
        self._guarded(self.end_turn, now)
        if self.committer is not None:
            self._submit_records(self.committer)
        due = self.broker.timers.next_due - self.clock.slept_s
        if due != self.alarm.due:
            self.alarm.set(due)
        self._publish(now)

    def _publish(self, now: float) -> None:
        """Send what was staged."""
        dirty, self.outboxes.dirty = self.outboxes.dirty, []
        self.outboxes.touched.update(dirty)
        if behind := self._behind:
            self._behind = []
            # New output goes first, but that of earlier turns goes on in any case.
            dirty = [*behind[:SENT_AT_ONCE], *dirty, *behind[SENT_AT_ONCE:]]
        sent_at, ends_at = now - self.clock.slept_s, math.inf
        if len(dirty) > SENT_AT_ONCE:
            ends_at = self.clock.now() + OUTPUT_S
        for index, outbox in enumerate(dirty, 1):
            try:
                outbox.publish(sent_at)
            except Exception:
                self._note(CONNECTION, "%s: a bug in the broker ends this", outbox.remote)
                outbox.lose(CloseReason.INTERNAL_ERROR)
            if index % SENT_AT_ONCE == 0 and self.clock.now() >= ends_at:
                self._behind = dirty[index:]
                return

    def _submit_records(self, committer: StoreCommitter) -> None:
        log = self.broker.log
        assert log is not None
        turn = log.take()
        if turn is not None:
            committer.submit(turn)
        committer.hurry(log.take_patience())
        for wanted in log.take_reads():
            committer.ask(wanted)

    def _apply(self, item: Item, now: float) -> int:
        if type(item) is Batch:
            source = item.source
            strained = self.outboxes.strained
            self.outboxes.touched.add(source.outbox)
            try:
                received_at = item.received_at + self.clock.slept_s
                self.core.apply(source.client, item.events, received_at, now)
            except Exception as bug:
                text = "%s: a bug in the broker ends this, after %s"
                self._note(CONNECTION, text, source.client.remote, shape_of(item.events))
                source.end(internal_error(bug))
            if self.outboxes.strained != strained:
                source.throttle_next_read()
            return item.frames
        if type(item) is ConnectionEnd:
            client, release = item.source.client, item.source.release
            subscriptions = client.subscriptions
            before = len(subscriptions)
            if not self._guarded(self.core.forget, client, item.reason, now, release):
                release()
            # Each subscription ends separately, so thousands of them take a whole turn.
            return 1 + ENDING_FRAMES * (before - len(subscriptions))
        if type(item) is Control:
            self._guarded(item.action, now)
        return 1

    def _guarded(self, call: Callable[..., None], *arguments: object) -> bool:
        """Call a function whose failure must not crash the broker, and return whether it succeeded.

        A failure is a bug, and is noted.
        """
        try:
            call(*arguments)
        except Exception:
            self._note(TURN, "a bug in the broker, which continues")
            return False
        return True

    def _note(self, kind: str, text: str, *arguments: object) -> None:
        """Note the exception being handled. Pause the queue that a broken invariant concerns."""
        broken = self.bugs.note(kind, text, *arguments)
        if broken is not None and (queue := self.broker.queues.find(broken.concerns)) is not None:
            queue.is_paused = True
