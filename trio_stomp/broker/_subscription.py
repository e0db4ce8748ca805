"""Who receives: a client as the core knows it, and its subscriptions."""

from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker._ports import Outbox
from trio_stomp.broker._wildcards import Pattern
from trio_stomp.frames import HeaderRules, Headers
from trio_stomp.protocol import STOMP_1_0, Version

if TYPE_CHECKING:
    from trio_stomp.broker._revival import Revival


@define(eq=False)
class Client:
    """One connection's part in the core: where its frames go, and what it subscribed to.

    Args:
      session_id: The ``session`` header of its CONNECTED.
      outbox: The way to it.
      user: Its ``login``, or "".
      remote: Its address, for people.
      transport: ``tcp`` or ``ws``.
      version: What it speaks; 1.0 until CONNECT tells.
    """

    session_id: str
    outbox: Outbox
    remote: str = ""
    transport: str = "tcp"
    user: str = ""
    version: Version = STOMP_1_0
    is_open: bool = False
    subscriptions: "dict[str, Subscription]" = field(factory=dict)
    is_refused: bool = False
    """It was told an ERROR, or has left: whatever else it sent is ignored."""
    reviving: int = 0
    """Subscriptions that still get parked messages."""

    @property
    def rules(self) -> HeaderRules:
        """How headers to this client are escaped."""
        return self.version.rules


@define(eq=False)
class Subscription:
    """One SUBSCRIBE in force.

    Args:
      client: Whose it is.
      key: Its ``id``, or one of our own where STOMP 1.0 told none.
      id: What the client called it, if it did.
      destination: Name or pattern, as subscribed to.
      pattern: The compiled wildcard, or None for a name.
      number: Place in the order of all SUBSCRIBEs; also the tag of its message ids.
      prefix: The front half of each of its MESSAGEs.
      headers: All that SUBSCRIBE said.
    """

    client: Client
    key: str
    id: str | None
    destination: str
    pattern: Pattern | None
    number: int
    prefix: bytes
    headers: Headers
    outbox: Outbox = field(init=False)
    wire: int = field(init=False)
    revival: "Revival | None" = None

    def __attrs_post_init__(self) -> None:
        self.outbox = self.client.outbox
        self.wire = self.client.version.index
