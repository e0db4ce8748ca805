"""Carry out large ACKs and NACKs in pieces, and answer each once its outcome is safe."""

from collections.abc import Sequence

from attrs import define

from trio_stomp.broker._ordering import SendOrder
from trio_stomp.broker.delivery import Client, EventHistory, Work
from trio_stomp.broker.durability import Log
from trio_stomp.broker.headers import asked_receipt, quoted
from trio_stomp.broker.queues import Acknowledger, Settlement, claim_all
from trio_stomp.frames import encode_receipt
from trio_stomp.protocol import Acked, Event, Refused


@define(eq=False, repr=False)
class Acking:
    """Carries out large ACKs and NACKs, and answers all."""

    acknowledger: Acknowledger
    event_history: EventHistory
    durability: SendOrder
    log: Log | None

    def begin(
        self, client: Client, event: Acked, later: Sequence[Event], now: float
    ) -> tuple[Work, Sequence[Event]]:
        """Begin an ACK or NACK of many messages. It is carried out even if its client goes.

        Args:
          client: The client.
          event: The ACK or NACK.
          later: The events that the client sent after it.
          now: The time, in seconds of the broker's clock.

        Returns:
          The work that is left, and the events to carry out after it.
        """
        claims, error = claim_all(self.acknowledger, client, (event,))
        if error is not None:
            error.receipt_id, error.excerpt = asked_receipt(event), quoted(event)
            later = [Refused(error.kept())]
        return self._settling(client, event, claims, now, is_whole=error is None), later

    def _settling(
        self,
        client: Client,
        event: Acked,
        claims: Sequence[Settlement],
        now: float,
        *,
        is_whole: bool,
    ) -> Work:
        for claim in claims:
            yield from claim.all_of_it(now)
        if is_whole:
            self.answer(client, event, is_stored=True)

    def answer(self, client: Client, event: Acked, *, is_stored: bool) -> None:
        """Answer an ACK or NACK that was carried out, once it is safe."""
        if is_stored and self.log is not None:
            client.acked = self.log.turn
        if self.event_history.is_kept:
            self.event_history.acknowledged(client, event)
        for _, name in event.receipts:
            self.durability.tell(client, encode_receipt(name), name)
