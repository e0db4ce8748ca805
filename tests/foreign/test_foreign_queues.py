"""The examples of RabbitMQ's and ActiveMQ's STOMP documents, by clients that we did not write.

https://www.rabbitmq.com/docs/stomp and https://activemq.apache.org/components/classic/documentation
/stomp: headers and destinations are those of the examples. The expected results are those of the
documents; differences are stated in docs/reference/deviations.md and in the docstring.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol

import pytest

from tests.support.foreign import (
    NOTHING,
    Headers,
    Node,
    NodePeer,
    Peer,
    PythonPeer,
    node_or_skip,
    running_broker,
)

pytestmark = pytest.mark.foreign

EACH = "client-individual"
PAST = "1000000000000"
LIBRARIES = [
    (library, version) for library in ("stomp.py", "stompjs") for version in ("1.1", "1.2")
]


class Connect(Protocol):
    """Connects a client of the library and version under test."""

    def __call__(self, headers: Headers = NOTHING) -> Peer:
        """CONNECT with these headers as well."""


@pytest.fixture(scope="module")
def native() -> Iterator[int]:
    with running_broker() as port:
        yield port


@pytest.fixture(scope="module")
def rabbitmq() -> Iterator[int]:
    with running_broker("--dialect", "rabbitmq") as port:
        yield port


@pytest.fixture(scope="module")
def activemq() -> Iterator[int]:
    with running_broker("--dialect", "activemq") as port:
        yield port


@pytest.fixture(scope="module")
def artemis() -> Iterator[int]:
    with running_broker("--dialect", "artemis") as port:
        yield port


@pytest.fixture(scope="module")
def node() -> Iterator[Callable[[], Node]]:
    """Start Node with the first client that needs it."""
    made: list[Node] = []

    def get() -> Node:
        if not made:
            made.append(Node(node_or_skip()))
        return made[0]

    yield get
    for each in made:
        each.close()


Connector = Callable[[int], Connect]


@pytest.fixture(params=LIBRARIES, ids="-".join)
def connector(request: pytest.FixtureRequest, node: Callable[[], Node]) -> Iterator[Connector]:
    library, version = request.param
    peers: list[Peer] = []

    def to_port(port: int) -> Connect:
        def connect(headers: Headers = NOTHING) -> Peer:
            peer: Peer
            if library == "stompjs":
                peer = NodePeer(node(), port, version, headers)
            else:
                peer = PythonPeer(port, version, headers)
            peers.append(peer)
            return peer

        return connect

    yield to_port
    for peer in peers:
        peer.leave()


@pytest.fixture
def connect(connector: Connector, native: int) -> Connect:
    return connector(native)


NUMBERS = count(1)


@pytest.fixture
def name() -> str:
    """Return a unique word for each test, because the tests of a dialect share a broker."""
    return f"n{next(NUMBERS)}"


# RabbitMQ: queue destinations, prefetch, ACK and NACK.


def test_rabbitmq_amq_queue_is_the_queue(connect: Connect, name: str) -> None:
    """There it has to exist before; here it exists from its first use."""
    peer = connect()
    peer.subscribe(f"/amq/queue/{name}")
    peer.send(f"/queue/{name}", "a")
    peer.send(f"/amq/queue/{name}", "b")
    assert peer.bodies(2) == ["a", "b"]


def test_rabbitmq_prefetch_count_bounds_unacknowledged_messages(
    connect: Connect, name: str
) -> None:
    producer, consumer = connect(), connect()
    consumer.subscribe(f"/queue/{name}", ack="client", headers={"prefetch-count": "2"})
    for body in "abcde":
        producer.send(f"/queue/{name}", body)
    first, second = consumer.get(), consumer.get()
    assert [first.body, second.body] == ["a", "b"]
    assert consumer.is_quiet()
    consumer.ack(second)
    third, fourth = consumer.get(), consumer.get()
    assert [third.body, fourth.body] == ["c", "d"]
    assert consumer.is_quiet()


def test_rabbitmq_nack_with_requeue_false_dead_letters(connect: Connect, name: str) -> None:
    """There only with a policy; here to a dead-letter queue, with headers that can be read."""
    worker = connect()
    worker.send(f"/queue/{name}", "bad", {"app-id": "shop"})
    worker.subscribe(f"/queue/{name}", ack=EACH)
    worker.nack(worker.get(), requeue="false")
    worker.subscribe(f"/queue/DLQ.{name}", id="2")
    dead = worker.get()
    assert dead.body == "bad"
    assert dead.headers["subscription"] == "2"
    wanted = {
        "app-id": "shop",
        "destination": f"/queue/DLQ.{name}",
        "original-destination": f"/queue/{name}",
        "x-death-reason": "rejected",
        "x-death-count": "1",
        "x-first-death-queue": f"/queue/{name}",
        "x-first-death-reason": "rejected",
    }
    assert {header: dead.headers.get(header) for header in wanted} == wanted
    assert worker.is_quiet()


def test_a_message_that_kills_its_consumers_is_dead_after_five(connect: Connect, name: str) -> None:
    """RabbitMQ's classic queues and ActiveMQ's STOMP would go on without end."""
    producer = connect()
    producer.send(f"/queue/{name}", "poison")
    for delivery in range(1, 6):
        worker = connect()
        worker.subscribe(f"/queue/{name}", ack=EACH)
        message = worker.get()
        assert message.headers.get("delivery-count", "1") == str(delivery)
        worker.vanish()
    producer.subscribe(f"/queue/DLQ.{name}")
    dead = producer.get()
    assert dead.body == "poison"
    assert dead.headers["x-death-reason"] == "delivery-limit"
    assert dead.headers["x-death-count"] == "5"


# RabbitMQ: transactions.


def test_rabbitmq_transaction_of_acks(connect: Connect, name: str) -> None:
    worker = connect()
    for body in "abc":
        worker.send(f"/queue/{name}", body)
    worker.subscribe(f"/queue/{name}", ack=EACH)
    messages = [worker.get() for _ in range(3)]
    worker.begin("done")
    worker.ack(messages[0], transaction="done")
    worker.commit("done")
    worker.begin("undone")
    worker.ack(messages[1], transaction="undone")
    worker.abort("undone")
    worker.begin("open")
    worker.ack(messages[2], transaction="open")
    worker.settle()
    worker.vanish()
    heir = connect()
    heir.subscribe(f"/queue/{name}")
    assert heir.bodies(2) == ["b", "c"]
    assert heir.is_quiet()


# RabbitMQ: topics and exchanges.


def test_rabbitmq_topic_wildcards(connect: Connect, name: str) -> None:
    """The patterns of its tutorial on topics; a whole word before a dot, or the rest."""
    one, two, three = connect(), connect(), connect()
    one.subscribe(f"/topic/{name}.*.orange.*")
    two.subscribe(f"/topic/{name}.*.*.rabbit")
    three.subscribe(f"/topic/{name}.lazy.#")
    for key in ("quick.orange.rabbit", "lazy.orange.elephant", "quick.brown.fox", "lazy.pink"):
        one.send(f"/topic/{name}.{key}", key)
    one.send(f"/topic/{name}.lazy", "lazy")
    assert one.bodies(2) == ["quick.orange.rabbit", "lazy.orange.elephant"]
    assert two.bodies(1) == ["quick.orange.rabbit"]
    assert three.bodies(3) == ["lazy.orange.elephant", "lazy.pink", "lazy"]
    assert one.is_quiet()
    assert two.is_quiet()


def test_rabbitmq_exchange_amq_topic_is_topic(connect: Connect, name: str) -> None:
    peer = connect()
    peer.subscribe(f"/exchange/amq.topic/{name}.*.nyse")
    peer.send(f"/topic/{name}.ibm.nyse", "a")
    peer.send(f"/exchange/amq.topic/{name}.sun.nyse", "b")
    peer.send(f"/exchange/amq.topic/{name}.sun.nasdaq", "c")
    assert peer.bodies(2) == ["a", "b"]
    assert peer.is_quiet()


def test_rabbitmq_exchange_with_a_routing_key(connect: Connect, name: str) -> None:
    peer = connect()
    peer.subscribe(f"/exchange/{name}/red")
    peer.send(f"/exchange/{name}/blue", "a")
    peer.send(f"/topic/{name}/red", "b")
    peer.send(f"/exchange/{name}/red", "c")
    assert peer.bodies(1) == ["c"]
    assert peer.is_quiet()


# RabbitMQ: durable topic subscriptions.

DURABLE = {"durable": "true", "auto-delete": "false"}


@pytest.mark.parametrize("word", ["durable", "persistent"])
def test_rabbitmq_durable_topic_subscription(connect: Connect, name: str, word: str) -> None:
    headers = {word: "true", "auto-delete": "false"}
    subscriber, publisher = connect(), connect()
    subscriber.subscribe(f"/topic/{name}", id=f"1234-{name}", headers=headers)
    subscriber.leave()
    publisher.send(f"/topic/{name}", "missed")
    back = connect()
    back.subscribe(f"/topic/{name}", id=f"1234-{name}", headers=headers)
    assert back.bodies(1) == ["missed"]
    back.unsubscribe(f"1234-{name}", headers)
    publisher.send(f"/topic/{name}", "after the end")
    back.subscribe(f"/topic/{name}", id=f"1234-{name}", headers=headers)
    assert back.is_quiet()


def test_rabbitmq_durable_topic_subscription_is_shared_by_id(connect: Connect, name: str) -> None:
    one, two, publisher = connect(), connect(), connect()
    one.subscribe(f"/topic/{name}", id=f"s-{name}", headers=DURABLE)
    two.subscribe(f"/topic/{name}", id=f"s-{name}", headers=DURABLE)
    for body in "abcd":
        publisher.send(f"/topic/{name}", body)
    assert sorted(one.bodies(2) + two.bodies(2)) == ["a", "b", "c", "d"]
    assert one.is_quiet()
    assert two.is_quiet()


def test_rabbitmq_durable_and_transient_can_be_mixed(connect: Connect, name: str) -> None:
    durable, transient = connect(), connect()
    durable.subscribe(f"/topic/{name}", id=f"d-{name}", headers=DURABLE)
    transient.subscribe(f"/topic/{name}", id="plain")
    transient.send(f"/topic/{name}", "a")
    assert durable.bodies(1) == transient.bodies(1) == ["a"]


def test_rabbitmq_x_queue_name(connect: Connect, name: str) -> None:
    headers = {"x-queue-name": f"my-alarms-{name}", **DURABLE}
    one = connect()
    one.subscribe(f"/topic/{name}", id="first", headers=headers)
    one.leave()
    two = connect()
    two.send(f"/topic/{name}", "fire")
    two.subscribe(f"/topic/{name}", id="second", headers=headers)
    assert two.bodies(1) == ["fire"]


# RabbitMQ: temporary queues, properties of messages, the rest.


def test_rabbitmq_temp_queue_in_reply_to(connect: Connect, name: str) -> None:
    """The reply comes without a SUBSCRIBE; its ``subscription`` is what reply-to said."""
    client, other, server = connect(), connect(), connect()
    server.subscribe(f"/queue/{name}")
    for peer in (client, other):
        peer.send(
            f"/queue/{name}", "Hello World!", {"reply-to": "/temp-queue/foo", "correlation-id": "7"}
        )
    requests = [server.get(), server.get()]
    addresses = [request.headers["reply-to"] for request in requests]
    assert all(address.startswith("/reply-queue/") for address in addresses)
    assert addresses[0] != addresses[1]
    server.send(addresses[0], "to the client", {"correlation-id": "7"})
    server.send(addresses[1], "to the other")
    reply = client.get()
    assert reply.body == "to the client"
    assert reply.headers["subscription"] == "/temp-queue/foo"
    assert reply.headers["correlation-id"] == "7"
    assert other.bodies(1) == ["to the other"]
    assert client.is_quiet()


def test_rabbitmq_temp_queue_is_private(connect: Connect, name: str) -> None:
    client, server = connect(), connect()
    server.subscribe(f"/queue/{name}")
    client.send(f"/queue/{name}", "", {"reply-to": "/temp-queue/foo"})
    address = server.get().headers["reply-to"]
    server._subscribe(address, {"id": "theft", "ack": "auto"})
    assert server.refused().headers["code"] == "not-allowed"


def test_rabbitmq_properties_reach_the_consumer(connect: Connect, name: str) -> None:
    peer = connect()
    properties = {
        "content-type": "text/plain",
        "content-encoding": "utf-8",
        "persistent": "true",
        "priority": "5",
        "correlation-id": "abc",
        "timestamp": "1700000000",
        "type": "order",
        "app-id": "shop",
        "amqp-message-id": "m-1",
    }
    peer.subscribe(f"/queue/{name}", headers={"x-max-priority": "5"})
    peer.send(f"/queue/{name}", "Grüße 茶", properties)
    message = peer.get()
    assert message.body == "Grüße 茶"
    assert {header: message.headers.get(header) for header in properties} == properties


def test_rabbitmq_expiration_is_relative(connect: Connect, name: str) -> None:
    """The scheduled message shows, by the broker's own clock, that the lifetime is over."""
    peer = connect()
    peer.subscribe(f"/queue/{name}.clock", id="clock")
    peer.send(f"/queue/{name}", "short", {"expiration": "50"})
    peer.send(f"/queue/{name}", "long", {"expiration": "600000"})
    peer.send(f"/queue/{name}.clock", "tick", {"AMQ_SCHEDULED_DELAY": "100"})
    assert peer.bodies(1) == ["tick"]
    peer.subscribe(f"/queue/{name}", id="late")
    assert peer.bodies(1) == ["long"]
    assert peer.is_quiet()


