"""Addresses of this machine."""

import socket
from ipaddress import IPv6Address, ip_address


def is_loopback(host: str) -> bool:
    """Return whether a host is reached from this machine only.

    Args:
      host: An address, which may have a zone, or a name. Of names, only ``localhost`` and those
        below it are reached from this machine only, whatever others resolve to.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    # Not all versions of Python look at the IPv4 address within an IPv6 address.
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def is_every_address(host: str) -> bool:
    """Return whether a host stands for all addresses of a machine, however that is written."""
    host = host.strip("[]")
    try:
        return host == "*" or socket.inet_aton(host) == bytes(4)  # as 0 and 0x0, too
    except OSError:
        try:
            return ip_address(host.removeprefix("::ffff:")).is_unspecified
        except ValueError:
            return False
