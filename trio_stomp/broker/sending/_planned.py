"""Checks a transaction as a whole before any of it is carried out."""

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import CloseReason, MemoryBudget, ProtocolError, Quota
from trio_stomp.broker.delivery import Client, Stop, Work
from trio_stomp.broker.headers import ACTION, ELSEWHERE, Removal, Schedule
from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import (
    CLIENT,
    MESSAGE_OVERHEAD_BYTES,
    STEP,
    Acknowledger,
    Consumer,
    Overflow,
    Queue,
    QueueBook,
    cost_alone,
    without_covered,
)
from trio_stomp.broker.routing import FanOut, TransactionMatches, no_table_memory
from trio_stomp.broker.sending._duplicates import id_of
from trio_stomp.broker.sending._publisher import Publisher
from trio_stomp.broker.sending._room import Needs
from trio_stomp.broker.sending._temporary import is_orphan
from trio_stomp.broker.sending._to_queue import QueueSender
from trio_stomp.frames import FrameRun, Head, head_cost
from trio_stomp.protocol import Acked

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Destination
    from trio_stomp.broker.headers import SendPlan
    from trio_stomp.broker.rules import Rights

MANY_COPIES = 1024
"""A transaction of more copies, or of as much other work, is carried out in pieces."""
PUT_COPIES = 8
"""The cost of sending a run to a destination, in copies, besides its copies."""


@define(eq=False, repr=False)
class Put:
    """A run of SENDs in a transaction.

    Args:
      head: Its header block.
      plan: The plan of the header block.
      bodies: The bodies of its messages.
      size: Their size in bytes.
      queues: The queues that it goes to.
      parts: All its destinations with the header block for each; queues first.
    """

    head: Head
    plan: "SendPlan"
    bodies: list[bytes]
    size: int
    queues: list[Queue] = field(factory=list)
    parts: "list[tuple[Destination, Head]]" = field(factory=list)

    @property
    def later(self) -> int:
        """Return the number of messages that are scheduled."""
        return len(self.bodies) if isinstance(self.plan.schedule, Schedule) else 0

    @property
    def is_aside(self) -> bool:
        """Return whether its messages are kept apart: for later, or for others."""
        return self.plan.schedule is not None

    @property
    def cost(self) -> int:
        """Return the maximum number of bytes that its messages will be charged."""
        if self.is_aside:
            return cost_alone(self.head, len(self.bodies), self.size)
        if not self.queues:
            return 0
        each = self.size + MESSAGE_OVERHEAD_BYTES * len(self.bodies)
        heads = sum(head_cost(head) for head in self.plan.renamed or (self.head,))
        return len(self.queues) * each + heads

    def release(self, memory: MemoryBudget, quota: Quota | None) -> None:
        """Release the room reserved for it, before it is sent or because it will not be."""
        memory.give_kept(self.cost, quota)
        if quota is not None:
            quota.scheduled -= self.later
        for queue in self.queues:
            queue.unexpect(len(self.bodies), self.size)


@define(eq=False, repr=False)
class Planned:
    """The sums of a transaction's actions."""

    transaction_matches: TransactionMatches
    rights: "Rights | None" = None
    """The rights of its client when it was planned."""
    names: dict[str, None] = field(factory=dict)
    topics: dict[str, None] = field(factory=dict)
    """The topics and work queues among them."""
    wanted: dict[Queue, tuple[int, int, int]] = field(factory=dict)
    """For each queue: messages, bytes of their bodies, and bytes of the largest one."""
    heads: dict[Head, None] = field(factory=dict)
    puts: list[Put] = field(factory=list)
    later: int = 0
    """Bytes charged for its messages for later or for other brokers."""
    scheduled: str = ""
    """The destination of one of those, for errors."""
    runs_later: list[FrameRun] = field(factory=list)
    """The runs of scheduled messages."""
    ids: int = 0
    """Bytes of ids for duplicate detection."""
    copies: int = 0
    """The work to carry it out, in copies."""
    survives: bool = False
    """Part of it concerns the store, so all of it is stored."""
    stored: int = 0
    """The maximum number of bytes that its messages are charged for in the store."""
    is_long: bool = False
    """It is written in pieces if it is stored."""
    may_drop: bool = True
    """Queues may drop its messages by their policy."""

    def check_room(self, overflow: Overflow, to_queues: QueueSender, quota: Quota | None) -> None:
        """Check that it fits into all its queues and into memory.

        Raises:
          ProtocolError: it does not.
        """
        charged = sum(head_cost(head) for head in self.heads if not head.waiting_count)
        each = to_queues.stored_each(quota, self.heads) if self.survives else 0
        self.stored = overflow.check(
            self.wanted,
            charged,
            later=self.later,
            name=self.scheduled,
            quota=quota,
            each=each,
            may_drop=self.may_drop,
        )

    def is_large(self, fan_out: FanOut) -> bool:
        """Return whether a run has very many subscribers by now: some may be new."""
        return any(
            fan_out.is_large(destination, put.bodies)
            for put in self.puts
            for destination, _ in put.parts
        )


