"""ERRORs in RabbitMQ's words, as RabbitMQ 3.10.8 says them to the same bytes."""

import pytest

from tests.support.core import Core, Peer, Received, read_frames
from trio_stomp.base import ProtocolError
from trio_stomp.broker import dialect
from trio_stomp.broker.headers import error_frame
from trio_stomp.frames import V1_2, FrameLimits
from trio_stomp.protocol import Codecs, ProtocolOptions, ServerSession

CONNECT = "CONNECT\naccept-version:{}\nhost:h\n\n\0"


def says(word: str, frames: str, version: str = "1.0", opens: bool = True) -> Received:
    """Return the ERROR that a client receives for its frame."""
    peer: Peer = Core(dialect=word).peer(version, opens=False)
    session = ServerSession(
        Codecs(FrameLimits(), ProtocolOptions(), is_lenient=dialect(word).is_lenient)
    )
    if opens:
        frames = CONNECT.format(version) + frames
    peer.does(*session.receive_data(frames.encode()))
    return peer.error()


SUBSCRIBE_1 = "SUBSCRIBE\nid:1\ndestination:/queue/a\n\n\0"


@pytest.mark.parametrize(
    ("frames", "message", "body"),
    [
        (
            SUBSCRIBE_1 + SUBSCRIBE_1,
            "Duplicated subscription identifier",
            "A subscription identified by 'T_1' already exists.",
        ),
        (
            "SEND\n\n\0",
            "Missing destination",
            "\"SEND\" must include a 'destination' header\n",
        ),
        (
            "SUBSCRIBE\n\n\0",
            "Missing destination",
            "\"SUBSCRIBE\" must include a 'destination' header\n",
        ),
        (
            "SEND\ndestination:/something/new\n\n\0",
            "Unknown destination",
            "'/something/new' is not a valid destination.\nValid destination types are:"
            " /temp-queue, /exchange, /topic, /queue, /amq/queue, /reply-queue/.\n",
        ),
        (
            "SEND\ndestination:queue/b\nkind:mine\n\n\0",
            "Unknown destination",
            "'queue/b' is not a valid destination.\nValid destination types are:"
            " /temp-queue, /exchange, /topic, /queue, /amq/queue, /reply-queue/.\n",
        ),
        (
            "SEND\ndestination:a\nmessage-id:1\n\n\0",
            "Invalid header",
            "'message-id' is not allowed on 'SEND'.\n",
        ),
        ("WRONG\n\n\0", "Bad command", 'Could not interpret command "WRONG"\n'),
        (
            "SUBSCRIBE\ndestination:/topic/d\ndurable:true\n\n\0",
            "Missing Header",
            "Header 'id' is required for durable subscriptions",
        ),
        (
            "UNSUBSCRIBE\nid:9\ndurable-subscription-name:d\n\n\0",
            "No subscription found",
            "UNSUBSCRIBE must refer to an existing subscription.\n"
            "Subscription to \"id='9'\" not found.\n",
        ),
        (
            "UNSUBSCRIBE\n\n\0",
            "Missing destination or id",
            "UNSUBSCRIBE must include a 'destination' or 'id' header",
        ),
        ("ACK\n\n\0", "Missing header", '"ACK" must include the "message-id" header\n'),
        (
            "NACK\nmessage-id:5\n\n\0",
            "Invalid header",
            '"NACK" must include a valid "message-id" header\n',
        ),
        (
            "BEGIN\n\n\0",
            "Missing transaction",
            "\"BEGIN\" must include a 'transaction' header\n",
        ),
        (
            "COMMIT\ntransaction:t\n\n\0",
            "Bad transaction",
            'Invalid transaction identifier: "t"\n',
        ),
    ],
)
def test_an_error_is_in_rabbitmqs_words_with_our_code_and_detail_beside(
    frames: str, message: str, body: str
):
    error = says("rabbitmq", frames)
    assert (error.get("message"), error.text) == (message, body)
    assert error.get("code")
    assert error.get("detail")


@pytest.mark.parametrize(
    ("destination", "rest", "kind"),
    [
        ("/queue/bah/baz", "/bah/baz", "queue"),
        ("/queue", "", "queue"),
        ("/queue/", "/", "queue"),
        ("/topic/bah/baz", "/bah/baz", "topic"),
        ("/exchange//foo", "//foo", "exchange"),
        ("/exchange/bah/baz/boo", "/bah/baz/boo", "exchange"),
        ("/temp-queue/x/y", "/x/y", "temp_queue"),
    ],
)
def test_a_destination_is_invalid_in_rabbitmqs_words(destination: str, rest: str, kind: str):
    error = says("rabbitmq", f"SEND\ndestination:{destination}\n\n\0")
    assert error.get("message") == "Invalid destination"
    assert error.get("code")
    assert error.get("detail")
    assert error.text == f"'{rest}' is not a valid {kind} destination\n"


def test_before_and_in_connect():
    first = says("rabbitmq", "SEND\ndestination:/queue/a\n\n\0", opens=False)
    assert (first.get("message"), first.text) == (
        "Illegal command",
        "You must log in using CONNECT first",
    )
    spoken = says("rabbitmq", "CONNECT\naccept-version:7\nhost:h\n\n\0", opens=False)
    assert (spoken.get("message"), spoken.text, spoken.get("version")) == (
        "Version mismatch",
        "Supported versions are 1.0,1.1,1.2\n",
        "1.0,1.1,1.2",
    )


def test_error_for_an_ack_of_1_2_names_its_id():
    assert says("rabbitmq", "ACK\nid:5\n\n\0", "1.2").text == (
        '"ACK" must include a valid "id" header\n'
    )


def test_error_unknown_to_rabbitmq_keeps_our_text():
    error = says("rabbitmq", "BEGIN\ntransaction:t\n\n\0BEGIN\ntransaction:t\n\n\0")
    assert error.get("message") == "transaction:t has been begun and is still open"
    assert error.get("detail") is None


def told(error: ProtocolError) -> Received:
    """Return an ERROR as a client of RabbitMQ's dialect gets it."""
    (frame,) = read_frames(error_frame(error, V1_2, dialect("rabbitmq").error_texts), "1.2")
    return frame


def test_an_unknown_host_is_reported_in_the_words_of_rabbitmq():
    error = told(ProtocolError("unknown-host", "x", excerpt=b"CONNECT\nhost://"))
    assert (error.get("message"), error.get("detail")) == ("Bad CONNECT", "x")
    assert error.text == "Virtual host '//' access denied"


def test_missing_login_keeps_our_text():
    shown = told(
        ProtocolError("authentication-failed", "x", excerpt=b"CONNECT\nlogin:gust\npasscode:***")
    )
    assert shown.get("message") == "Bad CONNECT"
    assert shown.text == "Access refused for user 'gust'\n"
    token = told(ProtocolError("authentication-failed", "x", excerpt=b"CONNECT\ntoken:***"))
    assert (token.get("message"), token.get("detail")) == ("x", None)


def test_other_dialects_keep_our_words():
    error = says("native", "SEND\n\n\0")
    assert error.get("message") == "SEND of STOMP 1.0 needs the header destination"
    assert error.get("detail") is None
    assert error.text.startswith("The frame\n-----\nSEND\n")


def test_placeholders_in_client_text_are_not_expanded():
    error = says("rabbitmq", "SEND\ndestination:/queue/{code}/{destination}\n\n\0")
    assert error.text == "'/{code}/{destination}' is not a valid queue destination\n"
