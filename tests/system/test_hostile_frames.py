"""Hostile frames: smuggled ones, header bombs, HTTP in disguise.

Smuggling is two readers who disagree where a frame ends. There is one reader here, so what counts
is that each stream of bytes has one meaning, the same however it is cut, and that whatever is not
clearly a frame ends the connection before anything behind it is believed.

Nothing here tries to make headers collide in a dict: their names and values are text, and Python
hashes text by SipHash under a key of each process's own (PEP 456), so that nobody outside can tell
which names collide. Numbers, whose hash is no secret, are never keys that a peer may choose freely.
"""

import sys
from collections.abc import Sequence

import pytest
import trio
import trio.testing
from attrs import frozen

from tests.support.fakes import (
    MEMORY,
    WS_MEMORY,
    Client,
    Dial,
    StreamPipe,
    frame_bytes,
    open_dial,
)
from tests.support.hostile import (
    CLOSE,
    HELLO,
    QUIET,
    TEXT,
    calls_of,
    expect_left,
    octets,
    open_session,
    open_socket,
    pieces,
    read_all,
    read_head,
    request,
    send_chunks,
    ws,
)
from tests.support.hostile import dial as dial
from trio_stomp.frames import V1_1, V1_2, FrameDecoder, FrameLimits, HeadCache

VERSIONS = ("1.0", "1.1", "1.2")
LATER = ("1.1", "1.2")
EVIL = b"SEND\ndestination:/secret\n\nevil\0"
SIZE = len(EVIL)
Got = tuple[str, bytes]


@frozen
class Smuggle:
    """Bytes of one client, the messages that others receive, and the ERROR that ends it, if any."""

    id: str
    raw: bytes
    got: tuple[Got, ...] = ()
    code: str | None = None
    versions: Sequence[str] = VERSIONS
    covers: str = "F36"


def to_t(body: bytes = b"", *lines: bytes) -> bytes:
    head = b"".join(line + b"\n" for line in (b"SEND", b"destination:/t", *lines))
    return head + b"\n" + body + b"\0"


def length(text: bytes | int) -> bytes:
    return b"content-length:" + (b"%d" % text if isinstance(text, int) else text)


def same(name: str, text: bytes, body: bytes = b"12345") -> Smuggle:
    """A content-length that is no number, with a frame behind that must not be seen."""
    raw = to_t(body, length(text)) + EVIL
    return Smuggle(f"length-{name}", raw, (), "invalid-content-length", covers="F31")


