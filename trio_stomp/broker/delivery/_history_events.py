"""The events of messages in the history, for ``explain``."""

from typing import TYPE_CHECKING

from attrs import define

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.broker.delivery._event_history import DeliveryReason

Span = tuple[int, int]
"""Consecutive numbers: the first, and their count."""


@define(eq=False)
class Sent:
    """Messages of a topic or work queue that were sent to subscribers."""

    at: float
    destination: str
    session: str
    """The sender's session; "" = the broker."""
    first: int
    """The first delivery number."""
    count: int
    copies: int
    """The number of subscribers that matched."""


@define(eq=False)
class Queued:
    """Messages that entered a queue."""

    at: float
    destination: str
    session: str
    """The sender's session; "" = the broker."""
    first: int
    """The number of the first message in the queue."""
    count: int


@define(eq=False)
class Delivered:
    """Deliveries of a queue's messages to a consumer."""

    at: float
    destination: str
    session: str
    tag: str
    """The subscription's tag in message ids."""
    first: int
    """The first delivery number."""
    count: int
    numbers: "Sequence[int]"
    """The numbers of the messages in the queue."""


@define(eq=False)
class Shown:
    """A queue's messages shown to a browser. The fields are those of ``Delivered``."""

    at: float
    destination: str
    session: str
    tag: str
    first: int
    count: int
    numbers: "Sequence[int]"


@define(eq=False)
class Given:
    """Earlier messages delivered to a subscriber late. More fields are those of ``Delivered``."""

    at: float
    destination: str
    session: str
    tag: str
    first: int
    count: int
    cause: "DeliveryReason"


@define(eq=False)
class Browsed:
    """The MESSAGE that ended a browser's listing."""

    at: float
    destination: str
    session: str
    tag: str
    first: int
    """Its delivery number."""
    count: int = 1


@define(eq=False)
class Settled:
    """A run of ACKs or NACKs."""

    at: float
    session: str
    first: bytes
    """The first id."""
    last: bytes
    """The last id."""
    count: int
    is_cumulative: bool
    is_rejected: bool


@define(eq=False)
class Happened:
    """An event of ``BrokerEvents``, such as a CONNECT or SUBSCRIBE."""

    at: float
    name: str
    session: str
    destination: str
    reason: str
    user: str


@define(eq=False)
class Lost:
    """Messages that did not reach a subscriber."""

    at: float
    reason: str
    """A ``LossReason``, or the value of a ``DeadLetterReason``."""
    destination: str
    session: str = ""
    """The session that they did not reach; "" = any."""
    count: int = 1
    deliveries: Span = (0, 0)
    """Their delivery numbers; (0, 0) = they have none."""
    numbers: Span = (0, 0)
    """Their numbers in their queue; (0, 0) = they were in none."""
    rule: str = ""
    """The option, policy or header that decided; "" = none."""


Numbered = Sent | Delivered | Shown | Given | Browsed
"""The events of deliveries, which have delivery numbers."""
HistoryEvent = Numbered | Queued | Settled | Happened | Lost
