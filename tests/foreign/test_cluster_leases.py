"""Leases of three nodes on real JetStream: taken, renewed, lost, handed over."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio
from attrs import define, field

from tests.support.fakes import until
from tests.support.nats import NatsProcess, running_nats
from trio_stomp.cluster import Lease, LeaseOptions, lease_time
from trio_stomp.cluster.leases import LeaseKeeper, keep_leases
from trio_stomp.nats import JetStream, NatsOptions, open_client

pytestmark = pytest.mark.foreign
TIMES = LeaseOptions(ttl_s=0.6, renew_s=0.15, rank_s=0.1)
SUBJECTS = (b"lease.0", b"lease.1")


@define
class Node:
    """A node with its leases of two partitions."""

    name: str
    keeper: LeaseKeeper = field(init=False)
    stop: trio.CancelScope = field(factory=trio.CancelScope)

    async def run(self, server: NatsProcess, rank: int, task_status: trio.TaskStatus) -> None:  # type: ignore[type-arg]
        with self.stop:
            async with open_client(NatsOptions([server.address])) as client:
                await client.wait_until_connected()
                now = lease_time()
                leases = {each: Lease(self.name, rank, TIMES, now) for each in SUBJECTS}
                async with keep_leases(JetStream(client), "LEASES", leases) as self.keeper:
                    task_status.started()
                    await trio.sleep_forever()

    def holds(self, subject: bytes = SUBJECTS[0]) -> bool:
        return self.keeper.leases[subject].is_held(lease_time())


@asynccontextmanager
async def cluster(folder: Path) -> AsyncGenerator[list[Node], None]:
    """Three nodes, the first of which has taken both leases, all within 20 s."""
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(20))
        (server,) = stack.enter_context(running_nats(folder))
        async with open_client(NatsOptions([server.address])) as client:
            await client.wait_until_connected()
            config = {"name": "LEASES", "subjects": ["lease.*"], "max_msgs_per_subject": 1}
            await JetStream(client).create_stream(config)
        tasks = await stack.enter_async_context(trio.open_nursery())
        nodes = [Node(name) for name in "abc"]
        for rank, node in enumerate(nodes):
            await tasks.start(node.run, server, rank)
        await until(lambda: all(nodes[0].holds(each) for each in SUBJECTS))
        yield nodes
        tasks.cancel_scope.cancel()


def holders(nodes: list[Node]) -> str:
    return "".join(node.name for node in nodes if node.holds())


async def test_a_holder_renews_and_its_death_is_followed_by_the_next(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        for _ in range(20):
            await trio.sleep(TIMES.ttl_s / 10)
            assert holders(nodes) == "a"
        killed_at = lease_time()
        nodes[0].stop.cancel()
        await until(lambda: holders(nodes[1:]) == "b")
        assert TIMES.ttl_s / 2 < lease_time() - killed_at < 3 * TIMES.ttl_s
        await until(lambda: nodes[1].holds(SUBJECTS[1]))


async def test_a_lease_is_handed_over_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        start = lease_time()
        nodes[0].keeper.hand_over(SUBJECTS[0], "c")
        await until(lambda: holders(nodes) == "c")
        assert lease_time() - start < TIMES.ttl_s
        assert nodes[0].holds(SUBJECTS[1])
        for lease in nodes[0].keeper.leases.values():
            lease.is_candidate = False
        nodes[0].keeper.hand_over(SUBJECTS[1], "")
        await until(lambda: nodes[1].holds(SUBJECTS[1]))
        assert holders(nodes) == "c"
