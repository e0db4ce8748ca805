"""stompica's statistics on request: the command DIAG, and SENDs to DIAG destinations.

Requests, header names and JSON keys are those of stompica, so that its clients work unchanged.
"""

from collections.abc import Callable, Mapping

from attrs import frozen

from trio_stomp.broker.delivery import Census

_MAX_LISTED = 4000
"""Limit of bytes in the list of ``subs``, as in stompica."""


@frozen(eq=False)
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

    census: Census
    connected: int
    subscriptions: int
    stale: int
    destination_names: Callable[[], list[str]]

    def headers(self, body: str) -> dict[str, str]:
        """Return the headers with the statistics that a body requests, or {}."""
        queues = self._queues("input-queue-size", "output-queue-size", "stale-queue-size")
        sizes = {name: {name: size} for name, size in self._sizes().items()}
        tables = {**sizes, **self._tables(), "stale": queues}
        found = next((tables[word] for word in tables if body.startswith(word)), {})
        return {name: str(figure) for name, figure in found.items()}

    def command(self, query: str) -> str | None:
        """Return the answer to the command DIAG, or None if stompica does not know the query."""
        query = query.strip("\n\r")
        sizes = self._sizes()
        tables = {**self._tables(), "stale": self._queues("in", "out", "stale")}
        if query in sizes:
            return f"{query}:{sizes[query]}"
        if query in tables:
            return f"{query}:{_json(tables[query])}"
        return "subs:" + self._listed() if query == "subs" else None

    def _sizes(self) -> dict[str, int]:
        return {
            "session-size": self.census.clients,
            "session-encoded-size": self.census.websockets,
            "session-connected-size": self.connected,
            "pubsub-size": self.subscriptions,
        }

    def _tables(self) -> dict[str, dict[str, int]]:
        census = self.census
        return {
            "session": {
                "clients": census.clients,
                "websockets": census.websockets,
                "stomp_connected": self.connected,
                "subscriptions": self.subscriptions,
            },
            "ws_buffer": {
                "allocated": census.ws_allocated,
                "hits": census.ws_hits,
                "misses": census.ws_misses,
            },
        }

    def _queues(self, *names: str) -> dict[str, int]:
        """Return the sizes of input, output and stale queue under some names."""
        sizes = self.census.input_queue_size, self.census.output_queue_size, self.stale
        return dict(zip(names, sizes, strict=True))

    def _listed(self) -> str:
        listed, length = [], 0
        for destination in self.destination_names():
            length += len(destination.encode()) + 1
            if length - 1 > _MAX_LISTED:
                break
            listed.append(destination)
        return ",".join(listed)


def _json(figures: Mapping[str, int]) -> str:
    return "{" + ",".join(f'"{name}":{figure}' for name, figure in figures.items()) + "}"
