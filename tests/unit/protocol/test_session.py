"""One session: permitted commands of each state, errors, and the meaning of a stream of bytes."""

from collections.abc import Sequence

import attrs
import pytest
from _oracle.strategies import ERROR_CODES, chunkings, cuts, split, streams
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.core import head_bytes
from tests.support.limits import HEAD_CODES, RECEIPT, Limit, id_of, limits_at
from trio_stomp.base import CloseReason, MemoryBudget, Quota, RemoteError
from trio_stomp.frames import Frame, FrameLimits, FrameRun, encode_receipt
from trio_stomp.protocol import (
    NO_HEARTBEATS,
    STOMP_1_0,
    STOMP_1_1,
    STOMP_1_2,
    Acked,
    Codecs,
    Committed,
    Disconnected,
    Event,
    Opened,
    ProtocolOptions,
    Queried,
    Received,
    Refused,
    ServerSession,
    State,
    Subscribed,
    Unsubscribed,
    Version,
)
from trio_stomp.protocol._states import COMMANDS, TABLE, Action

ALL = (STOMP_1_0, STOMP_1_1, STOMP_1_2)
NEW = (STOMP_1_1, STOMP_1_2)
every_version = pytest.mark.parametrize("version", ALL, ids=lambda version: version.name)
new_versions = pytest.mark.parametrize("version", NEW, ids=lambda version: version.name)


def make_codecs(options: ProtocolOptions | None = None) -> Codecs:
    return Codecs(FrameLimits(), options or ProtocolOptions())


def make_session(*, may_ask: bool = False, codecs: Codecs | None = None) -> ServerSession:
    return ServerSession(codecs or make_codecs(), may_ask=may_ask)


def connect(version: Version, *lines: bytes) -> bytes:
    head = [b"CONNECT", b"accept-version:" + version.name.encode(), *lines, b"", b""]
    return b"\n".join(head) + b"\0"


def open_session(
    version: Version = STOMP_1_2, *, may_ask: bool = False, codecs: Codecs | None = None
) -> ServerSession:
    session = make_session(may_ask=may_ask, codecs=codecs)
    (opened,) = session.receive_data(connect(version))
    assert isinstance(opened, Opened)
    return session


def plain(events: Sequence[Event]) -> list[object]:
    """Events as values: runs frame by frame, errors by code and receipt, receipts one by one."""
    found: list[object] = []
    for event in events:
        if isinstance(event, FrameRun):
            found += event.frames()
        elif isinstance(event, Acked):
            asked = dict(event.receipts)
            lead = (event.header, event.subscription, event.negative, event.requeue)
            found += [(*lead, name, asked.get(n)) for n, name in enumerate(event.ids, 1)]
        elif isinstance(event, Received):
            found += [("received", name) for _, name in event.receipts]
        elif isinstance(event, Committed):
            found.append(("committed", tuple(plain(event.actions)), event.receipt))
        elif isinstance(event, Refused):
            found.append((event.error.code, event.error.receipt_id))
        else:
            found.append(event)
    return found


def refusal(session: ServerSession, data: bytes) -> RemoteError:
    """Return the only error in answer to ``data``. Nothing follows it."""
    *before, event = session.receive_data(data)
    assert before == []
    assert isinstance(event, Refused)
    assert session.state is State.CLOSED
    assert session.receive_data(b"SEND\ndestination:/a\n\n\0DISCONNECT\n\n\0") == []
    return event.error


# The table.


@pytest.mark.covers("C01", "C12")
def test_the_table_is_total() -> None:
    states = {State.OPENING, State.OPEN}
    assert set(TABLE) == {(state, command) for state in states for command in COMMANDS}
    assert len(set(COMMANDS)) == len(COMMANDS)
    openers = {command for command in COMMANDS if TABLE[State.OPENING, command] is Action.OPEN}
    assert openers == {"CONNECT", "STOMP"}
    assert all(TABLE[State.OPEN, command] is Action.REFUSE_SECOND_CONNECT for command in openers)
    assert {*TABLE.values(), Action.REFUSE_UNKNOWN} == set(Action), "the next test performs each"


@pytest.mark.parametrize("command", [*COMMANDS, "FOO", "MESSAGE", "CONNECTED"])
@pytest.mark.parametrize("state", [State.OPENING, State.OPEN], ids=lambda state: state.name)
def test_each_command_in_each_state_is_an_event_or_a_refusal(state: State, command: str) -> None:
    session = open_session() if state is State.OPEN else make_session()
    if state is State.OPEN and command in ("COMMIT", "ABORT"):
        session.receive_data(b"BEGIN\ntransaction:t\n\n\0")
    lines = b"\nid:1\ndestination:/a\n"
    if command in ("BEGIN", "COMMIT", "ABORT"):
        lines += b"transaction:t\n"
    events = session.receive_data(command.encode() + lines + b"\n\0")
    assert len(events) == 1
    refused = isinstance(events[0], Refused)
    assert (session.state is State.CLOSED) is (refused or isinstance(events[0], Disconnected))
    action = TABLE.get((state, command), Action.REFUSE_UNKNOWN)
    assert refused is (action.name.startswith("REFUSE") or action is Action.ASK)


@pytest.mark.covers("C01")
@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"CONNECT", "STOMP", "DIAG"}))
def test_frames_before_connect_are_refused(command: str) -> None:
    error = refusal(make_session(), command.encode() + b"\nreceipt:r\ndestination:/a\n\n\0")
    assert (error.code, error.receipt_id) == ("not-connected", b"r")
    assert command in error.message
    assert "send CONNECT" in error.message


@pytest.mark.covers("C12")
@every_version
@pytest.mark.parametrize("command", [b"CONNECT", b"STOMP"])
def test_a_second_connect_is_refused(version: Version, command: bytes) -> None:
    error = refusal(open_session(version), command + b"\naccept-version:1.2\nreceipt:r\n\n\0")
    assert (error.code, error.receipt_id) == ("already-connected", b"r")
    assert "once" in error.message


@pytest.mark.covers("F07", "F42")
@every_version
@pytest.mark.parametrize(
    "command", ["FOO", "send", "Send", "SEND ", " SEND", "SEN", "SENDX", "MESSAGE", "RECEIPT"]
)
@pytest.mark.parametrize("body", [b"", b"a body"])
def test_an_unknown_command_is_refused(version: Version, command: str, body: bytes) -> None:
    data = b"%b\ndestination:/a\nreceipt:r\n\n%b\0" % (command.encode(), body)
    error = refusal(open_session(version), data)
    assert (error.code, error.receipt_id) == ("unknown-command", b"r")
    assert repr(command) in error.message
    assert "capitals" in error.message
    assert refusal(make_session(), data).code == "unknown-command"


