"""Policies per destination pattern: their fields, and which of them holds."""

from typing import Any

import attrs
import pytest

from tests.support.core import Core
from trio_stomp.base import OptionError
from trio_stomp.broker import BrokerPolicies
from trio_stomp.broker.routing import DestinationPolicy, PolicyBook, read_policy

DEFAULT_POLICY = PolicyBook().policy_for("/queue/a")


def policy(number: int) -> DestinationPolicy:
    return DestinationPolicy(ttl_ms=number)


def test_the_defaults_keep_every_message() -> None:
    assert DestinationPolicy() == DEFAULT_POLICY
    assert attrs.asdict(DEFAULT_POLICY) == {
        "ttl_ms": 0,
        "max_messages": 0,
        "max_bytes": 0,
        "overflow": "reject",
        "max_redeliveries": 4,
        "backoff_s": (0, 1, 2, 4),
        "dead_letter": "",
        "dead_letter_expired": False,
        "slow_consumer": "disconnect",
        "priority": True,
        "exclusive": False,
        "ack_timeout_ms": 0,
        "dedup_window": 10_000,
        "persistent": "header",
        "stream": False,
        "stream_max_bytes": 256 * 1024 * 1024,
        "stream_max_age_ms": 86_400_000,
        "retain": "header",
    }


ONE_FOR_ALL = "must be one queue, work queue or topic that exists for all clients"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ttl_ms", 5000),
        ("max_messages", 0),
        ("max_bytes", 1 << 40),
        ("overflow", "drop-oldest"),
        ("overflow", "drop-newest"),
        ("overflow", "dead-letter"),
        ("overflow", "block"),
        ("max_redeliveries", 0),
        ("backoff_s", []),
        ("backoff_s", [0.5]),
        ("backoff_s", (1, 2.5)),
        ("backoff_s", [86_400]),
        ("dead_letter", "/queue/dead"),
        ("dead_letter", "/topic/dead"),
        ("dead_letter_expired", True),
        ("slow_consumer", "drop-oldest"),
        ("priority", False),
        ("exclusive", True),
        ("ack_timeout_ms", 30_000),
        ("dedup_window", 0),
        ("persistent", "always"),
        ("retain", "never"),
    ],
)
def test_a_field_is_set(field: str, value: Any) -> None:
    made = read_policy("/queue/>", {field: value})
    expected: dict[str, Any] = {field: tuple(value) if isinstance(value, list) else value}
    assert made == attrs.evolve(DEFAULT_POLICY, **expected)
    assert hash(made) == hash(made)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("ttl_ms", -1, "must be 0 or more"),
        ("ttl_ms", 1.5, "must be a whole number"),
        ("ttl_ms", True, "must be a whole number"),
        ("ttl_ms", "5s", "must be a whole number"),
        ("max_messages", -1, "must be 0 or more"),
        ("max_bytes", -5, "must be 0 or more"),
        ("overflow", "drop", "must be one of reject, drop-oldest, drop-newest, dead-letter, block"),
        ("overflow", None, "must be text"),
        ("max_redeliveries", -1, "must be 0 or more"),
        ("backoff_s", 1.0, "must be a list of numbers"),
        ("backoff_s", [True], "must be a list of numbers"),
        ("backoff_s", ["1"], "must be a list of numbers"),
        ("backoff_s", [-1], "each number must be between 0 and 86400"),
        ("backoff_s", [float("nan")], "each number must be between 0 and 86400"),
        ("backoff_s", [float("inf")], "each number must be between 0 and 86400"),
        ("dead_letter", "/queue/*", ONE_FOR_ALL),
        ("dead_letter", "DIAG/session", ONE_FOR_ALL),
        ("dead_letter", "/queue/b,/queue/c", ONE_FOR_ALL),
        ("dead_letter", "/stream/topic/x", ONE_FOR_ALL),
        ("dead_letter", "/temp-queue/x", ONE_FOR_ALL),
        ("dead_letter_expired", 1, "must be true or false"),
        ("slow_consumer", "wait", "must be one of disconnect, drop-oldest, drop-newest"),
        ("persistent", "yes", "must be one of header, always, never"),
        ("retain", "set", "must be one of header, always, never"),
    ],
)
def test_bad_value_is_reported_with_pattern_field_and_rule(
    field: str, value: Any, rule: str
) -> None:
    with pytest.raises(OptionError) as caught:
        read_policy("/queue/>", {field: value})
    assert str(caught.value) == f"policy '/queue/>': {field} is {value!r}, but {rule}"


