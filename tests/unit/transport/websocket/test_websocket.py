"""The open WebSocket, against hand-made frames and against wsproto as an independent peer."""

import gc
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Message, Ping, Pong, TextMessage

from tests.support.hostile import MASK, close_body, ws
from trio_stomp.transport.websocket import WebSocketClose, WebSocketCodec, frame_message, splice

MAX_WHOLE_BYTES = 8_191
"""The largest frame that is not handled in pieces."""

LIMIT = 1 << 20
EDGES = [0, 1, 125, 126, 127, 8190, 8191, 8192, 65535, 65536]

steady = settings(derandomize=True, deadline=None, max_examples=150)


def client_frame(first: int, payload: bytes = b"", *, mask: bytes | None = MASK) -> bytes:
    """Return a frame with a first byte, valid or not."""
    return ws(first & 15, payload, fin=first > 127, rsv=first >> 4 & 7, mask=mask)


def make_codec(max_message_bytes: int = LIMIT) -> WebSocketCodec:
    return WebSocketCodec(max_message_bytes=max_message_bytes)


def feed(codec: WebSocketCodec, data: bytes, cuts: list[int]) -> tuple[bytes, bytes]:
    """Feed ``data`` cut at ``cuts``; return the payload and the replies."""
    borders = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    payload = replies = b""
    for begin, end in pairwise(borders):
        payload += codec.receive_data(data[begin:end])
        replies += codec.take_replies()
    return payload, replies


def byte_by_byte(data: bytes) -> list[int]:
    return list(range(len(data)))


def server_events(data: bytes) -> list[object]:
    """Return a client's events for bytes of the server; any frame that breaks a rule fails."""
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(data)
    return list(client.events())


# --- outgoing ---------------------------------------------------------------------------------


