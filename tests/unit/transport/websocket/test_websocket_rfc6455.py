"""RFC 6455, case by case: framing, pings, reserved bits, opcodes, fragments, masks.

The sections are those of the Autobahn test suite, restated here:
1 framing, 2 pings and pongs, 3 reserved bits, 4 opcodes, 5 fragmentation, and masking, which that
suite leaves to its own client. UTF-8 (6) is in ``test_websocket_rfc6455_text``, closing (7) in
``..._close``, limits (9, 10) and compression (12, 13) in ``..._limits``. STOMP rides inside: data
are SENDs and heart-beats, an echo is the MESSAGE of one's own subscription.

Each case runs against the codec in every chop, and against a whole broker frame by frame, at once,
and in octets.
"""

from collections.abc import Iterable
from contextlib import suppress

import pytest
import trio
from attrs import field, frozen

from tests.support.fakes import TCP, open_dial, until
from tests.support.hostile import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    QUIET,
    TEXT,
    Farewell,
    close_body,
    endings,
    every_chop,
    fragments,
    hear,
    octets,
    open_session,
    padded,
    pieces,
    send,
    sent_bodies,
    ws,
)


def listed(frames: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(frames)


@frozen
class Case:
    """The frames of a client, and the expected results.

    Args:
      frames: The client's frames, in order.
      data: The STOMP bytes that get through, in order.
      pongs: The payloads of our Pongs, if each frame is read separately.
      code: The code of our Close; None = the WebSocket stays open.
    """

    id: str
    covers: str
    frames: tuple[bytes, ...] = field(converter=listed)
    data: bytes = b""
    pongs: tuple[bytes, ...] = ()
    code: int | None = None


A, B, RAW = send(b"first"), send(b"second"), send(b"\xfe\xff")
PING_BEHIND = ws(PING, b"behind")  # a Pong would show that reading continued


def dead(name: str, covers: str, *frames: bytes) -> list[Case]:
    """Return cases of frames that end the connection, alone and between other frames.

    Autobahn checks both: the message before is echoed, the ping after is not answered.
    """
    return [
        Case(f"{name}-alone", covers, frames, code=1002),
        Case(
            f"{name}-between",
            covers,
            (ws(TEXT, A), *frames, PING_BEHIND, ws(TEXT, B)),
            data=A,
            code=1002,
        ),
    ]


# --- 1 framing: every length at a border of the three length forms -----------------------------

FRAMING = [
    Case(f"1-{kind}-{size}", "W13 X04", [ws(opcode, data)], data)
    for kind, opcode, filler in (("text", TEXT, b"*"), ("binary", BINARY, b"\xfe"))
    for size in (0, 1, 125, 126, 127, 128, 65535, 65536)
    for data in [padded(size, filler)]
]
MASKS = [
    Case(f"1-mask-{mask.hex()}", "W10", [ws(TEXT, A, mask=mask), ws(BINARY, B, mask=mask)], A + B)
    for mask in (bytes(4), b"\xff" * 4, b"\0\0\0\x01", b"\x01\0\0\0", b"\x80\0\x7f\xff")
]

# --- 2 pings and pongs --------------------------------------------------------------------------

PINGS = [
    *(
        Case(f"2.1-4-ping-{size}", "W15 W19", [ws(PING, body), ws(TEXT, A)], A, (body,))
        for size in (0, 1, 2, 64, 124, 125)
        for body in [b"p" * size]
    ),
    Case("2.3-ping-binary", "W19", [ws(PING, b"\0\xff\xfe\xfd\xfc\xfb\0\xff")],
         pongs=(b"\0\xff\xfe\xfd\xfc\xfb\0\xff",)),
    *dead("2.5-ping-126", "W16", ws(PING, b"\xfe" * 126)),
    *dead("2.5-pong-126", "W16", ws(PONG, b"\xfe" * 126)),
    *dead("2.5-ping-in-16-bits", "W16", ws(PING, b"p", width=2)),
    Case("2.7-unsolicited-pong", "W19", [ws(PONG), ws(TEXT, A)], A),
    Case("2.8-unsolicited-pong", "W19", [ws(PONG, b"unsolicited"), ws(TEXT, A)], A),
    Case("2.9-pong-then-ping", "W19", [ws(PONG, b"unsolicited"), ws(PING, b"ping")],
         pongs=(b"ping",)),
    Case("2.10-ten-pings", "W19", [ws(PING, b"payload-%d" % n) for n in range(10)],
         pongs=tuple(b"payload-%d" % n for n in range(10))),
]  # fmt: skip

# --- 3 reserved bits: no extension is ever agreed to, so none may be set ------------------------

RESERVED = [
    case
    for rsv in range(1, 8)
    for name, opcode, payload in (
        ("text", TEXT, B),
        ("binary", BINARY, B),
        ("ping", PING, b"p"),
        ("pong", PONG, b""),
        ("close", CLOSE, close_body(1000)),
    )
    for case in dead(f"3-rsv{rsv}-{name}", "W11", ws(opcode, payload, rsv=rsv))
] + dead("3-rsv-in-continuation", "W11", ws(TEXT, b"", fin=False), ws(CONTINUATION, B, rsv=4))

# --- 4 opcodes ----------------------------------------------------------------------------------

OPCODES = [
    case
    for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)
    for size, payload in ((0, b""), (5, b"reserved payload"))
    for case in dead(f"4-opcode-{opcode}-{size}", "W12", ws(opcode, payload))
]

