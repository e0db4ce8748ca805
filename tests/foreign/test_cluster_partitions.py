"""Nodes of a cluster with partitions, on real servers of NATS."""

import json
import shutil
import tomllib
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from tests.support.chromium import chromium_or_skip, running_chromium
from tests.support.cluster_nodes import (
    STORED,
    Cluster,
    Node,
    cluster,
    eventually,
    refused,
    settings,
)
from tests.support.dashboard import live, shows
from tests.support.fakes import Client, StreamPipe
from trio_stomp import Settings
from trio_stomp.base import OptionError
from trio_stomp.cli import main
from trio_stomp.cluster import ClusterNames, newest, open_log
from trio_stomp.cluster.routing import Placement
from trio_stomp.nats import JetStream
from trio_stomp.security import hash_passcode
from trio_stomp.store import Keep

pytestmark = pytest.mark.foreign
ANSWERS = "trio_stomp.cli.commands._cluster._ask.ANSWERS_S"
PLACEMENT = Placement(3)
NAMES = [
    next(name for number in range(99) if PLACEMENT.of(name := f"/queue/q{number}") == partition)
    for partition in range(3)
]
"""A queue in each partition."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of a busy machine have time to answer the commands."""
    monkeypatch.setattr(ANSWERS, 2.0)


def parted(folder: Path, nodes: int = 2) -> AbstractAsyncContextManager[Cluster]:
    return cluster(folder, nodes, cluster_partitions=3)


def calm(folder: Path) -> AbstractAsyncContextManager[Cluster]:
    """Two nodes that keep what they own, however busy the machine is: counters end with owners."""
    return cluster(folder, 2, most_s=180, cluster_partitions=3, lease_s=20.0)


async def put(here: Cluster, node: Node, *bodies: bytes) -> None:
    """Store messages in a queue of each partition."""
    client = await here.client(node)
    for name in NAMES:
        for body in bodies:
            headers = {"destination": name, "receipt": "r", **STORED}
            await client.send("SEND", headers, body)
            assert (await client.receive())["stored"] == "cluster"


async def take(here: Cluster, node: Node, count: int) -> dict[str, list[bytes]]:
    """Consume messages by a wildcard, and return the bodies by queue."""
    client = await here.client(node)
    subscribe = {"destination": "/queue/>", "id": "1", "ack": "client-individual"}
    await client.send("SUBSCRIBE", subscribe)
    found: dict[str, list[bytes]] = {}
    for _ in range(count):
        frame = await client.receive()
        found.setdefault(frame["destination"], []).append(frame.body)
        await client.send("ACK", {"id": frame["ack"]})
    await client.send("DISCONNECT", {"receipt": "all"})
    assert (await client.receive())["receipt-id"] == "all"
    return found


async def are_spread(here: Cluster) -> bool:
    """Return whether both nodes own partitions, so that none goes to the other one."""
    return set(await here.owners(3)) == {"n0", "n1"}


async def test_partitions_are_spread_over_nodes_and_outlive_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.startup._partitions.BALANCE_S", 0.2)
    async with parted(tmp_path) as here:
        first, second = here.nodes

        await eventually(partial(are_spread, here))
        await put(here, first, b"1", b"2")
        first.handle.stop()
        await first.ended.wait()
        assert await here.owners(3) == ["n1"] * 3
        await put(here, second, b"3")
        again = await here.start("n0", cluster_partitions=3)
        await eventually(partial(are_spread, here))
        assert await take(here, again, 9) == {name: [b"1", b"2", b"3"] for name in NAMES}


async def test_the_owners_of_partitions_answer_pages(tmp_path: Path) -> None:
    async with parted(tmp_path) as here:
        await eventually(partial(are_spread, here))
        await put(here, here.nodes[0], b"x")
        for node in here.nodes:
            for partition, name in enumerate(NAMES):
                for query in (f"queue={name}", f"queue={name}&partition={partition}"):
                    page = await node.page(f"/api/v1/queue?{query}")
                    assert page.startswith(b"HTTP/1.1 200 "), page.decode()
                    assert name.encode() in page
            assert b"400 " in await node.page("/metrics?partition=3")
            assert b"200 OK" in await node.page("/readyz")


