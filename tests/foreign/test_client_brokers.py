"""The client with Debian's RabbitMQ and ActiveMQ, and with our broker for comparison.

Each test runs with all of them. Behaviour of one broker alone is in ``HABITS`` and in
docs/use/client.md. A test that fails with all of them shows a fault of the client.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, Literal

import pytest
import trio
from _bench.others import LOGIN, PASSCODE, OtherBroker
from attrs import define, field, frozen

from tests.support import other_brokers as _other_brokers
from tests.support.client_fakes import Scripted, read_until
from tests.support.fakes import abort
from trio_stomp.client import (
    AuthenticationError,
    BrokerError,
    Client,
    ClientEvent,
    LinkLost,
    Message,
    ReconnectPolicy,
    RequestTimedOut,
    Subscription,
    open_client,
)

pytestmark = pytest.mark.foreign

# Only something broken takes so long.
PATIENCE_S = 30
QUICK = ReconnectPolicy(first_delay_s=0.01, max_delay_s=0.05)
EACH: Literal["client-individual"] = "client-individual"


@frozen
class Habits:
    """The differences between the brokers.

    Args:
      server: The beginning of ``server`` in CONNECTED.
      host: The virtual host to request; "" = the address is enough.
      requeues: Whether a plain NACK causes redelivery.
      dead: The queue of messages with ``requeue:false``; "" = none.
      unsubscribing_returns: Whether UNSUBSCRIBE causes redelivery of unacknowledged messages; else
        the end of the connection does.
      takes_once: Whether a SEND repeated with one ``x-dedup-id`` is accepted once.
      prefetch: Header of SUBSCRIBE that bounds unacknowledged messages, in addition to ours.
      answers: Whether ``client.request`` works: SEND with a ``reply-to`` of ``/temp-queue/`` is
        enough to get what is sent there.
      wrong_password: The text of the error.
    """

    run: Callable[[], AbstractContextManager[OtherBroker]]
    server: str
    host: str = ""
    requeues: bool = True
    dead: str = ""
    unsubscribing_returns: bool = True
    takes_once: bool = False
    prefetch: str = "prefetch-count"
    answers: bool = True
    wrong_password: str = "authentication-failed"


HABITS: Mapping[str, Habits] = {
    "trio_stomp": Habits(
        _other_brokers.trio_stomp, "trio_stomp/", dead="/queue/DLQ.{}", takes_once=True
    ),
    "rabbitmq": Habits(
        _other_brokers.rabbitmq,
        "RabbitMQ/",
        host="/",
        unsubscribing_returns=False,
        wrong_password="Access refused for user 'tester'",
    ),
    "activemq": Habits(
        _other_brokers.activemq,
        "ActiveMQ/",
        requeues=False,
        dead="/queue/ActiveMQ.DLQ",
        prefetch="activemq.prefetchSize",
        answers=False,
        wrong_password="User name [tester] or password is invalid.",
    ),
}
# Debian's ActiveMQ comes without its WebSocket transport.
OF_OTHERS = [("rabbitmq", "tcp"), ("rabbitmq", "ws"), ("activemq", "tcp")]
WAYS = [
    pytest.param(way, id="-".join(way), marks=marks)
    for marks, ways in (
        ((), [("trio_stomp", "tcp")]),
        (pytest.mark.full, [("trio_stomp", "ws"), *OF_OTHERS]),
    )
    for way in ways
]
"""tests/unit/client asks our broker over each transport; here, each push asks it over one."""


@define(eq=False)
class Proxy:
    """A TCP proxy between a client and a broker that counts, delays and cuts.

    Args:
      port: The broker's.
      holds_requests, holds_answers: Whether to count and discard these bytes.
    """

    port: int
    own_port: int = 0
    holds_requests: bool = False
    holds_answers: bool = False
    connects: int = 0
    requests: int = 0
    """Bytes from clients."""
    answers: int = 0
    """Bytes from the broker."""
    _streams: set[trio.SocketStream] = field(factory=set)
    _lot: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot)

    async def serve(self, near: trio.SocketStream) -> None:
        """Carry one connection."""
        self.connects += 1
        far = await trio.open_tcp_stream("127.0.0.1", self.port)
        pair = {near, far}
        self._streams |= pair
        try:
            async with trio.open_nursery() as pumps:
                pumps.start_soon(self._pump, near, far, True)
                pumps.start_soon(self._pump, far, near, False)
        finally:
            self._streams -= pair
            for stream in pair:
                abort(stream)

    async def _pump(
        self, source: trio.SocketStream, target: trio.SocketStream, is_request: bool
    ) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await source.receive_some():
                if is_request:
                    self.requests += len(data)
                    held = self.holds_requests
                else:
                    self.answers += len(data)
                    held = self.holds_answers
                self._lot.unpark_all()
                if not held:
                    await target.send_all(data)
            await target.send_eof()

    def cut(self) -> None:
        """Break all connections with a reset; those to come are carried as before."""
        for stream in tuple(self._streams):
            abort(stream)

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait until the next bytes make it true."""
        while not is_so():
            await self._lot.park()


