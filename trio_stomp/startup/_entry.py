"""``serve``: a broker alone, or a node of a cluster."""

import logging
import ssl
from collections.abc import Callable, Sequence
from contextlib import closing

import trio

from trio_stomp.base import noop
from trio_stomp.config import Settings, own
from trio_stomp.server import EventFeed, ServerEvent, ServerHandle
from trio_stomp.startup._log_switch import log_to
from trio_stomp.startup._serve import Embedding, serve_one


async def serve(
    settings: Settings | None = None,
    *,
    listeners: Sequence[trio.abc.Listener[trio.abc.Stream]] | None = None,
    events: trio.MemorySendChannel[ServerEvent] | None = None,
    ssl_context: ssl.SSLContext | None = None,
    logger: logging.Logger | None = None,
    new_session_id: Callable[[], str] | None = None,
    on_starting: Callable[[float], None] = noop,
    task_status: trio.TaskStatus[ServerHandle] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a broker until it is stopped.

    Args:
      settings: The options of the broker; None = the defaults.
      listeners: The listeners for clients, closed at the end; None = TCP at ``settings.listen``;
        empty = clients connect by ``handle.connect`` only.
      events: Receives connection events, and is closed at the end. The broker does not wait for
        it: when it is full, new events are dropped and counted, and ``lost`` takes their place.
      ssl_context: A server-side TLS context with a certificate, instead of ``tls_cert``. TLS is
        then required on all ports and listeners.
      logger: The logger of this broker, instead of ``trio_stomp``.
      new_session_id: Returns a unique id of 1 to 128 letters, digits, dots, dashes and
        underscores. It is called once for each connection and must not block. The default returns
        numbers.
      on_starting: Called by a thread, at most once a second, with the share of the store that is
        read: 0 to 1.
      task_status: Gets a ``ServerHandle`` once the broker listens: use ``nursery.start``.

    Raises:
      OSError: listening on the address failed.
      OptionError: a file of users, rules, keys or certificates is wrong, or a broker without
        authentication would be exposed beyond this machine; no port was opened.
      StoreError: the store is not available; no port was opened.

    While the store is read for long, probes are answered: 200 at /livez, 503 at /readyz.

    Checkpoint: always. Cancel: stops at once; received frames are still dispatched. For an ordered
    shutdown call ``handle.stop()``.
    """
    feed = EventFeed(events)
    settings = own(settings or Settings())
    embedding = Embedding(feed, ssl_context, new_session_id, on_starting=on_starting)
    with log_to(logger), closing(feed):
        if settings.cluster.cluster:
            # Imported late, because only nodes of a cluster need it.
            if settings.cluster.cluster_partitions > 1:
                from trio_stomp.startup._partitions import serve_partitions as serve_node
            else:
                from trio_stomp.startup._node import serve_node

            await serve_node(settings, listeners, embedding, task_status)
        else:
            await serve_one(settings, listeners, embedding, task_status)
