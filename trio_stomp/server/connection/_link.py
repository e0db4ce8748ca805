"""A connection's wire, session and outbox, with the facts about its peer."""

import math
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.server.connection._shared import ConnectionShared
from trio_stomp.transport import StreamWire, TlsWire, Voucher, WebSocketCodec, Wire

if TYPE_CHECKING:
    from trio_stomp.base import Identity
    from trio_stomp.broker import Client
    from trio_stomp.protocol import ServerSession
    from trio_stomp.security import Credentials
    from trio_stomp.server.io import Outbox


@define(eq=False, repr=False)
class Link:
    """A connection's wire, session and outbox, with the facts about its peer.

    Handles: replacing the wire by an encrypted one; sending the transport's own bytes.
    Does not handle: reading (``Reader``), deadlines (``Deadlines``), the end (``Lifecycle``).

    Args:
      wire: The bytes of the connection.
      session: The STOMP session.
    """

    shared: ConnectionShared
    wire: Wire
    session: "ServerSession"
    client: "Client" = field(init=False)
    outbox: "Outbox" = field(init=False)
    websocket: WebSocketCodec | None = None
    offered: "Credentials | None" = None
    """Credentials that came with the WebSocket upgrade."""
    vouched: "Identity | None" = None
    """The identity for which another node of the cluster vouches."""
    speaks_http: bool = False
    """Whether the peer speaks HTTP and is no WebSocket yet, so that an ERROR frame is no answer."""
    is_operating: bool = False
    """Whether an operation is running for the peer; it may take longer than the connect timeout."""
    is_forwarded: bool = False
    """Whether an HTTP header says that a proxy forwarded the connection."""
    is_foreign: bool = False
    """Whether a web page of another origin opened it, whose user the browser's certificate proves
    nothing about."""
    asker: str = ""
    """The quota charged for requests and answers by HTTP."""

    @property
    def remote(self) -> str:
        """Return the peer's address, ``host:port``."""
        return self.wire.remote

    @property
    def is_loopback(self) -> bool:
        """Return whether the peer is on this machine, with no proxy in between."""
        return self.wire.is_loopback and not self.is_forwarded

    @property
    def is_exposed(self) -> bool:
        """Return whether third parties on the network can read the connection's bytes."""
        return not (self.wire.is_loopback or self.is_secret)

    @property
    def is_secret(self) -> bool:
        """Return whether the client's connection is encrypted, not only one between nodes."""
        wire = self.wire
        return self._tls is not None or (isinstance(wire, StreamWire) and wire.is_secret)

    @property
    def _tls(self) -> TlsWire | None:
        """Return the TLS of the client."""
        wire = self.wire
        return wire if isinstance(wire, TlsWire) and not wire.is_link else None

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """Return the names in the client's certificate, or () if it sent none that counts."""
        tls = None if self.is_foreign else self._tls
        return tls.certificate_names() if tls is not None else ()

    @property
    def certificate_keys(self) -> frozenset[str]:
        """Return the keys of the client's certificate and of its issuer, or none without one."""
        return self._tls.certificate_keys() if self._tls is not None else frozenset()

    @property
    def certificate_end(self) -> float:
        """Return when the client's certificate expires, as Unix time; inf without one."""
        return self._tls.certificate_end() if self._tls is not None else math.inf

    def log_fields(self) -> dict[str, str]:
        """Return the structured fields of a log line about this connection."""
        client = self.client
        return {
            "connection": client.session_id,
            "user": client.identity.name,
            "remote": self.remote,
            "transport": client.transport,
        }

    def ask_as(self, identity: "Identity") -> None:
        """Note who asks: a user, else a network; on this machine the connection."""
        user, client = identity.name, self.client
        self.asker = f"user {user}" if user else client.network or client.session_id

    def vouch(self, voucher: Voucher | None) -> None:
        """Take another node's word on the client."""
        if voucher is not None:
            self.vouched, self.client.transport = voucher.identity, voucher.transport
            self.client.session_id = voucher.session or self.client.session_id
            self.client.is_forwarder = voucher.is_forwarder
            self.session.is_relayed = True

    def encrypt(self, wire: TlsWire) -> None:
        """Continue over ``wire``, before any STOMP or HTTP byte was sent in the clear."""
        self.wire = self.outbox.wire = wire
        self.client.transport = "tls"

    def send_now(self, data: bytes, now: float, *, beat: bool = False) -> None:
        """Send bytes of the transport itself, after the outbox's backlog.

        Args:
          data: The bytes.
          now: The time, in seconds of the broker's clock.
          beat: Also send a heart-beat, if the broker promised any. JavaScript does not see the
            pings and pongs of a WebSocket, so these must not replace STOMP's heart-beats.
        """
        self.outbox.stage_bytes(data)
        if beat and self.session.heartbeats.send_every_s:
            self.outbox.stage_frame(b"\n")
        self.outbox.publish(now)