@define(eq=False)
class Way:
    """A running broker, and the transport to reach it by."""

    broker: OtherBroker
    transport: str
    habits: Habits

    @property
    def port(self) -> int:
        """The port of the transport."""
        return self.broker.port if self.transport == "tcp" else self.broker.web_port

    def url(self, port: int = 0) -> str:
        """The address, or that of a proxy."""
        if self.transport == "tcp":
            return f"stomp://127.0.0.1:{port or self.port}"
        return f"ws://127.0.0.1:{port or self.port}/ws"

    @asynccontextmanager
    async def open(
        self, *, port: int = 0, passcode: str = PASSCODE, **options: object
    ) -> AsyncIterator[Client]:
        """A client of it, or of a proxy's; all of its life is bounded."""
        headers: dict[str, Any] = {"login": LOGIN, "host": self.habits.host or None, **options}
        with trio.fail_after(PATIENCE_S):
            async with open_client(self.url(port), passcode=passcode, **headers) as client:
                yield client

    @asynccontextmanager
    async def proxied(self) -> AsyncIterator[Proxy]:
        """A proxy in front of it."""
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            proxy = Proxy(self.port, listeners[0].socket.getsockname()[1])
            nursery.start_soon(partial(trio.serve_listeners, proxy.serve, listeners))
            yield proxy
            nursery.cancel_scope.cancel()

    async def rest(self, destination: str, count: int) -> list[Message]:
        """Consume ``count`` messages of a queue, and check that no more are there."""
        async with self.open() as client, client.subscribe(destination) as messages:
            found = [await messages.receive() for _ in range(count)]
            await client.send(destination, "the end")
            after = await messages.receive()
            assert after.text == "the end", after
            return found


