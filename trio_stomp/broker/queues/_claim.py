"""The deliveries of an ACK or NACK in a COMMIT, until the store has answered."""

from collections import deque
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker.queues._consumer import CLIENT, Consumer
from trio_stomp.broker.queues._message import Message

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Client
    from trio_stomp.broker.queues._acknowledger import Acknowledger
    from trio_stomp.protocol import Acked


@define(eq=False, repr=False)
class Claim:
    """The claimed deliveries of an ACK or NACK, until they are settled. An ``Effect``.

    They can neither time out nor return with a departing consumer. They use its credit until they
    are settled.
    """

    client: "Client"
    acknowledger: "Acknowledger"
    event: "Acked"
    parts: list[tuple[Consumer, deque[tuple[int, Message]]]] = field(factory=list)
    """Deliveries left to settle, with their numbers and consumers."""

    def take(self) -> None:
        """Take the deliveries from their consumers. Unknown ids are ignored.

        An earlier cumulative ACK of the transaction may have covered an id (A18).
        """
        for name in self.event.ids:
            found = self.acknowledger.find(self.client, self.event, name, forgiving=True)
            if found is None:
                self.acknowledger.counters.ignored += 1
                continue
            consumer, number = found
            claimed = consumer.claim(number, cumulative=consumer.ack == CLIENT)
            self.parts.append((consumer, deque(claimed.items())))

    @property
    def stored(self) -> list[int]:
        """Return the ids of the deliveries in the store."""
        each = (message.stored for _, pool in self.parts for _, message in pool)
        return [id for id in each if id]

    def commit(self, now: float) -> None:
        """Implement ``Effect.commit``: settle all deliveries. A bug returns those that are left."""
        try:
            for consumer, pool in self.parts:
                self.acknowledger.note_room(consumer)
                while pool:
                    number, message = pool[0]
                    if not self.event.negative:
                        message.stored = 0  # its end is already stored
                    self.acknowledger.settle(message, self.event, now)
                    consumer.release(number, message)
                    pool.popleft()
            storage = self.acknowledger.queues.storage
            if self.event.negative and storage is not None:
                self.client.acked = storage.log.turn  # its dead letters are written only now
        finally:
            self.withdraw(now)

    def withdraw(self, now: float) -> None:
        """Implement ``Effect.withdraw``: return the deliveries that are left to their queues."""
        for consumer, pool in self.parts:
            self.acknowledger.note_room(consumer)
            for number, message in pool:
                consumer.release(number, message)
                self.acknowledger.give_back(message, now)
        self.parts.clear()
