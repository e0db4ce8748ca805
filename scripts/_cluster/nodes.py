"""Machines with a node each: processes that are killed, and directories that stay or do not."""

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import trio
from attrs import define, field

from _cluster.desk import Term
from _cluster.determinism import PROCESS, Killed, Rules
from _cluster.ledger import Ledger
from _cluster.network import Network, Place
from trio_stomp.base import innermost
from trio_stomp.cluster import (
    ClusterNames,
    Contact,
    Gate,
    Node,
    ReplicatedStore,
    _node,
    _standby,
)
from trio_stomp.cluster.leases import _keeper
from trio_stomp.config import Settings
from trio_stomp.server import EventFeed, ServerHandle
from trio_stomp.startup import _node as startup
from trio_stomp.startup._serve import Embedding
from trio_stomp.store import JournalStore, StoreUnavailable

NAMES = ClusterNames("sim")
SERVERS = "nats://s0:4222,nats://s1:4222,nats://s2:4222"
RESTART_S = 0.5
"""Time after which a node that ended on its own is started again."""
SEGMENT_BYTES = 8192
LOG_BYTES, CHECK_S = 16 * 1024, 2.0
"""The log is shortened early, and looked at often."""
KEPT, TORN, DAMAGED, GONE = "kept", "torn", "damaged", "lost"
"""The fate of a killed node's directory."""


@define(eq=False)
class Machine:
    """A machine: its disk, its clock, its way to the engine, and the node that runs there.

    Args:
      speed: The speed of its clock; 1 = that of the simulation.
      journal_s: The time that its node takes to read its journal.
      life: The process of its node; None = it does not run.
    """

    name: str
    folder: Path
    rules: Rules
    speed: float = 1.0
    offset: float = 0.0
    journal_s: float = 0.0
    place: Place = field(factory=Place)
    life: "Life | None" = None
    is_wanted: bool = True
    """Whether to restart its node after it has ended."""
    generation: int = 0

    @property
    def directory(self) -> Path:
        """Return the directory of the node that runs, or runs next."""
        return self.folder / f"{self.name}-{self.generation}"


@define(eq=False)
class Life:
    """A process of a node, from its start to its end."""

    machine: Machine
    fleet: "Fleet"
    is_dead: bool = False
    is_paused: bool = False
    scopes: dict[trio.CancelScope, None] = field(factory=dict)
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    nodes: dict[int, Node] = field(factory=dict)
    """Its nodes, by partition."""
    term: Term | None = None
    handle: ServerHandle = field(factory=lambda: ServerHandle((), feed=EventFeed()))

    @property
    def name(self) -> str:
        """Return the name of its node."""
        return self.machine.name

    @property
    def node(self) -> Node | None:
        """Return its node of the first partition, once there is one."""
        return self.nodes.get(NAMES.partition)

    @property
    def place(self) -> Place:
        """Return where it is in the network."""
        return self.machine.place

    def lease_time(self) -> float:
        """Implement ``Process.lease_time``."""
        return trio.current_time() * self.machine.speed + self.machine.offset

    def disk_s(self) -> float:
        """Implement ``Process.disk_s``."""
        return self.fleet.chance.choice((0.0, 0.0001, 0.0005, 0.002))

    def log(self, text: str) -> None:
        """Note an event."""
        if not self.is_dead:
            text = text.replace(f"{self.machine.folder}/", "")  # it is never the same
            self.fleet.ledger.trace.add(self.name, text)

    async def run(self) -> None:
        """Run the process. Never raises."""
        PROCESS.set(self)
        with self.scope:
            try:
                await self._serve()
                self.log("has ended in order")
            except Killed:
                pass
            except BaseExceptionGroup as group:
                self._fail(innermost(group.split(trio.Cancelled)[1] or group))
            except Exception as error:
                self._fail(error)
        for node in self.nodes.values():
            node.local.close()  # else files stay open in this process
        if self.machine.life is self:
            self.fleet.kill(self.machine, KEPT)
            self.fleet.network.at(RESTART_S, self.fleet.start, self.machine)

    async def _serve(self) -> None:
        await startup._run(_host(self), trio.TASK_STATUS_IGNORED)

    def _fail(self, error: BaseException) -> None:
        """Process the error that ended it."""
        if isinstance(error, StoreUnavailable):
            self.log(f"ends: {error}")
        elif not self.is_dead:
            self.fleet.ledger.wrong(f"{self.name} ends by {type(error).__name__}: {error}")


class SimulatedHost(startup.Host):
    """A host whose broker is a ``Term``, and whose clients do not use sockets."""

    async def accept(self, gate: object, clients: trio.Nursery) -> None:  # noqa: ARG002
        """Implement ``Host.accept``."""
        await trio.sleep_forever()

    async def serve(self, node: Node, store: ReplicatedStore) -> None:
        """Implement ``Host.serve``."""
        here = life()
        store.clock = here.fleet.rules.clock.current_time
        here.term = Term(here, store, here.fleet.ledger, lambda: node.is_owner)
        if self._must_stop:
            here.term.stop()
        try:
            await here.term.run()
        finally:
            here.term = None
            self._must_stop = False

    def stop_serving(self) -> None:
        """Implement ``Host.stop_serving``."""
        self._must_stop = True
        term = life().term
        if term is not None:
            term.stop()

    def wake(self) -> None:
        """Implement ``Host.wake``."""


