"""RECEIPTs."""

from attrs import define

from trio_stomp.broker._ordering import SendOrder
from trio_stomp.broker.delivery import Client
from trio_stomp.broker.headers import SendOutcome
from trio_stomp.frames import FrameRun, encode_receipt
from trio_stomp.protocol import Committed


@define(eq=False, repr=False)
class Receipts:
    """Sends the RECEIPTs of frames."""

    durability: SendOrder

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
        if event.receipt is not None:
            self.give(client, event.receipt, outcome.header_lines())
        for action in event.actions:
            if isinstance(action, FrameRun):
                for _, name in action.receipts:
                    self.give(client, name)