async def test_messages_of_a_confirmed_commit_reach_other_partitions_though_its_owner_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.startup._partitions.BALANCE_S", 0.2)
    monkeypatch.setattr("trio_stomp.cluster.routing._forwarder.Forwarder._take", lambda *_: None)
    async with parted(tmp_path) as here:
        await eventually(partial(are_spread, here))
        owners = await here.owners(3)
        coordinator = next(node for node in here.nodes if node.name == owners[0])
        (survivor,) = (node for node in here.nodes if node is not coordinator)
        client = await here.client(survivor)
        await client.send("BEGIN", {"transaction": "t"})
        for name in NAMES:
            await client.publish(name, b"x", headers={"transaction": "t", **STORED})
        await client.send("COMMIT", {"transaction": "t", "receipt": "r"})
        await client.receive_until_receipt("r")
        monkeypatch.undo()
        coordinator.stop.cancel()
        await coordinator.ended.wait()
        assert await here.owners(3) == [survivor.name] * 3
        assert await take(here, survivor, 3) == {name: [b"x"] for name in NAMES}


async def test_another_layout_of_an_existing_cluster_is_refused(tmp_path: Path) -> None:
    async with parted(tmp_path, 1) as here:
        await here.owners(3)
        three = {"cluster_partitions": 3, "cluster_colocate": "a"}
        for options in ({}, {"cluster_partitions": 2}, three):
            error = await refused(settings(tmp_path, here.server, "n9", **options))
            assert isinstance(error, OptionError)
            assert "made with cluster_partitions = 3 and" in str(error)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cluster_partitions": 65}, "must be 64 at most"),
        ({"cluster_partitions": 3, "dialect": "stompica"}, "keeps connections after an ERROR"),
        ({"cluster_partitions": 3, "cluster_colocate": "/queue/a*b.c"}, "cluster_colocate: "),
    ],
)
async def test_options_that_conflict_with_partitions_are_refused(
    tmp_path: Path, options: dict[str, object], says: str
) -> None:
    async with cluster(tmp_path, 0) as here:
        error = await refused(settings(tmp_path, here.server, "n0", **options))
        assert isinstance(error, OptionError)
        assert says in str(error)


async def test_the_command_shows_and_drains_partitions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with parted(tmp_path) as here:

        async def run(*words: str) -> str:
            argv = ["cluster", *words, "--cluster", str(here.server.address)]
            assert await trio.to_thread.run_sync(main, argv) == 0
            return "".join(capsys.readouterr())

        await eventually(partial(are_spread, here))
        assert "partition 2 of 3 partitions" in await run("status", "--partition", "2")
        assert "3 partitions: logs of " in await run("status")
        found = json.loads(await run("status", "--json"))
        assert sorted(number for row in found["nodes"] for number in row["owns"]) == [0, 1, 2]
        assert found["owners"] == await here.owners(3)
        await run("drain", "n0")
        assert await here.owners(3) == ["n1"] * 3
        assert b"503 " in await here.nodes[0].page("/readyz")
        assert "n1 owns" in await run("move", "n1", "--partition", "1")
        assert "same state" in await run("verify", "--partition", "1")
        here.nodes[1].stop.cancel()  # and no other node takes its leases
        await here.nodes[1].ended.wait()
        page = await here.nodes[0].page("/api/v1/queues")
        assert page.startswith(b"HTTP/1.1 503 ")
        assert b"partition 0 does not answer at the moment" in page


async def answer(node: Node, path: str, method: str = "GET", body: bytes = b"") -> Any:
    """Return the JSON of a page."""
    page = await node.page(path, method, body)
    assert page.startswith(b"HTTP/1.1 200 "), page.decode()
    return json.loads(page.partition(b"\r\n\r\n")[2])


async def sees_both(node: Node) -> bool:
    """Return whether a node knows the sessions of all nodes."""
    listed = await answer(node, "/connz?state=open")
    return {each["node"] for each in listed["connections"]} == {"n0", "n1"}


