"""Lists and single views of the management interface."""

import pytest

from tests.support.management import Interface
from tests.support.served import served


async def test_queues_are_listed_by_name_and_chosen_by_pattern() -> None:
    async with served() as broker:
        client, interface = await broker.connect({}), Interface(broker)
        for name in ("c", "a", "bb", "DLQ.a"):
            await client.publish(f"/queue/{name}", b"x", receipt=True)

        async def names(query: str) -> list[str]:
            listed = await interface.get(f"queues?{query}")
            assert listed["count"] == len(listed["queues"])
            return [each["destination"].removeprefix("/queue/") for each in listed["queues"]]

        assert await names("sort=name") == ["DLQ.a", "a", "bb", "c"]
        assert await names("sort=name&limit=2&offset=1") == ["a", "bb"]
        assert await names("sort=name&name=a") == ["DLQ.a", "a"]
        assert await names("sort=name&name=/queue/?") == ["a", "c"]
        assert await names("name=*.a") == ["DLQ.a"]
        page = await interface.get("queues?name=a&limit=1")
        assert (page["total"], page["count"]) == (2, 1)
        dead = {
            each["destination"]: each["dead_letters"]
            for each in (await interface.get("queues"))["queues"]
        }
        assert [name for name, is_dead in dead.items() if is_dead] == ["/queue/DLQ.a"]


async def test_connections_are_chosen_by_user_address_and_session() -> None:
    async with served() as broker:
        interface = Interface(broker)
        for user in ("ann", "bob"):
            await broker.connect({"login": user, "passcode": "x"})
        listed = await interface.get("connections?name=bo")
        (bob,) = listed["connections"]
        assert (listed["total"], bob["user"]) == (1, "bob")
        assert (await interface.get(f"connections?name={bob['session_id']}*"))["total"] >= 1
        assert (await interface.get("connections?name=127.0.0.1:*"))["total"] >= 2


async def test_destinations_are_listed_by_kind_and_shown_with_their_subscribers() -> None:
    async with served() as broker:
        client, interface = await broker.connect({}), Interface(broker)
        await client.subscribe("/topic/a", "plain")
        await client.subscribe("/topic/*", "wild")
        await client.subscribe("/topic/a", "binding", {"ack": "client"})
        await client.subscribe("/queue/q", "consumer", {"ack": "client"})
        await client.publish("/topic/a", b"x", b"y")
        await client.publish("/topic/b", b"x", receipt=True)
        listed = await interface.get("destinations?kind=topic&limit=1")
        assert (listed["total"], listed["count"], listed["kind"]) == (2, 1, "topic")
        assert listed["destinations"][0]["enqueued_total"] == 2
        ingress, delivery = (
            listed["destinations"][0]["latency"][each] for each in ("ingress", "delivery")
        )
        assert ingress["count_total"] == 2
        assert sum(delivery["bucket_counts"]) == delivery["count_total"] >= 4
        assert len(delivery["bucket_counts"]) == len(listed["le_ms"]) + 1
        names = (await interface.get("destinations?kind=topic&sort=name"))["destinations"]
        assert [each["destination"] for each in names] == ["/topic/a", "/topic/b"]
        overall = (await interface.get("overview"))["latency"]
        assert overall["ingress"]["count_total"] == 3
        topic = await interface.get("destination?destination=/topic/a")
        assert topic["latency"]["delivery"] == delivery
        assert topic["total"] == 3
        ids = [each["subscription_id"] for each in topic["subscriptions"]]
        assert sorted(ids) == ["binding", "plain", "wild"]
        queue = await interface.get("destination?destination=/queue/q")
        assert [each["subscription_id"] for each in queue["subscriptions"]] == ["consumer"]
        part = await interface.get("destination?destination=/topic/a&offset=2")
        assert [each["subscription_id"] for each in part["subscriptions"]] == ids[2:]


@pytest.mark.parametrize("name", ["n", "c2", "/topic/x", "?2"])
async def test_durable_subscriptions_are_filtered_by_name_client_id_or_topic(name: str) -> None:
    async with served() as broker:
        interface = Interface(broker)
        for client_id, topic in (("c1", "/topic/y"), ("c2", "/topic/x")):
            client = await broker.connect({"client-id": client_id})
            durable = {"activemq.subscriptionName": "n", "durable": "true", "ack": "client"}
            await client.subscribe(topic, "1", durable)
            await client.fence()
        listed = await interface.get(f"durables?name={name}")
        assert listed["total"] == (2 if name == "n" else 1)
        newest = listed["durables"][-1]
        assert (newest["name"], newest["client_id"], newest["state"]) == ("n", "c2", "connected")
