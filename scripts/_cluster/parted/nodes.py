"""Processes of nodes with partitions, whose ports and clocks are those of the simulation."""

import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Self
from unittest import mock

import trio
from attrs import define

from _cluster.ledger import Ledger
from _cluster.nodes import NAMES, Fleet, Life, Machine, life, settings_of, simulated
from _cluster.parted.doors import Door, Streets
from trio_stomp.broker import WallTime
from trio_stomp.cluster import ClusterNames, Contact, ReplicatedStore
from trio_stomp.cluster.routing import Placement
from trio_stomp.server import Clock, Entrance, ServerHandle, _committer
from trio_stomp.startup import _node, _partitions, _serve
from trio_stomp.startup._serve import Embedding
from trio_stomp.store import LeftOut, Progress, Recovered, Turn, append_sound

EPOCH_S = 1_700_000_000
"""The time of day at the beginning."""


def names_of(partition: int) -> ClusterNames:
    """Return the names of a partition's streams and subjects."""
    return ClusterNames(NAMES.cluster, partition)


@define(eq=False)
class PartedMachine(Machine):
    """A machine whose clock of the day can be set.

    Args:
      day_offset: How far that was set.
    """

    day_offset: float = 0.0

    def day(self) -> float:
        """Return the time of day."""
        return EPOCH_S + self.rules.clock.current_time() + self.day_offset


@define(eq=False)
class PartedLife(Life):
    """A process of a node with partitions."""

    is_ready: bool = False
    """It accepts clients."""

    async def _serve(self) -> None:
        fleet = self.fleet
        assert isinstance(fleet, PartedFleet)
        settings = settings_of(
            self.machine,
            cluster_partitions=len(fleet.ledgers),
            cluster_followers=fleet.followers,
            diag_interval_s=0,
            monitor_interval_s=0,
        )
        embedding = Embedding(self.handle.feed, None, None)
        try:
            await _partitions.serve_partitions(settings, None, embedding, _Started(self))
        finally:
            self.is_ready = False


@define
class _Started(trio.TaskStatus[ServerHandle]):
    """Takes the handle of a node that serves clients."""

    process: PartedLife

    def started(self, value: ServerHandle | None = None) -> None:
        """Implement ``TaskStatus.started``."""
        assert value is not None
        self.process.handle = value
        self.process.is_ready = True


@define(eq=False)
class PartedFleet(Fleet):
    """All machines of a cluster with partitions.

    Args:
      ledgers: The ledger of each partition.
    """

    ledgers: Sequence[Ledger] = ()

    @property
    def placement(self) -> Placement:
        """Return the partition of each destination."""
        return Placement(len(self.ledgers))

    @property
    def streets(self) -> Streets:
        """Return the network."""
        assert isinstance(self.network, Streets)
        return self.network

    def make_life(self, machine: Machine) -> Life:
        """Implement ``Fleet.make_life``."""
        return PartedLife(machine, self)

    def kill(self, machine: Machine, disk: str) -> None:
        """Implement ``Fleet.kill``: its links end, too."""
        if machine.life is not None:
            self.streets.close_doors(machine.name)
            self.streets.ways[machine.name].drop()
        super().kill(machine, disk)

    def go_on(self, machine: Machine) -> None:
        """Implement ``Fleet.go_on``."""
        super().go_on(machine)
        self.streets.went_on_at = trio.current_time()

    def owners(self) -> Mapping[int, Machine]:
        """Return the machine whose node owns each partition, as far as that node knows."""
        found: dict[int, Machine] = {}
        for machine in self.machines:
            if machine.life is not None and not machine.life.is_paused:
                for partition, node in machine.life.nodes.items():
                    if node._term is not None:
                        found[partition] = machine
        return found

    def owner(self) -> Machine | None:
        """Implement ``Fleet.owner``: the owner of some partition."""
        found = list(self.owners().values())
        return self.chance.choice(found) if found else None


def _partition_of(store: ReplicatedStore) -> int:
    return int(store.log.stream.rpartition("_")[2])  # type: ignore[attr-defined]


class Appender:
    """Stands for the thread of ``trio_stomp.server``, whose turns must be repeatable."""

    def __init__(self, store: Any) -> None:  # noqa: ANN401
        self._store = store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    async def append(self, turns: Sequence[Turn], expected: int) -> tuple[int, Sequence[LeftOut]]:
        """Implement ``Appender.append``."""
        found: tuple[int, Sequence[LeftOut]]
        with trio.CancelScope(shield=True):
            found = await trio.to_thread.run_sync(append_sound, self._store, turns, expected)
        return found


def _clock(wall: WallTime) -> Clock:
    """Return the clock of a broker, which shows the time of its machine."""
    process = life()
    assert isinstance(process.machine, PartedMachine)
    now = process.fleet.rules.clock.current_time
    return Clock(wall, elapsed=now, running=now, day=process.machine.day)


def _lease_time() -> float:
    return life().lease_time()


def _day() -> float:
    machine = life().machine
    assert isinstance(machine, PartedMachine)
    return machine.day()


async def _open_node(*_: object) -> list[Entrance]:
    """Stand for ``open_node``: clients come without ports."""
    await trio.lowlevel.checkpoint()
    return []


async def _open_link(
    _settings: object, offset: int, stack: AsyncExitStack, _tls: None
) -> tuple[Door, Contact]:
    """Stand for ``open_link``."""
    process = life()
    streets = process.fleet.network
    assert isinstance(streets, Streets)
    port = offset + 1
    door = streets.open_door(process.name, port)
    stack.push_async_callback(trio.aclose_forcefully, door)
    return door, Contact(process.name, process.name, port, f"secret{id(process)}")


@contextmanager
def _watched(ledgers: Sequence[Ledger]) -> Iterator[None]:
    """Have the ledgers of partitions check what owners store."""
    append, recover = ReplicatedStore.append, ReplicatedStore.recover

    def watched_append(store: ReplicatedStore, turns: Sequence[Turn], expected: int) -> int:
        commit = append(store, turns, expected)
        process, ledger = life(), ledgers[_partition_of(store)]
        if turns and not process.is_dead:
            ledger.confirm(process.name, store, store._writer, store._sequence)
        return commit

    def watched_recover(store: ReplicatedStore, progress: Progress) -> Recovered:
        process = life()
        store.clock = process.fleet.rules.clock.current_time
        found = recover(store, progress)
        ledgers[_partition_of(store)].takeovers += not process.is_dead
        return found

    with (
        mock.patch.object(ReplicatedStore, "append", watched_append),
        mock.patch.object(ReplicatedStore, "recover", watched_recover),
    ):
        yield


@contextmanager
def simulated_partitions(streets: Streets, ledgers: Sequence[Ledger]) -> Iterator[None]:
    """Put nodes with partitions into the simulated world while the block runs."""
    times = types.SimpleNamespace(time=_day, monotonic=trio.current_time)
    with (
        simulated(streets),
        _watched(ledgers),
        mock.patch.object(_partitions, "open_node", _open_node),
        mock.patch.object(_partitions, "open_link", _open_link),
        mock.patch.object(_node, "_copy", lambda listener: listener.copy()),
        mock.patch.object(_node, "time", times),
        mock.patch.object(_node, "lease_time", _lease_time),
        mock.patch.object(_serve, "time", times),
        mock.patch.object(_serve, "Clock", _clock),
        mock.patch.object(_committer, "Appender", Appender),
    ):
        yield
