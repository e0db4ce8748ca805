"""Public reports about queues of other brokers: what their users expected happens here."""

from pathlib import Path

import trio

from tests.support.fakes import Client, Received
from tests.support.served import Served, is_quiet, sends, served, served_with, taken
from trio_stomp.broker import DestinationPolicy

Q, DEAD = "/queue/q", "/queue/DLQ.q"
DURABLE = {"persistent": "true"}
ONE_EACH = {"ack": "client-individual", "prefetch-count": "1"}


async def consumer(broker: Served, name: str = Q, **headers: str) -> Client:
    """Subscribe, and acknowledge one by one."""
    client = await broker.connect({})
    more = {key.replace("_", "-"): text for key, text in headers.items()}
    await client.send(
        "SUBSCRIBE", {"destination": name, "id": "1", "ack": "client-individual", **more}
    )
    return client


async def acks(client: Client, message: Received, **headers: str) -> None:
    """Acknowledge, and wait until the broker has done it."""
    await client.send("ACK", {"id": message["ack"], "receipt": "acked", **headers})
    assert not await client.receive_until_receipt("acked")


async def nacks(client: Client, message: Received) -> None:
    await client.send("NACK", {"id": message["ack"]})


async def test_messages_expire_behind_one_that_was_consumed(tmp_path: Path) -> None:
    """LavinMQ 1596: after a message without an end, the next ones did not expire any more."""
    policies = {Q: DestinationPolicy(dead_letter_expired=True)}
    async with served_with(policies, {"data_dir": str(tmp_path)}) as broker:
        await sends(broker, Q, "stays")
        await sends(broker, Q, "expires", expiration="300")
        reader = await consumer(broker, prefetch_count="1")
        assert await taken(reader, 1) == ["stays"]
        await reader.send("UNSUBSCRIBE", {"id": "1"})
        assert await taken(await consumer(broker, DEAD), 1) == ["expires"]


async def test_each_queue_of_a_chain_delays_each_message(tmp_path: Path) -> None:
    """LavinMQ 583, 1134: the second queue forgot its delay; a second message was lost."""
    chain = [DestinationPolicy(ttl_ms=200, dead_letter=f"/queue/{n}", dead_letter_expired=True)
             for n in (2, 3)]  # fmt: skip
    policies = {"/queue/1": chain[0], "/queue/2": chain[1]}
    async with served_with(policies, {"data_dir": str(tmp_path)}) as broker:
        reader = await consumer(broker, "/queue/3")
        for body in ("first", "second"):
            started = trio.current_time()
            await sends(broker, "/queue/1", body)
            assert await taken(reader, 1) == [body]
            assert trio.current_time() - started > 0.39


async def test_dead_letters_go_round_with_a_consumer_that_rejects() -> None:
    """RabbitMQ 216, 10709: the queue crashed at the third time; the count did not grow."""
    round_ = {
        Q: DestinationPolicy(max_redeliveries=0, dead_letter="/queue/retry"),
        "/queue/retry": DestinationPolicy(ttl_ms=50, dead_letter=Q, dead_letter_expired=True),
    }
    async with served_with(round_, {}) as broker:
        await sends(broker, Q, "x")
        reader = await consumer(broker)
        for _ in range(5):
            message = await reader.receive()
            await nacks(reader, message)
        assert message["x-first-death-reason"] == "delivery-limit"
        assert message["x-death-reason"] == "expired"


async def test_priorities_hold_over_a_restart_and_over_pages(tmp_path: Path) -> None:
    """LavinMQ 434, ActiveMQ AMQ-7070: urgent messages went to the end; cached ones before them."""
    options = {"data_dir": str(tmp_path), "max_memory_bytes": 4 * 1024 * 1024}
    many = [f"{number}".ljust(1000) for number in range(1500)]
    async with served(**options) as broker:
        await sends(broker, Q, *many, priority="1")
        await sends(broker, Q, "urgent")
    async with served(**options) as broker:
        await sends(broker, Q, "more urgent", priority="9")
        reader = await consumer(broker, prefetch_count="1000")
        assert await taken(reader, 2 + len(many)) == ["more urgent", "urgent", *many]


