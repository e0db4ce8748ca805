"""Nodes of a cluster on the real engine: relays to the owner, takeovers, refusals."""

import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from secrets import token_urlsafe

import pytest
import trio
from _crash.ports import free_port

from tests.support.cluster_nodes import (
    LEASE_S,
    QUEUE,
    STORED,
    Cluster,
    Node,
    cluster,
    eventually,
    refused,
    settings,
)
from tests.support.fakes import Client, StreamPipe
from tests.support.nats import NatsProcess, running_nats
from trio_stomp import Settings, serve
from trio_stomp.base import OptionError
from trio_stomp.cli import main
from trio_stomp.cluster import ClusterNames, Contact, Dialer, _entries
from trio_stomp.nats import JetStream
from trio_stomp.store import JournalStore, StoreUnavailable
from trio_stomp.transport import relay_header

pytestmark = pytest.mark.foreign
ANSWERS = "trio_stomp.cli.commands._cluster._ask.ANSWERS_S"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of a busy machine have time to answer the commands."""
    monkeypatch.setattr(ANSWERS, 2.0)


async def test_clients_of_any_node_use_one_broker(tmp_path: Path) -> None:
    async with cluster(tmp_path) as here:
        standby, owner = await here.standby(), await here.owner()
        await here.put(standby, b"a", b"b")
        assert await here.take(owner, 2) == [b"a", b"b"]
        assert b"200 OK" in await standby.page("/readyz")
        assert b'"destinations"' in await standby.page("/varz")  # relayed, too
        client = await here.client(standby)
        await client.subscribe("/topic/t")
        await (await here.client(owner)).publish("/topic/t", b"news")
        assert (await client.receive()).body == b"news"


def crash(node: Node) -> None:
    node.stop.cancel()


def leave(node: Node) -> None:
    node.handle.stop()


@pytest.mark.parametrize(("end", "lease_s"), [(crash, LEASE_S), (leave, 50)])
async def test_stored_messages_survive_their_owner(
    tmp_path: Path, end: Callable[[Node], None], lease_s: float
) -> None:
    """The end of an owner that leaves in order does not have to be noticed by others."""
    async with cluster(tmp_path, lease_s=lease_s) as here:
        owner, standby = await here.owner(), await here.standby()
        await here.put(owner, *(b"%d" % number for number in range(300)))
        assert await here.take(standby, 100) == [b"%d" % number for number in range(100)]
        began = trio.current_time()
        end(owner)
        await owner.ended.wait()
        assert await here.take(standby, 1) == [b"100"]
        assert await here.owner() is standby
        assert end is crash or trio.current_time() - began < lease_s
        # The missing records come from the log.
        again = await here.start(owner.name, lease_s=lease_s)
        end(standby)
        await standby.ended.wait()
        assert await here.take(again, 199) == [b"%d" % number for number in range(101, 300)]


async def test_an_owner_that_was_overtaken_stores_nothing_and_disconnects_its_clients(
    tmp_path: Path,
) -> None:
    """Act as after a pause, not noticed yet, that was longer than the lease."""
    async with cluster(tmp_path) as here:
        owner = await here.owner()
        await here.put(owner, b"kept")
        client = await here.client(owner)
        await here.engine.request(b"stomp.log.00", _entries.epoch_entry(7))
        headers = {"destination": QUEUE, "receipt": "r", **STORED}
        await client.send("SEND", headers, b"late")
        assert [frame.command for frame in await client.read_to_end()] in ([], ["ERROR"])
        assert await here.take(await here.owner(), 1) == [b"kept"]


async def test_an_orderly_move_marks_nothing_as_redelivered_once_all_of_a_killed_owner_is_taken(
    tmp_path: Path,
) -> None:
    """An id for duplicate detection, which is remembered for long, is no message."""
    async with cluster(tmp_path, lease_s=2.0) as here:
        owner, standby = await here.owner(), await here.standby()
        client = await here.client(owner)
        await client.publish(QUEUE, b"a", headers={**STORED, "x-dedup-id": "1"}, receipt=True)
        crash(owner)
        await owner.ended.wait()
        assert await here.take(await here.owner(), 1) == [b"a"]
        await here.put(standby, b"b", b"c")
        again = await here.start(owner.name, lease_s=2.0)
        await follows(here, again)
        leave(standby)
        await standby.ended.wait()
        assert (await here.owner()).name == again.name
        client = await here.client(again)
        await client.send("SUBSCRIBE", {"destination": QUEUE, "id": "1", "ack": "auto"})
        frames = [await client.receive() for _ in range(2)]
        assert [dict(frame.headers).get("redelivered") for frame in frames] == [None, None]


async def follows(here: Cluster, node: Node) -> None:
    """Wait until a node is a standby that is up to date."""

    async def is_standby() -> bool:
        return (await here.roles()).get(node.name) == "standby"

    await eventually(is_standby)


async def test_an_owner_whose_lease_was_taken_leaves_no_orderly_end(tmp_path: Path) -> None:
    """The log may lack its last deliveries, so its successor must mark them as redelivered."""
    async with cluster(tmp_path, 1) as here:
        owner = await here.owner()
        await here.put(owner, b"a")
        client = await here.client(owner)
        claim = json.dumps({"holder": "other", "contact": "127.0.0.1 1 secret"}).encode()
        await here.engine.request(b"stomp.lease.00", claim)
        await client.read_to_end()

        async def is_owned_again() -> bool:
            return (await here.kinds()).count(_entries.epoch_entry(0)[12:]) == 2

        await eventually(is_owned_again)
        assert _entries.end_entry(0)[12:] not in await here.kinds()


async def test_a_standby_that_cannot_reach_the_owner_says_so_to_everybody(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both reach the servers of the engine, so nothing else fails."""
    monkeypatch.setattr("trio_stomp.cluster._gate.WAIT_S", 0.5)
    monkeypatch.setattr("trio_stomp.cluster._gate.PROBE_S", 0.2)
    async with cluster(tmp_path) as here:
        standby = await here.standby()
        await eventually(partial(standby.is_ready, b"200 OK"))
        connect, is_cut = Dialer.connect, True

        async def dial(dialer: Dialer, contact: Contact) -> trio.abc.HalfCloseableStream | None:
            return None if is_cut else await connect(dialer, contact)

        monkeypatch.setattr(Dialer, "connect", dial)
        await eventually(partial(standby.is_ready, b"cannot be reached at its node_address"))
        client = Client(StreamPipe(await standby.stream()))
        await client.send("CONNECT", {"accept-version": "1.2", "host": "x"})
        error = await client.receive()
        assert (error.command, "cannot be reached" in error["message"]) == ("ERROR", True)
        await client.aclose()
        assert b" 503 " in await standby.page("/varz")
        _, shown = await tool(here, capsys)("status")
        assert f"{standby.name}: node {(await here.owner()).name}, the owner, cannot" in shown
        assert caplog.text.count("cannot be reached at its node_address") == 1
        is_cut = False
        await eventually(partial(standby.is_ready, b"200 OK"))


