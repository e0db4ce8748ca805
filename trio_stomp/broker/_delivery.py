"""What is on its way to subscribers, encoded once and shared by all of them."""

from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.frames import Head

if TYPE_CHECKING:
    from trio_stomp.broker._route import Route

NEVER = float("inf")
"""When a message without a lifetime expires."""


@define(eq=False)
class Publication:
    """A run of messages as its publisher sent it. Not to be changed.

    Args:
      route: Destination that it was sent to.
      head: The header block of its SENDs.
      bodies: One for each message, in order.
      received_at: When it was read from its publisher, in seconds of the broker's clock.
      expires_at: From when it must not be delivered any more; NEVER = no lifetime.
    """

    route: "Route"
    head: Head
    bodies: list[bytes]
    received_at: float
    expires_at: float


@define(eq=False)
class Delivery:
    """A publication encoded, ready to be joined to a subscription's prefix. Not to be changed.

    Args:
      tails: An empty one, then the back half of each MESSAGE (``frames.message_tails``).
      count: Messages.
      size: Bytes of all tails.
      publication: What was encoded.
    """

    tails: list[bytes]
    count: int
    size: int
    publication: Publication
    observed_at: float = -1.0
    """When an outbox last counted it as delivered."""
    spliced: dict[int, list[bytes]] | None = None
    """Tails with WebSocket headers between them, by length of prefix; made by the outboxes."""
