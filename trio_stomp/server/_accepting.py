"""Accepting connections from a listener, one in each pass of the loop."""

import errno
import logging
import os
from collections.abc import Awaitable, Callable
from typing import NoReturn

import trio

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