async def test_every_node_answers_for_all_partitions_and_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.startup._partitions.BALANCE_S", 0.2)
    monkeypatch.setattr("trio_stomp.startup.pages._peers.LOOK_S", 0.2)
    async with calm(tmp_path) as here:
        await eventually(partial(are_spread, here))
        first, second = here.nodes
        await put(here, first, b"x", b"y")
        client = await here.client(second)
        await client.send("SUBSCRIBE", {"destination": NAMES[0], "id": "1", "receipt": "s"})
        await client.receive_until_receipt("s")
        for node in here.nodes:
            await eventually(partial(sees_both, node))
            listed = await answer(node, "/api/v1/queues?sort=name&limit=2&offset=1")
            assert [each["destination"] for each in listed["queues"]] == sorted(NAMES)[1:]
            for each in listed["queues"]:
                assert each["partition"] == PLACEMENT.of(each["destination"])
            assert (listed["total"], listed["count"], listed["offset"]) == (3, 2, 1)
            fullest = await answer(node, "/queuez?limit=1&state=waiting")
            assert fullest["queues"][0]["destination"] in NAMES
            overview = await answer(node, "/api/v1/overview")
            assert overview["messages"]["received_total"] == 6
            assert overview["session"]["stomp_connected"] == 2
            assert overview["session"]["subscriptions"] == 1
            assert set(overview["cluster"]["owners"]) == {"n0", "n1"}
            part = await answer(node, "/api/v1/overview?partition=1")
            assert part["messages"]["received_total"] == 2
            alone = await answer(node, "/api/v1/overview?node=n1")
            assert alone["session"]["stomp_connected"] == 1
            assert b"is no node" in await node.page("/api/v1/overview?node=n7")
            assert b"400 " in await node.page("/api/v1/queues?limit=1001")


async def test_a_subscription_with_a_wildcard_is_counted_and_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.startup._partitions.BALANCE_S", 0.2)
    monkeypatch.setattr("trio_stomp.startup.pages._peers.LOOK_S", 0.2)
    async with calm(tmp_path) as here:
        await eventually(partial(are_spread, here))
        first, second = here.nodes
        client = await here.client(second)
        each = {"ack": "client-individual"}
        durable = {**each, "durable": "true", "auto-delete": "false"}
        for number, (name, headers) in enumerate(
            [("/queue/>", each), ("/topic/*", durable), ("/topic/*", {}), (NAMES[2], each)]
        ):
            subscribe = {"destination": name, "id": f"{number}", "receipt": "s", **headers}
            await client.send("SUBSCRIBE", subscribe)
            await client.receive_until_receipt("s")
        await put(here, first, b"x")
        await eventually(partial(sees_both, first))

        async def are_out() -> bool:
            listed = await answer(first, "/api/v1/subscriptions")
            unacked = {one["subscription_id"]: one["unacked"] for one in listed["subscriptions"]}
            return sum(unacked.values()) == len(NAMES)

        await eventually(are_out)
        listed = await answer(first, "/api/v1/subscriptions")
        ids = [one["subscription_id"] for one in listed["subscriptions"]]
        assert (sorted(ids), listed["total"], listed["count"]) == (["0", "1", "2", "3"], 4, 4)
        session = listed["subscriptions"][0]["session_id"]
        shown = await answer(first, f"/api/v1/connection?session={session}")
        assert (shown["total"], len(shown["subscriptions"])) == (4, 4)
        listed = await answer(first, "/connz?sort=subscriptions&state=open&limit=1")
        assert [one["subscriptions"] for one in listed["connections"]] == [4]
        listed = await answer(first, "/api/v1/durables")
        assert (listed["total"], [one["name"] for one in listed["durables"]]) == (1, ["1"])
        overview = await answer(first, "/varz")
        assert (overview["session"]["subscriptions"], overview["wildcards"]) == (4, 2)
        copies = await answer(first, "/api/v1/subscriptions?partition=1&copies=1")
        assert {one["subscription_id"] for one in copies["subscriptions"]} == {"0", "1", "2"}
        measured = 0.0
        for node in here.nodes:
            page = (await node.page("/metrics")).partition(b"\r\n\r\n")[2].decode()
            for family in text_string_to_metric_families(page):
                if family.name == "trio_stomp_subscriptions":
                    measured += sum(sample.value for sample in family.samples)
        assert measured == 4


