"""The options of the server floor."""

from attrs import frozen

from trio_stomp.base import option

MIB = 1024 * 1024
CLOSE, ERROR = "close", "error"
"""Farewells. Many libraries connect again after a lost connection and raise an ERROR as an
exception in the program, which then ends.
"""


@frozen
class ServerLimits:
    """Bounds of connections, queues and memory, and how long things may take.

    Peers: RabbitMQ allows 64 KiB and 10 s before authentication, NATS 64 MiB in an outbox and
    10 s for a write, stompica 131,072 connections and 1,000,000 frames of input.
    """

    max_connections: int = option(20_000, "maximum number of connections", minimum=1, live=True)
    max_connections_per_address: int = option(
        1_000,
        "maximum number of connections from one address; loopback is exempt",
        minimum=1,
        live=True,
    )
    connect_timeout_s: float = option(
        10.0, "time for a new connection to open a session", minimum=0.001, live=True
    )
    max_opening_bytes: int = option(
        64 * 1024,
        "bytes that a connection may send before its session is open",
        minimum=1024,
        live=True,
    )
    max_input_queue_size: int = option(
        1_000_000, "frames received and waiting for the dispatcher", minimum=1, live=True
    )
    max_input_queue_bytes: int = option(
        64 * MIB, "bytes received and waiting for the dispatcher", minimum=1024, live=True
    )
    input_overflow: str = option(
        "wait",
        "policy of a full input queue: slow producers down, or drop",
        choices=("wait", "drop"),
        live=True,
    )
    max_outbox_bytes: int = option(
        32 * MIB, "output buffer of one connection, in bytes", minimum=1024
    )
    max_memory_bytes: int = option(
        512 * MIB, "bytes of all messages in the process, in any state", minimum=MIB, live=True
    )
    write_stall_s: float = option(
        30.0, "a connection that accepts no byte for this long is closed", minimum=0.001, live=True
    )
    linger_s: float = option(
        2.0, "time for a client to read the last frame sent to it", minimum=0.0, live=True
    )
    drain_s: float = option(
        0.0,
        "time over which a stopping broker closes connections; idle ones go first",
        minimum=0.0,
        live=True,
    )
    shutdown_grace_s: float = option(
        8.0, "time for connections to drain when the broker stops", minimum=0.0, live=True
    )
    farewell: str = option(
        CLOSE,
        "how a stopping broker ends connections: close (1001 of a WebSocket), or error, which "
        "sends an ERROR first",
        choices=(CLOSE, ERROR),
        live=True,
    )
    allowed_origins: str = option(
        "",
        "origins of web pages that may connect, as https://a.example,https://b.example; * = all; "
        "empty = the same host",
        live=True,
    )
    websocket_ping_s: float = option(
        20.0, "interval of pings to a silent WebSocket; 0 = never", minimum=0.0, live=True
    )
    websocket_frames: str = option(
        "auto",
        "type of WebSocket frames sent; auto = text where it is UTF-8",
        choices=("auto", "text", "binary"),
    )
