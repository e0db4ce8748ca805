"""Publications and deliveries, encoded once and shared by all subscribers."""

from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.broker.delivery._wall_time import DayEnd
from trio_stomp.frames import Head

if TYPE_CHECKING:
    from trio_stomp.base import Quota, Stake
    from trio_stomp.broker.delivery._subscription import Client
    from trio_stomp.broker.headers import SendOptions
    from trio_stomp.broker.queues import Consumer
    from trio_stomp.broker.routing import Destination

NEVER = float("inf")
"""When a message without a lifetime expires."""
ASK = float("-inf")
"""A value of ``expires_at``: the end is a time of day, by the wall clock (``is_over``)."""


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

    destination: "Destination"
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

    def with_bodies(self, destination: "Destination", bodies: list[bytes]) -> "Publication":
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
    ticket: "tuple[Consumer, int] | None" = None
    """The consumer and the first number of these messages, to return them if they expire before
    they
    are written. Only for messages with a lifetime.
    """
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
