"""Accepting connections from a listener, and how proxies and nodes introduce their clients."""

import errno
import logging
import os
from collections.abc import Awaitable, Callable
from typing import NoReturn

import trio

from trio_stomp.base import RemoteError
from trio_stomp.transport import (
    Relayed,
    TlsWire,
    Wire,
    read_proxy_header,
    read_relay_header,
)

logger = logging.getLogger("trio_stomp")

EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""The errors of accept(2) when the system has no room for another connection."""
RETRY_S = 0.1

Serve = Callable[[trio.abc.Stream], Awaitable[object]]


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
    async with listener:
        while True:
            try:
                stream = await listener.accept()
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                logger.error(
                    "a connection cannot be accepted: %s (%s); trying again in %g s",
                    os.strerror(error.errno),
                    errno.errorcode[error.errno],
                    RETRY_S,
                )
                await trio.sleep(RETRY_S)
            else:
                nursery.start_soon(serve, stream)


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