async def test_old_messages_come_before_new_ones_after_a_restart(tmp_path: Path) -> None:
    """NATS Streaming 187: unacknowledged messages came in the middle of a storm of new ones."""
    bodies = [str(number) for number in range(150)]
    async with served(data_dir=str(tmp_path)) as broker:
        await sends(broker, Q, *bodies[:50])
        reader = await consumer(broker, prefetch_count="20")
        await reader.receive_many(20)
    async with served(data_dir=str(tmp_path)) as broker:
        reader = await consumer(broker, prefetch_count="1000")
        await sends(broker, Q, *bodies[50:])
        assert await taken(reader, 150) == bodies


async def test_failures_are_counted_over_a_restart_and_the_last_one_is_enough(
    tmp_path: Path,
) -> None:
    """LavinMQ 976, 1911, NATS 4956: the count began anew, and the message stayed until it came."""
    policies = {Q: DestinationPolicy(max_redeliveries=1, backoff_s=(0.0,))}
    options = {"data_dir": str(tmp_path)}
    async with served_with(policies, options) as broker:
        await sends(broker, Q, "x")
        reader = await consumer(broker)
        await nacks(reader, await reader.receive())
        assert (await reader.receive())["redelivered"] == "true"
        await reader.send("UNSUBSCRIBE", {"id": "1", "receipt": "returned"})
        await reader.receive_until_receipt("returned")
    async with served_with(policies, options) as broker:
        reader = await consumer(broker)
        message = await reader.receive()
        assert (message["redelivered"], message["delivery-count"]) == ("true", "3")
        await nacks(reader, message)
        reader.abort()
        assert await taken(await consumer(broker, DEAD), 1) == ["x"]


async def test_a_busy_consumer_of_a_high_priority_stops_no_other() -> None:
    """ActiveMQ 2196: 8 of 40 messages came, though their consumer was idle."""
    async with served() as broker:
        busy = await consumer(broker, x_priority="9", prefetch_count="5", selector="kind = 'other'")
        idle = await consumer(broker, prefetch_count="10", selector="kind = 'app'")
        for number in range(40):
            await sends(broker, Q, f"{number}", kind="app")
            await sends(broker, Q, *"1234", kind="other")
        assert await taken(idle, 40) == [str(number) for number in range(40)]
        assert len(await busy.receive_many(5)) == 5
        assert await is_quiet(busy)


async def test_groups_outlive_consumers_that_come_and_go() -> None:
    """Spring 33003: with a prefetch of 0, a group's messages piled up after some consumers."""
    async with served() as broker:
        for number in range(40):
            await sends(broker, Q, f"{number}", JMSXGroupID=f"{number % 4}")
        got: list[int] = []
        for round_ in range(100):
            readers = [await consumer(broker, **{"activemq.prefetchSize": "0"}) for _ in "123"]
            for number, reader in enumerate(readers):
                with trio.move_on_after(0.05):
                    message = await reader.receive()
                    if (number + round_) % 3:
                        got.append(int(message.body))
                        await acks(reader, message)
            for reader in readers:
                reader.abort()
            if len(got) == 40:
                break
        for group in range(4):
            assert [each for each in got if each % 4 == group] == list(range(group, 40, 4))


async def test_acks_of_transactions_give_credit_each_time() -> None:
    """ActiveMQ AMQ-7211: after some transactions nothing came any more."""
    async with served() as broker:
        await sends(broker, Q, *"12345678")
        reader, got = await consumer(broker, prefetch_count="2"), []
        for name in "abcd":
            await reader.send("BEGIN", {"transaction": name})
            for message in await reader.receive_many(2):
                got.append(message.body)
                await reader.send("ACK", {"id": message["ack"], "transaction": name})
            await reader.send("COMMIT", {"transaction": name})
        assert b"".join(got) == b"12345678"


async def test_a_transaction_beyond_a_full_queue_fails_as_a_whole() -> None:
    """RabbitMQ 8966: COMMIT was confirmed, and the queue had taken too many messages, or none."""
    policies = {Q: DestinationPolicy(max_messages=5)}
    async with served_with(policies, {}) as broker:
        for bodies, is_taken in (("abc", True), ("defghi", False), ("jk", True)):
            client = await broker.connect({})
            await client.send("BEGIN", {"transaction": "t"})
            await client.publish(Q, *[b.encode() for b in bodies], headers={"transaction": "t"})
            await client.send("COMMIT", {"transaction": "t", "receipt": "done"})
            answer = await client.receive()
            assert answer.command == ("RECEIPT" if is_taken else "ERROR")
        reader = await consumer(broker)
        assert await taken(reader, 5) == list("abcjk")
        assert await is_quiet(reader)


