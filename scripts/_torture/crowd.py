"""Clients that come and go all the time, and a client that drains the queues."""

import time
from typing import TYPE_CHECKING

from _torture.acts import DEEP, QUEUES
from _torture.client import Client, Stage

if TYPE_CHECKING:
    from _torture.link import Link

RUSH, RUSH_BYTES = 12, 3000
NEVER = float("inf")
BEAT_S = 0.5
"""Visitors come and go at the same times, like clients started by a timer."""
JANITOR_ROUNDS, MOST_TAKEN = 5, 200
"""The janitor switches to other queues of closed connections after this many rounds, or when they
are empty, and to this many."""
BEHIND_S = 5.0
"""It asks for no more while a RECEIPT is due for so long: its share is that of any client."""
PREFETCH, LAST_PREFETCH = 100, 1000
"""The deliveries that it takes at once of a queue, and at the end, when there are no others."""
DRAINED_S = 6.0
"""The broker delays a NACKed message by up to 4 s. After this time, missing messages are lost."""


class Visitor(Client):
    """A client with short connections, which begin and end at the same time as others'."""

    def __init__(self, stage: Stage, name: str, transport: str, seed: str) -> None:
        super().__init__(stage, name, transport, seed)
        self._left: Link | None = None

    def run(self) -> None:
        """Run until told to stop."""
        super().run()
        self._leave_behind()

    def _leave_behind(self) -> None:
        left, self._left = self._left, None
        if left is not None:
            left.close()

    def play(self) -> None:
        """Leave the former connection, and send many frames on this one."""
        self.actor.takes_auto = False
        self.listen(BEAT_S - time.monotonic() % BEAT_S)
        self._leave_behind()
        for _ in range(self.dice.randint(1, 3)):
            self.actor.segments(RUSH, RUSH_BYTES)
            if self.dice.random() < 0.7:
                self.actor.act(is_after_quiet=False)
        self.listen(self.dice.random() * 0.2)

    def _end(self, *, is_polite: bool) -> None:
        if self.dice.random() < 0.5:
            self._left = self.link
            del self.link
        else:
            self._leave(is_polite=is_polite)


class Janitor(Client):
    """Consumes all queues until told to stop and no more messages arrive."""

    _has_drained = False
    _most = MOST_TAKEN
    _taken: tuple[str, ...] = ()
    """The queues of closed connections that it consumes."""

    def run(self) -> None:
        """Run until told to stop, and then until all messages have arrived.

        A broker without memory may refuse it, as others: what it has drained makes room.
        """
        world = self.stage.world
        while not (self._has_drained or (self.stage.stop.is_set() and world.found)):
            if self._taken:  # it was refused: fewer need less memory
                world.orphans.extendleft(self._taken)
                self._taken, self._most = (), max(1, len(self._taken) // 2)
            if not world.is_down:
                self.live()
            time.sleep(BEAT_S if world.is_down else 0.0)

    def play(self) -> None:
        """Subscribe to all shared queues, and in turn to those of closed connections."""
        world = self.session.world
        for queue in QUEUES:
            self._take(queue)
        while not self.stage.stop.is_set() or world.orphans:
            orphans = world.orphans
            self._taken = tuple(orphans.popleft() for _ in range(min(len(orphans), self._most)))
            for queue in self._taken:
                self._take(queue)
            for _ in range(JANITOR_ROUNDS):
                if not self._receive():
                    break
            for sub in self.session.subs.values():
                if sub.destination in self._taken:
                    self.actor.unsubscribe(sub)
            self.actor.flush()
            while time.monotonic() - (self.session.oldest() or NEVER) > BEHIND_S:
                self.listen(0.2)
            self._taken, self._most = (), min(2 * self._most, MOST_TAKEN)
        for queue in ("/queue/own.>", *DEEP):
            self._take(queue, LAST_PREFETCH)
        quiet_since = time.monotonic()
        while time.monotonic() < quiet_since + DRAINED_S:
            if self._receive():
                quiet_since = time.monotonic()
        self._has_drained = True

    def _take(self, queue: str, prefetch: int = PREFETCH) -> None:
        self.actor.subscribe(queue, "client-individual", prefetch=prefetch)
        self.actor.flush()
        self.listen(0.0)  # it may be refused

    def _receive(self) -> bool:
        """Receive and acknowledge for a while. Return whether anything has come."""
        before = self.session.world.counts["from queues"]
        self.listen(0.2)
        for sub in self.session.subs.values():
            if not sub.is_leaving:
                self.actor.acknowledge(sub, LAST_PREFETCH, nack=0)
        self.actor.flush()
        return self.session.world.counts["from queues"] != before

    def _end(self, *, is_polite: bool) -> None:  # noqa: ARG002
        self.disconnect()
