"""Destinations, what is sent to them, and deliveries: encoded once, shared by all subscribers."""

from collections import OrderedDict
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker.delivery._above import AnyConsumer, AnyQueue
from trio_stomp.broker.delivery._histogram import Histogram
from trio_stomp.broker.delivery._seen import Seen
from trio_stomp.broker.delivery._wall_time import DayEnd
from trio_stomp.broker.names import Kind
from trio_stomp.frames import Head

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Sequence

    from trio_stomp.base import Quota, Stake
    from trio_stomp.broker.delivery._subscription import (
        AnyBinding,
        Client,
        Member,
        Subscription,
    )
    from trio_stomp.broker.headers import SendOptions

NEVER = float("inf")
"""When a message without a lifetime expires."""
MANY_TAKERS = 1024
"""To give more copies than this of a run to subscribers takes long: it is done in pieces."""
STALE_GENERATION = -1
"""As ``generation`` of a destination whose subscribers are to be looked up."""
ASK = float("-inf")
"""A value of ``expires_at``: the end is a time of day, by the wall clock (``is_over``)."""


@define(eq=False, repr=False)
class Destination:
    """One destination: its subscribers as last looked up, and its counters since it is known."""

    name: str
    kind: Kind
    subscribers: "Sequence[Member]" = ()
    direct: "Sequence[Subscription]" = ()
    """Those of them that are staged to without a second look."""
    filtered: "Sequence[Member]" = ()
    """The others."""
    durables: "Sequence[AnyBinding]" = ()
    """Those of these that may be durable."""
    bindings: int = 0
    """How many of them put each message into a queue."""
    is_crowded: bool = False
    """It is a topic of more than MANY_TAKERS."""
    cost: int = 0
    """Bytes of tables that it is charged for while it is known; then 0."""
    quota: "Quota | None" = None
    """The quota charged for it: that of the first user."""
    generation: int = STALE_GENERATION
    exact: "dict[Member, None]" = field(factory=dict)
    is_asked: bool = False
    """Messages are questions to the broker that take long to answer."""
    reserved: bool = False
    private: bool = False
    """Belongs to one connection, which reaches it by name only."""
    queue: AnyQueue | None = None
    """Its messages (queues only)."""
    ttl_s: float = 0.0
    """Lifetime that the destination gives; 0 = none."""
    slow_consumer: str = ""
    """The policy for slow subscribers; "" = the broker's option."""
    persistent: str = "header"
    """Which messages the store has before anybody sees them: ``header``, ``always``, ``never``."""
    stream: object | None = None
    """The ``Stream`` of its messages, if a policy makes it one."""
    retain: str = "header"
    """Which messages become the last value: ``header``, ``always`` or ``never``."""
    retained: "Publication | None" = None
    """The last value, for later subscribers."""
    retained_id: int = 0
    """Its id in the store; 0 = it is in memory alone."""
    seen: Seen = field(factory=OrderedDict)
    """Recent ids for duplicate detection, so that no message is accepted twice."""
    line: "deque[object] | None" = None
    """Messages being sent in pieces, and those that follow (``Lines``)."""
    rotation: int = 0
    """Work queues: the number of deliveries so far, which selects the next member."""
    enqueued: int = 0
    delivered: int = 0
    dropped: int = 0
    expired: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    ingress: Histogram | None = None
    delivery: Histogram | None = None

    @property
    def is_idle(self) -> bool:
        """Return whether nothing but counters would be lost if it were forgotten."""
        if self.exact or self.retained is not None or self.retained_id or self.line is not None:
            return False
        return self.queue is None or self.queue.is_idle

    @property
    def is_unused(self) -> bool:
        """Return whether nothing at all would be lost: nothing was ever sent here."""
        return self.is_idle and not (self.enqueued or self.dropped or self.seen or self.stream)

    def outdate(self) -> None:
        """Have its subscribers looked up before the next use."""
        self.generation = STALE_GENERATION

    def stores(self, options: "SendOptions | None") -> bool:
        """Return whether a message with such headers is to survive, if there is a store."""
        if self.persistent == "header":
            return options is not None and options.persistent and not self.private
        return self.persistent == "always" and not self.private

    def is_large(self, count: int) -> bool:
        """Return whether it takes long to deliver, or to answer, a run of ``count`` messages."""
        return self.is_crowded or self.bindings * count > MANY_TAKERS or self.is_asked

    def ends_at(self, options: "SendOptions | None", received_at: float) -> float:
        """Return when a message with such headers ends by the broker's clock, wherever it waits."""
        expires_at = received_at + self.ttl_s if self.ttl_s else NEVER
        if options is not None and options.ttl_ms:
            expires_at = min(expires_at, received_at + options.ttl_ms / 1000)
        return expires_at

    def takers(self, publication: "Publication") -> "Sequence[Member]":
        """Return the subscribers that match a publication."""
        if not self.filtered:
            return self.subscribers
        return [each for each in self.subscribers if each.wants(publication)]

    def observe_ingress(self, seconds: float, count: int) -> None:
        """Count messages by how long they waited from the socket to the dispatcher."""
        if self.ingress is None:
            self.ingress = Histogram()
        self.ingress.observe(seconds, count)

    def observe_delivery(self, seconds: float, count: int) -> None:
        """Count messages by how long they took from the publisher's socket to the subscriber's."""
        if self.delivery is None:
            self.delivery = Histogram()
        self.delivery.observe(seconds, count)

    def add(self, other: "Destination") -> None:
        """Add the counters of another, which is about to be forgotten."""
        self.enqueued += other.enqueued
        self.delivered += other.delivered
        self.dropped += other.dropped
        self.expired += other.expired
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        if self.ingress is not None and other.ingress is not None:
            self.ingress.add(other.ingress)
        if self.delivery is not None and other.delivery is not None:
            self.delivery.add(other.delivery)


