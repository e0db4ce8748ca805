"""Durable topic subscriptions: feeds that outlive the connections that consume them."""

from collections.abc import Iterator

from attrs import define, field

from trio_stomp._errors import CloseReason, ProtocolError
from trio_stomp.broker._dialect import DSUB
from trio_stomp.broker._feed import Feed

MAX_DURABLES = 10_000


@define(eq=False, repr=False)
class Durables:
    """Durable subscriptions by name: client id and name, or a name alone, which is shared."""

    _feeds: dict[str, Feed] = field(factory=dict)

    def __len__(self) -> int:
        return len(self._feeds)

    def __iter__(self) -> Iterator[Feed]:
        return iter(self._feeds.values())

    def find(self, name: str) -> Feed | None:
        """The feed of a durable subscription, if there is one.

        A shared one may be told without its destination: then the oldest of the name is meant.
        """
        feed = self._feeds.get(name)
        if feed is None and is_shared(name):
            start = f"{name}\0"
            feed = next((each for key, each in self._feeds.items() if key.startswith(start)), None)
        return feed

    def add(self, name: str, feed: Feed) -> None:
        """Keep ``feed`` until somebody unsubscribes it for good.

        Raises:
          ProtocolError: there are too many.
        """
        if len(self._feeds) >= MAX_DURABLES:
            raise ProtocolError(
                "too-many-durable-subscriptions",
                f"the broker keeps {MAX_DURABLES} durable subscriptions, which is its limit",
                reason=CloseReason.LIMIT_EXCEEDED,
            )
        self._feeds[name] = feed

    def remove(self, name: str) -> None:
        """Forget a durable subscription."""
        del self._feeds[name]


def durable_name(name: str, destination: str) -> str:
    """What a durable subscription is kept under.

    One that was named without a client id is also told by its destination: clients number their
    subscriptions, and two applications must not end each other's.
    """
    if not is_shared(name) or destination.startswith(DSUB):
        return name
    return f"{name}\0{destination}"


def is_shared(name: str) -> bool:
    """Whether several connections may consume it together: it was named without a client id."""
    return name.startswith("\0")
