"""stompica's statistics on request: the command DIAG, and SENDs to DIAG destinations.

Requests, header names and JSON keys are those of stompica, so that its clients work unchanged.
"""

from collections.abc import Callable, Mapping

from trio_stomp.broker.delivery import Census

_MAX_LISTED = 4000
"""Limit of bytes in the list of ``subs``, as in stompica."""


def _sizes(census: Census, connected: int, subscriptions: int) -> dict[str, int]:
    return {
        "session-size": census.clients,
        "session-encoded-size": census.websockets,
        "session-connected-size": connected,
        "pubsub-size": subscriptions,
    }


class DiagQueries:
    """Statistics in stompica's formats.

    Args:
      census: Figures of the server.
      connected: Open STOMP sessions.
      subscriptions: Subscriptions of all clients.
      stale: Messages in the stale queue.
      destination_names: Returns the destinations of all subscriptions, in order. Called only for
        ``subs``.
    """

    def __init__(
        self,
        census: Census,
        connected: int,
        subscriptions: int,
        stale: int,
        destination_names: Callable[[], list[str]],
    ) -> None:
        self._census = census
        self._connected = connected
        self._subscriptions = subscriptions
        self._stale = stale
        self._destination_names = destination_names

    def headers(self, body: str) -> dict[str, str]:
        """Return the headers with the statistics that a body requests, or {}."""
        sizes = _sizes(self._census, self._connected, self._subscriptions)
        for name, figure in sizes.items():
            if body.startswith(name):
                return {name: str(figure)}
        for word, figures in (
            ("session", self._session()),
            ("ws_buffer", self._ws_buffer()),
            ("stale", self._queues()),
        ):
            if body.startswith(word):
                return {name: str(figure) for name, figure in figures.items()}
        return {}

    def command(self, query: str) -> str | None:
        """Return the answer to the command DIAG, or None if stompica does not know the query."""
        query = query.strip("\n\r")
        sizes = _sizes(self._census, self._connected, self._subscriptions)
        if query in sizes:
            return f"{query}:{sizes[query]}"
        if query == "session":
            return "session:" + _json(self._session())
        if query == "ws_buffer":
            return "ws_buffer:" + _json(self._ws_buffer())
        if query == "stale":
            figures = {
                "in": self._census.input_queue_size,
                "out": self._census.output_queue_size,
                "stale": self._stale,
            }
            return "stale:" + _json(figures)
        if query == "subs":
            return "subs:" + self._listed()
        return None

    def _session(self) -> dict[str, int]:
        return {
            "clients": self._census.clients,
            "websockets": self._census.websockets,
            "stomp_connected": self._connected,
            "subscriptions": self._subscriptions,
        }

    def _ws_buffer(self) -> dict[str, int]:
        return {
            "allocated": self._census.ws_allocated,
            "hits": self._census.ws_hits,
            "misses": self._census.ws_misses,
        }

    def _queues(self) -> dict[str, int]:
        return {
            "input-queue-size": self._census.input_queue_size,
            "output-queue-size": self._census.output_queue_size,
            "stale-queue-size": self._stale,
        }

    def _listed(self) -> str:
        listed, length = [], 0
        for destination in self._destination_names():
            length += len(destination.encode()) + 1
            if length - 1 > _MAX_LISTED:
                break
            listed.append(destination)
        return ",".join(listed)


def _json(figures: Mapping[str, int]) -> str:
    return "{" + ",".join(f'"{name}":{figure}' for name, figure in figures.items()) + "}"
