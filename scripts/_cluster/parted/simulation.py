"""One seed of a cluster with partitions: its parts, its faults, and the checks at the end."""

import random
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from unittest import mock

import trio
from attrs import define, evolve, field

from _cluster.faults import TTL_S, Faults
from _cluster.ledger import Ledger
from _cluster.network import Network
from _cluster.nodes import Machine
from _cluster.parted.clients import PartedClients
from _cluster.parted.doors import Streets, Ways
from _cluster.parted.nodes import (
    PartedFleet,
    PartedMachine,
    names_of,
    simulated_partitions,
)
from _cluster.parted.record import COMMITTED, Record, Whole
from _cluster.simulation import QUIET_S, Result, Simulation
from trio_stomp.broker import FORWARDS
from trio_stomp.cluster.routing import Forward, Forwards, _forwarder
from trio_stomp.cluster.routing._forwarder import encode_forward

DAY_S = 86400.0
HALF, TWICE = "half", "twice"
PLANTS = (HALF, TWICE)
"""Planted faults: the next owner does not send on what the last one stored for other partitions, or
it does so without the ids by which these know what they have."""


@define(eq=False)
class PartedFaults(Faults):
    """The faults of nodes with partitions: those of all nodes, and those between nodes."""

    @property
    def parted(self) -> PartedFleet:
        """Return the machines."""
        assert isinstance(self.fleet, PartedFleet)
        return self.fleet

    def kinds(self) -> Mapping[str, tuple[int, Callable[[], str]]]:
        """Implement ``Faults.kinds``."""
        return {
            **super().kinds(),
            "nodes stalled": (3, self._stall_nodes),
            "nodes cut": (3, self._cut_nodes),
            "clock of the day set": (2, self._set_day),
        }

    def heal(self) -> None:
        """Implement ``Faults.heal``."""
        for ways in self.parted.streets.ways.values():
            ways.is_cut = False
        super().heal()

    def _move(self) -> str:
        owners = self.parted.owners()
        if not owners:
            return ""
        partition = self.chance.choice(list(owners))
        heir = self.chance.choice(self.fleet.machines)
        order = b'{"do": "move", "to": "%b"}' % heir.name.encode()
        self.engine.tell(names_of(partition).node(owners[partition].name), b"", order)
        return f"partition {partition} from {owners[partition].name} to {heir.name}"

    def _stall_nodes(self) -> str:
        machine, duration = self.chance.choice(self.fleet.machines), self.chance.uniform(0.1, 4.0)
        self.parted.streets.stall(machine.name, duration)
        return f"{machine.name} for {duration:.2f} s"

    def _cut_nodes(self) -> str:
        machine = self.chance.choice(self.fleet.machines)
        ways = self.parted.streets.ways[machine.name]
        if ways.is_cut:
            return ""
        ways.is_cut = True
        ways.drop()

        def end() -> None:
            ways.is_cut = False

        return f"{machine.name} for {self._for(0.0, 4.0, end):.2f} s"

    def _set_day(self) -> str:
        machine = self.chance.choice(self.fleet.machines)
        assert isinstance(machine, PartedMachine)
        step = self.chance.choice((-DAY_S, -60.0, -0.5, 0.5, 60.0, DAY_S))
        machine.day_offset += step
        return f"{machine.name} by {step:+.1f} s"


@contextmanager
def _worlds(streets: Streets, ledgers: Sequence[Ledger], plant: str) -> Iterator[None]:
    """Put nodes into the simulated world, perhaps with a planted fault, while the block runs."""

    def encode(_partition: int, item: Forward) -> bytes:
        return encode_forward(secrets.randbits(40), item)

    with simulated_partitions(streets, ledgers), ExitStack() as stack:
        if plant == HALF:
            stack.enter_context(mock.patch.object(Forwards, "restore"))
        elif plant == TWICE:
            stack.enter_context(mock.patch.object(_forwarder, "encode_forward", encode))
        yield