async def test_definitions_are_those_of_all_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.startup._partitions.BALANCE_S", 0.2)
    path = "/api/v1/definitions"
    async with calm(tmp_path) as here:
        await eventually(partial(are_spread, here))
        first, second = here.nodes
        client = await here.client(first)
        durable = {"durable": "true", "auto-delete": "false"}
        topic = NAMES[2].replace("queue", "topic")
        for name in ("/topic/*", topic):
            subscribe = {"destination": name, "id": name, "receipt": "s", **durable}
            await client.send("SUBSCRIBE", subscribe)
            await client.receive_until_receipt("s")
        exported = {
            **await answer(second, path),
            "queues": [{"name": name} for name in sorted(NAMES)],
        }
        assert [each["name"] for each in exported["durables"]] == ["/topic/*", topic]
        bad = {**exported, "queues": [*exported["queues"], {"name": "none"}]}
        refused = await first.page(path, "POST", json.dumps(bad).encode())
        assert refused.startswith(b"HTTP/1.1 400 "), refused.decode()
        other = {"durables": [*exported["durables"], {"name": "x"}], "policies": {"/topic/t": {}}}
        body = json.dumps({**exported, **other}).encode()
        unchanged = {"existing": [], "policies": ["/topic/t"], "durables": ["x"]}
        shown = await answer(first, f"{path}?dry_run=1", "POST", body)
        assert shown == {"dry_run": True, "created": sorted(NAMES), **unchanged}
        done = await answer(second, path, "POST", body)
        assert done == {"dry_run": False, "created": sorted(NAMES), **unchanged}
        for partition, name in enumerate(NAMES):
            part = await answer(first, f"{path}?partition={partition}")
            assert part["queues"] == [{"name": name}]
        assert await answer(second, path) == exported
        page = await first.page(f"{path}?format=toml")
        found = tomllib.loads(page.partition(b"\r\n\r\n")[2].decode())
        assert {"policies": {}, **found} == exported


async def test_schedules_and_durable_subscriptions_end_in_the_partitions_that_have_them(
    tmp_path: Path,
) -> None:
    async with calm(tmp_path) as here:
        await here.owners(3)
        first, second = here.nodes
        client = await here.client(first)
        for name in NAMES:
            later = {"AMQ_SCHEDULED_DELAY": "600000"}
            await client.publish(name, b"later", headers=later, receipt=True)
        durable = {"durable": "true", "auto-delete": "false", "receipt": "s"}
        await client.send("SUBSCRIBE", {"destination": "/topic/*", "id": "d", **durable})
        await client.receive_until_receipt("s")
        await client.send("DISCONNECT", {"receipt": "bye"})
        await client.receive_until_receipt("bye")
        listed = (await answer(second, "/api/v1/schedules"))["schedules"]
        ids = [each["id"] for each in listed if each["partition"] != 1]
        assert b"names no partition" in await second.page("/api/v1/cancel?id=1", "POST")
        ended = await answer(second, f"/api/v1/cancel?id={ids[0]}&id={ids[1]}", "POST")
        assert ended == {"cancelled": 2}
        (left,) = (await answer(second, "/api/v1/schedules"))["schedules"]
        assert left["destination"] == NAMES[1]
        assert b"destination is missing" in await second.page("/api/v1/end?name=d", "POST")
        ended = await answer(second, "/api/v1/end?name=d&destination=/topic/*", "POST")
        assert ended == {"name": "d", "ended": 1}
        for partition in range(3):
            for copies in (0, 1):
                query = f"partition={partition}&copies={copies}"
                assert (await answer(first, f"/api/v1/durables?{query}"))["total"] == 0
        assert b"404 " in await second.page("/api/v1/end?name=d&destination=/topic/*", "POST")


