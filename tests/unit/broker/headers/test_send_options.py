"""SEND headers of every dialect, and the one value that each becomes."""

from typing import Any

import attrs
import pytest

from tests.support.core import DIALECTS
from trio_stomp.base import MAX_INTEGER, ProtocolError
from trio_stomp.broker.headers import PLAIN_SEND, SendOptions, dialect
from trio_stomp.broker.headers import _send_options as module
from trio_stomp.frames import Headers

NATIVE = dialect("native")
RABBITMQ = dialect("rabbitmq")

ORDINARY = (
    ("destination", "/queue/a"),
    ("content-type", "text/plain"),
    ("content-length", "5"),
    ("correlation-id", "7"),
    ("type", "order"),
    ("timestamp", "1700000000000"),
    ("amq-msg-type", "text"),
    ("JMSXGroupSeq", "1"),
)


@pytest.mark.parametrize(
    ("header", "text", "field", "value"),
    [
        ("priority", "0", "priority", 0),
        ("priority", "7", "priority", 7),
        ("priority", "9", "priority", 9),
        ("priority", "10", "priority", 9),
        ("priority", "255", "priority", 9),
        ("priority", "-1", "priority", 0),
        ("priority", " 6 ", "priority", 6),
        ("priority", "+5", "priority", 5),
        ("expires", "0", "expires_ms", 0),
        ("expires", "1700000000000", "expires_ms", 1_700_000_000_000),
        ("expires", "9223372036854775807", "expires_ms", 2**63 - 1),
        ("expiration", "5000", "ttl_ms", 5000),
        ("expiration", "0", "ttl_ms", 0),
        ("ttl", "250", "ttl_ms", 250),
        ("JMSXGroupID", "blue", "group", "blue"),
        ("message_group", "hiram", "group", "hiram"),
        ("retain", "set", "retain", "set"),
        ("retain", "true", "retain", "set"),
        ("retain", "True", "retain", "set"),
        ("retain", "remove", "retain", "remove"),
        ("retain", "false", "retain", ""),
        ("retain", "", "retain", ""),
        ("persistent", "true", "persistent", True),
        ("persistent", "True", "persistent", True),
        ("persistent", "false", "persistent", False),
        ("persistent", "yes", "persistent", False),
        ("max-exceptions", "2", "max_exceptions", 2),
        ("priority", "-" + "9" * 5000, "priority", 0),
        ("priority", "+" + "9" * 5000, "priority", 9),
        ("ttl", "0" * 5000 + "7", "ttl_ms", 7),
        ("ttl", "9" * 5000, "ttl_ms", MAX_INTEGER),
        ("expires", str(2**64), "expires_ms", MAX_INTEGER),
        ("max-exceptions", "0", "max_exceptions", 0),
        ("reply-to", "/temp-queue/me", "reply_to", "/temp-queue/me"),
        ("x-dedup-id", "42", "dedup_id", "42"),
        ("_AMQ_DUPL_ID", "42", "dedup_id", "42"),
        ("AMQ_SCHEDULED_DELAY", "60000", "scheduled", True),
        ("AMQ_SCHEDULED_TIME", "1700000000000", "scheduled", True),
        ("AMQ_SCHEDULED_PERIOD", "10", "scheduled", True),
        ("AMQ_SCHEDULED_REPEAT", "3", "scheduled", True),
        ("AMQ_SCHEDULED_CRON", "0 * * * *", "scheduled", True),
        ("destination-type", "ANYCAST", "routing", "ANYCAST"),
        ("destination-type", "multicast", "routing", "MULTICAST"),
        ("subscription-type", "ANYCAST", "routing", "ANYCAST"),
    ],
)
@pytest.mark.parametrize("word", DIALECTS)
def test_a_header_sets_one_field_in_its_dialects(
    word: str, header: str, text: str, field: str, value: Any
) -> None:
    options = module.parse_send_options((*ORDINARY, (header, text)), dialect(word))
    if header not in module._BY_DIALECT[word]:
        assert options is PLAIN_SEND
        return
    if word == "rabbitmq" and (header, text) == ("expiration", "0"):
        value = 1
    expected: dict[str, Any] = {field: value}
    if field in ("expires_ms", "ttl_ms", "dedup_id"):
        expected["once"] = (header,)
    assert options == attrs.evolve(PLAIN_SEND, **expected)


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("priority", "high"),
        ("priority", ""),
        ("priority", "4.0"),
        ("priority", "1_0"),
        ("priority", "٤"),
        ("expires", "tomorrow"),
        ("expires", "-1"),
        ("expiration", "5s"),
        ("ttl", "-5"),
        ("max-exceptions", "-1"),
        ("retain", "forever"),
        ("destination-type", "BROADCAST"),
    ],
)
def test_a_bad_value_is_the_programs_own(header: str, text: str) -> None:
    """I2: it ended the connection."""
    options = module.parse_send_options((*ORDINARY, (header, text)), NATIVE)
    assert attrs.evolve(options, once=()) == attrs.evolve(PLAIN_SEND, ignored=header)


