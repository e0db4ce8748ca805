"""What a transaction comes to: what is looked at before any of it is done."""

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import CloseReason, MemoryBudget, ProtocolError, Quota
from trio_stomp.broker.delivery import Client, Stop, Work
from trio_stomp.broker.headers import ACTION, Removal
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
from trio_stomp.broker.routing import Foresight, no_table_memory
from trio_stomp.broker.sending._publisher import Publisher
from trio_stomp.broker.sending._temporary import is_orphan
from trio_stomp.broker.sending._to_queue import QueueSender
from trio_stomp.frames import FrameRun, Head, head_cost
from trio_stomp.protocol import Acked

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Destination
    from trio_stomp.broker.headers import SendPlan

MANY_COPIES = 1024
"""More than this is carried out bit by bit: copies for subscribers, and what takes as long."""
PUT_COPIES = 8
"""To send a run to a destination takes as long as so many copies, however many there are."""


@define(eq=False, repr=False)
class Put:
    """A run of a transaction, and the queues that it goes to.

    Args:
      parts: Where it goes, and its block there; queues first.
    """

    head: Head
    plan: "SendPlan"
    bodies: list[bytes]
    size: int
    queues: list[Queue] = field(factory=list)
    parts: "list[tuple[Destination, Head]]" = field(factory=list)

    @property
    def later(self) -> int:
        """Return how many messages wait for their time."""
        return len(self.bodies) if self.plan.schedule is not None else 0

    @property
    def cost(self) -> int:
        """The most bytes that it will be charged for where it waits."""
        if self.later:
            return cost_alone(self.head, len(self.bodies), self.size)
        if not self.queues:
            return 0
        each = self.size + MESSAGE_OVERHEAD_BYTES * len(self.bodies)
        heads = sum(head_cost(head) for head in self.plan.renamed or (self.head,))
        return len(self.queues) * each + heads

    def release(self, memory: MemoryBudget, quota: Quota | None) -> None:
        """Let go of the room that was kept for it: it is put there now, or never will be."""
        memory.give_kept(self.cost, quota)
        if quota is not None:
            quota.scheduled -= self.later
        for queue in self.queues:
            queue.unexpect(len(self.bodies), self.size)


@define(eq=False, repr=False)
class Planned:
    """The sums of a transaction's actions."""

    foresight: Foresight
    names: dict[str, None] = field(factory=dict)
    topics: dict[str, None] = field(factory=dict)
    """Those of them that have subscribers, who are given it bit by bit."""
    wanted: dict[Queue, tuple[int, int, int]] = field(factory=dict)
    """Messages, bytes of their bodies, and of the largest one, for each queue."""
    heads: dict[Head, None] = field(factory=dict)
    puts: list[Put] = field(factory=list)
    later: int = 0
    """What its scheduled messages cost."""
    scheduled: str = ""
    """Where one of those goes."""
    runs_later: list[FrameRun] = field(factory=list)
    """Those messages."""
    ids: int = 0
    """Bytes of the ids of messages that must not be taken twice."""
    copies: int = 0
    """How much it is to carry out."""
    survives: bool = False
    """The store is told of it, so all of it goes there."""
    stored: int = 0
    """The most that its messages are charged for there."""
    is_long: bool = False
    """It sends so much that it is written bit by bit, if it survives."""

    def check_room(self, overflow: Overflow, to_queues: QueueSender, quota: Quota | None) -> None:
        """Refuse it if it does not fit everywhere.

        Raises:
          ProtocolError: it does not.
        """
        charged = sum(head_cost(head) for head in self.heads if not head.kept)
        each = to_queues.stored_each(quota, self.heads) if self.survives else 0
        self.stored = overflow.check(
            self.wanted, charged, later=self.later, name=self.scheduled, quota=quota, each=each
        )

    def is_large(self) -> bool:
        """Return whether a run of it goes to very many by now, who came while it was planned."""
        return any(
            destination.is_large(len(put.bodies))
            for put in self.puts
            for destination, _ in put.parts
        )


