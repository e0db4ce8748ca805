"""Periodic work of the server in the dispatcher."""

import math
from collections.abc import Callable, Mapping

import trio
from attrs import define

from trio_stomp.broker import Broker
from trio_stomp.server._clock import Clock
from trio_stomp.server._relief import PAUSE_S as RELIEF_S
from trio_stomp.server._relief import Relief
from trio_stomp.server._watchdog import Watchdog
from trio_stomp.server.connection import Connection
from trio_stomp.server.io import Control, Inbox

SWEEP_S = 1.0
"""Interval at which the core learns that time passes."""


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
            await trio.sleep(RELIEF_S if memory.is_high else SWEEP_S)
            if memory.is_high:
                self.relief.relieve(trio.current_time())

    async def _sweep(self) -> None:
        slept_s, offset_s = 0.0, self.clock.wall.offset_s
        while True:
            await trio.sleep(SWEEP_S)
            # The ttl may change while the broker runs.
            if self.broker.policies.ttl_ms or self.clock.is_off:
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
