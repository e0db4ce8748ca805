"""The PROXY protocol: a connection begins with a header that has the client's address.

The sender of this header can claim any address. So it is accepted only from proxies that the
operator lists, and required from them.

Handles: versions 1 and 2, the list of proxies, reading the header from a wire.
Does not handle: time limits; extensions of version 2 (TLVs) other than those between nodes of a
cluster.
Spec: HAProxy's proxy-protocol.txt, revision 2020/03/05, sections 2.1 and 2.2.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from struct import Struct

import trio
from attrs import evolve, frozen

from trio_stomp.base import CloseReason, OptionError, RemoteError
from trio_stomp.transport.wire import Wire

START_1 = b"PROXY "
START_2 = b"\r\n\r\n\0\r\nQUIT\n"
MAX_BYTES_1 = 107
"""Maximum size of a header of version 1, with its line end (section 2.1)."""
MAX_BYTES_2 = 4096
"""Maximum size accepted for version 2. Addresses need at most 216 bytes, TLVs some more."""
UNIX = "unix"

_HEAD_2 = Struct(">12sBBH")
_LOCAL, _PROXY = 0x20, 0x21
_UNSPECIFIED = 0x00
_INET, _INET6, _UNIX = 0x11, 0x21, 0x31
_ADDRESS_BYTES = ((_INET, 12), (_INET6, 36), (_UNIX, 216))

Address = IPv4Address | IPv6Address


class ProxyError(RemoteError):
    """A proxy's connection begins without a valid PROXY header."""

    def __init__(self, message: str) -> None:
        super().__init__(
            "bad-proxy-header", f"bad PROXY header: {message}", reason=CloseReason.BAD_PROXY_HEADER
        )


@frozen
class Proxied:
    """The contents of a PROXY header.

    Args:
      remote: The client's address, formatted as ``Wire.remote``; empty if ``is_local``.
      is_loopback: Whether the client is on the proxy's machine; False if unknown.
      is_local: Whether the proxy is itself the client (a health check), or does not know it.
      size: Size of the header, in bytes.
      tlvs: What follows the addresses in version 2.
    """

    remote: str
    is_loopback: bool
    is_local: bool
    size: int
    tlvs: bytes = b""


def parse_proxy(data: bytes) -> Proxied | None:
    """Parse the header that ``data`` begins with, or return None if more bytes are needed.

    Raises:
      ProxyError: the header is invalid, whatever follows.
    """
    if data.startswith(START_2):
        return _parse_2(data)
    if data.startswith(START_1):
        return _parse_1(data)
    if START_1.startswith(data) or START_2.startswith(data):
        return None
    raise ProxyError("it is missing, although this address is a proxy (option proxy_addresses)")


@frozen
class ProxyNetworks:
    """The proxies that must send the header."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    has_unix: bool = False

    @classmethod
    def parse(cls, text: str) -> "ProxyNetworks":
        """Parse a list such as ``10.0.0.0/8,127.0.0.1,unix``. An empty text means no proxies.

        Raises:
          OptionError: an item of the list is not a network.
        """
        words = [word.strip() for word in text.split(",") if word.strip()]
        networks = []
        for word in words:
            if word.lower() == UNIX:
                continue
            try:
                networks.append(ip_network(word))
            except ValueError as error:
                cause = "it has host bits set" if "host bits" in str(error) else "it is invalid"
                raise OptionError(
                    f"proxy_addresses: {word[:60]!r} is no network: {cause}; write addresses,"
                    " networks as 10.0.0.0/8, or unix, separated by commas"
                ) from None
        return cls(tuple(networks), len(networks) < len(words))

    def contains(self, remote: str) -> bool:
        """Return whether a wire's ``remote`` is the address of a proxy."""
        if remote == UNIX:
            return self.has_unix
        host = remote.rpartition(":")[0].strip("[]").partition("%")[0]
        try:
            address = ip_address(host)
        except ValueError:
            return False  # a stream of an embedding program, or a closed socket
        # If one socket listens for both families, IPv4 peers have IPv6 addresses.
        mapped = getattr(address, "ipv4_mapped", None)
        return any(
            address in network or (mapped is not None and mapped in network)
            for network in self.networks
        )


