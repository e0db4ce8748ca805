"""Accepting connections from a listener, and how proxies and nodes introduce their clients."""

import errno
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from math import inf
from typing import NoReturn

import trio
from attrs import define, field

from trio_stomp.base import RemoteError, noop
from trio_stomp.server._admission import Admission
from trio_stomp.server._limits import ServerLimits
from trio_stomp.server.io import CONNECTION, Bugs
from trio_stomp.transport import (
    LinkTls,
    ProxyNetworks,
    Relayed,
    SlicedPoll,
    TlsWire,
    Wire,
    read_proxy_header,
    read_relay_header,
    wire_over,
)

logger = logging.getLogger("trio_stomp")

EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""The errors of accept(2) when the system has no room for another connection."""
RETRY_S = 0.1
SPARE_SHARE, LEAST_SPARE = 0.05, 32
"""The share of the process's files, and the least number, that connections never get: the store,
pages and logs need them."""

Serve = Callable[[trio.abc.Stream], Awaitable[object]]
ServeWire = Callable[[Wire, RemoteError | None, Relayed], Awaitable[None]]
"""Serves a client; the error says why it is refused."""


async def accept_from(
    listener: trio.abc.Listener[trio.abc.Stream], serve: Serve, nursery: trio.Nursery
) -> NoReturn:
    """Start ``serve`` in ``nursery`` for each connection, and close the listener at the end.

    ``trio.serve_listeners`` keeps an extra coroutine around each connection for its whole life, and
    closes what ``serve`` has already closed.

    Args:
      listener: The listener to accept from.
      serve: Takes the connection over. It must not raise.
      nursery: Runs the connections.

    Raises:
      OSError: the listener is broken. Exhaustion of the system is only logged.

    Checkpoint: always. Cancel: connections already accepted are served.
    """
    failures = 0
    async with listener:
        while True:
            try:
                stream = await listener.accept()
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                failures += 1
                if failures == 1:  # it may go on for days
                    logger.error(
                        "a connection cannot be accepted: %s (%s); trying again each %g s",
                        os.strerror(error.errno),
                        errno.errorcode[error.errno],
                        RETRY_S,
                    )
                await trio.sleep(RETRY_S)
            else:
                if failures:
                    logger.info("connections are accepted again, after %d attempts", failures)
                    failures = 0
                nursery.start_soon(serve, stream)


def most_files() -> float:
    """Return the number of files that the process may have open for connections."""
    if sys.platform == "win32":
        return inf
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return inf
    return limit - max(LEAST_SPARE, limit * SPARE_SHARE)


@define(eq=False, repr=False)
class Door:
    """Lets clients in: what proxies and nodes say of them, and the limits on connections.

    A server and a standby of a cluster have the same.

    Args:
      limits: The limits on connections.
      proxies: The addresses whose connections begin with a PROXY header.
      poll: Reads from quiet sockets; None = each is read by itself.
      on_stranger: Called when such a header is invalid.
      bugs: Counts bugs that end a connection.
    """

    limits: ServerLimits
    proxies: ProxyNetworks | None = None
    poll: SlicedPoll | None = None
    on_stranger: Callable[[], None] = noop
    bugs: Bugs = field(factory=Bugs)
    admission: Admission = field(init=False)
    most_files: float = field(factory=most_files)
    _turned_away: int = 0
    """Connections closed since the files for connections are used up."""

    def __attrs_post_init__(self) -> None:
        self.admission = Admission(self.limits)

    def _has_file_for(self, stream: trio.abc.Stream) -> bool:
        """Return whether a connection may keep its file.

        The system gives the lowest free number, so all below it are in use.
        """
        listening = getattr(stream, "socket", None)
        number = listening.fileno() if isinstance(listening, trio.socket.SocketType) else -1
        if number >= self.most_files:
            self.admission.refused += 1
            self._turned_away += 1
            if self._turned_away == 1:
                logger.error(
                    "connections are closed at once: the process has %d files open, and needs the"
                    " rest itself; raise the limit (ulimit -n), or lower max_connections",
                    number,
                )
            return False
        if self._turned_away:
            logger.info("connections are accepted again; %d were closed", self._turned_away)
            self._turned_away = 0
        return True

    async def let_in(
        self,
        serve: ServeWire,
        tls: str,
        secret: bytes,
        links: LinkTls | None,
        stream: trio.abc.Stream,
    ) -> None:
        """Serve a connection of an entrance. Never raises.

        Args:
          serve: Serves it, and closes the wire.
          tls: Whether clients may or must use TLS.
          secret: The secret that a node must know; b"" = no node comes here.
          links: The TLS of nodes.
          stream: The connection.
        """
        if not self._has_file_for(stream):
            await trio.aclose_forcefully(stream)
            return
        wire = wire_over(stream, self.poll)
        del stream  # it would keep four objects alive for the life of the connection
        try:
            is_direct = self.proxies is None or not self.proxies.contains(wire.remote)
            if is_direct and not secret:
                await self._admit(wire, Relayed(b"", tls), serve)
                return
            if links is not None:
                wire = TlsWire(wire, links.accepting.context, is_link=True)
            introduced = await introduce(wire, tls, secret, self.limits.connect_timeout_s)
            if introduced is None:
                self.on_stranger()
            else:
                await self._admit(wire, introduced, serve)
        except* Exception:
            # A bug, or a stream that breaks its contract, must end only this connection.
            self.bugs.note(CONNECTION, "%s: a bug in the broker ended this connection", wire.remote)

    async def _admit(self, wire: Wire, introduced: Relayed, serve: ServeWire) -> None:
        was_flooded = self.admission.is_flooded
        refusal = self.admission.enter(wire)
        try:
            if refusal is not None and was_flooded:
                await wire.aclose()
            else:
                await serve(wire, refusal, introduced)
        finally:
            self.admission.leave(wire, refusal)


async def introduce(wire: Wire, tls: str, secret: bytes, timeout_s: float) -> Relayed | None:
    """Return what the header of a proxy or node says; None = it is invalid, and the wire is closed.

    Args:
      wire: The connection. If it is a node's with TLS, this shakes hands first.
      tls: Whether clients of a proxy may or must use TLS.
      secret: The secret that a node must know; b"" = it is a proxy.
      timeout_s: The time limit.

    Checkpoint: only if it has to wait. Cancel: the wire is closed.
    """
    problem = "timed out"
    is_known = False
    try:
        with trio.move_on_after(timeout_s):
            if isinstance(wire, TlsWire):
                await wire.handshake()
            if secret:
                introduced = await read_relay_header(wire, secret)
            else:
                introduced = Relayed(await read_proxy_header(wire), tls)
            is_known = True
            return introduced
    except trio.BrokenResourceError:
        problem = "the connection was lost"
    except RemoteError as error:
        problem = error.message
    finally:
        if not is_known:
            with trio.CancelScope(shield=True):
                await wire.aclose()
    logger.warning("%s should begin with a PROXY header: %s", wire.remote, problem)
    return None
