"""Destinations, publications, and deliveries, which are encoded once for all subscribers."""

from collections import OrderedDict
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import Quota
from trio_stomp.broker.delivery._above import AnyConsumer, AnyQueue
from trio_stomp.broker.delivery._histogram import Histogram
from trio_stomp.broker.delivery._wall_time import DayEnd
from trio_stomp.broker.names import Kind
from trio_stomp.frames import Head

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.base import Stake
    from trio_stomp.broker.delivery._subscription import AnyBinding, Client, Member, Subscription
    from trio_stomp.broker.headers import SendOptions

UNWRITTEN = -1


@define(eq=False, repr=False)
class SeenId:
    """The record of an id for duplicate detection.

    Args:
      commit: The commit number of its message.
      stored: The id of this record in the store; 0 = it is not stored, UNWRITTEN = the log gets it
        at the end of the turn.
      quota: The quota charged for this record.
    """

    commit: int = 0
    stored: int = 0
    quota: Quota | None = None


Seen = OrderedDict[str, SeenId]
"""The ids of a destination, oldest first."""


NEVER = float("inf")
"""The expiry time of a message without a TTL."""
PLAIN_S = 0.5e-6
"""The cost of staging a message for one subscriber: 20,000 take 9 ms."""
RUN_S = 0.1e-6
"""The same for each further message of a run, of which they share all: 75 take 5 us."""
BINDING_S = 6e-6
"""The cost of a copy for a queue of its own: 10,000 durable subscriptions take 57 ms."""
STALE_GENERATION = -1
"""The ``generation`` of a destination whose subscribers must be looked up."""
ASK = float("-inf")
"""A value of ``expires_at``: the message expires by the wall clock; ``is_over`` decides."""