def test_rabbitmq_x_priority_of_consumers(connect: Connect, name: str) -> None:
    low, high, producer = connect(), connect(), connect()
    low.subscribe(f"/queue/{name}", ack=EACH)
    headers = {"x-priority": "10", "prefetch-count": "2"}
    high.subscribe(f"/queue/{name}", ack=EACH, headers=headers)
    for body in "abc":
        producer.send(f"/queue/{name}", body)
    assert high.bodies(2) == ["a", "b"]
    assert low.bodies(1) == ["c"]


def test_rabbitmq_message_id_in_send(
    connector: Connector, native: int, rabbitmq: int, name: str
) -> None:
    lenient = connector(native)()
    lenient.subscribe(f"/queue/{name}")
    lenient.send(f"/queue/{name}", "a", {"message-id": "mine"})
    assert lenient.get().headers["message-id"] != "mine"
    strict = connector(rabbitmq)()
    strict.try_send(f"/queue/{name}", "a", {"message-id": "mine"})
    assert strict.refused().headers["code"] == "header-not-allowed"


def test_rabbitmq_says_redelivered_always(connector: Connector, rabbitmq: int, name: str) -> None:
    peer = connector(rabbitmq)()
    peer.send(f"/queue/{name}", "a")
    peer.subscribe(f"/queue/{name}", ack=EACH)
    message = peer.get()
    assert message.headers["redelivered"] == "false"
    peer.nack(message)
    assert peer.get().headers["redelivered"] == "true"


