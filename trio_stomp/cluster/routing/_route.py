"""The state of one client's session over partitions."""

import re
from collections import deque
from collections.abc import Callable, Mapping

from attrs import define, field

from trio_stomp.base import CloseReason
from trio_stomp.broker import Client
from trio_stomp.cluster.routing._placement import Placement
from trio_stomp.cluster.routing._upstream import Upstream
from trio_stomp.frames import HeaderRules, encode_header, encode_receipt
from trio_stomp.protocol import Committed, Opened

MAX_RECEIPTS = 64 * 1024
"""With more RECEIPTs outstanding, nothing is read from the client."""

_SUBSCRIPTION = re.compile(rb"\nsubscription:[^\n]*\n")


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


@define(eq=False)
class Cumulative:
    """The unacknowledged messages of a client's cumulative subscriptions to several partitions.

    An ACK includes all earlier messages of its subscription. Each owner knows only the order of its
    own messages, so the order in which the client got them is kept here until they are
    acknowledged. The owners' prefetch limits bound their number.

    Args:
      by_ack: MESSAGEs are acknowledged by their header ``ack``; else by ``message-id``.
    """

    by_ack: bool
    _ids: dict[bytes, deque[bytes]] = field(factory=dict)
    """The ids of messages in the order of their delivery, by the header line of the subscription.
    """
    _header: "re.Pattern[bytes]" = field(init=False)

    def __attrs_post_init__(self) -> None:
        name = b"ack" if self.by_ack else b"message-id"
        self._header = re.compile(rb"\n%b:([^\n]*)\n" % name)

    def __bool__(self) -> bool:
        return bool(self._ids)

    def add(self, subscription: str, rules: HeaderRules) -> None:
        """Begin to record the order of a subscription's messages."""
        self._ids[encode_header("subscription", subscription, rules)] = deque()

    def remove(self, subscription: str, rules: HeaderRules) -> None:
        """Forget a subscription, if it is known."""
        self._ids.pop(encode_header("subscription", subscription, rules), None)

    def note(self, message: bytes) -> None:
        """Record a MESSAGE that the client gets."""
        line = _SUBSCRIPTION.search(message)
        ids = self._ids.get(line[0][1:]) if line is not None else None
        if ids is not None:
            found = self._header.search(message)
            if found is not None:
                ids.append(found[1])

    def take(self, name: bytes, placement: Placement) -> Mapping[int, bytes]:
        """Return the last message of each other partition that an ACK includes, and forget them.

        Args:
          name: The id in the ACK.
          placement: Returns the partition of an id.
        """
        for ids in self._ids.values():
            if name not in ids:
                continue
            own, last = placement.marked(name.decode()), dict[int, bytes]()
            while (first := ids.popleft()) != name:
                last[placement.marked(first.decode())] = first
            last.pop(own, None)
            return last
        return {}


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
