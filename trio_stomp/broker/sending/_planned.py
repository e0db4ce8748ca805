"""Checks a transaction as a whole before any of it is carried out."""

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.broker.delivery import DEAR_S, LIMIT_S, Client, NotYet
from trio_stomp.broker.headers import ACTION, ELSEWHERE, Removal
from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import (
    CLIENT,
    Acknowledger,
    Consumer,
    Overflow,
    Queue,
    QueueBook,
    cost_alone,
    without_covered,
)
from trio_stomp.broker.routing import no_table_memory
from trio_stomp.broker.sending._duplicates import id_of
from trio_stomp.broker.sending._publisher import Part, Publisher
from trio_stomp.broker.sending._room import Needs
from trio_stomp.broker.sending._temporary import is_orphan
from trio_stomp.frames import FrameRun, Head, head_cost
from trio_stomp.protocol import Acked

if TYPE_CHECKING:
    from trio_stomp.broker.headers import SendPlan

SEND_S = 45e-6
"""The cost of a SEND of a transaction besides its subscribers: 1,023 to eight queues take 44 ms."""
SETTLED_S = 5e-6
"""The cost of a delivery that an ACK or NACK covers: 65,535 take 327 ms with a store."""


@define(eq=False, repr=False)
class Planned:
    """The sums of a transaction's actions."""

    names: dict[str, None] = field(factory=dict)
    wanted: dict[Queue, tuple[int, int, int]] = field(factory=dict)
    """For each queue: messages, bytes of their bodies, and bytes of the largest one."""
    heads: dict[Head, None] = field(factory=dict)
    parts: list[tuple[Part, list[bytes]]] = field(factory=list)
    """The destinations of its runs, with the bodies."""
    later: int = 0
    """Bytes charged for its messages for later or for other brokers."""
    scheduled: str = ""
    """The destination of one of those, for errors."""
    runs_later: list[FrameRun] = field(factory=list)
    """The runs of scheduled messages."""
    ids: int = 0
    """Bytes of ids for duplicate detection."""
    cost_s: float = 0.0
    """The cost of all actions, in seconds."""
    survives: bool = False
    """Part of it concerns the store, so all of it is stored."""