# CONNECT.


@pytest.mark.covers("C02")
@pytest.mark.parametrize("command", [b"CONNECT", b"STOMP"])
@pytest.mark.parametrize("eol", [b"\n", b"\r\n"])
def test_connect_and_stomp_open_a_session(command: bytes, eol: bytes) -> None:
    lines = [command, b"accept-version:1.1", b"host:h", b"login:me", b"", b"\0"]
    for chunks in chunkings(eol.join(lines)):
        session = make_session()
        events = [event for chunk in chunks for event in session.receive_data(chunk)]
        headers = (("accept-version", "1.1"), ("host", "h"), ("login", "me"))
        assert events == [Opened(STOMP_1_1, NO_HEARTBEATS, headers)]
        assert (session.state, session.version) == (State.OPEN, STOMP_1_1)


@pytest.mark.covers("C03", "C07", "H02")
def test_a_bare_connect_speaks_1_0() -> None:
    session = make_session()
    assert session.receive_data(b"CONNECT\n\n\0") == [Opened(STOMP_1_0, NO_HEARTBEATS, ())]
    assert session.version is STOMP_1_0


@pytest.mark.covers("C04")
@every_version
def test_the_session_continues_with_the_rules_of_its_version(version: Version) -> None:
    session = open_session(version)
    assert session.version is version
    assert session.decoder.rules is version.rules


@pytest.mark.parametrize("lines", [b"accept-version:3.0", b"accept-version:"])
def test_no_common_version_is_refused(lines: bytes) -> None:
    session = make_session()
    error = refusal(session, b"CONNECT\n" + lines + b"\nreceipt:r\npasscode:secret\n\n\0")
    assert (error.code, error.receipt_id) == ("unsupported-version", b"r")
    assert error.excerpt == b"CONNECT\n" + lines + b"\npasscode:***"


@pytest.mark.covers("C07")
@pytest.mark.parametrize("is_required", [False, True])
@every_version
def test_host_is_needed_only_on_request_and_from_1_1_on(
    version: Version, is_required: bool
) -> None:
    codecs = make_codecs(ProtocolOptions(require_host=is_required))
    (event,) = make_session(codecs=codecs).receive_data(connect(version))
    assert isinstance(event, Refused) is (is_required and version in NEW)
    if isinstance(event, Refused):
        assert event.error.code == "header-missing"
        assert "host" in event.error.message
    (event,) = make_session(codecs=codecs).receive_data(connect(version, b"host:h"))
    assert isinstance(event, Opened)


@pytest.mark.covers("C13")
@every_version
def test_a_receipt_on_connect_is_for_the_dialect_to_answer(version: Version) -> None:
    (event,) = make_session().receive_data(connect(version, b"receipt:r"))
    assert isinstance(event, Opened)
    assert b"r" not in attrs.asdict(event, recurse=False).values()
    assert dict(event.headers)["receipt"] == "r"


@pytest.mark.covers("C16", "F10", "F11", "F22")
@every_version
def test_the_headers_of_connect_are_not_unescaped_and_trimmed_in_1_0_only(version: Version) -> None:
    lines = (b"login: \tme ", b"host: h", b"passcode:a\\b:c\\n\\c\\")
    (event,) = make_session().receive_data(connect(version, *lines))
    assert isinstance(event, Opened)
    expected = ("me ", "h") if version is STOMP_1_0 else (" \tme ", " h")
    values = [value for _, value in event.headers]
    assert values == [version.name, *expected, "a\\b:c\\n\\c\\"]


@pytest.mark.covers("F26")
@every_version
@pytest.mark.parametrize("body", [b"\n\n", b"body"], ids=["line ends", "body"])
def test_a_body_of_connect_other_than_line_ends_is_refused_from_1_1_on(
    version: Version, body: bytes
) -> None:
    (event,) = make_session().receive_data(connect(version).removesuffix(b"\0") + body + b"\0")
    if version is STOMP_1_0 or body == b"\n\n":
        assert isinstance(event, Opened)
    else:
        assert plain([event]) == [("body-not-allowed", None)]


@pytest.mark.covers("H01", "H03", "H04")
@new_versions
def test_heartbeats_are_negotiated(version: Version) -> None:
    session = make_session()
    (event,) = session.receive_data(connect(version, b"heart-beat:5000,3000"))
    assert isinstance(event, Opened)
    assert event.heartbeats == session.heartbeats
    plan = session.heartbeats
    assert (plan.send_every_s, plan.expect_every_s, plan.dead_after_s) == (3.0, 5.0, 10.0)
    error = refusal(make_session(), connect(version, b"heart-beat:1", b"receipt:r"))
    assert (error.code, error.receipt_id) == ("invalid-heart-beat", b"r")


@pytest.mark.covers("H10")
@pytest.mark.parametrize("header", [b"heart-beat:1000,1000", b"heart-beat:nonsense"])
def test_a_1_0_session_has_no_heartbeats(header: bytes) -> None:
    session = make_session()
    (event,) = session.receive_data(connect(STOMP_1_0, header))
    assert isinstance(event, Opened)
    assert event.heartbeats == session.heartbeats == NO_HEARTBEATS


@every_version
def test_a_node_that_relays_a_client_gets_the_heartbeats_that_it_asks_for(version: Version) -> None:
    session = make_session(codecs=make_codecs(ProtocolOptions(heartbeat_send_ms=60_000)))
    session.is_relayed = True
    (event,) = session.receive_data(connect(version, b"heart-beat:5000,5000"))
    assert isinstance(event, Opened)
    assert (event.heartbeats.send_every_s, event.heartbeats.expect_every_s) == (5.0, 5.0)


def test_a_refused_connect_leaves_no_half_open_session() -> None:
    session = make_session()
    refusal(session, connect(STOMP_1_2, b"heart-beat:x"))
    assert (session.version, session.heartbeats) == (STOMP_1_0, NO_HEARTBEATS)


# Frames after CONNECT.


@pytest.mark.covers("F22", "R11")
@pytest.mark.parametrize(
    ("version", "text", "receipt"),
    [(STOMP_1_0, "\\c", b"\\c"), (STOMP_1_1, ":", b"\\c"), (STOMP_1_2, ":", b"\\c")],
)
def test_frames_pipelined_after_connect_are_read_by_its_version(
    version: Version, text: str, receipt: bytes
) -> None:
    data = connect(version) + (
        b"\nSUBSCRIBE\nid:s\\c\ndestination:/a\nreceipt:\\c\n\n\0"
        b"\nSEND\ndestination:/b\nx:\\c\n\nhi\0\n"
        b"DISCONNECT\nreceipt:9\n\n\0"
        b"SEND\ndestination:/late\n\n\0:\0"
    )
    for chunks in chunkings(data):
        session = make_session()
        events = [event for chunk in chunks for event in session.receive_data(chunk)]
        opened, subscribed, run, left = events
        assert isinstance(opened, Opened)
        headers = (("id", "s" + text), ("destination", "/a"))
        assert subscribed == Subscribed("s" + text, "/a", "auto", headers, receipt)
        assert isinstance(run, FrameRun)
        assert (run.head.get("x"), run.bodies) == (text, [b"hi"])
        assert left == Disconnected(b"9")
        assert session.state is State.CLOSED