# --- 5 fragmentation ----------------------------------------------------------------------------

BEGIN, GO_ON, END = ws(TEXT, A[:9], fin=False), ws(CONTINUATION, A[9:20], fin=False), A[20:]
LAST = ws(CONTINUATION, END)
FRAGMENTS = [
    *dead("5.1-fragmented-ping", "W16", ws(PING, b"f", fin=False), ws(CONTINUATION, b"g")),
    *dead("5.2-fragmented-pong", "W16", ws(PONG, b"f", fin=False), ws(CONTINUATION, b"g")),
    *dead("5.2-fragmented-close", "W16", ws(CLOSE, close_body(1000), fin=False)),
    Case("5.3-two", "W14 X07", fragments(TEXT, [A[:9], A[9:]]), A),
    Case("5.3-two-binary", "W14 X07", fragments(BINARY, [RAW[:-3], RAW[-3:]]), RAW),
    Case("5.6-ping-between", "W14 W15", [BEGIN, ws(PING, b"between"), ws(CONTINUATION, A[9:])], A,
         (b"between",)),
    Case("5.6-pong-between", "W14 W15", [BEGIN, ws(PONG, b"between"), ws(CONTINUATION, A[9:])], A),
    *(
        case
        for fin in (True, False)
        for case in dead(f"5.9-14-nothing-to-continue-{fin}", "W14",
                         ws(CONTINUATION, B, fin=fin))
    ),
    Case("5.15-nothing-to-continue-behind-a-message", "W14",
         [*fragments(TEXT, [A[:9], A[9:]]), ws(CONTINUATION, B, fin=False), ws(TEXT, B)], A,
         code=1002),
    *dead("5.16-continuation-first", "W14", ws(CONTINUATION, b"", fin=False), BEGIN, LAST),
    *dead("5.18-two-beginnings", "W14", ws(TEXT, b"", fin=False), ws(TEXT, B, fin=False)),
    *dead("5.18-whole-message-inside", "W14", ws(TEXT, b"", fin=False), ws(TEXT, B)),
    *dead("5.18-binary-inside-text", "W14", ws(TEXT, b"", fin=False), ws(BINARY, B)),
    Case("5.19-five-fragments-two-pings", "W14 W15",
         [BEGIN, GO_ON, ws(PING, b"1"), ws(CONTINUATION, END[:3], fin=False),
          ws(CONTINUATION, END[3:], fin=False), ws(PING, b"2"), ws(CONTINUATION)], A, (b"1", b"2")),
    Case("5-two-fragmented-messages", "W14", [*fragments(TEXT, octets(A)), *fragments(BINARY, [B])],
         A + B),
    Case("5-empty-fragments", "W14", fragments(TEXT, [b"", b"", A, b"", b""]), A),
    Case("5-heart-beats-between", "W14 X08",
         [ws(TEXT, b"\n"), *fragments(TEXT, [b"\n", b"\n"]), ws(BINARY, b"\n"), ws(TEXT, A)],
         b"\n" * 4 + A),
]  # fmt: skip

# --- masks and lengths (section 5.1, 5.2) -------------------------------------------------------

UNMASKED = [
    case
    for name, frame in (
        ("text", ws(TEXT, B, mask=None)),
        ("empty-text", ws(TEXT, mask=None)),
        ("binary-16-bit", ws(BINARY, padded(200), mask=None)),
        ("binary-64-bit", ws(BINARY, padded(65536), mask=None)),
        ("ping", ws(PING, b"p", mask=None)),
        ("pong", ws(PONG, mask=None)),
        ("close", ws(CLOSE, close_body(1000), mask=None)),
        ("begin", ws(TEXT, B, mask=None, fin=False)),
    )
    for case in dead(f"5.1-unmasked-{name}", "W10", frame)
] + dead("5.1-unmasked-continuation", "W10", ws(TEXT, fin=False), ws(CONTINUATION, B, mask=None))