@define(eq=False, repr=False)
class Planner:
    """Checks a transaction as a whole, before any of it is done."""

    publisher: Publisher
    acknowledger: Acknowledger
    queues: QueueBook
    overflow: Overflow

    def check(
        self, client: Client, actions: Sequence[FrameRun | Acked], planned: Planned, now: float
    ) -> Work:
        """Plan all actions. The last step sees whether all of them can be done.

        Raises:
          ProtocolError: one is not allowed, or does not fit.
        """
        rights = client.rights
        for place, action in enumerate(actions):
            if isinstance(action, FrameRun):
                yield from self._plan(client, action, planned, now)
            if place % STEP == STEP - 1 or planned.copies > MANY_COPIES:
                yield
        planned.is_long = planned.foresight.is_of_one or planned.copies > MANY_COPIES
        yield from self._until_free(planned)
        if client.rights is not rights:  # changed meanwhile
            for head in [each.head for each in actions if isinstance(each, FrameRun)]:
                self.publisher.plan(client, head)
        for name in planned.names:
            if self.publisher.destinations.find(name) is None:
                # One made room for another: there is not enough for all of them.
                raise ProtocolError(
                    "too-many-destinations",
                    f"the transaction names {len(planned.names)} destinations, more than there is"
                    " room for (option max_destinations)",
                    reason=CloseReason.LIMIT_EXCEEDED,
                )
        for acked in [each for each in actions if isinstance(each, Acked)]:
            for id in acked.ids:
                found = self.acknowledger.find(client, acked, id)
                if found is not None:
                    planned.copies += _most(found[0])
        memory, quota = self.overflow.memory, client.quota
        if planned.ids > memory.tables_room_for(quota):
            raise no_table_memory(memory, "ids of messages", quota)
        count = sum(len(run.bodies) for run in planned.runs_later)
        self.publisher.later.scheduler.check_count(quota, planned.scheduled, count)
        planned.survives = self.publisher.log is not None and self._survives(client, actions)
        planned.check_room(self.overflow, self.publisher.to_queues, quota)

    def _until_free(self, planned: Planned) -> Work:
        """Wait until nothing stands before it: in its topics' lines, or on the way to the store."""
        lines, log = self.publisher.lines, self.publisher.log
        yield from lines.until_free(planned.topics)
        while planned.is_long and log is not None and not log.may_begin:
            lines.turns.stop(Stop.BEHIND)
            yield
            yield from lines.until_free(planned.topics)

    def _plan(self, client: Client, action: FrameRun, planned: Planned, now: float) -> Work:
        head, plan = self.publisher.plan(client, action.head)
        planned.names |= dict.fromkeys(plan.names)
        count, size = len(action.bodies), sum(map(len, action.bodies))
        if isinstance(plan.schedule, Removal):
            raise ProtocolError(
                "unsupported",
                f"{ACTION} in a transaction: its effect could not be undone if the COMMIT failed; "
                "send it outside a transaction",
                reason=CloseReason.UNSUPPORTED,
            )
        put = Put(head, plan, action.bodies, size)
        if plan.schedule is not None:
            planned.later += cost_alone(head, count, size)
            planned.scheduled = plan.names[0]
            planned.copies += PUT_COPIES
            planned.runs_later.append(action)
            planned.puts.append(put)
            plan.schedule.first_due(self.publisher.wall.ms(now))  # or raise
            return
        largest = max(map(len, action.bodies))
        once = plan.options.dedup_id if plan.options is not None else ""
        for name, each in plan.heads_by_name(head):
            destination = self.publisher.destinations.place(name, client.quota)
            yield from self.publisher.destinations.refreshing(destination)
            self.publisher.check_question(destination, action.bodies)
            planned.ids += self.publisher.known.room_for(destination, once) if once else 0
            copies = (destination.bindings + len(destination.durables)) * count
            planned.copies += PUT_COPIES + len(destination.subscribers) + copies
            if destination.is_crowded:
                yield
            if destination.kind is not Kind.QUEUE:
                if destination.kind in (Kind.TOPIC, Kind.WORK):
                    planned.topics[name] = None
                yield from planned.foresight.ask(action.head, each, destination)
            elif not is_orphan(client, destination):
                planned.heads[each] = None
                queue = self.queues.open(name, client.quota)
                yield from self.queues.reach.until_entered(queue)
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
        """Return whether anything in a transaction concerns the store."""
        held: list[tuple[Consumer, int]] = []
        for action in actions:
            if isinstance(action, FrameRun):
                _, plan = self.publisher.plan(client, action.head)
                destinations = [
                    self.publisher.destinations.place(name, client.quota) for name in plan.names
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
    """Return whether the store has any of what an ACK is about."""
    if consumer.ack != CLIENT:
        return consumer.unacked[number].message.stored > 0
    covered = takewhile(lambda item: item[0] <= number, consumer.unacked.items())
    return any(unacked.message.stored for _, unacked in covered)


def _most(consumer: Consumer) -> int:
    """Return how many deliveries an ACK may be about, at the most."""
    return len(consumer.unacked) if consumer.ack == CLIENT else 1


def _is_last(part: "tuple[Destination, Head]") -> bool:
    """Queues come first: no room is kept for them once a run is being sent."""
    return part[0].kind is not Kind.QUEUE
