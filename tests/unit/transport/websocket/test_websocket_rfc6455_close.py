"""RFC 6455 sections 5.5.1 and 7, case by case: how a WebSocket closes (section 7 of Autobahn's)."""

import pytest
import trio

from tests.support.fakes import TCP, Dial, open_dial, until
from tests.support.hostile import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    QUIET,
    TEXT,
    close_body,
    endings,
    every_chop,
    hear,
    open_session,
    padded,
    send,
    server_frames,
    ws,
)
from tests.support.hostile import dial as dial
from trio_stomp import CloseReason
from trio_stomp.transport import WebSocketCodec

KOSME = "κόσμε".encode()
A = send(b"first")

# 7.7 and 7.9; 1012 and 1013 are registered with IANA, and used by this broker.
_BY_PROTOCOL = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013)
MAY_BE_SENT = (*_BY_PROTOCOL, 3000, 3001, 3999, 4000, 4999)
MUST_NOT_BE_SENT = (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535)


@pytest.mark.covers("W17", "W21")
@pytest.mark.parametrize("code", MAY_BE_SENT)
@pytest.mark.parametrize("reason", [b"", b"Hello World!", KOSME, b"*" * 123], ids=len)
def test_7_7_a_close_is_answered_by_its_code(code: int, reason: bytes) -> None:
    for chunks in every_chop([ws(TEXT, A), ws(CLOSE, close_body(code, reason)), ws(PING, b"late")]):
        result = hear(chunks)
        assert (result.data, result.code, result.by_peer) == (A, code, True)
        assert (result.close, result.pongs) == (close_body(code), ())


@pytest.mark.covers("W21")
@pytest.mark.parametrize("code", MUST_NOT_BE_SENT)
@pytest.mark.parametrize("reason", [b"", b"why"], ids=["bare", "reason"])
def test_7_9_a_forbidden_close_code_breaks_the_protocol(code: int, reason: bytes) -> None:
    for chunks in every_chop([ws(TEXT, A), ws(CLOSE, close_body(code, reason))]):
        result = hear(chunks)
        assert (result.data, result.code, result.by_peer) == (A, 1002, False)
        assert result.close is not None
        assert result.close[:2] == close_body(1002)


@pytest.mark.covers("W16", "W17")
@pytest.mark.parametrize(
    ("payload", "code", "answer"),
    [
        pytest.param(b"", 1005, b"", id="7.3.1-empty"),
        pytest.param(b"\x03", 1002, close_body(1002), id="7.3.2-one-byte"),
        pytest.param(b"\xff", 1002, close_body(1002), id="7.3.2-one-other-byte"),
        pytest.param(close_body(1000), 1000, close_body(1000), id="7.3.3-code"),
        pytest.param(close_body(1000, b"bye"), 1000, close_body(1000), id="7.3.4-reason"),
        pytest.param(close_body(1000, b"*" * 123), 1000, close_body(1000), id="7.3.5-most"),
        pytest.param(close_body(1000, b"*" * 124), 1002, close_body(1002), id="7.3.6-too-long"),
        pytest.param(close_body(1000, KOSME[:-1]), 1007, close_body(1007), id="7.5-cut"),
        pytest.param(close_body(1000, KOSME + b"\xed\xa0\x80"), 1007, close_body(1007),
                     id="7.5.1-surrogate"),
        pytest.param(close_body(999, b"\xff"), 1002, close_body(1002), id="7.5-code-first"),
    ],
)  # fmt: skip
def test_7_3_and_7_5_payloads_of_a_close(payload: bytes, code: int, answer: bytes) -> None:
    for chunks in every_chop([ws(CLOSE, payload), ws(TEXT, A)]):
        result = hear(chunks)
        assert (result.data, result.code) == (b"", code)
        assert result.by_peer == (code in (1000, 1005))
        assert result.close is not None
        assert result.close[:2] == answer