@define(eq=False)
class Brokers:
    """Starts the brokers of tests, one at a time."""

    stack: ExitStack
    running: OtherBroker | None = None

    def get(self, name: str) -> OtherBroker:
        """The broker of that name, running."""
        if self.running is None or self.running.name != name:
            self.running = None
            self.stack.close()
            self.running = self.stack.enter_context(HABITS[name].run())
        return self.running


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with ExitStack() as stack:
        yield Brokers(stack)


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest, brokers: Brokers) -> Way:
    name, transport = request.param
    return Way(brokers.get(name), transport, HABITS[name])


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue that no other test uses."""
    return "/queue/" + re.sub(r"\W+", "-", request.node.name).strip("-")


def texts(messages: list[Message]) -> list[str]:
    """Bodies."""
    return [each.text for each in messages]


async def take(messages: Subscription, count: int) -> list[Message]:
    """The next messages."""
    return [await messages.receive() for _ in range(count)]


async def see(client: Client, kind: str) -> ClientEvent:
    """Wait until the link has come to that."""
    async for event in client.events:
        if event.kind == kind:
            return event
    raise AssertionError(f"the client ended before it was {kind}")


# --- sending and receiving ----------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
async def test_a_message_with_its_receipt(way: Way, queue: str, version: str) -> None:
    size = "large" if version == "1.0" else "a:b\n\\c ö"
    async with way.open(versions=(version,)) as client:
        reported = client.connected_headers
        assert reported["server"].startswith(way.habits.server)
        assert reported["version"] == version
        receipt = await client.send(queue, "tea", headers={"size": size}, persistent=True)
        assert bool(receipt.stored) == (way.broker.name == "trio_stomp")
        if version == "1.0":
            return
        async with client.subscribe(queue) as messages:
            message = await messages.receive()
    assert (message.text, message.headers["size"]) == ("tea", size)
    assert message.destination == queue
    assert not message.redelivered


async def test_a_topic_goes_to_all(way: Way, queue: str) -> None:
    topic = queue.replace("/queue/", "/topic/")
    async with (
        way.open() as client,
        client.subscribe(topic) as one,
        client.subscribe(topic) as other,
    ):
        await client.send(topic, "a", receipt=False)
        await client.send(topic, "b")
        assert texts(await take(one, 2)) == texts(await take(other, 2)) == ["a", "b"]


async def test_a_body_of_1_mb(way: Way, queue: str) -> None:
    body = bytes(range(256)) * 4096
    async with way.open() as client, client.subscribe(queue, ack=EACH) as messages:
        for end in (b"\0", b"\n", b""):
            await client.send(queue, body + end)
        for end in (b"\0", b"\n", b""):
            async with await messages.receive() as message:
                assert message.body == body + end


async def test_many_small_ones_in_order(way: Way, queue: str) -> None:
    count = 2000
    numbers = [str(number) for number in range(count)]
    # RabbitMQ's Web STOMP holds back a client that sends too fast; the watch on the heart-beats of
    # that client does not survive it: rabbit_heartbeat exits with {unexpected_message,resume}.
    is_fragile = (way.broker.name, way.transport) == ("rabbitmq", "ws")
    beats = (0, 10) if is_fragile else (10, 10)
    async with way.open(heart_beat=beats) as client, client.subscribe(queue, ack=EACH) as messages:
        for number in numbers:
            await client.send(queue, number, receipt=False)
        for number in numbers:
            async with await messages.receive() as message:
                assert message.text == number
    assert await way.rest(queue, 0) == []


# --- acknowledging ------------------------------------------------------------------------------


async def test_an_auto_message_is_not_delivered_again(way: Way, queue: str) -> None:
    async with way.open() as client, client.subscribe(queue) as messages:
        await client.send(queue, "a")
        assert (await messages.receive()).text == "a"
    assert await way.rest(queue, 0) == []


@pytest.mark.parametrize("version", ["1.1", "1.2"])
async def test_client_acknowledges_all_before(way: Way, queue: str, version: str) -> None:
    async with way.open(versions=(version,)) as client:
        for body in "abcd":
            await client.send(queue, body)
        async with client.subscribe(queue, ack="client") as messages:
            await (await take(messages, 4))[2].ack()
    assert texts(await way.rest(queue, 1)) == ["d"]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
async def test_client_individual_acknowledges_one(way: Way, queue: str, version: str) -> None:
    async with way.open(versions=(version,)) as client:
        for body in "abc":
            await client.send(queue, body)
        async with client.subscribe(queue, ack=EACH) as messages:
            await (await take(messages, 3))[1].ack()
    assert texts(await way.rest(queue, 2)) == ["a", "c"]


async def test_prefetch_leaves_the_rest_to_others(way: Way, queue: str) -> None:
    """Messages beyond one client's prefetch go to the other."""
    values = {way.habits.prefetch: "1"}
    async with (
        way.open() as one,
        way.open() as other,
        one.subscribe(queue, ack=EACH, prefetch=1, headers=values) as slow,
    ):
        await one.send(queue, "a")
        held = await slow.receive()
        await one.send(queue, "b")
        async with (
            other.subscribe(queue, ack=EACH) as messages,
            await messages.receive() as message,
        ):
            assert message.text == "b"
        await held.ack()
    assert await way.rest(queue, 0) == []


async def test_nack(way: Way, queue: str) -> None:
    async with way.open() as client, client.subscribe(queue, ack=EACH) as messages:
        # ActiveMQ's dead letter queue accepts only persistent messages.
        await client.send(queue, "a", persistent=True)
        await (await messages.receive()).nack()
        if way.habits.requeues:
            again = await messages.receive()
            assert (again.text, again.redelivered) == ("a", True)
            await again.ack()
    if not way.habits.requeues:
        assert texts(await way.rest(way.habits.dead, 1)) == ["a"]
    assert await way.rest(queue, 0) == []


async def test_nack_without_requeue(way: Way, queue: str) -> None:
    async with way.open() as client, client.subscribe(queue, ack=EACH) as messages:
        await client.send(queue, "a", persistent=True)
        await (await messages.receive()).nack(requeue=False)
    if dead := way.habits.dead.format(queue.removeprefix("/queue/")):
        assert texts(await way.rest(dead, 1)) == ["a"]
    assert await way.rest(queue, 0) == []


async def test_unacknowledged_messages_are_redelivered(way: Way, queue: str) -> None:
    async with way.open() as client:
        async with client.subscribe(queue, ack=EACH) as messages:
            await client.send(queue, "a")
            assert not (await messages.receive()).redelivered
        if way.habits.unsubscribing_returns:
            async with client.subscribe(queue, ack=EACH) as messages:
                assert (await messages.receive()).redelivered
    (again,) = await way.rest(queue, 1)
    assert (again.text, again.redelivered) == ("a", True)
    assert await way.rest(queue, 0) == []


# --- transactions -------------------------------------------------------------------------------


