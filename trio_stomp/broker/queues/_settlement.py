"""Settlement of a large ACK or NACK in pieces, after it claimed its deliveries at once."""

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
"""Deliveries settled in one piece of work."""
SEEN = 1024
"""Deliveries only looked at in one piece of work."""
Pool = deque[tuple[int, Unacked]]
"""Deliveries with their numbers, in order."""


@define(eq=False, repr=False)
class Settlement:
    """The claimed deliveries of an ACK or NACK, until each is settled.

    They can neither time out nor return with a departing consumer. They use its credit until they
    are settled. If messages are stored, it is also the ``Effect`` of their records.
    """

    client: "Client"
    acknowledger: "Acknowledger"
    event: "Acked"
    parts: list[tuple[Consumer, Pool]] = field(factory=list)
    """Deliveries left to settle, with their consumers."""
    without: list[int] = field(factory=list)
    """The numbers in the run, from 1, of ACKs or NACKs without effect."""
    frozen: dict[Queue, None] = field(factory=dict)
    """Queues to which messages return. They hand out nothing until all are back."""

    @property
    def stored(self) -> list[int]:
        """Return the ids of the deliveries in the store."""
        each = (unacked.message.stored for _, pool in self.parts for _, unacked in pool)
        return [id for id in each if id]

    def freezing(self) -> "Work":
        """Freeze the queues to which messages of a NACK return."""
        queues = self.acknowledger.queues
        for _, pool in self.parts if self.event.negative else ():
            for index, (_, unacked) in enumerate(pool):
                queue = unacked.queue
                if isinstance(queue, Queue) and queue not in self.frozen:
                    self.frozen[queue] = None
                    queues.freeze((queue,))
                if index % SEEN == SEEN - 1:
                    yield

    def thawing(self) -> "Work":
        """Thaw the frozen queues: all messages are back."""
        while self.frozen:
            for _ in range(min(SETTLED, len(self.frozen))):
                queue, _ = self.frozen.popitem()
                self.acknowledger.queues.thaw((queue,))
            yield

    def settling(self, now: float) -> "Work":
        """Settle all deliveries."""
        acknowledger, event = self.acknowledger, self.event
        for consumer, pool in self.parts:
            while pool:
                acknowledger.note_room(consumer)
                for _ in range(min(SETTLED, len(pool))):
                    acknowledger.settle(pool[0][1], event, now)
                    consumer.release(*pool.popleft())
                yield

    def all_of_it(self, now: float) -> "Work":
        """Settle all deliveries. Returned messages are handed out when the last one is back."""
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
            for index, (_, unacked) in enumerate(pool):
                unacked.message.stored = 0  # its end is already stored
                if index % SEEN == SEEN - 1:
                    yield
        yield from self.all_of_it(now)

    def withdraw(self, now: float) -> None:
        """Implement ``Effect.withdraw``."""
        self.give_back(now)

    def give_back(self, now: float) -> None:
        """Return all deliveries that are not settled to their queues."""
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
    """Claim the deliveries of ACKs and NACKs, in order, up to the first error.

    This is one step, which moves at most half of a consumer's deliveries.

    Args:
      acknowledger: Finds the deliveries.
      client: The sender.
      events: The ACKs and NACKs.
      forgiving: Ignore unknown ids.

    Returns:
      The claims, and the first error, if any.
    """
    claims: list[Settlement] = []
    lasts: dict[Consumer, int] = {}
    shares: dict[Consumer, list[tuple[int, Pool]]] = {}
    error: ProtocolError | None = None
    for event in events:
        claim = Settlement(client, acknowledger, event)
        claims.append(claim)
        for index, name in enumerate(event.ids, 1):
            try:
                found = acknowledger.find(client, event, name, forgiving=forgiving, claimed=lasts)
            except ProtocolError as wrong:
                error = wrong
                break
            if found is None:
                acknowledger.counters.ignored += 1
                claim.without.append(index)
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
    """Distribute deliveries: each pool gets those up to its number that the previous did not."""
    items, numbers, start = list(taken.items()), list(taken), 0
    for number, pool in parts:
        stop = bisect_right(numbers, number)
        pool.extend(items[start:stop])
        start = stop