def test_an_enormous_backoff_is_no_crash() -> None:
    with pytest.raises(OptionError):
        read_policy("/queue/>", {"backoff_s": [10**400]})


def test_unknown_field_is_reported_with_the_known_ones() -> None:
    with pytest.raises(OptionError) as caught:
        read_policy("/queue/a", {"max_message": 5})
    message = str(caught.value)
    assert message.startswith("policy '/queue/a': unknown field 'max_message'; there are ttl_ms,")
    assert "max_messages" in message


def test_missing_fields_come_from_the_base() -> None:
    base = DestinationPolicy(max_redeliveries=9, ttl_ms=5)
    assert read_policy("/queue/a", {"ttl_ms": 7}, base) == attrs.evolve(base, ttl_ms=7)
    assert read_policy("/queue/a", {}, base) == base


def test_made_by_hand_it_checks_the_same() -> None:
    with pytest.raises(ValueError, match="max_messages is -1, but must be 0 or more"):
        DestinationPolicy(max_messages=-1)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        DEFAULT_POLICY.ttl_ms = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("backoff_s", "delays"),
    [
        ((0, 1, 2, 4), [0, 1, 2, 4, 4, 4]),
        ((3,), [3, 3, 3]),
        ((), [0, 0, 0]),
    ],
)
def test_the_wait_before_a_redelivery(backoff_s: tuple[float, ...], delays: list[float]) -> None:
    made = DestinationPolicy(backoff_s=backoff_s)
    assert [made.delay_s(failures) for failures in range(1, len(delays) + 1)] == delays


@pytest.mark.parametrize(
    ("dead_letter", "name", "target"),
    [
        ("", "/queue/orders", "/queue/DLQ.orders"),
        ("", "/queue/a/b", "/queue/DLQ.a/b"),
        ("", "#jobs", "/queue/DLQ.jobs"),
        ("", "/topic/prices", "/queue/DLQ.topic/prices"),
        ("", "bare", "/queue/DLQ.bare"),
        ("", "/queue/DLQ.orders", ""),
        ("", "/queue/deadletter", ""),
        ("/queue/dead", "/queue/orders", "/queue/dead"),
        ("/queue/dead", "/queue/dead", ""),
        ("/queue/dead", "/queue/DLQ.orders", "/queue/dead"),
    ],
)
def test_dead_letter_queue_follows_from_the_option_and_the_name(
    dead_letter: str, name: str, target: str
) -> None:
    assert DestinationPolicy(dead_letter=dead_letter).dead_letter_for(name) == target


def test_an_empty_book_gives_the_default() -> None:
    assert PolicyBook().policy_for("/queue/b") is DEFAULT_POLICY
    default = policy(7)
    assert PolicyBook(default=default).policy_for("/queue/a") is default