async def test_a_reload_is_that_of_one_node_with_all_its_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.startup._partitions.BALANCE_S", 0.2)
    monkeypatch.setattr("trio_stomp.startup.pages._peers.LOOK_S", 0.2)
    async with calm(tmp_path) as here:
        await eventually(partial(are_spread, here))
        owners = await here.owners(3)
        first, second = here.nodes
        changed = settings(
            tmp_path, here.server, "n1", cluster_partitions=3, lease_s=20.0, ttl_ms=5, diag_full_s=9
        )
        second.handle.reread = partial(second.handle.reload, changed)
        client = await here.client(first)
        await here.client(second)
        await eventually(partial(sees_both, first))
        done = await answer(first, "/api/v1/reload?node=n1", "POST")
        assert (done["reloaded"], done["node"]) == (True, "n1")
        assert [each["name"] for each in done["changes"]] == ["ttl_ms", "diag_full_s"]
        for query, node in (("node=n1", "n1"), *((f"partition={p}", owners[p]) for p in range(3))):
            listed = await answer(first, f"/api/v1/settings?name=ttl_ms&{query}")
            assert (listed["settings"][0]["value"] == "5") == (node == "n1")
        assert (await answer(first, "/api/v1/reload", "POST"))["node"] == "n0"
        await client.aclose()


async def test_any_node_shows_and_closes_a_connection_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.startup.pages._peers.LOOK_S", 0.2)
    async with calm(tmp_path) as here:
        await here.owners(3)
        first, second = here.nodes
        client = await here.client(second)
        await here.client(first)
        await eventually(partial(sees_both, first))
        listed = await answer(first, "/connz?state=open")
        (session,) = (each["session_id"] for each in listed["connections"] if each["node"] == "n1")
        for number, name in enumerate(NAMES):  # owners know it by the same id
            await client.send("SUBSCRIBE", {"destination": name, "id": f"{number}", "receipt": "s"})
            await client.receive_until_receipt("s")
        path = f"/api/v1/subscriptions?session={session}"
        listed = await answer(first, path)
        assert {each["destination"] for each in listed["subscriptions"]} == set(NAMES)
        shown = await answer(first, f"/api/v1/connection?session={session}")
        assert shown["session_id"] == session
        path = f"/api/v1/close?session={session}"
        assert b"200 OK" in await first.page(path, method="POST")
        assert (await client.receive())["code"] == "closed-by-operator"
        assert b"404 " in await first.page("/api/v1/close?session=none", method="POST")


async def test_the_owner_of_the_first_partition_reports_failed_logins_of_all_nodes(
    tmp_path: Path,
) -> None:
    users, rules = tmp_path / "users", tmp_path / "rules"
    users.write_text(f"alice:{hash_passcode('right')}\n")
    users.chmod(0o600)
    rules.write_text('[[rule]]\nuser = "alice"\nallow = "all"\nto = "**"\n')
    files = {"passwd_file": str(users), "acl_file": str(rules)}
    async with cluster(tmp_path, 2, 120, cluster_partitions=3, **files) as here:
        await here.owners(3)
        watcher = Client(StreamPipe(await here.nodes[0].stream()))
        await watcher.connect(headers={"login": "alice", "passcode": "right"})
        await watcher.subscribe("DIAG/event/auth")
        for node in here.nodes:
            client = Client(StreamPipe(await node.stream()))
            headers = {"accept-version": "1.2", "host": "x", "login": "alice", "passcode": "wrong"}
            await client.send("CONNECT", headers)
            assert (await client.receive())["code"] == "authentication-failed"
            event = json.loads((await watcher.receive()).body)
            found = event["reason"], event["detail"]
            assert found == ("authentication-failed", f"node {node.name}")
            await client.aclose()
        await watcher.aclose()


async def test_metrics_of_a_node_are_those_of_its_clients_and_of_what_it_owns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.startup._partitions.BALANCE_S", 0.2)
    async with calm(tmp_path) as here:
        await eventually(partial(are_spread, here))
        await put(here, here.nodes[0], b"x")
        received: dict[str, float] = {}
        connections = 0.0
        for node in here.nodes:
            page = (await node.page("/metrics")).partition(b"\r\n\r\n")[2].decode()
            for family in text_string_to_metric_families(page):
                for sample in family.samples:
                    if sample.name == "trio_stomp_messages_received_total":
                        partition = sample.labels["partition"]
                        assert partition not in received
                        received[partition] = sample.value
                    if sample.name == "trio_stomp_connections" and sample.labels["version"] > "1":
                        connections += sample.value * (sample.labels["version"] != "none")
            assert page.count("# TYPE trio_stomp_messages_received_total ") <= 1
        assert received == {"0": 1.0, "1": 1.0, "2": 1.0}
        assert connections == 1