@define(eq=False, repr=False)
class Planner:
    """Checks transactions as a whole, before any action is carried out."""

    publisher: Publisher
    acknowledger: Acknowledger
    queues: QueueBook
    overflow: Overflow

    def cost_of(self, client: Client, actions: Sequence[FrameRun | Acked]) -> float:
        """Return what a transaction costs, in seconds, or a part of it that is dear."""
        publisher = self.publisher
        runs = [action for action in actions if isinstance(action, FrameRun)]
        cost_s = SEND_S * sum(len(run.bodies) for run in runs)
        for run in runs:
            if cost_s >= DEAR_S:
                return cost_s
            cost_s += publisher.cost_of(client, run.head) * len(run.bodies)
        return cost_s + SETTLED_S * self._settled(client, actions)

    def check(self, client: Client, actions: Sequence[FrameRun | Acked], now: float) -> Planned:
        """Return the plan of all actions if all of them can be carried out.

        Raises:
          NotYet: Very many consumers must join a new queue first, or messages leave a full one.
          ProtocolError: One is not allowed, or does not fit.
        """
        planned = Planned()
        for action in actions:
            if isinstance(action, FrameRun):
                self._plan(client, action, planned, now)
        planned.cost_s += SETTLED_S * self._settled(client, actions)
        self._check(client, actions, planned)
        needs = Needs(client, client.quota, now)
        for (destination, head), bodies in planned.parts:
            needs.add(destination, head, bodies)
        if (work := self.publisher.making_room(needs)) is not None:
            raise NotYet(work)
        return planned

    def _settled(self, client: Client, actions: Sequence[FrameRun | Acked]) -> int:
        """Return the maximum number of deliveries that the ACKs and NACKs settle.

        Raises:
          ProtocolError: An id is unknown.
        """
        found = [
            self.acknowledger.find(client, action, id, in_transaction=True)
            for action in actions
            if isinstance(action, Acked)
            for id in action.ids
        ]
        return sum(
            len(consumer.unacked) if consumer.ack == CLIENT else 1
            for consumer, _ in without_covered([each for each in found if each is not None])
        )

    def _check(self, client: Client, actions: Sequence[FrameRun | Acked], planned: Planned) -> None:
        """Raise ``ProtocolError`` if the planned actions cannot all be carried out."""
        if planned.cost_s > LIMIT_S:
            raise ProtocolError(
                "transaction-too-large",
                f"the transaction would take {planned.cost_s * 1000:.0f} ms at its subscribers, of"
                f" {LIMIT_S * 1000:.0f} that are allowed; COMMIT fewer messages at a time",
                reason=CloseReason.LIMIT_EXCEEDED,
            )
        for name in planned.names:
            if self.publisher.destinations.find(name) is None:
                # A later name replaced an idle destination that an earlier one had created.
                raise ProtocolError(
                    "too-many-destinations",
                    f"the transaction names {len(planned.names)} destinations, more than there is"
                    " room for (option max_destinations)",
                    reason=CloseReason.LIMIT_EXCEEDED,
                )
        memory, quota = self.overflow.memory, client.quota
        if planned.ids > memory.tables_room_for(quota):
            raise no_table_memory(memory, "ids of messages", quota)
        count = sum(len(run.bodies) for run in planned.runs_later)
        self.publisher.later.scheduler.check_count(quota, planned.scheduled, count)
        log, to_queues = self.publisher.log, self.publisher.to_queues
        planned.survives = log is not None and self._survives(client, actions)
        if log is not None and planned.survives:
            log.check_accepts()
        self.overflow.check(
            planned.wanted,
            sum(head_cost(head) for head in planned.heads if not head.waiting_count),
            later=planned.later,
            name=planned.scheduled,
            quota=quota,
            each=to_queues.stored_each(quota, planned.heads) if planned.survives else 0,
            may_drop=True,
        )

    def _plan(self, client: Client, action: FrameRun, planned: Planned, now: float) -> None:
        publisher, bodies = self.publisher, action.bodies
        head, plan = publisher.plan(client, action.head, client.quota)
        count, size = len(bodies), sum(map(len, bodies))
        planned.cost_s += SEND_S * count
        if isinstance(plan.schedule, Removal):
            raise ProtocolError(
                "unsupported",
                f"{ACTION} in a transaction: its effect could not be undone if the COMMIT failed; "
                "send it outside a transaction",
                reason=CloseReason.UNSUPPORTED,
            )
        if plan.schedule is not None:
            planned.later += cost_alone(head, count, size)
            planned.scheduled = plan.names[0]
        if plan.schedule is ELSEWHERE:
            return
        planned.names |= dict.fromkeys(plan.names)
        publisher.check_questions(plan, bodies)
        if plan.schedule is not None:
            planned.runs_later.append(action)
            plan.schedule.first_due(publisher.wall.ms(now))  # or raise
            return
        self._plan_parts(client, action, head, plan, planned)

    def _plan_parts(
        self, client: Client, action: FrameRun, head: Head, plan: "SendPlan", planned: Planned
    ) -> None:
        """Add the destinations of a run."""
        publisher, bodies = self.publisher, action.bodies
        count, size, largest = len(bodies), sum(map(len, bodies)), max(map(len, bodies))
        once = id_of(client, plan.options)
        for name, each in plan.heads_by_name(head):
            destination = publisher.destinations.open(name, client.quota)
            planned.parts.append(((destination, each), bodies))
            planned.cost_s += destination.cost_s * count
            planned.ids += publisher.duplicates.room_for(destination, once) if once else 0
            if destination.kind is not Kind.QUEUE or is_orphan(client, destination):
                continue
            planned.heads[each] = None
            queue = self.queues.open(name, client.quota)
            if queue in self.queues.wildcard_queues.entering:
                raise NotYet(self.queues.wildcard_queues.until_entered(queue))
            before = planned.wanted.get(queue, (0, 0, 0))
            planned.wanted[queue] = (before[0] + count, before[1] + size, max(before[2], largest))

    def _survives(self, client: Client, actions: Sequence[FrameRun | Acked]) -> bool:
        """Return whether any action of a transaction concerns the store."""
        held: list[tuple[Consumer, int]] = []
        for action in actions:
            if isinstance(action, FrameRun):
                _, plan = self.publisher.plan(client, action.head, client.quota)
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
        return consumer.unacked[number].stored > 0
    covered = takewhile(lambda item: item[0] <= number, consumer.unacked.items())
    return any(message.stored for _, message in covered)