def test_exclusive_is_ours_or_rabbitmqs(
    connector: Connector, native: int, rabbitmq: int, name: str
) -> None:
    for port, shares in ((native, False), (rabbitmq, True)):
        one, two = connector(port)(), connector(port)()
        for peer in (one, two):
            peer.subscribe(f"/queue/{name}", headers={"exclusive": "true"})
        one.send(f"/queue/{name}", "a")
        one.send(f"/queue/{name}", "b")
        got = one.bodies(1 if shares else 2) + two.bodies(1 if shares else 0)
        assert got == ["a", "b"]


# ActiveMQ: its table of extensions.


def test_activemq_prefetch_size_1(connect: Connect, name: str) -> None:
    """In messages, in every dialect; Artemis would read it as one byte."""
    producer, consumer = connect(), connect()
    consumer.subscribe(f"/queue/{name}", ack="client", headers={"activemq.prefetchSize": "1"})
    for body in "abc":
        producer.send(f"/queue/{name}", body)
    for body in "abc":
        message = consumer.get()
        assert message.body == body
        assert consumer.is_quiet()
        consumer.ack(message)


def test_activemq_exclusive_consumer(connect: Connect, name: str) -> None:
    one, two, producer = connect(), connect(), connect()
    for peer in (one, two):
        peer.subscribe(f"/queue/{name}", headers={"activemq.exclusive": "true"})
    producer.send(f"/queue/{name}", "a")
    producer.send(f"/queue/{name}", "b")
    assert one.bodies(2) == ["a", "b"]
    one.leave()
    producer.send(f"/queue/{name}", "c")
    assert two.bodies(1) == ["c"]


