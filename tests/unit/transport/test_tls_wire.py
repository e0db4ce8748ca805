"""TLS over a wire: sending and when bytes count as sent, reading, and ending."""

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trustme
from attrs import define, field, frozen
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import assert_checkpoints, memory_stream_pair, wait_all_tasks_blocked

from tests.support.tls import Authority, authority
from tests.support.wires import note_sent, socket_pair
from trio_stomp.base import CloseReason, RemoteError
from trio_stomp.transport import StreamWire, Wire, wire_over
from trio_stomp.transport.http import read_proxy_header
from trio_stomp.transport.tls import TlsBox, TlsError, TlsWire
from trio_stomp.transport.tls._tls_wire import (
    BURST_BYTES,
    CHUNK_BYTES,
    MAX_BARREN_BYTES,
    MAX_HANDSHAKE_BYTES,
    MAX_UNREAD_BYTES,
    explain,
)
from trio_stomp.transport.wire import Piece

PLENTY = 1 << 40
BAD_HELLO = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
REQUIRED = {"client_certificates": "required"}


@frozen
class Contexts:
    """The contexts of a broker and of its clients."""

    authority: Authority
    server: ssl.SSLContext

    def server_of(self, **options: str) -> ssl.SSLContext:
        authority = self.authority
        return TlsBox(authority.certificate, client_ca=authority.file, **options).context

    def client(
        self, version: ssl.TLSVersion | None = None, common_name: str = ""
    ) -> ssl.SSLContext:
        client = self.authority.client_context(common_name)
        if version is not None:
            client.minimum_version = client.maximum_version = version
        return client


@pytest.fixture(scope="module")
def contexts() -> Contexts:
    return Contexts(authority(), TlsBox(authority().certificate).context)