@pytest.mark.covers("W17")
@pytest.mark.parametrize(
    ("frames", "data"),
    [
        pytest.param([ws(TEXT, A), ws(CLOSE, close_body(1000))], A, id="7.1.1-message"),
        pytest.param([ws(CLOSE, close_body(1000))] * 2, b"", id="7.1.2-twice"),
        pytest.param([ws(CLOSE, close_body(1000)), ws(PING)], b"", id="7.1.3-ping-behind"),
        pytest.param([ws(CLOSE, close_body(1000)), ws(TEXT, A)], b"", id="7.1.4-text-behind"),
        pytest.param([ws(TEXT, A[:5], fin=False), ws(CLOSE, close_body(1000)),
                      ws(CONTINUATION, A[5:])], A[:5], id="7.1.5-between-fragments"),
        pytest.param([ws(BINARY, padded(262_144)), ws(CLOSE, close_body(1000)), ws(PING)],
                     padded(262_144), id="7.1.6-256-KiB"),
        pytest.param([ws(CLOSE, close_body(1000)), b"\xff" * 500], b"", id="nonsense-behind"),
        pytest.param([ws(CLOSE, close_body(1000)), ws(CLOSE, close_body(1001))], b"",
                     id="another-code-behind"),
    ],
)  # fmt: skip
def test_7_1_everything_after_a_close_is_ignored(frames: list[bytes], data: bytes) -> None:
    for chunks in every_chop(frames):
        result = hear(chunks)
        assert (result.data, result.code, result.by_peer) == (data, 1000, True)
        assert (result.close, result.pongs) == (close_body(1000), ())


@pytest.mark.covers("W17")
def test_incomplete_frame_is_not_awaited() -> None:
    codec = WebSocketCodec(max_message_bytes=1000)
    codec.receive_data(ws(CLOSE, close_body(1000, b"bye"))[:-1])
    assert codec.closed is None
    assert codec.take_replies() == b""
    codec.receive_data(ws(CLOSE, close_body(1000, b"bye"))[-1:])
    assert codec.closed is not None
    assert codec.closed.reason == "bye"


@pytest.mark.covers("W17", "W21", "X10")
@pytest.mark.parametrize("reason", CloseReason, ids=lambda reason: reason.text)
def test_each_close_of_ours_is_one_that_a_peer_may_answer_in_kind(reason: CloseReason) -> None:
    """Many peers answer a Close with its own code, which must not be an error of theirs."""
    codec = WebSocketCodec(max_message_bytes=1000)
    ((first, payload),) = server_frames(codec.close(reason.websocket_code, reason.text))
    assert (first, payload) == (0x88, close_body(reason.websocket_code, reason.text.encode()))
    assert reason.websocket_code in MAY_BE_SENT
    codec.receive_data(ws(CLOSE, payload))
    assert codec.closed is not None
    assert (codec.closed.code, codec.closed.by_peer) == (reason.websocket_code, True)
    assert codec.take_replies() == b""


@pytest.mark.covers("W17")
@pytest.mark.parametrize(
    ("theirs", "code"),
    [
        (ws(PING, b"?"), None),
        (ws(TEXT, b"\xff"), 1007),
        (ws(CLOSE, close_body(999)), 1002),
        (ws(3), 1002),
        (ws(TEXT, A, mask=None), 1002),
        (b"\x82\xff" + (1 << 40).to_bytes(8, "big") + b"mask", 1009),
    ],
)
def test_nothing_is_sent_after_the_servers_close(theirs: bytes, code: int | None) -> None:
    for chunks in every_chop([theirs]):
        codec = WebSocketCodec(max_message_bytes=1000)
        assert codec.close(1001, "shutting-down")
        for chunk in chunks:
            codec.receive_data(chunk)
            assert codec.take_replies() == b""
        assert (codec.closed and codec.closed.code) == code
        assert not (codec.closed and codec.closed.by_peer)
        assert codec.ping(b"") == b""
        assert codec.close(1000, "") == b""


# --- on a connection ----------------------------------------------------------------------------


