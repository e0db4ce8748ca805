"""Clients as the core knows them, and their subscriptions."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from trio_stomp.base import ANONYMOUS, CloseReason, Identity, Quota
from trio_stomp.broker.delivery._above import AnyConsumer
from trio_stomp.broker.delivery._delivery import Delivery, Publication
from trio_stomp.broker.names import Pattern
from trio_stomp.frames import Head, HeaderRules
from trio_stomp.protocol import STOMP_1_0, Event, Version

if TYPE_CHECKING:
    from trio_stomp.broker.rules import Rights
    from trio_stomp.broker.selectors import Selector

Place = tuple[str, Pattern | None]
"""One destination of a SUBSCRIBE: its name, and the compiled wildcard if it is one."""


class Outbox(Protocol):
    """The way to one client. Nothing here ever waits or raises."""

    def stage(self, prefix: bytes, delivery: Delivery) -> bool:
        """Queue a run of MESSAGEs. If the outbox is full, return False and queue nothing."""

    def stage_frame(self, frame: bytes) -> None:
        """Put a small frame of the broker's own (RECEIPT, ERROR, …) behind what is there."""

    def drop_oldest(self, size: int) -> int:
        """Drop the oldest queued MESSAGEs of at least ``size`` bytes, and return how many.

        Their destinations are told (``Destination.dropped``).
        """

    def has_room(self) -> bool:
        """Return whether a source that can wait, such as the stale queue, should give more now."""

    def discard(self) -> int:
        """Drop all waiting MESSAGEs but what is half written, and return how many are lost."""

    def pause_reading(self, *, paused: bool) -> None:
        """Stop reading from the client, or go on. What was read is still handed over."""

    def close(self, reason: CloseReason) -> None:
        """End the connection once what is staged is out, and stage nothing more."""