@define(eq=False, repr=False)
class Destination:
    """One destination: its subscribers as last looked up, its state and its counters."""

    name: str
    kind: Kind
    subscribers: "Sequence[Member]" = ()
    plain: "Sequence[Subscription]" = ()
    """Subscribers without selector, no-local or backlog: the fan-out stages without checks."""
    filtered: "Sequence[Member]" = ()
    """All other subscribers."""
    durables: "Sequence[AnyBinding]" = ()
    """Durable subscriptions among ``filtered``."""
    cost_s: float = 0.0
    """The cost of a message at its subscribers, in seconds: at most this, as subscribers were last
    looked up or have come since."""
    more_s: float = 0.0
    """The cost of each further message of a run, as subscribers were last looked up."""
    cost: int = 0
    """Bytes of tables charged while the destination is in use; then 0."""
    quota: "Quota | None" = None
    """The quota charged: that of its first user."""
    generation: int = STALE_GENERATION
    idle_since: int = 0
    """Its place among the destinations that may be idle; 0 = it is in use."""
    exact: "dict[Member, None]" = field(factory=dict)
    is_request: bool = False
    """Messages are requests to the broker that take long to answer."""
    reserved: bool = False
    private: bool = False
    """A temporary destination of one connection. Wildcards do not match it."""
    queue: AnyQueue | None = None
    """Its queue (queues only)."""
    ttl_s: float = 0.0
    """TTL of the destination's messages in seconds; 0 = none."""
    slow_consumer: str = ""
    """The policy for slow subscribers; "" = the broker's option."""
    persistent: str = "header"
    """Which messages are durable: ``header``, ``always`` or ``never``."""
    stream: object | None = None
    """The ``Stream`` of its messages, if a policy enables it."""
    retain: str = "header"
    """Which messages become the last value: ``header``, ``always`` or ``never``."""
    retained: "Publication | None" = None
    """The last value, for later subscribers."""
    retained_id: int = 0
    """The id of the last value in the store; 0 = in memory only."""
    seen: Seen = field(factory=OrderedDict)
    """Recent ids for duplicate detection."""
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
        """Return whether the destination has no state except counters."""
        if self.exact or self.retained is not None or self.retained_id:
            return False
        return self.queue is None or self.queue.is_idle

    @property
    def is_unused(self) -> bool:
        """Return whether the destination has no state, and nothing was ever sent to it."""
        return self.is_idle and not (self.enqueued or self.dropped or self.seen or self.stream)

    def stores(self, options: "SendOptions | None") -> bool:
        """Return whether a message with these options is durable, if there is a store."""
        if self.persistent == "header":
            return options is not None and options.persistent and not self.private
        return self.persistent == "always" and not self.private

    def ends_at(self, options: "SendOptions | None", received_at: float) -> float:
        """Return the expiry time of a message by the broker's clock, or NEVER."""
        expires_at = received_at + self.ttl_s if self.ttl_s else NEVER
        if options is not None and options.ttl_ms:
            expires_at = min(expires_at, received_at + options.ttl_ms / 1000)
        return expires_at

    def recipients(self, publication: "Publication") -> "Sequence[Member]":
        """Return the subscribers that match a publication."""
        if not self.filtered:
            return self.subscribers
        return [each for each in self.subscribers if each.wants(publication)]

    def observe_ingress(self, seconds: float, count: int) -> None:
        """Count messages by the time from the socket to the dispatcher."""
        if self.ingress is None:
            self.ingress = Histogram()
        self.ingress.observe(seconds, count)

    def observe_delivery(self, seconds: float, count: int) -> None:
        """Count messages by the time from the publisher's socket to the subscriber's."""
        if self.delivery is None:
            self.delivery = Histogram()
        self.delivery.observe(seconds, count)

    def add(self, other: "Destination") -> None:
        """Add the counters of another destination, which is about to be forgotten."""
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
    """A run of messages as its publisher sent it. Shared, so do not change it.

    Args:
      bodies: The body of each message, in order.
      received_at: When it was read from the publisher, in seconds of the broker's clock.
      expires_at: The expiry time; NEVER = no TTL, ASK = ``end`` decides. A time in the future is
        certain.
      sender: The publisher; None = the broker.
      options: The options in its headers; None = all default.
      is_stored: It is durable: invisible until it is stored.
      end: The expiry time, if it is a time of day.
      quota: The quota charged for waiting messages; None = no quota.
      stake: The charge in the store while the messages are stored; None = not stored.
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
        """Return the sender's quota, even if a consumer's was charged for reading them back."""
        return self.quota if self.stake is None else self.stake.quota

    def is_over(self, now: float) -> bool:
        """Return whether it has expired."""
        return (self.expires_at if self.end is None else self.end.clock_s()) <= now

    @property
    def ends_at(self) -> float:
        """Return the expiry time. It may change if the wall clock is set."""
        return self.expires_at if self.end is None else self.end.clock_s()

    @property
    def group(self) -> str:
        """Return the message group, or ""."""
        return self.options.group if self.options is not None else ""

    def without_bodies(self) -> "Publication":
        """Return a copy without bodies, for messages and deliveries that have their own."""
        return self.with_bodies(self.destination, [])

    def without_sender(self) -> "Publication":
        """Return a copy without a sender.

        A message stored for days must not keep its client in memory.
        """
        if self.sender is None:
            return self
        copy = self.with_bodies(self.destination, self.bodies)
        copy.sender = None  # the copy is not shared yet
        return copy

    def with_bodies(self, destination: Destination, bodies: list[bytes]) -> "Publication":
        """Return a copy with other bodies at another ``Destination``. It has no ``stake``."""
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
        copy = self.with_bodies(self.destination, self.bodies)
        copy.quota = quota
        return copy

    def with_head(self, head: Head) -> "Publication":
        """Return a copy with another header block. It has no ``stake``."""
        copy = self.with_bodies(self.destination, self.bodies)
        copy.head = head
        return copy


@define(eq=False)
class Delivery:
    """An encoded publication, to be joined to a subscription's prefix. Do not change it.

    Args:
      tails: An empty one, then the second half of each MESSAGE (``frames.message_tails``).
      count: The number of messages.
      size: Bytes of all tails, plus the overhead where each message is a separate delivery.
      publication: The source, without bodies.
    """

    tails: list[bytes]
    count: int
    size: int
    publication: Publication
    is_paced: bool = False
    """It comes from a queue or stream, which hands out only as consumers have room. It must not be
    refused for lack of memory: delivering it frees memory."""
    returns: bool = False
    """Its consumer acknowledges: messages that are not written return to the queue."""
    observed_at: float = -1.0
    """When an outbox last counted it as delivered."""
    ticket: tuple[AnyConsumer, int] | None = None
    """The consumer and the number of the first delivery, to end them if they expire before they are
    written. Only for messages with a TTL."""
    spliced: dict[int, list[bytes]] | None = None
    """Tails with WebSocket headers between them, by length of prefix; created by the outboxes."""
    quoted: "dict[int, Delivery] | None" = None
    """The same as SockJS messages, by length of the quoted prefix; created when needed."""

    def with_tails(self, tails: list[bytes]) -> "Delivery":
        """Return a copy with other tails."""
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