async def test_the_door_of_a_standby_is_that_of_a_server(tmp_path: Path) -> None:
    """It demands the header of proxies, believes it, and counts connections by address."""
    start = partial(cluster, proxy_addresses="127.0.0.1", max_connections_per_address=2)
    connect = {"accept-version": "1.2", "host": "x"}
    async with start(tmp_path) as here:
        standby = await here.standby()
        client = Client(StreamPipe(await standby.stream()))
        await client.send("CONNECT", connect)
        assert await client.read_to_end() == []  # it would count as one of this machine
        await client.aclose()
        streams, codes = [], []
        for port in (b"1", b"2", b"3"):
            streams.append(await standby.stream())
            await streams[-1].send_all(b"PROXY TCP4 192.0.2.1 192.0.2.2 %b 2\r\n" % port)
        for stream in reversed(streams):
            client = Client(StreamPipe(stream))
            await client.send("CONNECT", connect)
            error = await client.receive()
            codes.append((error.command, error["code"]))
            await client.aclose()
        assert codes[0] == ("ERROR", "too-many-from-address")
        assert codes[1:] == [("ERROR", "authentication-required")] * 2


async def test_an_idle_owner_is_not_ready_without_the_servers(tmp_path: Path) -> None:
    """It has nothing to store, not even statistics."""
    start = partial(cluster, diag_interval_s=0, monitor_interval_s=0, lease_s=1.0)
    async with start(tmp_path, 1) as here:
        (node,) = here.nodes
        await eventually(partial(node.is_ready, b"200 OK"))
        here.server.kill()
        with trio.fail_after(15):
            await eventually(partial(node.is_ready, b"servers of NATS do not answer"))
        here.server.start()
        await eventually(partial(node.is_ready, b"200 OK"))


