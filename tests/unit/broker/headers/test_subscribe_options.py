"""SUBSCRIBE headers of every dialect, and the one value that each becomes."""

from typing import Any

import attrs
import pytest

from tests.support.core import DIALECTS
from trio_stomp.base import ProtocolError
from trio_stomp.broker.headers import (
    PREFETCH_COUNT_MAX,
    SUBSCRIBE_HEADERS,
    SubscribeOptions,
    dialect,
    durable_name,
    parse_subscribe_options,
)
from trio_stomp.broker.names import Kind
from trio_stomp.frames import Headers

ORDINARY = (("destination", "/topic/a"), ("id", "7"), ("ack", "client"))
IGNORED = (
    ("activemq.dispatchAsync", "true"),
    ("activemq.optimizedAcknowledge", "true"),
    ("activemq.maximumPendingMessageLimit", "10"),
    ("transformation", "jms-json"),
    ("x-max-length", "5"),
)


def parse(
    *headers: tuple[str, str],
    destination: str = "/topic/a",
    kind: Kind = Kind.TOPIC,
    word: str = "native",
    client_id: str = "",
) -> SubscribeOptions:
    return parse_subscribe_options(headers, destination, kind, dialect(word), client_id)


PLAIN_SUBSCRIBE = parse()
PREFETCH_COUNT, PREFETCH_BYTES = 100, 1024 * 1024


@pytest.mark.parametrize(
    ("header", "text", "field", "value"),
    [
        ("prefetch-count", "1", "prefetch_count", 1),
        ("prefetch-count", "500", "prefetch_count", 500),
        ("prefetch-count", "0", "prefetch_count", PREFETCH_COUNT_MAX),
        ("activemq.prefetchSize", "1", "prefetch_count", 1),
        ("activemq.prefetchSize", "0", "prefetch_count", 1),
        ("activemq.prefetchSize", "1000", "prefetch_count", 1000),
        ("consumer-window-size", "10240", "prefetch_bytes", 10_240),
        ("consumer-window-size", "0", "prefetch_bytes", 1),
        ("consumer-window-size", "-1", "prefetch_bytes", PREFETCH_BYTES),
        ("credit", "5", "prefetch_count", 5),
        ("credit", "5,0", "prefetch_count", 5),
        ("credit", "0", "prefetch_count", PREFETCH_COUNT_MAX),
        ("credit", "0,0", "prefetch_count", 1),
        ("selector", "colour = 'red'", "selector", "colour = 'red'"),
        ("selector", "", "selector", ""),
        ("x-priority", "10", "priority", 10),
        ("x-priority", "-10", "priority", -10),
        ("activemq.priority", "127", "priority", 127),
        ("browser", "true", "browser", True),
        ("browser", "false", "browser", False),
        ("browser-end", "false", "browser_end", False),
        ("browser-end", "true", "browser_end", True),
        ("no-local", "true", "no_local", True),
        ("no-local", "false", "no_local", False),
        ("activemq.noLocal", "True", "no_local", True),
        ("activemq.retroactive", "true", "retroactive", True),
    ],
)
@pytest.mark.parametrize("word", DIALECTS)
def test_a_header_sets_one_field(word: str, header: str, text: str, field: str, value: Any) -> None:
    options = parse(*ORDINARY, (header, text), word=word)
    expected: dict[str, Any] = {field: value}
    assert options == attrs.evolve(PLAIN_SUBSCRIBE, **expected)


@pytest.mark.parametrize(
    ("text", "count", "size"),
    [("5,1024", 5, 1024), ("0,1024", PREFETCH_COUNT_MAX, 1024), (" 5 , 1 ", 5, 1)],
)
def test_credit_sets_both_windows(text: str, count: int, size: int) -> None:
    expected = SubscribeOptions(prefetch_count=count, prefetch_bytes=size)
    assert parse(("credit", text)) == expected


@pytest.mark.parametrize(
    ("headers", "count", "size"),
    [
        ((("prefetch-count", "3"), ("consumer-window-size", "9")), 3, 9),
        ((("prefetch-count", "3"), ("activemq.prefetchSize", "4")), 3, PREFETCH_BYTES),
        ((("activemq.prefetchSize", "4"), ("prefetch-count", "3")), 4, PREFETCH_BYTES),
        ((("prefetch-count", "3"), ("credit", "5,9")), 3, 9),
        ((("consumer-window-size", "-1"), ("credit", "5,9")), 5, 9),
        ((), PREFETCH_COUNT, PREFETCH_BYTES),
    ],
)
def test_the_first_of_two_aliases_counts(headers: Headers, count: int, size: int) -> None:
    expected = SubscribeOptions(prefetch_count=count, prefetch_bytes=size)
    assert parse(*headers) == expected


