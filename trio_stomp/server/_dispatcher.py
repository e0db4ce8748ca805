"""The one task that changes the core. It waits for input, and never for a client."""

from collections import deque
from collections.abc import Callable

import trio
from attrs import define, field

from trio_stomp.broker import Broker
from trio_stomp.server._connection import Connection
from trio_stomp.server._inbox import Batch, Control, Gone, Inbox, Item
from trio_stomp.server._outbox import OutboxShared

MAX_TURN_FRAMES = 256
"""A turn ends after so many frames, so that what it staged is still in the processor's cache."""


@define(eq=False)
class Dispatcher:
    """Drains the inbox in turns: apply what came, then publish what that staged.

    Args:
      end_turn: Called before each turn's output is published: the diagnostics' events.
    """

    broker: Broker
    inbox: Inbox
    outboxes: OutboxShared
    end_turn: Callable[[float], None]
    turns: int = 0
    _resumed: deque[Connection] = field(factory=deque)
    _calls: deque[Callable[[float], None]] = field(factory=deque)

    def resume(self, connection: Connection) -> None:
        """Give ``connection`` more of what is parked for it, in the next turn."""
        self._resumed.append(connection)
        self.inbox.wake()

    def call_soon(self, call: Callable[[float], None]) -> None:
        """Have ``call`` called in the next turn, told the time."""
        self._calls.append(call)
        self.inbox.wake()

    async def run(self) -> None:
        """Dispatch until the inbox is closed and empty.

        Checkpoint: always, once a turn. Cancel: between turns, never within one.
        """
        while True:
            try:
                item = await self.inbox.take()
            except trio.EndOfChannel:
                return
            self._turn(item)

    def _turn(self, item: Item) -> None:
        frames = 0
        while True:
            frames += self._apply(item)
            if frames >= MAX_TURN_FRAMES:
                break
            try:
                item = self.inbox.take_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                break
        now = trio.current_time()
        while self._calls:
            self._calls.popleft()(now)
        for _ in range(len(self._resumed)):
            self.broker.writable(self._resumed.popleft().client, now)
        self.end_turn(now)
        dirty = self.outboxes.dirty
        self.outboxes.dirty = []
        for outbox in dirty:
            outbox.publish(now)
        self.turns += 1

    def _apply(self, item: Item) -> int:
        now = trio.current_time()
        if type(item) is Batch:
            connection = item.connection
            strained = self.outboxes.strained
            self.broker.apply(connection.client, item.events, item.received_at, now)
            if self.outboxes.strained != strained:
                connection.brake = True
            return item.frames
        if type(item) is Gone:
            self.broker.forget(item.connection.client, item.reason)
            item.connection.forgotten.set()
        elif type(item) is Control:
            item.action(now)
        return 1