async def test_the_store_of_a_broker_that_was_alone_moves_into_partitions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = Node("alone", Settings.of(data_dir=str(tmp_path / "alone"), port=0))
    async with cluster(tmp_path, 0) as here:

        async def run(*words: str) -> tuple[int, str]:
            argv = ["cluster", *words, "--cluster", str(here.server.address)]
            code = await trio.to_thread.run_sync(main, argv)
            return code, "".join(capsys.readouterr())

        await here.tasks.start(alone.run)
        client = await here.client(alone)
        for name in NAMES:
            await client.publish(name, b"a", b"b", headers=STORED, receipt=True)
            topic = name.replace("queue", "topic")
            retained = {**STORED, "retain": "set"}
            await client.publish(topic, b"last", headers=retained, receipt=True)
            later = {**STORED, "AMQ_SCHEDULED_DELAY": "600000"}
            await client.publish(name, b"later", headers=later, receipt=True)
        alone.handle.stop()
        await alone.ended.wait()
        new = "--cluster-replicas", "1", "--cluster-partitions", "3", str(tmp_path / "alone")
        code, shown = await run("import", *new)
        assert (code, "filled: messages: 12" in shown) == (0, True), shown
        code, shown = await run("import", *new)
        assert (code, "has been used" in shown) == (2, True), shown
        for name in ("n0", "n1"):
            await here.start(name, cluster_partitions=3)
        await here.owners(3)
        first, second = here.nodes
        left = await answer(second, "/api/v1/schedules")
        assert sorted(each["partition"] for each in left["schedules"]) == [0, 1, 2]
        values = await answer(first, "/api/v1/last-values")
        assert [each["partition"] for each in values["last_values"]] == [
            PLACEMENT.of(each["destination"]) for each in values["last_values"]
        ]
        assert await take(here, second, 6) == {name: [b"a", b"b"] for name in NAMES}


async def kept(here: Cluster, name: str) -> list[str]:
    """Return the names of the settings in the first partition's snapshot.

    The position in the log of another cluster would be taken for one in the new log.
    """
    names = ClusterNames(name)
    stream = open_log(JetStream(here.engine), names.snapshots, names.snapshot_subject)

    def read() -> list[str]:
        found = newest(stream)
        assert found is not None
        records = [record for group in found[1] for record in group]
        return [record.key for record in records if isinstance(record, Keep)]

    try:
        return await trio.to_thread.run_sync(read)
    finally:
        stream.close()


async def test_the_stores_of_all_partitions_of_a_node_move_into_a_new_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with parted(tmp_path, 1) as here:

        async def run(*sources: Path, partitions: int = 3) -> tuple[int, str]:
            new = "--cluster-name", "new", "--cluster-partitions", f"{partitions}"
            argv = ["cluster", "import", *map(str, sources), *new, "--cluster-replicas", "1"]
            argv += ["--cluster", str(here.server.address)]
            code = await trio.to_thread.run_sync(main, argv)
            return code, "".join(capsys.readouterr())

        (node,) = here.nodes
        await here.owners(3)
        await put(here, node, b"1", b"2")
        client = await here.client(node)
        retained = {**STORED, "retain": "set"}
        topic = NAMES[1].replace("queue", "topic")
        await client.publish(topic, b"last", headers=retained, receipt=True)
        await client.send("SUBSCRIBE", {"destination": "/dead", "id": "x", "receipt": "r"})
        await client.receive_until_receipt("r")
        node.handle.stop()
        await node.ended.wait()
        first, second, third = (tmp_path / "n0" / f"cluster-stomp.0{each}" for each in range(3))
        double = shutil.copytree(second, tmp_path / "double")
        for sources, partitions, says in (
            ((first, second), 3, "the store of partition 2 is missing"),
            ((first, second, double), 3, "are both of partition 1"),
            ((second, first, third), 1, "cluster-stomp.01 is not the store of one of 1 partitions"),
            ((first, second, third), 4, ", but has /topic/"),
        ):
            code, shown = await run(*sources, partitions=partitions)
            assert (code, says in shown) == (2, True), shown
        code, shown = await run(third, first, second)
        assert (code, "cluster new is filled: messages: 7" in shown) == (0, True), shown
        assert not [key for key in await kept(here, "new") if key.startswith("cluster:")]
        again = await here.start("n1", cluster_name="new", cluster_partitions=3)
        assert await take(here, again, 6) == {name: [b"1", b"2"] for name in NAMES}
        values = await answer(again, "/api/v1/last-values")
        assert [(each["partition"], each["destination"]) for each in values["last_values"]] == [
            (PLACEMENT.of(topic), topic)
        ]