async def read_proxy_header(wire: Wire) -> bytes:
    """Read the header, and set the wire's address to the client's instead of the proxy's.

    Returns:
      The bytes after the header.

    Raises:
      ProxyError: the header is missing or invalid.
      trio.BrokenResourceError: the connection is lost, or ended within the header.

    Checkpoint: only if it has to wait. Cancel: the bytes read are lost. Limits: buffers one header
    and one read; has no time limit.
    """
    data = b""
    while (proxied := parse_proxy(data)) is None:
        received = await wire.receive_some(MAX_BYTES_2)
        if not received:
            raise trio.BrokenResourceError("the connection ended before its PROXY header")
        data += received
    if not proxied.is_local:
        wire.remote = proxied.remote
    # Loopback of the proxy's machine is trusted only if the proxy is on this machine.
    wire.is_loopback = wire.is_loopback and proxied.is_loopback
    return data[proxied.size :]


def _parse_1(data: bytes) -> Proxied | None:
    line, end, _ = data[:MAX_BYTES_1].partition(b"\r\n")
    # A CR may be the last byte so far; elsewhere CR and LF must be together.
    is_cut = b"\n" in line or b"\r" in (line if end else line[:-1])
    if is_cut or (not end and len(data) >= MAX_BYTES_1):
        raise ProxyError(f"version 1 ends by CR and LF within {MAX_BYTES_1} bytes")
    if not end:
        return None
    size = len(line) + len(end)
    words = line.split(b" ")[1:]
    if words[0] == b"UNKNOWN":
        return Proxied("", False, True, size)  # the rest of the line must be ignored
    if len(words) != 5 or words[0] not in (b"TCP4", b"TCP6"):
        raise ProxyError("version 1 is PROXY TCP4 or TCP6, two addresses, two ports; or UNKNOWN")
    parse = _address_4 if words[0] == b"TCP4" else _address_6
    source, _ = parse(words[1]), parse(words[2])
    port, _ = _port(words[3]), _port(words[4])
    return _proxied(source, port, size)


def _address_4(word: bytes) -> IPv4Address:
    try:
        return IPv4Address(word.decode("ascii"))
    except ValueError:
        raise ProxyError("TCP4 is followed by two IPv4 addresses") from None


def _address_6(word: bytes) -> IPv6Address:
    try:
        if b"%" in word:  # a zone is meaningless on another machine
            raise ValueError
        return IPv6Address(word.decode("ascii"))
    except ValueError:
        raise ProxyError("TCP6 is followed by two IPv6 addresses") from None


def _port(word: bytes) -> int:
    # bytes.isdigit() accepts ASCII digits only; int() also takes signs, blanks and underscores.
    if not word.isdigit() or len(word) > 5 or (word[:1] == b"0" and word != b"0"):
        raise ProxyError("a port is a decimal number without leading zeros")
    port = int(word)
    if port > 65_535:
        raise ProxyError("a port is 65535 or less")
    return port


def _parse_2(data: bytes) -> Proxied | None:
    if len(data) < _HEAD_2.size:
        return None
    _, command, family, length = _HEAD_2.unpack_from(data)
    if command not in (_LOCAL, _PROXY):
        raise ProxyError(f"version and command of version 2 are 0x20 or 0x21, not {command:#04x}")
    size = _HEAD_2.size + length
    if size > MAX_BYTES_2:
        raise ProxyError(f"version 2 is accepted up to {MAX_BYTES_2} bytes, not {size}")
    # With LOCAL even the family must be ignored.
    needed = 0 if command == _LOCAL or family == _UNSPECIFIED else _address_bytes(family)
    if length < needed:
        raise ProxyError(f"addresses of family {family:#04x} take {needed} bytes, not {length}")
    if len(data) < size:
        return None
    if not needed:
        return Proxied("", command == _LOCAL, True, size)
    if family == _UNIX:
        return Proxied(UNIX, True, False, size)
    at = _HEAD_2.size
    width = 4 if family == _INET else 16
    source = ip_address(data[at : at + width])
    port = int.from_bytes(data[at + 2 * width : at + 2 * width + 2], "big")
    return evolve(_proxied(source, port, size), tlvs=data[at + needed : size])


def _address_bytes(family: int) -> int:
    for each, needed in _ADDRESS_BYTES:
        if family == each:
            return needed
    raise ProxyError(f"family {family:#04x} of version 2 is no stream over IPv4, IPv6 or unix")


def _proxied(source: Address, port: int, size: int) -> Proxied:
    if isinstance(source, IPv4Address):
        return Proxied(f"{source}:{port}", source.is_loopback, False, size)
    mapped = source.ipv4_mapped
    if mapped is None:
        return Proxied(f"[{source}]:{port}", source.is_loopback, False, size)
    # Python formats these unlike the kernel, and differently in its versions.
    return Proxied(f"[::ffff:{mapped}]:{port}", mapped.is_loopback, False, size)
