"""Connections to other nodes, encrypted if the nodes of the cluster use TLS."""

import logging
from contextlib import suppress

import trio
from attrs import define, field, frozen

from trio_stomp.transport import LinkTls, TlsError

logger = logging.getLogger("trio_stomp")

ATTEMPT_S = 0.5
"""Longest time for one attempt to reach a node."""
HANDSHAKE_S = 2.0
_TLS = "tls"


@frozen
class Contact:
    """The address at which a node accepts clients that other nodes relay.

    Args:
      secret: The bytes with which relayed connections begin, as proof.
      is_encrypted: It accepts TLS only.
    """

    node: str
    host: str
    port: int
    secret: str = field(repr=False)
    is_encrypted: bool = False

    def __str__(self) -> str:
        return f"{self.host} {self.port} {self.secret}" + f" {_TLS}" * self.is_encrypted

    @classmethod
    def parse(cls, node: str, text: str) -> "Contact | None":
        """Return the contact that ``str`` made into this text, or None if it is invalid."""
        words = text.split(" ")
        if len(words) < 3 or not words[1].isdecimal():
            return None  # newer versions may say more, which is ignored
        return cls(node, words[0], int(words[1]), words[2], is_encrypted=_TLS in words[3:])


@define(eq=False, repr=False)
class Dialer:
    """Connects to other nodes.

    Args:
      tls: The TLS of links; None = they are in the clear.
    """

    tls: LinkTls | None = None
    _problem: str = ""
    """The last one that was logged, so that it is logged once."""

    async def connect(self, contact: Contact) -> trio.abc.HalfCloseableStream | None:
        """Return a connection to a node, or None if it cannot be reached.

        Checkpoint: always. Cancel: there is no connection.
        """
        if contact.is_encrypted is not (self.tls is not None):
            ours, theirs = ("TLS", "none") if self.tls is not None else ("no TLS", "TLS")
            self._log(contact, f"this node uses {ours} between nodes, and that one {theirs}")
            await trio.sleep(ATTEMPT_S)
            return None
        stream: trio.SocketStream | None = None
        with trio.move_on_after(ATTEMPT_S), suppress(OSError):
            stream = await trio.open_tcp_stream(contact.host, contact.port)
        if stream is None or self.tls is None:
            return stream
        return await self._encrypt(self.tls, stream, contact)

    async def _encrypt(
        self, tls: LinkTls, stream: trio.SocketStream, contact: Contact
    ) -> trio.abc.HalfCloseableStream | None:
        with trio.move_on_after(HANDSHAKE_S):
            try:
                return await tls.open(stream, contact.host)
            except TlsError as error:
                self._log(contact, error.message)
            except trio.BrokenResourceError:
                pass
        return None

    def _log(self, contact: Contact, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            logger.error(
                "node %s cannot be reached at %s: %s; all nodes need the option node_ca, and"
                " certificates of these authorities that are valid for their node_address",
                contact.node,
                contact.host,
                problem,
            )
