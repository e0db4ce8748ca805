"""The PROXY protocol: the client that a proxy names, and the proxies that are trusted."""

import struct
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import memory_stream_pair

from trio_stomp.base import CloseReason, OptionError, RemoteError
from trio_stomp.transport import StreamWire, wire_over
from trio_stomp.transport.http import ProxyNetworks, read_proxy_header
from trio_stomp.transport.http._proxy import (
    MAX_BYTES_1,
    MAX_BYTES_2,
    START_2,
    Proxied,
    ProxyError,
    parse_proxy,
)

PORTS = st.integers(0, 65_535)
V4 = st.ip_addresses(v=4)
V6 = st.ip_addresses(v=6)


def version_2(command: int, family: int, block: bytes, length: int | None = None) -> bytes:
    length = len(block) if length is None else length
    return START_2 + struct.pack(">BBH", command, family, length) + block


def inet(source: str, port: int, target: str = "10.0.0.1") -> bytes:
    packed = ip_address(source).packed + ip_address(target).packed
    return packed + struct.pack(">HH", port, 61613)


def inet6(source: str, port: int) -> bytes:
    return inet(source, port, "fd00::1")


def parsed(header: bytes) -> Proxied:
    """Parse ``header``, which is complete only with its last byte; later bytes change nothing."""
    for length in range(len(header)):
        assert parse_proxy(header[:length]) is None
    proxied = parse_proxy(header)
    assert proxied is not None
    assert proxied.size == len(header)
    for behind in (b"CONNECT\n", b"\r\n", b"\x16\x03\x01", b"x" * 5000):
        assert parse_proxy(header + behind) == proxied
    return proxied


def refusal(data: bytes) -> str:
    """Return why ``data`` is refused, at once and byte by byte alike."""
    with pytest.raises(ProxyError) as caught:
        parse_proxy(data)
    is_refused = False
    for length in range(len(data)):
        try:
            assert parse_proxy(data[:length]) is None
            assert not is_refused  # later bytes change nothing
        except ProxyError:
            is_refused = True
    return caught.value.message


