"""Traffic totals of all connections, including ended ones, so that no total decreases."""

from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from trio_stomp.server.connection import Connection


@define(eq=False, repr=False)
class Traffic:
    """Sums of the counters of connections."""

    opened: dict[str, int] = field(factory=dict)
    """Connections whose CONNECT was read, by transport (``tcp``, ``tls``, ``ws``, ``wss``)."""
    frames_in: int = 0
    frames_out: int = 0
    """MESSAGEs."""
    bytes_in: int = 0
    bytes_out: int = 0
    heartbeats_missed: int = 0

    def add(self, connection: "Connection") -> None:
        """Add the counters of one connection."""
        outbox = connection.outbox
        self.frames_in += connection.frames_in
        self.frames_out += outbox.frames_out
        self.bytes_in += connection.bytes_in
        self.bytes_out += outbox.bytes_out
        self.heartbeats_missed += connection.heartbeats_missed
        if connection.is_open:
            transport = connection.client.transport
            self.opened[transport] = self.opened.get(transport, 0) + 1

    def copy(self) -> "Traffic":
        """Return a copy to which more can be added."""
        return Traffic(
            dict(self.opened),
            frames_in=self.frames_in,
            frames_out=self.frames_out,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            heartbeats_missed=self.heartbeats_missed,
        )
