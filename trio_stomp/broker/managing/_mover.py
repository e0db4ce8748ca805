"""Moving waiting messages: each is sent to another destination and removed here, in one record.

Dead letters may go to their original destinations.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, evolve, field

from trio_stomp.base import ProtocolError
from trio_stomp.broker.delivery import LossReason
from trio_stomp.broker.headers import RETAIN_NOT, SendOptions, rename_head
from trio_stomp.broker.managing._choice import ORIGIN
from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import QueueBook, cost_alone
from trio_stomp.broker.sending import SendContext
from trio_stomp.frames import Head

if TYPE_CHECKING:
    from trio_stomp.broker.browsing import Walk
    from trio_stomp.broker.delivery import Destination
    from trio_stomp.broker.queues import Message
    from trio_stomp.broker.sending import Publisher

MOVABLE = (Kind.QUEUE, Kind.WORK, Kind.TOPIC)
"""Kinds of destinations that messages may be moved to."""
OF_ITS_DEATH = frozenset(
    {
        ORIGIN,
        "x-first-death-queue",
        "x-first-death-reason",
        "x-death-reason",
        "x-death-count",
        "x-death-hops",
    }
)
MAX_REASONS = 16
OTHERS = "other reasons"


@define(eq=False, repr=False)
class Mover:
    """Moves messages one by one.

    Args:
      drops: Headers that are removed.
    """

    queues: QueueBook
    publisher: "Publisher"
    drops: frozenset[str] = frozenset()
    _old: Head | None = None
    _to: str = ""
    _new: "tuple[Head, SendOptions] | None" = None
    """The header block and options of messages with the header block ``_old`` at ``_to``."""

    def move(self, walk: "Walk", message: "Message", to: str, now: float) -> None:
        """Move a message.

        Args:
          walk: The walk that found it.
          message: A waiting message.
          to: A name from ``Manager.resolve``.
          now: Seconds of the broker's clock.

        Raises:
          ProtocolError: There is no room, no subscriber would get it, or another partition of a
            cluster has the destination. It stays.
        """
        publisher = self.publisher
        if publisher.later.lacks(to):
            raise ProtocolError(
                "partitions-apart",
                f"{to[:80]} lies in another partition of the cluster, and messages are moved within"
                " one: consume them and send them there, or use cluster_colocate in a new cluster",
            )
        publication, quota = message.publication, message.publication.payer
        destination = publisher.destinations.open(to, quota)
        head, options = self._as_sent(message, to)
        self._check(destination, head, message)
        context = SendContext(None, quota, received_at=publication.received_at, now=now)
        with self.queues.atomically():
            _, outcome = publisher.send_to(context, destination, head, options, [message.body])
            if outcome.is_lost:
                raise ProtocolError(
                    "no-subscriber", f"nobody is subscribed to {to[:80]}; nothing is lost"
                )
            walk.remove([message])
        self.queues.note_lost(walk.queue, LossReason.MOVED, message, f"moved to {to[:80]}")

    def _as_sent(self, message: "Message", to: str) -> "tuple[Head, SendOptions]":
        """Return the header block and options of a message at its new destination."""
        publication = message.publication
        if self._new is None or self._old is not publication.head or self._to != to:
            options = evolve(
                publication.options or SendOptions(),
                priority=message.level,
                persistent=bool(message.stored),
                retain=RETAIN_NOT,  # what was sent long ago is no news
            )
            self._old, self._to = publication.head, to
            self._new = self._renamed(publication.head, to), options
        return self._new

    def _renamed(self, head: Head, to: str) -> Head:
        headers = tuple([pair for pair in head.headers if pair[0] not in self.drops])
        return rename_head(Head(head.command, headers, head.content_length, head.destination), to)

    def _check(self, destination: "Destination", head: Head, message: "Message") -> None:
        """Check that there is room. Unlike a SEND, a move must not displace other messages."""
        name = destination.name
        if destination.kind not in MOVABLE:
            raise ProtocolError(
                "invalid-destination", f"messages cannot be moved to {name[:80]}; name a queue"
            )
        if destination.kind is not Kind.QUEUE:
            return
        target = self.queues.open(name, message.publication.payer)
        cost = cost_alone(head, 1, len(message.body))
        if not target.fits(1, len(message.body)) or cost > self.queues.memory.kept_room:
            raise ProtocolError(
                "queue-full", f"{name[:80]} has no room for more messages; the others stay"
            )


@define(eq=False, repr=False)
class Retry:
    """Sends dead letters to their original destinations, without dead-letter headers.

    Args:
      mover: Moves them.
      to: The destination of all; "" = the original one of each.
      resolve: Returns the destination that a SEND goes to.
      may_send: Returns whether the user may send to a destination.
    """

    mover: Mover
    to: str
    resolve: Callable[[str], str]
    may_send: Callable[[str], bool]
    left: dict[str, int] = field(factory=dict)
    """Number of messages that stay, by reason."""

    def __attrs_post_init__(self) -> None:
        self.mover.drops = OF_ITS_DEATH

    def act(self, walk: "Walk", messages: "list[Message]", now: float) -> int:
        """Implement ``Act``."""
        (message,) = messages
        if message.publication.is_over(now):
            return 0  # it expires here, by the rules of this queue
        try:
            self.mover.move(walk, message, self._target(walk.queue.name, message), now)
        except ProtocolError as error:
            known = error.message in self.left or len(self.left) < MAX_REASONS
            reason = error.message if known else OTHERS
            self.left[reason] = self.left.get(reason, 0) + 1
            return 0
        return 1

    def _target(self, queue: str, message: "Message") -> str:
        """Return the destination of a dead letter.

        Raises:
          ProtocolError: It has none, or the user may not send there.
        """
        name = self.to or self._origin(message)
        if name == queue:
            raise ProtocolError("invalid-destination", f"{name[:80]} is the queue itself")
        if not self.may_send(name):
            raise ProtocolError("not-authorized", f"the right to send to {name[:80]} is missing")
        return name

    def _origin(self, message: "Message") -> str:
        headers = dict(message.publication.head.headers)
        if ORIGIN not in headers:
            raise ProtocolError(
                "invalid-destination", f"no {ORIGIN}: it is no dead letter; name its destination"
            )
        return self.resolve(headers[ORIGIN])
