"""Messages for other brokers of a cluster, until these have them.

A transaction or a composite SEND may name destinations that other brokers have. Its messages for
each of them are stored in one record with the rest of it, in a place that no queue, policy or list
knows, and are sent on once that is stored. Each has an id for duplicate detection that follows from
its id here, so it can be sent on again after a crash.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import define, evolve, field

from trio_stomp.base import CloseReason, Identity, MemoryBudget, ProtocolError, Quota, noop
from trio_stomp.broker.delivery import Client, Stop, Timers, Turns, WallTime, Work
from trio_stomp.broker.durability import Log
from trio_stomp.broker.headers import (
    ELSEWHERE,
    PLAIN_SEND,
    PRIORITY_DEFAULT,
    Dialect,
    Removal,
    SendOutcome,
    SendPlan,
    make_plan,
    owner_line,
)
from trio_stomp.broker.names import Kind, check_length, classify
from trio_stomp.broker.queues import Overflow, cost_alone, head_lines
from trio_stomp.frames import Head
from trio_stomp.store import StoreError

if TYPE_CHECKING:
    from trio_stomp.store import PlaceState

FORWARD = "x-trio-stomp-forward"
"""The header with the id of a message that a broker of a cluster sends on, removed by the next."""
FORWARDS = "forwards:"
"""Their place in the store."""
PATIENCE_S = 10.0
"""How long a client waits for others to have its messages, before it may send to them itself."""


def check_none(places: "Mapping[tuple[str, int], PlaceState]") -> None:
    """Check that a store has no messages for other brokers, before a broker without others uses it.

    Args:
      places: The store's, by name and level.

    Raises:
      StoreError: It has: nobody would send them on.
    """
    count = sum(state.count for (place, _), state in places.items() if place == FORWARDS)
    if count:
        raise StoreError(
            f"the store has {count} messages of transactions for other partitions of a cluster,"
            " which a broker without partitions cannot send on: move the store into a new cluster"
            " with partitions (trio-stomp cluster import --cluster-partitions N)"
        )


@define(eq=False, repr=False)
class Forward:
    """Messages for one destination of another broker, with one header block.

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
    """Stores messages for other brokers, and keeps them until these have them.

    Args:
      dialect: The dialect of clients.
      max_destination_bytes: The longest name of a destination.
      log: The log; None = there is no store, so that nothing is for others.
      turns: Lets clients wait for later turns.
      timers: Ends their waiting.
      waiting: Stored messages that others do not have yet, in the order of their SENDs.
      is_elsewhere: Returns whether another broker has a destination; None = there is no other.
      on_new: Called when messages are stored, to send them on.
    """

    dialect: Dialect
    max_destination_bytes: int
    memory: MemoryBudget
    overflow: Overflow
    wall: WallTime
    log: Log | None
    turns: Turns
    timers: Timers
    waiting: dict[Forward, None] = field(factory=dict)
    is_elsewhere: Callable[[str], bool] | None = None
    on_new: Callable[[Forward], None] = noop
    _by_client: dict[Client, dict[Forward, None]] = field(factory=dict)
    """The same, of connected clients."""

    def lacks(self, name: str) -> bool:
        """Return whether another broker has a destination."""
        return self.is_elsewhere is not None and self.is_elsewhere(name)

    def plan(self, head: Head) -> SendPlan:
        """Return the plan of a header block; its ``schedule`` tells if it is for other brokers.

        It is cached on the block.

        Raises:
          ProtocolError: As for ``make_plan``, or it cannot be sent on.
        """
        plan = head.plan
        if not isinstance(plan, SendPlan):
            plan = head.plan = self._make_plan(head)
        return plan

    def honest(self, client: Client, head: Head, honest: Head) -> tuple[Head, SendPlan]:
        """Return the header block without headers that only the broker may set, and its plan.

        Only a broker that sends messages on can give them an id that is none of their sender's.
        """
        plan, name = self.plan(honest), head.get(FORWARD)
        if name and client.is_forwarder:
            options = evolve(plan.options or PLAIN_SEND, dedup_id=name, is_forward=True)
            plan = honest.plan = evolve(plan, options=options)
        return honest, plan

    def _make_plan(self, head: Head) -> SendPlan:
        plan = make_plan(head, self.dialect)
        if self.is_elsewhere is None or isinstance(plan.schedule, Removal):
            return plan
        if not any(map(self.is_elsewhere, plan.names)):
            return plan
        for name in plan.names:
            check_length(name, self.max_destination_bytes)
            if classify(name) is Kind.STREAM:
                raise ProtocolError(
                    "partitions-apart",
                    f"destination:{name[:80]} lies in another partition of the cluster, and a"
                    " request to a stream cannot be sent on: send it alone, outside of a"
                    " transaction",
                    reason=CloseReason.UNSUPPORTED,
                )
        return evolve(plan, schedule=ELSEWHERE)

    def keep(
        self,
        client: Client | None,
        quota: Quota | None,
        head: Head,
        bodies: Sequence[bytes],
        now: float,
    ) -> SendOutcome:
        """Store messages, and return the outcome of their SEND.

        Args:
          client: The sender; None = the broker.
          quota: The quota charged for them.
          head: Their header block, with one destination.
          bodies: Their bodies.
          now: The time, in seconds of the broker's clock.

        Raises:
          ProtocolError: There is no memory for them.
        """
        log = self.log
        assert log is not None
        cost = cost_alone(head, len(bodies), sum(map(len, bodies)))
        if cost > self.memory.kept_room_for(quota):
            raise self.overflow.no_memory(head.destination or "", cost, quota)
        owner = client.identity if client is not None else None
        ((name, own),) = self.plan(head).heads_by_name(head)
        item = Forward(name, own, bodies, (), owner=owner, quota=quota, cost=cost, client=client)
        first = log.put(
            FORWARDS,
            head=(b"" if owner is None else owner_line(owner)) + head_lines(head),
            bodies=bodies,
            level=PRIORITY_DEFAULT,
            received_ms=self.wall.ms(now),
            expires_ms=0,
            must_retry=client is None,
        )
        log.when_safe(_Stored(self, item, client))
        self.memory.force_kept(cost, quota)
        item.ids = range(first, first + len(bodies))
        return log.stored

    def restore(
        self,
        head: Head,
        bodies: Sequence[bytes],
        ids: Sequence[int],
        *,
        owner: Identity | None,
        quota: Quota | None,
    ) -> None:
        """Restore stored messages. Arguments as those of ``Forward``."""
        cost = cost_alone(head, len(bodies), sum(map(len, bodies)))
        self.memory.force_kept(cost, quota)
        # Accepted under other limits, perhaps: they are not checked again.
        ((name, own),) = make_plan(head, self.dialect).heads_by_name(head)
        item = Forward(name, own, bodies, ids, owner=owner, quota=quota, cost=cost)
        self.waiting[item] = None

    def add(self, item: Forward) -> None:
        """Add stored messages, which may be sent on."""
        self.waiting[item] = None
        if item.client is not None:
            self._by_client.setdefault(item.client, {})[item] = None
        self.on_new(item)

    def holds(self, client: Client) -> bool:
        """Return whether others do not have all stored messages of a client yet."""
        return client in self._by_client

    def until_sent(self, client: Client, now: float) -> Work:
        """Wait until others have all stored messages of a client, or it is gone.

        Then it can send to these others itself without overtaking them.

        Raises:
          ProtocolError: They do not accept them for too long.
        """
        until = now + PATIENCE_S
        timer = self.timers.call_at(until, lambda _: self.turns.resume(client))
        try:
            while (own := self._by_client.get(client)) and not client.is_gone:
                if self.turns.now >= until:
                    name = next(iter(own)).destination
                    raise ProtocolError(
                        "partition-behind",
                        f"for {PATIENCE_S:g} s the partition of {name[:80]} has not accepted"
                        " messages of an earlier transaction of this connection, which later ones"
                        " must not overtake: connect and send again when it accepts messages",
                        reason=CloseReason.LIMIT_EXCEEDED,
                    )
                self.turns.stop(Stop.BLOCKED)
                yield
        finally:
            self.timers.cancel(timer)

    def finish(self, item: Forward) -> None:
        """Forget messages that others have, also in the store."""
        assert self.log is not None
        del self.waiting[item]
        if item.client is not None:
            own = self._by_client[item.client]
            del own[item]
            if not own:
                del self._by_client[item.client]
                self.turns.resume(item.client)
        self.log.finish_all(list(item.ids))
        self.memory.give_kept(item.cost, item.quota)


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
        self.forwards.memory.give_kept(self.item.cost, self.item.quota)
