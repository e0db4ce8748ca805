"""Connections that another node of a cluster relays: a PROXY header of version 2 with a secret.

The header has the client's address, and two extensions (TLVs) of the range for private use: the
secret of the node that it is for, and whether the client may or must use TLS. Each node makes its
secret at its start and shares it through the cluster's engine, so only the nodes know it.

A node that ends sessions of clients itself says in a third extension how many bytes of a voucher
follow the header: who the client is, so that it need not log in again.
"""

import hmac
import json
import math
from collections.abc import Mapping
from ipaddress import ip_address
from struct import Struct

import trio
from attrs import frozen

from trio_stomp.base import Identity
from trio_stomp.transport.http._proxy import MAX_BYTES_2, START_2, ProxyError, parse_proxy
from trio_stomp.transport.wire import Wire

_SECRET, _TLS, _VOUCHER = 0xE0, 0xE1, 0xE2
_LENGTH = Struct(">I")
MAX_VOUCHER_BYTES = 64 * 1024
_HEAD = Struct(">12sBBH")
_TLV = Struct(">BH")
_PROXY, _INET, _INET6 = 0x21, 0x11, 0x21
TLS_WAYS = ("off", "optional", "required")


@frozen
class Voucher:
    """A node's word on a client whose session it has opened.

    Args:
      identity: The authenticated identity.
      transport: How the client is connected, for people: ``tcp``, ``tls``, ``ws`` or ``wss``.
      session: The id of its session, which operators know; "" = there is none.
      is_forwarder: It is the node itself, which sends stored messages of the user on.
    """

    identity: Identity
    transport: str = "tcp"
    session: str = ""
    is_forwarder: bool = False

    def encode(self) -> bytes:
        """Return it as bytes."""
        who = self.identity
        expires_at = None if who.expires_at == math.inf else who.expires_at
        # Not that of a passcode, which could be guessed from it: the node that checked it answers
        # for it.
        key = "" if who.method == "passcode" else who.key
        fields = [who.name, sorted(who.roles), expires_at, who.method, key, self.transport]
        return json.dumps([*fields, self.session, self.is_forwarder]).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Voucher":
        """Return the voucher made by ``encode``.

        Raises:
          ProxyError: It is none.
        """
        try:
            # A newer version may append fields.
            name, roles, expires_at, method, key, transport, session, *more = json.loads(data)
            expires_at = math.inf if expires_at is None else float(expires_at)
            who = Identity(name, frozenset(roles), expires_at, method, key)
            return cls(who, transport, session, is_forwarder=more[:1] == [True])
        except (ValueError, TypeError) as error:
            raise ProxyError(f"the voucher of the node is damaged: {error}") from error


@frozen
class Relayed:
    """The introduction of a relayed connection.

    Args:
      early: Bytes of the client that came with it.
      tls: Whether the client may or must use TLS.
      voucher: The node's word on the client; None = the client is still to log in.
    """

    early: bytes
    tls: str
    voucher: Voucher | None = None


def relay_header(
    host: str, port: int, tls: str, secret: bytes, voucher: Voucher | None = None
) -> bytes:
    """Return the header with which a node relays a client's connection.

    Args:
      host: The client's address.
      port: Its port.
      tls: Whether the client may or must use TLS: ``off``, ``optional`` or ``required``.
      secret: The secret of the node that it is relayed to.
      voucher: The node's word on the client, if its session is open.
    """
    vouched = voucher.encode() if voucher is not None else b""
    extensions = [(_SECRET, secret), (_TLS, tls.encode())]
    if vouched:
        extensions.append((_VOUCHER, _LENGTH.pack(len(vouched))))
    address = ip_address(host.partition("%")[0])
    width = len(address.packed)
    source = address.packed + bytes(width) + port.to_bytes(2, "big") + bytes(2)
    tlvs = b"".join(_TLV.pack(kind, len(content)) + content for kind, content in extensions)
    family = _INET if width == 4 else _INET6
    head = _HEAD.pack(START_2, _PROXY, family, len(source) + len(tlvs))
    return head + source + tlvs + vouched


async def read_relay_header(wire: Wire, secret: bytes) -> Relayed:
    """Read the header, and set the wire's address to the client's.

    Raises:
      ProxyError: The header or voucher is missing or invalid, or has another secret.
      trio.BrokenResourceError: The connection is lost, or ended within the header.

    Checkpoint: only if it has to wait. Cancel: the bytes read are lost.
    """
    data = b""
    while not data.startswith(START_2) or (proxied := parse_proxy(data)) is None:
        if not START_2.startswith(data[: len(START_2)]):
            raise ProxyError("only other nodes of the cluster connect here")
        data += await _receive(wire)
    extensions = _extensions(proxied.tlvs)
    if not hmac.compare_digest(extensions.get(_SECRET, b""), secret):
        raise ProxyError("it lacks this node's secret, so it is not from a node of the cluster")
    wire.remote, wire.is_loopback = proxied.remote, proxied.is_loopback
    tls = extensions.get(_TLS, b"").decode("ascii", "replace")
    if tls not in TLS_WAYS:
        raise ProxyError(f"{tls[:20]!r} is none of {', '.join(TLS_WAYS)}")
    rest = data[proxied.size :]
    length = extensions.get(_VOUCHER)
    if length is None:
        return Relayed(rest, tls)
    size = _LENGTH.unpack(length)[0] if len(length) == _LENGTH.size else MAX_VOUCHER_BYTES + 1
    if size > MAX_VOUCHER_BYTES:
        raise ProxyError(f"a voucher has at most {MAX_VOUCHER_BYTES} bytes")
    while len(rest) < size:
        rest += await _receive(wire)
    return Relayed(rest[size:], tls, Voucher.decode(rest[:size]))


async def _receive(wire: Wire) -> bytes:
    received = await wire.receive_some(MAX_BYTES_2)
    if not received:
        raise trio.BrokenResourceError("the connection ended before its PROXY header")
    return received


def _extensions(tlvs: bytes) -> Mapping[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at + _TLV.size <= len(tlvs):
        kind, length = _TLV.unpack_from(tlvs, at)
        at += _TLV.size
        found[kind] = tlvs[at : at + length]
        at += length
    return found