@pytest.mark.parametrize(
    ("name", "ttl_ms"),
    [
        ("/queue/orders.eu", 1),
        ("/queue/orders.us", 2),
        ("/queue/orders", 2),
        ("/queue/late", 3),
        ("/queue/late.too", 3),
        ("/topic/prices.eu", 5),
        ("/topic/prices.eu.x", 0),
        ("#jobs", 6),
        ("bare", 0),
    ],
)
def test_the_first_that_matches_counts(name: str, ttl_ms: int) -> None:
    book = PolicyBook(
        [
            ("/queue/orders.eu", policy(1)),
            ("/queue/orders.>", policy(2)),
            ("/queue/>", policy(3)),
            ("/queue/late", policy(4)),
            ("/topic/prices.*", policy(5)),
            ("#jobs", policy(6)),
        ]
    )
    assert book.policy_for(name).ttl_ms == ttl_ms


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("*", {"/queue/a", "/queue/monitoring", "/topic/a", "a"}),
        (">", {"/queue/a", "/queue/monitoring", "/topic/a", "a"}),
        ("/queue/>", {"/queue/a", "/queue/monitoring"}),
        ("/queue/DLQ.>", {"/queue/DLQ.a"}),
        ("/queue/DLQ*", {"/queue/DLQ.a"}),
        ("/queue/DLQ.a", {"/queue/DLQ.a"}),
        ("/queue/monitor", {"/queue/monitor"}),
        ("/queue/monitor*", {"/queue/monitor", "/queue/monitoring"}),
        ("/queue/deadletter", {"/queue/deadletter"}),
        ("/queue/d*", set()),
    ],
)
def test_a_wildcard_leaves_out_the_dead_and_the_brokers_own(
    pattern: str, matched: set[str]
) -> None:
    names = {"/queue/a", "/queue/monitoring", "/topic/a", "a"}
    names |= {"/queue/DLQ.a", "/queue/monitor", "/queue/deadletter"}
    book = PolicyBook([(pattern, policy(1))])
    assert {name for name in names if book.policy_for(name).ttl_ms} == matched


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["/queue/a", "/queue/a"], "policy '/queue/a': pattern is '/queue/a', but is there twice"),
        (["/queue/>", "/queue/>"], "policy '/queue/>': pattern is '/queue/>', but is there twice"),
        ([""], "policy '': pattern is '', but must not be empty"),
        (["/queue/a*b"], "policy '/queue/a*b': "),
        (["/queue/>.a"], "policy '/queue/>.a': "),
    ],
)
def test_bad_pattern_is_reported(patterns: list[str], expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        PolicyBook([(pattern, policy(1)) for pattern in patterns])
    assert str(caught.value).startswith(expected)


def test_where_names_the_policy_in_force_and_its_line() -> None:
    book = PolicyBook(
        [("/queue/a", policy(1)), ("/queue/>", policy(2)), ("/topic/t", policy(3))],
        locations={"/queue/>": " (policies.toml:7)"},
    )
    assert book.where("/queue/b") == "'/queue/>' (policies.toml:7)"
    assert book.where("/queue/a") == "'/queue/a'"
    assert book.where("/topic/t") == "'/topic/t'"
    assert book.where("/topic/u") == "none names it, so the options hold"
    assert book.where("/queue/DLQ.a") == "none names it, so the options hold"


def test_where_distinguishes_patterns_that_share_a_policy() -> None:
    shared = policy(1)
    book = PolicyBook(
        [("/queue/a", shared), ("/queue/b", shared), ("/topic/>", shared)],
        default=shared,
        locations={"/queue/b": " (policies.toml:9)"},
    )
    assert book.where("/queue/b") == "'/queue/b' (policies.toml:9)"
    assert book.where("/topic/t") == "'/topic/>'"
    assert book.where("/queue/c") == "none names it, so the options hold"


def test_books_are_values() -> None:
    assert PolicyBook([("a", policy(1))]) == PolicyBook([("a", policy(1))])
    assert PolicyBook([("a", policy(1))]) != PolicyBook([("a", policy(2))])


@pytest.mark.parametrize(
    ("name", "ttl_s"),
    [
        ("/topic/own", 5.0),
        ("/topic/other", 60.0),
        ("#w", 60.0),
        ("/queue/own", 7.0),
        ("/queue/q", 0.0),
    ],
)
def test_a_ttl_of_its_own_wins_and_that_of_the_broker_is_for_topics_and_work(
    name: str, ttl_s: float
) -> None:
    book = {"/topic/own": policy(5000), "/queue/own": policy(7000)}
    core = Core(BrokerPolicies(ttl_ms=60_000), book=book)
    assert core.broker.destinations.open(name).ttl_s == ttl_s
