"""The state of one client's session over partitions."""

from collections import deque
from collections.abc import Callable

from attrs import define, field

from trio_stomp.base import CloseReason
from trio_stomp.broker import Client
from trio_stomp.cluster.routing._cumulative import Cumulative
from trio_stomp.cluster.routing._upstream import Upstream
from trio_stomp.frames import encode_receipt
from trio_stomp.protocol import Committed, Opened

MAX_RECEIPTS = 64 * 1024
"""With more RECEIPTs outstanding, nothing is read from the client."""


@define(eq=False)
class Awaited:
    """A confirmation by owners.

    Args:
      name: The encoded id of the RECEIPT, in frames to owners.
      upstreams: The number of owners that have not confirmed yet.
      is_asked: The client gets a RECEIPT; else only the router needs the confirmation.
      subscribes: The confirmed frame is a SUBSCRIBE.
      frame: The RECEIPT, as the last owner sent it.
    """

    name: bytes
    upstreams: int
    is_asked: bool
    subscribes: bool = False
    frame: bytes = b""


@define(eq=False, repr=False)
class Route:
    """The state of one client's session over partitions.

    Args:
      client: The client.
      opened: Its CONNECT.
      upstreams: Its connections to owners, by partition.
      receipts: The outstanding RECEIPTs, in the order of its frames.
      subscriptions: The partitions of its subscriptions by id; by NUL and destination without one.
      transactions: The partition of each open transaction with an ACK.
      ways: For each partition, the one whose owner took the last messages for it: the same, or a
        coordinator that sends them on.
      passing: A partition whose owner was asked to confirm that all these have arrived.
      asked: A COMMIT of which other owners were asked whether the client may send to them, and
        their answers.
      cumulative: Subscriptions with cumulative ACKs over several partitions.
      is_waiting: Its events are deferred until owners have confirmed earlier ones.
      leaving: The confirmations of its DISCONNECT, if it has sent one.
      receipt: The receipt that the DISCONNECT requests.
      farewell: The end of its connection, if that came before these confirmations.
    """

    client: Client
    opened: Opened
    upstreams: dict[int, Upstream] = field(factory=dict)
    receipts: deque[Awaited] = field(factory=deque)
    subscriptions: dict[str, tuple[int, ...]] = field(factory=dict)
    transactions: dict[str, int] = field(factory=dict)
    ways: dict[int, int] = field(factory=dict)
    passing: tuple[int, Awaited] | None = None
    asked: tuple[Committed, Awaited] | None = None
    cumulative: Cumulative = field(init=False)
    is_waiting: bool = False
    is_paused: bool = False
    """Nothing is read from the client."""
    leaving: Awaited | None = None
    receipt: bytes | None = None
    farewell: tuple[CloseReason, Callable[[], None]] | None = None

    def __attrs_post_init__(self) -> None:
        self.cumulative = Cumulative(self.opened.version.acks_by_header)

    def settle(self) -> None:
        """Send the RECEIPTs that all owners have confirmed, in order."""
        receipts, stage = self.receipts, self.client.outbox.stage_frame
        while receipts and not receipts[0].upstreams:
            stage(receipts.popleft().frame)

    def answer(self, name: bytes) -> None:
        """Send a RECEIPT that no owner confirms, after the earlier ones."""
        self.receipts.append(Awaited(name, 0, is_asked=True, frame=encode_receipt(name)))
        self.settle()

    def is_ahead(self, partitions: tuple[int, ...]) -> bool:
        """Return whether frames to these partitions could overtake a SUBSCRIBE to others."""
        return any(
            each.unconfirmed and each.partition not in partitions
            for each in self.upstreams.values()
        )

    def may_read(self) -> bool:
        """Return whether the client may send more."""
        if len(self.receipts) > MAX_RECEIPTS:
            return False
        return not any(each.is_paused for each in self.upstreams.values())
