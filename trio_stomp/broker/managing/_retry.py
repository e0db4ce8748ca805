"""Sending dead letters to their original destinations."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import ProtocolError
from trio_stomp.broker.browsing import Walk
from trio_stomp.broker.managing._choice import ORIGIN
from trio_stomp.broker.managing._mover import Mover

if TYPE_CHECKING:
    from trio_stomp.broker.queues import Message

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

    def act(self, walk: Walk, messages: "list[Message]", now: float) -> int:
        """Implement ``Act``."""
        sent = 0
        for message in messages:
            if message.publication.is_over(now):
                continue  # it expires here
            try:
                self.mover.move(walk, message, self._target(walk.queue.name, message), now)
                sent += 1
            except ProtocolError as error:
                known = error.message in self.left or len(self.left) < MAX_REASONS
                reason = error.message if known else OTHERS
                self.left[reason] = self.left.get(reason, 0) + 1
        return sent

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
