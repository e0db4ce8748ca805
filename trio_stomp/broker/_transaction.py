"""COMMIT: all that was said in a transaction, or nothing of it (T04)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp._errors import CloseReason, ProtocolError
from trio_stomp.broker._acknowledger import Acknowledger
from trio_stomp.broker._consumer import CLIENT
from trio_stomp.broker._destination import Kind
from trio_stomp.broker._log import Later, Log
from trio_stomp.broker._message import MESSAGE_OVERHEAD_BYTES, Message
from trio_stomp.broker._overflow import Overflow
from trio_stomp.broker._publisher import STORED, Publisher
from trio_stomp.broker._queues import QueueBook
from trio_stomp.broker._subscription import Client
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Acked

if TYPE_CHECKING:
    from trio_stomp.broker._queue import Queue


@define(eq=False, repr=False)
class Committer:
    """Checks a transaction as a whole, then does it."""

    publisher: Publisher
    acknowledger: Acknowledger
    queues: QueueBook
    overflow: Overflow

    def commit(self, client: Client, actions: Sequence[FrameRun | Acked], now: float) -> bytes:
        """Do all actions, in order; what the RECEIPT tells of them.

        Raises:
          ProtocolError: one of them is not allowed, or does not fit; nothing was done.
        """
        self._check(client, actions)
        log = self.publisher.log
        if log is not None and self._survives(client, actions):
            return self._commit_together(log, client, actions, now)
        told = b""
        for action in actions:
            if isinstance(action, FrameRun):
                _, evidence = self.publisher.send(client, action, now, now)
                told = told or (STORED if STORED in evidence else b"")
            else:
                # An id may have been covered by a cumulative ACK before it (A18).
                self.acknowledger.apply(client, action, now, forgiving=True)
        return told

    def _survives(self, client: Client, actions: Sequence[FrameRun | Acked]) -> bool:
        """Whether anything in a transaction concerns the store."""
        for action in actions:
            if isinstance(action, FrameRun):
                _, plan = self.publisher.plan(client, action.head)
                routes = map(self.publisher.routes.open, plan.names)
                if any(route.stores(plan.options) for route in routes):
                    return True
            elif any(self._stored(client, action, name) for name in action.ids):
                return True
        return False

    def _commit_together(
        self, log: Log, client: Client, actions: Sequence[FrameRun | Acked], now: float
    ) -> bytes:
        """Have the store do all of it as one record; the clients see it after that."""
        told = b""
        self.publisher.binds = True
        try:
            with log.together(is_kept=False):
                for action in actions:
                    if isinstance(action, FrameRun):
                        _, evidence = self.publisher.send(client, action, now, now)
                        told = told or (log.stored if log.stored in evidence else b"")
                    else:
                        self._acknowledge(log, client, action)
        finally:
            self.publisher.binds = False
        return told

    def _acknowledge(self, log: Log, client: Client, action: Acked) -> None:
        done: list[Message] = []
        for name in action.ids if not action.negative else ():
            done += self._stored(client, action, name)
        for message in done:
            log.finish(message.stored)

        def settle(at: float) -> None:
            for message in done:
                message.stored = 0  # the store knows
            self.acknowledger.apply(client, action, at, forgiving=True)

        log.when_safe(Later(client, settle))

    def _stored(self, client: Client, action: Acked, name: bytes) -> list[Message]:
        """What an ACK is about, and the store has."""
        found = self.acknowledger.find(client, action, name, forgiving=True)
        if found is None:
            return []
        consumer, number = found
        numbers = [number]
        if consumer.ack == CLIENT:
            numbers = [each for each in consumer.unacked if each <= number]
        messages = (consumer.unacked[each].message for each in numbers)
        return [message for message in messages if message.stored]

    def _check(self, client: Client, actions: Sequence[FrameRun | Acked]) -> None:
        wanted: dict[Queue, tuple[int, int, int]] = {}
        names: dict[str, None] = {}
        later, scheduled = 0, ""
        for action in actions:
            if not isinstance(action, FrameRun):
                for acked in action.ids:
                    self.acknowledger.find(client, action, acked)
                continue
            _, plan = self.publisher.plan(client, action.head)
            names |= dict.fromkeys(plan.names)
            size = sum(map(len, action.bodies))
            if plan.schedule is not None:
                later += size + MESSAGE_OVERHEAD_BYTES * len(action.bodies)
                scheduled = plan.names[0]
                continue
            largest = max(map(len, action.bodies))
            for name in plan.names:
                route = self.publisher.routes.open(name)
                if route.kind is Kind.QUEUE and not self.publisher.is_orphan(client, route):
                    queue = self.queues.open(name)
                    count, before, most = wanted.get(queue, (0, 0, 0))
                    count += len(action.bodies)
                    wanted[queue] = (count, before + size, max(most, largest))
        for name in names:
            if self.publisher.routes.known(name) is None:
                # One made room for another: there is not enough for all of them.
                raise ProtocolError(
                    "too-many-destinations",
                    f"the transaction names {len(names)} destinations, more than there is room for"
                    " (option max_destinations)",
                    reason=CloseReason.LIMIT_EXCEEDED,
                )
        self.overflow.check(wanted, later, scheduled)