LENGTHS = [
    case
    for name, frame in (
        ("16-for-7", ws(TEXT, padded(125), width=2)),
        ("64-for-7", ws(TEXT, padded(125), width=8)),
        ("64-for-16", ws(BINARY, padded(65535), width=8)),
        ("16-for-0", ws(TEXT, width=2)),
        ("64-for-0", ws(TEXT, width=8)),
        ("top-bit", b"\x82\xff\x80" + bytes(7) + b"mask"),
        ("top-bit-and-1", b"\x82\xff\x80" + bytes(6) + b"\x01" + b"mask"),
    )
    for case in dead(f"5.2-{name}", "W13", frame)
]

CASES = [
    *FRAMING, *MASKS, *PINGS, *RESERVED, *OPCODES, *FRAGMENTS, *UNMASKED, *LENGTHS,
]  # fmt: skip
REPRESENTATIVE = {
    "1-text-65535", "1-binary-65536", "2.1-4-ping-125", "2.5-ping-126-between", "2.10-ten-pings",
    "3-rsv4-text-between", "4-opcode-3-5-between", "4-opcode-11-0-between", "5.6-ping-between",
    "5.9-14-nothing-to-continue-True-between", "5.19-five-fragments-two-pings",
    "5.1-unmasked-text-between", "5.2-64-for-16-between",
}  # fmt: skip
PARAMETERS = [
    pytest.param(case, id=case.id, marks=pytest.mark.covers(*case.covers.split())) for case in CASES
]


def check_pongs(pongs: tuple[bytes, ...], case: Case, *, is_read_for_itself: bool) -> None:
    """All are answered; of several in one read perhaps only the last (section 5.5.3)."""
    if is_read_for_itself:
        assert pongs == case.pongs
        return
    assert pongs[-1:] == case.pongs[-1:]
    due = iter(case.pongs)
    assert all(pong in due for pong in pongs)


def check_at_the_codec(reported: Farewell, case: Case) -> None:
    assert reported.data == case.data
    assert (reported.code, reported.by_peer) == (case.code, False)
    assert (reported.close or b"")[:2] == (close_body(case.code) if case.code else b"")


@pytest.mark.parametrize("case", PARAMETERS)
def test_case_at_the_codec_however_its_bytes_are_cut(case: Case) -> None:
    for place, chunks in enumerate(every_chop(case.frames)):
        result = hear(chunks)
        check_at_the_codec(result, case)
        check_pongs(result.pongs, case, is_read_for_itself=place == 1)


def test_ids_of_cases_are_unique() -> None:
    ids = {case.id for case in CASES}
    assert len(ids) == len(CASES) > 150
    assert ids >= REPRESENTATIVE


@pytest.mark.parametrize("case", PARAMETERS)
async def test_case_on_a_connection(autojump_clock, case: Case) -> None:
    """A whole broker echoes valid data, and ends with Close and EOF after a broken rule."""
    whole = b"".join(case.frames)
    small = pieces(whole, 1 if len(whole) < 300 else 5000)
    async with open_dial(**QUIET) as dial:
        for number, chunks in enumerate([case.frames, [whole], small]):
            socket = await open_session(dial)
            await socket.send(*chunks)
            if case.code is None:
                await socket.send(ws(PING, b"the end"))
                await socket.until(lambda it: it.pongs[-1:] == (b"the end",))
                expected = len(sent_bodies(case.data))  # a Pong may overtake dispatched data
                await socket.until(lambda it: len(it.bodies) >= expected)  # noqa: B023
                pongs = socket.pongs[:-1]
            else:
                await socket.until_end()
                pongs = socket.pongs
                assert socket.close_code == case.code
            assert socket.bodies == sent_bodies(case.data)
            check_pongs(pongs, case, is_read_for_itself=number == 0)
            await trio.aclose_forcefully(socket.stream)
            await until(lambda: not dial.server.connections, 0.1)
        ended = {"websocket-error": 3} if case.code else {"client-closed": 3}
        assert endings(dial) == ended


@pytest.mark.parametrize("case", [each for each in PARAMETERS if each.id in REPRESENTATIVE])
async def test_representative_cases_over_real_sockets(case: Case) -> None:
    """A reset could destroy the farewell here, since the broker closes with unread bytes."""
    async with open_dial(TCP, **QUIET) as dial:
        for chunks in (case.frames, [b"".join(case.frames) + ws(PING, b"x" * 100) * 500]):
            if case.code is None and len(chunks) == 1:
                continue
            socket = await open_session(dial)
            for chunk in chunks:
                with suppress(trio.BrokenResourceError):
                    await socket.stream.send_all(chunk)
            if case.code is None:
                await socket.until(lambda it: it.bodies == sent_bodies(case.data))
                await socket.until(lambda it: it.pongs[-1:] == case.pongs[-1:])
            else:
                await socket.until_end()
                assert socket.close_code == case.code
                assert socket.bodies == sent_bodies(case.data)
