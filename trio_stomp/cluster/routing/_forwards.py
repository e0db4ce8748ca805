"""Messages for other partitions, until these have them: what the core of a partition takes later.

A transaction or a composite SEND may name destinations that other partitions have. Its messages for
each of them are stored in one record with the rest of it, in a place that no queue, policy or list
knows, and are sent on once that is stored. Each has an id for duplicate detection that follows from
its id here, so it can be sent on again after a crash.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from attrs import define, evolve, field

from trio_stomp.base import CloseReason, Identity, ProtocolError, Quota, noop
from trio_stomp.broker import FORWARDS, Broker, Client
from trio_stomp.broker.delivery import NotYet, Stop, Work
from trio_stomp.broker.headers import (
    PLAIN_SEND,
    PRIORITY_DEFAULT,
    Removal,
    SendOutcome,
    SendPlan,
    committed,
    decode_head,
    make_plan,
    owner_line,
    split_owner,
)
from trio_stomp.broker.names import Kind, check_length, classify
from trio_stomp.broker.queues import cost_alone, head_lines
from trio_stomp.broker.sending import Later, Planned, SendContext
from trio_stomp.frames import FrameRun, Head
from trio_stomp.store import Put

if TYPE_CHECKING:
    from trio_stomp.broker import Log
    from trio_stomp.store import Stored

FORWARD = "x-trio-stomp-forward"
"""The header with the id of a message that a partition sends on, removed by the next."""
PATIENCE_S = 10.0
"""How long a client waits for others to have its messages, before it may send to them itself."""


@define(eq=False, repr=False)
class Forward:
    """Messages for one destination of another partition, with one header block.

    Args:
      destination: The destination.
      head: Their header block.
      bodies: Their bodies.
      ids: Their ids in the store.
      owner: The sender; None = the broker.
      quota: The quota charged for them.
      cost: Bytes charged for them.
      client: The sender's connection; None = it had ended when this broker began.
    """

    destination: str
    head: Head
    bodies: Sequence[bytes]
    ids: Sequence[int]
    owner: Identity | None
    quota: Quota | None
    cost: int
    client: Client | None = None


@define(eq=False, repr=False)
class Forwards:
    """Stores messages for other partitions, and keeps them until these have them.

    Implements ``Later``.

    Args:
      own: Takes what else is not sent at once.
      core: Returns the core, which has a store.
      lacks: Returns whether another partition has a destination.
      waiting: Stored messages that others do not have yet, in the order of their SENDs.
      on_new: Called when messages are stored, to send them on.
    """

    own: Later
    core: Callable[[], Broker]
    lacks: Callable[[str], bool]
    waiting: dict[Forward, None] = field(factory=dict)
    on_new: Callable[[Forward], None] = noop
    _by_client: dict[Client, dict[Forward, None]] = field(factory=dict)
    """The same, of connected clients."""

    @property
    def _log(self) -> "Log":
        log = self.core().log
        assert log is not None
        return log

    def plan(self, head: Head) -> SendPlan:
        """Implement ``Later.plan``.

        Raises:
          ProtocolError: As for ``make_plan``, or it cannot be sent on.
        """
        plan = head.plan
        if not isinstance(plan, SendPlan):
            plan = head.plan = self._make_plan(head)
        return plan

    def _make_plan(self, head: Head) -> SendPlan:
        core = self.core()
        plan = make_plan(head, core.dialect)
        here = tuple([name for name in plan.names if not self.lacks(name)])
        if here == plan.names or isinstance(plan.later, Removal):
            return plan
        for name in plan.names:
            check_length(name, core.policies.max_destination_bytes)
            if classify(name) is Kind.STREAM:
                raise ProtocolError(
                    "partitions-apart",
                    f"destination:{name[:80]} lies in another partition of the cluster, and a"
                    " request to a stream cannot be sent on: send it alone, outside of a"
                    " transaction",
                    reason=CloseReason.UNSUPPORTED,
                )
        return evolve(plan, later=self, here=here)

    def honest(self, client: Client, head: Head, honest: Head) -> tuple[Head, SendPlan]:
        """Implement ``Later.honest``.

        Only a broker that sends messages on can give them an id that is none of their sender's.
        """
        plan, name = self.plan(honest), head.get(FORWARD)
        if name and client.is_forwarder:
            options = evolve(plan.options or PLAIN_SEND, dedup_id=name, dedup_line=(FORWARD, ""))
            plan = honest.plan = evolve(plan, options=options)
        return honest, plan

    def check(self, planned: Planned, head: Head, plan: SendPlan, bodies: list[bytes]) -> None:
        """Implement ``Later.check``."""
        if plan.later is not self:
            self.own.check(planned, head, plan, bodies)
        elif len(plan.names) == 1:
            planned.keep(plan.names[0], head, bodies)
        else:
            for run in _parts(head, plan, bodies):
                self.core().committer.planner.add(planned, run)

    def take(
        self, context: SendContext, head: Head, plan: SendPlan, bodies: list[bytes]
    ) -> SendOutcome:
        """Implement ``Later.take``. A SEND to several partitions is a transaction of its own."""
        if plan.later is not self:
            return self.own.take(context, head, plan, bodies)
        if len(plan.names) == 1:
            return self._keep(context, head, plan, bodies)
        runs, client = _parts(head, plan, bodies), context.client
        if client is not None and not context.in_commit:
            return self.core().committer.carry_out(client, runs, context.now, context.answers)
        publisher = self.core().publisher
        group = nullcontext() if context.is_atomic else self._log.atomically(must_retry=True)
        with group:
            return committed([publisher.send(context.as_atomic(), run)[1] for run in runs])

    def _keep(
        self, context: SendContext, head: Head, plan: SendPlan, bodies: list[bytes]
    ) -> SendOutcome:
        """Store messages for another partition, and return the outcome of their SEND.

        Raises:
          ProtocolError: There is no memory for them.
        """
        core, log, client, quota = self.core(), self._log, context.client, context.quota
        cost = cost_alone(head, len(bodies), sum(map(len, bodies)))
        if cost > core.memory.kept_room_for(quota):
            raise core.overflow.no_memory(head.destination or "", cost, quota)
        owner = client.identity if client is not None else None
        ((name, own),) = plan.heads_by_name(head)
        item = Forward(name, own, bodies, (), owner=owner, quota=quota, cost=cost, client=client)
        put = Put(
            FORWARDS,
            first=log.take_numbers(len(bodies)),
            head=(b"" if owner is None else owner_line(owner)) + head_lines(head),
            bodies=bodies,
            level=PRIORITY_DEFAULT,
            received_ms=core.wall.ms(context.now),
        )
        first = log.put(put, must_retry=client is None)
        log.when_safe(_Stored(self, item, client))
        core.memory.force_kept(cost, quota)
        item.ids = range(first, first + len(bodies))
        return log.stored

    def restore(self, place: str, read: "Callable[[], Iterable[Stored]]") -> None:
        """Implement ``Later.restore``."""
        if place != FORWARDS:
            self.own.restore(place, read)
            return
        core = self.core()
        owners: dict[Identity | None, Identity | None] = {}
        for run in read():
            head, owner = split_owner(decode_head(run.head))
            # Accepted under other limits, perhaps: they are not checked again.
            ((name, own),) = make_plan(head, core.dialect).heads_by_name(head)
            quota, bodies = core.quotas.left_by(owner), run.bodies
            cost = cost_alone(head, len(bodies), sum(map(len, bodies)))
            core.memory.force_kept(cost, quota)
            owner = owners.setdefault(owner, owner)
            item = Forward(name, own, bodies, run.ids, owner=owner, quota=quota, cost=cost)
            self.waiting[item] = None

    def add(self, item: Forward) -> None:
        """Add stored messages, which may be sent on."""
        self.waiting[item] = None
        if item.client is not None:
            self._by_client.setdefault(item.client, {})[item] = None
        self.on_new(item)

    def is_done(self, client: Client, now: float) -> bool:
        """Implement ``Later.is_done``: others have all stored messages of the client.

        Then it can send to these others itself without overtaking them.
        """
        if client not in self._by_client:
            return True
        if client.is_gone:
            return False
        raise NotYet(self._until_sent(client, now))

    def _until_sent(self, client: Client, now: float) -> Work:
        """Wait until others have all stored messages of a client, or it is gone.

        Raises:
          ProtocolError: They do not accept them for too long.
        """
        until, core = now + PATIENCE_S, self.core()
        timer = core.timers.call_at(until, lambda _: core.turns.resume(client))
        try:
            while (own := self._by_client.get(client)) and not client.is_gone:
                if core.turns.now >= until:
                    name = next(iter(own)).destination
                    raise ProtocolError(
                        "partition-behind",
                        f"for {PATIENCE_S:g} s the partition of {name[:80]} has not accepted"
                        " messages of an earlier transaction of this connection, which later ones"
                        " must not overtake: connect and send again when it accepts messages",
                        reason=CloseReason.LIMIT_EXCEEDED,
                    )
                core.turns.stop(Stop.BLOCKED)
                yield
        finally:
            core.timers.cancel(timer)

    def finish(self, item: Forward) -> None:
        """Forget messages that others have, also in the store."""
        del self.waiting[item]
        if item.client is not None:
            own = self._by_client[item.client]
            del own[item]
            if not own:
                del self._by_client[item.client]
                self.core().turns.resume(item.client)
        self._log.finish_all(list(item.ids))
        self.give_back(item)

    def give_back(self, item: Forward) -> None:
        """Refund the memory of messages."""
        self.core().memory.give_kept(item.cost, item.quota)


def _parts(head: Head, plan: SendPlan, bodies: list[bytes]) -> list[FrameRun]:
    """Return a SEND to several partitions as one for each of its destinations.

    So messages for this partition are not sent on, and stay in the order of their sender.
    """
    return [FrameRun(each, bodies, []) for _, each in plan.heads_by_name(head)]


def forwards_of(broker: Broker) -> Forwards | None:
    """Return what the core of a partition keeps for others; None = it is not of a partition."""
    later = broker.publisher.later
    return later if isinstance(later, Forwards) else None


@define(eq=False, repr=False)
class _Stored:
    """The effect of storing messages: they may be sent on."""

    forwards: Forwards
    item: Forward
    client: Client | None

    def commit(self, _now: float) -> None:
        """Implement ``Effect.commit``."""
        self.forwards.add(self.item)

    def withdraw(self, _now: float) -> None:
        """Implement ``Effect.withdraw``."""
        self.forwards.give_back(self.item)
