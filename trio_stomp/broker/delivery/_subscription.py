"""Clients and their subscriptions."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from trio_stomp.base import ANONYMOUS, CloseReason, Identity, Quota
from trio_stomp.broker.delivery._above import AnyConsumer
from trio_stomp.broker.delivery._delivery import PLAIN_S, Delivery, Publication
from trio_stomp.broker.names import Pattern
from trio_stomp.frames import Head, HeaderRules
from trio_stomp.protocol import STOMP_1_0, Event, Version

if TYPE_CHECKING:
    from trio_stomp.broker.rules import Rights
    from trio_stomp.broker.selectors import Selector

Target = tuple[str, Pattern | None]
"""One target of a SUBSCRIBE: its name, and the pattern if it is a wildcard."""


class Outbox(Protocol):
    """The outgoing frames of one client. No method waits or raises."""

    def stage(self, prefix: bytes, delivery: Delivery) -> bool:
        """Queue a run of MESSAGEs. If the outbox is full, return False and queue nothing."""

    def stage_frame(self, frame: bytes) -> None:
        """Append a small frame of the broker (RECEIPT, ERROR, …)."""

    def drop_oldest(self, size: int) -> int:
        """Drop the oldest queued MESSAGEs of at least ``size`` bytes together.

        Count them in their destinations (``Destination.dropped``).

        Returns:
          The number of MESSAGEs dropped.
        """

    def has_room(self) -> bool:
        """Return whether a source that can wait, such as a queue, should deliver more now."""

    def discard(self) -> int:
        """Drop all waiting MESSAGEs except one that is partly written. Return how many are lost."""

    def pause_reading(self, *, paused: bool) -> None:
        """Stop or resume reading from the client. Data already read is still processed."""

    def close(self, reason: CloseReason) -> None:
        """End the connection when all staged frames are written. Stage nothing more."""


@define(eq=False, repr=False)
class Client:
    """The state of one connection in the core.

    Args:
      session_id: The ``session`` header of its CONNECTED.
      outbox: Its outgoing frames.
      remote: Its address, for operators.
      transport: ``tcp`` or ``ws``.
      user: The user name; without authentication, the header ``login``, or "".
      identity: The authenticated identity.
      rights: Its access rights; None = everything is allowed.
      client_id: Its ``client-id``, which names durable subscriptions, or "".
      version: Its STOMP version; 1.0 until CONNECT.
      network: The network of its address, for quotas; "" = this machine.
      is_forwarder: It is a broker of the cluster, which sends messages of others on.
      quota: The quota charged for its actions; None = no quota.
      may_wait: Its SENDs wait where a queue blocks producers; otherwise they are refused.
    """

    session_id: str
    outbox: Outbox
    remote: str = ""
    transport: str = "tcp"
    user: str = ""
    identity: Identity = ANONYMOUS
    rights: "Rights | None" = None
    client_id: str = ""
    version: Version = STOMP_1_0
    network: str = ""
    is_forwarder: bool = False
    quota: Quota | None = None
    may_wait: bool = True
    subscriptions: "dict[str, Subscription]" = field(factory=dict)
    elsewhere: int = 0
    """The number of its subscriptions that other brokers have: the owners of partitions."""
    tags: "dict[bytes, Subscription]" = field(factory=dict)
    """Subscriptions by the tag in their message ids, to find the delivery of an ACK."""
    lent: dict[int, tuple[AnyConsumer, int]] | None = None
    """Unacknowledged messages by number, with their consumer and delivery number. None until the
    client acknowledges by ``message-id``.
    """
    takes_unasked: bool = False
    """It has an auto subscription to a queue, so an ACK may name a message that needs none."""
    acks_up_to: bool = False
    """It has used the ack mode ``client``, so an ACK may settle many deliveries."""
    is_refused: bool = False
    """An ERROR was sent, or the client has left. Further events are ignored."""
    refusal: str = ""
    """The code and message of its last ERROR, for operators; "" = none."""
    is_lost: bool = False
    """The connection was lost or broke the protocol. Deliveries in process have failed."""
    is_gone: bool = False
    """The connection has ended. Earlier events are still applied."""
    is_leaving: bool = False
    """Its subscriptions end over several turns and get nothing more. Never reset."""
    catching_up: int = 0
    """The number of subscriptions that still get parked messages."""
    deferred: "list[tuple[Sequence[Event], float, int]]" = field(factory=list)
    """Held events, each with the time of reading and the charge. The client waits for room in a
    queue (overflow ``block``), for the store, or for its share of a later turn.
    """
    is_blocked: bool = False
    farewell: tuple[CloseReason, Callable[[], None]] | None = None
    """Set when the client is gone: the close reason, and a callback for the end of held events."""
    acked: int = 0
    """The commit number of its last ACK."""
    awaited: int = 0
    """The commit number of its last record, for which its replies wait."""
    temporary: dict[str, str] = field(factory=dict)
    """Its temporary destinations: its own name → the name for other clients."""
    localised: tuple[Head, Head] | None = None
    """Its last header block with a temporary name, and the block that others get.

    Selectors remember their results by the second block, so it must stay the same object.
    """

    def charged(self) -> Quota | None:
        """Return the quota charged for its actions."""
        return self.quota

    @property
    def rules(self) -> HeaderRules:
        """Return the rules for headers sent to this client."""
        return self.version.rules


@define(eq=False, repr=False)
class Subscription:
    """One active SUBSCRIBE.

    Args:
      client: The subscriber.
      key: The ``id``, or a generated one if STOMP 1.0 gave none.
      id: The ``id`` of the client, if any.
      destination: The header of the SUBSCRIBE.
      targets: The targets; several for a composite destination.
      number: The position in the order of all SUBSCRIBEs.
      tag: The prefix of its delivery ids.
      prefix: The first half of each MESSAGE.
      selector: The selector; None = all messages.
      no_local: Skip messages of its own connection.
    """

    client: Client
    key: str
    id: str | None
    destination: str
    targets: Sequence[Target]
    number: int
    tag: str
    prefix: bytes
    selector: "Selector | None" = None
    no_local: bool = False
    is_counted: bool = True
    """Figures count it. Of cores that have the same subscription, one does."""
    cost: int = 0
    """Bytes of tables charged until it ends, without its selector."""
    cost_s: float = field(init=False)
    """The cost of a message, in seconds."""
    quota: Quota | None = field(init=False)
    """The quota charged."""
    outbox: Outbox = field(init=False)
    version_index: int = field(init=False)
    is_plain: bool = field(init=False)
    """The fan-out may stage to it without checks: it has no selector, no-local or backlog."""
    catch_up: "AnyCatchUp | None" = None
    consumer: AnyConsumer | None = None
    """Its consumer, except for plain topic subscriptions."""
    binding: "AnyBinding | None" = None
    """Its binding, if it acknowledges messages of topics or is durable."""

    def __attrs_post_init__(self) -> None:
        self.outbox = self.client.outbox
        self.quota = self.client.quota
        self.cost_s = PLAIN_S if self.selector is None else PLAIN_S + self.selector.cost_s
        self.version_index = self.client.version.index
        self.update_is_plain()

    def update_is_plain(self) -> None:
        """Update ``is_plain``."""
        self.is_plain = self.catch_up is None and self.selector is None and not self.no_local

    @property
    def is_leaving(self) -> bool:
        """Return whether its client is leaving."""
        return self.client.is_leaving

    def wants(self, publication: Publication) -> bool:
        """Return whether it matches a publication."""
        if self.no_local and publication.sender is self.client:
            return False
        return self.selector is None or self.selector.matches(publication.head)

    def receive(self, publication: Publication, delivery: Delivery, give: "Give") -> int:
        """Pass a delivery to ``give`` if the publication matches.

        Returns:
          The number of messages taken; 0 = no match.
        """
        if not self.wants(publication):
            return 0
        give(self, delivery)
        return delivery.count


Give = Callable[[Subscription, Delivery], None]
"""Stages a delivery to one subscription."""


class AnyCatchUp(Protocol):
    """The catch-up of a subscription: ``topics.CatchUp``."""

    def follow(self, delivery: Delivery) -> bool:
        """Queue a new delivery behind the backlog. Return False if there is no room."""


class AnyBinding(Protocol):
    """A subscriber that puts messages into a queue of its own: ``topics.Binding``."""

    number: int
    targets: list[Target]
    durable: str
    owner: str
    is_counted: bool
    selector: "Selector | None"
    is_plain: bool
    is_ended: bool
    version_index: int
    quota: "Quota | None"
    cost_s: float

    @property
    def is_leaving(self) -> bool:
        """Return whether it ends soon because its clients are leaving."""

    def wants(self, publication: Publication) -> bool:
        """Return whether it matches a publication."""

    def receive(self, publication: Publication, delivery: Delivery, give: Give) -> int:
        """Queue a publication, and return the number of messages. Ignore ``delivery``."""

    def has_copies(self, publication: Publication) -> bool:
        """Return whether its copies were queued when the publication was stored."""

    def take(self, publication: Publication, bodies: list[bytes]) -> int:
        """Queue bodies of a publication as far as they fit, and return how many."""


Member = Subscription | AnyBinding
"""One of the subscribers of a topic or work queue."""
