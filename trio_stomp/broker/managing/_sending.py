"""A SEND that an operator requests, as if a client sent it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import Client, NullOutbox
from trio_stomp.broker.managing._task import InSteps, Steps
from trio_stomp.frames import RECEIPT, V1_2, FrameDecoder, FrameLimits, FrameRun, HeadCache, Side
from trio_stomp.protocol import STOMP_1_2

if TYPE_CHECKING:
    from trio_stomp.base import Identity
    from trio_stomp.protocol import Event

SESSION = "management"
"""The session of such clients, in events and explanations."""


class AppliesFrames(Protocol):
    """The broker, as a SEND sees it."""

    def apply(
        self, client: Client, events: "Sequence[Event]", received_at: float, now: float
    ) -> None:
        """Apply events of a client."""

    def forget(self, client: Client, reason: CloseReason, now: float) -> None:
        """Release a client that has gone."""


class Replies(NullOutbox):
    """The outbox of a client that gets a RECEIPT or an ERROR only."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take

    def stage_frame(self, frame: bytes) -> None:
        """Implement ``Outbox.stage_frame``."""
        self._take(frame)


@define(eq=False, repr=False)
class Sending(InSteps):
    """A SEND with a RECEIPT, for a client without a connection.

    Args:
      run: The SEND. It must request a RECEIPT.
      core: Carries it out.
      authorizer: Has the rules.
      identity: The user, whose rights and quota count.
    """

    run: FrameRun
    core: AppliesFrames
    authorizer: Authorizer
    identity: "Identity"
    receipt: dict[str, str] = field(init=False, factory=dict)
    """The headers of the RECEIPT."""

    def work(self) -> Steps:
        """Implement ``InSteps.work``."""
        self.total, turns = 1, self.turns
        client = Client(
            SESSION,
            NullOutbox(),
            transport="http",
            user=self.identity.name,
            identity=self.identity,
            version=STOMP_1_2,
            may_wait=False,
        )

        def send(take: Callable[[bytes], None]) -> None:
            client.outbox = Replies(take)
            self.authorizer.admit(client)  # now: the rules may have changed since its request
            self.core.apply(client, [self.run], turns.now, turns.now)

        try:
            self._read((yield from self.answer(send)))
        finally:
            self.core.forget(client, CloseReason.CLIENT_DISCONNECT, turns.now)

    def _read(self, frame: bytes) -> None:
        """Read the answer: a RECEIPT, or an ERROR, which is raised."""
        decoder = FrameDecoder(FrameLimits(), HeadCache(), V1_2, side=Side.SERVER)
        (reply,) = decoder.receive_data(frame)
        assert isinstance(reply, FrameRun)
        headers = dict(reply.head.headers)
        if reply.head.command != RECEIPT:
            raise ProtocolError(headers["code"], headers["message"])
        headers.pop("receipt-id", None)
        self.receipt, self.seen, self.done = headers, 1, 1