def test_each_bad_value_is_reported_and_an_alias_counts_instead() -> None:
    headers = (("ttl", "1h"), ("priority", "high"), ("expiration", "7"))
    assert module.parse_send_options(headers, NATIVE) == SendOptions(
        ttl_ms=7, once=("ttl", "expiration"), ignored="ttl,priority"
    )


@pytest.mark.parametrize("word", DIALECTS)
def test_nothing_special_is_one_shared_value(word: str) -> None:
    assert module.parse_send_options(ORDINARY, dialect(word)) is PLAIN_SEND
    assert module.parse_send_options((), dialect(word)) is PLAIN_SEND


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((("ttl", "1"), ("expiration", "2")), SendOptions(ttl_ms=1, once=("ttl", "expiration"))),
        (
            (("expiration", "2"), ("ttl", "1")),
            SendOptions(ttl_ms=2, once=("expiration", "ttl")),
        ),
        ((("message_group", "a"), ("JMSXGroupID", "b")), SendOptions(group="a")),
        (
            (("_AMQ_DUPL_ID", "a"), ("x-dedup-id", "b")),
            SendOptions(dedup_id="a", once=("_AMQ_DUPL_ID", "x-dedup-id")),
        ),
        (
            (("expires", "9"), ("ttl", "1")),
            SendOptions(expires_ms=9, ttl_ms=1, once=("expires", "ttl")),
        ),
    ],
)
def test_the_first_of_two_aliases_counts(headers: Headers, expected: SendOptions) -> None:
    assert module.parse_send_options(headers, NATIVE) == expected


def test_many_headers_at_once() -> None:
    headers = (("priority", "9"), ("persistent", "true"), ("reply-to", "/temp-queue/a"))
    assert module.parse_send_options(headers, NATIVE) == SendOptions(
        priority=9, persistent=True, reply_to="/temp-queue/a"
    )


@pytest.mark.parametrize(("text", "ttl_ms"), [("0", 1), ("1", 1), ("5000", 5000)])
def test_rabbitmq_ends_a_life_of_zero_at_once(text: str, ttl_ms: int) -> None:
    assert module.parse_send_options((("expiration", text),), RABBITMQ).ttl_ms == ttl_ms


def test_rabbitmq_refuses_a_message_id() -> None:
    with pytest.raises(ProtocolError) as caught:
        module.parse_send_options((*ORDINARY, ("message-id", "mine")), RABBITMQ)
    assert caught.value.code == "header-not-allowed"
    assert "message-id:mine" in caught.value.message


@pytest.mark.parametrize("word", [word for word in DIALECTS if word != "rabbitmq"])
def test_the_others_take_no_notice_of_a_message_id(word: str) -> None:
    headers = (*ORDINARY, ("message-id", "mine"), ("redelivered", "true"))
    assert module.parse_send_options(headers, dialect(word)) is PLAIN_SEND


def test_every_alias_leads_to_a_field() -> None:
    fields = {field.name for field in attrs.fields(SendOptions)}
    named = {field for _, (field, _), _ in module._ROWS}
    assert named | {"dedup_line", "once", "ignored"} == fields