@pytest.mark.covers("W09", "W13")
@pytest.mark.parametrize(
    ("length", "header"),
    [
        (0, b"\x81\x00"),
        (125, b"\x81\x7d"),
        (126, b"\x81\x7e\x00\x7e"),
        (65535, b"\x81\x7e\xff\xff"),
        (65536, b"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
    ],
)
def test_header_is_unmasked_and_in_shortest_form(length: int, header: bytes) -> None:
    body = b"x" * length
    assert frame_message(body, "text") == header + body
    assert frame_message(body, "binary") == b"\x82" + header[1:] + body


@pytest.mark.covers("X05")
@pytest.mark.parametrize(
    ("data", "mode", "opcode"),
    [
        (b"plain", "auto", 0x81),
        (b"plain", "text", 0x81),
        (b"plain", "binary", 0x82),
        ("é".encode(), "auto", 0x81),
        ("é".encode(), "text", 0x81),
        (b"\xff", "auto", 0x82),
        (b"\xff", "text", 0x82),
        (b"\xed\xa0\x80", "text", 0x82),  # half of a surrogate pair
    ],
)
def test_text_only_if_valid_utf8(data: bytes, mode: str, opcode: int) -> None:
    assert frame_message(data, mode) == bytes((opcode, len(data))) + data
    assert b"".join(splice([b"", data], 0, mode)) == frame_message(data, mode)


tails_strategy = st.lists(
    st.one_of(
        st.binary(max_size=130),
        st.text(max_size=130).map(str.encode),
        st.sampled_from(EDGES).map(lambda size: b"t" * size),
    ),
    max_size=8,
)


@pytest.mark.covers("W09", "X05", "X09")
@given(tails_strategy, st.text(max_size=140).map(str.encode), st.sampled_from(["auto", "binary"]))
@steady
def test_splice_is_each_frame_in_its_own_message(
    tails: list[bytes], prefix: bytes, mode: str
) -> None:
    given_tails = [b"", *tails]
    wire = prefix.join(splice(given_tails, len(prefix), mode))
    assert given_tails == [b"", *tails]  # shared with other subscribers
    assert wire == b"".join(frame_message(prefix + tail, mode) for tail in tails)
    messages = server_events(wire)
    assert all(isinstance(message, Message) and message.message_finished for message in messages)
    assert [payload_of(message) for message in messages] == [prefix + tail for tail in tails]


def payload_of(event: object) -> bytes:
    if isinstance(event, TextMessage):
        return event.data.encode()
    assert isinstance(event, BytesMessage)
    return bytes(event.data)


# --- incoming data ----------------------------------------------------------------------------


@pytest.mark.covers("X04", "X06", "X08")
def test_messages_run_together_text_and_binary_mixed() -> None:
    codec = make_codec()
    data = (
        client_frame(0x81, b"SEND\n\na\0SEND\n\nb\0")
        + client_frame(0x82, b"\n")
        + client_frame(0x81)
        + client_frame(0x82, b"SEND\n\n\xff\0")
        + client_frame(0x81, "é".encode())
    )
    assert codec.receive_data(data) == b"SEND\n\na\0SEND\n\nb\0\nSEND\n\n\xff\0" + "é".encode()
    assert codec.closed is None
    statistics = codec.statistics()
    assert (statistics.fast_frames, statistics.slow_frames) == (5, 0)
    assert codec.receive_data(b"") == b""


@pytest.mark.parametrize(
    ("frame", "fast"),
    [
        (client_frame(0x81), True),
        (client_frame(0x82, b"x" * 126), True),
        (client_frame(0x82, b"x" * MAX_WHOLE_BYTES), True),
        (client_frame(0x82, b"x" * (MAX_WHOLE_BYTES + 1)), False),
        (client_frame(0x82, b"x" * 65536), False),
        (client_frame(0x8A), False),
    ],
)
def test_small_whole_messages_do_without_wsproto(frame: bytes, fast: bool) -> None:
    codec = make_codec()
    codec.receive_data(frame)
    statistics = codec.statistics()
    assert (statistics.fast_frames, statistics.slow_frames) == (int(fast), int(not fast))


@pytest.mark.covers("W20", "X04")
def test_text_is_checked_message_by_message_among_binary_ones() -> None:
    # Binary data that is not UTF-8, in all header forms, before and after the faulty text.
    before = client_frame(0x82, b"\xff" * 200) + client_frame(0x81, "é".encode() * 100)
    behind = client_frame(0x82, b"\xff")
    codec = make_codec()
    payload = codec.receive_data(before + client_frame(0x81, b"\xff") + behind)
    assert payload == b"\xff" * 200 + "é".encode() * 100
    assert codec.closed == WebSocketClose(1007, "text message is not valid UTF-8", False)
    codec = make_codec()
    assert codec.receive_data(before + behind) == payload + b"\xff"
    assert codec.closed is None


def test_buffered_bytes_are_the_bytes_of_the_incomplete_frame() -> None:
    codec = make_codec()
    frame = client_frame(0x81, b"x" * 100)
    for data, kept in ((frame + frame[:20], 20), (frame[20:30], 30), (frame[30:], 0)):
        codec.receive_data(data)
        assert codec.statistics().buffered_bytes == kept


def test_idle_codec_keeps_nothing_of_wsproto() -> None:
    codec = make_codec()
    codec.receive_data(client_frame(0x01, b"a"))
    assert codec._connection is not None
    codec.receive_data(client_frame(0x80, b"b") + client_frame(0x89))
    assert codec._connection is None
    large = client_frame(0x82, b"x" * 9000)
    codec.receive_data(large[:20])
    assert codec._connection is not None
    codec.receive_data(large[20:])
    assert codec._connection is None


@pytest.mark.parametrize("ends", [False, True])
def test_what_wsproto_kept_is_freed_without_a_collection(ends: bool) -> None:
    codec = make_codec()
    gc.collect()
    gc.disable()
    try:
        codec.receive_data(client_frame(0x01, b"a"))
        assert codec._connection is not None
        kept = weakref.ref(codec._connection._proto)
        if ends:
            codec.receive_data(client_frame(0x80, b"b"))
        else:
            codec.discard()
        assert kept() is None
    finally:
        gc.enable()


# --- close codes ------------------------------------------------------------------------------

BROKEN = [
    pytest.param(client_frame(0x81, b"x", mask=None), 1002, id="unmasked"),
    pytest.param(client_frame(0x89, b"x" * 9000), 1002, id="very-long-ping"),
    pytest.param(client_frame(0x81, b"\xff" * 200), 1007, id="bad-text-16"),
    pytest.param(client_frame(0x81, b"\xff" + b"x" * 9000), 1007, id="bad-text-large"),
    pytest.param(b"\x82\xff" + (LIMIT + 1).to_bytes(8, "big") + MASK, 1009, id="too-big"),
    pytest.param(b"\xc2\xff" + (LIMIT + 1).to_bytes(8, "big") + MASK, 1002, id="too-big-and-rsv"),
]
"""The other rules are in the tables of ``test_websocket_rfc6455*``."""


@pytest.mark.parametrize(("bad", "code"), BROKEN)
def test_broken_rule_closes_with_its_code_and_then_nothing_counts(bad: bytes, code: int) -> None:
    before = client_frame(0x81, "gut é".encode()) + client_frame(0x82, b"\xff")
    data = before + bad + client_frame(0x81, b"never seen")
    few_cuts = [len(before) + cut for cut in range(20)]
    for cuts in ([], few_cuts, byte_by_byte(data) if len(data) < 1000 else [7]):
        codec = make_codec()
        payload, replies = feed(codec, data, cuts)
        assert payload.startswith("gut é".encode() + b"\xff")
        assert b"never seen" not in payload
        assert codec.closed is not None
        assert (codec.closed.code, codec.closed.by_peer) == (code, False)
        [farewell] = server_events(replies)
        assert isinstance(farewell, CloseConnection)
        assert farewell.code == code
        assert codec.receive_data(client_frame(0x81, b"late")) == codec.take_replies() == b""
        assert codec.close(1000, "") == codec.ping(b"") == b""


@pytest.mark.covers("W22")
@pytest.mark.parametrize("limit", [10, 200, 9000])
def test_message_limit_is_checked_before_a_byte_is_kept(limit: int) -> None:
    codec = make_codec(limit)
    assert codec.receive_data(client_frame(0x82, b"x" * limit)) == b"x" * limit
    too_long = client_frame(0x82, b"x" * (limit + 1))
    header_length = len(too_long) - limit - 1
    assert codec.receive_data(too_long[: header_length - 1]) == b""
    assert codec.closed is None
    assert codec.receive_data(too_long[header_length - 1 : header_length]) == b""
    reason = f"message is longer than {limit} bytes"
    assert codec.closed == WebSocketClose(1009, reason, False)
    at_once = make_codec(limit)
    assert at_once.receive_data(client_frame(0x82, b"before") + too_long) == b"before"
    assert at_once.closed == codec.closed


@pytest.mark.covers("W22")
def test_message_limit_counts_all_fragments() -> None:
    codec = make_codec(10)
    begin = client_frame(0x02, b"12345")
    assert codec.receive_data(begin + client_frame(0x00, b"67890")) == b"1234567890"
    # Control frames are not part of the message, and the next message starts afresh.
    codec.receive_data(client_frame(0x89, b"x" * 100) + client_frame(0x80))
    assert codec.receive_data(begin + client_frame(0x00, b"6789")) == b"123456789"
    assert codec.closed is None
    assert codec.receive_data(client_frame(0x80, b"01")) == b""
    assert codec.closed is not None
    assert codec.closed.code == 1009


# --- control frames ---------------------------------------------------------------------------


@pytest.mark.covers("W19")
def test_only_the_latest_ping_of_one_read_is_answered() -> None:
    codec = make_codec()
    codec.receive_data(b"".join(client_frame(0x89, b"%d" % n) for n in range(50)))
    assert server_events(codec.take_replies()) == [Pong(payload=b"49")]
    assert codec.take_replies() == b""
    codec.receive_data(client_frame(0x89, b"x" * 125))
    assert server_events(codec.take_replies()) == [Pong(payload=b"x" * 125)]
    assert codec.statistics().pings == 51


def test_a_ping_has_at_most_125_bytes() -> None:
    codec = make_codec()
    assert server_events(codec.ping(b"are you there")) == [Ping(payload=b"are you there")]
    assert codec.ping(b"") == b"\x89\x00"
    with pytest.raises(ValueError, match="125 bytes, not 126"):
        codec.ping(b"x" * 126)


@pytest.mark.covers("W17")
def test_close_of_the_peer_is_answered_once_after_the_pong() -> None:
    codec = make_codec()
    close = client_frame(0x88, close_body(3000, "tschüß".encode()))
    data = client_frame(0x81, b"last") + client_frame(0x89, b"p") + close
    assert codec.receive_data(data + client_frame(0x81, b"ignored")) == b"last"
    assert codec.closed == WebSocketClose(3000, "tschüß", True)
    pong, answer = server_events(codec.take_replies())
    assert pong == Pong(payload=b"p")
    assert isinstance(answer, CloseConnection)
    assert (answer.code, answer.reason) == (3000, "")
    assert codec.receive_data(close) == b""
    assert codec.take_replies() == b""
    assert codec.close(1000, "") == b""


@pytest.mark.covers("W17", "X10")
def test_our_close_is_sent_once_and_ends_with_the_answer() -> None:
    codec = make_codec()
    codec.receive_data(client_frame(0x89, b"before"))
    farewell = codec.close(1008, "slow-consumer")
    assert server_events(farewell) == [CloseConnection(code=1008, reason="slow-consumer")]
    assert codec.take_replies() == b""  # nothing follows a Close, not even a Pong
    assert codec.close(1008, "slow-consumer") == b""
    assert codec.ping(b"") == b""
    assert codec.closed is None
    # Frames that were under way are still read, but not answered.
    assert codec.receive_data(client_frame(0x81, b"x") + client_frame(0x89)) == b"x"
    assert codec.take_replies() == b""
    codec.receive_data(client_frame(0x88, close_body(1008)))
    assert codec.closed == WebSocketClose(1008, "", True)
    assert codec.take_replies() == b""


@pytest.mark.covers("W16", "W17")
@pytest.mark.parametrize(
    ("reason", "sent"),
    [
        ("", ""),
        ("x" * 123, "x" * 123),
        ("x" * 124, "x" * 123),
        ("x" * 122 + "é", "x" * 122),
        ("é" * 100, "é" * 61),
        ("\ud800", "?"),
    ],
)
def test_reason_is_cut_to_valid_text_of_123_bytes(reason: str, sent: str) -> None:
    (close,) = server_events(make_codec().close(1011, reason))
    assert close == CloseConnection(code=1011, reason=sent)


@pytest.mark.covers("W21")
@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 5000])
def test_reserved_code_is_never_sent(code: int) -> None:
    with pytest.raises(ValueError, match=str(code)):
        make_codec().close(code, "")