@pytest.mark.parametrize(
    ("header", "text", "rule"),
    [
        ("prefetch-count", "many", "a whole number"),
        ("prefetch-count", "-1", "a whole number, 0 or more"),
        ("activemq.prefetchSize", "1.5", "a whole number"),
        ("activemq.prefetchSize", "-1", "a whole number, 0 or more"),
        ("consumer-window-size", "-2", "a whole number, -1 or more"),
        ("consumer-window-size", "10k", "a whole number"),
        ("x-priority", "high", "a whole number"),
        ("activemq.priority", "", "a whole number"),
    ],
)
def test_bad_value_is_reported_with_header_and_rule(header: str, text: str, rule: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse(*ORDINARY, (header, text))
    assert caught.value.code == "invalid-header-value"
    assert caught.value.message == f"{header}:{text} is not {rule}"


@pytest.mark.parametrize("text", ["", "all", "5,", ",5", "5,all", "5,1,true", "-1", "5,-1"])
def test_bad_credit_is_reported(text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse(("credit", text))
    assert caught.value.code == "invalid-header-value"
    assert caught.value.message.startswith("credit:")


@pytest.mark.parametrize("word", DIALECTS)
def test_nothing_special_is_one_shared_value(word: str) -> None:
    assert parse(*ORDINARY, *IGNORED, word=word) is PLAIN_SUBSCRIBE


@pytest.mark.parametrize(
    ("word", "header", "kind", "exclusive"),
    [
        ("native", "exclusive", Kind.WORK, True),
        ("native", "exclusive", Kind.TOPIC, False),
        ("native", "exclusive", Kind.DIAG, False),
        ("apollo", "exclusive", Kind.WORK, True),
        ("activemq", "exclusive", Kind.WORK, True),
        ("rabbitmq", "exclusive", Kind.WORK, False),
        ("rabbitmq", "exclusive", Kind.TOPIC, False),
        ("rabbitmq", "activemq.exclusive", Kind.WORK, True),
        ("native", "activemq.exclusive", Kind.WORK, True),
        ("activemq", "activemq.exclusive", Kind.TOPIC, False),
    ],
)
def test_exclusive_by_dialect_and_kind(word: str, header: str, kind: Kind, exclusive: bool) -> None:
    options = parse((header, "true"), kind=kind, word=word)
    assert options == SubscribeOptions(exclusive=exclusive)
    assert parse((header, "false"), kind=kind, word=word) is PLAIN_SUBSCRIBE


NAMED: list[tuple[Headers, str]] = [
    ((("durable-subscription-name", "n"),), "\0n"),
    ((("durable-subscriber-name", "n"),), "\0n"),
    ((("activemq.subscriptionName", "n"),), "\0n"),
    ((("activemq.subcriptionName", "n"),), "\0n"),
    ((("client-id", "c"), ("activemq.subscriptionName", "n")), "c\0n"),
    ((("durable", "true"), ("id", "n")), "\0n"),
    ((("persistent", "true"), ("id", "n")), "\0n"),
    ((("durable", "true"), ("auto-delete", "false"), ("id", "n")), "\0n"),
    ((("durable", "true"), ("id", "i"), ("x-queue-name", "n")), "\0n"),
    ((("durable", "true"), ("id", "n"), ("client-id", "c")), "c\0n"),
    (
        (("activemq.subscriptionName", "3"), ("durable-subscriber-name", "1")),
        "\0" + "1",
    ),
    (
        (("activemq.subscriptionName", "3"), ("durable-subscription-name", "2")),
        "\0" + "2",
    ),
    ((("durable-subscription-name", ""), ("activemq.subscriptionName", "3")), "\0" + "3"),
    ((("durable", "true"), ("id", "i"), ("activemq.subscriptionName", "n")), "\0n"),
    ((("id", "n"),), ""),
    ((("durable", "false"), ("id", "n")), ""),
    ((("durable", "true"), ("auto-delete", "true"), ("id", "n")), ""),
    ((("durable-subscription-name", ""), ("id", "n")), ""),
    ((), ""),
]


@pytest.mark.parametrize(("headers", "name"), NAMED)
def test_the_name_of_a_durable_subscription(headers: Headers, name: str) -> None:
    assert parse(*headers) == SubscribeOptions(durable=name)


@pytest.mark.parametrize(("headers", "name"), NAMED)
def test_unsubscribe_names_it_in_the_same_way(headers: Headers, name: str) -> None:
    assert durable_name(headers) == name


def test_the_client_id_of_connect_comes_first() -> None:
    headers = (("client-id", "theirs"), ("durable-subscription-name", "n"))
    assert parse(*headers, client_id="mine").durable == "mine\0n"
    assert durable_name(headers, "mine") == "mine\0n"


@pytest.mark.parametrize("kind", [Kind.WORK, Kind.DIAG])
def test_only_a_topic_is_subscribed_to_durably(kind: Kind) -> None:
    headers = (("durable", "true"), ("id", "n"), ("activemq.subscriptionName", "n"))
    assert parse(*headers, kind=kind) is PLAIN_SUBSCRIBE


def test_a_durable_subscription_needs_a_name() -> None:
    with pytest.raises(ProtocolError) as caught:
        parse(("durable", "true"))
    assert caught.value.code == "header-missing"
    with pytest.raises(ProtocolError):
        durable_name((("persistent", "true"), ("id", "")))


def test_dsub_is_the_shared_durable_subscription_itself() -> None:
    options = parse(("id", "0"), destination="/dsub/mine", client_id="c")
    assert options == SubscribeOptions(durable="\0mine")
    assert parse(destination="/dsub/mine", word="stompica") is PLAIN_SUBSCRIBE


def test_every_alias_leads_to_a_field() -> None:
    fields = {field.name for field in attrs.fields(SubscribeOptions)}
    read = {"selector": "x", "credit": "1,1", "browser-end": "false"}
    number = {"x-priority", "activemq.priority", "consumer-window-size", "activemq.prefetchSize"}
    found: set[str] = set()
    for header in SUBSCRIBE_HEADERS:
        text = read.get(header, "1" if header in {*number, "prefetch-count"} else "true")
        options = parse((header, text), kind=Kind.QUEUE)
        set_here = {
            each for each in fields if getattr(options, each) != getattr(SubscribeOptions(), each)
        }
        assert set_here, header
        found |= set_here
    assert found == fields - {"durable", "shared"}
