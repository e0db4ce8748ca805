"""Ports of loopback for programs that have to be told theirs."""

import secrets
import socket
from contextlib import suppress

_PORTS = range(15000, 30000)
"""Below those that systems give to who asks for any, so that no neighbour gets one in between."""


def free_ports(count: int) -> list[int]:
    """Return ports that are free at the moment."""
    ports: set[int] = set()
    while len(ports) < count:
        port = secrets.choice(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.add(port)
    return list(ports)


def free_port() -> int:
    """Return a port that is free at the moment."""
    return free_ports(1)[0]
