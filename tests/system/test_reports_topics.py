"""Public reports about topics, schedules and private queues of other brokers."""

from pathlib import Path

import trio

from tests.support.fakes import Client
from tests.support.served import Served, is_quiet, sends, served, served_with, taken
from trio_stomp.broker import DestinationPolicy

T, Q = "/topic/t", "/queue/q"
DURABLE = {"persistent": "true"}


async def durable(broker: Served, name: str, **headers: str) -> Client:
    """Subscribe to the topic as a client with a name."""
    client = await broker.connect({"client-id": name})
    own = {"activemq.subscriptionName": name, "ack": "client-individual", **headers}
    await client.send("SUBSCRIBE", {"destination": T, "id": "1", **own})
    return client


async def leaves(client: Client) -> None:
    await client.send("DISCONNECT", {"receipt": "left"})
    await client.receive_until_receipt("left")


async def test_a_durable_subscription_keeps_what_its_selector_wants(tmp_path: Path) -> None:
    """HornetQ 1248, Artemis 3423: it kept everything; another selector made a second queue."""
    async with served(data_dir=str(tmp_path)) as broker:
        await leaves(await durable(broker, "a", selector="odd = 'yes'"))
        for number in range(4):
            await sends(broker, T, f"{number}", odd=("no", "yes")[number % 2])
        first = await durable(broker, "a", selector="odd = 'yes'")
        assert await taken(first, 2) == ["1", "3"]
        await leaves(first)
        await leaves(await durable(broker, "a", selector="odd = 'no'"))
        for number in range(4, 8):
            await sends(broker, T, f"{number}", odd=("no", "yes")[number % 2])
    async with served(data_dir=str(tmp_path)) as broker:
        last = await durable(broker, "a", selector="odd = 'no'")
        assert await taken(last, 2) == ["4", "6"]
        assert await is_quiet(last)


async def test_each_durable_subscription_is_read_from_the_store(tmp_path: Path) -> None:
    """Artemis 2123: what another subscription had not read kept the topic in its pages."""
    options = {"data_dir": str(tmp_path), "max_memory_bytes": 8 * 1024 * 1024}
    bodies = [f"{number}".ljust(1000) for number in range(1200)]
    async with served(**options) as broker:
        for name in "ab":
            await leaves(await durable(broker, name))
        for first in range(0, len(bodies), 100):
            await sends(broker, T, *bodies[first : first + 100])
        assert await taken(await durable(broker, "a"), 1200) == bodies
        await sends(broker, T, "last")
        assert await taken(await durable(broker, "b"), 1201) == [*bodies, "last"]


async def test_either_name_of_durable_ends_a_durable_subscription() -> None:
    """RabbitMQ STOMP 58: UNSUBSCRIBE understood ``persistent`` only, and SUBSCRIBE both."""
    kinds = [{"durable": "true"}, {"persistent": "true"}]
    async with served() as broker:
        for made, ended in zip(kinds, reversed(kinds), strict=True):
            client = await broker.connect({})
            both = {"id": "n", "destination": T, "auto-delete": "false"}
            await client.send("SUBSCRIBE", {**both, **made})
            await client.send("UNSUBSCRIBE", {**both, **ended, "receipt": "ended"})
            await client.receive_until_receipt("ended")
            await sends(broker, T, "nobody gets it")
            await client.send("SUBSCRIBE", {**both, **made})
            assert await is_quiet(client)


async def test_a_durable_subscription_to_an_exchange_keeps_its_queue(tmp_path: Path) -> None:
    """RabbitMQ 614, 633: each connection with the same id got a new queue that ended with it."""
    headers = {"destination": "/exchange/prices/tea", "id": "1234", "ack": "client"}
    headers |= {"durable": "true", "auto-delete": "false", "expires": "20000"}
    for number in range(2):
        async with served(data_dir=str(tmp_path), dialect="rabbitmq") as broker:
            client = await broker.connect({})
            await client.send("SUBSCRIBE", headers)
            if number:
                assert (await client.receive()).body == b"while away"
            await leaves(client)
            await sends(broker, "/exchange/prices/tea", "while away")


