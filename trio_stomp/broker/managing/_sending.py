"""A SEND that an operator requests, as if a client sent it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from trio_stomp.base import CloseReason, ProtocolError, noop
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import Client, NullOutbox
from trio_stomp.broker.managing._operation import Step
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
class Sending:
    """A SEND with a RECEIPT, for a client without a connection. Implements ``InSteps``.

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
    total: int = 1
    done: int = 0
    problem: ProtocolError | None = None
    woken: Callable[[], None] = noop
    receipt: dict[str, str] = field(factory=dict)
    """The headers of the RECEIPT."""
    _client: Client = field(init=False)
    _has_begun: bool = False

    def __attrs_post_init__(self) -> None:
        self._client = Client(SESSION, Replies(self._reply), transport="http")
        self._client.version = STOMP_1_2
        self._client.identity, self._client.user = self.identity, self.identity.name

    @property
    def seen(self) -> int:
        """Return 1 once it is answered."""
        return self.done

    def step(self, now: float) -> Step:
        """Implement ``InSteps.step``."""
        if not self._has_begun:
            self._has_begun = True
            self.authorizer.admit(self._client)  # now: the rules may have changed since its request
            self.core.apply(self._client, [self.run], now, now)
        is_answered = self.done or self.problem is not None
        return Step.DONE if is_answered else Step.WAIT

    def end(self, now: float = 0.0) -> None:
        """Implement ``InSteps.end``. A SEND that waits for room is refused."""
        self.core.forget(self._client, CloseReason.CLIENT_DISCONNECT, now)

    def _reply(self, frame: bytes) -> None:
        decoder = FrameDecoder(FrameLimits(), HeadCache(), V1_2, side=Side.SERVER)
        (reply,) = decoder.receive_data(frame)
        assert isinstance(reply, FrameRun)
        headers = dict(reply.head.headers)
        if reply.head.command == RECEIPT:
            headers.pop("receipt-id", None)
            self.receipt, self.done = headers, 1
        else:
            self.problem = ProtocolError(headers["code"], headers["message"])
        self.woken()
