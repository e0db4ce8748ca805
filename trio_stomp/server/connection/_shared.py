"""The objects shared by the connections of a broker."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from trio_stomp.server._limits import ServerLimits
from trio_stomp.server._watchdog import Watchdog
from trio_stomp.server.connection._web_pages import Pages
from trio_stomp.server.connection._web_share import WebShare
from trio_stomp.server.io import Bugs, Inbox, Outbox

if TYPE_CHECKING:
    from trio_stomp.broker import AccessRules, Client, MemoryBudget
    from trio_stomp.security import Authenticator
    from trio_stomp.server.connection._link import Link
    from trio_stomp.transport import TlsBox

DISCONNECTS_AT_ONCE = 32
"""Maximum number of disconnects that queue for the inbox."""


@define(eq=False, repr=False)
class WebSocketReads:
    """Counts reads of WebSockets: ``hits`` continued a frame, ``misses`` began one.

    ``underruns_fixed`` counts reads that completed a frame which an earlier read began.
    """

    hits: int = 0
    misses: int = 0
    underruns_fixed: int = 0


@define(eq=False, repr=False)
class ConnectionShared:
    """The values and limits that all connections of a broker share.

    Args:
      pages: Answers plain HTTP requests.
      relieve: Frees memory that is held without being used. Takes the current time.
      resume: Makes the dispatcher resume delivery to a client.
      report_late: Reports a late heart-beat to the diagnostics, with the delay in seconds.
      report_failed_login: Reports a failed login to the diagnostics, with the code of the ERROR.
      authenticator: Identifies clients.
      tls: Encrypts connections; None = there is no certificate.
      rules: Returns the access rules in force.
      generation: Returns the number of changes of users and rules so far.
    """

    limits: ServerLimits
    inbox: Inbox
    bugs: Bugs
    memory: "MemoryBudget"
    watchdog: Watchdog
    pages: Pages
    resume: "Callable[[Client], None]"
    relieve: Callable[[float], None]
    report_late: "Callable[[Client, Outbox, float], None]"
    report_failed_login: "Callable[[Client, str], None]"
    authenticator: "Authenticator"
    tls: "TlsBox | None"
    rules: "Callable[[], AccessRules | None]"
    generation: Callable[[], int]
    websocket_reads: WebSocketReads
    held_bytes: int = 0
    """Bytes of incomplete frames, over all connections."""
    holding: "set[Link]" = field(factory=set)
    """The connections that hold incomplete frames."""
    active_connections: int = 0
    """Open connections that have sent something."""
    websockets: int = 0
    """Open connections that are WebSockets."""
    disconnect_slots: trio.Semaphore = field(factory=lambda: trio.Semaphore(DISCONNECTS_AT_ONCE))
    """Keeps thousands of simultaneous disconnects from delaying the input of other clients."""
    web: WebShare = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.web = WebShare(self.memory)
