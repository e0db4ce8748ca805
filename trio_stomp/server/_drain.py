"""Draining before the broker stops: refuse new sessions, end the others one after another.

Ending all at once would flood the broker that takes over with connections.
"""

import math
from typing import TYPE_CHECKING

import trio

from trio_stomp.base import CloseReason, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trio_stomp.server.connection import Connection

PACE_S = 0.1
RETRY_MS = 1000


def stopping(retry_ms: int = RETRY_MS) -> ProtocolError:
    """Return the error for clients that connect or remain while the broker stops.

    Args:
      retry_ms: When the client should connect again, here or elsewhere.
    """
    return ProtocolError(
        "shutting-down",
        "the broker is stopping; connect again later",
        reason=CloseReason.SHUTTING_DOWN,
        headers=(("retry-after-ms", str(retry_ms)),),
    )


async def drain(
    connections: "Mapping[Connection, None]",
    duration_s: float,
    retire: "Callable[[Connection], None]",
) -> None:
    """End connections at an even pace, until ``duration_s`` is over or none is left.

    Busy clients stay until they are done: those with an open transaction, unacknowledged messages
    or a backlog.

    Checkpoint: unless ``duration_s`` is 0. Cancel: the other connections stay.
    """
    deadline, many = trio.current_time() + duration_s, len(connections)
    while connections and (left_s := deadline - trio.current_time()) > 0:
        await trio.sleep(min(PACE_S, left_s))
        may_stay = many * (left_s - PACE_S) / duration_s
        idle = [each for each in connections if each.is_open and not _is_busy(each)]
        for connection in idle[: math.ceil(len(connections) - may_stay)]:
            retire(connection)


def _is_busy(connection: "Connection") -> bool:
    transactions = connection.session.transactions
    if transactions is not None and transactions.are_open:
        return True
    if connection.outbox.waiting_bytes:
        return True
    return any(
        each.consumer is not None and each.consumer.unacked
        for each in connection.client.subscriptions.values()
    )