def test_activemq_priority_of_consumers(connect: Connect, name: str) -> None:
    low, high, producer = connect(), connect(), connect()
    low.subscribe(f"/queue/{name}", headers={"activemq.priority": "1"})
    high.subscribe(f"/queue/{name}", headers={"activemq.priority": "10"})
    producer.send(f"/queue/{name}", "a")
    producer.send(f"/queue/{name}", "b")
    assert high.bodies(2) == ["a", "b"]
    assert low.is_quiet()


def test_activemq_no_local(connect: Connect, name: str) -> None:
    one, two = connect(), connect()
    one.subscribe(f"/topic/{name}", headers={"activemq.noLocal": "true"})
    one.send(f"/topic/{name}", "mine")
    two.send(f"/topic/{name}", "yours")
    assert one.bodies(1) == ["yours"]
    assert one.is_quiet()


def test_activemq_retroactive(connect: Connect, name: str) -> None:
    """There by a policy of the broker; here what the publisher wants retained (Apollo)."""
    one, two = connect(), connect()
    one.send(f"/topic/{name}", "old", {"retain": "set"})
    one.send(f"/topic/{name}", "last", {"retain": "set"})
    two.subscribe(f"/topic/{name}", headers={"activemq.retroactive": "true"})
    assert two.bodies(1) == ["last"]
    assert two.is_quiet()


