"""TLS between the nodes of a cluster: both sides present a certificate that one authority signed.

Handles: the contexts of both sides, checking them before they are used, connecting.
Does not handle: who a node is; see ``relay_header``.
"""

import ssl
from contextlib import suppress

import trio
from attrs import define, field

from trio_stomp.base import OptionError
from trio_stomp.transport.tls._tls_context import MINIMUM, TlsBox, check_certificates
from trio_stomp.transport.tls._tls_wire import TlsWire, explain
from trio_stomp.transport.wire import WireStream, wire_over

ROUNDS = 10
"""Flights of a handshake, at most."""


@define(eq=False, repr=False)
class LinkTls:
    """The TLS of a node's links.

    Args:
      certificate: PEM file of the node's certificate chain.
      key: PEM file of its private key; empty = it is in ``certificate``.
      authority: PEM file of the authorities that sign certificates of nodes.
      minimum: The minimum version.

    Attributes:
      accepting: The context for connections of other nodes.

    Raises:
      OptionError: A file cannot be used.
    """

    certificate: str
    key: str
    authority: str
    minimum: str = "1.2"
    accepting: TlsBox = field(init=False)
    _connecting: ssl.SSLContext = field(init=False)

    def __attrs_post_init__(self) -> None:
        check_certificates(self.authority, "node_ca")
        self.accepting = TlsBox(
            self.certificate,
            self.key,
            client_ca=self.authority,
            client_certificates="required",
            minimum=self.minimum,
        )
        self._connecting = self._client_context()

    def _client_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = MINIMUM[self.minimum]
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(self.authority)
        context.load_cert_chain(self.certificate, self.key or self.certificate)
        return context

    def reload(self) -> None:
        """Read the files again, and use them for new connections.

        Raises:
          OptionError: A file cannot be used; nothing is changed.
        """
        new = LinkTls(self.certificate, self.key, self.authority, self.minimum)
        self.accepting.context, self._connecting = new.accepting.context, new._connecting

    def check(self, host: str) -> None:
        """Check that other nodes will accept this one's certificate, by a handshake with itself.

        Args:
          host: The host at which they reach this node.

        Raises:
          OptionError: They will not.
        """
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self._connecting.wrap_bio(back, there, server_hostname=host)
        server = self.accepting.context.wrap_bio(there, back, server_side=True)
        try:
            for _ in range(ROUNDS):
                for side in (client, server):
                    with suppress(ssl.SSLWantReadError):
                        side.do_handshake()
        except ssl.SSLError as error:
            raise OptionError(
                f"other nodes would not accept {self.certificate} (tls_cert), because"
                f" {explain(error)}: it must be signed by an authority in {self.authority}"
                f" (node_ca), valid for {host}, the host of node_address, and for servers and"
                " clients"
            ) from None

    async def open(self, stream: trio.SocketStream, host: str) -> WireStream:
        """Return a connection to another node over a socket, which it takes over.

        Args:
          stream: The socket.
          host: The host that the other's certificate must name.

        Raises:
          TlsError: The other node does not have such a certificate, or no TLS.
          trio.BrokenResourceError: The connection is lost.

        Checkpoint: always. Cancel: the connection is closed.
        """
        wire = TlsWire(wire_over(stream), self._connecting, host=host)
        is_open = False
        try:
            await wire.handshake()
            is_open = True
        finally:
            if not is_open:
                with trio.CancelScope(shield=True):
                    await wire.aclose()
        return WireStream(wire)