@define(eq=False, repr=False)
class Planner:
    """Checks transactions as a whole, before any action is carried out."""

    publisher: Publisher
    acknowledger: Acknowledger
    queues: QueueBook
    overflow: Overflow

    def check(
        self, client: Client, actions: Sequence[FrameRun | Acked], planned: Planned, now: float
    ) -> Work:
        """Plan all actions. The last step checks whether all of them can be carried out.

        Raises:
          ProtocolError: one is not allowed, or does not fit.
        """
        planned.rights = client.rights
        for index, action in enumerate(actions):
            if isinstance(action, FrameRun):
                yield from self._plan(client, action, planned, now)
            if index % STEP == STEP - 1 or planned.copies > MANY_COPIES:
                yield
        planned.is_long = planned.transaction_matches.is_of_one or planned.copies > MANY_COPIES
        making_room: Work | None = iter(())
        while making_room is not None:
            yield from making_room
            yield from self._until_free(planned)
            self._check(client, actions, planned)
            making_room = self._making_room(client, planned, now)

    def _check(self, client: Client, actions: Sequence[FrameRun | Acked], planned: Planned) -> None:
        """Raise ``ProtocolError`` if the planned actions cannot all be carried out."""
        if client.rights is not planned.rights:  # changed meanwhile
            planned.rights = client.rights
            for head in [each.head for each in actions if isinstance(each, FrameRun)]:
                self.publisher.plan(client, head)
        for name in planned.names:
            if self.publisher.destinations.find(name) is None:
                # A later name replaced an idle destination that an earlier one had created.
                raise ProtocolError(
                    "too-many-destinations",
                    f"the transaction names {len(planned.names)} destinations, more than there is"
                    " room for (option max_destinations)",
                    reason=CloseReason.LIMIT_EXCEEDED,
                )
        for acked in [each for each in actions if isinstance(each, Acked)]:
            for id in acked.ids:
                found = self.acknowledger.find(client, acked, id, in_transaction=True)
                if found is not None:
                    planned.copies += _most(found[0])
        memory, quota = self.overflow.memory, client.quota
        if planned.ids > memory.tables_room_for(quota):
            raise no_table_memory(memory, "ids of messages", quota)
        count = sum(len(run.bodies) for run in planned.runs_later)
        self.publisher.later.scheduler.check_count(quota, planned.scheduled, count)
        log = self.publisher.log
        planned.survives = log is not None and self._survives(client, actions)
        if log is not None and planned.survives:
            log.check_accepts()
        planned.check_room(self.overflow, self.publisher.to_queues, quota)

    def _making_room(self, client: Client, planned: Planned, now: float) -> Work | None:
        """Return the work that makes room for its messages, or None if few must leave for them."""
        needs = Needs(client, client.quota, now)
        for put in planned.puts:
            for destination, head in put.parts:
                needs.add(destination, head, put.bodies)
        return self.publisher.making_room(needs)

    def _until_free(self, planned: Planned) -> Work:
        """Wait until its topics have no lines and, if it is long, no other one is being stored."""
        lines, log = self.publisher.lines, self.publisher.log
        yield from lines.until_free(planned.topics)
        while planned.is_long and log is not None and not log.may_begin:
            lines.turns.stop(Stop.BEHIND)
            yield
            yield from lines.until_free(planned.topics)

    def _plan(self, client: Client, action: FrameRun, planned: Planned, now: float) -> Work:
        head, plan = self.publisher.plan(client, action.head)
        count, size = len(action.bodies), sum(map(len, action.bodies))
        if isinstance(plan.schedule, Removal):
            raise ProtocolError(
                "unsupported",
                f"{ACTION} in a transaction: its effect could not be undone if the COMMIT failed; "
                "send it outside a transaction",
                reason=CloseReason.UNSUPPORTED,
            )
        put = Put(head, plan, action.bodies, size)
        if put.is_aside:
            planned.later += cost_alone(head, count, size)
            planned.scheduled = plan.names[0]
            planned.copies += PUT_COPIES
            planned.puts.append(put)
        if plan.schedule is ELSEWHERE:
            return
        planned.names |= dict.fromkeys(plan.names)
        self.publisher.check_questions(plan, action.bodies)
        if plan.schedule is not None:
            planned.runs_later.append(action)
            plan.schedule.first_due(self.publisher.wall.ms(now))  # or raise
            return
        largest = max(map(len, action.bodies))
        once = id_of(client, plan.options)
        for name, each in plan.heads_by_name(head):
            destination = self.publisher.destinations.ensure(name, client.quota)
            yield from self.publisher.destinations.refreshing(destination)
            planned.ids += self.publisher.duplicates.room_for(destination, once) if once else 0
            copies = (destination.bindings + len(destination.durables)) * count
            planned.copies += PUT_COPIES + len(destination.subscribers) + copies
            if self.publisher.fan_out.drops_many(destination, action.bodies):
                planned.copies += MANY_COPIES
            if destination.is_crowded:
                yield
            if destination.kind is not Kind.QUEUE:
                if destination.kind in (Kind.TOPIC, Kind.WORK):
                    planned.topics[name] = None
                yield from planned.transaction_matches.ask(action.head, each, destination)
            elif not is_orphan(client, destination):
                planned.heads[each] = None
                queue = self.queues.open(name, client.quota)
                yield from self.queues.wildcard_queues.until_entered(queue)
                put.queues.append(queue)
                before = planned.wanted.get(queue, (0, 0, 0))
                planned.wanted[queue] = (
                    before[0] + count,
                    before[1] + size,
                    max(before[2], largest),
                )
            put.parts.append((destination, each))
        put.parts.sort(key=_is_last)
        planned.puts.append(put)

    def _survives(self, client: Client, actions: Sequence[FrameRun | Acked]) -> bool:
        """Return whether any action of a transaction concerns the store."""
        held: list[tuple[Consumer, int]] = []
        for action in actions:
            if isinstance(action, FrameRun):
                _, plan = self.publisher.plan(client, action.head)
                if plan.schedule is ELSEWHERE:
                    return True
                destinations = [
                    self.publisher.destinations.ensure(name, client.quota) for name in plan.names
                ]
                if any(destination.stores(plan.options) for destination in destinations):
                    return True
                continue
            for name in action.ids:
                found = self.acknowledger.find(client, action, name, forgiving=True)
                if found is not None:
                    held.append(found)
        return any(_is_stored(consumer, number) for consumer, number in without_covered(held))


def _is_stored(consumer: Consumer, number: int) -> bool:
    """Return whether any message of an ACK is stored."""
    if consumer.ack != CLIENT:
        return consumer.unacked[number].message.stored > 0
    covered = takewhile(lambda item: item[0] <= number, consumer.unacked.items())
    return any(unacked.message.stored for _, unacked in covered)


def _most(consumer: Consumer) -> int:
    """Return the maximum number of deliveries that an ACK covers."""
    return len(consumer.unacked) if consumer.ack == CLIENT else 1


def _is_last(part: "tuple[Destination, Head]") -> bool:
    """Return the sort key: queues first, right after the room reserved for the run is released."""
    return part[0].kind is not Kind.QUEUE