@pytest.mark.covers("W17", "W18", "W21")
@pytest.mark.parametrize("code", [*MAY_BE_SENT, 1005])
async def test_a_close_is_answered_and_then_the_broker_ends_the_stream(
    autojump_clock, dial: Dial, code: int
) -> None:
    body = b"" if code == 1005 else close_body(code, KOSME)
    socket = await open_session(dial)
    await socket.send(ws(TEXT, A) + ws(CLOSE, body) + ws(PING, b"late") + ws(TEXT, A))
    await socket.until_end()
    assert socket.close_payload == body[:2]
    assert (socket.bodies, socket.pongs) == ([b"first"], ())
    await until(lambda: not dial.server.connections, 0.1)
    assert endings(dial) == {"client-closed": 1}


@pytest.mark.covers("W17", "R12")
@pytest.mark.parametrize("cut", [1, 20, len(A) - 1])
async def test_a_frame_that_a_close_cuts_in_half_is_no_frame(
    autojump_clock, dial: Dial, cut: int
) -> None:
    """The rest of a fragmented message after the Close does not count (7.1.5)."""
    watcher, socket = await open_session(dial), await open_session(dial)
    first, rest = ws(TEXT, A[:cut], fin=False), ws(CONTINUATION, A[cut:])
    await socket.send(first + ws(CLOSE, close_body(1000)) + rest)
    await socket.until_end()
    assert socket.close_code == 1000
    await watcher.send(ws(PING, b"?"))
    await watcher.until(lambda it: bool(it.pongs))
    assert watcher.bodies == socket.bodies == []


@pytest.mark.covers("W17", "W18", "R09")
@pytest.mark.parametrize("answer", ["close", "rubbish", "nothing", "pings"])
async def test_our_close_waits_for_its_answer_in_bounds_whatever_comes(
    autojump_clock, answer: str
) -> None:
    async with open_dial(**QUIET, linger_s=3.0) as dial:
        socket = await open_session(dial)
        await socket.send(ws(TEXT, b"BOGUS\n\n\0"))
        await socket.until(lambda it: it.close_payload is not None)
        assert socket.received[-1].command == "ERROR"
        assert socket.close_payload == close_body(1002, b"protocol-error")
        before = trio.current_time()
        if answer == "close":
            await socket.send(ws(CLOSE, close_body(1002)))
        elif answer == "rubbish":
            await socket.send(b"\xff" * 1000)
        elif answer == "pings":
            await socket.send(ws(PING, b"?") * 10)
        await until(lambda: not dial.server.connections, 0.05)
        waited = trio.current_time() - before
        assert waited < 0.2 if answer == "close" else waited < 3.3
        assert (answer == "close") == (waited < 0.2)
        with trio.move_on_after(1):
            await socket.until_end()  # fails if anything followed our Close


@pytest.mark.covers("W17")
@pytest.mark.parametrize("opcode", [TEXT, BINARY, PING, PONG, CLOSE])
async def test_a_connection_lost_within_a_close_frame_is_cleaned_up(
    autojump_clock, dial: Dial, opcode: int
) -> None:
    frame = ws(opcode, close_body(1000, b"0123456789"))
    for cut in range(len(frame)):
        socket = await open_session(dial)
        await socket.stream.send_all(frame[:cut])
        await socket.stream.aclose()
        await until(lambda: not dial.server.connections, 0.1)
    assert endings(dial) == {"client-closed": len(frame)}
    assert dial.server.memory.used_bytes == 0


@pytest.mark.covers("W17", "W18")
async def test_a_close_over_a_real_socket_is_answered_though_more_comes() -> None:
    """With unread bytes at the end, the kernel would send a reset and drop our Close."""
    async with open_dial(TCP, **QUIET) as dial:
        for _ in range(5):
            socket = await open_session(dial)
            flood = ws(BINARY, b"\n" * 60_000)
            await socket.stream.send_all(ws(CLOSE, close_body(1000)) + flood)
            await socket.until_end()
            assert socket.close_payload == close_body(1000)
            await socket.stream.aclose()