@pytest.mark.parametrize(
    ("header", "remote", "is_loopback"),
    [
        (b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", "192.168.0.1:56324", False),
        (b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", "255.255.255.255:65535", 0),
        (b"PROXY TCP4 127.0.0.9 10.0.0.1 0 1\r\n", "127.0.0.9:0", True),
        (b"PROXY TCP6 2001:DB8::1 ::1 4124 443\r\n", "[2001:db8::1]:4124", False),
        (b"PROXY TCP6 ::1 ::1 4124 443\r\n", "[::1]:4124", True),
        (b"PROXY TCP6 ::ffff:127.0.0.1 ::1 4124 443\r\n", "[::ffff:127.0.0.1]:4124", True),
        (b"PROXY TCP6 ::ffff:10.1.2.3 ::1 4124 443\r\n", "[::ffff:10.1.2.3]:4124", False),
        (version_2(0x21, 0x11, inet("1.2.3.4", 5)), "1.2.3.4:5", False),
        (version_2(0x21, 0x11, inet("127.0.0.1", 5)), "127.0.0.1:5", True),
        (version_2(0x21, 0x11, inet("1.2.3.4", 5) + b"\x04\0\x02hi"), "1.2.3.4:5", False),
        (version_2(0x21, 0x21, inet6("2001:db8::9", 65535)), "[2001:db8::9]:65535", False),
        (version_2(0x21, 0x21, inet6("::1", 0)), "[::1]:0", True),
        (version_2(0x21, 0x21, inet6("::ffff:8.8.8.8", 0)), "[::ffff:8.8.8.8]:0", False),
        (version_2(0x21, 0x31, b"/run/x".ljust(216, b"\0")), "unix", True),
        (version_2(0x21, 0x11, inet("1.2.3.4", 5).ljust(MAX_BYTES_2 - 16, b"t")), "1.2.3.4:5", 0),
    ],
)
def test_proxy_header_names_the_client(header: bytes, remote: str, is_loopback: bool) -> None:
    proxied = parsed(header)
    assert (proxied.remote, proxied.is_loopback) == (remote, bool(is_loopback))
    assert not proxied.is_local


@pytest.mark.parametrize(
    ("header", "is_loopback"),
    [
        # PROXY without an address names no client, so it is not taken for one of this machine.
        (b"PROXY UNKNOWN\r\n", False),
        (b"PROXY UNKNOWN ffff:f...f:ffff 1 2\r\n", False),
        (b"PROXY UNKNOWN".ljust(MAX_BYTES_1 - 2, b" ") + b"\r\n", False),
        (version_2(0x20, 0x00, b""), True),
        (version_2(0x20, 0x11, inet("1.2.3.4", 5)), True),
        (version_2(0x20, 0xFF, b"whatever"), True),
        (version_2(0x21, 0x00, b""), False),
        (version_2(0x21, 0x00, b"\x04\0\x02hi"), False),
    ],
)
def test_a_proxy_that_speaks_for_itself_or_does_not_know(header: bytes, is_loopback: bool) -> None:
    proxied = parsed(header)
    assert proxied.is_local
    assert (proxied.remote, proxied.is_loopback) == ("", is_loopback)


ADDRESSES = b"192.168.0.1 192.168.0.11"
NO_HEADERS = [
    *(b"CONNECT\n", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n", b"\n", b"PROXX ", b"PROXY\r\n"),
    *(b"proxy TCP4", b"\r\n\r\n\0\r\nQUIX\n", b"\0"),
]


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (b"PROXY TCP4 " + ADDRESSES + b" 56324 443\n", "CR and LF"),
        (b"PROXY TCP4 " + ADDRESSES + b" 56324 443\rX", "CR and LF"),
        (b"PROXY UNKNOWN\nx\r\n", "CR and LF"),
        (b"PROXY UNKNOWN \r \r\n", "CR and LF"),
        (b"PROXY UNKNOWN".ljust(MAX_BYTES_1 - 1, b" ") + b"\r\n", "107 bytes"),
        (b"PROXY TCP4 " + b"1" * 200, "107 bytes"),
        (b"PROXY UNKNOWNS\r\n", "TCP4 or TCP6"),
        (b"PROXY \r\n", "TCP4 or TCP6"),
        (b"PROXY  TCP4 " + ADDRESSES + b" 1 2\r\n", "TCP4 or TCP6"),
        (b"PROXY TCP4 " + ADDRESSES + b" 1\r\n", "TCP4 or TCP6"),
        (b"PROXY TCP4 " + ADDRESSES + b" 1 2 3\r\n", "TCP4 or TCP6"),
        (b"PROXY TCP4 " + ADDRESSES + b" 1 2 \r\n", "TCP4 or TCP6"),
        (b"PROXY tcp4 " + ADDRESSES + b" 1 2\r\n", "TCP4 or TCP6"),
        (b"PROXY UDP4 " + ADDRESSES + b" 1 2\r\n", "TCP4 or TCP6"),
        (b"PROXY TCP4 ::1 ::1 1 2\r\n", "IPv4"),
        (b"PROXY TCP4 192.168.000.001 1.1.1.1 1 2\r\n", "IPv4"),
        (b"PROXY TCP4 1.1.1.1 256.1.1.1 1 2\r\n", "IPv4"),
        (b"PROXY TCP4 1.1.1.\xb9 1.1.1.1 1 2\r\n", "IPv4"),
        (b"PROXY TCP6 1.1.1.1 1.1.1.1 1 2\r\n", "IPv6"),
        (b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", "IPv6"),
        (b"PROXY TCP6 [::1] ::1 1 2\r\n", "IPv6"),
        (b"PROXY TCP4 " + ADDRESSES + b" 65536 2\r\n", "65535"),
        (b"PROXY TCP4 " + ADDRESSES + b" 1 99999\r\n", "65535"),
        (b"PROXY TCP4 " + ADDRESSES + b" 000001 2\r\n", "leading zeros"),
        (b"PROXY TCP4 " + ADDRESSES + b" 01 2\r\n", "leading zeros"),
        (b"PROXY TCP4 " + ADDRESSES + b" +1 2\r\n", "decimal"),
        (b"PROXY TCP4 " + ADDRESSES + b" 1_0 2\r\n", "decimal"),
        (b"PROXY TCP4 " + ADDRESSES + b" \t1 2\r\n", "decimal"),
        (b"PROXY TCP4 " + ADDRESSES + b" 1 \xb2\r\n", "decimal"),
        (version_2(0x11, 0x11, inet("1.2.3.4", 5)), "0x11"),
        (version_2(0x31, 0x11, inet("1.2.3.4", 5)), "0x31"),
        (version_2(0x22, 0x11, inet("1.2.3.4", 5)), "0x22"),
        (version_2(0x21, 0x12, inet("1.2.3.4", 5)), "0x12"),
        (version_2(0x21, 0x10, inet("1.2.3.4", 5)), "0x10"),
        (version_2(0x21, 0x41, b"x" * 300), "0x41"),
        (version_2(0x21, 0x01, b""), "0x01"),
        (version_2(0x21, 0x11, inet("1.2.3.4", 5)[:-1]), "12 bytes"),
        (version_2(0x21, 0x21, inet6("::1", 5)[:-1]), "36 bytes"),
        (version_2(0x21, 0x31, b"x" * 215), "216 bytes"),
        (version_2(0x21, 0x11, b"", MAX_BYTES_2 - 15), "4096 bytes"),
        (version_2(0x20, 0x00, b"", 65535), "4096 bytes"),
        *((data, "proxy_addresses") for data in NO_HEADERS),
    ],
)
def test_refused_headers(header: bytes, says: str) -> None:
    assert says in refusal(header)


def test_a_bad_proxy_header_is_an_error_of_the_peer_that_does_not_quote_it() -> None:
    with pytest.raises(RemoteError) as caught:
        parse_proxy(b"secret")
    error = caught.value
    assert (error.code, error.reason) == ("bad-proxy-header", CloseReason.BAD_PROXY_HEADER)
    assert not error.is_survivable
    assert "secret" not in error.message


@given(source=V4, target=V4, port=PORTS, other=PORTS, behind=st.binary(max_size=20))
def test_every_ipv4_in_both_versions(
    source: IPv4Address, target: IPv4Address, port: int, other: int, behind: bytes
) -> None:
    line = f"PROXY TCP4 {source} {target} {port} {other}\r\n".encode()
    block = source.packed + target.packed + struct.pack(">HH", port, other)
    one = parse_proxy(line + behind)
    two = parse_proxy(version_2(0x21, 0x11, block) + behind)
    assert one == Proxied(f"{source}:{port}", source.is_loopback, False, len(line))
    assert two == Proxied(f"{source}:{port}", source.is_loopback, False, 28)


@given(source=V6, target=V6, port=PORTS, other=PORTS)
def test_every_ipv6_in_both_versions(
    source: IPv6Address, target: IPv6Address, port: int, other: int
) -> None:
    one = parse_proxy(f"PROXY TCP6 {source} {target} {port} {other}\r\n".encode())
    block = source.packed + target.packed + struct.pack(">HH", port, other)
    two = parse_proxy(version_2(0x21, 0x21, block))
    assert one is not None
    assert two is not None
    assert one.remote == two.remote
    host, _, text = one.remote.rpartition(":")
    assert (IPv6Address(host.strip("[]")), int(text)) == (source, port)


HEADERS = st.sampled_from(
    [
        b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n",
        b"PROXY TCP6 2001:db8::1 ::1 4124 443\r\n",
        b"PROXY UNKNOWN\r\n",
        version_2(0x21, 0x11, inet("1.2.3.4", 5)),
        version_2(0x21, 0x21, inet6("::1", 5)),
        version_2(0x20, 0x00, b""),
    ]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A header with one byte changed, often truncated."""
    header = bytearray(draw(HEADERS))
    header[draw(st.integers(0, len(header) - 1))] = draw(st.integers(0, 255))
    return bytes(header[: draw(st.integers(0, 80))])


ANY = st.binary(max_size=300)
LINES = st.text("PROXYTCUNKNWN46 .:0123456789abf\r\n", max_size=120).map(str.encode)


@settings(max_examples=400)
@given(st.one_of(damaged(), ANY, ANY.map(START_2.__add__), LINES.map(b"PROXY ".__add__)))
def test_any_bytes_are_an_error_a_wait_that_ends_or_a_header(data: bytes) -> None:
    try:
        proxied = parse_proxy(data)
    except ProxyError:
        return
    if proxied is None:
        assert len(data) < MAX_BYTES_2
        return
    assert 0 < proxied.size <= min(len(data), MAX_BYTES_2)
    assert parse_proxy(data[: proxied.size]) == proxied
    assert (not proxied.remote) == proxied.is_local


# The addresses of proxies.


@pytest.mark.parametrize(
    ("networks", "remote", "is_in"),
    [
        ("", "127.0.0.1:5", False),
        ("10.0.0.0/8,127.0.0.1,unix", "10.255.0.1:5", True),
        ("10.0.0.0/8,127.0.0.1,unix", "11.0.0.1:5", False),
        ("10.0.0.0/8,127.0.0.1,unix", "127.0.0.1:65535", True),
        ("10.0.0.0/8,127.0.0.1,unix", "127.0.0.2:5", False),
        ("10.0.0.0/8,127.0.0.1,unix", "unix", True),
        ("10.0.0.0/8,127.0.0.1,unix", "[::1]:5", False),
        ("10.0.0.0/8", "[::ffff:10.1.2.3]:5", True),
        ("10.0.0.0/8", "[::ffff:11.1.2.3]:5", False),
        ("10.0.0.0/8", "unix", False),
        (" ::1 , fe80::/10 ,", "[::1]:5", True),
        ("::1,fe80::/10", "[fe80::1%eth0]:5", True),
        ("UNIX", "unix", True),
        ("0.0.0.0/0,::/0", "unknown", False),
        ("0.0.0.0/0,::/0", "in-memory", False),
        ("0.0.0.0/0,::/0", "", False),
    ],
)
def test_networks(networks: str, remote: str, is_in: bool) -> None:
    assert ProxyNetworks.parse(networks).contains(remote) is is_in


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("10.0.0.1/8", "host bits set"),
        ("10.0.0.0/8,proxy.example", "'proxy.example'"),
        ("10.0.0.0/33", "'10.0.0.0/33'"),
        ("10.0.0.0/8;127.0.0.1", "commas"),
    ],
)
def test_malformed_networks(text: str, says: str) -> None:
    with pytest.raises(OptionError, match="proxy_addresses") as caught:
        ProxyNetworks.parse(text)
    assert says in str(caught.value)


# Reading the header from a wire.


async def test_the_wire_has_the_clients_address_and_keeps_later_bytes() -> None:
    header = b"PROXY TCP4 127.0.0.1 10.0.0.1 5 61613\r\n"
    for split in range(1, len(header) + 8):
        ours, theirs = memory_stream_pair()
        wire = wire_over(theirs)
        data = header + b"CONNECT\n"
        async with trio.open_nursery() as nursery:

            async def send(data: bytes = data, ours: trio.abc.Stream = ours) -> None:
                await ours.send_all(data[:split])  # noqa: B023
                await trio.testing.wait_all_tasks_blocked()
                await ours.send_all(data[split:])  # noqa: B023

            nursery.start_soon(send)
            rest = await read_proxy_header(wire)
            while len(rest) < 8:
                rest += await wire.receive_some(100)
        assert rest == b"CONNECT\n"
        assert (wire.remote, wire.is_loopback) == ("127.0.0.1:5", True)


@pytest.mark.parametrize("line", [b"127.0.0.1 10.0.0.1", b"1.2.3.4 10.0.0.1"])
async def test_loopback_of_another_machine_is_none_here(line: bytes) -> None:
    ours, theirs = memory_stream_pair()
    wire = StreamWire("10.0.0.7:80", False, theirs)
    await ours.send_all(b"PROXY TCP4 " + line + b" 5 61613\r\n")
    await read_proxy_header(wire)
    assert not wire.is_loopback


async def test_a_health_check_keeps_the_address_of_the_proxy() -> None:
    ours, theirs = memory_stream_pair()
    wire = StreamWire("10.0.0.7:80", True, theirs)
    await ours.send_all(version_2(0x20, 0x00, b"") + b"rest")
    rest = await read_proxy_header(wire)
    assert (wire.remote, wire.is_loopback, rest) == ("10.0.0.7:80", True, b"rest")


async def test_an_end_before_the_header() -> None:
    for start in (b"", b"PROXY TCP4 ", START_2 + b"\x21"):
        ours, theirs = memory_stream_pair()
        if start:
            await ours.send_all(start)
        await ours.send_eof()
        with pytest.raises(trio.BrokenResourceError, match="PROXY"):
            await read_proxy_header(wire_over(theirs))


async def test_no_header_changes_nothing() -> None:
    ours, theirs = memory_stream_pair()
    wire = StreamWire("10.0.0.7:80", True, theirs)
    await ours.send_all(b"CONNECT\n")
    with pytest.raises(ProxyError):
        await read_proxy_header(wire)
    assert (wire.remote, wire.is_loopback) == ("10.0.0.7:80", True)