async def test_commit(way: Way, queue: str) -> None:
    out = f"{queue}-out"
    async with way.open() as client, client.subscribe(queue, ack=EACH) as messages:
        await client.send(queue, "work")
        message = await messages.receive()
        async with client.subscribe(out) as results:
            async with client.transaction() as transaction:
                await transaction.send(out, "one")
                await transaction.send(out, "two")
                await transaction.ack(message)
                await client.send(out, "before")
            assert texts(await take(results, 3)) == ["before", "one", "two"]
    assert await way.rest(queue, 0) == []


async def test_abort(way: Way, queue: str) -> None:
    out = f"{queue}-out"
    async with way.open() as client, client.subscribe(queue, ack=EACH) as messages:
        await client.send(queue, "work")
        message = await messages.receive()
        with suppress(ZeroDivisionError):
            async with client.transaction() as transaction:
                await transaction.send(out, "never")
                await transaction.ack(message)
                raise ZeroDivisionError
    # Its ACK did not happen either.
    assert texts(await way.rest(queue, 1)) == ["work"]
    assert await way.rest(out, 0) == []


async def test_a_message_is_acknowledged_again_after_an_abort(way: Way, queue: str) -> None:
    async with way.open() as client, client.subscribe(queue, ack=EACH) as messages:
        await client.send(queue, "work")
        message = await messages.receive()
        with suppress(ZeroDivisionError):
            async with client.transaction() as transaction:
                await transaction.ack(message)
                raise ZeroDivisionError
        await message.ack()
    assert await way.rest(queue, 0) == []


# --- requests -----------------------------------------------------------------------------------


async def serve_doubles(client: Client, questions: Subscription) -> None:
    """Answer questions, wherever they ask for it."""
    async for question in questions:
        pairs = {"correlation-id": question.headers["correlation-id"]}
        await client.send(question.headers["reply-to"], question.text * 2, headers=pairs)