async def test_dead_letters_of_a_topic_and_to_a_topic(tmp_path: Path) -> None:
    """EnMasse 5183: what expired in a durable subscription did not become a dead letter."""
    policies = {
        T: DestinationPolicy(ttl_ms=300, dead_letter_expired=True, dead_letter=Q),
        Q: DestinationPolicy(max_redeliveries=0, dead_letter="/topic/dead"),
    }
    async with served_with(policies, {"data_dir": str(tmp_path)}) as broker:
        await leaves(await durable(broker, "a"))
        watcher = await broker.connect({})
        await watcher.subscribe("/topic/dead")
        await sends(broker, T, "x")
    async with served_with(policies, {"data_dir": str(tmp_path)}) as broker:
        watcher = await broker.connect({})
        await watcher.subscribe("/topic/dead")
        reader = await broker.connect({})
        await reader.send("SUBSCRIBE", {"destination": Q, "id": "1", "ack": "client-individual"})
        message = await reader.receive()
        await reader.send("NACK", {"id": message["ack"]})
        assert (await watcher.receive()).body == b"x"


async def test_an_expired_last_value_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    """Mosquitto 2311: after a restart, topics had the last values of others."""
    options = {"data_dir": str(tmp_path)}
    expected = {f"/topic/{number}": f"{number}".encode() for number in range(10)}
    async with served(**options) as broker:
        for name, body in expected.items():
            await sends(broker, name, body.decode(), retain="set")
        await sends(broker, "/topic/late", "late", retain="set", expiration="100")
    await trio.sleep(0.2)
    async with served(**options) as broker:
        client = await broker.connect({})
        await client.subscribe("/topic/*", id="all", headers={"receipt": "none"})
        found = await client.receive_many(10)
        assert {each["destination"]: each.body for each in found} == expected
        assert await is_quiet(client)


async def test_each_of_two_subscriptions_gets_the_last_value_once() -> None:
    """MQTT.js 545: overlapping subscriptions of one connection; here each gets it once."""
    async with served() as broker:
        await sends(broker, T, "last", retain="set")
        client = await broker.connect({})
        for number, name in enumerate(("/topic/*", T)):
            await client.send("SUBSCRIBE", {"destination": name, "id": f"{number}"})
        found = await client.receive_many(2)
        assert sorted(each["subscription"] for each in found) == ["0", "1"]
        assert await is_quiet(client)


async def test_a_schedule_of_a_transaction_begins_with_commit(tmp_path: Path) -> None:
    """NServiceBus 998: delayed messages were sent though their transaction was not committed."""
    async with served(data_dir=str(tmp_path)) as broker:
        client = await broker.connect({})
        later = {"AMQ_SCHEDULED_DELAY": "400", "transaction": "t"}
        for name, end in (("never", "ABORT"), ("once", "COMMIT")):
            await client.send("BEGIN", {"transaction": "t"})
            await client.publish(Q, name.encode(), headers={**DURABLE, **later})
            await client.send(end, {"transaction": "t", "receipt": end})
            await client.receive_until_receipt(end)
    async with served(data_dir=str(tmp_path)) as broker:
        client = await broker.connect({})
        await client.send("SUBSCRIBE", {"destination": Q, "id": "1"})
        assert (await client.receive()).body == b"once"
        assert await is_quiet(client)


async def test_schedules_keep_their_own_times_and_lifetimes() -> None:
    """LavinMQ 1587, MassTransit 1924, Pulsar 21898: delays of others; ends before the delivery."""
    async with served() as broker:
        client = await broker.connect({})
        await client.send("SUBSCRIBE", {"destination": Q, "id": "1"})
        for delay in (600, 200, 400):
            await sends(broker, Q, f"{delay}", AMQ_SCHEDULED_DELAY=f"{delay}", expiration="150")
        found = await client.receive_many(3)
        assert [each.body for each in found] == [b"200", b"400", b"600"]


async def test_an_answer_to_a_client_that_has_left_ends_no_connection() -> None:
    """stompest 24: an answer to a temporary queue that had ended disconnected the service."""
    async with served() as broker:
        service, asker = await broker.connect({}), await broker.connect({})
        await service.send("SUBSCRIBE", {"destination": Q, "id": "1"})
        await asker.publish(Q, b"?", headers={"reply-to": "/temp-queue/answers"})
        reply_to = (await service.receive())["reply-to"]
        await leaves(asker)
        await service.publish(reply_to, b"!", receipt=True)
        assert await service.fence() == []


async def test_a_temporary_queue_may_be_acknowledged() -> None:
    """RabbitMQ STOMP 95: a client could not choose the mode of its temporary queue."""
    async with served() as broker:
        client = await broker.connect({})
        name = "/temp-queue/answers"
        headers = {"ack": "client-individual", "prefetch-count": "1"}
        await client.subscribe(name, headers=headers)
        await client.publish(name, b"1", b"2")
        assert await taken(client, 2) == ["1", "2"]
