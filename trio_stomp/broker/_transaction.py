"""COMMIT: all that was said in a transaction, or nothing of it (T04)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp._errors import CloseReason, ProtocolError
from trio_stomp.broker._acknowledger import Acknowledger
from trio_stomp.broker._consumer import CLIENT, Unacked
from trio_stomp.broker._destination import Kind
from trio_stomp.broker._evidence import STORED
from trio_stomp.broker._log import Log
from trio_stomp.broker._message import cost_alone
from trio_stomp.broker._overflow import Overflow
from trio_stomp.broker._publisher import Publisher
from trio_stomp.broker._queues import QueueBook
from trio_stomp.broker._subscription import Client
from trio_stomp.frames import FrameRun, Head, head_cost
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
        actions = [
            each if isinstance(each, FrameRun) else self.acknowledger.resolve(client, each)
            for each in actions
        ]
        self._check(client, actions)
        with self.publisher.asker.at_once():
            return self._do(client, actions, now)

    def _do(self, client: Client, actions: Sequence[FrameRun | Acked], now: float) -> bytes:
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
            elif any(self._is_stored(client, action, name) for name in action.ids):
                return True
        return False

    def _commit_together(
        self, log: Log, client: Client, actions: Sequence[FrameRun | Acked], now: float
    ) -> bytes:
        """Have the store do all of it as one record; the clients see it after that."""
        told = b""
        with self.publisher.bound():
            for action in actions:
                if isinstance(action, FrameRun):
                    _, evidence = self.publisher.send(client, action, now, now)
                    told = told or (log.stored if log.stored in evidence else b"")
                else:
                    self._acknowledge(log, client, action)
        return told

    def _acknowledge(self, log: Log, client: Client, action: Acked) -> None:
        taken: list[Unacked] = []
        for name in action.ids:
            taken += self.acknowledger.take(client, action, name, forgiving=True)
        for unacked in taken if not action.negative else ():
            if unacked.message.stored:
                log.finish(unacked.message.stored)
        log.when_safe(_Settling(client, self.acknowledger, action, taken))

    def _is_stored(self, client: Client, action: Acked, name: bytes) -> bool:
        """Whether the store has any of what an ACK is about."""
        found = self.acknowledger.find(client, action, name, forgiving=True)
        if found is None:
            return False
        consumer, number = found
        numbers = [number]
        if consumer.ack == CLIENT:
            numbers = [each for each in consumer.unacked if each <= number]
        return any(consumer.unacked[each].message.stored for each in numbers)

    def _check(self, client: Client, actions: Sequence[FrameRun | Acked]) -> None:
        wanted: dict[Queue, tuple[int, int, int]] = {}
        names: dict[str, None] = {}
        heads: dict[Head, None] = {}
        later, scheduled = 0, ""
        for action in actions:
            if not isinstance(action, FrameRun):
                for acked in action.ids:
                    self.acknowledger.find(client, action, acked)
                continue
            head, plan = self.publisher.plan(client, action.head)
            names |= dict.fromkeys(plan.names)
            size = sum(map(len, action.bodies))
            if plan.schedule is not None:
                later += cost_alone(head, len(action.bodies), size)
                scheduled = plan.names[0]
                continue
            largest = max(map(len, action.bodies))
            for name in plan.names:
                route = self.publisher.routes.open(name)
                if route.kind is Kind.QUEUE and not self.publisher.is_orphan(client, route):
                    heads[head] = None
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
        charged = sum(head_cost(head) for head in heads if not head.kept)
        self.overflow.check(wanted, charged, later, scheduled)


@define(eq=False, repr=False)
class _Settling:
    """Deliveries whose ACK or NACK waits for the store: meanwhile they are nobody's."""

    client: Client
    acknowledger: Acknowledger
    action: Acked
    taken: list[Unacked]

    def commit(self, now: float) -> None:
        """As ``Effect``."""
        for unacked in self.taken:
            if not self.action.negative:
                unacked.message.stored = 0  # the store knows
            self.acknowledger.settle(unacked, self.action, now)

    def withdraw(self, now: float) -> None:
        """As ``Effect``."""
        for unacked in self.taken:
            self.acknowledger.give_back(unacked, now)
