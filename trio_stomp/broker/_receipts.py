"""RECEIPTs."""

from collections.abc import Sequence
from functools import partial

from attrs import define

from trio_stomp.broker._ordering import SendOrder
from trio_stomp.broker.delivery import Client, EventHistory
from trio_stomp.broker.durability import Callback
from trio_stomp.broker.headers import SendOutcome
from trio_stomp.frames import FrameRun, encode_receipt
from trio_stomp.protocol import Acked, Committed


@define(eq=False, repr=False)
class Receipts:
    """Sends the RECEIPTs of frames."""

    durability: SendOrder
    event_history: EventHistory

    def give(self, client: Client, name: bytes, lines: bytes = b"") -> None:
        """Send a RECEIPT, after the client's earlier frames are stored.

        Args:
          client: The client.
          name: The id, escaped.
          lines: Further header lines.
        """
        frame = encode_receipt(name, lines)
        if client.awaited:
            self.durability.reply(client, frame, name)
        else:
            client.outbox.stage_frame(frame)

    def of_run(self, client: Client, run: FrameRun, done: int, outcome: SendOutcome) -> None:
        """Send the RECEIPTs of a run of SENDs, for the messages that were taken or dropped.

        Args:
          client: The sender.
          run: The SENDs.
          done: The number of these messages.
          outcome: Their outcome.
        """
        for count, name in run.receipts:
            if count <= done:
                self.give(client, name, outcome.header_lines(count - 1))

    def of_commit(self, client: Client, event: Committed, outcome: SendOutcome) -> None:
        """Send the RECEIPTs of a COMMIT, and of SENDs in its transaction that wait for it."""
        log = self.durability.log
        if event.receipt is not None:
            if log is not None and any(_is_nack(action) for action in event.actions):
                # What a NACK makes a dead letter is written when the transaction is stored.
                reply = partial(self.give, client, event.receipt, outcome.header_lines())
                with log.atomically(must_retry=False):  # behind the effects of the transaction
                    log.when_safe(Callback(client, lambda _now: reply(), event.receipt))
            else:
                self.give(client, event.receipt, outcome.header_lines())
        for action in event.actions:
            if isinstance(action, FrameRun):
                for _, name in action.receipts:
                    self.give(client, name)

    def of_acks(
        self, client: Client, event: Acked, *, is_stored: bool, without: Sequence[int]
    ) -> None:
        """Send the RECEIPTs of ACKs or NACKs that were applied, as soon as they are stored.

        Args:
          client: The sender.
          event: The ACKs or NACKs.
          is_stored: Whether a message in the store is concerned.
          without: The numbers in the run, from 1, of those without effect, whose RECEIPTs say so.
        """
        if is_stored and self.durability.log is not None:
            client.acked = self.durability.log.turn
        if self.event_history.is_recording:
            self.event_history.acknowledged(client, event)
        for number, name in event.receipts:
            lines = b"ignored:%b\n" % event.header.encode() if number in without else b""
            self.durability.reply(client, encode_receipt(name, lines), name)


def _is_nack(action: FrameRun | Acked) -> bool:
    return isinstance(action, Acked) and action.negative