def life() -> Life:
    """Return the process that runs."""
    found = PROCESS.get()
    assert isinstance(found, Life)
    return found


def settings_of(machine: Machine, **more: object) -> Settings:
    """Return the settings of a machine's node."""
    return Settings.of(
        cluster=SERVERS,
        cluster_name=NAMES.cluster,
        node=machine.name,
        data_dir=str(machine.directory),
        segment_bytes=SEGMENT_BYTES,
        **more,
    )


def _host(process: Life) -> SimulatedHost:
    unused: Any = None
    return SimulatedHost(
        settings_of(process.machine, cluster_followers=process.fleet.followers),
        Embedding(process.handle.feed, None, None),
        NAMES,
        entrances=[],
        link=unused,
        contact=Contact(process.name, process.name, 1, "secret"),
        handle=process.handle,
        digests={},
    )


@define(eq=False)
class Fleet:
    """All machines."""

    chance: random.Random
    rules: Rules
    network: Network
    ledger: Ledger
    nursery: trio.Nursery
    followers: int
    """How many nodes follow beside the owner."""
    machines: list[Machine] = field(factory=list)

    def make_life(self, machine: Machine) -> Life:
        """Return a new process of a machine's node."""
        return Life(machine, self)

    def start(self, machine: Machine) -> None:
        """Start the node of a machine, unless it runs or is not wanted."""
        if machine.life is None and machine.is_wanted:
            machine.life = self.make_life(machine)
            self.ledger.trace.add(machine.name, "starts")
            self.nursery.start_soon(machine.life.run)

    def log_begins_late(self, names: ClusterNames) -> bool:
        """Return whether the beginning of a log was deleted."""
        return self.ledger.engine.streams[names.log].first > 1

    def kill(self, machine: Machine, disk: str) -> None:
        """Kill the node of a machine, if it runs. Its later actions have no effect.

        Args:
          machine: The machine.
          disk: The fate of its directory.
        """
        life = machine.life
        if life is None:
            return
        life.is_dead = True
        before = machine.directory
        machine.generation += 1
        if disk != GONE and before.exists():
            shutil.copytree(before, machine.directory)
            if disk != KEPT:
                _harm(machine.directory, disk, self.chance)
        machine.life = None
        machine.place.drop()
        if life.term is not None:
            for request in life.term.requests:
                request.reply("lost")
        self.rules.go_on(life)
        life.scope.cancel()
        for scope in list(life.scopes):
            scope.cancel()

    def pause(self, machine: Machine) -> None:
        """Stop the process of a node, as SIGSTOP does."""
        if machine.life is not None:
            machine.life.is_paused = True
            self.rules.pause(machine.life)

    def go_on(self, machine: Machine) -> None:
        """Let the process of a node go on."""
        if machine.life is not None and machine.life.is_paused:
            machine.life.is_paused = False
            self.rules.go_on(machine.life)

    def owner(self) -> Machine | None:
        """Return the machine whose node serves clients, or None."""
        found = [each for each in self.machines if each.life is not None and each.life.term]
        return max(found, key=_opened_at, default=None)


def _opened_at(machine: Machine) -> float:
    term = machine.life.term if machine.life is not None else None
    return 0.0 if term is None else term.opened_at


def _harm(directory: Path, disk: str, chance: random.Random) -> None:
    """Damage a file of a directory, or cut the end of its newest journal off."""
    journal = sorted(directory.glob("cluster-*/journal/*.log"))
    every = [*journal, *sorted(directory.glob("cluster-*/streams/**/*.log"))]
    files = [file for file in (journal[-1:] if disk == TORN else every) if file.stat().st_size]
    if not files:
        return
    file = chance.choice(files)
    data = bytearray(file.read_bytes())
    if disk == TORN:
        del data[-chance.randrange(1, 400) :]
    else:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


@contextmanager
def simulated(network: Network) -> Iterator[None]:
    """Put nodes into the simulated world while the block runs."""
    open_local = startup._open_local

    def make(*args: Any, **kwargs: Any) -> Node:  # noqa: ANN401
        node = Node(*args, **kwargs)
        life().nodes[node.names.partition] = node
        return node

    def slowly(settings: Settings, path: Path, is_new: bool) -> JournalStore:
        here = life()
        trio.from_thread.run(trio.sleep, here.machine.journal_s)
        names = ClusterNames(NAMES.cluster, int(path.suffix[1:] or 0))
        if is_new and here.fleet.log_begins_late(names):
            here.fleet.ledger.rebuilt += 1
        return open_local(settings, path, is_new)

    def lease_time() -> float:
        return life().lease_time()

    async def forever(_: Gate) -> None:
        await trio.sleep_forever()

    with (
        mock.patch.object(trio, "open_tcp_stream", network.connect),
        mock.patch.object(_keeper, "lease_time", lease_time),
        mock.patch.object(_node, "lease_time", lease_time),
        mock.patch.object(_standby, "lease_time", lease_time),
        mock.patch.object(_standby, "CHECK_S", CHECK_S),
        mock.patch.multiple(_node, LOG_BYTES=LOG_BYTES, CHECK_S=CHECK_S),
        mock.patch.object(startup, "Node", make),
        mock.patch.object(startup, "_open_local", slowly),
        mock.patch.object(Gate, "watch", forever),
    ):
        yield
