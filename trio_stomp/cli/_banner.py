"""The first line of a broker's log: its addresses, its limits, and a command to try it."""

from collections.abc import Sequence

from trio_stomp._version import __version__
from trio_stomp.cli.process import variant_suffix
from trio_stomp.config import Settings

STEPS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))

# A client cannot connect to the wildcard address.
WILDCARDS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}

SNIPPET = "trio-stomp send /queue/hello hello --url {scheme}://{host}:{port}{login}"


def banner(addresses: Sequence[str], tls_addresses: Sequence[str], settings: Settings) -> str:
    """Return one line with addresses, transports, limits in force and a client command to paste.

    Args:
      tls_addresses: The addresses that accept TLS only.
      addresses: The socket addresses, as ``("127.0.0.1:61613", "[::1]:61613")``; empty if all
        listeners are in memory.
      settings: The settings of the broker.
    """
    shown = [*addresses, *(f"{each} (TLS)" for each in tls_addresses)]
    transports = "TCP and WebSocket"
    if settings.transport.tls_cert:
        transports = "TCP, TLS and WebSocket"
    parts = [
        f"trio_stomp {__version__}{variant_suffix()} listening on "
        f"{', '.join(shown) or 'no address'}",
        f"STOMP 1.0, 1.1, 1.2 over {transports} on the same port",
        f"limits: {_limits(settings)}",
    ]
    if addresses:
        login = " --login USER" if settings.security.passwd_file else ""
        only_tls = settings.transport.tls == "required"
        parts.append(f"try: {snippet(addresses[0], login, 'stomps' if only_tls else 'stomp')}")
    return "; ".join(parts)


def snippet(address: str, login: str = "", scheme: str = "stomp") -> str:
    """Return a command that sends a message, without quotes, which a JSON log would escape.

    Args:
      address: The broker's address.
      login: The login options of the command; "" = none are needed.
      scheme: The scheme of the URL.
    """
    host, _, port = address.rpartition(":")
    return SNIPPET.format(scheme=scheme, host=WILDCARDS.get(host, host), port=port, login=login)


def _limits(settings: Settings) -> str:
    server = settings.server
    ttl_ms = settings.broker.ttl_ms
    return ", ".join(
        [
            f"{server.max_connections} connections",
            f"{server.max_connections_per_address} per address",
            f"body {size(settings.frames.max_body_bytes)}",
            f"outbox {size(server.max_outbox_bytes)}",
            f"memory {size(server.max_memory_bytes)}",
            f"ttl {ttl_ms} ms" if ttl_ms else "ttl off",
        ]
    )


def size(count: int) -> str:
    """Return a number of bytes in the largest unit that divides it."""
    for unit, name in STEPS:
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} bytes"
