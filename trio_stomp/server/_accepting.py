"""Accepting connections from a listener, one for each run of the loop."""

import errno
import logging
import os
from collections.abc import Awaitable, Callable
from typing import NoReturn

import trio

logger = logging.getLogger("trio_stomp")

EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""What accept(2) says when the system has no room for one more."""
RETRY_S = 0.1

Serve = Callable[[trio.abc.Stream], Awaitable[object]]


async def accept_from(
    listener: trio.abc.Listener[trio.abc.Stream], serve: Serve, nursery: trio.Nursery
) -> NoReturn:
    """Start ``serve`` in ``nursery`` for each connection, and close the listener at the end.

    ``trio.serve_listeners`` has a coroutine of its own around each connection, as long as that
    lives, and closes what ``serve`` has closed.

    Args:
      serve: Takes the connection over; it must raise nothing.

    Raises:
      OSError: the listener is broken. That the system is exhausted is only logged.

    Checkpoint: always. Cancel: what was accepted is served.
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