def test_activemq_options_without_effect(connect: Connect, name: str) -> None:
    peer = connect()
    headers = {
        "activemq.dispatchAsync": "false",
        "activemq.maximumPendingMessageLimit": "1000",
        "activemq.optimizedAcknowledge": "true",
    }
    peer.subscribe(f"/topic/{name}", headers=headers)
    peer.send(f"/topic/{name}", "a", {"amq-msg-type": "text", "JMSXGroupSeq": "1"})
    assert peer.get().headers["amq-msg-type"] == "text"


@pytest.mark.parametrize("header", ["activemq.subscriptionName", "activemq.subcriptionName"])
def test_activemq_durable_subscription(connect: Connect, name: str, header: str) -> None:
    headers = {header: f"sub-{name}"}
    subscriber = connect({"client-id": f"c-{name}"})
    subscriber.subscribe(f"/topic/{name}", headers=headers)
    other = connect({"client-id": f"d-{name}"})
    other.subscribe(f"/topic/{name}", headers=headers)
    subscriber.leave()
    publisher = connect()
    publisher.send(f"/topic/{name}", "missed")
    assert other.bodies(1) == ["missed"]
    back = connect({"client-id": f"c-{name}"})
    back.subscribe(f"/topic/{name}", headers=headers)
    assert back.bodies(1) == ["missed"]
    back.unsubscribe(headers=headers)
    publisher.send(f"/topic/{name}", "after the end")
    back.subscribe(f"/topic/{name}", headers=headers)
    assert back.is_quiet()


def test_activemq_durable_subscription_in_use_is_taken_over(connect: Connect, name: str) -> None:
    """There the newcomer is refused, which locks clients out whose connection hangs."""
    headers = {"activemq.subscriptionName": f"sub-{name}"}
    stale, fresh = connect({"client-id": f"c-{name}"}), connect({"client-id": f"c-{name}"})
    stale.subscribe(f"/topic/{name}", headers=headers)
    fresh.subscribe(f"/topic/{name}", headers=headers)
    assert stale.refused().headers["code"] == "taken-over"
    fresh.send(f"/topic/{name}", "a")
    assert fresh.bodies(1) == ["a"]


def test_artemis_durable_subscription(connect: Connect, name: str) -> None:
    headers = {"durable-subscription-name": f"sub-{name}"}
    subscriber = connect({"client-id": f"c-{name}"})
    subscriber.subscribe(f"/topic/{name}", headers=headers)
    subscriber.leave()
    back = connect({"client-id": f"c-{name}"})
    back.send(f"/topic/{name}", "missed")
    back.subscribe(f"/topic/{name}", headers=headers)
    assert back.bodies(1) == ["missed"]


def test_activemq_expires_is_absolute(connect: Connect, name: str) -> None:
    peer = connect()
    peer.subscribe(f"/queue/{name}")
    peer.send(f"/queue/{name}", "expired", {"expires": PAST})
    peer.send(f"/queue/{name}", "for ever", {"expires": "0"})
    assert peer.bodies(1) == ["for ever"]
    assert peer.is_quiet()


def test_activemq_priority_of_messages(connect: Connect, name: str) -> None:
    peer = connect()
    for priority in ("0", "4", "9", "9"):
        headers = {"priority": priority, "persistent": "true"}
        peer.send(f"/queue/{name}", priority, headers)
    peer.subscribe(f"/queue/{name}")
    assert peer.bodies(4) == ["9", "9", "4", "0"]


