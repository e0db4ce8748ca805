"""The ERROR frame: for programs, for people, without secrets."""

import pytest

from tests.support.core import VERSIONS, Core, read_frames, run_of
from trio_stomp.base import CloseReason, FrameError, ProtocolError
from trio_stomp.broker import BrokerPolicies
from trio_stomp.broker.headers import error_frame, quote
from trio_stomp.protocol import Disconnected, Event, Queried, Refused, Subscribed, Unsubscribed


def read_error(error, version="1.2"):
    (frame,) = read_frames(error_frame(error, VERSIONS[version].rules), version)
    assert frame.command == "ERROR"
    return frame


@pytest.mark.covers("R06", "R07", "F33", "F34")
@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_has_message_code_and_body(version: str):
    frame = read_error(ProtocolError("some-code", "id:7 is in use", receipt_id=b"r-1"), version)
    assert frame.headers == (
        ("receipt-id", "r-1"),
        ("message", "id:7 is in use"),
        ("code", "some-code"),
        ("content-type", "text/plain"),
        ("content-length", "15"),
    )
    assert frame.body == b"id:7 is in use\n"


def test_without_a_receipt_asked_for_there_is_no_receipt_id():
    assert read_error(ProtocolError("c", "m")).get("receipt-id") is None


@pytest.mark.parametrize(
    ("version", "wire", "text"),
    [("1.0", b"a:b\\c", "a:b\\c"), ("1.1", b"a\\cb", "a:b"), ("1.2", b"\\r\\n\\c\\\\", "\r\n:\\")],
)
def test_a_receipt_id_goes_back_as_it_came(version: str, wire: bytes, text: str):
    error = ProtocolError("c", "m", receipt_id=wire)
    assert b"receipt-id:%b\n" % wire in error_frame(error, VERSIONS[version].rules)
    assert read_error(error, version).get("receipt-id") == text


@pytest.mark.covers("F24")
@pytest.mark.parametrize("version", VERSIONS)
def test_control_characters_do_not_break_the_frame(version: str):
    text = "a\nb\r\n\nMESSAGE\0\tc"
    frame = read_error(ProtocolError("c", text), version)
    assert frame.get("message") == "a b   MESSAGE  c"
    assert frame.body.decode() == text + "\n"


@pytest.mark.covers("C05")
def test_a_failed_negotiation_lists_the_versions():
    error = ProtocolError("unsupported-version", "accept-version:2 names none")
    assert read_error(error, "1.0").get("version") == "1.0,1.1,1.2"
    assert read_error(ProtocolError("c", "m")).get("version") is None


@pytest.mark.covers("R13")
def test_the_frame_at_fault_is_quoted():
    frame = read_error(FrameError("c", "why", excerpt=b"SEND\nfoo"))
    assert frame.body == b"The frame\n-----\nSEND\nfoo\n-----\nwhy\n"


@pytest.mark.covers("R13")
@pytest.mark.parametrize("name", ["passcode", "Passcode", "authorization", "AUTHORIZATION"])
def test_secrets_are_not_quoted(name: str):
    quoted = quote("SEND", (("a", "b"), (name, "hunter2\nhunter3"), ("c", "d")))
    assert quoted == f"SEND\na:b\n{name}:***\nc:d".encode()


def test_quotes_are_bounded():
    assert quote("SEND", (("a", "é" * 9999),))[:12] == b"SEND\na:" + "é".encode() * 2 + b"\xc3"
    assert len(quote("SEND", (("a", "é" * 9999),))) == 512