@define(eq=False)
class PartedSimulation(Simulation):
    """A cluster with partitions, with a seed.

    Args:
      partitions: Their number.
    """

    partitions: int = 3
    ledgers: list[Ledger] = field(factory=list)
    record: Record = field(init=False)

    def _make_network(self, chance: random.Random) -> Network:
        return Streets(chance)

    def _make_parts(self, nursery: trio.Nursery) -> None:
        first = self.ledger
        self.ledgers.append(first)
        for number in range(1, self.partitions):
            more = Ledger(self.engine, self.trace, names_of(number), TTL_S)
            more.violations, more.found = first.violations, first.found
            self.ledgers.append(more)
        self.record = Record(first.wrong)
        parts = self._part(), self.rules, self.network, first, nursery
        self.fleet = fleet = PartedFleet(*parts, self.followers, ledgers=self.ledgers)
        self.faults = PartedFaults(fleet, self.engine, self._part())
        self.clients = PartedClients(fleet, self.record, self._part())

    def worlds(self) -> AbstractContextManager[None]:
        """Implement ``Simulation.worlds``."""
        assert isinstance(self.network, Streets)
        return _worlds(self.network, self.ledgers, self.plant)

    def _make_machine(self, name: str, speed: float, offset: float) -> Machine:
        assert isinstance(self.network, Streets)
        self.network.ways[name] = Ways()
        return PartedMachine(name, self.folder, self.rules, speed=speed, offset=offset)

    def _unsettled(self) -> str:
        if missing := self.record.missing():
            return f"{len(missing)} messages have not arrived: {missing[:5]}"
        for number in range(self.partitions):
            for machine in self.fleet.machines:
                if problem := self._lag(machine, names_of(number)):
                    return f"partition {number}: {problem}"
        assert isinstance(self.fleet, PartedFleet)
        owners = self.fleet.owners()
        lacking = [number for number in range(self.partitions) if number not in owners]
        if lacking:
            return f"partitions without an owner: {lacking}"
        unsent = [number for number in owners if self._forwards(number)]
        return f"the partitions {unsent} have messages for others" if unsent else ""

    def _forwards(self, number: int) -> bool:
        """Return whether the owner of a partition has stored messages for others."""
        assert isinstance(self.fleet, PartedFleet)
        life = self.fleet.owners()[number].life
        assert life is not None
        state = life.nodes[number].local.state()
        return any(place == FORWARDS for place, _ in state.places)

    async def _settle(self) -> None:
        """Implement ``Simulation._settle``: also wait for what may still come."""
        for pause_s in (0.0, 2 * QUIET_S):
            await trio.sleep(pause_s)
            while self.clients.running or self._unsettled():  # noqa: ASYNC110
                await trio.sleep(QUIET_S / 4)

    def _compare(self) -> None:
        if not self.ledger.violations:
            self.record.judge()
        for number in range(self.partitions):
            self._compare_states(names_of(number))

    def result(self) -> Result:
        """Implement ``Simulation.result``."""
        record = self.record
        committed = [whole for whole in record.wholes if whole.state == COMMITTED]
        return evolve(
            super().result(),
            takeovers=sum(each.takeovers for each in self.ledgers),
            confirmed=sum(each.confirmed for each in self.ledgers),
            unleased=sum(each.unleased for each in self.ledgers),
            redelivered=record.repeated,
            clients={
                "messages sent": len(record.sent),
                "- with a RECEIPT": sum(each.is_receipted for each in record.sent.values()),
                "deliveries": record.deliveries,
                "transactions, composites": len(record.wholes),
                "- that have one": len(committed),
                "- over partitions": sum(map(self._is_spread, committed)),
            },
        )

    def _is_spread(self, whole: Whole) -> bool:
        assert isinstance(self.fleet, PartedFleet)
        of = self.fleet.placement.of
        return len({of(each.place) for each in whole.messages}) > 1