async def test_no_node_is_ready_because_of_an_owner_of_earlier_times(tmp_path: Path) -> None:
    """All nodes were killed, and start again."""
    async with cluster(tmp_path, 0) as here:
        await here.start("n0", lease_s=50)
        node = await here.owner()
        crash(node)
        await node.ended.wait()
        again = await here.start("n1", lease_s=50)
        await trio.sleep(0.3)  # it has read the lease
        assert b"503 " in await again.page("/readyz")


async def test_a_node_that_others_cannot_reach_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path, 0) as here:
        node = await here.start("n0")  # makes the streams
        await here.owner()
        leave(node)
        await node.ended.wait()
        claim = json.dumps({"holder": "far", "contact": "192.0.2.7 61614 secret"}).encode()
        await here.engine.request(b"stomp.lease.00", claim)
        with trio.fail_after(15), pytest.raises(OptionError, match=r"where node far at 192\.0"):
            await serve(settings(tmp_path, here.server, "n1"))


async def renewed(here: Cluster, times: int) -> None:
    """Wait until the lease was renewed some times."""
    leases = JetStream(here.engine)
    before = (await leases.stream("stomp_leases")).last

    async def is_renewed() -> bool:
        return (await leases.stream("stomp_leases")).last >= before + times

    await eventually(is_renewed)