def test_frames_after_a_crlf_connect_are_decoded() -> None:
    data = b"CONNECT\r\naccept-version:1.2\r\n\r\n\0\r\nSEND\r\ndestination:/a\r\n\r\nx\0\r\n"
    for chunks in chunkings(data):
        session = make_session()
        events = [event for chunk in chunks for event in session.receive_data(chunk)]
        assert [type(event) for event in events] == [Opened, FrameRun]


def test_sessions_of_different_versions_share_no_blocks() -> None:
    codecs = make_codecs()
    frame = b"SEND\ndestination:/a\nx: \\c\n\n\0"
    for _ in range(2):
        for version, text in ((STOMP_1_0, "\\c"), (STOMP_1_1, " :"), (STOMP_1_2, " :")):
            (run,) = open_session(version, codecs=codecs).receive_data(frame)
            assert isinstance(run, FrameRun)
            assert run.head.get("x") == text
    # Three CONNECTs and three SENDs.
    assert codecs.cached_heads == 6


def test_a_header_block_is_checked_again_after_connect() -> None:
    codecs = make_codecs()
    frame = b"SEND\ndestination:/a\nx:\\t\n\n\0"
    assert refusal(make_session(codecs=codecs), frame).code == "not-connected"
    assert refusal(open_session(codecs=codecs), frame).code == "invalid-escape"
    assert len(open_session(STOMP_1_0, codecs=codecs).receive_data(frame)) == 1


@pytest.mark.covers("S01")
@every_version
@pytest.mark.parametrize("line", [b"", b"Destination:/a\n", b"destination:\n"])
def test_send_needs_a_destination(version: Version, line: bytes) -> None:
    data = b"SEND\nfoo:bar\n" + line + b"receipt:r\n\nbody\0"
    error = refusal(open_session(version), data)
    assert (error.code, error.receipt_id) == ("header-missing", b"r")
    assert error.message == f"SEND of STOMP {version.name} needs the header destination"
    assert error.excerpt == b"SEND\nfoo:bar" + (b"\n" + line).rstrip(b"\n")


@pytest.mark.covers("S05", "S06", "S14", "T01")
@every_version
@pytest.mark.parametrize(
    ("command", "line", "lacking"),
    [
        (b"SUBSCRIBE", b"id:1\n", "destination"),
        (b"SUBSCRIBE", b"id:1\ndestination:\n", "destination"),
        (b"SUBSCRIBE", b"destination:/a\n", "id"),
        (b"UNSUBSCRIBE", b"destination:/a\n", "id"),
        *(
            (command, line, "transaction")
            for command in (b"BEGIN", b"COMMIT", b"ABORT")
            for line in (b"", b"transaction:\n")
        ),
    ],
)
def test_missing_header_is_named(
    version: Version, command: bytes, line: bytes, lacking: str
) -> None:
    data = command + b"\n" + line + b"receipt:r\n\n\0"
    if version is STOMP_1_0 and lacking == "id":
        (event,) = open_session(version).receive_data(data)
        headers = (("destination", "/a"),)
        asked = {
            b"SUBSCRIBE": Subscribed(None, "/a", "auto", headers, b"r"),
            b"UNSUBSCRIBE": Unsubscribed(None, "/a", b"r", headers),
        }
        assert event == asked[command]
        return
    error = refusal(open_session(version), data)
    assert (error.code, error.receipt_id) == ("header-missing", b"r")
    text = f"{command.decode()} of STOMP {version.name} needs the header {lacking}"
    assert error.message == text


@pytest.mark.covers("S09")
@every_version
@pytest.mark.parametrize("mode", ["auto", "client", "client-individual", None])
def test_ack_mode_is_that_of_the_header_or_auto(version: Version, mode: str | None) -> None:
    line = b"" if mode is None else b"ack:%b\n" % mode.encode()
    data = b"SUBSCRIBE\nid:1\ndestination:/a\n" + line + b"\n\0"
    (event,) = open_session(version).receive_data(data)
    assert isinstance(event, Subscribed)
    assert event.ack == (mode or "auto")


@pytest.mark.covers("S09")
@every_version
@pytest.mark.parametrize("mode", ["Auto", "none", "client-", "auto ", "x" * 5000])
def test_other_ack_modes_are_refused(version: Version, mode: str) -> None:
    data = b"SUBSCRIBE\nid:1\ndestination:/a\nreceipt:r\nack:%b\n\n\0" % mode.encode()
    error = refusal(open_session(version), data)
    assert (error.code, error.receipt_id) == ("invalid-ack-mode", b"r")
    assert f"ack:{mode[:40]} is not one of auto, client, client-individual" == error.message


def test_unsubscribe_in_1_0_needs_one_of_two() -> None:
    for line, identity, destination, headers in (
        (b"id:1\n", "1", None, (("id", "1"),)),
        (b"destination:/a\n", None, "/a", (("destination", "/a"),)),
        (b"destination:/a\nid:1\n", "1", "/a", (("destination", "/a"), ("id", "1"))),
    ):
        (event,) = open_session(STOMP_1_0).receive_data(b"UNSUBSCRIBE\n" + line + b"\n\0")
        assert event == Unsubscribed(identity, destination, None, headers)
    for line in (b"", b"destination:\n"):
        error = refusal(open_session(STOMP_1_0), b"UNSUBSCRIBE\n" + line + b"\n\0")
        assert error.code == "header-missing"
        assert "id or destination" in error.message


def test_a_1_0_subscribe_may_have_a_body_which_is_ignored() -> None:
    events = open_session(STOMP_1_0).receive_data(
        b"SUBSCRIBE\ndestination:/a\ncontent-length:9\n\nbody\0DISCONNECT\n\n\0"
    )
    assert [type(event) for event in events] == [Subscribed, Disconnected]


