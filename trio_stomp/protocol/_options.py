"""The options of the protocol floor."""

from attrs import frozen

from trio_stomp.base import option


@frozen
class ProtocolOptions:
    """Heart-beats and greetings (STOMP 1.2, "Connecting" and "Heart-beating")."""

    heartbeat_send_ms: int = option(
        1000, "heart-beats that the broker offers to send; 0 = none", minimum=0, live=True
    )
    heartbeat_expect_ms: int = option(
        1000, "heart-beats that the broker asks for; 0 = none", minimum=0, live=True
    )
    heartbeat_tolerance: float = option(
        2.0, "a client is dead after this many silent intervals", minimum=1.0, live=True
    )
    heartbeat_margin_s: float = option(
        1.0, "a client is never dead sooner than this after its interval", minimum=0.0, live=True
    )
    require_host: bool = option(
        False, "refuse a STOMP 1.1+ CONNECT without a host header", live=True
    )
    hosts: str = option(
        "", "what CONNECT may have as host, with commas between, as /,/test; empty = any", live=True
    )
    server_name: str = option(
        "", "server of CONNECTED, for clients that choose their dialect by it; empty = our own"
    )
    hide_server: bool = option(False, "tell no version: in CONNECTED, nor on the start page")
    max_transactions: int = option(
        16, "transactions that a connection may have open", minimum=1, live=True
    )
    max_transaction_actions: int = option(1024, "frames in one transaction", minimum=1, live=True)
    max_transaction_bytes: int = option(
        16 * 1024 * 1024,
        "bytes in all open transactions of a connection, headers too",
        minimum=1024,
        live=True,
    )