async def test_a_wall_clock_that_is_set_changes_no_owner_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases and waits use monotonic clocks; only expiry and schedules use the wall clock."""
    day_s, offset_s, now = 86_400.0, [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: now() + offset_s[0])
    async with cluster(tmp_path) as here:
        owner, standby = await here.owner(), await here.standby()
        for number, step_s in enumerate((day_s, -2 * day_s, 0.0)):
            offset_s[0] = step_s
            await here.put(standby, b"%d" % number)
            await renewed(here, 2)
            assert (await here.roles())[owner.name] == "owner"
        assert (await here.kinds()).count(_entries.epoch_entry(0)[12:]) == 1
        offset_s[0] = -day_s
        crash(owner)
        await owner.ended.wait()
        assert await here.take(standby, 3) == [b"0", b"1", b"2"]


async def test_a_hand_over_on_request(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as here:
        owner, heir = await here.owner(), await here.standby()
        await here.put(owner, b"a")
        order = json.dumps({"do": "move", "to": heir.name}).encode()
        await here.engine.request(f"stomp.node.{owner.name}".encode(), order)
        assert await here.take(owner, 1) == [b"a"]  # which now relays it
        assert await here.owner() is heir
        assert len(await here.roles()) == 3


async def test_frames_that_waited_since_an_earlier_term_are_refused(tmp_path: Path) -> None:
    """Between two terms nobody accepts links: what clients sent then would come too late."""
    names = ClusterNames("stomp")
    async with cluster(tmp_path, 2) as here:
        owner, heir = await here.owner(), await here.standby()
        await here.put(owner, b"a")
        subject = names.lease_subject.decode()
        found = await JetStream(here.engine).message(names.leases, last_by_subj=subject)
        contact = Contact.parse(owner.name, json.loads(found[1])["contact"])
        assert contact is not None

        async def move(to: Node) -> None:
            now = await here.owner()
            order = json.dumps({"do": "move", "to": to.name}).encode()
            await here.engine.request(names.node(now.name), order)

            async def has_moved() -> bool:
                return (await here.roles()).get(to.name) == "owner"

            await eventually(has_moved)

        await move(heir)
        async with await trio.open_tcp_stream(contact.host, contact.port) as link:
            late = "CONNECT\naccept-version:1.2\nhost:x\n\n\0"
            late += f"SEND\ndestination:{QUEUE}\npersistent:true\n\nlate\0"
            start = relay_header("127.0.0.1", 1, "off", contact.secret.encode())
            await link.send_all(
                start + b"CONNECT\naccept-version:1.2\nhost:x\n\n\0" + late.encode()
            )
        await move(owner)
        await here.put(owner, b"b")
        assert await here.take(owner, 2) == [b"a", b"b"]


async def test_without_its_engine_a_broker_stores_and_hands_out_nothing_and_loses_nothing(
    tmp_path: Path,
) -> None:
    """Another node may have the lease and deliver the same messages without this one knowing."""
    async with cluster(tmp_path, 1) as here:
        (node,) = here.nodes
        await here.put(node, b"first")
        client, listener = await here.client(node), await here.client(node)
        await listener.subscribe("/topic/t")
        here.server.kill()
        await client.send("SEND", {"destination": QUEUE, "receipt": "r", **STORED}, b"held")
        await trio.sleep(LEASE_S + 0.2)
        assert await listener.subscribe(QUEUE, "2") == []
        await (await here.client(node)).publish("/topic/t", b"passes")
        assert (await listener.receive()).body == b"passes"
        await eventually(partial(node.is_ready, b"503 "))
        here.server.start()
        assert await client.receive_until_receipt("r") == []
        assert [(await listener.receive()).body for _ in range(2)] == [b"first", b"held"]
        await eventually(partial(node.is_ready, b"200 "))


async def test_without_its_engine_a_broker_may_refuse_persistent_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.startup._node.DOUBT_S", 0.3)
    async with cluster(tmp_path, on_engine_loss="refuse") as here:
        owner, standby = await here.owner(), await here.standby()
        waiting, refused = await here.client(owner), await here.client(standby)
        listener = await here.client(standby)
        await listener.subscribe("/topic/t")
        here.server.kill()
        headers = {"destination": QUEUE, "receipt": "r", **STORED}
        await waiting.send("SEND", headers, b"in doubt")
        error = await waiting.expect_error("storage")
        assert "not known whether" in error["message"]
        await refused.send("SEND", headers, b"refused")
        error = await refused.expect_error("storage")
        assert "nothing of this was stored" in error["message"]
        await (await here.client(owner)).publish("/topic/t", b"passes")
        assert (await listener.receive()).body == b"passes"
        for node in (owner, standby):
            await eventually(partial(node.is_ready, b"503 "))
        here.server.start()
        for node in (owner, standby):
            await eventually(partial(node.is_ready, b"200 "))

        # On a busy machine the engine may be silent for longer than DOUBT_S again.
        await eventually(partial(here.accepts, standby, QUEUE, b"stored"))
        first = await here.take(await here.owner(), 1)
        if first == [b"in doubt"]:  # unless the standby was faster than the owner's last attempt
            first = await here.take(await here.owner(), 1)
        assert first == [b"stored"]


async def test_a_log_that_has_grown_is_shortened_and_newcomers_begin_with_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.cluster._node.CHECK_S", 0.1)
    monkeypatch.setattr("trio_stomp.cluster._node.LOG_BYTES", 30_000)
    async with cluster(tmp_path) as here:
        owner, standby = await here.owner(), await here.standby()
        await here.put(owner, b"kept")

        async def is_shortened() -> bool:
            await here.put(standby, b"x" * 3000)
            log = await JetStream(here.engine).stream("stomp_log_00")
            return log.first > 5 and log.size < 80_000

        await eventually(is_shortened)
        newcomer = await here.start("n2")
        for node in (owner, standby):
            crash(node)
            await node.ended.wait()
        assert await here.take(newcomer, 5) == [b"kept", *[b"x" * 3000] * 4]


@pytest.mark.parametrize(
    "snapshots", [10, pytest.param(180, marks=pytest.mark.full)], ids=["some", "as in an hour"]
)
async def test_a_log_stays_small_although_messages_are_never_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshots: int
) -> None:
    monkeypatch.setattr("trio_stomp.cluster._node.CHECK_S", 0.02)
    monkeypatch.setattr("trio_stomp.cluster._node.LOG_BYTES", 10_000)
    kept = [token_urlsafe(750).encode() for _ in range(60)]  # hardly compressible
    sizes, firsts = [0], {0}
    async with cluster(tmp_path, most_s=1200) as here, trio.open_nursery() as load:
        owner, standby = await here.owner(), await here.standby()
        await here.put(owner, *kept)
        producer, consumer = await here.client(owner), await here.client(standby)
        await consumer.send("SUBSCRIBE", {"destination": "/queue/flow", "id": "1", "ack": "client"})

        async def look() -> None:
            while True:
                log = await JetStream(here.engine).stream("stomp_log_00")
                sizes.append(log.size)
                firsts.add(log.first)
                await trio.sleep(0.005)

        load.start_soon(look)
        headers = {**STORED, "destination": "/queue/flow"}
        while len(firsts) <= snapshots:
            await producer.publish(
                "/queue/flow", *[token_urlsafe(400).encode()] * 4, headers=headers
            )
            frames = [await consumer.receive() for _ in range(4)]
            await consumer.send("ACK", {"id": frames[-1]["ack"], "receipt": "r"})
            assert (await consumer.receive()).command == "RECEIPT"
            await trio.sleep(0.005)  # a snapshot takes a small part of the time
        load.cancel_scope.cancel()
    assert max(sizes) < 4 * sum(map(len, kept))
    async with cluster(tmp_path, 0) as here:
        assert await here.take(await here.start("newcomer"), len(kept)) == kept


async def test_the_command_shows_nodes_and_moves_the_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster(tmp_path) as here:

        async def run(*words: str) -> tuple[int, str]:
            argv = ["cluster", *words, "--cluster", str(here.server.address)]
            return await trio.to_thread.run_sync(main, argv), "".join(capsys.readouterr())

        owner, standby = await here.owner(), await here.standby()
        code, shown = await run("move", standby.name)
        assert (code, shown) == (0, f"{standby.name} owns the cluster now\n")
        code, shown = await run("status")
        assert code == 0
        lines = [line.split()[:2] for line in shown.splitlines()]
        assert [owner.name, "standby"] in lines
        assert [standby.name, "owner"] in lines
        assert "led by n0, followed by no server" in shown
        code, shown = await run("status", "--json")
        assert json.loads(shown)["owner"] == standby.name
        assert await run("move", standby.name) == (0, f"{standby.name} owns the cluster now\n")
        code, shown = await run("move", "n9")
        assert (code, "no node 'n9'; those that answer: n0, n1" in shown) == (1, True)
        assert main(["cluster", "status"]) == 2
        assert "--cluster nats://" in capsys.readouterr().err
        code, shown = await run("status", "--cluster-name", "other")
        assert (code, "stream not found" in shown) == (1, True)


def tool(
    here: Cluster, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Awaitable[tuple[int, str]]]:
    """Return a function that runs ``trio-stomp cluster``, and returns exit code and output."""

    async def run(command: str, *words: str) -> tuple[int, str]:
        argv = ["cluster", command, "--cluster", str(here.server.address), *words]
        return await trio.to_thread.run_sync(main, argv), "".join(capsys.readouterr())

    return run


async def test_a_node_that_drains_is_never_the_owner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster(tmp_path) as here:
        run, owner, standby = tool(here, capsys), await here.owner(), await here.standby()
        await here.put(owner, b"a", b"b")
        expected = 0, f"{standby.name} owns the cluster now\n"
        assert await run("drain", owner.name) == expected
        assert await run("drain", owner.name) == expected  # there is nothing to do
        assert b"503 " in await owner.page("/readyz")
        assert await here.take(owner, 1) == [b"a"]  # which relays it
        code, shown = await run("drain", standby.name)
        assert (code, "no other node can own the cluster" in shown) == (1, True)
        code, shown = await run("move", owner.name)
        assert (code, "is draining, and takes no lease" in shown) == (1, True)
        crash(standby)
        await trio.sleep(2 * LEASE_S)
        assert await here.roles() == {owner.name: "draining"}


async def test_states_are_compared_while_messages_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster(tmp_path, 3) as here, trio.open_nursery() as load:
        run, owner = tool(here, capsys), await here.owner()
        await here.put(owner, *(b"%d" % number for number in range(50)))
        code, shown = await run("verify")
        assert (code, shown.count(" 53 ")) == (0, 3), shown

        async def send() -> None:
            while True:
                await here.put(owner, b"x")

        load.start_soon(send)
        code, shown = await run("verify", "--json")
        assert (code, len(json.loads(shown)["nodes"])) == (0, 3), shown
        load.cancel_scope.cancel()


async def test_a_difference_of_users_policies_or_followers_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("trio_stomp.cluster._node.CHECK_S", 0.2)
    async with cluster(tmp_path, 1) as here:
        other = await here.start("other", anonymous="always", ttl_ms=5, cluster_followers=1)
        owner = await here.owner()
        code, shown = await tool(here, capsys)("status")
        assert (code, "users, policies, cluster_followers than the owner" in shown) == (0, True)

        async def is_measured() -> bool:
            return b'cluster_node_differs{node="other"} 1.0' in await other.page("/metrics")

        await eventually(is_measured)
        reported = "other has other users, policies, cluster_followers than this one"
        assert caplog.text.count(reported) == 1
        measured = await owner.page("/metrics")
        assert b'cluster_node_owner{node="n0"} 1.0' in measured
        assert json.loads((await owner.page("/varz")).partition(b"\r\n\r\n")[2])["cluster"]["epoch"]


async def test_the_store_of_a_broker_that_was_alone_moves_into_a_new_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = Node("alone", Settings.of(data_dir=str(tmp_path / "alone"), port=0))
    async with cluster(tmp_path, 0) as here:
        run = tool(here, capsys)
        new = "--cluster-replicas", "1", str(tmp_path / "alone")
        await here.tasks.start(alone.run)
        await here.put(alone, b"a", b"b")
        code, shown = await run("import", *new)
        assert (code, "is used by process" in shown) == (1, True), shown
        leave(alone)
        await alone.ended.wait()
        code, shown = await run("import", *new)
        assert (code, "filled: messages: 2, streams: 1" in shown) == (0, True), shown
        code, shown = await run("import", *new)
        assert (code, "the cluster stomp has been used" in shown) == (2, True), shown
        for name in ("n0", "n1"):
            await here.start(name)
        await here.put(await here.owner(), b"c")
        assert await here.take(await here.standby(), 3) == [b"a", b"b", b"c"]


async def create_streams(here: Cluster) -> None:
    """Create a stream of another application, and one of a newer version of this one."""
    jetstream = JetStream(here.engine)
    await jetstream.create_stream({"name": "other_log_00", "subjects": ["other.x"]})
    metadata = {"trio_stomp.cluster": "newer", "trio_stomp.format": "2"}
    config = {"name": "newer_log_00", "subjects": ["newer.x"], "metadata": metadata}
    await jetstream.create_stream(config)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"node": "n0"}, "'n0' runs already, for clients of 127.0.0.1:.*option node"),
        ({"node": "a b"}, "'a b', but must be 1 to 64"),
        ({"cluster_name": ""}, "cluster_name is ''"),
        ({"cluster_name": "other"}, "the stream other_log_00 is of another application"),
        ({"cluster_name": "newer"}, "newer_log_00 has format 2, .* version of the other nodes"),
        ({"cluster_name": "new", "cluster_replicas": 3}, "set cluster_replicas to 1 if the loss"),
        ({"cluster_replicas": 3}, "has 1 replicas, but cluster_replicas is 3"),
        ({"data_dir": ""}, "--data-dir"),
        ({"data_dir": "alone"}, "messages of a broker that was alone"),
        ({"cluster": "http://x"}, "a NATS server is written"),
        ({"cluster_ca": "/nowhere"}, "No such file"),
        ({"cluster_credentials": "/nowhere"}, "No such file"),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)
async def test_wrong_settings_are_reported_at_the_start(
    tmp_path: Path, options: dict[str, object], says: str
) -> None:
    alone = tmp_path / "alone"
    store = JournalStore(str(alone))
    store.recover(lambda done, total: None)
    store.close()
    if options.get("data_dir"):
        options = {"data_dir": str(alone)}
    async with cluster(tmp_path, 1) as here:
        await create_streams(here)
        error = await refused(settings(tmp_path, here.server, "other", **options))
        assert isinstance(error, OptionError)
        with pytest.raises(OptionError, match=says):
            raise error


async def test_an_engine_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_stomp.startup._node.ENGINE_S", 0.3)
    with running_nats(tmp_path) as (server,):
        server.kill()
        error = await refused(settings(tmp_path, server, "n"))
        assert isinstance(error, StoreUnavailable)
        assert "no server of NATS accepts" in str(error)


async def test_servers_without_jetstream_and_too_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.startup._node.ENGINE_S", 3.0)
    server = NatsProcess(free_port(), [])
    server.start()
    try:
        with trio.fail_after(30):
            error = await refused(settings(tmp_path, server, "n"))
            assert isinstance(error, StoreUnavailable)
            assert "JetStream is off: start the servers with -js" in str(error)
            monkeypatch.setattr("trio_stomp.cluster._engine.OLDEST", (99, 1))
            error = await refused(settings(tmp_path, server, "n"))
            assert isinstance(error, OptionError)
            assert "a cluster needs 99.1 or newer" in str(error)
    finally:
        server.kill()


async def test_a_standby_reads_its_settings_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as here:
        standby = await here.standby()
        changed = partial(settings, tmp_path, here.server, standby.name)
        with pytest.raises(OptionError, match="nowhere"):
            await standby.handle.reload(changed(passwd_file="/nowhere"))
        await standby.handle.reload(changed(max_body_bytes=5))
        owner = await here.owner()
        crash(owner)
        await owner.ended.wait()
        client = await here.client(standby)
        await client.publish(QUEUE, b"too long")
        await client.expect_error("body-too-large")


async def test_a_node_of_the_next_version_joins_owns_and_leaves_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It writes fields that this version does not know; its format has a higher minor version."""
    pack = _entries.pack_records
    async with cluster(tmp_path, 1) as here:
        (node,) = here.nodes
        await here.put(node, b"1")
        with monkeypatch.context() as newer:
            newer.setattr("trio_stomp.cluster._engine.FORMAT", (1, 7))
            newer.setattr("trio_stomp.startup._node.__version__", "0.99.0")
            newer.setattr(
                _entries, "pack_records", lambda records: [(*each, "new") for each in pack(records)]
            )
            following = await here.start("following")
            run = tool(here, capsys)
            code, shown = await run("move", "following")
            assert (code, "following owns" in shown) == (0, True), shown
            assert await here.owner() is following
            await here.put(node, b"2")
            code, shown = await run("status")
            assert "0.99.0" in shown
            following.handle.stop()
            await following.ended.wait()
        assert await here.take(await here.owner(), 2) == [b"1", b"2"]