async def test_requests(way: Way, queue: str) -> None:
    async with (
        way.open() as server,
        way.open() as client,
        server.subscribe(queue) as questions,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(serve_doubles, server, questions)
        if way.habits.answers:
            for text in ("a", "b"):
                assert (await client.request(queue, text, timeout_s=30)).text == text * 2
        else:
            with pytest.raises(RequestTimedOut):
                await client.request(queue, "a", timeout_s=0.5)
        nursery.cancel_scope.cancel()


async def test_answers_to_a_queue_of_ones_own(way: Way, queue: str) -> None:
    """This works with all of them: a subscribed queue for answers."""
    own = f"{queue}-answers"
    if way.broker.name == "activemq":
        own = own.replace("/queue/", "/temp-queue/")
    async with (
        way.open() as server,
        way.open() as client,
        server.subscribe(queue) as questions,
        client.subscribe(own) as answers,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(serve_doubles, server, questions)
        await client.send(queue, "a", headers={"reply-to": own, "correlation-id": "7"})
        answer = await answers.receive()
        assert (answer.text, answer.headers["correlation-id"]) == ("aa", "7")
        nursery.cancel_scope.cancel()


# --- heart-beats --------------------------------------------------------------------------------


async def test_heart_beats_keep_an_idle_link(way: Way) -> None:
    beats = (0.5, 0.5)
    async with way.proxied() as proxy, way.open(port=proxy.own_port, heart_beat=beats) as client:
        sends, expects = client.connected_headers["heart-beat"].split(",")
        assert int(sends) > 0
        assert int(expects) > 0
        asked, answered = proxy.requests, proxy.answers
        ours, theirs = (1, 1) if way.transport == "tcp" else (7, 3)  # bytes of a heart-beat
        await proxy.wait_until(lambda: proxy.answers >= answered + 3 * theirs)
        await proxy.wait_until(lambda: proxy.requests >= asked + 3 * ours)
        assert client.is_connected
        assert proxy.connects == 1


async def test_a_silent_broker_is_given_up(way: Way) -> None:
    async with (
        way.proxied() as proxy,
        way.open(port=proxy.own_port, heart_beat=(0.5, 0.5), reconnect=QUICK) as client,
    ):
        await see(client, "connected")
        proxy.holds_answers = True
        lost = await see(client, "disconnected")
        assert isinstance(lost.error, LinkLost)
        assert "silent" in str(lost.error)
        proxy.holds_answers = False
        await see(client, "connected")


# --- links that break ---------------------------------------------------------------------------


async def test_subscriptions_come_back(way: Way, queue: str) -> None:
    async with way.proxied() as proxy, way.open(port=proxy.own_port, reconnect=QUICK) as client:
        async with (
            client.subscribe(queue, ack=EACH) as messages,
            client.subscribe(f"{queue}-auto") as others,
        ):
            await client.send(queue, "a")
            first = await messages.receive()
            await see(client, "connected")
            proxy.cut()
            await see(client, "connected")
            again = await messages.receive()
            assert (again.text, again.redelivered) == ("a", True)
            await again.ack()
            assert first.message_id
            await client.send(f"{queue}-auto", "b")
            assert (await others.receive()).text == "b"
        assert proxy.connects == 2
    assert await way.rest(queue, 0) == []


async def test_a_send_that_did_not_arrive_is_sent_again(way: Way, queue: str) -> None:
    async with (
        way.proxied() as proxy,
        way.open(port=proxy.own_port, reconnect=QUICK, heart_beat=(0, 0)) as client,
        trio.open_nursery() as nursery,
    ):
        proxy.holds_requests = True
        before = proxy.requests
        nursery.start_soon(client.send, queue, "a")
        await proxy.wait_until(lambda: proxy.requests > before)
        proxy.holds_requests = False
        proxy.cut()
    assert texts(await way.rest(queue, 1)) == ["a"]


async def test_a_send_whose_receipt_was_lost_is_sent_again(way: Way, queue: str) -> None:
    async with (
        way.proxied() as proxy,
        way.open(port=proxy.own_port, reconnect=QUICK, heart_beat=(0, 0)) as client,
        trio.open_nursery() as nursery,
    ):
        proxy.holds_answers = True
        before = proxy.answers
        nursery.start_soon(client.send, queue, "a")
        await proxy.wait_until(lambda: proxy.answers > before)
        proxy.holds_answers = False
        proxy.cut()
    expected = ["a"] if way.habits.takes_once else ["a", "a"]
    assert texts(await way.rest(queue, len(expected))) == expected


async def test_a_transaction_is_lost_with_its_link(way: Way, queue: str) -> None:
    async with way.proxied() as proxy, way.open(port=proxy.own_port, reconnect=QUICK) as client:
        await see(client, "connected")
        begun = client.transaction()
        transaction = await begun.__aenter__()
        await transaction.send(queue, "never")
        proxy.cut()
        await see(client, "connected")
        with pytest.raises(LinkLost, match="was aborted"):
            await begun.__aexit__(None, None, None)
        await client.send(queue, "a")
    assert texts(await way.rest(queue, 1)) == ["a"]


# --- refusals -----------------------------------------------------------------------------------


async def test_a_wrong_password_makes_no_storm(way: Way) -> None:
    storm = ReconnectPolicy(first_delay_s=0.001, max_delay_s=0.001, retry_first=True)
    async with way.proxied() as proxy:
        with pytest.raises(AuthenticationError) as caught:
            async with way.open(port=proxy.own_port, passcode="wrong-one", reconnect=storm):
                pass  # pragma: no cover
        assert proxy.connects == 1
        assert "wrong-one" not in str(caught.value) + repr(caught.value) + caught.value.body
        assert way.habits.wrong_password in str(caught.value)


async def test_a_virtual_host_that_is_not_there(way: Way) -> None:
    """RabbitMQ alone looks at it; the error says so, since its headers do not."""
    if not way.habits.host:
        async with way.open(host="nowhere.example"):
            return
    with pytest.raises(AuthenticationError, match=r"'nowhere\.example' access denied"):
        async with way.open(host="nowhere.example"):
            pass  # pragma: no cover


async def test_a_destination_that_is_refused_ends_the_client(way: Way) -> None:
    """An ERROR without ``receipt-id`` and without a code: other frames may be lost, too."""
    if way.broker.name != "rabbitmq":  # the others take it
        async with way.open() as client:
            await client.send("/nowhere/x", "a")
        return
    with pytest.raises(BrokerError, match="not a valid destination"):
        async with way.open() as client:
            await client.send("/nowhere/x", "a")


async def test_an_error_without_a_code_has_the_text_of_its_body(nursery: trio.Nursery) -> None:
    broker = Scripted()

    async def refuse() -> None:
        stream = await broker.listener.accept()
        await read_until(stream, b"\0")
        await stream.send_all(
            b"ERROR\nmessage:Bad CONNECT\n\n\nVirtual host 'x' access denied\nno\0"
        )

    nursery.start_soon(refuse)
    with pytest.raises(AuthenticationError) as caught, trio.fail_after(PATIENCE_S):
        async with open_client(broker):
            pass  # pragma: no cover
    assert str(caught.value) == "Bad CONNECT (Virtual host 'x' access denied)"
    assert caught.value.message == "Bad CONNECT"
