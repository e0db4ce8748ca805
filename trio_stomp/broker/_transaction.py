"""COMMIT: all that was said in a transaction, or nothing of it (T04)."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp._errors import CloseReason, ProtocolError, RemoteError
from trio_stomp._memory import MemoryBudget
from trio_stomp.broker._acknowledger import Acknowledger
from trio_stomp.broker._consumer import CLIENT, Unacked
from trio_stomp.broker._destination import Kind
from trio_stomp.broker._evidence import STORED
from trio_stomp.broker._foresight import Foresight
from trio_stomp.broker._log import Log
from trio_stomp.broker._message import MESSAGE_OVERHEAD_BYTES, cost_alone
from trio_stomp.broker._overflow import Overflow
from trio_stomp.broker._publisher import Publisher
from trio_stomp.broker._queues import QueueBook
from trio_stomp.broker._reach import STEP
from trio_stomp.broker._subscription import Client
from trio_stomp.broker._turns import Work
from trio_stomp.frames import FrameRun, Head, head_cost
from trio_stomp.protocol import Acked, Committed

if TYPE_CHECKING:
    from trio_stomp.broker._plan import SendPlan
    from trio_stomp.broker._queue import Queue

MANY_PUTS = 128
"""More messages than this are put into queues bit by bit."""


@define(eq=False, repr=False)
class Committer:
    """Checks a transaction as a whole, then does it."""

    publisher: Publisher
    acknowledger: Acknowledger
    queues: QueueBook
    overflow: Overflow

    def commit(
        self, client: Client, event: Committed, now: float, tell: Callable[[bytes], None]
    ) -> Work:
        """Do all actions, in order, and have ``tell`` tell what the RECEIPT tells of them.

        Raises:
          ProtocolError: one of them is not allowed, or does not fit; nothing was done.
        """
        planned = Planned(foresight=Foresight(self.overflow.memory))
        try:
            actions = [
                each if isinstance(each, FrameRun) else self.acknowledger.resolve(client, each)
                for each in event.actions
            ]
            yield from self._check(client, actions, planned)
            log = self.publisher.log
            if log is not None and self._survives(client, actions):
                with self.publisher.asker.at_once():
                    tell(self._commit_together(log, client, actions, planned, now))
            elif planned.is_piecemeal:
                yield from self._do_in_pieces(client, actions, planned, now)
                tell(STORED)
            else:
                with self.publisher.asker.at_once():
                    tell(self._do(client, actions, planned, now))
        except RemoteError as error:
            error.receipt_id = error.receipt_id or event.receipt
            for action in event.actions:
                if isinstance(action, Acked):
                    self.acknowledger.narrow(client, action)
            raise
        finally:
            planned.foresight.release()

    def _do_in_pieces(
        self, client: Client, actions: Sequence[FrameRun | Acked], planned: "Planned", now: float
    ) -> Work:
        """Do many actions, of which nobody sees any before the last: the room for all is kept, and
        their queues hand out nothing meanwhile.
        """
        self.overflow.memory.force_kept(sum(put.cost for put in planned.puts))
        for queue, (count, size, _) in planned.wanted.items():
            queue.expect(count, size)
        self.queues.freeze(planned.wanted)
        puts = iter(planned.puts)
        try:
            for action in actions:
                if isinstance(action, FrameRun):
                    put = next(puts)
                    put.release(self.overflow.memory)
                    self.publisher.send_to_all(client, put.head, put.plan, action.bodies, now, now)
                else:
                    self.acknowledger.apply(client, action, now, forgiving=True)
                yield
        finally:
            for put in puts:
                put.release(self.overflow.memory)
            self.queues.thaw(planned.wanted)

    def _do(
        self,
        client: Client,
        actions: Sequence[FrameRun | Acked],
        planned: "Planned",
        now: float,
    ) -> bytes:
        told = b""
        for action in actions:
            if isinstance(action, FrameRun):
                evidence = self._send(client, action, planned, now)
                told = told or (STORED if STORED in evidence else b"")
            else:
                # An id may have been covered by a cumulative ACK before it (A18).
                self.acknowledger.apply(client, action, now, forgiving=True)
        return told

    def _send(self, client: Client, run: FrameRun, planned: "Planned", now: float) -> bytes:
        fan_out = self.publisher.fan_out
        fan_out.foreseen = planned.foresight.about(run.head)
        try:
            return self.publisher.send(client, run, now, now)[1]
        finally:
            fan_out.foreseen = {}

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
        self,
        log: Log,
        client: Client,
        actions: Sequence[FrameRun | Acked],
        planned: "Planned",
        now: float,
    ) -> bytes:
        """Have the store do all of it as one record; the clients see it after that."""
        told = b""
        with self.publisher.bound():
            for action in actions:
                if isinstance(action, FrameRun):
                    evidence = self._send(client, action, planned, now)
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

    def _check(
        self, client: Client, actions: Sequence[FrameRun | Acked], planned: "Planned"
    ) -> Work:
        """Plan all actions; the last step sees whether there is room for all of them.

        Raises:
          ProtocolError: one is not allowed, or does not fit.
        """
        rights = client.rights
        for place, action in enumerate(actions):
            if isinstance(action, FrameRun):
                yield from self._plan(client, action, planned)
            else:
                planned.is_plain &= not action.negative
                for acked in action.ids:
                    self.acknowledger.find(client, action, acked)
            if place % STEP == STEP - 1 or planned.is_piecemeal:
                yield
        if client.rights is not rights:  # changed meanwhile
            for head in [each.head for each in actions if isinstance(each, FrameRun)]:
                self.publisher.plan(client, head)
        for name in planned.names:
            if self.publisher.routes.known(name) is None:
                # One made room for another: there is not enough for all of them.
                raise ProtocolError(
                    "too-many-destinations",
                    f"the transaction names {len(planned.names)} destinations, more than there is"
                    " room for (option max_destinations)",
                    reason=CloseReason.LIMIT_EXCEEDED,
                )
        charged = sum(head_cost(head) for head in planned.heads if not head.kept)
        self.overflow.check(planned.wanted, charged, planned.later, planned.scheduled)

    def _plan(self, client: Client, action: FrameRun, planned: "Planned") -> Work:
        head, plan = self.publisher.plan(client, action.head)
        planned.names |= dict.fromkeys(plan.names)
        count, size = len(action.bodies), sum(map(len, action.bodies))
        if plan.schedule is not None:
            planned.later += cost_alone(head, count, size)
            planned.scheduled = plan.names[0]
            planned.is_plain = False
            return
        largest = max(map(len, action.bodies))
        reached: list[Queue] = []
        for name, each in plan.heads_by_name(head):
            route = self.publisher.routes.open(name)
            if route.kind is Kind.QUEUE and not self.publisher.is_orphan(client, route):
                planned.heads[each] = None
                queue = self.queues.open(name)
                reached.append(queue)
                before = planned.wanted.get(queue, (0, 0, 0))
                planned.wanted[queue] = (
                    before[0] + count,
                    before[1] + size,
                    max(before[2], largest),
                )
            elif route.kind is not Kind.QUEUE:
                yield from planned.foresight.ask(action.head, each, route)
        is_once = plan.options is not None and bool(plan.options.dedup_id)
        planned.is_plain &= len(reached) == len(plan.names) and not is_once
        planned.puts.append(Put(head, plan, reached, count, size))
        planned.messages += len(reached)


@define(eq=False, repr=False)
class Put:
    """A run of a transaction, and the queues that it goes to."""

    head: Head
    plan: "SendPlan"
    queues: "list[Queue]"
    count: int
    size: int

    @property
    def cost(self) -> int:
        """The most bytes that it will be charged."""
        each = self.size + MESSAGE_OVERHEAD_BYTES * self.count
        heads = sum(head_cost(head) for head in self.plan.renamed or (self.head,))
        return len(self.queues) * each + heads

    def release(self, memory: MemoryBudget) -> None:
        """Let go of the room that was kept for it: it is put there now, or never will be."""
        memory.give_kept(self.cost)
        for queue in self.queues:
            queue.unexpect(self.count, self.size)


@define(eq=False, repr=False)
class Planned:
    """What the actions of a transaction come to."""

    foresight: Foresight
    names: dict[str, None] = field(factory=dict)
    wanted: "dict[Queue, tuple[int, int, int]]" = field(factory=dict)
    """Messages, bytes of their bodies, and of the largest one, for each queue."""
    heads: dict[Head, None] = field(factory=dict)
    later: int = 0
    """What its scheduled messages cost."""
    scheduled: str = ""
    """Where one of those goes."""
    puts: list[Put] = field(factory=list)
    messages: int = 0
    """Runs that it puts into queues."""
    is_plain: bool = True
    """It sends to queues at once and acknowledges, and no more."""

    @property
    def is_piecemeal(self) -> bool:
        """Whether it is much, and may be done bit by bit."""
        return self.is_plain and self.messages > MANY_PUTS


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
