"""Periodic work of the server in the dispatcher, and eviction while memory is short."""

import math
from collections.abc import Callable, Mapping

import trio
from attrs import define

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.broker import Broker
from trio_stomp.server._clock import Clock
from trio_stomp.server._dispatcher import Dispatcher
from trio_stomp.server._watchdog import Watchdog
from trio_stomp.server.connection import Connection
from trio_stomp.server.io import Control, Inbox, OutboxShared

SWEEP_S = 1.0
"""Interval at which the core learns that time passes."""
PAUSE_S = 0.1
"""Minimum interval between two evictions."""
SPARE_HISTORY_BYTES = 256 * 1024
"""Stream history of at most this size is kept."""


@define(eq=False, repr=False)
class Relief:
    """Frees memory when it is short, one step at a time, so that active clients can continue."""

    connections: Mapping[Connection, None]
    broker: Broker
    outboxes: OutboxShared
    dispatcher: Dispatcher
    _relieved_at: float = -1.0
    _history_bytes: int = 0

    def relieve(self, now: float) -> None:
        """Free stream history first, then the stuck connection with the largest backlog.

        Otherwise all producers would wait until the write stall ends that connection.
        """
        if now < self._relieved_at + PAUSE_S:
            return
        self._relieved_at = now
        history = self.broker.streams.window_bytes
        if history > SPARE_HISTORY_BYTES and history != self._history_bytes:
            self._history_bytes = history  # if this frees nothing, do not try it again
            self.dispatcher.call_soon(self._forget_history)
            return
        stuck = [each for each in self.connections if each.outbox.is_stuck(now)]
        if not stuck:
            return
        worst = max(stuck, key=lambda each: each.outbox.waiting_bytes)
        self.outboxes.unsent += worst.outbox.discard()
        worst.outbox.is_over = True  # or the client would get later messages without these
        worst.end(
            ProtocolError(
                "memory-limit",
                "the connection takes its messages too slowly while the broker is short of memory"
                " (option max_memory_bytes)",
                reason=CloseReason.MEMORY_LIMIT,
            )
        )

    def _forget_history(self, now: float) -> None:
        self.broker.streams.expire(now)  # the rest expires as time passes


@define(eq=False, repr=False)
class Periodic:
    """The tasks that give work to the dispatcher at intervals.

    Handles: statistics, sweeps, stompserver's monitor, sessions whose token expires.
    Does not handle: single deadlines (``Alarm``, ``Watchdog``).
    """

    inbox: Inbox
    broker: Broker
    clock: Clock
    watchdog: Watchdog
    connections: Mapping[Connection, None]
    relief: Relief

    def start(
        self, nursery: trio.Nursery, tick: Callable[[float], None], interval_s: float
    ) -> None:
        """Start the tasks, which run until cancelled.

        Args:
          nursery: Runs the tasks.
          tick: Publishes the statistics.
          interval_s: How often it is called; 0 = never.
        """
        nursery.start_soon(self._sweep)
        nursery.start_soon(self._relieve)
        if interval_s:
            nursery.start_soon(self._tick, tick, interval_s)
        if monitor_interval_s := self.broker.policies.monitor_interval_s:
            nursery.start_soon(self._monitor, monitor_interval_s)

    async def _tick(self, tick: Callable[[float], None], interval_s: float) -> None:
        """Publish statistics at even intervals."""
        due = trio.current_time()
        while True:
            due += interval_s
            await trio.sleep_until(due)
            await self.inbox.put(Control(tick))

    async def _relieve(self) -> None:
        """Free memory while it is short, whoever took it, and though nobody sends anything."""
        memory = self.broker.memory
        while True:
            await trio.sleep(PAUSE_S if memory.is_high else SWEEP_S)
            if memory.is_high:
                self.relief.relieve(trio.current_time())

    async def _sweep(self) -> None:
        slept_s, offset_s = 0.0, self.clock.wall.offset_s
        while True:
            await trio.sleep(SWEEP_S)
            # The ttl may change while the broker runs.
            if self.broker.policies.ttl_ms or self.clock.look() is not None:
                await self.inbox.put(Control(self.broker.tick))
            if (slept_s, offset_s) != (self.clock.slept_s, self.clock.wall.offset_s):
                slept_s, offset_s = self.clock.slept_s, self.clock.wall.offset_s
                self._check_sessions()

    def _check_sessions(self) -> None:
        """Check the expiry of all tokens again, because the wall clock was set."""
        for connection in self.connections:
            if connection.deadlines.expires_at < math.inf:
                self.watchdog.watch(connection.deadlines, trio.current_time())

    async def _monitor(self, interval_s: float) -> None:
        while True:
            await trio.sleep(interval_s)
            if self.broker.is_monitored:
                await self.inbox.put(Control(self.broker.publish_monitor))