SMUGGLES = [
    # Which of two lengths counts: the first, and it alone.
    Smuggle("two-lengths-long-first", to_t(EVIL, length(SIZE), length(0)), (("/t", EVIL),)),
    Smuggle("two-lengths-short-first", to_t(EVIL, length(0), length(SIZE)), (), "missing-nul"),
    Smuggle("two-lengths-equal", to_t(EVIL, length(SIZE), length(SIZE)), (("/t", EVIL),)),
    Smuggle("two-lengths-bad-first", to_t(EVIL, length(b"x"), length(SIZE)), (),
            "invalid-content-length", covers="F31 F36"),
    Smuggle("two-lengths-bad-second", to_t(EVIL, length(SIZE), length(b"x")), (("/t", EVIL),)),
    Smuggle("length-escaped-name", to_t(b"", b"content\\clength:99") + EVIL,
            (("/t", b""), ("/secret", b"evil")), versions=LATER),
    Smuggle("length-other-case", to_t(b"", b"Content-Length:99") + EVIL,
            (("/t", b""), ("/secret", b"evil")), covers="F07"),
    Smuggle("length-space-before-colon", to_t(b"", b"content-length :99") + EVIL,
            (("/t", b""), ("/secret", b"evil"))),
    Smuggle("length-space-in-1.0", to_t(b"12345", length(b" 5")), (("/t", b"12345"),),
            versions=("1.0",), covers="F10"),
    Smuggle("length-space", to_t(b"12345", length(b" 5")) + EVIL, (), "invalid-content-length",
            LATER, "F31"),
    Smuggle("length-space-behind-in-1.0", to_t(b"12345", length(b"5 ")), (("/t", b"12345"),),
            versions=("1.0",), covers="F10"),
    Smuggle("length-space-behind", to_t(b"12345", length(b"5 ")) + EVIL, (),
            "invalid-content-length", LATER, "F31"),
    Smuggle("length-zeros", to_t(b"12345", length(b"000000000000000005")), (("/t", b"12345"),),
            covers="F31"),
    same("plus", b"+5"), same("minus", b"-5"), same("minus-zero", b"-0", b""), same("hex", b"0x5"),
    same("octal", b"0o5"), same("underscore", b"1_0"), same("exponent", b"5e0"),
    same("fraction", b"5.0"), same("comma", b"5,5"),
    same("arabic", "٥".encode()), same("superscript", "⁵".encode()),
    same("fullwidth", "５".encode()), same("empty", b""), same("semicolon", b"5;x"),
    same("overflow-64", b"18446744073709551621"), same("overflow-32-and-more", b"9" * 400),
    Smuggle("length-overflow-32", to_t(b"12345", length(4294967301)) + EVIL, (),
            "body-too-large", covers="F31 F40"),
    # A wrong length.
    Smuggle("length-too-short", to_t(b"12345", length(4)) + EVIL, (), "missing-nul", covers="F28"),
    Smuggle("length-too-long-by-one", to_t(b"12345", length(6)) + EVIL, (), "missing-nul",
            covers="F28"),
    Smuggle("length-swallows-a-frame", to_t(b"12345", length(6 + SIZE - 1)) + EVIL,
            (("/t", b"12345\0" + EVIL[:-1]),), covers="F27"),
    Smuggle("length-elsewhere-means-nothing",
            b"COMMIT\ntransaction:x\ncontent-length:99\n\n\0" + EVIL, (), "unknown-transaction",
            covers="F30"),
    # Line ends.
    Smuggle("crlf-in-1.1", b"SEND\r\ndestination:/t\r\n\r\nx\0" + EVIL, (),
            "missing-blank-line", ("1.0", "1.1"), "F02"),
    Smuggle("crlf-blank-in-1.1", b"SEND\ndestination:/t\n\r\nx\0" + EVIL, (),
            "missing-blank-line", ("1.0", "1.1"), "F02"),
    Smuggle("cr-in-the-destination", b"SEND\ndestination:/t\r\n\nx\0", (),
            versions=("1.0", "1.1"), covers="F02"),
    Smuggle("cr-ends-no-header", to_t(b"", b"a:b\rcontent-length:99") + EVIL, (),
            "bare-carriage-return", ("1.2",), "F04"),
    Smuggle("cr-ends-no-header-in-1.1", to_t(b"", b"a:b\rcontent-length:99") + EVIL,
            (("/t", b""), ("/secret", b"evil")), versions=("1.0", "1.1"), covers="F02"),
    Smuggle("cr-cr-lf", b"SEND\r\r\ndestination:/t\n\nx\0" + EVIL, (), "bare-carriage-return",
            ("1.2",), "F04"),
    Smuggle("mixed-line-ends", b"SEND\r\ndestination:/t\na:b\r\n\nx\0" + EVIL,
            (("/t", b"x"), ("/secret", b"evil")), versions=("1.2",), covers="F03"),
    Smuggle("the-first-blank-line-counts",
            b"SEND\r\ndestination:/t\r\n\r\ndestination:/secret\n\nx\0",
            (("/t", b"destination:/secret\n\nx"),), versions=("1.2",), covers="F03"),
    Smuggle("the-first-blank-line-counts-lf",
            b"SEND\ndestination:/t\n\n\r\ndestination:/secret\r\n\r\nx\0",
            (("/t", b"\r\ndestination:/secret\r\n\r\nx"),), covers="F01"),
    Smuggle("form-feed-is-no-line-end", b"SEND\x0cdestination:/t\n\nx\0" + EVIL, (),
            "unknown-command", covers="F01"),
    Smuggle("next-line-is-no-line-end", to_t(b"x", "a:b\x85destination:/secret".encode()),
            (("/t", b"x"),), covers="F01"),
    # NUL where none belongs.
    Smuggle("nul-noise", b"\0\0\n\0" + EVIL + b"\0\n\0" + to_t(b"x"),
            (("/secret", b"evil"), ("/t", b"x")), covers="F05 F06"),
    Smuggle("nul-in-a-name", to_t(b"x", b"a\0b:c") + EVIL, (), "missing-blank-line",
            covers="F01"),
    Smuggle("nul-in-a-value", to_t(b"x", b"a:b\0c") + EVIL, (), "missing-blank-line",
            covers="F01"),
    Smuggle("nul-in-the-command", b"SE\0ND\ndestination:/t\n\nx\0" + EVIL, (),
            "missing-blank-line", covers="F01"),
    Smuggle("nul-ends-a-frame-without-blank", b"SEND\ndestination:/t\0" + EVIL, (),
            "missing-blank-line", covers="F01"),
    Smuggle("nul-as-an-escape", to_t(b"x", rb"a:b\0") + EVIL, (), "invalid-escape", LATER,
            "F19 F20"),
    Smuggle("body-ends-at-the-first-nul", to_t(b"a\0" + EVIL),
            (("/t", b"a"), ("/secret", b"evil")), covers="F32"),
    # Names and destinations.
    Smuggle("two-destinations", to_t(b"x", b"destination:/secret"), (("/t", b"x"),)),
    Smuggle("escaped-destination-name", to_t(b"x", rb"desti\nation:/secret"), (("/t", b"x"),),
            versions=LATER, covers="F17"),
    Smuggle("name-with-a-space", b"SEND\ndestination :/secret\n\nx\0" + EVIL, (),
            "header-missing", covers="S01"),
    Smuggle("folded-header", to_t(b"x", b"a:b", b" destination:/secret"), (("/t", b"x"),)),
    Smuggle("no-colon", to_t(b"x", b"/secret") + EVIL, (), "invalid-header", covers="F16"),
    Smuggle("no-name", to_t(b"x", b":/secret") + EVIL, (), "invalid-header", covers="F15"),
    Smuggle("line-feed-by-escape", to_t(b"x", rb"a:b\ndestination\c/secret"), (("/t", b"x"),),
            versions=LATER, covers="F17 F21"),
    # Commands.
    *(
        Smuggle(f"command-{command!r}", command + b"\ndestination:/t\n\nx\0" + EVIL, (),
                "unknown-command", covers="F07 F42")
        for command in (b"send", b"Send", b"SEND ", b" SEND", b"SEND\t", b"SEND:x", b"SENd",
                        b"SEND,SEND", b"\xef\xbb\xbfSEND", "ＳＥＮＤ".encode(), b"MESSAGE",
                        b"ERROR")
    ),
    *(
        Smuggle(f"noise-{noise!r}", noise + EVIL, (), "invalid-command", covers="F41")
        for noise in (b"\t", b"\x01", b"\x0b", b"\x08\n")
    ),
    Smuggle("second-connect", frame_bytes("CONNECT", {"host": "x"}) + EVIL, (),
            "already-connected", covers="C12"),
    Smuggle("behind-disconnect", b"DISCONNECT\n\n\0" + EVIL, covers="R11"),
    Smuggle("body-of-a-subscribe", b"SUBSCRIBE\ndestination:/u\nid:9\n\n" + EVIL + EVIL, (),
            "body-not-allowed", LATER, "F26"),
    Smuggle("transaction-of-nobody", to_t(b"x", b"transaction:none") + EVIL, (),
            "unknown-transaction", covers="S03"),
]  # fmt: skip