class Client:
    """OpenSSL's client, which sends and receives only when told to."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.is_ready = False

    def shake(self, received: bytes = b"") -> bytes:
        """Continue the handshake; return the bytes to send."""
        self.incoming.write(received)
        if not self.is_ready:
            try:
                self.tls.do_handshake()
                self.is_ready = True
            except ssl.SSLWantReadError:
                pass
        return self.outgoing.read()

    def encrypt(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    def bye(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self.outgoing.read()

    def decrypt(self, received: bytes) -> bytes:
        self.incoming.write(received)
        data = b""
        try:
            while piece := self.tls.read(65536):
                data += piece
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return data


@define(eq=False)
class Line:
    """A wire whose other end is the test: it accepts bytes while there is room."""

    remote: str = "192.0.2.1:5"
    is_loopback: bool = False
    gathers: bool = False
    room: int = PLENTY
    most: int = PLENTY
    out: bytearray = field(factory=bytearray)
    inbox: list[bytes] = field(factory=list)
    sends: int = 0
    at_end: bool = False
    has_eof: bool = False
    is_lost: bool = False
    is_closed: bool = False
    answers: Callable[[bytes], bytes] | None = None
    _changed: trio.Event = field(factory=trio.Event)

    def change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def give(self, data: bytes) -> None:
        self.inbox.append(data)
        self.change()

    def make_room(self, size: int) -> None:
        self.room += size
        self.change()

    def take(self) -> bytes:
        data = bytes(self.out)
        self.out.clear()
        return data

    async def receive_some(self, max_bytes: int) -> bytes:
        while not self.inbox:
            if self.is_lost:
                raise trio.BrokenResourceError
            if self.at_end:
                return b""
            if self.answers is not None and (answer := self.answers(self.take())):
                self.inbox.append(answer)
                continue
            await self._changed.wait()
        data = self.inbox.pop(0)
        max_bytes = min(max_bytes, self.most)
        if data[max_bytes:]:
            self.inbox.insert(0, data[max_bytes:])
        return data[:max_bytes]

    def send_nowait(self, data: Piece, behind: Sequence[Piece] = ()) -> int:
        if self.is_lost:
            raise trio.BrokenResourceError
        sent = min(self.room, self.most, len(data))
        self.out += data[:sent]
        self.room -= sent
        self.sends += 1
        return sent

    async def wait_sent(self, data: bytes | memoryview) -> int:
        await trio.lowlevel.checkpoint()
        while not (sent := self.send_nowait(data)):
            await self._changed.wait()
        return sent

    def untaken(self) -> int:
        return 0

    async def send_eof(self) -> None:
        self.has_eof = True

    async def aclose(self) -> None:
        self.is_closed = True
        await trio.lowlevel.checkpoint()


async def connected(
    contexts: Contexts,
    version: ssl.TLSVersion | None = None,
    server: ssl.SSLContext | None = None,
    client: ssl.SSLContext | None = None,
) -> tuple[TlsWire, Line, Client]:
    """A wire after its handshake over a line, which has no rest of it."""
    peer = Client(client or contexts.client(version))
    line = Line(answers=peer.shake)
    wire = TlsWire(line, server or contexts.server)
    await wire.handshake()
    peer.shake(line.take())
    assert peer.is_ready
    line.answers = None
    return wire, line, peer


def play(wire: TlsWire, tls: Any) -> None:
    """Replace OpenSSL by ``tls``."""
    wire._ssl = tls


async def expect_broken(wire: TlsWire, match: str | None = None) -> None:
    """Check that neither sending nor reading is possible."""
    with pytest.raises(trio.BrokenResourceError):
        wire.send_nowait(b"x")
    with pytest.raises(trio.BrokenResourceError):
        await wire.wait_sent(b"x")
    with pytest.raises(trio.BrokenResourceError, match=match):
        await wire.receive_some(1)


def failed(caught: pytest.ExceptionInfo[TlsError]) -> str:
    error = caught.value
    assert isinstance(error, RemoteError)
    assert (error.code, error.reason) == ("tls-failed", CloseReason.TLS_FAILED)
    assert not error.is_survivable
    assert "\n" not in error.message
    assert "_ssl.c" not in error.message
    assert error.message.startswith("the TLS handshake failed: ")
    return error.message


# The handshake.


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_tls_wire_sends_and_receives(contexts: Contexts, version: ssl.TLSVersion) -> None:
    wire, line, peer = await connected(contexts, version)
    assert (wire.remote, wire.is_loopback) == ("192.0.2.1:5", False)
    assert wire.version == version.name.replace("_", ".")
    assert wire.cipher == (peer.tls.cipher() or [""])[0]
    assert wire.certificate_names() == ()
    line.give(peer.encrypt(b"ping"))
    assert await wire.receive_some(100) == b"ping"
    assert wire.send_nowait(b"pong") == 4
    assert await wire.wait_sent(memoryview(b"more")) == 4
    assert peer.decrypt(line.take()) == b"pongmore"
    await wire.aclose()
    assert line.is_closed
    assert line.out == b""


async def test_before_the_handshake_nothing_is_known(contexts: Contexts) -> None:
    wire = TlsWire(Line(), contexts.server)
    assert (wire.version, wire.cipher, wire.certificate_names()) == ("", "", ())


async def test_bytes_read_before_are_the_start(contexts: Contexts) -> None:
    for split in (1, 5, 150, 10_000):
        peer = Client(contexts.client())
        hello = peer.shake()
        line = Line(inbox=[hello[split:]] if hello[split:] else [], answers=peer.shake)
        await TlsWire(line, contexts.server, hello[:split]).handshake()


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_handshake_byte_by_byte_and_the_data_after_it(
    contexts: Contexts, version: ssl.TLSVersion
) -> None:
    peer, line = Client(contexts.client(version)), Line(most=1)

    def answers(received: bytes) -> bytes:
        was_ready = peer.is_ready
        answer = peer.shake(received)
        return answer + peer.encrypt(b"early") if peer.is_ready and not was_ready else answer

    line.answers = answers
    wire = TlsWire(line, contexts.server)
    await wire.handshake()
    data = b""
    while len(data) < 5:
        data += await wire.receive_some(100)
    assert data == b"early"


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT\naccept-version:1.2\n\n\0",
        b"\x16\x03\x01\xff\xff" + b"x" * 100,
        BAD_HELLO,
        b"\x80\x2e\x01\x00\x02" + b"\0" * 100,
        b"\x00" * 100,
    ],
)
async def test_data_that_is_not_tls_is_reported_as_such(contexts: Contexts, garbage: bytes) -> None:
    line = Line(inbox=[garbage])
    wire = TlsWire(line, contexts.server)
    with pytest.raises(TlsError) as caught:
        await wire.handshake()
    failed(caught)
    # OpenSSL answers a peer that spoke TLS with an alert; to any other it would be noise.
    assert bytes(line.out[:1]) == (b"\x15" if garbage[0] in (0x16, 0x80) else b"")
    assert "Host" not in caught.value.message
    await expect_broken(wire, "handshake failed")
    with pytest.raises(trio.BrokenResourceError):
        await wire.send_eof()


async def refused(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[str, str]:
    """Return the log's text and the client's error after a failed handshake."""
    peer, line, values = Client(client), Line(), []

    def answers(received: bytes) -> bytes:
        try:
            return peer.shake(received)
        except ssl.SSLError as error:
            values.append(str(error))
            return peer.outgoing.read()

    line.answers = answers
    with pytest.raises(TlsError) as caught:
        await TlsWire(line, server).handshake()
    if not values:
        try:
            peer.shake(line.take())
            peer.tls.read(1)
        except ssl.SSLError as error:
            values.append(str(error))
    return failed(caught), values[0]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize(
    ("options", "version", "ciphers", "log", "expected"),
    [
        ({}, "TLSv1", "ALL:@SECLEVEL=0", "tls_min_version", "PROTOCOL_VERSION"),
        ({}, "TLSv1_1", "ALL:@SECLEVEL=0", "tls_min_version", "PROTOCOL_VERSION"),
        ({"minimum": "1.3"}, "TLSv1_2", "DEFAULT", "tls_min_version", ""),
        ({}, "TLSv1_2", "ECDHE-ECDSA-AES128-SHA256", "offers no cipher", "HANDSHAKE_FAILURE"),
        (REQUIRED, "TLSv1_2", "DEFAULT", "presents no certificate", "ALERT"),
        (REQUIRED, "TLSv1_3", "DEFAULT", "presents no certificate", "ALERT"),
    ],
    ids=["1.0", "1.1", "1.2 where 1.3 is needed", "weak cipher", "no certificate 1.2", "1.3"],
)
async def test_a_client_that_is_refused(
    contexts: Contexts, options: dict[str, str], version: str, ciphers: str, log: str, expected: str
) -> None:
    client = contexts.client(ssl.TLSVersion[version])
    client.set_ciphers(ciphers)
    logged, result = await refused(contexts.server_of(**options), client)
    assert log in logged
    assert expected in result


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_client_that_does_not_trust_us(contexts: Contexts, version: ssl.TLSVersion) -> None:
    client = ssl.create_default_context()
    client.minimum_version = client.maximum_version = version
    log, _ = await refused(contexts.server, client)
    assert "does not know the authority of this broker's certificate" in log


# Certificates of clients.


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("wanted", ["off", "optional", "required"])
async def test_a_certificate_of_a_client_counts_if_it_was_asked_for(
    contexts: Contexts, version: ssl.TLSVersion, wanted: str
) -> None:
    server = contexts.server_of(client_certificates=wanted)
    client = contexts.client(version, "alice")
    wire, _, _ = await connected(contexts, server=server, client=client)
    if wanted == "off":
        assert wire.certificate_names() == ()
        return
    subject, *others = wire.certificate_names()
    assert subject.startswith("CN=alice,")
    assert others == ["CN=alice", "email:alice@clients.example"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_no_certificate_of_a_client(contexts: Contexts, version: ssl.TLSVersion) -> None:
    server = contexts.server_of(client_certificates="optional")
    wire, _, _ = await connected(contexts, version, server=server)
    assert wire.certificate_names() == ()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("wanted", ["optional", "required"])
async def test_a_certificate_of_a_stranger(
    contexts: Contexts, version: ssl.TLSVersion, wanted: str
) -> None:
    client = contexts.client(version)
    trustme.CA().issue_cert("alice@example.com").configure_cert(client)
    log, result = await refused(contexts.server_of(client_certificates=wanted), client)
    assert "its certificate is not accepted: unable to get local issuer certificate" in log
    assert "alice" not in log
    assert "UNKNOWN_CA" in result


async def test_names_that_are_no_text_are_no_names(contexts: Contexts) -> None:
    class Torn:
        def getpeercert(self) -> None:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")

    wire, _, _ = await connected(contexts)
    play(wire, Torn())
    assert wire.certificate_names() == ()


# Failed handshakes.


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("how", ["end", "lost"])
async def test_a_peer_that_leaves_at_any_point(
    contexts: Contexts, version: ssl.TLSVersion, how: str
) -> None:
    cut = 0
    while True:
        peer, line = Client(contexts.client(version)), Line()
        left = cut

        def answers(received: bytes, peer: Client = peer, line: Line = line) -> bytes:
            nonlocal left
            answer = peer.shake(received)[:left]
            left -= len(answer)
            if not left:
                line.at_end, line.is_lost = how == "end", how == "lost"
            return answer

        line.answers = answers
        wire = TlsWire(line, contexts.server)
        if not cut:
            line.at_end, line.is_lost = how == "end", how == "lost"
        try:
            await wire.handshake()
        except trio.BrokenResourceError:
            cut += 29
            continue
        break
    assert cut > 250


async def test_a_handshake_that_never_ends_is_cut_off(contexts: Contexts) -> None:
    # A ClientHello of 100 KB, in records of 1 KB, which OpenSSL alone would accept.
    line = Line()
    message = b"\x01" + (100_000).to_bytes(3, "big") + b"\x03\x03" + b"\0" * 100_000
    for at in range(0, len(message), 1000):
        part = message[at : at + 1000]
        line.give(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part)
    with pytest.raises(TlsError) as caught:
        await TlsWire(line, contexts.server).handshake()
    assert str(MAX_HANDSHAKE_BYTES) in failed(caught)
    assert len(line.inbox) > 20


async def test_a_handshake_waits_for_a_slow_peer_and_can_be_cancelled(contexts: Contexts) -> None:
    line = Line(room=10, inbox=[Client(contexts.client()).shake()])
    wire = TlsWire(line, contexts.server)
    with trio.move_on_after(0) as scope:
        await wire.handshake()
    assert scope.cancelled_caught
    await wire.aclose()


async def test_the_alert_goes_out_to_a_slow_peer_too(contexts: Contexts) -> None:
    line = Line(room=0, inbox=[BAD_HELLO])

    async def handshake() -> None:
        with pytest.raises(TlsError):
            await TlsWire(line, contexts.server).handshake()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(handshake)
        await wait_all_tasks_blocked()
        for _ in range(7):
            line.make_room(1)
            await wait_all_tasks_blocked()
    assert len(line.out) == 7


async def test_a_peer_that_is_lost_before_its_alert(contexts: Contexts) -> None:
    line = Line(inbox=[BAD_HELLO], is_lost=True)
    with pytest.raises(TlsError):
        await TlsWire(line, contexts.server).handshake()


# Sending: bytes that were not reported as sent are presented again.


async def send_all(wire: Wire, data: bytes) -> None:
    rest = memoryview(data)
    rest = rest[wire.send_nowait(rest) :]
    while rest:
        rest = rest[await wire.wait_sent(rest) :]


SIZES = (1, 2, 1023, 16383, 16384, 16385, 32768, 32769, 65535, 65536, 65537, 200_000)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("version", VERSIONS)
async def test_data_of_any_size_takes_one_call_for_each_chunk(
    contexts: Contexts, version: ssl.TLSVersion, size: int
) -> None:
    wire, line, peer = await connected(contexts, version)
    data = bytes(at * 7 & 255 for at in range(256)) * (size // 256 + 1)
    data = data[:size]
    line.sends = 0
    assert wire.send_nowait(data) == size
    # One system call for each chunk, and no more.
    assert line.sends == -(-size // CHUNK_BYTES)
    assert peer.decrypt(line.take()) == data


@given(
    messages=st.lists(st.integers(1, 150_000), min_size=1, max_size=5),
    rooms=st.lists(st.integers(0, 90_000), max_size=30),
)
async def test_bytes_count_as_sent_only_if_the_peer_can_read_them(
    contexts: Contexts, messages: list[int], rooms: list[int]
) -> None:
    wire, line, peer = await connected(contexts)
    line.room = 0
    data = b"".join(bytes([65 + at]) * size for at, size in enumerate(messages))
    ends = [sum(messages[: at + 1]) for at in range(len(messages))]
    done, out, got = 0, 0, b""
    for room in [*rooms, *([PLENTY] * (len(messages) + 1))]:
        line.room += room
        end = next((end for end in ends if end > done), done)
        sent = wire.send_nowait(data[done:end])
        done += sent
        cipher = line.take()
        out += len(cipher)
        got += peer.decrypt(cipher)
        waiting = wire._waiting_bytes()
        # Nothing counts as sent before it is out, and never all of it while some bytes wait here.
        assert done <= out
        if waiting:
            assert done < end
        else:
            assert done == len(got)
        assert waiting <= CHUNK_BYTES + 4 * 64
    assert got == data
    assert done == len(data)


@pytest.mark.parametrize("step", [1, 7, 30, 100, 16384])
async def test_a_slow_peer_shows_progress(contexts: Contexts, step: int) -> None:
    wire, line, peer = await connected(contexts)
    size = min(70_000, step * 1000)
    data = memoryview(b"d" * size)
    line.room = 0
    assert wire.send_nowait(data) == 0
    assert line.out == b""
    done, barren, got = 0, 0, b""
    while done < size:
        line.room = step
        sent = wire.send_nowait(data[done:])
        done += sent
        # The first bytes of a record are overhead, which is no progress; later each byte counts.
        barren = 0 if sent else barren + step
        assert barren <= 4 * 32
        got += peer.decrypt(line.take())
        assert done <= len(got) or wire._waiting_bytes() or done == len(got)
    assert got == bytes(data)


async def test_the_last_byte_is_kept_until_all_is_out(contexts: Contexts) -> None:
    wire, line, _ = await connected(contexts)
    line.room = 0
    assert wire.send_nowait(b"x" * 100) == 0
    total, done = wire._waiting_bytes(), 0
    for room in range(total):
        assert done < 100
        line.room = 1
        done += wire.send_nowait(b"x" * (100 - done))
        if room == total - 2:
            assert done == 99
    assert done == 100


async def test_waiting_until_something_is_sent(contexts: Contexts) -> None:
    wire, line, peer = await connected(contexts)
    line.room = 0
    data = b"y" * 300_000
    results: list[int] = []

    async def send() -> None:
        rest = memoryview(data)
        while rest:
            results.append(await wire.wait_sent(rest))
            rest = rest[results[-1] :]

    got = b""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        while sum(results) < len(data):
            await wait_all_tasks_blocked()
            line.make_room(9_999)
            got += peer.decrypt(line.take())
    assert peer.decrypt(line.take()) == data[len(got) :]
    assert min(results) >= 1
    assert len(results) > 20


async def test_one_wait_is_followed_by_a_burst_and_not_by_all(contexts: Contexts) -> None:
    wire, line, _ = await connected(contexts)
    assert await wire.wait_sent(b"z" * 10_000_000) == CHUNK_BYTES + BURST_BYTES
    assert len(line.out) < 2 * BURST_BYTES


async def test_small_progress_is_waited_for(contexts: Contexts) -> None:
    # The overhead of a record is no progress of the data.
    wire, line, peer = await connected(contexts)
    line.room = 0
    results: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(note_sent, wire, b"x", results)
        for _ in range(23):
            await wait_all_tasks_blocked()
            assert results == []
            line.make_room(1)
    assert results == [1]
    assert peer.decrypt(line.take()) == b"x"


async def test_a_cancelled_wait_over_a_socket_loses_nothing(contexts: Contexts) -> None:
    async with tls_socket(contexts, 4096) as (wire, stream, peer):
        sent = 0
        while taken := wire.send_nowait(memoryview(b"x" * 65536)):
            sent += taken
            if taken < 65536:
                break
        rest = memoryview(b"x" * (65536 - taken) + b"y" * 1000)
        with trio.move_on_after(0.0) as scope:
            while True:
                rest = rest[await wire.wait_sent(rest) :]
        assert scope.cancelled_caught
        got = b""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_all, wire, bytes(rest))
            with trio.fail_after(5):
                while not got.endswith(b"y" * 1000):
                    got += peer.decrypt(await stream.receive_some(65536))
        assert got.strip(b"x") == b"y" * 1000
        assert len(got) % 65536 == 1000


async def test_a_cancelled_wait_over_a_stream_ends_sending(contexts: Contexts) -> None:
    wire, line, peer = await connected(contexts)
    line.room = 10
    assert wire.send_nowait(b"x" * 100) == 0
    with trio.move_on_after(0):
        await wire.wait_sent(b"x" * 100)
    line.room = PLENTY
    with pytest.raises(trio.BrokenResourceError, match="cancelled"):
        wire.send_nowait(b"x" * 100)
    line.give(peer.encrypt(b"z"))


async def test_a_lost_connection_breaks_the_wire(contexts: Contexts) -> None:
    wire, line, _ = await connected(contexts)
    line.is_lost = True
    await expect_broken(wire)


async def test_two_writers_are_a_bug(contexts: Contexts) -> None:
    wire, line, _ = await connected(contexts)
    line.room = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.wait_sent, b"x")
        await wait_all_tasks_blocked()
        assert wire.send_nowait(b"x") == 0
        with pytest.raises(trio.BusyResourceError):
            await wire.wait_sent(b"x")
        nursery.cancel_scope.cancel()


# Reading.


@pytest.mark.parametrize("version", VERSIONS)
async def test_reading_at_every_split(contexts: Contexts, version: ssl.TLSVersion) -> None:
    wire, line, peer = await connected(contexts, version)
    size = 0
    for split in range(60):
        cipher = peer.encrypt(b"one") + peer.encrypt(b"two")
        size = len(cipher)
        for part in (cipher[:split], cipher[split:]):
            if part:
                line.give(part)
        data = b""
        while len(data) < 6:
            data += await wire.receive_some(100)
        assert data == b"onetwo"
    assert size >= 44


@given(
    size=st.integers(1, 200_000),
    max_bytes=st.sampled_from([1000, 16383, 16384, 65536]),
    cuts=st.lists(st.integers(1, 80_000), max_size=8),
)
async def test_nothing_that_openssl_holds_is_lost(
    contexts: Contexts, size: int, max_bytes: int, cuts: list[int]
) -> None:
    wire, line, peer = await connected(contexts)
    data = bytes(range(256)) * (size // 256 + 1)
    cipher = peer.encrypt(data)
    for cut in cuts:
        if cipher[:cut]:
            line.give(cipher[:cut])
        cipher = cipher[cut:]
    if cipher:
        line.give(cipher)
    line.at_end = True
    got = b""
    while piece := await wire.receive_some(max_bytes):
        assert len(piece) <= max_bytes
        got += piece
    assert got == data


async def test_reading_can_be_cancelled_without_loss(contexts: Contexts) -> None:
    wire, line, peer = await connected(contexts)
    cipher = peer.encrypt(b"kept")
    line.give(cipher[:10])
    with trio.move_on_after(0):
        await wire.receive_some(100)
    line.give(cipher[10:])
    assert await wire.receive_some(100) == b"kept"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("polite", [True, False])
async def test_the_end_comes_after_the_last_data_even_without_close_notify(
    contexts: Contexts, version: ssl.TLSVersion, polite: bool
) -> None:
    wire, line, peer = await connected(contexts, version)
    line.give(peer.encrypt(b"last"))
    if polite:
        line.give(peer.bye())
    line.at_end = True
    assert await wire.receive_some(100) == b"last"
    assert await wire.receive_some(100) == b""
    assert await wire.receive_some(100) == b""
    # One direction is still open.
    assert wire.send_nowait(b"still there") == 11
    assert peer.decrypt(line.take()) == b"still there"


async def test_data_and_end_in_one_read(contexts: Contexts) -> None:
    wire, line, peer = await connected(contexts)
    line.give(peer.encrypt(b"last") + peer.bye() + b"junk that does not count")
    assert await wire.receive_some(100) == b"last"
    assert await wire.receive_some(100) == b""


async def test_an_end_in_the_middle_of_a_record(contexts: Contexts) -> None:
    wire, line, peer = await connected(contexts)
    line.give(peer.encrypt(b"cut")[:-1])
    line.at_end = True
    assert await wire.receive_some(100) == b""


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_forged_record_ends_the_connection_after_earlier_data(
    contexts: Contexts, version: ssl.TLSVersion
) -> None:
    wire, line, peer = await connected(contexts, version)
    forged = bytearray(peer.encrypt(b"good") + peer.encrypt(b"forged"))
    forged[-1] ^= 1
    line.give(bytes(forged))
    assert await wire.receive_some(100) == b"good"
    with pytest.raises(trio.BrokenResourceError, match=r"TLS broke: [a-z ]*bad"):
        await wire.receive_some(100)
    await expect_broken(wire)
    # The peer sent an alert.
    peer.incoming.write(line.take())
    with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
        peer.tls.read(1)


async def test_plain_text_after_the_handshake_breaks_the_connection(contexts: Contexts) -> None:
    wire, line, _ = await connected(contexts)
    line.give(b"SEND\ndestination:/queue/a\n\n\0")
    with pytest.raises(trio.BrokenResourceError, match="does not use TLS"):
        await wire.receive_some(100)


async def test_a_flood_without_data_is_cut_off(contexts: Contexts) -> None:
    wire, line, peer = await connected(contexts)
    real = wire._ssl
    play(wire, Hungry(real, wire._incoming))
    for _ in range(MAX_BARREN_BYTES // 1024):
        line.give(bytes(1024))
    with trio.move_on_after(0) as scope:
        await wire.receive_some(100)
    assert scope.cancelled_caught
    assert line.inbox == []
    # After a byte of data, the count begins anew.
    wire._ssl = real
    line.give(peer.encrypt(b"x"))
    assert await wire.receive_some(100) == b"x"
    play(wire, Hungry(real, wire._incoming))
    line.give(bytes(MAX_BARREN_BYTES))
    line.give(b"and one more")
    with pytest.raises(trio.BrokenResourceError, match="had no data in them"):
        await wire.receive_some(100)


class Hungry:
    """OpenSSL with a peer that sends key updates, which are consumed without any data.

    Python's client cannot send any, so this class simulates one.
    """

    def __init__(self, real: ssl.SSLObject, incoming: ssl.MemoryBIO) -> None:
        self.real, self.incoming = real, incoming

    def read(self, size: int) -> bytes:
        self.incoming.read()
        raise ssl.SSLWantReadError

    def pending(self) -> int:
        return self.real.pending()


class Answering:
    """OpenSSL with a peer whose bytes need an answer at each read, such as key updates."""

    def __init__(self, real: ssl.SSLObject, outgoing: ssl.MemoryBIO, answer: bytes) -> None:
        self.real, self.outgoing, self.answer = real, outgoing, answer
        self.is_on = True

    def read(self, size: int) -> bytes:
        if self.is_on:
            self.outgoing.write(self.answer)
        return self.real.read(size)

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)


async def updating(contexts: Contexts, answer: bytes) -> tuple[TlsWire, Line, Client, Answering]:
    wire, line, peer = await connected(contexts)
    updates = Answering(wire._ssl, wire._outgoing, answer)
    play(wire, updates)
    return wire, line, peer, updates


async def test_answers_go_out_at_once_if_they_can(contexts: Contexts) -> None:
    wire, line, peer, _ = await updating(contexts, b"<answer>")
    line.give(peer.encrypt(b"data"))
    assert await wire.receive_some(100) == b"data"
    assert line.take() == b"<answer>"


@pytest.mark.parametrize("waiting", [b"", bytes(CHUNK_BYTES)], ids=["nothing", "data"])
async def test_unread_answers_end_the_connection(contexts: Contexts, waiting: bytes) -> None:
    """Data that waits to be sent is not an unread answer, so the bound stays the same."""
    wire, line, peer, _ = await updating(contexts, b"a" * 1000)
    line.room = 0
    assert wire.send_nowait(waiting) == 0
    for _ in range(MAX_UNREAD_BYTES // 1000 + 1):  # the last one is good, whatever follows
        line.give(peer.encrypt(b"data"))
        assert await wire.receive_some(100) == b"data"
    with pytest.raises(trio.BrokenResourceError, match="its own answers were not read"):
        await wire.receive_some(100)
    await expect_broken(wire)


@pytest.mark.parametrize("size", [3, 1000])
async def test_answers_wait_for_data_that_is_under_way(contexts: Contexts, size: int) -> None:
    wire, line, peer, updates = await updating(contexts, b"")
    line.room = 0
    results: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(note_sent, wire, b"d" * size, results)
        await wait_all_tasks_blocked()
        updates.answer = b"<answer>"
        line.inbox.append(peer.encrypt(b"data"))
        line.room = 10_000  # the writer does not know it yet
        assert await wire.receive_some(100) == b"data"
        assert line.out == b""
        line.change()
    assert results == [size]
    cipher = line.take()
    assert cipher.endswith(b"<answer>")
    assert peer.decrypt(cipher[: -len(b"<answer>")]) == b"d" * size


async def test_data_waits_for_earlier_answers(contexts: Contexts) -> None:
    wire, line, peer, updates = await updating(contexts, b"<answer>")
    line.room = 0
    line.give(peer.encrypt(b"data"))
    assert await wire.receive_some(100) == b"data"
    updates.is_on = False
    assert wire.send_nowait(b"later") == 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_all, wire, b"later")
        await wait_all_tasks_blocked()
        line.make_room(3)
        await wait_all_tasks_blocked()
        line.make_room(PLENTY)
    assert line.out[:8] == b"<answer>"
    assert peer.decrypt(line.take()[8:]) == b"later"


async def test_the_reader_sends_waiting_data_with_its_answers(contexts: Contexts) -> None:
    wire, line, peer, _ = await updating(contexts, b"<answer>")
    line.room = 0
    assert wire.send_nowait(b"data") == 0
    line.room = PLENTY
    line.give(peer.encrypt(b"x"))
    assert await wire.receive_some(100) == b"x"
    assert line.out.endswith(b"<answer>")
    # All bytes are sent, and now reported by either way to ask.
    with assert_checkpoints():
        assert await wire.wait_sent(b"data") == 4
    assert peer.decrypt(line.take()[: -len(b"<answer>")]) == b"data"


async def test_answers_on_a_lost_wire(contexts: Contexts) -> None:
    wire, line, peer, _ = await updating(contexts, b"<answer>")
    line.give(peer.encrypt(b"x"))
    line.is_lost = True
    assert await wire.receive_some(100) == b"x"
    with pytest.raises(trio.BrokenResourceError):
        await wire.receive_some(100)


# The end of our output.


@pytest.mark.parametrize("version", VERSIONS)
async def test_data_of_the_peer_arrives_after_a_half_close(
    contexts: Contexts, version: ssl.TLSVersion
) -> None:
    wire, line, peer = await connected(contexts, version)
    # Data of the peer waits in all stages, and must survive OpenSSL's search for an end.
    big = peer.encrypt(b"b" * 50_000)
    line.give(big[:-5])
    assert await wire.receive_some(10) == b"b" * 10
    wire.send_nowait(b"bye")
    await wire.send_eof()
    assert line.has_eof
    assert peer.decrypt(line.take()) == b"bye"
    assert peer.tls.read(1) == b""  # a close_notify
    line.give(big[-5:])
    got = b""
    while len(got) < 49_990:
        got += await wire.receive_some(1000)
    assert got == b"b" * 49_990
    with pytest.raises(trio.BrokenResourceError, match="shutdown"):
        wire.send_nowait(b"too late")
    for _ in range(3):
        line.give(peer.encrypt(b"more"))
        assert await wire.receive_some(100) == b"more"
    peer.tls.unwrap()
    line.give(peer.outgoing.read())
    assert await wire.receive_some(100) == b""


async def test_half_close_after_the_peers(contexts: Contexts) -> None:
    wire, line, peer = await connected(contexts)
    line.give(peer.bye())
    assert await wire.receive_some(100) == b""
    await wire.send_eof()
    assert line.has_eof
    assert line.out


async def test_half_close_sends_encrypted_data_first(contexts: Contexts) -> None:
    wire, line, peer = await connected(contexts)
    line.room = 0
    assert wire.send_nowait(b"x" * 100) == 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.send_eof)
        await wait_all_tasks_blocked()
        assert not line.has_eof
        line.make_room(50)
        await wait_all_tasks_blocked()
        line.make_room(PLENTY)
    assert line.has_eof
    assert peer.decrypt(line.take()) == b"x" * 100


# Real sockets and streams, and foreign clients.


@asynccontextmanager
async def tls_socket(
    contexts: Contexts, buffer_bytes: int
) -> AsyncIterator[tuple[TlsWire, trio.SocketStream, Client]]:
    async with socket_pair(buffer_bytes) as (inner, stream):
        wire, peer = TlsWire(inner, contexts.server), Client(contexts.client())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.handshake)
            received = b""
            while answer := peer.shake(received):
                await stream.send_all(answer)
                received = b"" if peer.is_ready else await stream.receive_some(65536)
        yield wire, stream, peer


async def test_a_socket_whose_peer_never_reads(contexts: Contexts) -> None:
    async with tls_socket(contexts, 4096) as (wire, _stream, _peer):
        size, sent = 10_000_000, 0
        scope = trio.CancelScope()
        while not scope.cancelled_caught:  # the kernel may still pass bytes on
            for _ in range(3):
                sent += wire.send_nowait(bytes(size - sent))
            assert sent < size
            assert wire._waiting_bytes() <= CHUNK_BYTES + 4 * 64
            with trio.move_on_after(0.05) as scope:
                sent += await wire.wait_sent(bytes(size - sent))


async def test_a_handshake_after_a_proxy_header(contexts: Contexts) -> None:
    async with socket_pair() as (inner, stream):
        peer = Client(contexts.client())
        await stream.send_all(b"PROXY TCP4 192.0.2.7 10.0.0.1 5 61613\r\n" + peer.shake())
        rest = await read_proxy_header(inner)
        tls = TlsWire(inner, contexts.server, rest)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tls.handshake)
            await stream.send_all(peer.shake(await stream.receive_some(65536)))
        assert (tls.remote, tls.is_loopback) == ("192.0.2.7:5", False)
        await stream.send_all(peer.encrypt(b"through"))
        assert await tls.receive_some(100) == b"through"


async def test_trios_own_tls_over_a_memory_stream(contexts: Contexts) -> None:
    ours, theirs = memory_stream_pair()
    inner = wire_over(theirs)
    assert isinstance(inner, StreamWire)
    wire = TlsWire(inner, contexts.server)
    stream = trio.SSLStream(ours, contexts.client(), server_hostname="localhost")
    data = bytes(range(256)) * 1000

    async def serve() -> None:
        await wire.handshake()
        got = b""
        while received := await wire.receive_some(65536):
            got += received
        assert got == data
        await send_all(wire, got)
        await wire.send_eof()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await stream.do_handshake()
        await stream.send_all(data)
        await stream.transport_stream.send_eof()
        got = b""
        with trio.fail_after(5):
            while received := await stream.receive_some(65536):
                got += received
    assert got == data


# The texts for the log.


def test_reasons_without_a_reason() -> None:
    error: Any = ssl.SSLError(1, "boom")
    error.reason = None  # as OpenSSL does for failures of its own error handling
    assert explain(error) == "OpenSSL gives no reason"
