"""Connections that another node of a cluster relays: a PROXY header of version 2 with a secret.

The header has the client's address, and two extensions (TLVs) of the range for private use: the
secret of the node that it is for, and whether the client may or must use TLS. Each node makes its
secret at its start and shares it through the cluster's engine, so only the nodes know it.
"""

import hmac
from collections.abc import Mapping
from ipaddress import ip_address
from struct import Struct

import trio

from trio_stomp.transport.http._proxy import MAX_BYTES_2, START_2, ProxyError, parse_proxy
from trio_stomp.transport.wire import Wire

_SECRET, _TLS = 0xE0, 0xE1
_HEAD = Struct(">12sBBH")
_TLV = Struct(">BH")
_PROXY, _INET, _INET6 = 0x21, 0x11, 0x21
TLS_WAYS = ("off", "optional", "required")


def relay_header(host: str, port: int, tls: str, secret: bytes) -> bytes:
    """Return the header with which a node relays a client's connection.

    Args:
      host: The client's address.
      port: Its port.
      tls: Whether the client may or must use TLS: ``off``, ``optional`` or ``required``.
      secret: The secret of the node that it is relayed to.
    """
    address = ip_address(host.partition("%")[0])
    width = len(address.packed)
    source = address.packed + bytes(width) + port.to_bytes(2, "big") + bytes(2)
    tlvs = b"".join(
        _TLV.pack(kind, len(content)) + content
        for kind, content in ((_SECRET, secret), (_TLS, tls.encode()))
    )
    family = _INET if width == 4 else _INET6
    return _HEAD.pack(START_2, _PROXY, family, len(source) + len(tlvs)) + source + tlvs


async def read_relay_header(wire: Wire, secret: bytes) -> tuple[bytes, str]:
    """Read the header, and set the wire's address to the client's.

    Returns:
      The bytes after the header, and whether the client may or must use TLS.

    Raises:
      ProxyError: The header is missing or invalid, or has another secret.
      trio.BrokenResourceError: The connection is lost, or ended within the header.

    Checkpoint: only if it has to wait. Cancel: the bytes read are lost.
    """
    data = b""
    while not data.startswith(START_2) or (proxied := parse_proxy(data)) is None:
        if not START_2.startswith(data[: len(START_2)]):
            raise ProxyError("only other nodes of the cluster connect here")
        received = await wire.receive_some(MAX_BYTES_2)
        if not received:
            raise trio.BrokenResourceError("the connection ended before its PROXY header")
        data += received
    extensions = _extensions(proxied.tlvs)
    if not hmac.compare_digest(extensions.get(_SECRET, b""), secret):
        raise ProxyError("it lacks this node's secret, so it is not from a node of the cluster")
    wire.remote, wire.is_loopback = proxied.remote, proxied.is_loopback
    tls = extensions.get(_TLS, b"").decode("ascii", "replace")
    if tls not in TLS_WAYS:
        raise ProxyError(f"{tls[:20]!r} is none of {', '.join(TLS_WAYS)}")
    return data[proxied.size :], tls


def _extensions(tlvs: bytes) -> Mapping[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at + _TLV.size <= len(tlvs):
        kind, length = _TLV.unpack_from(tlvs, at)
        at += _TLV.size
        found[kind] = tlvs[at : at + length]
        at += length
    return found