SMUGGLE_CASES = [
    pytest.param(case, version, id=f"{case.id}-{version}",
                 marks=pytest.mark.covers(*case.covers.split()))
    for case in SMUGGLES
    for version in case.versions
]  # fmt: skip


@pytest.mark.parametrize("transport", [MEMORY, WS_MEMORY])
@pytest.mark.parametrize(("case", "version"), SMUGGLE_CASES)
async def test_bytes_have_one_meaning_and_all_after_an_invalid_frame_are_ignored(
    autojump_clock, case: Smuggle, version: str, transport: str
) -> None:
    async with open_dial(transport, **QUIET) as dial:
        watcher = await dial.connect()
        await watcher.subscribe("/t", id="t")
        await watcher.subscribe("/secret", id="secret")
        for chunks in ([case.raw], octets(case.raw)):
            client = await dial.connect(version)
            if transport == WS_MEMORY:
                client.websocket.binary = True
            for chunk in chunks:
                with trio.move_on_after(1):
                    await client.send_bytes(chunk)
            if case.code is not None:
                await client.expect_error(case.code)
            await trio.testing.wait_all_tasks_blocked()
            got = [(frame["destination"], frame.body) for frame in await watcher.fence()]
            assert tuple(got) == case.got
            client.abort()
            await expect_left(dial, 1)


