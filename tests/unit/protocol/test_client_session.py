"""The client's side of the protocol: what the broker says, however it is cut, and what is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_stomp.base import FrameError, OptionError, ProtocolError
from trio_stomp.frames import FrameDecoder, FrameLimits, FrameRun, HeadCache
from trio_stomp.protocol import (
    STOMP_1_0,
    STOMP_1_1,
    STOMP_1_2,
    ClientFrames,
    ClientSession,
    Delivered,
    Failed,
    ProtocolOptions,
    Receipted,
    SessionEvent,
    SessionOpened,
    State,
    Version,
)

VERSIONS = (STOMP_1_0, STOMP_1_1, STOMP_1_2)
NAMES = st.text(st.characters(exclude_characters="\0\r\n:", exclude_categories=["Cs"]), min_size=1)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


def opened(version: str = "1.2", limits: FrameLimits | None = None) -> ClientSession:
    session = ClientSession(limits or FrameLimits())
    events = session.receive_data(f"CONNECTED\nversion:{version}\n\n\0".encode())
    assert [type(each) for each in events] == [SessionOpened]
    return session


def slow(session: ClientSession) -> ClientSession:
    """The same without the fast way: all goes through the decoder."""
    session._has_fast_way = False
    return session


def show(reported: list[SessionEvent]) -> list[object]:
    shown: list[object] = []
    for each in reported:
        if isinstance(each, Delivered):
            lead = (each.subscription, each.message_id, each.ack, each.offset, each.stored_ms)
            shown.append((*lead, sorted(each.headers().items()), each.body))
        elif isinstance(each, Receipted):
            shown.append((each.receipt_id, each.headers))
        elif isinstance(each, Failed):
            shown.append((each.headers, each.body))
    return shown


def plain_message(number: int, tail: bytes, body: bytes) -> bytes:
    return b"MESSAGE\nsubscription:1\nmessage-id:x.1-%d\n%b\n%b\0" % (number, tail, body)


def test_a_message_in_all_its_parts() -> None:
    (events,) = opened().receive_data(
        b"MESSAGE\nsubscription:1\nack:b.1-5\nmessage-id:b.1-5\nx-stream-offset:7\n"
        b"x-stream-timestamp:1795000000123\ndestination:/topic/a\\cb\nx:1\nx:2\ncontent-length:4\n\na\0\n\0\0"
    )
    assert isinstance(events, Delivered)
    assert (events.subscription, events.message_id, events.ack, events.offset) == (
        "1",
        "b.1-5",
        "b.1-5",
        7,
    )
    assert events.stored_ms == 1795000000123
    assert events.body == b"a\0\n\0"
    assert events.headers() == {
        "subscription": "1",
        "message-id": "b.1-5",
        "ack": "b.1-5",
        "x-stream-offset": "7",
        "x-stream-timestamp": "1795000000123",
        "destination": "/topic/a:b",
        "x": "1",
        "content-length": "4",
    }
    assert events.head.command == "MESSAGE"


@pytest.mark.parametrize(("version", "ack"), [("1.0", "m-1"), ("1.1", "m-1"), ("1.2", "")], ids=str)
def test_before_1_2_a_message_is_acknowledged_by_its_id(version: str, ack: str) -> None:
    data = b"MESSAGE\nsubscription:1\nmessage-id:m-1\ndestination:a\n\n\0"
    for session in (opened(version), slow(opened(version))):
        (events,) = session.receive_data(data)
        assert isinstance(events, Delivered)
        assert events.ack == ack


def test_a_receipt_has_the_headers_of_its_outcome() -> None:
    session = opened()
    events = session.receive_data(
        b"RECEIPT\nreceipt-id:7\nstored:journal\nmatched:2\n\n\0\nRECEIPT\nreceipt-id:a\\cb\n\n\0"
    )
    assert show(events) == [("7", (("stored", "journal"), ("matched", "2"))), ("a:b", ())]


@pytest.mark.parametrize(
    "data",
    [
        b"RECEIPT\nreceipt-id:1\ncontent-length:3\n\nabc\0",
        b"RECEIPT\nreceipt-id:1\ncontent-length:3\n\n\0bc\0",
        b"RECEIPT\nreceipt-id:1\na:1\r\n\n\0",
        b"RECEIPT\nreceipt-id:1\nack:2\n\n\0",
        b"MESSAGE\nsubscription:s\nmessage-id:m\nx:1\r\nack:2\n\n\0",
        b"MESSAGE\nsubscription:s\nmessage-id:m\nx:1\nack:2\nx-stream-offset:5\n\n\0",
        b"MESSAGE\nsubscription:s\nmessage-id:m\nx:1\nx-stream-timestamp:5\n\n\0",
    ],
)
def test_unusual_frames_are_left_to_the_decoder(data: bytes) -> None:
    fast, filtered = opened(), slow(opened())
    events = show(filtered.receive_data(data * 2))
    assert len(events) == 2
    assert show(fast.receive_data(data * 2)) == events
    assert fast.error is filtered.error is None


@st.composite
def conversations(draw: st.DrawFn) -> bytes:
    """Bytes that our broker or another one may send, sometimes malformed."""
    tails = st.sampled_from(
        [
            b"destination:/topic/a\n",
            b"destination:/topic/a\ncontent-length:5\n",
            b"destination:/topic/a\ncontent-length:0\n",
            b"destination:/topic/a\nx:\xc3\xa9\\n\\c\ncontent-length:2\n",
            b"content-length:2\ncontent-length:3\nx:1\nx:2\n",
            b"x:1\r\ncontent-length:2\n",
            b"message-id:other\nreceipt:1\n",
            b"x-stream-end:true\nx-stream-offset:5\nack:z\n",
            b"x:1\nx-stream-timestamp:8\n",
        ]
    )
    bad_tails = st.sampled_from(
        [b"content-length:x\n", b"nocolon\n", b"x:\xff\n", b"x:\\q\n", b"\r\n", b"a:1\0", b":x\n"]
    )
    bodies = st.sampled_from([b"", b"hello", b"a\0", b"\n\n", b"12", b"x" * 5000])
    frames = []
    for number in range(draw(st.integers(1, 6))):
        tail = draw(bad_tails if draw(st.integers(0, 15)) == 0 else tails)
        body = draw(bodies)
        kind = draw(st.integers(0, 8))
        lead = b"ack:k-%d\n" % number if draw(st.booleans()) else b""
        offset = b"x-stream-offset:%d\n" % number if draw(st.booleans()) else b""
        offset += b"x-stream-timestamp:%d\n" % (number + 9) if draw(st.booleans()) else b""
        middle = b"MESSAGE\nsubscription:s\n%bmessage-id:m-%d\n%b%b\n"
        if kind == 0:
            frames.append(b"RECEIPT\nreceipt-id:%d\n%b\n\0" % (number, draw(tails)))
        elif kind == 1:
            frames.append(b"MESSAGE\ndestination:d\nmessage-id:1\nsubscription:s\n\n%b\0" % body)
        elif kind == 2:
            frames.append(b"MESSAGE\r\nsubscription:s\r\nmessage-id:9\r\n\r\nbody\0\r\n")
        elif kind == 3 and draw(st.booleans()):
            frames.append(b"ERROR\nmessage:no\n\nbecause\0")
        else:
            reported = b"content-length:%d\n" % len(body) if draw(st.booleans()) else b""
            frames.append(middle % (lead, number, offset, tail + reported) + body + b"\0")
        frames.append(draw(st.sampled_from([b"", b"\n", b"\n\n", b"\r\n"])))
    return b"".join(frames)


@given(conversations(), st.lists(st.integers(1, 4000), max_size=8), st.sampled_from(["1.1", "1.2"]))
def test_the_fast_way_and_the_decoder_understand_the_same(
    data: bytes, cuts: list[int], version: str
) -> None:
    fast, filtered = opened(version), slow(opened(version))
    expected = filtered.receive_data(data)
    got: list[SessionEvent] = []
    at = 0
    for cut in cuts:
        got += fast.receive_data(data[at : at + cut])
        at += cut
    got += fast.receive_data(data[at:])
    assert show(got) == show(expected)
    assert (fast.error is None) == (filtered.error is None)
    if fast.error is not None and filtered.error is not None:
        assert fast.error.code == filtered.error.code


@given(st.lists(st.binary(max_size=20), max_size=5), st.integers(1, 7))
def test_bytes_one_by_one(bodies: list[bytes], step: int) -> None:
    data = b"".join(
        plain_message(number, b"content-length:%d\n" % len(body), body)
        for number, body in enumerate(bodies)
    )
    session = opened()
    got: list[SessionEvent] = []
    for at in range(0, len(data), step):
        got += session.receive_data(data[at : at + step])
    assert [each.body for each in got if isinstance(each, Delivered)] == bodies


def test_a_large_message_does_not_slow_the_small_ones_after_it() -> None:
    session = opened()
    large = plain_message(1, b"content-length:9000\n", b"x" * 9000)
    small = plain_message(2, b"content-length:1\n", b"y")
    assert session.receive_data(large[:5000]) == []
    assert session.decoder.buffered_bytes > 4096
    assert len(session.receive_data(large[5000:] + small + small[:-3])) == 2
    assert session.decoder.buffered_bytes == 0  # the rest waits where the fast way begins
    assert len(session.receive_data(small[-3:])) == 1


def test_limits_hold_on_the_fast_way_too() -> None:
    limits = FrameLimits(max_body_bytes=4, max_headers=6, max_header_block_bytes=512)
    for tail, body, code in (
        (b"content-length:5\n", b"12345", "body-too-large"),
        (b"", b"12345", "body-too-large"),
        (b"a:1\nb:1\nc:1\nd:1\ne:1\n", b"", "too-many-headers"),
        (b"a:%b\n" % (b"x" * 600), b"", "headers-too-large"),
    ):
        session = opened(limits=limits)
        assert session.receive_data(plain_message(1, tail, body)) == []
        assert session.error is not None
        assert session.error.code == code
        assert session.receive_data(plain_message(1, b"", b"")) == []
    for size, count, codes in ((400, 2, []), (600, 0, ["headers-too-large"])):
        session = opened(limits=limits)
        receipt = b"RECEIPT\nreceipt-id:1\na:%b\n\n\0" % (b"x" * size)
        assert len(session.receive_data(receipt * 2)) == count
        assert [error.code for error in (session.error,) if error is not None] == codes
    narrow = opened(limits=FrameLimits(max_header_line_bytes=64))
    assert len(narrow.receive_data(plain_message(1, b"", b"ok"))) == 1


def test_connected_negotiates() -> None:
    session = ClientSession(options=ProtocolOptions(5000, 7000))
    (events,) = session.receive_data(
        b"CONNECTED\nversion:1.1\nheart-beat:3000,6000\na:b\\c\n\n\0\n"
    )
    assert isinstance(events, SessionOpened)
    assert events.version is STOMP_1_1
    assert (events.heartbeats.send_every_s, events.heartbeats.expect_every_s) == (6.0, 7.0)
    assert ("a", "b\\c") in events.headers  # CONNECTED is never escaped
    assert session.frames.version is STOMP_1_1


def test_frames_after_connected_are_read_by_its_version() -> None:
    session = ClientSession()
    events = session.receive_data(
        b"CONNECTED\nversion:1.2\n\n\0MESSAGE\nsubscription:1\nmessage-id:1\nx:a\\cb\n\n\0ERROR\n\n\0"
    )
    assert [type(each) for each in events] == [SessionOpened, Delivered, Failed]
    assert isinstance(events[1], Delivered)
    assert events[1].head.get("x") == "a:b"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"CONNECTED\nversion:2.0\n\n\0", "unsupported-version"),
        (b"CONNECTED\nversion:1.1\n\n\0", "unsupported-version"),
        (b"CONNECTED\n\n\0", "unsupported-version"),
        (b"CONNECTED\nversion:1.2\nheart-beat:a\n\n\0", "invalid-heart-beat"),
        (b"MESSAGE\ndestination:a\n\n\0", "unknown-command"),
        (b"CONNECTED\nversion:1.2\n\n\0CONNECTED\nversion:1.2\n\n\0", "unknown-command"),
        (b"CONNECTED\nversion:1.2\n\n\0SEND\ndestination:a\n\n\0", "unknown-command"),
        (b"CONNECTED\nversion:1.2\n\n\0ACK\nid:1\n\n\0", "unknown-command"),
        (b"HTTP/1.1 400 Bad Request and more than a command has\r\n", "invalid-command"),
    ],
)
def test_a_broker_that_breaks_the_rules(data: bytes, code: str) -> None:
    session = ClientSession(versions=("1.2",))
    session.receive_data(data)
    assert isinstance(session.error, FrameError | ProtocolError)
    assert session.error.code == code
    assert session.receive_data(b"MESSAGE\n\n\0") == []


def test_everything_after_an_error_is_ignored() -> None:
    session = opened()
    data = b"ERROR\nmessage:a\n\n\0ERROR\nmessage:b\n\n\0garbage without end" * 2
    events = session.receive_data(data)
    assert [type(each) for each in events] == [Failed]
    assert isinstance(events[0], Failed)
    assert (events[0].get("message"), events[0].get("code")) == ("a", None)
    assert session.error is None


def test_invalid_data_after_an_error_are_ignored() -> None:
    for session in (opened(), slow(opened())):
        events = session.receive_data(b"ERROR\nmessage:a\n\n\0MESSAGE\nno colon\n\n\0")
        assert [type(each) for each in events] == [Failed]
        assert session.decoder.error is not None
        assert session.error is None
        assert session.state is State.CLOSED


def test_a_message_of_1_0_without_subscription() -> None:
    session = ClientSession()
    events = session.receive_data(
        b"CONNECTED\n\n\0"
        b"MESSAGE\ndestination: /topic/a\nx-stream-offset:99999999999999999999\n\nhi\0"
    )
    assert isinstance(events[1], Delivered)
    assert (events[1].subscription, events[1].message_id, events[1].offset) == (None, "", None)
    assert events[1].headers()["destination"] == "/topic/a"


# --- what is said -----------------------------------------------------------------------------


def read_back(data: bytes, version: Version) -> tuple[str, dict[str, str], bytes, bytes | None]:
    decoder = FrameDecoder(FrameLimits(), HeadCache(), version.rules)
    (run,) = decoder.receive_data(data)
    assert decoder.error is None
    assert isinstance(run, FrameRun)
    (frame,) = run.frames()
    return frame.command, dict(frame.headers), frame.body, frame.receipt


@given(NAMES, NAMES, TEXTS, st.binary(max_size=30), st.sampled_from(VERSIONS[1:]))
def test_send_is_read_as_it_was_meant(
    destination: str, name: str, text: str, body: bytes, version: Version
) -> None:
    if version is STOMP_1_1:
        text = text.replace("\r", "")
    frames = ClientFrames(version)
    own = name in ("destination", "content-length", "receipt", "transaction")
    headers = () if own else ((name, text),)
    for _ in range(2):  # the second from what is remembered
        data = frames.send(destination, body, headers, receipt="5", transaction="t")
        command, read, got, receipt = read_back(data, version)
        assert (command, got, receipt) == ("SEND", body, b"5")
        expected = {"destination": destination, "transaction": "t", **dict(headers)}
        assert read == {**expected, "content-length": str(len(body))}


def test_a_header_that_cannot_be_sent_is_the_callers_fault() -> None:
    frames = ClientFrames(STOMP_1_2)
    with pytest.raises(OptionError, match="needs a destination"):
        frames.send("", b"")
    with pytest.raises(OptionError, match="'x' contains"):
        frames.send("a", b"", (("x", "a\0"),))
    for name in ("receipt", "content-length", "message-id"):
        with pytest.raises(OptionError, match=f"{name} is written by the client"):
            frames.send("a", b"", ((name, "1"),))
    old = ClientFrames(STOMP_1_0)
    with pytest.raises(OptionError, match=r"STOMP 1\.0 has no escape"):
        old.send("a", b"", (("x", "a\nb"),))
    assert old.send("a", b"", (("x", ""),)) == b"SEND\ndestination:a\ncontent-length:0\n\n\0"
    assert frames.send("a", b"", (("x", ""),)).startswith(b"SEND\ndestination:a\nx:\n")


def test_destinations_are_remembered_and_forgotten() -> None:
    frames = ClientFrames(STOMP_1_2)
    for number in range(3000):
        assert b"destination:/q/%d\n" % number in frames.send(f"/q/{number}", b"")
    assert len(frames._lines) <= 1024


def test_a_send_asks_for_its_receipt_and_names_its_transaction() -> None:
    frames = ClientFrames(STOMP_1_2)
    assert frames.send("a", b"b\0", (("x", "y"),), receipt="r", transaction="t") == (
        b"SEND\ndestination:a\nx:y\ntransaction:t\nreceipt:r\ncontent-length:2\n\nb\0\0"
    )
    assert frames.send("a", b"") == b"SEND\ndestination:a\ncontent-length:0\n\n\0"


def test_acks_of_each_version() -> None:
    old, middle, new = map(ClientFrames, VERSIONS)
    result = new.acknowledge("m:1", "s", receipt="3")
    assert result == b"ACK\nid:m\\c1\nreceipt:3\n\n\0"
    result = middle.acknowledge("m", "s", negative=True, transaction="t")
    assert result == b"NACK\nmessage-id:m\nsubscription:s\ntransaction:t\n\n\0"
    assert old.acknowledge("m", None) == b"ACK\nmessage-id:m\n\n\0"
    result = new.acknowledge("m", "s", negative=True, requeue=False)
    assert result == b"NACK\nid:m\nrequeue:false\n\n\0"
    with pytest.raises(OptionError, match="no NACK"):
        old.acknowledge("m", None, negative=True)


def test_frames_of_a_client_are_encoded_with_escaped_headers() -> None:
    frames = ClientFrames(STOMP_1_2)
    assert frames.subscribe((("id", "1"), ("destination", "a:b"))) == (
        b"SUBSCRIBE\nid:1\ndestination:a\\cb\n\n\0"
    )
    assert frames.unsubscribe((("id", "1"),)) == b"UNSUBSCRIBE\nid:1\n\n\0"
    assert frames.transact("BEGIN", "t") == b"BEGIN\ntransaction:t\n\n\0\n"
    assert frames.transact("COMMIT", "t", "9") == b"COMMIT\ntransaction:t\nreceipt:9\n\n\0\n"
    assert frames.disconnect("9") == b"DISCONNECT\nreceipt:9\n\n\0\n"


def test_connect_offers_and_hides() -> None:
    session = ClientSession(options=ProtocolOptions(1000, 0), versions=("1.1", "1.2"))
    data = session.connect((("host", "h"), ("passcode", "a:b\\")))
    assert data == (
        b"CONNECT\naccept-version:1.1,1.2\nheart-beat:1000,0\nhost:h\npasscode:a:b\\\n\n\0\n"
    )
    with pytest.raises(OptionError) as caught:
        session.connect((("passcode", "secret\n"),))
    assert "passcode" in str(caught.value)
    assert "secret" not in str(caught.value)