# --- against wsproto --------------------------------------------------------------------------

sizes = st.one_of(st.integers(0, 300), st.sampled_from(EDGES))
bodies, texts = (
    st.builds(lambda size, seed: (seed * (size // len(seed) + 1))[:size], sizes, seeds)
    for seeds in (st.binary(min_size=1, max_size=7), st.text(min_size=1, max_size=7))
)
controls = st.lists(
    st.builds(Ping, st.binary(max_size=125)) | st.builds(Pong, st.binary(max_size=125)), max_size=2
)
pieces = st.tuples(st.lists(bodies, min_size=1, max_size=4) | st.lists(texts, min_size=1), controls)
cut_lists = st.lists(st.integers(0, 1 << 20), max_size=12)


def encoded(messages: list[tuple[Sequence[bytes | str], list[Ping | Pong]]]) -> Iterator[bytes]:
    """Return the fragments of each message, with the control frames after the first one."""
    client = Connection(ConnectionType.CLIENT)
    for parts, between in messages:
        for number, part in enumerate(parts, 1):
            done = number == len(parts)
            if isinstance(part, str):
                yield client.send(TextMessage(data=part, message_finished=done))
            else:
                yield client.send(BytesMessage(data=part, message_finished=done))
            if number == 1:
                yield from map(client.send, between)


@pytest.mark.covers("W14", "W15", "W19", "W20", "X04", "X06", "X07")
@given(st.lists(pieces, max_size=6), cut_lists)
@steady
def test_any_messages_cut_anywhere_give_their_payload(
    messages: list[tuple[Sequence[bytes | str], list[Ping | Pong]]], cuts: list[int]
) -> None:
    data = b"".join(encoded(messages))
    expected = b"".join(
        part.encode() if isinstance(part, str) else part for parts, _ in messages for part in parts
    )
    codec = make_codec(1 << 30)
    payload, replies = feed(codec, data, cuts)
    assert payload == expected
    assert codec.closed is None
    statistics = codec.statistics()
    frames = sum(len(parts) + len(between) for parts, between in messages)
    assert statistics.fast_frames + statistics.slow_frames == frames
    assert statistics.fragments == sum(len(parts) for parts, _ in messages if len(parts) > 1)
    events = [event for _, between in messages for event in between]
    pings = [event.payload for event in events if type(event) is Ping]
    assert (statistics.pings, statistics.pongs) == (len(pings), len(events) - len(pings))
    answers = [event.payload for event in server_events(replies) if isinstance(event, Pong)]
    assert answers[-1:] == pings[-1:]
    unanswered = iter(pings)
    assert all(answer in unanswered for answer in answers)  # in order, some left out


def reference(data: bytes) -> tuple[bytes, int | None, bool]:
    """Return wsproto's result for ``data``: payload, close code, whether the peer closed."""
    server = Connection(ConnectionType.SERVER)
    server.receive_data(data)
    payload = b""
    for event in server.events():
        if isinstance(event, CloseConnection):
            return payload, event.code, server.state is ConnectionState.REMOTE_CLOSING
        if isinstance(event, Message):
            payload += payload_of(event)
    return payload, None, False


odd_frames = st.builds(
    client_frame,
    st.one_of(
        st.sampled_from([0x81, 0x82, 0x01, 0x02, 0x00, 0x80, 0x89, 0x8A, 0x88]), st.integers(0, 255)
    ),
    st.one_of(
        st.binary(max_size=4),
        st.text(max_size=4).map(str.encode),
        st.sampled_from([close_body(1000), close_body(1005), b"x" * 126, "é".encode() * 4100]),
    ),
    mask=st.sampled_from([MASK] * 9 + [None]),
)


@pytest.mark.covers("W10", "W11", "W12", "W14", "W16", "W17", "W20")
@given(st.lists(odd_frames, max_size=8), cut_lists)
@settings(steady, max_examples=400)
def test_valid_and_invalid_frames_end_as_in_wsproto(frames: list[bytes], cuts: list[int]) -> None:
    data = b"".join(frames)
    expected, code, by_peer = reference(data)
    codec = make_codec()
    assert feed(codec, data, [])[0] == expected
    for other_cuts in (cuts, byte_by_byte(data) if len(data) < 500 else cuts):
        other = make_codec()
        payload, _ = feed(other, data, other_cuts)
        # Of an invalid message in several frames or pieces, more may have been passed on.
        assert payload[: len(expected)] == expected
        assert other.closed == codec.closed or code == 1007
        for closed in (codec.closed, other.closed):
            assert (closed and closed.code) == code
            assert bool(closed and closed.by_peer) == by_peer


# --- work -------------------------------------------------------------------------------------


def calls_made(data: bytes, step: int) -> int:
    """Count the calls, Python's and C's, for feeding ``data`` in steps."""
    codec = make_codec()
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    chunks = [data[at : at + step] for at in range(0, len(data), step)]
    sys.setprofile(count)
    try:
        received = sum([len(codec.receive_data(chunk)) for chunk in chunks])
    finally:
        sys.setprofile(None)
    assert received > 0
    assert codec.closed is None
    return calls


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda n: client_frame(0x82, b"x" * (n * MAX_WHOLE_BYTES * 2)), id="large"),
        pytest.param(lambda n: client_frame(0x82, b"x" * 8000) * n * 2, id="small"),
        pytest.param(
            lambda n: client_frame(0x02) + client_frame(0x00, b"x" * 500) * n * 10, id="fragments"
        ),
    ],
)
def test_work_is_linear_whatever_the_chunks(make: Callable[[int], bytes]) -> None:
    small, large = make(1), make(4)
    for step in (1, 7, 1000):
        ratio = calls_made(large, step) / calls_made(small, step)
        assert ratio < 4.2


def test_buffer_never_exceeds_one_small_frame() -> None:
    # With this bound and a bytearray that grows in place, no byte is copied repeatedly.
    codec = make_codec()
    data = client_frame(0x82, b"x" * MAX_WHOLE_BYTES) + client_frame(0x82, b"x" * 40_000)
    held = None
    for at in range(len(data)):
        codec.receive_data(data[at : at + 1])
        assert codec.statistics().buffered_bytes < MAX_WHOLE_BYTES + 14
        if 20 < at < MAX_WHOLE_BYTES:
            assert held is None or codec._held is held
            held = codec._held
    assert held is not None


def test_unmasking_is_once_for_all_frames_of_a_read() -> None:
    frames = [client_frame(0x82, b"%d" % n) for n in range(1000)]
    one, thousand = calls_made(frames[0], 1 << 20), calls_made(b"".join(frames), 1 << 20)
    # Two appends for each frame, and no other call.
    assert thousand - one <= 2 * 2 * 1000
