"""The state of a session: its subscriptions, sent frames, and the effects of RECEIPTs."""

from collections.abc import Callable
from dataclasses import dataclass, field

from _crash.link import Reply

from _torture.model import ABORTED, SURE, Lane, Place


@dataclass
class Sub:
    """A subscription.

    Args:
      is_own: Whether it is to the connection's own queue, which no other client uses.
      is_there: Whether its RECEIPT has arrived.
      born: For a topic, the number of lanes at that time. All messages of later lanes must arrive.
      base: For a topic, the first number of each earlier lane that must arrive.
      unacked: Unacknowledged deliveries, in order of arrival.
    """

    id: str
    destination: str
    ack: str = "auto"
    is_own: bool = False
    is_browser: bool = False
    is_there: bool = False
    is_leaving: bool = False
    born: int = 0
    base: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    unacked: dict[str, Place] = field(default_factory=dict)
    owed: dict[str, int] = field(default_factory=dict)
    """The last message of each lane that must have arrived at the end of the subscription."""

    @property
    def is_topic(self) -> bool:
        """Return whether its destination is a topic."""
        return self.destination.startswith("/topic/")

    def reaches(self, destination: str) -> bool:
        """Return whether it receives messages sent to a destination."""
        stem, is_pattern, _ = self.destination.partition(">")
        return destination.startswith(stem) if is_pattern else destination == stem

    def first(self, lane: Lane) -> int | None:
        """Return the first message of a lane that must arrive, or None if any may be missing."""
        return 0 if lane.born >= self.born else self.base.get(lane.name)


Effect = Callable[[], None]


@dataclass
class SentFrame:
    """A sent frame.

    Args:
      receipt: The requested receipt; "" = none.
      effect: Called once the broker has processed it.
    """

    receipt: str
    at: float
    effect: Effect | None


def last_unseen(lane: Lane) -> int:
    """Return the last message of an own queue that was neither delivered nor aborted."""
    return max(
        (n for n, seen in enumerate(lane.seen) if not seen and lane.state[n] != ABORTED), default=-1
    )


def delivery_of(reply: Reply) -> int:
    """Return the number of a MESSAGE among the deliveries of its message."""
    if reply.headers.get("redelivered") != "true":
        return 1
    return int(reply.headers.get("delivery-count", "2"))


def mark_sure(places: list[Place]) -> None:
    """Record that the broker accepted these messages."""
    for place in places:
        place.lane.state[place.number] = SURE


def mark_acked(places: list[Place]) -> None:
    """Record that the broker accepted the ACKs of these deliveries."""
    for place in places:
        place.lane.acked[place.number] = place.delivery
