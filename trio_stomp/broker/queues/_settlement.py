"""Settles a large ACK or NACK in pieces: its deliveries are taken from their consumers at once."""

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import ProtocolError
from trio_stomp.broker.queues._acknowledger import MUCH, Acknowledger
from trio_stomp.broker.queues._consumer import CLIENT, Consumer, Unacked
from trio_stomp.broker.queues._queue import Queue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trio_stomp.broker.delivery import Client, Work
    from trio_stomp.protocol import Acked

SETTLED = 64
"""Deliveries that are settled in one piece of work."""
SEEN = 1024
"""Deliveries that are only looked at in one."""
Pool = deque[tuple[int, Unacked]]
"""Deliveries in order, by number."""


@define(eq=False, repr=False)
class Settlement:
    """Deliveries that are nobody's until each is settled, whatever becomes of their consumer.

    They can neither time out nor go back with a consumer that leaves. They fill its window until
    they are settled. It is an ``Effect``, too, where the store must be told first.
    """

    client: "Client"
    acknowledger: "Acknowledger"
    event: "Acked"
    parts: list[tuple[Consumer, Pool]] = field(factory=list)
    """Deliveries left to settle, with their consumers."""
    frozen: dict[Queue, None] = field(factory=dict)
    """Into which something may come back: they hand out nothing before all of it is there."""

    @property
    def stored(self) -> list[int]:
        """Their ids in the store."""
        each = (unacked.message.stored for _, pool in self.parts for _, unacked in pool)
        return [id for id in each if id]

    def freezing(self) -> "Work":
        """Have the queues wait into which something may come back."""
        queues = self.acknowledger.queues
        for _, pool in self.parts if self.event.negative else ():
            for place, (_, unacked) in enumerate(pool):
                queue = unacked.queue
                if isinstance(queue, Queue) and queue not in self.frozen:
                    self.frozen[queue] = None
                    queues.freeze((queue,))
                if place % SEEN == SEEN - 1:
                    yield

    def thawing(self) -> "Work":
        """Let them go on: all that comes back is there."""
        while self.frozen:
            for _ in range(min(SETTLED, len(self.frozen))):
                queue, _ = self.frozen.popitem()
                self.acknowledger.queues.thaw((queue,))
            yield

    def settling(self, now: float) -> "Work":
        """Do what the ACK or NACK says."""
        acknowledger, event = self.acknowledger, self.event
        for consumer, pool in self.parts:
            while pool:
                acknowledger.note_room(consumer)
                for _ in range(min(SETTLED, len(pool))):
                    number, unacked = pool.popleft()
                    consumer.release(number, unacked)
                    acknowledger.settle(unacked, event, now)
                yield

    def all_of_it(self, now: float) -> "Work":
        """Do all: what comes back is offered to nobody before the last is there."""
        try:
            yield from self.freezing()
            yield from self.settling(now)
            yield from self.thawing()
        finally:
            self.give_back(now)

    def commit(self, now: float) -> None:
        """Implement ``Effect.commit``."""
        work = self._committed(now)
        if sum(len(pool) for _, pool in self.parts) > MUCH:
            self.acknowledger.queues.turns.carry_out(work)
        else:
            for _ in work:
                pass

    def _committed(self, now: float) -> "Work":
        for _, pool in () if self.event.negative else self.parts:
            for place, (_, unacked) in enumerate(pool):
                unacked.message.stored = 0  # the store knows
                if place % SEEN == SEEN - 1:
                    yield
        yield from self.all_of_it(now)

    def withdraw(self, now: float) -> None:
        """Implement ``Effect.withdraw``."""
        self.give_back(now)

    def give_back(self, now: float) -> None:
        """Let those be delivered again that are not settled."""
        for consumer, pool in self.parts:
            if pool:
                self.acknowledger.note_room(consumer)
            for number, unacked in pool:
                consumer.release(number, unacked)
                self.acknowledger.give_back(unacked, now)
        self.parts.clear()
        for _ in self.thawing():
            pass


def claim_all(
    acknowledger: "Acknowledger",
    client: "Client",
    events: "Iterable[Acked]",
    *,
    forgiving: bool = False,
) -> tuple[list[Settlement], ProtocolError | None]:
    """Take what ACKs and NACKs are about, in order, up to the first that is at fault.

    It is done in one step, which moves at most half of what a consumer has not acknowledged.

    Args:
      acknowledger: The acknowledger.
      client: The client.
      events: The ACKs and NACKs of the transaction.
      forgiving: Of ids that are unknown.
    """
    claims: list[Settlement] = []
    lasts: dict[Consumer, int] = {}
    shares: dict[Consumer, list[tuple[int, Pool]]] = {}
    error: ProtocolError | None = None
    for event in events:
        claim = Settlement(client, acknowledger, event)
        claims.append(claim)
        for name in event.ids:
            try:
                found = acknowledger.find(client, event, name, forgiving=forgiving, claimed=lasts)
            except ProtocolError as wrong:
                error = wrong
                break
            if found is None:
                acknowledger.counters.ignored += 1
                continue
            consumer, number = found
            if consumer.ack == CLIENT:
                pool: Pool = deque()
                lasts[consumer] = number
                shares.setdefault(consumer, []).append((number, pool))
            else:
                pool = deque(consumer.claim(number, cumulative=False).items())
            claim.parts.append((consumer, pool))
    for consumer, parts in shares.items():
        _share(consumer.claim(lasts[consumer], cumulative=True), parts)
    return claims, error


def _share(taken: dict[int, Unacked], parts: list[tuple[int, Pool]]) -> None:
    """Give each of several its part: what is up to its number, and not before's."""
    items, numbers, start = list(taken.items()), list(taken), 0
    for number, pool in parts:
        stop = bisect_right(numbers, number)
        pool.extend(items[start:stop])
        start = stop
