"""Subscriptions that every partition has: one of them counts it."""

from tests.support.fakes import until
from tests.support.partitions import Partitions, partitions
from trio_stomp.broker import DestinationPolicy

DEAD = "/queue/dead"


def counted(here: Partitions) -> list[tuple[int, int, int]]:
    """Return what each partition counts: subscriptions, wildcards among them, copies."""
    found = [owner.server.broker.statistics() for owner in here.owners]
    return [(each.subscriptions, each.wildcards, each.copies) for each in found]


async def test_a_subscription_of_several_partitions_is_counted_by_the_first_of_them() -> None:
    async with partitions({"/queue/jobs.>": DestinationPolicy(dead_letter=DEAD)}) as here:
        client = await here.client()
        acks = {"ack": "client"}
        chosen = {"x-partition": "2"}
        for number, (name, headers) in enumerate(
            [
                ("/queue/>", {}),
                ("/topic/*", acks),
                (DEAD, {}),
                ("/topic/x,/topic/*", {}),
                ("/temp-queue/mine", {}),
                ("DIAG/event/*", {}),
                ("DIAG/event/*", chosen),
            ]
        ):
            subscribe = {"destination": name, "id": f"{number}", "receipt": "r", **headers}
            await client.send("SUBSCRIBE", subscribe)
            await client.receive_until_receipt("r")
        assert counted(here) == [(6, 3, 0), (0, 0, 6), (1, 1, 6)]
        for number in range(7):
            await client.send("UNSUBSCRIBE", {"id": f"{number}", "receipt": "r"})
            await client.receive_until_receipt("r")
        assert counted(here) == [(0, 0, 0)] * 3


async def test_the_next_owner_counts_durable_subscriptions_as_the_one_before() -> None:
    async with partitions() as here:
        client = await here.client()
        durable = {"destination": "/topic/*", "id": "d", "durable": "true", "auto-delete": "false"}
        await client.send("SUBSCRIBE", {**durable, "receipt": "r"})
        await client.receive_until_receipt("r")
        await client.send("DISCONNECT")
        await until(lambda: not any(owner.server.broker.clients for owner in here.owners), 0.01)
        before = counted(here)
        for number in range(3):
            await here.replace(number)
        assert counted(here) == before == [(0, 1, 0), (0, 0, 0), (0, 0, 0)]