def test_ids_of_smuggles_are_unique() -> None:
    assert len({case.id for case in SMUGGLES}) == len(SMUGGLES) > 60


# --- before a session -----------------------------------------------------------------------------


@pytest.mark.covers("C01", "C15")
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (EVIL + HELLO, "not-connected"),
        (b"connect\n\n\0", "unknown-command"),
        (b"CONNECT \n\n\0", "http"),
        (b"CONNECT\naccept-version:1.2\0" + EVIL, "missing-blank-line"),
        (b"CONNECT\naccept-version:1.2\nhost:x\n\nbody\0" + EVIL, "body-not-allowed"),
        (b"CONNECT\naccept-version:9.9\n\n\0" + EVIL, "unsupported-version"),
        (b"CONNECTED\nversion:1.2\n\n\0" + EVIL, "unknown-command"),
        (b"STOMPCONNECT\n\n\0" + EVIL, "unknown-command"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0", "unknown-command"),
        (b"\x05\x01\x00" + b"\x00" * 40, "invalid-command"),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + HELLO, "invalid-header"),
    ],
)
async def test_frames_before_connect_have_no_effect(
    dial: Dial, autojump_clock, raw: bytes, code: str
) -> None:
    watcher = await dial.connect()
    await watcher.subscribe("/secret")
    for chunks in ([raw], octets(raw)):
        stream = await dial.stream()
        await send_chunks(stream, chunks)
        answer = await read_all(stream)
        if code == "http":
            assert answer.startswith(b"HTTP/1.1 400 ")
        else:
            assert answer.startswith(b"ERROR\n")
            assert b"\ncode:%b\n" % code.encode() in answer
        assert await watcher.fence() == []
        await expect_left(dial, 1)


@pytest.mark.covers("C03", "C04", "F36")
async def test_the_first_accept_version_header_decides_the_version_of_later_frames(
    dial: Dial, autojump_clock
) -> None:
    """In one packet: 1.1 by the first accept-version, so a CR LF is no line end behind it."""
    stream = await dial.stream()
    connect = b"CONNECT\naccept-version:1.1\naccept-version:1.2\nhost:x\n\n\0"
    await stream.send_all(connect + b"SEND\r\ndestination:/t\r\n\r\nx\0" + EVIL)
    answer = await read_all(stream)
    assert answer.startswith(b"CONNECTED\nversion:1.1\n")
    assert b"\ncode:missing-blank-line\n" in answer


# --- bombs of headers -----------------------------------------------------------------------------

AMPLE = FrameLimits()
LINE = AMPLE.max_header_line_bytes