@pytest.mark.covers("R01")
@every_version
@pytest.mark.parametrize("command", [b"SEND", b"SUBSCRIBE", b"UNSUBSCRIBE", b"DISCONNECT"])
def test_each_event_tells_the_receipt_asked_for(version: Version, command: bytes) -> None:
    asked = b"a\\cb:c"
    data = command + b"\nid:1\ndestination:/a\nreceipt:" + asked + b"\n\n\0"
    (event,) = open_session(version).receive_data(data)
    if isinstance(event, FrameRun):
        ((place, receipt),) = event.receipts
        assert place == 1
    else:
        assert isinstance(event, Subscribed | Unsubscribed | Disconnected)
        assert event.receipt is not None
        receipt = event.receipt
    # The text is the same after unescaping; 1.0 has no escapes.
    expected = asked if version is STOMP_1_0 else b"a\\cb\\cc"
    assert encode_receipt(receipt) == b"RECEIPT\nreceipt-id:" + expected + b"\n\n\0\n"


# ACK and NACK.


@pytest.mark.covers("A06", "A07", "A08")
@every_version
def test_the_headers_of_an_ack(version: Version) -> None:
    frame = b"ACK\nmessage-id:m\nsubscription:s\nid:i\nreceipt:r\n\n\0"
    (event,) = open_session(version).receive_data(frame)
    expected = {
        "1.0": Acked((b"m",), "message-id", None, False, True, ((1, b"r"),)),
        "1.1": Acked((b"m",), "message-id", "s", False, True, ((1, b"r"),)),
        "1.2": Acked((b"i",), "id", None, False, True, ((1, b"r"),)),
    }
    assert event == expected[version.name]


@pytest.mark.covers("A06", "A07", "A08", "A12", "R06")
@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize(
    ("version", "lines", "lacking", "hint"),
    [
        (STOMP_1_0, b"subscription:s\nid:i\n", "message-id", "MESSAGE's message-id header"),
        (STOMP_1_1, b"subscription:s\nid:i\n", "message-id", "MESSAGE's message-id header"),
        (STOMP_1_2, b"subscription:s\n", "id", "MESSAGE's ack header"),
    ],
    ids=["1.0", "1.1", "1.2"],
)
def test_missing_header_of_an_ack_is_named(
    command: str, version: Version, lines: bytes, lacking: str, hint: str
) -> None:
    error = refusal(open_session(version), command.encode() + b"\n" + lines + b"receipt:r\n\n\0")
    if command == "NACK" and version is STOMP_1_0:
        assert (error.code, error.receipt_id) == ("unknown-command", b"r")
        assert "1.0 has no NACK" in error.message
        return
    assert (error.code, error.receipt_id) == ("header-missing", b"r")
    assert f"{command} of STOMP {version.name} needs the header {lacking}" in error.message
    assert hint in error.message


@new_versions
@pytest.mark.parametrize(
    ("line", "requeue"),
    [
        (b"", True),
        (b"requeue:true\n", True),
        (b"requeue:false\n", False),
        (b"requeue:False\n", False),
        (b"requeue:\n", True),
        (b"requeue:0\n", True),
    ],
)
def test_a_nack_says_whether_to_deliver_again(version: Version, line: bytes, requeue: bool) -> None:
    frame = b"NACK\nid:m\nmessage-id:m\nsubscription:s\n" + line + b"\n\0"
    (event,) = open_session(version).receive_data(frame)
    assert isinstance(event, Acked)
    assert (event.negative, event.requeue, event.ids) == (True, requeue, (b"m",))


@pytest.mark.covers("F18", "F23")
@every_version
def test_an_id_is_unescaped_as_any_header(version: Version) -> None:
    frame = b"ACK\nid:a\\cb\nmessage-id:a\\cb\nsubscription:s\n\n\0"
    (event,) = open_session(version).receive_data(frame)
    assert isinstance(event, Acked)
    assert event.ids == ((b"a\\cb",) if version is STOMP_1_0 else (b"a:b",))


def test_plain_acks_are_one_event() -> None:
    frames = b"ACK\nid:1\n\n\0ACK\nid:2\n\n\0"
    (event,) = open_session().receive_data(frames)
    assert isinstance(event, Acked)
    assert list(event.ids) == [b"1", b"2"]
    assert plain([event]) == [("id", None, False, True, each, None) for each in (b"1", b"2")]


@pytest.mark.covers("R08", "R11")
@pytest.mark.parametrize("end", [b"DISCONNECT\n\n\0", b"FOO\n\n\0"])
def test_acks_after_the_end_of_a_session_are_ignored(end: bytes) -> None:
    events = open_session().receive_data(b"ACK\nid:1\n\n\0" + end + b"ACK\nid:2\n\n\0")
    assert [type(event) for event in events[:1]] == [Acked]
    assert len(events) == 2


# Transactions.


def tx(command: bytes, *lines: bytes, body: bytes = b"", name: bytes = b"t") -> bytes:
    return b"\n".join([command, b"transaction:" + name, *lines, b"", body + b"\0"])


TO_A = b"destination:/a"
HEAD = head_bytes((("transaction", "t"), ("destination", "/a")))


def session_with(
    memory: int = 1 << 30, options: ProtocolOptions | None = None
) -> tuple[ServerSession, MemoryBudget]:
    """An open session with bounds of its own, and the memory that it charges."""
    budget = MemoryBudget(memory)
    codecs = Codecs(FrameLimits(), options or ProtocolOptions(), budget)
    return open_session(codecs=codecs), budget


def committed(session: ServerSession, name: bytes = b"t") -> list[object]:
    """Commit a transaction, and return its actions as values."""
    (event,) = session.receive_data(tx(b"COMMIT", name=name))
    assert isinstance(event, Committed)
    return plain(event.actions)


@pytest.mark.covers("T02")
@every_version
def test_a_transaction_is_begun_once(version: Version) -> None:
    session = open_session(version)
    begin = tx(b"BEGIN", b"receipt:r")
    assert plain(session.receive_data(begin)) == [("received", b"r")]
    error = refusal(session, begin)
    assert (error.code, error.receipt_id) == ("duplicate-transaction", b"r")
    assert "transaction:t " in error.message


@pytest.mark.covers("T02", "T03")
@pytest.mark.parametrize("end", [b"COMMIT", b"ABORT"])
def test_the_name_of_an_ended_transaction_is_free_again(end: bytes) -> None:
    session = open_session()
    for _ in range(3):
        session.receive_data(tx(b"BEGIN") + tx(b"SEND", TO_A) + tx(end))
    assert refusal(session, tx(b"COMMIT")).code == "unknown-transaction"


@pytest.mark.covers("T03")
@every_version
def test_abort_of_no_transaction_is_ignored(version: Version) -> None:
    (event,) = open_session(version).receive_data(tx(b"ABORT", b"receipt:r"))
    assert isinstance(event, Received)
    assert (event.receipts, event.ignored) == (((1, b"r"),), b"ignored:transaction\n")