@define(eq=False)
class Publication:
    """A run of messages as its publisher sent it. Not to be changed.

    Args:
      destination: The one that it was sent to.
      head: The header block of its SENDs.
      bodies: One for each message, in order.
      received_at: When it was read from its publisher, in seconds of the broker's clock.
      expires_at: From when it must not be delivered any more; NEVER = no lifetime, ASK = ``end``
        tells. While it lies ahead nobody needs to ask.
      sender: Who sent it, or None if the broker did.
      options: What its headers ask for, or None if nothing out of the ordinary.
      is_stored: Nobody sees it before the store has it.
      end: When it ends, if that is a time of day.
      quota: Who is charged for its messages where they wait; None = nobody.
      stake: Who is charged for them as long as the store has them; None = it has not.
    """

    destination: Destination
    head: Head
    bodies: list[bytes]
    received_at: float
    expires_at: float
    sender: "Client | None" = None
    options: "SendOptions | None" = None
    is_stored: bool = False
    end: DayEnd | None = None
    quota: "Quota | None" = None
    stake: "Stake | None" = None

    @property
    def payer(self) -> "Quota | None":
        """Return whose messages they are, whoever has read them back from the store."""
        return self.quota if self.stake is None else self.stake.quota

    def is_over(self, now: float) -> bool:
        """Return whether it must not be delivered any more."""
        return (self.expires_at if self.end is None else self.end.clock_s()) <= now

    @property
    def ends_at(self) -> float:
        """Return the expiry time as far as is known: the wall clock may be set."""
        return self.expires_at if self.end is None else self.end.clock_s()

    @property
    def group(self) -> str:
        """The message group that its sender put it into, or ""."""
        return self.options.group if self.options is not None else ""

    def without_bodies(self) -> "Publication":
        """Return a copy without bodies, for messages and deliveries that hold their own."""
        return self.with_bodies(self.destination, [])

    def without_sender(self) -> "Publication":
        """Return a copy without a sender.

        A message stored for days must not keep its client in memory.
        """
        if self.sender is None:
            return self
        made = self.with_bodies(self.destination, self.bodies)
        made.sender = None  # it is nobody else's yet
        return made

    def with_bodies(self, destination: Destination, bodies: list[bytes]) -> "Publication":
        """Return a copy with other bodies, at the ``Destination`` that its name has now."""
        return Publication(
            destination,
            head=self.head,
            bodies=bodies,
            received_at=self.received_at,
            expires_at=self.expires_at,
            sender=self.sender,
            options=self.options,
            is_stored=self.is_stored,
            end=self.end,
            quota=self.quota,
        )

    def of(self, quota: "Quota | None") -> "Publication":
        """Return a copy whose messages are charged to ``quota``."""
        made = self.with_bodies(self.destination, self.bodies)
        made.quota = quota
        return made

    def with_head(self, head: Head) -> "Publication":
        """Return a copy with other headers."""
        return Publication(
            self.destination,
            head=head,
            bodies=self.bodies,
            received_at=self.received_at,
            expires_at=self.expires_at,
            sender=self.sender,
            options=self.options,
            is_stored=self.is_stored,
            end=self.end,
            quota=self.quota,
        )


@define(eq=False)
class Delivery:
    """An encoded publication, ready to be joined to a subscription's prefix. Immutable.

    Args:
      tails: An empty one, then the back half of each MESSAGE (``frames.message_tails``).
      count: Messages.
      size: Bytes of all tails, and more where each message is a separate delivery.
      publication: The source, ``without_bodies``.
    """

    tails: list[bytes]
    count: int
    size: int
    publication: Publication
    is_paced: bool = False
    """It comes from where messages wait until their consumer has room, and frees memory there: a
    short budget must not refuse it."""
    returns: bool = False
    """Its consumer acknowledges: what does not reach it returns to the queue."""
    observed_at: float = -1.0
    """When an outbox last counted it as delivered."""
    ticket: tuple[AnyConsumer, int] | None = None
    """Whose unacknowledged messages these are, and the first one's number: to be given back if
    they expire before they are written. Only for messages with a lifetime."""
    spliced: dict[int, list[bytes]] | None = None
    """Tails with WebSocket headers between them, by length of prefix; made by the outboxes."""
    quoted: "dict[int, Delivery] | None" = None
    """The same as SockJS messages, by length of the quoted prefix; created when needed."""

    def with_tails(self, tails: list[bytes]) -> "Delivery":
        """Return the same messages with other tails."""
        return Delivery(
            tails,
            count=self.count,
            size=sum(map(len, tails)),
            publication=self.publication,
            is_paced=self.is_paced,
            returns=self.returns,
            observed_at=self.observed_at,
            ticket=self.ticket,
        )