async def test_a_cluster_that_the_next_version_made_takes_nodes_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, 0) as here:
        with monkeypatch.context() as newer:
            newer.setattr("trio_stomp.cluster._engine.FORMAT", (1, 7))
            await here.start("following")
        node = await here.start("n0")
        await here.put(node, b"x")
        here.nodes[0].handle.stop()
        await here.nodes[0].ended.wait()
        assert await here.take(await here.owner(), 1) == [b"x"]


async def test_a_node_that_only_watched_takes_over_when_owner_and_follower_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.cluster._node.SURVEY_S", 0.2)
    async with cluster(tmp_path, 4, cluster_followers=1) as here:

        async def are_chosen() -> bool:
            found = sorted((await here.roles()).values())
            return found == ["owner", "standby", "watching", "watching"]

        owner = await here.owner()
        await eventually(are_chosen)
        await here.put(owner, b"1", b"2", b"3")
        roles = await here.roles()
        for node in here.nodes:
            if roles[node.name] in ("owner", "standby"):
                node.stop.cancel()
                await node.ended.wait()
        third = await here.owner()
        assert roles[third.name] == "watching"
        assert await here.take(third, 3) == [b"1", b"2", b"3"]


async def test_a_node_that_only_watches_removes_its_copy_and_rebuilds_it_when_it_follows_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.cluster._node.SURVEY_S", 0.2)
    monkeypatch.setattr("trio_stomp.cluster._standby.KEEP_S", 0.5)
    monkeypatch.setattr("trio_stomp.cluster.leases._followers.PATIENCE_S", 2.0)
    async with cluster(tmp_path, 3, cluster_followers=1) as here:
        await here.put(await here.owner(), b"1", b"2")
        copies = {node.name: tmp_path / node.name / "cluster-stomp" for node in here.nodes}

        async def is_removed() -> bool:
            return [path.exists() for path in copies.values()].count(False) == 1

        await eventually(is_removed)
        roles = await here.roles()
        (watcher,) = (name for name, path in copies.items() if not path.exists())
        assert roles[watcher] == "watching"
        owner = await here.owner()
        await here.put(owner, b"3")
        (follower,) = (node for node in here.nodes if roles[node.name] == "standby")
        follower.stop.cancel()
        await follower.ended.wait()

        async def is_rebuilt() -> bool:
            return (await here.roles()).get(watcher) == "standby"

        await eventually(is_rebuilt)
        owner.stop.cancel()
        await owner.ended.wait()
        assert (await here.owner()).name == watcher
        assert await here.take(await here.owner(), 3) == [b"1", b"2", b"3"]