@pytest.mark.covers("T03", "S03", "R06")
@every_version
@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (b"SEND", [TO_A]),
        (b"ACK", [b"id:1", b"message-id:1", b"subscription:s"]),
        (b"NACK", [b"id:1", b"message-id:1", b"subscription:s"]),
        (b"COMMIT", []),
    ],
)
@pytest.mark.parametrize("others", [b"", b"BEGIN\ntransaction:other\n\n\0"])
def test_an_unknown_transaction_is_refused(
    version: Version, command: bytes, lines: list[bytes], others: bytes
) -> None:
    if command == b"NACK" and version is STOMP_1_0:
        return
    session = open_session(version)
    session.receive_data(others)
    error = refusal(session, tx(command, *lines, b"receipt:r"))
    assert (error.code, error.receipt_id) == ("unknown-transaction", b"r")
    assert "transaction:t " in error.message


@pytest.mark.covers("T03")
@pytest.mark.parametrize("frame", [b"SEND\ndestination:/a", b"ACK\nid:1"])
def test_a_transaction_without_a_name_is_none_and_not_no_transaction(frame: bytes) -> None:
    error = refusal(open_session(), frame + b"\ntransaction:\n\n\0")
    assert error.code == "unknown-transaction"


@pytest.mark.covers("S01")
def test_a_send_in_a_transaction_needs_a_destination_too() -> None:
    session = open_session()
    session.receive_data(tx(b"BEGIN"))
    error = refusal(session, tx(b"SEND", b"receipt:r"))
    assert (error.code, error.receipt_id) == ("header-missing", b"r")


@pytest.mark.covers("T06", "T10", "A17", "T08")
def test_frames_of_a_transaction_come_with_its_commit_in_order() -> None:
    data = (
        tx(b"BEGIN", b"receipt:r0")
        + tx(b"SEND", TO_A, body=b"1")
        + tx(b"SEND", TO_A, b"receipt:r1", body=b"2")
        + tx(b"ACK", b"id:m.1", b"receipt:r2")
        + tx(b"SEND", b"destination:/b", body=b"3")
        + tx(b"NACK", b"id:m.2", b"requeue:false")
        + tx(b"SEND", TO_A, body=b"4")
        + tx(b"COMMIT", b"receipt:r3")
    )
    to_a = (("transaction", "t"), ("destination", "/a"))
    to_b = (("transaction", "t"), ("destination", "/b"))
    for chunks in chunkings(data):
        session = open_session()
        events = [event for chunk in chunks for event in session.receive_data(chunk)]
        *before, commit = events
        assert plain(before) == [("received", name) for name in (b"r0", b"r1", b"r2")]
        assert isinstance(commit, Committed)
        assert commit.receipt == b"r3"
        shown = plain(commit.actions)
        # The receipts of frames inside were given already, and are not given again.
        assert [each for each in shown if isinstance(each, Frame)] == [
            Frame("SEND", to_a, b"1"),
            Frame("SEND", to_a, b"2"),
            Frame("SEND", to_b, b"3"),
            Frame("SEND", to_a, b"4"),
        ]
        assert shown[2] == ("id", None, False, True, b"m.1", b"r2")
        assert shown[4] == ("id", None, True, False, b"m.2", None)


def test_a_run_is_buffered_whole_and_its_receipts_are_one_event() -> None:
    session = open_session()
    session.receive_data(tx(b"BEGIN"))
    frames = b"".join(tx(b"SEND", TO_A, b"receipt:%d" % n, body=b"%d" % n) for n in range(5))
    (event,) = session.receive_data(frames)
    assert event == Received([(n + 1, b"%d" % n) for n in range(5)])
    (commit,) = session.receive_data(tx(b"COMMIT"))
    assert isinstance(commit, Committed)
    (run,) = commit.actions
    assert isinstance(run, FrameRun)
    assert (run.bodies, run.receipts) == ([b"0", b"1", b"2", b"3", b"4"], [])


@pytest.mark.covers("C07")
@pytest.mark.parametrize(
    ("host", "is_known"), [("/", True), ("/test", True), ("//", False), ("", False), (None, True)]
)
def test_unlisted_host_is_refused(host: str | None, is_known: bool) -> None:
    session = ServerSession(make_codecs(ProtocolOptions(hosts="/,/test")))
    line = "" if host is None else f"host:{host}\n"
    (event,) = session.receive_data(f"CONNECT\naccept-version:1.1\n{line}\n\0".encode())
    assert isinstance(event, Opened if is_known else Refused)
    assert is_known or plain([event]) == [("unknown-host", None)]


def test_receipts_of_sends_may_wait_for_the_commit_and_are_charged_until_then() -> None:
    codecs = make_codecs()
    codecs.receipts_at_commit = True
    session = open_session(codecs=codecs)
    session.receive_data(tx(b"BEGIN"))
    size = session.transactions.size if session.transactions else 0
    data = tx(b"SEND", TO_A, b"receipt:r1") + tx(b"SEND", b"destination:/b", b"receipt:r2")
    assert plain(session.receive_data(data)) == []
    assert session.transactions is not None
    assert session.transactions.size - size > 2 * 128
    (commit,) = session.receive_data(tx(b"COMMIT", b"receipt:r3"))
    assert isinstance(commit, Committed)
    runs = [action for action in commit.actions if isinstance(action, FrameRun)]
    assert [run.receipts for run in runs] == [[(1, b"r1")], [(1, b"r2")]]


def test_early_check_gets_the_head_of_a_buffered_frame() -> None:
    codecs = make_codecs()
    codecs.judges_early = True
    session = open_session(codecs=codecs)
    session.receive_data(tx(b"BEGIN"))
    # A run, and frames by themselves; with a receipt or without, the rights must be asked for.
    for data, receipts in (
        (tx(b"SEND", TO_A) * 2, []),
        (tx(b"SEND", TO_A, b"receipt:r"), [(1, b"r")]),
    ):
        (event,) = session.receive_data(data)
        assert isinstance(event, Received)
        assert list(event.receipts) == receipts
        assert event.head is not None
        assert event.head.destination == "/a"
    assert len(committed(session)) == 3


def test_open_subscriptions_and_transactions_are_counted() -> None:
    session, _ = session_with()
    session.receive_data(tx(b"BEGIN", name=b"u"))
    transactions = session.transactions
    assert transactions is not None
    for data, count in (
        (tx(b"SEND", TO_A, name=b"u"), 1),
        (tx(b"BEGIN", name=b"v"), 2),
        (tx(b"COMMIT", name=b"u"), 1),
        (tx(b"ABORT", name=b"v"), 0),
    ):
        session.receive_data(data)
        assert (transactions.count, transactions.are_open) == (count, count > 0)


