"""Large ACKs and NACKs in pieces, and RECEIPTs of all."""

from collections.abc import Sequence

from attrs import define

from trio_stomp.broker._ordering import SendOrder
from trio_stomp.broker.delivery import Client, EventHistory, Work
from trio_stomp.broker.durability import Log
from trio_stomp.broker.headers import add_origin
from trio_stomp.broker.queues import Acknowledger, Settlement, claim_all
from trio_stomp.frames import encode_receipt
from trio_stomp.protocol import Acked, Event, Refused


@define(eq=False, repr=False)
class Acking:
    """Carries out large ACKs and NACKs, and answers all ACKs and NACKs."""

    acknowledger: Acknowledger
    event_history: EventHistory
    durability: SendOrder
    log: Log | None

    def begin(
        self, client: Client, event: Acked, later: Sequence[Event], now: float
    ) -> tuple[Work, Sequence[Event]]:
        """Begin an ACK or NACK of many messages. It is finished even if its client leaves.

        Args:
          client: The sender.
          event: The ACKs or NACKs.
          later: The client's events after it.
          now: Seconds of the broker's clock.

        Returns:
          The work, and the events to apply after it: ``later``, or the error.
        """
        claims, error = claim_all(self.acknowledger, client, (event,))
        if error is not None:
            add_origin(error, event)
            later = [Refused(error.without_traceback())]
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
            (claim,) = claims
            self.answer(client, event, is_stored=True, without=claim.without)

    def answer(
        self, client: Client, event: Acked, *, is_stored: bool, without: Sequence[int]
    ) -> None:
        """Send the RECEIPTs of ACKs or NACKs that were applied, as soon as they are stored.

        Args:
          client: The sender.
          event: The ACKs or NACKs.
          is_stored: Whether a message in the store is concerned.
          without: The numbers in the run, from 1, of those without effect, whose RECEIPTs say so.
        """
        if is_stored and self.log is not None:
            client.acked = self.log.turn
        if self.event_history.is_recording:
            self.event_history.acknowledged(client, event)
        for number, name in event.receipts:
            lines = b"ignored:%b\n" % event.header.encode() if number in without else b""
            self.durability.reply(client, encode_receipt(name, lines), name)
