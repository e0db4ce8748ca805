"""The dialects: their conflicts, and the mapping of their destinations."""

import pytest

from tests.support.core import DIALECTS
from tests.support.limits import MAX_COMPOSITE
from trio_stomp.base import OptionError, ProtocolError
from trio_stomp.broker.headers import Dialect, dialect, resolve, routing_of
from trio_stomp.frames import Headers

TRANSLATING = [word for word in DIALECTS if word != "stompica"]
COMPOSING = ["native", "activemq", "apollo"]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("exclusive_means_private", {"rabbitmq"}),
        ("redelivered_always", {"rabbitmq"}),
        ("is_lenient", {"rabbitmq"}),
        ("keeps_socket_after_error", {"stompica"}),
        ("keeps_socket_after_disconnect", {"stompica"}),
        ("allows_repeated_subscription_id", {"stompica"}),
        ("refuses_client_message_id", {"rabbitmq"}),
        ("connected_answers", {"activemq", "artemis"}),
        ("composite_destinations", set(COMPOSING)),
        ("destination_aliases", set(TRANSLATING)),
        ("expiration_zero_is_now", {"rabbitmq"}),
        ("queue_arguments_must_agree", {"rabbitmq"}),
    ],
)
def test_source_of_each_dialect_setting(field: str, words: set[str]) -> None:
    assert {word for word in DIALECTS if getattr(dialect(word), field)} == words


def test_only_stompica_has_the_wildcards_of_the_seed() -> None:
    assert {word: dialect(word).wildcards for word in DIALECTS} == {
        **dict.fromkeys(TRANSLATING, "native"),
        "stompica": "seed",
    }


def test_each_dialect_has_its_word() -> None:
    assert [dialect(word).word for word in DIALECTS] == list(DIALECTS)
    assert Dialect("new") == Dialect("new")


def test_unknown_dialect_is_reported_with_the_known_ones() -> None:
    with pytest.raises(OptionError) as caught:
        dialect("amqp")
    assert str(caught.value) == f"dialect is 'amqp', but must be one of {', '.join(DIALECTS)}"


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("/queue/a", "/queue/a"),
        ("/topic/a", "/topic/a"),
        ("", ""),
        ("#jobs", "#jobs"),
        ("DIAG/session", "DIAG/session"),
        ("/temp-queue/a", "/temp-queue/a"),
        ("/temp-topic/a", "/temp-topic/a"),
        ("/reply-queue/a", "/reply-queue/a"),
        ("/amq/queue/a", "/queue/a"),
        ("/amq/queue/a/b", "/queue/a/b"),
        ("/amq/other", "/amq/other"),
        ("/amq", "/amq"),
        ("/exchange/amq.topic/prices.eu", "/topic/prices.eu"),
        ("/exchange/amq.topic/prices.#", "/topic/prices.#"),
        ("/exchange/orders/new.eu", "/exchange/orders/new.eu"),
        ("/exchange/orders", "/exchange/orders"),
        ("/exchange/amq.fanout", "/exchange/amq.fanout"),
        ("/exchange/amq.fanout/whatever", "/exchange/amq.fanout"),
        ("/exchange/amq.direct/k", "/exchange/amq.direct/k"),
        ("/remote-temp-queue/ID:1", "/reply-queue/ID:1"),
        ("/remote-temp-topic/ID:1", "/reply-topic/ID:1"),
        ("/dsub/mine", "/dsub/mine"),
    ],
)
@pytest.mark.parametrize("word", TRANSLATING)
def test_a_name_of_another_broker_is_translated(word: str, name: str, own: str) -> None:
    assert resolve(name, dialect(word)) == (own,)


@pytest.mark.parametrize("name", ["/queue", "/", "orders", "queue://a", "/exchanges", "/queue/a/b"])
@pytest.mark.parametrize("word", ["native", "artemis", "apollo"])
def test_any_other_name_is_itself(word: str, name: str) -> None:
    assert resolve(name, dialect(word)) == (name,)


@pytest.mark.parametrize("word", ["native", "activemq", "artemis", "apollo"])
def test_a_key_of_an_exchange_may_have_slashes_elsewhere(word: str) -> None:
    assert resolve("/exchange/amq.topic/a/b", dialect(word)) == ("/topic/a/b",)


