"""The bytes of the NATS client protocol, however they are cut, and those that break a rule."""

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_stomp.nats.codec import (
    Event,
    Info,
    Message,
    NatsDecoder,
    NatsError,
    ServerFault,
    Signal,
    check_subject,
    encode_connect,
    encode_publish,
    encode_subscribe,
    encode_unsubscribe,
)

MAX_LINE_BYTES, MAX_PAYLOAD_BYTES = 64 * 1024, 64 * 1024 * 1024

SAID: Sequence[tuple[bytes, Event | None]] = (
    (b'INFO {"max_payload":5, "name": "a b"}\r\n', Info({"max_payload": 5, "name": "a b"})),
    (b"PING\r\n", Signal.PING),
    (b"PONG\r\n", Signal.PONG),
    (b"+OK\r\n", None),
    (b"-ERR 'Authorization Violation'\r\n", ServerFault("Authorization Violation")),
    (b"MSG a.b 7 3\r\nx\n\0\r\n", Message(b"a.b", b"7", b"", b"", b"x\n\0")),
    (b"MSG a.b 7 re.ply 0\r\n\r\n", Message(b"a.b", b"7", b"re.ply", b"", b"")),
    (b"MSG\ta.b  7\tre.ply 2\r\nhi\r\n", Message(b"a.b", b"7", b"re.ply", b"", b"hi")),
    (
        b"HMSG a 7 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
        Message(b"a", b"7", b"", b"NATS/1.0\r\n\r\n", b"hi"),
    ),
    (
        b"HMSG a 7 r 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        Message(b"a", b"7", b"r", b"NATS/1.0 503\r\n\r\n", b""),
    ),
)
EVENTS = [event for _, event in SAID if event is not None]


@given(st.lists(st.integers(0, 400), max_size=6))
def test_events_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    data = b"".join(text for text, _ in SAID)
    borders = [0, *sorted(cuts), len(data)]
    decoder, events = NatsDecoder(), list[Event]()
    for start, stop in pairwise(borders):
        events += decoder.feed(data[start:stop])
    assert events == EVENTS
    assert decoder.error is None
    assert decoder.is_empty


def test_messages_that_come_byte_by_byte_are_decoded() -> None:
    decoder, events = NatsDecoder(), list[Event]()
    for byte in b"".join(text for text, _ in SAID):
        events += decoder.feed(bytes((byte,)))
    assert events == EVENTS


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\n", id="no-line"),
        pytest.param(b"\r\n", id="empty-line"),
        pytest.param(b"PING\n", id="without-a-cr"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="another-protocol"),
        pytest.param(b"x" * (MAX_LINE_BYTES + 1), id="endless-line"),
        pytest.param(b"INFO {\r\n", id="broken-json"),
        pytest.param(b"INFO []\r\n", id="no-object"),
        pytest.param(b"INFO " + b"[" * 50_000 + b"\r\n", id="deep-json"),
        pytest.param(b"INFO {}\xff\r\n", id="not-utf-8"),
        pytest.param(b"MSG\r\n", id="no-words"),
        pytest.param(b"MSG a 3\r\nabc\r\n", id="too-few-words"),
        pytest.param(b"MSG a 7 r r 3\r\nabc\r\n", id="too-many-words"),
        pytest.param(b"MSG a 7 -3\r\nabc\r\n", id="negative"),
        pytest.param(b"MSG a 7 3x\r\nabc\r\n", id="no-number"),
        pytest.param(b"MSG a 7 %d\r\n" % (MAX_PAYLOAD_BYTES + 1), id="too-large"),
        pytest.param(b"MSG a 7 %s\r\n" % (b"9" * 5000), id="far-too-large"),
        pytest.param(b"MSG a 7 3\r\nabcd\r\n", id="payload-longer"),
        pytest.param(b"MSG a 7 3\r\nab\r\nMSG", id="payload-shorter"),
        pytest.param(b"HMSG\r\n", id="headers-no-words"),
        pytest.param(b"HMSG a 7 x 3\r\nabc\r\n", id="headers-no-number"),
        pytest.param(b"HMSG a 7 5 3\r\nabc\r\n", id="headers-longer-than-all"),
        pytest.param(b"HMSG a 7 3\r\nabc\r\n", id="headers-without-a-size"),
    ],
)
def test_malformed_data_ends_the_decoding(data: bytes) -> None:
    decoder = NatsDecoder()
    assert decoder.feed(b"PING\r\n" + data) == [Signal.PING]  # what came before still counts
    assert decoder.error is not None
    assert decoder.feed(b"PING\r\n") == []


def test_a_line_that_does_not_end_is_not_kept() -> None:
    decoder = NatsDecoder()
    for _ in range(MAX_LINE_BYTES // 1000 + 1):
        decoder.feed(b"x" * 1000)
    assert decoder.error is not None


@given(st.binary(max_size=80), st.integers(1, 20))
def test_any_bytes_are_events_or_an_error(data: bytes, step: int) -> None:
    whole, cut = NatsDecoder(), NatsDecoder()
    events = whole.feed(data)
    in_pieces: list[Event] = []
    for start in range(0, len(data), step):
        in_pieces += cut.feed(data[start : start + step])
    assert in_pieces == events
    # With more bytes a rule may be seen to be broken earlier, but by no other bytes.
    assert (cut.error is None) == (whole.error is None)


def test_a_large_message_in_pieces_takes_time_in_proportion() -> None:
    """Each piece is appended once, and nothing is scanned again before the message is complete."""
    decoder, size = NatsDecoder(), 1 << 20
    data = b"MSG a 7 %d\r\n" % size + bytes(size) + b"\r\n"
    pieces = [data[at : at + 1024] for at in range(0, len(data), 1024)]
    assert [events for piece in pieces if (events := decoder.feed(piece))] == [
        [Message(b"a", b"7", b"", b"", bytes(size))]
    ]


def test_commands_of_a_client() -> None:
    connect = encode_connect({"name": 'a "b"\n', "verbose": False})
    assert connect.startswith(b"CONNECT {")
    assert connect.count(b"\n") == 1
    assert json.loads(connect[8:]) == {"name": 'a "b"\n', "verbose": False}
    assert encode_subscribe(b"a.>", b"1") == b"SUB a.> 1\r\n"
    assert encode_subscribe(b"a.*", b"1", b"workers") == b"SUB a.* workers 1\r\n"
    assert encode_unsubscribe(b"1") == b"UNSUB 1\r\n"
    assert encode_publish(b"a", b"x\r\n") == b"PUB a 3\r\nx\r\n\r\n"
    assert encode_publish(b"a re", b"hi", b"NATS/1.0\r\n\r\n") == (
        b"HPUB a re 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    )


@pytest.mark.parametrize("subject", [b"", b"a b", b"a\r\nPUB b 0", b"a\tb", b" a", b"a ", b"a\n"])
def test_a_subject_cannot_smuggle_words(subject: bytes) -> None:
    with pytest.raises(NatsError, match="is no subject"):
        check_subject(subject)
    with pytest.raises(NatsError, match="is no subject"):
        encode_subscribe(b"a", b"1", subject) if subject else encode_subscribe(subject, b"1")
