"""Checks a transaction as a whole before any of it is carried out."""

from collections.abc import Sequence
from itertools import takewhile

from attrs import define

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.broker.delivery import DEAR_S, LIMIT_S, Client, NotYet
from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import (
    CLIENT,
    Acknowledger,
    Consumer,
    Overflow,
    QueueBook,
    without_covered,
)
from trio_stomp.broker.routing import no_table_memory
from trio_stomp.broker.sending._duplicates import id_of
from trio_stomp.broker.sending._publisher import Publisher
from trio_stomp.broker.sending._room import SEND_S, Planned
from trio_stomp.broker.sending._temporary import is_orphan
from trio_stomp.frames import FrameRun, head_cost
from trio_stomp.protocol import Acked

SETTLED_S = 5e-6
"""The cost of a delivery that an ACK or NACK covers: 65,535 take 327 ms with a store."""


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
        acks = [action for action in actions if isinstance(action, Acked)]
        cost_s = SEND_S * sum(len(run.bodies) for run in runs)
        for run in runs:
            if cost_s >= DEAR_S:
                return cost_s
            cost_s += publisher.cost_of(client, run.head) * len(run.bodies)
        return cost_s + SETTLED_S * self._settled(client, acks)

    def check(self, client: Client, actions: Sequence[FrameRun | Acked], now: float) -> Planned:
        """Return the plan of all actions if all of them can be carried out.

        Raises:
          NotYet: Very many consumers must join a new queue first, or messages leave a full one.
          ProtocolError: One is not allowed, or does not fit.
        """
        planned = Planned(client, now)
        acks = [action for action in actions if isinstance(action, Acked)]
        for action in actions:
            if isinstance(action, FrameRun):
                self.add(planned, action)
        planned.cost_s += SETTLED_S * self._settled(client, acks)
        self._check(planned, acks)
        if (work := self.publisher.making_room(planned.needs)) is not None:
            raise NotYet(work)
        return planned

    def _settled(self, client: Client, acks: Sequence[Acked]) -> int:
        """Return the maximum number of deliveries that ACKs and NACKs settle.

        Raises:
          ProtocolError: An id is unknown.
        """
        found = [
            self.acknowledger.find(client, each, id, in_transaction=True)
            for each in acks
            for id in each.ids
        ]
        return sum(
            len(consumer.unacked) if consumer.ack == CLIENT else 1
            for consumer, _ in without_covered([each for each in found if each is not None])
        )

    def _check(self, planned: Planned, acks: Sequence[Acked]) -> None:
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
        memory, quota = self.overflow.memory, planned.client.quota
        if planned.ids > memory.tables_room_for(quota):
            raise no_table_memory(memory, "ids of messages", quota)
        log, to_queues = self.publisher.log, self.publisher.to_queues
        if log is None:
            planned.survives = False
        elif planned.survives or self._concern_store(planned.client, acks):
            planned.survives = True
            log.check_accepts()
        if planned.later > memory.kept_room_for(quota):
            raise self.overflow.no_memory(planned.later_name, planned.later, quota)
        heads = sum(head_cost(head) for head in planned.heads if not head.waiting_count)
        self.overflow.check(
            planned.wanted,
            planned.later + heads,
            quota=quota,
            each=to_queues.stored_each(quota, planned.heads) if planned.survives else 0,
            may_drop=True,
        )

    def add(self, planned: Planned, run: FrameRun) -> None:
        """Add a run of SENDs.

        Raises:
          NotYet: As for ``check``.
          ProtocolError: It is not allowed.
        """
        publisher, bodies, quota = self.publisher, run.bodies, planned.client.quota
        head, plan = publisher.plan(planned.client, run.head, quota)
        planned.survives |= any(publisher.storing(head, quota))
        planned.names |= dict.fromkeys(plan.here)
        publisher.check_questions(plan, bodies)
        if plan.later is not None:
            publisher.later.check(planned, head, plan, bodies)
            return
        count, size, largest = len(bodies), sum(map(len, bodies)), max(map(len, bodies))
        planned.cost_s += SEND_S * count
        once = id_of(planned.client, plan.options)
        for name, each in plan.heads_by_name(head):
            destination = publisher.destinations.open(name, quota)
            planned.cost_s += destination.cost_s * count
            planned.ids += publisher.duplicates.room_for(destination, once) if once else 0
            if destination.kind is Kind.QUEUE and not is_orphan(planned.client, destination):
                planned.heads[each] = None
                queue = self.queues.open(name, quota)
                if queue in self.queues.wildcard_queues.entering:
                    raise NotYet(self.queues.wildcard_queues.until_entered(queue))
                held = planned.wanted.get(queue, (0, 0, 0))
                planned.wanted[queue] = (held[0] + count, held[1] + size, max(held[2], largest))
            planned.needs.add(destination, each, bodies)

    def _concern_store(self, client: Client, acks: Sequence[Acked]) -> bool:
        """Return whether any message that ACKs or NACKs settle is stored."""
        found = [
            self.acknowledger.find(client, each, id, forgiving=True)
            for each in acks
            for id in each.ids
        ]
        held = without_covered([each for each in found if each is not None])
        return any(_is_stored(consumer, number) for consumer, number in held)


def _is_stored(consumer: Consumer, number: int) -> bool:
    """Return whether any message of an ACK is stored."""
    if consumer.ack != CLIENT:
        return consumer.unacked[number].stored > 0
    covered = takewhile(lambda item: item[0] <= number, consumer.unacked.items())
    return any(message.stored for _, message in covered)