async def test_unacknowledged_messages_count_and_return_to_a_full_queue() -> None:
    """RabbitMQ 2313: a full queue took more, and dropped what returned to it."""
    policies = {Q: DestinationPolicy(max_messages=5)}
    async with served_with(policies, {}) as broker:
        await sends(broker, Q, *"abcde")
        first = await consumer(broker)
        await first.receive_many(5)
        producer = await broker.connect({})
        await producer.publish(Q, b"f")
        await producer.expect_error("queue-full")
        first.abort()
        assert await taken(await consumer(broker), 5) == list("abcde")


async def test_ids_are_known_after_a_purge_and_a_restart(tmp_path: Path) -> None:
    """NATS 3272: a purged message was a duplicate before a restart, and none after it."""
    headers = {"destination": Q, "x-dedup-id": "one", "receipt": "r", **DURABLE}
    for _ in range(2):
        async with served(data_dir=str(tmp_path)) as broker:
            producer = await broker.connect({})
            await producer.send("SEND", headers)
            await producer.receive()
            async with await broker.stream() as stream:
                host = "Host: localhost\r\nContent-Length: 0\r\nConnection: close"
                await stream.send_all(
                    f"POST /api/v1/purge?queue={Q} HTTP/1.1\r\n{host}\r\n\r\n".encode()
                )
                assert b" 200 " in b"".join([piece async for piece in stream])
            await producer.send("SEND", headers)
            assert (await producer.receive())["duplicate"] == "true"


async def test_a_browser_of_dead_letters_sees_them_and_changes_nothing() -> None:
    """ActiveMQ AMQ-9554: a browser saw no messages that had reached the limit of deliveries."""
    async with served_with({Q: DestinationPolicy(max_redeliveries=0)}, {}) as broker:
        await sends(broker, Q, "x")
        reader = await consumer(broker)
        await nacks(reader, await reader.receive())
        for _ in range(3):
            browser = await consumer(broker, DEAD, browser="true")
            assert (await browser.receive()).body == b"x"
            assert (await browser.receive())["browser"] == "end"
        assert (await (await consumer(broker, DEAD)).receive()).get("redelivered") is None


async def test_a_transaction_with_a_refused_frame_fails_as_a_whole() -> None:
    """Artemis 5106: COMMIT was confirmed though a SEND of the transaction had failed."""
    async with served(dialect="stompica") as broker:  # its ERRORs do not end the connection
        client = await broker.connect({})
        await client.send("BEGIN", {"transaction": "t"})
        await client.publish(Q, b"good", headers={"transaction": "t"})
        await client.publish("b*", b"bad", headers={"transaction": "t"})
        await client.send("COMMIT", {"transaction": "t", "receipt": "done"})
        assert (await client.receive())["code"] == "wildcard-in-send"
        assert await is_quiet(await consumer(broker))


async def test_a_refused_message_waits_for_its_time_over_a_reload() -> None:
    """NATS 5526: a change of the settings lost the messages that waited for their redelivery."""
    policies = {Q: DestinationPolicy(backoff_s=(0.5,))}
    async with served_with(policies, {}) as broker:
        await sends(broker, Q, "x")
        reader = await consumer(broker)
        await nacks(reader, await reader.receive())
        await broker.handle.reload()
        assert (await reader.receive()).body == b"x"


async def test_work_of_a_lost_transaction_comes_again() -> None:
    """OpenMPF 1208: after a failover, a message that a transaction held was lost."""
    async with served() as broker:
        await sends(broker, Q, "x")
        reader = await consumer(broker)
        message = await reader.receive()
        await reader.send("BEGIN", {"transaction": "t"})
        await reader.send("ACK", {"id": message["ack"], "transaction": "t"})
        await reader.publish("/queue/result", b"half", headers={"transaction": "t"})
        reader.abort()
        message = await (await consumer(broker)).receive()
        assert (message.body, message["redelivered"]) == (b"x", "true")
        assert await is_quiet(await consumer(broker, "/queue/result"))
