"""The options of the protocol floor."""

from attrs import frozen

from trio_stomp.base import option


@frozen
class ProtocolOptions:
    """Heart-beats, CONNECT and transactions (STOMP 1.2, "Connecting" and "Heart-beating")."""

    heartbeat_send_ms: int = option(
        1000, "interval of heart-beats that the broker offers; 0 = none", minimum=0, live=True
    )
    heartbeat_expect_ms: int = option(
        1000, "interval of heart-beats that the broker requests; 0 = none", minimum=0, live=True
    )
    heartbeat_tolerance: float = option(
        2.0, "silent intervals after which a client is considered dead", minimum=1.0, live=True
    )
    heartbeat_margin_s: float = option(
        1.0,
        "minimum time after its interval before a client is considered dead",
        minimum=0.0,
        live=True,
    )
    require_host: bool = option(
        False, "refuse a STOMP 1.1+ CONNECT without a host header", live=True
    )
    hosts: str = option(
        "",
        "allowed host headers of CONNECT, separated by commas, as /,/test; empty = any",
        live=True,
    )
    server_name: str = option(
        "", "server header of CONNECTED, by which some clients choose a dialect; empty = our own"
    )
    hide_server: bool = option(False, "hide the version, in CONNECTED and on the start page")
    max_transactions: int = option(
        16, "maximum number of open transactions of a connection", minimum=1, live=True
    )
    max_transaction_actions: int = option(
        1024, "maximum number of frames in one transaction", minimum=1, live=True
    )
    max_transaction_bytes: int = option(
        16 * 1024 * 1024,
        "maximum size of all open transactions of a connection, with headers",
        minimum=1024,
        live=True,
    )