def test_two_transactions_are_two() -> None:
    session = open_session()
    session.receive_data(tx(b"BEGIN", name=b"u") + tx(b"BEGIN", name=b"v"))
    for name in (b"u", b"v", b"u"):
        session.receive_data(tx(b"SEND", TO_A, name=name, body=name))
    session.receive_data(b"SEND\ndestination:/a\n\noutside\0")
    for name, count in ((b"v", 1), (b"u", 2)):
        sent = Frame("SEND", (("transaction", name.decode()), ("destination", "/a")), name)
        assert committed(session, name) == [sent] * count


@pytest.mark.covers("T02")
def test_a_name_is_of_its_connection_alone() -> None:
    codecs = make_codecs()
    one, two = open_session(codecs=codecs), open_session(codecs=codecs)
    assert plain(one.receive_data(tx(b"BEGIN"))) == []
    assert plain(two.receive_data(tx(b"BEGIN"))) == []
    one.receive_data(tx(b"SEND", TO_A, body=b"x"))
    assert committed(two) == []


@pytest.mark.covers("T09", "F40")
@pytest.mark.parametrize("case", limits_at("decoder", "session"), ids=id_of)
@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("step", [1, 1 << 20])
def test_a_limit_of_frames_and_of_transactions(case: Limit, more: int, step: int) -> None:
    """Frames of ended transactions count no more, and their charges are released."""
    memory = MemoryBudget(1 << 30)
    codecs = Codecs(case.frame_limits(), case.protocol_options(), memory)
    session = open_session(codecs=codecs)
    data = case.act(case.most + more)
    events: list[Event] = []
    if case.name == "max_transactions":
        data = (data[: data.index(b"\0") + 1] + tx(b"ABORT", name=b"0")) * 3 + data
    for place in range(0, len(data), step):
        events += session.receive_data(data[place : place + step])
    refused = [event.error for event in events if isinstance(event, Refused)]
    if not more:
        assert not refused
        if case.at == "session":
            assert (memory.used_bytes == case.most) is (case.name == "max_transaction_bytes")
    else:
        (error,) = refused
        assert isinstance(events[-1], Refused)
        assert (error.code, error.reason) == (case.code, case.reason)
        assert f"option {case.name}" in error.message
        assert error.receipt_id == RECEIPT.encode() or case.code in HEAD_CODES
        assert session.state is State.CLOSED
    session.close()
    assert memory.used_bytes == 0


@pytest.mark.covers("T09")
@pytest.mark.parametrize("is_cut", [False, True])
def test_limit_of_actions(is_cut: bool) -> None:
    session, _ = session_with(options=ProtocolOptions(max_transaction_actions=3))
    session.receive_data(tx(b"BEGIN") + tx(b"ACK", b"id:1"))
    frames = [tx(b"SEND", TO_A, b"receipt:%d" % n) for n in range(4)]
    events: list[Event] = []
    for data in frames if is_cut else [b"".join(frames)]:
        events += session.receive_data(data)
    # The one at fault is named, and those before it had their receipt.
    before = [("received", b"0"), ("received", b"1")]
    assert plain(events) == [*before, ("transaction-too-large", b"2")]


@pytest.mark.covers("T09")
def test_a_transaction_takes_no_memory_that_is_not_there() -> None:
    session, memory = session_with(memory=1000)
    session.receive_data(tx(b"BEGIN") + tx(b"ACK", b"id:1"))
    error = refusal(session, tx(b"SEND", TO_A, body=b"x" * 600))
    assert error.code == "transaction-too-large"
    assert "max_memory_bytes" in error.message
    assert memory.used_bytes == 257 + 257


@pytest.mark.covers("T05")
@pytest.mark.parametrize("end", ["COMMIT", "ABORT", "DISCONNECT", "close"])
def test_memory_is_given_back_at_the_end(end: str) -> None:
    session, memory = session_with()
    session.receive_data(tx(b"BEGIN") + tx(b"SEND", TO_A, body=b"x" * 1000) * 3)
    session.receive_data(tx(b"NACK", b"id:12345"))
    assert memory.used_bytes == 257 + HEAD + 3 * 1256 + 261
    if end == "close":
        session.close()
        session.close()
        assert session.state is State.CLOSED
    else:
        session.receive_data(tx(end.encode()))
    assert memory.used_bytes == 0


def test_the_end_of_a_session_without_transactions() -> None:
    session, memory = session_with()
    session.close()
    assert session.receive_data(tx(b"BEGIN")) == []
    assert memory.used_bytes == 0


def test_heads_that_are_forgotten_are_held_to_the_limits_of_now() -> None:
    codecs = make_codecs()
    session = open_session(codecs=codecs)
    block = b"SEND\ndestination:/a\nx:%b\n\n\0" % (b"y" * 400)
    assert len(session.receive_data(block * 2)) == 1
    assert codecs.cached_heads == 2  # its, and that of CONNECT
    codecs.limits = FrameLimits(max_header_line_bytes=256)
    codecs.forget_heads()
    assert codecs.cached_heads == 0
    error = refusal(open_session(codecs=codecs), block)
    assert error.code == "header-line-too-long"


# Decisions of dialects.


@every_version
@pytest.mark.parametrize("is_lenient", [False, True])
@pytest.mark.parametrize("command", [b"ACK", b"NACK"])
@pytest.mark.parametrize("line", [b"", b"subscription:\n", b"subscription:s\n"])
def test_a_message_id_alone_names_a_delivery(
    version: Version, is_lenient: bool, command: bytes, line: bytes
) -> None:
    codecs = make_codecs()
    codecs.is_lenient = is_lenient
    session = open_session(version, codecs=codecs)
    frame = command + b"\nmessage-id:m\n" + line + b"receipt:r\n\n\0"
    negative = command == b"NACK"
    if negative and version is STOMP_1_0 and not is_lenient:
        assert refusal(session, frame).code == "unknown-command"
        return
    (event,) = session.receive_data(frame)
    is_told = line == b"subscription:s\n" and version is STOMP_1_1 and not is_lenient
    subscription = "s" if is_told else None
    assert event == Acked((b"m",), "message-id", subscription, negative, True, ((1, b"r"),))
    error = refusal(session, command + b"\nreceipt:r\n\n\0")
    assert error.code == "header-missing"
    wanted = "id" if version is STOMP_1_2 else "message-id"
    assert f"needs the header {wanted}, with" in error.message


def test_newer_of_two_headers_of_an_ack_counts() -> None:
    (event,) = open_session().receive_data(b"ACK\nmessage-id:m\nid:i\n\n\0")
    assert event == Acked((b"i",), "id", None, False, True, ())


