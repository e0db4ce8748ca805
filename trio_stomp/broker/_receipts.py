"""RECEIPTs: what a client is told of what it sent, behind whatever it must wait for."""

from attrs import define

from trio_stomp.broker._ordering import SendOrder
from trio_stomp.broker.delivery import Client
from trio_stomp.broker.headers import of_earlier
from trio_stomp.frames import FrameRun, encode_receipt
from trio_stomp.protocol import Committed


@define(eq=False, repr=False)
class Receipts:
    """Answers frames that have been done."""

    durability: SendOrder

    def give(self, client: Client, name: bytes, evidence: bytes = b"") -> None:
        """Answer a frame, behind what its client sent before and is not safe yet."""
        frame = encode_receipt(name, evidence)
        if client.awaited:
            self.durability.tell(client, frame, name)
        else:
            client.outbox.stage_frame(frame)

    def of_run(self, client: Client, run: FrameRun, taken: int, evidence: bytes) -> None:
        """Answer a run of SENDs, as far as its messages were taken.

        Args:
          client: The client.
          run: The run of SENDs.
          taken: How many of its messages were accepted.
          evidence: What the last of those is told.
        """
        for place, name in run.receipts:
            if place <= taken:
                self.give(client, name, of_earlier(evidence, taken - place))

    def of_commit(self, client: Client, event: Committed, evidence: bytes) -> None:
        """Answer a COMMIT, and the SENDs of its transaction that wait for theirs."""
        if event.receipt is not None:
            self.give(client, event.receipt, evidence)
        for action in event.actions:
            if isinstance(action, FrameRun):
                for _, name in action.receipts:
                    self.give(client, name)
