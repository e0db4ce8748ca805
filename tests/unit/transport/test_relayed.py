"""The header of a connection that another node of a cluster relays."""

import math

import pytest
import trio

from trio_stomp.base import Identity, RemoteError
from trio_stomp.transport import (
    Relayed,
    Voucher,
    memory_stream_pair,
    read_relay_header,
    relay_header,
)
from trio_stomp.transport.wire import StreamWire

SECRET = b"0123456789abcdef"
VOUCHER = Voucher(Identity("ann"))
DAMAGED = relay_header("192.0.2.7", 5, "off", SECRET, VOUCHER)[:-1] + b"x"
TOO_LARGE = relay_header("192.0.2.7", 5, "off", SECRET, Voucher(Identity("a" * 70_000)))


async def read(data: bytes, *, is_loopback: bool = False) -> tuple[StreamWire, Relayed]:
    ours, theirs = memory_stream_pair()
    wire = StreamWire("10.0.0.7:80", is_loopback, theirs)
    await ours.send_all(data)
    await ours.send_eof()
    relayed = await read_relay_header(wire, SECRET)
    return wire, relayed


@pytest.mark.parametrize("tls", ["off", "optional", "required"])
@pytest.mark.parametrize(
    ("host", "remote", "is_loopback"),
    [
        ("192.0.2.7", "192.0.2.7:5", False),
        ("127.0.0.1", "127.0.0.1:5", True),
        ("2001:db8::7%eth0", "[2001:db8::7]:5", False),
        ("::ffff:127.0.0.1", "[::ffff:127.0.0.1]:5", True),
    ],
)
async def test_the_owner_sees_the_client_as_the_node_does(
    host: str, remote: str, is_loopback: bool, tls: str
) -> None:
    wire, relayed = await read(relay_header(host, 5, tls, SECRET) + b"CONNECT\n")
    assert (wire.remote, wire.is_loopback) == (remote, is_loopback)
    assert relayed == Relayed(b"CONNECT\n", tls)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (relay_header("127.0.0.1", 5, "off", b"x" * 16), "lacks this node's secret"),
        (relay_header("127.0.0.1", 5, "off", SECRET[:-1]), "lacks this node's secret"),
        (relay_header("127.0.0.1", 5, "maybe", SECRET), "'maybe' is none of"),
        (DAMAGED, "voucher of the node is damaged"),
        (TOO_LARGE, "at most 65536 bytes"),
        (b"PROXY TCP4 127.0.0.1 127.0.0.1 5 5\r\n", "only other nodes"),
        (b"CONNECT\n\n\0", "only other nodes"),
        # Version 2 without an address means that the node itself speaks, which has no need to.
        (b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00", "lacks this node's secret"),
    ],
)
async def test_other_sources_are_not_trusted(data: bytes, says: str) -> None:
    with pytest.raises(RemoteError, match=says):
        await read(data, is_loopback=True)


@pytest.mark.parametrize("expires_at", [math.inf, 1.5])
async def test_a_node_vouches_for_a_client(expires_at: float) -> None:
    identity = Identity("ann", frozenset({"a", "b"}), expires_at, "token", "key")
    voucher = Voucher(identity, "wss")
    _, relayed = await read(relay_header("192.0.2.7", 5, "off", SECRET, voucher) + b"CONNECT\n")
    assert relayed == Relayed(b"CONNECT\n", "off", voucher)
    assert relayed.voucher is not None
    assert relayed.voucher.identity.key == "key"


def test_a_voucher_says_nothing_of_a_passcode() -> None:
    told = Voucher.decode(Voucher(Identity("ann", method="passcode", key="digest")).encode())
    assert told.identity == Identity("ann", method="passcode")
    assert told.identity.key == ""


@pytest.mark.parametrize("voucher", [None, VOUCHER])
async def test_an_end_within_the_header(voucher: Voucher | None) -> None:
    whole = relay_header("192.0.2.7", 5, "off", SECRET, voucher)
    for size in range(len(whole)):
        with pytest.raises(trio.BrokenResourceError, match="before its PROXY header"):
            await read(whole[:size])
