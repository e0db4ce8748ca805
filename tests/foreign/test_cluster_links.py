"""Nodes of a cluster that speak TLS to each other, on real servers of NATS."""

import ssl
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.cluster_nodes import (
    QUEUE,
    STORED,
    Cluster,
    cluster,
    eventually,
    refused,
    settings,
)
from tests.support.fakes import Client, StreamPipe
from tests.support.tls import authority
from trio_stomp.base import OptionError
from trio_stomp.cluster.routing import Placement

pytestmark = pytest.mark.foreign
PLACEMENT = Placement(3)
NAMES = [
    next(name for number in range(99) if PLACEMENT.of(name := f"/queue/q{number}") == partition)
    for partition in range(3)
]
"""A queue in each partition."""


def encrypted() -> dict[str, Any]:
    return {"tls_cert": authority().certificate, "node_ca": authority().file}


async def are_spread(here: Cluster) -> bool:
    return set(await here.owners(3)) == {"n0", "n1"}


async def test_clients_and_pages_reach_partitions_of_other_nodes_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.startup._partitions.BALANCE_S", 0.2)
    async with cluster(tmp_path, 2, cluster_partitions=3, **encrypted()) as here:
        await eventually(partial(are_spread, here))
        node, other = here.nodes
        client = await here.client(node)
        await client.send("BEGIN", {"transaction": "t"})
        for name in NAMES:
            await client.publish(name, b"x" * 100_000, headers={"transaction": "t", **STORED})
        await client.send("COMMIT", {"transaction": "t", "receipt": "r"})
        await client.receive_until_receipt("r")
        consumer = await here.client(other)
        await consumer.send("SUBSCRIBE", {"destination": "/queue/>", "id": "1"})
        found = [await consumer.receive() for _ in NAMES]
        assert sorted(each["destination"] for each in found) == sorted(NAMES)
        assert {each.body for each in found} == {b"x" * 100_000}
        await consumer.send("DISCONNECT", {"receipt": "bye"})
        await consumer.receive_until_receipt("bye")
        for each in here.nodes:
            assert b"200 OK" in await each.page("/api/v1/overview")


async def test_a_standby_relays_clients_with_and_without_tls_of_their_own(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2, **encrypted()) as here:
        standby = await here.standby()
        plain = await here.client(standby)
        context = ssl.create_default_context(cafile=authority().file)
        stream = trio.SSLStream(
            await standby.stream(), context, server_hostname="127.0.0.1", https_compatible=True
        )
        here.stack.push_async_callback(trio.aclose_forcefully, stream)
        secret = Client(StreamPipe(stream))
        await secret.connect()
        await secret.publish(QUEUE, b"x" * 200_000, headers=STORED, receipt=True)
        await plain.send("SUBSCRIBE", {"destination": QUEUE, "id": "1"})
        assert (await plain.receive()).body == b"x" * 200_000
        for client in (plain, secret):
            await client.send("DISCONNECT", {"receipt": "bye"})
            await client.receive_until_receipt("bye")
        listed = await (await here.owner()).page("/connz?state=open")
        assert b"200 OK" in listed


async def test_a_node_of_another_authority_gets_no_clients_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trio_stomp.cluster._gate.WAIT_S", 0.5)
    async with cluster(tmp_path, 1, **encrypted()) as here:
        await here.owner()
        other = await here.start("n1")  # without TLS
        async with await other.stream() as stream:
            await stream.send_all(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
            answer = await stream.receive_some()
            assert answer.startswith(b"ERROR\nmessage:node n0, the owner, ")
            assert await stream.receive_some() == b""
        assert "cannot be reached at 127.0.0.1: this node uses no TLS between nodes" in caplog.text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"node_ca": "ca.pem"}, "node_ca needs the certificate"),
        (
            {"cluster_partitions": 3, "node_address": "192.0.2.1:0", "tls_cert": True},
            r"in the clear: name the authorities of the nodes' certificates \(node_ca\)",
        ),
        (
            {"node_address": "192.0.2.1:0", "tls_cert": True, "node_ca": True},
            r"other nodes would not accept .* valid for 192\.0\.2\.1, the host of node_address",
        ),
    ],
)
async def test_options_that_would_not_work_are_refused(
    tmp_path: Path, options: dict[str, object], says: str
) -> None:
    known = {"tls_cert": authority().certificate, "node_ca": authority().file}
    options = {name: known[name] if value is True else value for name, value in options.items()}
    async with cluster(tmp_path, 0) as here:
        error = await refused(settings(tmp_path, here.server, "n0", **options))
        assert isinstance(error, OptionError)
        with pytest.raises(OptionError, match=says):
            raise error