@pytest.mark.parametrize("word", ["rabbitmq", "activemq"])
def test_a_bare_name_is_a_queue_where_it_is_one_in_their_brokers(word: str) -> None:
    """It was a topic here, so a message was confirmed and lost (S4)."""
    for name in ("orders", "a.b", "*"):
        assert resolve(name, dialect(word)) == (f"/queue/{name}",)
        assert resolve(name, dialect(word), "MULTICAST") == (name,)


@pytest.mark.parametrize("word", TRANSLATING)
def test_a_queue_has_a_name(word: str) -> None:
    with pytest.raises(ProtocolError, match=r"is none of|names no queue; write /queue/<name>"):
        resolve("/queue/", dialect(word))


@pytest.mark.parametrize(
    "name",
    [
        "/foo/bar",
        "/queue",
        "/topic",
        "/queue/a/b",
        "/topic/a/b",
        "queue/a",
        "/",
        "/exchanges",
        "/exchange/amq.topic/a/b",
    ],
)
def test_rabbitmq_dialect_refuses_the_same_destinations_as_rabbitmq(name: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        resolve(name, dialect("rabbitmq"))
    assert caught.value.code == "invalid-destination"
    assert f"destination:{name} is none of RabbitMQ's; write /queue/<name>" in caught.value.message


def test_the_brokers_own_names_are_taken_in_the_dialect_rabbitmq_too() -> None:
    for name in ("/stream/DIAG", "/queue/DLQ.topic/a", "DIAG/session", "#work/a", "/dsub/x"):
        assert resolve(name, dialect("rabbitmq")) == (name,)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("jms.queue.a", "/queue/a"),
        ("jms.topic.a.b", "/topic/a.b"),
        ("orders::late", "/queue/late"),
        ("::late", "::late"),
        ("orders::", "orders::"),
    ],
)
def test_addresses_of_artemis(name: str, own: str) -> None:
    assert resolve(name, dialect("artemis")) == (own,)
    assert resolve(name, dialect("native")) == (name,)


@pytest.mark.parametrize(
    "name",
    [
        "/exchange",
        "/exchange/",
        "/exchange//k",
        "/exchange/amq.topic",
        "/exchange/amq.topic/",
        "/remote-temp-queue/",
        "/remote-temp-topic",
        "/dsub/",
        "/dsub",
    ],
)
@pytest.mark.parametrize("word", TRANSLATING)
def test_a_name_that_means_nothing(word: str, name: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        resolve(name, dialect(word))
    assert caught.value.code == "invalid-destination"
    assert caught.value.message.startswith(f"destination:{name} names no ")


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("/queue/a,/queue/b", ("/queue/a", "/queue/b")),
        ("/queue/a,b,c", ("/queue/a", "/queue/b", "/queue/c")),
        ("/topic/a,b", ("/topic/a", "/topic/b")),
        ("/queue/a,/topic/b", ("/queue/a", "/topic/b")),
        ("/queue/a,/topic/b,c", ("/queue/a", "/topic/b", "/queue/c")),
        ("/temp-queue/a,b", ("/temp-queue/a", "/temp-queue/b")),
        ("/temp-topic/a,b", ("/temp-topic/a", "/temp-topic/b")),
        ("/queue/a,#jobs,DIAG/mine", ("/queue/a", "#jobs", "DIAG/mine")),
        (" /queue/a , b ", ("/queue/a", "/queue/b")),
        ("/queue/a,,b,", ("/queue/a", "/queue/b")),
        ("/queue/a,", ("/queue/a",)),
        ("/queue/a,a,/queue/a", ("/queue/a",)),
        ("/queue/a,/amq/queue/a,/exchange/amq.topic/k", ("/queue/a", "/topic/k")),
    ],
)
@pytest.mark.parametrize("word", COMPOSING)
def test_composites(word: str, name: str, own: tuple[str, ...]) -> None:
    assert resolve(name, dialect(word)) == own