@every_version
def test_a_lenient_session_needs_no_ids(version: Version) -> None:
    codecs = make_codecs()
    codecs.is_lenient = True
    session = open_session(version, codecs=codecs)
    for command, kind in ((b"SUBSCRIBE", Subscribed), (b"UNSUBSCRIBE", Unsubscribed)):
        (event,) = session.receive_data(command + b"\ndestination:/a\n\n\0")
        assert isinstance(event, kind)
        assert (event.id, event.destination) == (None, "/a")
    assert refusal(session, b"UNSUBSCRIBE\n\n\0").code == "header-missing"


@every_version
def test_a_durable_name_is_enough_to_unsubscribe(version: Version) -> None:
    session = open_session(version)
    (event,) = session.receive_data(b"UNSUBSCRIBE\nactivemq.subscriptionName:n\n\n\0")
    assert isinstance(event, Unsubscribed)
    assert (event.id, event.destination) == (None, None)
    assert refusal(session, b"UNSUBSCRIBE\nclient-id:n\n\n\0").code == "header-missing"


def seed_codecs() -> Codecs:
    codecs = make_codecs()
    codecs.survives_errors = codecs.reopens = True
    return codecs


@pytest.mark.covers("R06")
def test_an_error_may_leave_the_session_open_and_tells_the_receipt_of_its_frame() -> None:
    session = open_session(codecs=seed_codecs())
    bad = b"FOO\nreceipt:1\n\n\0SEND\nreceipt:2\n\n\0SEND\nreceipt:3\n\n\0"
    events = session.receive_data(bad + b"SEND\ndestination:/a\n\nx\0")
    missing = [("header-missing", receipt) for receipt in (b"2", b"3")]
    assert plain(events[:3]) == [("unknown-command", b"1"), *missing]
    assert isinstance(events[3], FrameRun)
    assert session.state is State.OPEN


def test_an_error_before_connect_may_leave_the_session_to_be_opened() -> None:
    session = make_session(codecs=seed_codecs())
    events = session.receive_data(b"SEND\ndestination:/a\n\n\0" + connect(STOMP_1_2))
    assert [type(event) for event in events] == [Refused, Opened]


@pytest.mark.parametrize(
    "bad",
    [
        b"SEND\nx:\\t\n\n\0",  # where the next frame begins is not known for sure
        b"\x01",
        b"BEGIN\ntransaction:v\n\n\0BEGIN\ntransaction:w\n\n\0",  # over a limit
        b"DIAG\n\nsession\0",  # not allowed at all
    ],
)
def test_not_every_error_leaves_it_open(bad: bytes) -> None:
    codecs = seed_codecs()
    codecs.options = ProtocolOptions(max_transactions=1)
    session = open_session(codecs=codecs)
    events = session.receive_data(bad + b"SEND\ndestination:/a\n\n\0")
    assert isinstance(events[-1], Refused)
    assert session.state is State.CLOSED


@pytest.mark.covers("F22", "T05")
def test_a_session_may_be_opened_again_after_disconnect() -> None:
    data = (
        connect(STOMP_1_2)
        + tx(b"BEGIN")
        + b"SUBSCRIBE\nid:s\\c\ndestination:/a\n\n\0"
        + b"ACK\nid:1\n\n\0DISCONNECT\nreceipt:d\n\n\0\n"
        + connect(STOMP_1_0, b"login:\\c")
        + tx(b"BEGIN", b"receipt:b")  # the name is free: DISCONNECT has aborted the other
        + b"SUBSCRIBE\nid:s\\c\ndestination:/a\n\n\0"
        + b"ACK\nmessage-id:1\n\n\0DISCONNECT\n\n\0"
    )
    meanings = []
    for chunks in chunkings(data):
        session = make_session(codecs=seed_codecs())
        events = [event for chunk in chunks for event in session.receive_data(chunk)]
        meanings.append(plain(events))
        assert session.state is State.OPENING
    assert all(meaning == meanings[0] for meaning in meanings)
    first, subscribed, ack, left, second, begun, again, last_ack, end = meanings[0]
    assert isinstance(first, Opened)
    assert isinstance(second, Opened)
    assert (first.version, second.version) == (STOMP_1_2, STOMP_1_0)
    assert dict(second.headers)["login"] == "\\c"
    assert isinstance(subscribed, Subscribed)
    assert isinstance(again, Subscribed)
    assert (subscribed.id, again.id) == ("s:", "s\\c")
    assert ack == ("id", None, False, True, b"1", None)
    assert last_ack == ("message-id", None, False, True, b"1", None)
    assert (left, begun, end) == (Disconnected(b"d"), ("received", b"b"), Disconnected(None))


@pytest.mark.parametrize("frame", [b"SEND\ndestination:/a\n\n\0", b"ACK\nid:1\n\n\0"])
def test_between_two_sessions_nothing_but_connect_is_allowed(frame: bytes) -> None:
    for data in ([b"DISCONNECT\n\n\0" + frame], [b"DISCONNECT\n\n\0", frame]):
        session = open_session(codecs=seed_codecs())
        events = [event for chunk in data for event in session.receive_data(chunk)]
        assert plain(events) == [Disconnected(None), ("not-connected", None)]
        assert session.state is State.OPENING


# Refusals.


@pytest.mark.covers("R06")
@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"SEND\nreceipt:r\ndestination:/a\nx:\\t\n\n\0", "invalid-escape"),
        (b"SEND\nreceipt:r\ndestination:/a\ncontent-length:1\n\nab\0", "missing-nul"),
        (b"SEND\nreceipt:r\ndestination:/a\ncontent-length:-1\n\n\0", "invalid-content-length"),
        (b"DISCONNECT\nreceipt:r\n\nx\0", "body-not-allowed"),
    ],
)
def test_an_error_of_the_decoder_has_the_receipt_too(frame: bytes, code: str) -> None:
    session = open_session()
    before = b"SEND\ndestination:/a\nreceipt:other\n\n\0"
    events = session.receive_data(before + frame + before)
    assert isinstance(events[0], FrameRun)
    assert plain(events[1:]) == [(code, b"r")]
    assert session.receive_data(before) == []


def test_a_frame_at_fault_without_a_receipt_gets_none_of_another() -> None:
    for bad in (b"SEND\n\n\0", b"SEND\ndestination:/a\nx\n\n\0", b"\x01"):
        events = open_session().receive_data(b"SEND\ndestination:/a\nreceipt:r\n\n\0" + bad)
        assert isinstance(events[-1], Refused)
        assert events[-1].error.receipt_id is None


