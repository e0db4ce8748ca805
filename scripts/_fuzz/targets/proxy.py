"""The PROXY header, cut in several ways, compared with the system's parser of addresses."""

import random
import re
import socket

from _fuzz.target import Finding, Target, check, check_equal
from trio_stomp.base._errors import OptionError
from trio_stomp.transport.http._proxy import Proxied, ProxyError, ProxyNetworks, parse_proxy

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
MOST_BYTES = 4096
LINE = re.compile(
    rb"PROXY (?:UNKNOWN(?: [^\r\n]*)?|(TCP[46]) ([^ ]+) ([^ ]+) ([0-9]+) ([0-9]+))\r\n"
)
ADDRESSES = (
    *(
        b"1.2.3.4",
        b"127.0.0.1",
        b"255.255.255.255",
        b"01.2.3.4",
        b"1.2.3",
        b"::1",
        b"::ffff:1.2.3.4",
    ),
    *(b"fe80::1%eth0", b"::ffff:127.0.0.1", b"1:2:3:4:5:6:7:8", b"::", b"[::1]", b"\xd9\xa1.2.3.4"),
)
PORTS = (b"1", b"65535", b"65536", b"0", b"00", b"+1", b"1_0", b"443")
STARTS = (b"PROXY TCP4 ", b"PROXY TCP6 ", b"PROXY UNKNOWN ", b"PROXY  ", b"PROXY UNKNOWN\r\n")
NETWORKS = (b"10.0.0.0/8", b"unix", b"127.0.0.1", b"::1/128", b"10.0.0.1/8", b"x", b",", b" UNIX ")
TAKEN = {0x11: (12, 4, 8, socket.AF_INET), 0x21: (36, 16, 32, socket.AF_INET6)}


def make(name: str) -> Target:
    """The target."""
    words: tuple[bytes, ...] = (
        *ADDRESSES,
        *PORTS,
        *STARTS,
        *NETWORKS,
        SIGNATURE,
        b"\r\n",
        b" ",
        b"\x21\x11\x00\x0c",
    )
    words += (b"\x20\x00\x00\x00", b"\x21\x21\x00\x24", b"\x21\x31\x00\xd8", b"\x21\x00\x00\x00")
    return Target(name, run, ("transport/http/_proxy.py",), generate, words, 5000)


def generate(chance: random.Random) -> bytes:
    """Return a header of version 1 or 2, or the operator's option."""
    way = chance.randrange(7)
    if way < 3:
        words = [*chance.choices(ADDRESSES, k=2), *chance.choices(PORTS, k=2)]
        return b"\1" + chance.choice(STARTS) + b" ".join(words) + b"\r\n" + chance.randbytes(3)
    if way < 6:
        family = chance.choice((0x11, 0x21, 0x31, 0x00, 0x12))
        least = {0x11: 12, 0x21: 36, 0x31: 216}.get(family, 0)
        length = chance.choice((least, least, least + 5, max(least - 1, 0), 4080, 4081))
        head = bytes([chance.choice((0x21, 0x21, 0x20, 0x22)), family]) + length.to_bytes(2, "big")
        return b"\1" + SIGNATURE + head + chance.randbytes(length) + b"CONNECT"
    return b"\0" + b",".join(chance.choices((*NETWORKS, *ADDRESSES), k=3))


def run(data: bytes) -> None:
    """Parse a header or an option, as the first byte says."""
    if data[:1] == b"\0":
        read_networks(data[1:].decode(errors="replace"))
    else:
        read_header(data[1:])


def parsed(data: bytes) -> Proxied | str | None:
    """Return the parsed header, or "" if it is refused."""
    try:
        return parse_proxy(data)
    except ProxyError as error:
        check_equal(error.code, "bad-proxy-header", "code")
        return ""


def read_header(data: bytes) -> None:
    """Check that parsing byte by byte gives the same result, which the specification permits."""
    found = parsed(data)
    reported: Proxied | str | None = None
    for size in range(min(len(data), 400) + 1):
        answer = parsed(data[:size])
        check(reported is None or answer == reported, f"changed: {reported} is now {answer}")
        reported = answer
    if len(data) <= 400:
        check_equal(reported, found, "byte by byte")
    check(found is not None or len(data) < MOST_BYTES, "undecided: it has all that is taken")
    if isinstance(found, Proxied):
        check(0 < found.size <= len(data), f"size: {found.size}")
        check_equal(parsed(data[: found.size]), found, "without what follows")
    expected = expect_2(data) if data.startswith(SIGNATURE) else expect_1(data)
    if expected is not None:
        check_equal(remote(found), expected, "address")


def remote(found: Proxied | str | None) -> tuple[bytes, int] | str | None:
    """Return the packed address and port."""
    if not isinstance(found, Proxied):
        return found
    if found.is_local or found.remote == "unix":
        return found.remote or "local"
    host, _, port = found.remote.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    return socket.inet_pton(family, host.strip("[]")), int(port)


def expect_1(data: bytes) -> tuple[bytes, int] | str | None:
    """Return the expected result for version 1, or None if it does not apply."""
    end = data.find(b"\r\n")
    if end < 0 or SIGNATURE.startswith(data):
        return None
    match = LINE.match(data)
    if match is None or match.end() != end + 2 or match.end() > 107:
        return ""
    if match[1] is None:
        return "local"
    family = socket.AF_INET if match[1] == b"TCP4" else socket.AF_INET6
    try:
        source, _ = (socket.inet_pton(family, match[n].decode("ascii")) for n in (2, 3))
    except (OSError, ValueError):
        return ""
    ports = [match[4], match[5]]
    if any(int(port) > 65_535 or str(int(port)).encode() != port for port in ports):
        return ""
    return source, int(ports[0])


def expect_2(data: bytes) -> tuple[bytes, int] | str | None:
    """Return the expected result for version 2, as far as it is complete."""
    if len(data) < 16 or len(data) < 16 + int.from_bytes(data[14:16], "big"):
        return None
    command, family, length = data[12], data[13], int.from_bytes(data[14:16], "big")
    if command not in (0x20, 0x21) or length > MOST_BYTES - 16:
        return ""
    if command == 0x20 or family == 0:
        return "local"
    if family == 0x31:
        return "unix" if length >= 216 else ""
    if family not in TAKEN or length < TAKEN[family][0]:
        return ""
    _, size, port_at, _ = TAKEN[family]
    return data[16 : 16 + size], int.from_bytes(data[16 + port_at : 18 + port_at], "big")


def read_networks(text: str) -> None:
    """Parse the operator's option, and check which addresses it contains."""
    try:
        networks = ProxyNetworks.parse(text)
    except OptionError as error:
        check("proxy_addresses" in str(error), f"nameless: {error}")
        return
    for wire in (
        "127.0.0.1:1",
        "[::1]:2",
        "[::ffff:10.1.2.3]:3",
        "10.1.2.3:3",
        "unix",
        "in-memory",
        "",
    ):
        if networks.contains(wire) and wire == "":
            raise Finding("contains: nobody")
    check_equal(
        networks.contains("[::ffff:10.1.2.3]:3"),
        networks.contains("10.1.2.3:3") or networks.contains("[::ffff:a01:203]:3"),
        "mapped",
    )
