"""A NATS server is retired: the streams of a cluster move to others."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.support.nats import running_nats
from trio_stomp.base import OptionError
from trio_stomp.cli import main
from trio_stomp.cluster import ClusterNames, open_engine, vacate
from trio_stomp.nats import JetStream, NatsOptions, open_client
from trio_stomp.store import StoreUnavailable

pytestmark = pytest.mark.foreign
NAMES = ClusterNames("orders")
STREAMS = {"orders_log_00", "orders_snap_00", "orders_leases"}
READY_S = 30.0


@asynccontextmanager
async def engine(
    folder: Path, nodes: int, replicas: int
) -> AsyncGenerator[tuple[JetStream, str], None]:
    """Servers with the streams of a cluster, and one of another application; and their URLs."""
    with trio.fail_after(90), running_nats(folder, nodes=nodes) as servers:
        addresses = [server.address for server in servers]
        async with open_client(NatsOptions(addresses)) as client:
            jetstream = await open_engine(client, NAMES, replicas, READY_S)
            await jetstream.create_stream({"name": "other", "subjects": ["other"]})
            yield jetstream, ",".join(map(str, addresses))


async def test_all_streams_leave_a_server_that_led_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with engine(tmp_path, 4, 3) as (jetstream, urls):
        for number in range(10):
            await jetstream.publish(NAMES.log_subject, b"%d" % number, headers={})
        left = (await jetstream.stream(NAMES.log)).leader
        argv = ["cluster", "vacate", left, "--cluster", urls, "--cluster-name", "orders"]
        for _ in range(2):  # the second time there is nothing left to do
            assert await trio.to_thread.run_sync(main, [*argv, "--json"]) == 0
            found = json.loads(capsys.readouterr().out)
            assert set(found) == STREAMS
            assert {len(servers) for servers in found.values()} == {3}
            assert not any(left in servers for servers in found.values())
        assert await trio.to_thread.run_sync(main, argv) == 0
        assert f"{left} has nothing of the cluster" in capsys.readouterr().out
        assert (await jetstream.stream(NAMES.log)).messages == 10


@pytest.mark.parametrize(
    ("nodes", "replicas", "says"),
    [(3, 3, "start one more server"), (1, 1, "the only replica of orders_")],
)
async def test_the_last_replica_of_a_stream_stays(
    tmp_path: Path, nodes: int, replicas: int, says: str
) -> None:
    async with engine(tmp_path, nodes, replicas) as (jetstream, _):
        server = (await jetstream.stream(NAMES.log)).leader
        with pytest.raises(OptionError, match=says):
            await vacate(jetstream, NAMES, server, 3.0)
        assert (await jetstream.stream(NAMES.log)).leader


async def test_nothing_moves_while_replicas_are_not_current(tmp_path: Path) -> None:
    async with engine(tmp_path, 3, 3) as (jetstream, _):
        with pytest.raises(StoreUnavailable, match="not all replicas of orders_"):
            await vacate(jetstream, NAMES, "n0", 0.0)


async def test_a_cluster_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with engine(tmp_path, 1, 1) as (_, urls):
        argv = ["cluster", "vacate", "n0", "--cluster", urls, "--cluster-name", "none"]
        assert await trio.to_thread.run_sync(main, argv) == 1
        assert "there is no cluster none" in capsys.readouterr().err
