"""Nodes of a cluster in this process, on the real engine."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import trio
from attrs import define, field

from tests.support.fakes import Client, StreamPipe
from tests.support.nats import NatsProcess, running_nats
from trio_stomp import ServerHandle, Settings, serve
from trio_stomp.cluster import ClusterNames, ask_nodes
from trio_stomp.nats import JetStream, NatsClient, NatsError, NatsOptions, open_client

ANSWERS_S = 5.0
"""Longest time to wait for the answers of all nodes."""
LEASE_S = 5.0
"""Long, because a busy machine may stop this process for seconds, and nodes must not lose leases by
that: a change of the owner ends the sessions of clients."""
QUEUE = "/queue/orders"
STORED = {"persistent": "true"}


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it is so."""
    while not await condition():  # noqa: ASYNC110
        await trio.sleep(0.02)


def settings(folder: Path, server: NatsProcess, name: str, **options: object) -> Settings:
    usual = {
        "cluster": str(server.address),
        "cluster_replicas": 1,
        "data_dir": str(folder / name),
        "lease_s": LEASE_S,
        "node": name,
        "port": 0,
    }
    return Settings.of(**usual | options)


@define(eq=False)
class Node:
    """A node in this process."""

    name: str
    settings: Settings
    handle: ServerHandle = field(init=False)
    stop: trio.CancelScope = field(factory=trio.CancelScope)
    ended: trio.Event = field(factory=trio.Event)

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        async def note(task_status: trio.TaskStatus[ServerHandle]) -> None:
            await serve(self.settings, task_status=task_status)

        with self.stop:
            async with trio.open_nursery() as tasks:
                self.handle = await tasks.start(note)
                task_status.started()
        self.ended.set()

    async def stream(self) -> trio.SocketStream:
        host, _, port = self.handle.addresses[0].rpartition(":")
        return await trio.open_tcp_stream(host, int(port))

    async def page(self, path: str, method: str = "GET", body: bytes = b"") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Length: {len(body)}\r\n" if body else ""
        async with await self.stream() as stream:
            await stream.send_all(f"{head}\r\n".encode() + body)
            return b"".join([data async for data in stream])

    async def is_ready(self, status: bytes) -> bool:
        """Return whether /readyz answers so. A node that resigns ends its connections."""
        try:
            return status in await self.page("/readyz")
        except trio.BrokenResourceError:
            return False


@define(eq=False)
class Cluster:
    """Nodes on a server of the engine."""

    folder: Path
    server: NatsProcess
    engine: NatsClient
    tasks: trio.Nursery
    stack: AsyncExitStack
    nodes: list[Node] = field(factory=list)

    async def start(self, name: str, **options: object) -> Node:
        node = Node(name, settings(self.folder, self.server, name, **options))
        await self.tasks.start(node.run)
        self.nodes.append(node)
        return node

    async def roles(self) -> dict[str, str]:
        """Return the role that each node reports, by its name."""
        await self.engine.wait_until_connected()
        found: dict[str, str] = {}
        for node in self.nodes:
            if not node.ended.is_set():
                try:
                    answer = await self.engine.request(f"stomp.node.{node.name}".encode(), b"{}")
                except NatsError:
                    continue  # it begins or ends
                found[node.name] = json.loads(answer.payload)["role"]
        return found

    async def kinds(self) -> list[bytes]:
        """Return what kind of entry each of the log is, as its bytes say it."""
        log = JetStream(self.engine)
        last = (await log.stream("stomp_log_00")).last
        entries = [await log.message("stomp_log_00", seq=each) for each in range(1, last + 1)]
        return [entry[12:28] for _, entry in entries]

    async def owners(self, partitions: int) -> list[str]:
        """Return the owner of each partition, once there are all."""
        await self.engine.wait_until_connected()
        names = [ClusterNames("stomp", number) for number in range(partitions)]
        found: list[str] = []

        async def are_all_owned() -> bool:
            found.clear()
            for each in names:
                running = sum(not node.ended.is_set() for node in self.nodes)
                reports = await ask_nodes(self.engine, each, {}, ANSWERS_S, running)
                found.extend(str(one["node"]) for one in reports if one["role"] == "owner")
            return len(found) == partitions

        await eventually(are_all_owned)
        return found

    async def owner(self) -> Node:
        """Return the node that owns the cluster, as soon as one does."""
        roles: dict[str, str] = {}

        async def has_owner() -> bool:
            nonlocal roles
            roles = await self.roles()
            return "owner" in roles.values()

        await eventually(has_owner)
        return next(node for node in self.nodes if roles.get(node.name) == "owner")

    async def standby(self) -> Node:
        owner = await self.owner()
        return next(node for node in self.nodes if node is not owner and not node.ended.is_set())

    async def client(self, node: Node) -> Client:
        stream = await node.stream()
        self.stack.push_async_callback(stream.aclose)
        client = Client(StreamPipe(stream))
        await client.connect()
        return client

    async def put(self, node: Node, *bodies: bytes) -> None:
        await (await self.client(node)).publish(QUEUE, *bodies, headers=STORED, receipt=True)

    async def accepts(self, node: Node, destination: str, body: bytes) -> bool:
        """Send a persistent message, and return whether it was stored or refused."""
        client = await self.client(node)
        await client.send("SEND", {"destination": destination, "receipt": "r", **STORED}, body)
        return (await client.receive()).command == "RECEIPT"

    async def take(self, node: Node, count: int) -> list[bytes]:
        client = await self.client(node)
        subscribe = {"destination": QUEUE, "id": "1", "ack": "client-individual"}
        await client.send("SUBSCRIBE", subscribe)
        bodies: list[bytes] = []
        receipts = 0
        while receipts < count:
            frame = await client.receive()
            receipts += frame.command == "RECEIPT"
            if frame.command == "MESSAGE" and len(bodies) < count:
                bodies.append(frame.body)
                await client.send("ACK", {"id": frame["ack"], "receipt": "acked"})
        await client.aclose()
        return bodies


@asynccontextmanager
async def cluster(
    folder: Path, nodes: int = 2, most_s: float = 120, **options: object
) -> AsyncGenerator[Cluster, None]:
    """A server of the engine and nodes, for a test that takes less than ``most_s``."""
    with trio.fail_after(most_s), running_nats(folder) as (server,):
        async with (
            open_client(NatsOptions([server.address])) as engine,
            trio.open_nursery() as tasks,
            AsyncExitStack() as stack,
        ):
            here = Cluster(folder, server, engine, tasks, stack)
            for number in range(nodes):
                await here.start(f"n{number}", **options)
            if nodes:
                await here.owner()
            yield here
            for node in here.nodes:
                node.handle.stop()


async def refused(config: Settings) -> BaseException:
    """Start a node, and return why it does not."""
    try:
        async with trio.open_nursery() as tasks:
            await tasks.start(serve, config)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        return group.exceptions[0]
    raise AssertionError("it runs")