def test_activemq_selector_on_a_queue(connect: Connect, name: str) -> None:
    producer, cars, rest = connect(), connect(), connect()
    cars.subscribe(
        f"/queue/{name}", headers={"selector": "type = 'car' AND color = 'blue' AND weight > 2500"}
    )
    producer.send(f"/queue/{name}", "a", {"type": "car", "color": "blue", "weight": "3000"})
    producer.send(f"/queue/{name}", "b", {"type": "car", "color": "blue", "weight": "2000"})
    producer.send(f"/queue/{name}", "c", {"type": "boat", "color": "blue", "weight": "3000"})
    assert cars.bodies(1) == ["a"]
    assert cars.is_quiet()
    rest.subscribe(f"/queue/{name}")
    assert rest.bodies(2) == ["b", "c"]


def test_activemq_message_groups(connect: Connect, name: str) -> None:
    producer, one, two = connect(), connect(), connect()
    for peer in (one, two):
        peer.subscribe(f"/queue/{name}", ack=EACH)
    for number in range(12):
        group = {"JMSXGroupID": "IBM_NASDAQ_20/4/05" if number % 3 else "SUN"}
        producer.send(f"/queue/{name}", str(number), group)
    by_peer = [[peer.get() for _ in range(size)] for peer, size in ((one, 4), (two, 8))]
    assert [each.body for each in by_peer[0]] == ["0", "3", "6", "9"]
    assert [each.body for each in by_peer[1]] == ["1", "2", "4", "5", "7", "8", "10", "11"]
    assert one.is_quiet()
    assert two.is_quiet()


def test_activemq_reply_to_a_temp_queue_subscribed_to(connect: Connect, name: str) -> None:
    client, server = connect(), connect()
    server.subscribe(f"/queue/{name}")
    client.subscribe("/temp-queue/answers", id="a")
    client.send(f"/queue/{name}", "?", {"reply-to": "/temp-queue/answers"})
    server.send(server.get().headers["reply-to"], "!")
    reply = client.get()
    assert reply.body == "!"
    assert reply.headers["subscription"] == "a"
    assert client.is_quiet()


def test_activemq_temp_topic(connect: Connect, name: str) -> None:
    client, server = connect(), connect()
    server.subscribe(f"/queue/{name}")
    client.subscribe("/temp-topic/news", id="a")
    client.send(f"/queue/{name}", "?", {"reply-to": "/temp-topic/news"})
    server.send(server.get().headers["reply-to"], "!")
    assert client.bodies(1) == ["!"]


def test_activemq_scheduled_delay(connect: Connect, name: str) -> None:
    peer = connect()
    peer.subscribe(f"/queue/{name}")
    peer.send(f"/queue/{name}", "later", {"AMQ_SCHEDULED_DELAY": "100"})
    peer.send(f"/queue/{name}", "at once")
    assert peer.bodies(2) == ["at once", "later"]


def test_activemq_scheduled_repeat(connect: Connect, name: str) -> None:
    peer = connect()
    peer.subscribe(f"/topic/{name}")
    schedule = {
        "AMQ_SCHEDULED_DELAY": "20",
        "AMQ_SCHEDULED_PERIOD": "20",
        "AMQ_SCHEDULED_REPEAT": "2",
    }
    peer.send(f"/topic/{name}", "again", schedule)
    peer.send(f"/topic/{name}", "end", {"AMQ_SCHEDULED_DELAY": "150"})
    assert peer.bodies(4) == ["again", "again", "again", "end"]


def test_activemq_browser(connect: Connect, name: str) -> None:
    peer = connect()
    for body in "abc":
        peer.send(f"/queue/{name}", body)
    peer.subscribe(f"/queue/{name}", id="look", headers={"browser": "true"})
    seen = [peer.get() for _ in range(4)]
    assert [each.body for each in seen] == ["a", "b", "c", ""]
    assert seen[3].headers["browser"] == "end"
    assert peer.is_quiet()
    peer.unsubscribe("look")
    peer.subscribe(f"/queue/{name}", id="take")
    assert peer.bodies(3) == ["a", "b", "c"]


def test_activemq_browser_with_selector(connect: Connect, name: str) -> None:
    peer = connect()
    for number in range(4):
        peer.send(f"/queue/{name}", str(number), {"n": str(number)})
    headers = {"browser": "true", "selector": "n > 1"}
    peer.subscribe(f"/queue/{name}", headers=headers)
    assert peer.bodies(3) == ["2", "3", ""]