BOMBS = {
    "many": b"".join(b"%d:\n" % n for n in range(253)),
    "repeated": b"a:b\n" * 253,
    "one-long-name": b"n" * (LINE - 2) + b":x\n",
    "one-long-value": b"n:" + b"x" * (LINE - 2) + b"\n",
    "as-much-as-may-be": (b"n:" + b"x" * (LINE - 2) + b"\n") * 3,
    "escapes": (b"n:" + b"\\c" * ((LINE - 2) // 2) + b"\n") * 3,
    "backslashes": (b"n:" + b"\\\\" * ((LINE - 2) // 2) + b"\n") * 3,
    "escaped-names": b"".join(b"\\c" * 30 + b"%d:x\n" % n for n in range(253)),
    "colons": (b"n:" + b":" * (LINE - 2) + b"\n") * 3,
    "wide": ("n:" + "😀" * ((LINE - 2) // 4) + "\n").encode() * 3,
    "receipts": b"receipt:%b\n" % (b"r" * 60) * 253,
}


@pytest.mark.covers("F40")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_within_the_limits_costs_in_proportion_to_its_bytes(name: str) -> None:
    """Calls for a frame of bombs: no more than twenty for a header or an escape."""
    block = b"SEND\ndestination:/t\n" + BOMBS[name] + b"\n\0"
    parts = block.count(b"\n") + block.count(b"\\")
    for rules in (V1_1, V1_2):
        for data in (block, block[:-1]):
            decoder = FrameDecoder(AMPLE, HeadCache(), rules)
            cost = calls_of(lambda: decoder.receive_data(data))  # noqa: B023
            assert cost < 20 * parts + 200
            assert decoder.error is None


@pytest.mark.covers("F21", "F40")
@pytest.mark.parametrize("name", ["colons", "as-much-as-may-be", "repeated", "wide"])
async def test_bombs_pass_and_leave_nothing(dial: Dial, autojump_clock, name: str) -> None:
    """Text that is raw in 1.0 is escaped for others, which doubles its length: charged, and
    released."""
    reader, sender = await dial.connect("1.2"), await dial.connect("1.0")
    await reader.subscribe("/t")
    frame = b"SEND\ndestination:/t\n" + BOMBS[name] + b"\nx\0"
    for _ in range(20):
        await sender.send_bytes(frame)
        message = await reader.receive()
        assert message.body == b"x"
        assert message.names.count("n") <= 1
    assert dial.server.memory.used_bytes == 0


def test_text_is_hashed_under_a_secret() -> None:
    """Why no test here makes names collide; see the docstring of this module."""
    assert sys.hash_info.algorithm.startswith("siphash")


# --- HTTP in disguise -----------------------------------------------------------------------------


@pytest.mark.covers("W01", "W02", "W08")
@pytest.mark.parametrize(
    ("raw", "status"),
    [
        pytest.param(request(Host=b"a\r\nHost: b"), 400, id="two-hosts"),
        pytest.param(request(Host=b"a, b\r\nhost: c"), 400, id="two-hosts-other-case"),
        pytest.param(request(Host=None), 400, id="no-host"),
        pytest.param(request(X=b"a\r\n b") + ws(TEXT, HELLO), 101, id="folded"),
        pytest.param(request(Upgrade=None, X=b"a\r\n Upgrade: websocket"), 426,
                     id="upgrade-only-in-a-fold"),
        pytest.param(b"GET /ws HTTP/1.1\r\n Host: broker\r\n\r\n", 400, id="fold-comes-first"),
        pytest.param(request(Upgrade=b"websocket\0"), 400, id="nul"),
        pytest.param(request(X=b"a\rb"), 400, id="bare-cr"),
        pytest.param(request().replace(b"Host:", b"Host :"), 400, id="space-before-colon"),
        pytest.param(request(b"GET  /ws HTTP/1.1"), 400, id="two-spaces"),
        pytest.param(request(b"GET /ws HTTP/1.1 "), 400, id="space-behind"),
        pytest.param(request(b"GET /ws HTTP/0.9"), 400, id="http-0.9"),
        pytest.param(request(b"get /ws HTTP/1.1") + b"\0", 0, id="lower-case"),
        pytest.param(request(b"GET /ws HTTP/1.1", Transfer_Encoding=b"chunked")
                     + b"5\r\nhello\r\n0\r\n\r\n", 400, id="chunked-upgrade"),
        pytest.param(request(Content_Length=b"5") + b"hello", 400, id="upgrade-with-a-body"),
        pytest.param(request(Content_Length=b"5", Transfer_Encoding=b"chunked") + b"0\r\n\r\n",
                     400, id="both-kinds-of-body"),
        pytest.param(request(Content_Length=b"0"), 101, id="upgrade-with-an-empty-body"),
        pytest.param(request(Content_Length=b"5\r\nContent-Length: 6"), 400, id="two-lengths"),
        pytest.param(request(Content_Length=b"+5"), 400, id="length-with-a-sign"),
        pytest.param(request(Transfer_Encoding=b"xchunked"), 501, id="unknown-coding"),
        pytest.param(request(Sec_WebSocket_Key=b"AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                             b"Sec-WebSocket-Key: BBBBBBBBBBBBBBBBBBBBBA=="), 400, id="two-keys"),
        pytest.param(request(Sec_WebSocket_Version=b"13, 8"), 426, id="two-versions"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("step", [10_000, 7])
async def test_a_handshake_that_two_readers_might_read_in_two_ways(
    dial: Dial, autojump_clock, raw: bytes, status: int, step: int
) -> None:
    stream = await dial.stream()
    await send_chunks(stream, pieces(raw, step))
    if status == 101:
        head, _ = await read_head(stream)
        assert head.startswith(b"HTTP/1.1 101 ")
        await stream.aclose()
        return
    answer = await read_all(stream)
    if not status:
        assert answer.startswith(b"ERROR\n")
        return
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"\r\nConnection: " in answer
    assert b"CONNECTED" not in answer


@pytest.mark.covers("X11", "X12", "X13")
@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n",
        b"POST /ws HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n",
        b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: %d\r\n\r\n",
        b"CONNECT broker:61613 HTTP/1.1\r\nHost: x\r\nX: %d\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\nX: %d\r\n\r\n",
    ],
)
@pytest.mark.parametrize("step", [10_000, 5])
async def test_a_frame_in_an_http_body_is_no_frame(
    dial: Dial, autojump_clock, head: bytes, step: int
) -> None:
    """A web page may POST any text to any port: it must not thereby become a STOMP client."""
    body = HELLO + EVIL
    raw = head % len(body) + body
    watcher = await dial.connect()
    await watcher.subscribe("/secret")
    stream = await dial.stream()
    await send_chunks(stream, pieces(raw, step))
    answer = await read_all(stream)
    assert answer.startswith(b"HTTP/1.1 ")
    assert b"CONNECTED" not in answer
    assert await watcher.fence() == []
    await expect_left(dial, 1, {"http-answered": 1})


@pytest.mark.covers("W08")
@pytest.mark.parametrize("count", [2, 50])
async def test_only_the_first_of_pipelined_requests_is_answered(
    dial: Dial, autojump_clock, count: int
) -> None:
    """The second may be an upgrade that a proxy takes for a part of something else."""
    stream = await dial.stream()
    await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * (count - 1) + request())
    answer = await read_all(stream)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.covers("X11")
async def test_plain_stomp_after_a_websocket_upgrade_is_a_protocol_error(
    dial: Dial, autojump_clock
) -> None:
    watcher = await dial.connect()
    await watcher.subscribe("/secret")
    socket = await open_socket(dial)
    await socket.send(HELLO + EVIL * 5)
    await socket.until_end()
    assert socket.close_code == 1002
    assert socket.received == []
    assert await watcher.fence() == []


@pytest.mark.parametrize(
    ("last", "code"),
    [
        (ws(CLOSE, b"\x03\xe8"), 1000),
        (ws(TEXT, b"\xff\xfe"), 1007),
        (ws(3, b"\n"), 1002),
    ],
    ids=["close", "no-utf8", "unknown-opcode"],
)
async def test_a_close_is_answered_behind_more_frames_than_one_slice_decodes(
    dial: Dial, autojump_clock, last: bytes, code: int
) -> None:
    socket = await open_session(dial)
    # Frames of different heads are different runs, of which a slice decodes 128.
    await socket.send(ws(TEXT, (to_t() + EVIL) * 100) + last)
    await socket.until_end()
    assert socket.close_code == code
    assert [frame.command for frame in socket.received if frame.command == "ERROR"] == []


@pytest.mark.covers("X11", "X12")
async def test_http_after_connect_is_an_unknown_command(dial: Dial, autojump_clock) -> None:
    stream = await dial.stream()
    client = Client(StreamPipe(stream))
    await client.connect()
    await client.send_bytes(request() + b"\0")
    await client.expect_error("unknown-command")
