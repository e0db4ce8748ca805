"""RECEIPTs."""

from attrs import define

from trio_stomp.broker._ordering import SendOrder
from trio_stomp.broker.delivery import Client
from trio_stomp.broker.headers import of_earlier
from trio_stomp.frames import FrameRun, encode_receipt
from trio_stomp.protocol import Committed


@define(eq=False, repr=False)
class Receipts:
    """Sends the RECEIPTs of frames."""

    durability: SendOrder

    def give(self, client: Client, name: bytes, evidence: bytes = b"") -> None:
        """Send a RECEIPT with an escaped id and further header lines.

        It waits until the client's earlier frames are stored.
        """
        frame = encode_receipt(name, evidence)
        if client.awaited:
            self.durability.tell(client, frame, name)
        else:
            client.outbox.stage_frame(frame)

    def of_run(self, client: Client, run: FrameRun, taken: int, evidence: bytes) -> None:
        """Send the RECEIPTs of the first ``taken`` messages of a run.

        ``evidence`` has the header lines for the last of them.
        """
        for count, name in run.receipts:
            if count <= taken:
                self.give(client, name, of_earlier(evidence, taken - count))

    def of_commit(self, client: Client, event: Committed, evidence: bytes) -> None:
        """Send the RECEIPTs of a COMMIT, and of SENDs in its transaction that wait for it."""
        if event.receipt is not None:
            self.give(client, event.receipt, evidence)
        for action in event.actions:
            if isinstance(action, FrameRun):
                for _, name in action.receipts:
                    self.give(client, name)
