"""The PROXY protocol: a proxy tells whom it speaks for, before anything else.

Whoever may send this header can pretend to be any address, so it is believed only if it comes
from a proxy that the operator named, and from there it must come.

Handles: versions 1 and 2, who is a proxy, reading the header from a wire.
Does not handle: time (the caller's), the extensions of version 2 (TLVs), which are skipped.
Spec: HAProxy's proxy-protocol.txt, revision 2020/03/05, sections 2.1 and 2.2.
"""

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from struct import Struct

import trio
from attrs import frozen

from trio_stomp.base import CloseReason, OptionError, RemoteError
from trio_stomp.transport.wire import Wire

START_1 = b"PROXY "
START_2 = b"\r\n\r\n\0\r\nQUIT\n"
MAX_BYTES_1 = 107
"""The longest header of version 1, with its line end (section 2.1)."""
MAX_BYTES_2 = 4096
"""The longest that is taken here of version 2. The addresses need 216 bytes, TLVs some more."""
UNIX = "unix"

_HEAD_2 = Struct(">12sBBH")
_LOCAL, _PROXY = 0x20, 0x21
_UNSPECIFIED = 0x00
_INET, _INET6, _UNIX = 0x11, 0x21, 0x31
_ADDRESS_BYTES = ((_INET, 12), (_INET6, 36), (_UNIX, 216))

Address = IPv4Address | IPv6Address


class ProxyError(RemoteError):
    """A proxy's connection begins without a PROXY header: the fault of it or its operator."""

    def __init__(self, message: str) -> None:
        super().__init__(
            "bad-proxy-header",
            f"bad PROXY header: {message}",
            reason=CloseReason.BAD_PROXY_HEADER,
        )


@frozen
class Proxied:
    """The contents of a PROXY header.

    Args:
      remote: The client's address, as a wire spells it; empty if ``is_local``.
      is_loopback: Whether the client is on the machine of the proxy; not if that is unknown.
      is_local: Whether the proxy speaks for itself (a health check), or cannot tell for whom.
      size: Bytes of the header.
    """

    remote: str
    is_loopback: bool
    is_local: bool
    size: int


def parse_proxy(data: bytes) -> Proxied | None:
    """Read the header that ``data`` begins with, or return None if more bytes are needed.

    Raises:
      ProxyError: The peer's fault; told as soon as no further byte could help.
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
    """The proxies that are believed, and must send the header."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    has_unix: bool = False

    @classmethod
    def parse(cls, text: str) -> "ProxyNetworks":
        """Read ``10.0.0.0/8,127.0.0.1,unix``, of which an empty text means none.

        Raises:
          OptionError: the operator's fault, naming what is no network.
        """
        words = [word.strip() for word in text.split(",") if word.strip()]
        networks = []
        for word in words:
            if word.lower() == UNIX:
                continue
            try:
                networks.append(ip_network(word))
            except ValueError as error:
                cause = "it has bits of a host" if "host bits" in str(error) else "it is none"
                raise OptionError(
                    f"proxy_addresses: {word[:60]!r} is no network: {cause}; write addresses,"
                    " networks as 10.0.0.0/8, or unix, with commas between"
                ) from None
        return cls(tuple(networks), len(networks) < len(words))

    def contains(self, remote: str) -> bool:
        """Return whether a wire's ``remote`` is one of the proxies."""
        if remote == UNIX:
            return self.has_unix
        host = remote.rpartition(":")[0].strip("[]").partition("%")[0]
        try:
            address = ip_address(host)
        except ValueError:
            return False  # a stream of an embedding program, or a socket that is gone
        # Where one socket listens for both families, an IPv4 peer has an IPv6 address.
        mapped = getattr(address, "ipv4_mapped", None)
        return any(
            address in network or (mapped is not None and mapped in network)
            for network in self.networks
        )


async def read_proxy_header(wire: Wire) -> tuple[Wire, bytes]:
    """Read the header, and have the wire tell the client's address instead of the proxy's.

    Returns: the wire, and what came behind the header.

    Raises:
      ProxyError: The proxy's fault.
      trio.BrokenResourceError: the connection is lost, or ended before the header did.

    Checkpoint: only if it has to wait. Cancel: what was read is lost. Limits: time is the
    caller's; no more than a header and one read are held.
    """
    data = b""
    while (proxied := parse_proxy(data)) is None:
        received = await wire.receive_some(MAX_BYTES_2)
        if not received:
            raise trio.BrokenResourceError("the connection ended before its PROXY header")
        data += received
    if not proxied.is_local:
        wire.remote = proxied.remote
    # Loopback of another machine is no place to trust more than any other.
    wire.is_loopback = wire.is_loopback and proxied.is_loopback
    return wire, data[proxied.size :]


def _parse_1(data: bytes) -> Proxied | None:
    line, end, _ = data[:MAX_BYTES_1].partition(b"\r\n")
    # A CR may be the last byte so far; elsewhere neither stands alone.
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
        if b"%" in word:  # a zone means nothing on another machine
            raise ValueError
        return IPv6Address(word.decode("ascii"))
    except ValueError:
        raise ProxyError("TCP6 is followed by two IPv6 addresses") from None


def _port(word: bytes) -> int:
    # isdigit() of bytes knows ASCII only; int() alone would take signs, blanks and underscores.
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
        raise ProxyError(f"version 2 is taken up to {MAX_BYTES_2} bytes, not {size}")
    # Of LOCAL even the family must be ignored.
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
    if family == _INET:
        source: Address = IPv4Address(data[at : at + 4])
        return _proxied(source, int.from_bytes(data[at + 8 : at + 10], "big"), size)
    source = IPv6Address(data[at : at + 16])
    return _proxied(source, int.from_bytes(data[at + 32 : at + 34], "big"), size)


def _address_bytes(family: int) -> int:
    for known, needed in _ADDRESS_BYTES:
        if family == known:
            return needed
    raise ProxyError(f"family {family:#04x} of version 2 is no stream over IPv4, IPv6 or unix")


def _proxied(source: Address, port: int, size: int) -> Proxied:
    if isinstance(source, IPv4Address):
        return Proxied(f"{source}:{port}", source.is_loopback, False, size)
    mapped = source.ipv4_mapped
    if mapped is None:
        return Proxied(f"[{source}]:{port}", source.is_loopback, False, size)
    # Python does not spell these as the kernel does, nor the same in all its versions.
    return Proxied(f"[::ffff:{mapped}]:{port}", mapped.is_loopback, False, size)