def test_bare_parts_of_a_composite_mean_the_same_as_a_bare_name() -> None:
    for word, bare in (("native", ""), ("apollo", ""), ("activemq", "/queue/")):
        assert resolve("a,b", dialect(word)) == (f"{bare}a", f"{bare}b")
        assert resolve("/exchange/amq.topic/k,b", dialect(word)) == ("/topic/k", f"{bare}b")


@pytest.mark.parametrize("word", [word for word in DIALECTS if word not in COMPOSING])
def test_elsewhere_a_comma_is_part_of_the_name(word: str) -> None:
    assert resolve("/queue/a,b", dialect(word)) == ("/queue/a,b",)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (",", "without a destination"),
        (" , ,", "without a destination"),
        ("/queue/a,topic://b", "'topic://b'; in STOMP that is written"),
        ("/queue/a,queue://b", "'queue://b'"),
        ("/queue/a,temp-queue://b", "'temp-queue://b'"),
        ("queue://a,b", "'queue://a'"),
        (",".join(["a"] * (MAX_COMPOSITE + 1)), f"the limit is {MAX_COMPOSITE}"),
    ],
)
def test_bad_composites(name: str, expected: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        resolve(name, dialect("native"))
    assert caught.value.code == "invalid-destination"
    assert expected in caught.value.message
    assert len(caught.value.message) < 200


def test_a_composite_of_the_greatest_length_is_accepted() -> None:
    name = ",".join(f"/queue/{number}" for number in range(MAX_COMPOSITE))
    assert len(resolve(name, dialect("native"))) == MAX_COMPOSITE


@pytest.mark.parametrize(
    ("name", "anycast"),
    [
        ("orders", "/queue/orders"),
        ("orders.*", "/queue/orders.*"),
        ("/queue/orders", "/queue/orders"),
        ("/topic/orders", "/topic/orders"),
        ("/temp-queue/a", "/temp-queue/a"),
        ("/temp-topic/a", "/temp-topic/a"),
        ("/reply-queue/a", "/reply-queue/a"),
        ("/exchange/a/b", "/exchange/a/b"),
        ("/dsub/a", "/dsub/a"),
        ("#jobs", "#jobs"),
        ("DIAG/mine", "DIAG/mine"),
    ],
)
@pytest.mark.parametrize("word", TRANSLATING)
def test_artemis_routing_decides_the_kind_of_a_bare_name(
    word: str, name: str, anycast: str
) -> None:
    assert resolve(name, dialect(word), "ANYCAST") == (anycast,)
    assert resolve(name, dialect(word), "MULTICAST") == (name,)


@pytest.mark.parametrize(
    ("name", "anycast"),
    [("/orders", "/queue/orders"), ("/queuefoo", "/queue/queuefoo"), ("/queue", "/queue")],
)
def test_artemis_routing_of_a_name_with_a_slash(name: str, anycast: str) -> None:
    assert resolve(name, dialect("artemis"), "ANYCAST") == (anycast,)
    assert resolve(name, dialect("artemis"), "MULTICAST") == (name,)


def test_routing_of_a_composite() -> None:
    own = resolve("a,/topic/b", dialect("native"), "ANYCAST")
    assert own == ("/queue/a", "/topic/b")


@pytest.mark.parametrize("name", ["/exchange/", "/amq/queue/a", "/dsub/", "/queue/a,b", "a"])
def test_to_stompica_names_are_opaque(name: str) -> None:
    assert resolve(name, dialect("stompica"), "ANYCAST") == (name,)


@pytest.mark.parametrize(
    ("headers", "routing"),
    [
        ((), ""),
        ((("destination", "a"), ("id", "1")), ""),
        ((("destination", "a"), ("subscription-type", "ANYCAST")), "ANYCAST"),
        ((("destination-type", "multicast "),), "MULTICAST"),
        ((("destination-type", "ANYCAST"), ("subscription-type", "MULTICAST")), "ANYCAST"),
    ],
)
def test_routing_of_headers(headers: Headers, routing: str) -> None:
    assert routing_of(headers) == routing


def test_a_bad_routing_word() -> None:
    with pytest.raises(ProtocolError) as caught:
        routing_of((("subscription-type", "QUEUE"),))
    assert caught.value.code == "invalid-header-value"
    assert caught.value.message == "subscription-type:QUEUE is not ANYCAST or MULTICAST"