async def test_without_its_engine_each_partition_may_refuse_persistent_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients at one node: it owns some of the partitions, and another one owns the others."""
    monkeypatch.setattr("trio_stomp.startup._partitions.BALANCE_S", 0.2)
    monkeypatch.setattr("trio_stomp.startup._node.DOUBT_S", 0.3)
    options: dict[str, Any] = {"cluster_partitions": 3, "on_engine_loss": "refuse", "lease_s": 20.0}
    async with cluster(tmp_path, 2, most_s=180, **options) as here:
        await eventually(partial(are_spread, here))
        node, other = here.nodes
        await put(here, node, b"first")  # the owner of each partition serves
        waiting = [await here.client(node) for _ in NAMES]
        late = [await here.client(node) for _ in NAMES]
        here.server.kill()
        for client, name in zip(waiting, NAMES, strict=True):
            headers = {"destination": name, "receipt": "r", **STORED}
            await client.send("SEND", headers, b"in doubt")
            assert "not known whether" in (await client.expect_error("storage"))["message"]
        for client, name in zip(late, NAMES, strict=True):
            headers = {"destination": name, "receipt": "r", **STORED}
            await client.send("SEND", headers, b"refused")
            error = await client.expect_error("storage")
            assert "nothing of this was stored" in error["message"]
        passing = await here.client(node)
        for name in NAMES:  # what is not stored works
            await passing.publish(name.replace("queue", "topic"), b"passes", receipt=True)
        for each in (node, other):
            await eventually(partial(each.is_ready, b"503 "))
        here.server.start()
        for each in (node, other):
            await eventually(partial(each.is_ready, b"200 "))
        await here.owners(3)

        # On a busy machine the engine may be silent for longer than DOUBT_S again.
        for name in NAMES:
            await eventually(partial(here.accepts, other, name, b"stored"))
        found = await drained(here, node, b"stored")
        for bodies in found.values():
            assert set(bodies) <= {b"first", b"in doubt", b"stored"}


async def drained(here: Cluster, node: Node, last: bytes) -> dict[str, list[bytes]]:
    """Consume the queue of each partition until a last body, and return the bodies by queue."""
    found: dict[str, list[bytes]] = {}
    for name in NAMES:
        client = await here.client(node)
        await client.send("SUBSCRIBE", {"destination": name, "id": "1"})
        found[name] = []
        while last not in found[name]:
            found[name].append((await client.receive()).body)
    return found


async def test_the_dashboard_of_any_node_shows_queues_and_events_of_all_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.startup._partitions.BALANCE_S", 0.2)
    path = chromium_or_skip()
    async with calm(tmp_path) as here:
        await eventually(partial(are_spread, here))
        node = here.nodes[1]
        await put(here, here.nodes[0], b"x")
        address = f"http://{node.handle.addresses[0]}/"
        others = [f"{name}.new" for name in NAMES]
        while {PLACEMENT.of(name) for name in others} != {0, 1, 2}:
            others.append(f"/queue/new{len(others)}")

        def browse() -> None:
            with running_chromium(path, tmp_path) as browser, browser.page(address) as page:
                live(page)
                page.go("queues")
                for name in NAMES:
                    shows(page, "#queues", name)
                page.go("events")
                for name in others:
                    trio.from_thread.run(answer, node, f"/api/v1/create?queue={name}", "POST")
                    shows(page, "#events", name)

        await trio.to_thread.run_sync(browse)