def test_activemq_composite_destinations(connect: Connect, name: str) -> None:
    peer = connect()
    peer.subscribe(f"/topic/{name}.c", id="c")
    peer.send(f"/queue/{name}.a,/queue/{name}.b,/topic/{name}.c", "three times")
    peer.subscribe(f"/queue/{name}.a", id="a")
    peer.subscribe(f"/queue/{name}.b", id="b")
    got = [peer.get() for _ in range(3)]
    assert [each.headers["subscription"] for each in got] == ["c", "a", "b"]
    assert {each.body for each in got} == {"three times"}


def test_activemq_wildcards(connect: Connect, name: str) -> None:
    peer = connect()
    peer.subscribe(f"/topic/{name}.PRICE.STOCK.*.IBM", id="1")
    peer.subscribe(f"/topic/{name}.PRICE.>", id="2")
    peer.send(f"/topic/{name}.PRICE.STOCK.NASDAQ.IBM", "a")
    peer.send(f"/topic/{name}.PRICE.STOCK.NYSE.SUNW", "b")
    got = [(each.body, each.headers["subscription"]) for each in (peer.get() for _ in range(3))]
    assert sorted(got) == [("a", "1"), ("a", "2"), ("b", "2")]
    peer.send(f"/queue/{name}.A.x", "c")
    peer.subscribe(f"/queue/{name}.A.>", id="3")
    peer.send(f"/queue/{name}.A.y", "d")
    assert peer.bodies(2) == ["c", "d"]


def test_activemq_transactions_of_its_java_example(connect: Connect, name: str) -> None:
    peer = connect()
    peer.begin("tx1")
    peer.send(f"/queue/{name}", "message1", {"transaction": "tx1"})
    peer.send(f"/queue/{name}", "message2", {"transaction": "tx1"})
    peer.commit("tx1")
    peer.subscribe(f"/queue/{name}", ack="client")
    peer.begin("tx2")
    for body in ("message1", "message2"):
        message = peer.get()
        assert message.body == body
        peer.ack(message, transaction="tx2")
    peer.commit("tx2")
    peer.leave()
    heir = connect()
    heir.subscribe(f"/queue/{name}")
    assert heir.is_quiet()


def test_activemq_answers_request_id_in_connected(
    connector: Connector, native: int, activemq: int
) -> None:
    result = connector(activemq)({"request-id": "c-1"}).welcome
    assert result["response-id"] == "c-1"
    assert "response-id" not in connector(native)({"request-id": "c-1"}).welcome


# Apollo, Artemis, and features that none of them has.


def test_apollo_credit(connect: Connect, name: str) -> None:
    peer = connect()
    for body in "abc":
        peer.send(f"/queue/{name}", body)
    peer.subscribe(f"/queue/{name}", ack=EACH, headers={"credit": "2,65536"})
    assert peer.bodies(2) == ["a", "b"]
    assert peer.is_quiet()


def test_apollo_dsub(connect: Connect, name: str) -> None:
    one, two = connect(), connect()
    one.subscribe(f"/topic/{name}", id=f"a-{name}", headers={"persistent": "true"})
    one.leave()
    two.send(f"/topic/{name}", "missed")
    two.subscribe(f"/dsub/a-{name}")
    two.settle()
    assert not two.messages.empty()
    assert two.bodies(1) == ["missed"]


def test_artemis_connections_of_one_client_id_share_a_durable_subscription(
    connector: Connector, artemis: int, name: str
) -> None:
    headers = {"durable-subscription-name": f"sub-{name}"}
    one, two = (connector(artemis)({"client-id": f"c-{name}"}) for _ in range(2))
    one.subscribe(f"/topic/{name}", headers=headers)
    two.subscribe(f"/topic/{name}", headers=headers)
    for body in ("a", "b", "c", "d"):
        one.send(f"/topic/{name}", body)
    assert (one.bodies(2), two.bodies(2)) == (["a", "c"], ["b", "d"])


def test_artemis_anycast_and_multicast(connect: Connect, name: str) -> None:
    peer = connect()
    peer.send(f"orders.{name}", "kept", {"destination-type": "ANYCAST"})
    peer.subscribe(f"orders.{name}", headers={"subscription-type": "ANYCAST"})
    assert peer.bodies(1) == ["kept"]
    sent = peer.send(f"news.{name}", "gone", {"destination-type": "MULTICAST"})
    assert sent["matched"] == "0"