@define(eq=False, repr=False)
class Client:
    """One connection's part in the core: where its frames go, and what it subscribed to.

    Args:
      session_id: The ``session`` header of its CONNECTED.
      outbox: The way to it.
      remote: Its address, for people.
      transport: ``tcp`` or ``ws``.
      user: Who it is; where nobody has to log in, what its ``login`` says, or "".
      identity: Who it has been found to be.
      rights: What it may do; None = everything.
      client_id: Its ``client-id``, which names durable subscriptions, or "".
      version: What it speaks; 1.0 until CONNECT tells.
      network: What its address counts as; "" = it is on this machine.
      quota: Who is charged for what it makes; None = nobody, whom only the room of all bounds.
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
    quota: Quota | None = None
    subscriptions: "dict[str, Subscription]" = field(factory=dict)
    tags: "dict[bytes, Subscription]" = field(factory=dict)
    """Subscriptions by the tag in their message ids: whom an ACK is about."""
    lent: dict[int, tuple[AnyConsumer, int]] | None = None
    """Unacknowledged messages by number, with their consumer and delivery. None until the client
    acknowledges by ``message-id``.
    """
    takes_unasked: bool = False
    """Has an auto subscription to a queue, so that an ACK may name a message that needs none."""
    acks_up_to: bool = False
    """It was subscribed in the mode client: an ACK may cover much."""
    is_refused: bool = False
    """An ERROR was sent, or the client has left: its further events are ignored."""
    is_lost: bool = False
    """The connection was lost, or broke the protocol: deliveries in work have failed."""
    is_gone: bool = False
    """The connection has ended; events sent before are still applied."""
    is_leaving: bool = False
    """Its subscriptions end, some in each turn: for everybody else it has gone. It stays so."""
    catching_up: int = 0
    """Subscriptions that still get parked messages."""
    held: "list[tuple[Sequence[Event], float, int]]" = field(factory=list)
    """Events sent while the client had to wait: for room in a full queue (overflow ``block``), for
    the store, or for its share of a later turn; with the time of reading and the charge.
    """
    is_blocked: bool = False
    farewell: tuple[CloseReason, Callable[[], None]] | None = None
    """Set when the client is gone: why, and the callback when no deferred events are left."""
    acked: int = 0
    """The commit that its last ACK belongs to."""
    awaited: int = 0
    """The commit of its last record, for which its replies wait."""
    temporary: dict[str, str] = field(factory=dict)
    """Its temporary destinations: name as it says it → name as others say it."""
    localised: tuple[Head, Head] | None = None
    """Its last header block with a temporary name, and the block that others see.

    While a work evaluates selectors for a SEND, they remember their answers by the second block.
    """

    def charged(self) -> Quota | None:
        """Return the quota charged for its actions."""
        return self.quota

    @property
    def rules(self) -> HeaderRules:
        """The escaping of headers to this client."""
        return self.version.rules


@define(eq=False, repr=False)
class Subscription:
    """One active SUBSCRIBE.

    Args:
      client: The subscriber.
      key: Its ``id``, or a generated one where STOMP 1.0 gave none.
      id: The client's own id, if any.
      destination: As in the SUBSCRIBE.
      places: Its targets; several for a composite.
      number: Its position in the order of all SUBSCRIBEs.
      tag: The prefix of its message ids.
      prefix: The front half of each of its MESSAGEs.
      selector: The condition on messages, or None for all.
      no_local: Whether to skip messages of its own connection.
    """

    client: Client
    key: str
    id: str | None
    destination: str
    places: Sequence[Place]
    number: int
    tag: str
    prefix: bytes
    selector: "Selector | None" = None
    no_local: bool = False
    cost: int = 0
    """Bytes of tables that it is charged for, until it ends; its selector apart."""
    quota: Quota | None = field(init=False)
    """The quota charged for it."""
    outbox: Outbox = field(init=False)
    wire: int = field(init=False)
    is_direct: bool = field(init=False)
    """Whether the fan-out may stage to it without a second look."""
    catch_up: "AnyCatchUp | None" = None
    consumer: AnyConsumer | None = None
    """Its consumer of queues. Only plain topic subscriptions have none."""
    binding: "AnyBinding | None" = None
    """The queue of its own that its topic messages wait in until it acknowledges them."""

    def __attrs_post_init__(self) -> None:
        self.outbox = self.client.outbox
        self.quota = self.client.quota
        self.wire = self.client.version.index
        self.note_direct()

    def note_direct(self) -> None:
        """Update whether the fan-out may stage directly to the outbox."""
        self.is_direct = self.catch_up is None and self.selector is None and not self.no_local

    @property
    def is_there(self) -> bool:
        """Return whether it is in force, and its client has not begun to leave."""
        client = self.client
        return client.subscriptions.get(self.key) is self and not client.is_leaving

    @property
    def is_leaving(self) -> bool:
        """Return whether it ends soon, since its client leaves."""
        return self.client.is_leaving

    def wants(self, publication: Publication) -> bool:
        """Return whether it is to get these messages."""
        if self.no_local and publication.sender is self.client:
            return False
        return self.selector is None or self.selector.matches(publication.head)

    def receive(self, publication: Publication, delivery: Delivery, give: "Give") -> int:
        """Take a delivery's messages that match the selector, and return how many those are."""
        if not self.wants(publication):
            return 0
        give(self, delivery)
        return delivery.count


Give = Callable[[Subscription, Delivery], None]
"""Gives a delivery to one subscription."""


class AnyCatchUp(Protocol):
    """The catch-up of a subscription as this room knows it: ``topics.CatchUp``."""

    def follow(self, delivery: Delivery) -> bool:
        """Keep what was published meanwhile, or return False and keep nothing if it is too much."""


class AnyBinding(Protocol):
    """A subscriber that puts messages into a queue of its own: ``topics.Binding``."""

    number: int
    places: list[Place]
    durable: str
    owner: str
    selector: "Selector | None"
    is_direct: bool
    is_ended: bool
    wire: int

    @property
    def is_there(self) -> bool:
        """Return whether it still stands among the subscribers."""

    @property
    def is_leaving(self) -> bool:
        """Return whether it ends soon, since its clients leave."""

    def wants(self, publication: Publication) -> bool:
        """Return whether it is to get these messages."""

    def receive(self, publication: Publication, delivery: Delivery, give: Give) -> int:
        """Queue the messages, and return how many. ``delivery`` is for those without a queue."""

    def take(self, publication: Publication, bodies: list[bytes]) -> int:
        """Queue some bodies of a publication as far as they fit, and return how many."""


Member = Subscription | AnyBinding
"""One of the subscribers of a topic or work queue."""
