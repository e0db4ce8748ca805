"""The state of a session: its subscriptions, sent frames, and the effects of RECEIPTs."""

from collections.abc import Callable
from dataclasses import dataclass, field

from _crash.link import Reply

from _torture.model import ABORTED, SURE, Lane, Place


@dataclass
class Sub:
    """A subscription.

    Args:
      is_own: To the connection's own queue, which nobody else takes from or sends to.
      is_there: Its RECEIPT has come.
      born: Of a topic: so many lanes were there then; from those that are younger all must come.
      base: Likewise: of each lane that was there, the first number that must come.
      unacked: What is to be acknowledged, in the order in which it came.
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
    """By lane, the last that must have come when the subscription, or the browsing, has ended."""

    @property
    def is_topic(self) -> bool:
        """Return whether it is to a topic."""
        return self.destination.startswith("/topic/")

    def reaches(self, destination: str) -> bool:
        """Return whether it receives what is sent to a destination."""
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
      receipt: What it asked for; "" = nothing.
      effect: What is true once the broker has carried it out.
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
    """Which delivery of its message a MESSAGE is."""
    if reply.headers.get("redelivered") != "true":
        return 1
    return int(reply.headers.get("delivery-count", "2"))


def mark_sure(places: list[Place]) -> None:
    """The broker has taken these."""
    for place in places:
        place.lane.state[place.number] = SURE


def mark_acked(places: list[Place]) -> None:
    """The broker knows that these deliveries were the last."""
    for place in places:
        place.lane.acked[place.number] = place.delivery