# Every rule of the core: a violation, the code, and words of the message.
SECRET = (("passcode", "hunter2"), ("foo", "bar"))
ASKED = ((1, b"r9"),)
FAULTS: dict[str, tuple[Event, list[str]]] = {
    "wildcard-in-send": (run_of("/topic/*", "xy", SECRET, ASKED), ["/topic/*", "SUBSCRIBE"]),
    "reserved-destination": (
        run_of("DIAG/session", "x", SECRET, ASKED),
        ["DIAG/session", "SUBSCRIBE"],
    ),
    "not-allowed": (
        Subscribed("9", "/reply-queue/s", "auto", SECRET, b"r9"),
        ["/reply-queue/s", "another connection"],
    ),
    "destination-too-long": (run_of("é" * 16, "x", SECRET, ASKED), ["é" * 16, "16 bytes"]),
    "invalid-wildcard": (Subscribed("9", "a*b", "auto", SECRET, b"r9"), ["a*b", "last character"]),
    "duplicate-subscription": (
        Subscribed("0", "c", "auto", SECRET, b"r9"),
        ["id:0", "mine", "UNSUBSCRIBE"],
    ),
    "too-many-subscriptions": (Subscribed("9", "c", "auto", SECRET, b"r9"), ["2", "limit"]),
    "unknown-subscription": (
        Unsubscribed("9", None, b"r9", (("durable-subscription-name", "d"),)),
        ["id:9", "no subscription"],
    ),
    "destination-mismatch": (Unsubscribed("0", "other", b"r9"), ["id:0", "mine", "other"]),
    "unknown-query": (Queried("weather"), ["weather", "ws_buffer"]),
}


@pytest.mark.covers("S02", "S10", "R05", "R06", "R07", "R08", "R13")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_ends_its_client_and_no_other(code: str, version: str):
    event, words = FAULTS[code]
    limit = 2 if code == "too-many-subscriptions" else 10
    core = Core(BrokerPolicies(max_subscriptions_per_connection=limit, max_destination_bytes=16))
    other, culprit = core.peer(), core.peer(version)
    other.subscribes("mine")
    culprit.subscribes("mine", "0")
    culprit.subscribes("wild.*", "1")
    culprit.does(
        run_of("mine", ["before"]), event, run_of("mine", ["after"]), Disconnected(b"never")
    )
    error = culprit.error()
    assert error.get("code") == code
    assert all(word in (error.get("message") or "") for word in words), error
    assert all(word in error.text for word in words)
    assert b"hunter2" not in error.body
    assert error.get("receipt-id") == (None if code == "unknown-query" else "r9")
    assert culprit.frames("RECEIPT") == []
    # No frames follow it, and no state remains.
    assert culprit.outbox.closed is not None
    culprit.sends("mine", "later")
    other.sends("mine", "on")
    other.sends("wild.x", "on")
    assert culprit.bodies() == ["before"]
    assert culprit.client.subscriptions == {}
    assert other.bodies() == ["before", "on"]
    assert len(core.broker.subscriptions) == 1
    culprit.is_gone()
    other.is_gone()
    core.ends()


@pytest.mark.covers("R13")
def test_a_refused_frame_is_quoted_by_the_core_too():
    gone = (("durable-subscription-name", "d"),)
    culprit = Core().peer()
    culprit.sends("a*", headers=SECRET)
    body = culprit.error().text
    assert body.startswith("The frame\n-----\nSEND\ndestination:a*\npasscode:***\nfoo:bar\n-----\n")
    for event, quoted in (
        (Subscribed("1", "a*b", "auto", (("id", "1"),), None), "SUBSCRIBE\nid:1\n"),
        (Unsubscribed("7", "x", None, (("id", "7"), *gone)), "UNSUBSCRIBE\nid:7\n"),
        (
            Unsubscribed(None, "x", None, (("destination", "x"), *gone)),
            "UNSUBSCRIBE\ndestination:x\n",
        ),
    ):
        culprit = Core().peer("1.0")
        culprit.does(event)
        assert quoted in culprit.error().text


def test_a_refusal_of_the_session_passes_as_it_is():
    culprit = Core().peer()
    error = ProtocolError(
        "x", "y", reason=CloseReason.CONNECT_TIMEOUT, receipt_id=b"1", excerpt=b"SEND"
    )
    culprit.does(Refused(error))
    assert culprit.error().body == b"The frame\n-----\nSEND\n-----\ny\n"
    assert culprit.error().get("receipt-id") == "1"
    assert culprit.outbox.closed is CloseReason.CONNECT_TIMEOUT


def test_a_run_that_asked_for_no_receipt_gets_an_error_without_receipt_id():
    culprit = Core().peer()
    culprit.sends("a*")
    assert culprit.error().get("receipt-id") is None


def test_refused_connection_gets_a_plain_error():
    peer = Core().peer("1.0", opens=False)
    peer.does(Refused(ProtocolError("not-connected", "Not connected! SEND came first")))
    assert peer.error().get("message") == "Not connected! SEND came first"
    assert peer.outbox.closed is CloseReason.PROTOCOL_ERROR