@pytest.mark.covers("R13")
@pytest.mark.parametrize("name", ["passcode", "Passcode", "authorization", "AUTHORIZATION"])
def test_an_error_quotes_the_frame_without_secrets(name: str) -> None:
    line = f"{name}:hunter2\\nhunter2".encode()
    for session, data in (
        (make_session(), b"CONNECT\naccept-version:9\n" + line + b"\nhost:h\n\n\0"),
        (make_session(), b"SEND\n" + line + b"\n\n\0"),
        (open_session(), b"CONNECT\n" + line + b"\n\n\0"),
        (open_session(), b"SEND\nfoo:bar\n" + line + b"\n\n\0"),
        (open_session(), b"SUBSCRIBE\n" + line + b"\nack:x\n\n\0"),
    ):
        error = refusal(session, data)
        assert f"{name}:***".encode() in error.excerpt
        assert b"hunter2" not in error.excerpt
        assert "hunter2" not in error.message
        assert error.excerpt.startswith(data.split(b"\n")[0])


def test_an_excerpt_is_short() -> None:
    error = refusal(open_session(), b"SEND\n" + b"x" * 5000 + b":y\n\n\0")
    assert len(error.excerpt) == 512


@pytest.mark.covers("R11")
@every_version
def test_nothing_follows_disconnect(version: Version) -> None:
    session = open_session(version)
    frames = b"DISCONNECT\nreceipt:1\n\n\0DISCONNECT\nreceipt:1\n\n\0SEND\ndestination:/a\n\n\0\x01"
    assert session.receive_data(frames) == [Disconnected(b"1")]
    assert session.receive_data(frames) == []
    session = open_session(version)
    session.receive_data(b"DISCONNECT\n\n\0")
    assert session.receive_data(b"SEND\ndestination:/a\n") == []
    assert session.decoder.buffered_bytes == 0


# DIAG, an extension.


@every_version
def test_diag_is_answered_before_and_after_connect_if_allowed(version: Version) -> None:
    session = make_session(may_ask=True)
    question = b"DIAG\n\nsession\0"
    events = session.receive_data(question * 2 + b"\n" + connect(version) + question)
    assert events[:2] == [Queried("session"), Queried("session")]
    assert isinstance(events[2], Opened)
    assert events[3:] == [Queried("session")]
    assert session.receive_data(b"DIAG\n\n\xff\0") == [Queried("�")]


@pytest.mark.parametrize("is_open", [False, True])
def test_diag_is_refused_to_others(is_open: bool) -> None:
    session = open_session() if is_open else make_session()
    error = refusal(session, b"DIAG\nreceipt:r\n\nsession\0" * 2)
    assert (error.code, error.receipt_id) == ("not-allowed", b"r")
    assert error.reason is CloseReason.UNSUPPORTED
    assert "SUBSCRIBE to the DIAG topics" in error.message


# Any bytes.

SESSION_CODES = ERROR_CODES | {
    *["already-connected", "header-missing", "invalid-ack-mode", "invalid-heart-beat"],
    *["not-allowed", "not-connected", "unknown-command", "unknown-transaction"],
    *["duplicate-transaction", "unsupported-version"],
}


@settings(max_examples=500)
@given(streams(), cuts(), st.sampled_from([None, *ALL]), st.booleans(), st.booleans())
def test_any_stream_means_the_same_however_it_is_cut(
    data: bytes, places: list[int], version: Version | None, may_ask: bool, is_seed: bool
) -> None:
    if version is not None:
        data = connect(version) + data
    if is_seed:
        data += b"DISCONNECT\n\n\0" + connect(STOMP_1_1) + data
    codecs = make_codecs()
    codecs.reopens = codecs.survives_errors = is_seed
    meanings = []
    for chunks in ([data], split(data, places), [data[i : i + 1] for i in range(len(data))]):
        session = make_session(may_ask=may_ask, codecs=codecs)
        events = [event for chunk in chunks for event in session.receive_data(chunk)]
        meanings.append(plain(events))
        for event in events[:-1]:
            if isinstance(event, Refused):
                assert is_seed
                assert event.error.is_survivable
            assert is_seed or not isinstance(event, Disconnected)
        for event in events:
            if isinstance(event, Refused):
                assert event.error.code in SESSION_CODES
                assert is_seed or session.state is State.CLOSED
        session.close()
        assert codecs.memory.used_bytes == 0
    assert meanings[0] == meanings[1] == meanings[2]


def test_transactions_are_charged_to_their_session() -> None:
    """F9: 30 connections with 16 MiB each would have left nothing for others' queues."""
    codecs = make_codecs()
    codecs.memory.limit_bytes, codecs.memory.quota_percent = 100_000, 50
    one, two = Quota("one"), Quota("two")
    owner: list[Quota | None] = [None]
    session = ServerSession(codecs, quota_of=lambda: owner[0])
    session.receive_data(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0BEGIN\ntransaction:t\n\n\0")
    send = b"SEND\ndestination:d\ntransaction:%b\n\n" + b"x" * 30_000 + b"\0"
    owner[0] = one  # it is known now who it is, and who pays for what came before
    session.receive_data(b"BEGIN\ntransaction:u\n\n\0" + send % b"t")
    assert one.kept_bytes == codecs.memory.kept_bytes > 30_000
    other = ServerSession(codecs, quota_of=lambda: two)
    other.receive_data(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0BEGIN\ntransaction:t\n\n\0")
    assert not [each for each in other.receive_data(send % b"t") if isinstance(each, Refused)]
    assert two.kept_bytes > 30_000
    session.receive_data(b"ABORT\ntransaction:t\n\n\0")
    assert 0 < one.kept_bytes < 1000
    other.receive_data(b"COMMIT\ntransaction:t\n\n\0")
    assert two.kept_bytes == 0
    session.receive_data(send % b"u")
    (refused,) = session.receive_data(send % b"u")
    assert isinstance(refused, Refused)
    assert "max_share_per_user" in str(refused.error)
    session.close()
    assert (one.kept_bytes, codecs.memory.kept_bytes) == (0, 0)


@pytest.mark.parametrize("reopens", [False, True])
def test_a_slice_of_work_at_a_time(reopens: bool) -> None:
    session = open_session()
    session.codecs.reopens = reopens
    pairs = b"BEGIN\ntransaction:1\n\n\0ABORT\ntransaction:1\n\n\0" * 20
    events = session.receive_data(pairs + b"DISCONNECT\n\n\0", 320)
    slices = 1
    assert session.has_more
    while session.has_more:
        more = session.receive_data(b"", 320)
        assert len(more) <= 12
        events += more
        slices += 1
    assert slices >= 4
    assert [type(event) for event in events] == [Received] * 40 + [Disconnected]
