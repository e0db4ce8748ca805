"""One seed: a cluster, its clients, its faults, and the checks at the end."""

import logging
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol
from unittest import mock

import trio
from attrs import define, evolve, field, frozen

from _cluster.clients import Clients
from _cluster.desk import PAGE, Request
from _cluster.determinism import PROCESS, Rules
from _cluster.engine import Engine
from _cluster.faults import TTL_S, Faults
from _cluster.ledger import Ledger, Trace
from _cluster.network import Network
from _cluster.nodes import NAMES, Fleet, Life, Machine, simulated
from trio_stomp.cluster import ClusterNames, Lease, LocalState, LogEntry
from trio_stomp.cluster._entries import Batch, BatchReader
from trio_stomp.store import MemoryStore, Recovered, Store, Turn

DURATION_S = 14.0
"""The duration of faults."""
SETTLE_S = 40.0
"""Time limit for the recovery afterwards."""
QUIET_S = 1.0
AFTERMATH_S = 0.5
"""Time that a run continues after its first violation."""
MEMORY = Path("/dev/shm")
"""The place of directories, if it exists. The disk is simulated, so it need not be a real one."""


FENCE, LEASE, FORGET = "fence", "lease", "forget"
PLANTS = (FENCE, LEASE, FORGET)
"""Planted faults, which the checks must find: the engine ignores the sequence that an entry
expects, nodes ignore the end of their lease, a store forgets every hundredth append."""


@frozen
class Result:
    """The result of a seed.

    Args:
      faults: The number of faults of each kind.
      trace: The last events.
    """

    seed: int
    nodes: int
    violations: list[str]
    faults: dict[str, int]
    takeovers: int
    confirmed: int
    unleased: int
    redelivered: int
    rebuilt: int
    silences: list[float]
    trace: list[str]
    clients: Mapping[str, int] = field(factory=dict)
    """Figures of clients, in a cluster with partitions."""


class Load(Protocol):
    """The clients of a run."""

    running: int
    """Clients that send, and have not ended."""

    def all(self) -> Iterator[Callable[[], Awaitable[None]]]:
        """Yield the task of each client."""

    def stop(self) -> None:
        """Have clients send nothing new, and end once everything has a RECEIPT."""


@define(eq=False)
class Simulation:
    """A cluster with a seed.

    Args:
      prints: Print each event.
      plant: A fault in the code or the engine that checks must find; "" = none.
      followers: How many nodes follow beside the owner; 0 = as the seed says.
    """

    seed: int
    nodes: tuple[int, int]
    folder: Path
    prints: bool = False
    plant: str = ""
    duration_s: float = DURATION_S
    followers: int = 0
    chance: random.Random = field(init=False)
    rules: Rules = field(init=False)
    network: Network = field(init=False)
    engine: Engine = field(init=False)
    trace: Trace = field(init=False)
    ledger: Ledger = field(init=False)
    fleet: Fleet = field(init=False)
    faults: Faults = field(init=False)
    clients: Load = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.rules = Rules(self._part())
        self.network = self._make_network(self._part())
        self.engine = self.network.server = Engine(self.network, self._part())
        self.trace = Trace(self.rules.clock.current_time, self.prints)
        self.ledger = Ledger(self.engine, self.trace, NAMES, TTL_S)
        self.engine.troubles.ignores_expected = self.plant == FENCE
        self.followers = self.followers or self._part().choice((1, 2, 9))

    def _make_network(self, chance: random.Random) -> Network:
        """Return the network."""
        return Network(chance)

    def _part(self) -> random.Random:
        """Return a separate source of random numbers for a part, so that parts do not affect each
        other."""
        return random.Random(self.chance.random())

    async def run(self) -> None:
        """Run the simulation, and check it."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.network.run)
            self._make_parts(nursery)
            self._make_machines()
            clients = self.clients
            for machine in self.fleet.machines:
                self.fleet.start(machine)
            async with trio.open_nursery() as load:
                load.start_soon(self._end_early, load.cancel_scope)
                for run in clients.all():
                    load.start_soon(run)
                await self._live()
                load.cancel_scope.cancel()
            for machine in self.fleet.machines:
                machine.is_wanted = False
                self.fleet.kill(machine, "lost")
            await trio.sleep(QUIET_S)
            nursery.cancel_scope.cancel()

    async def _end_early(self, scope: trio.CancelScope) -> None:
        """End the run soon after the first violation: others may follow from it."""
        await self.ledger.found.wait()
        await trio.sleep(AFTERMATH_S)
        scope.cancel()

    def _make_parts(self, nursery: trio.Nursery) -> None:
        """Make the fleet, the faults and the clients."""
        parts = self._part(), self.rules, self.network, self.ledger, nursery
        self.fleet = Fleet(*parts, self.followers)
        self.faults = Faults(self.fleet, self.engine, self._part())
        self.clients = Clients(self.fleet, self._part())

    def worlds(self) -> AbstractContextManager[None]:
        """Return the context in which nodes run in this world."""
        return simulated(self.network)

    async def _live(self) -> None:
        """Let faults happen, wait until all is in order, and compare."""
        await self.faults.happen(trio.current_time() + self.duration_s)
        self.trace.add("*", "all faults end")
        self.faults.heal()
        self.clients.stop()
        with trio.move_on_after(SETTLE_S) as scope:
            await self._settle()
        if scope.cancelled_caught:
            what = "clients have no receipts" if self.clients.running else self._unsettled()
            self.ledger.wrong(f"not in order after {SETTLE_S} s: {what}")
        self._compare()

    def _make_machines(self) -> None:
        chance = self.chance
        drifts = chance.random() < 0.2
        for number in range(chance.randint(*self.nodes)):
            speed = chance.uniform(0.8, 1.25) if drifts else 1.0
            offset = chance.uniform(0, 1e6)
            self.fleet.machines.append(self._make_machine(f"n{number}", speed, offset))

    def _make_machine(self, name: str, speed: float, offset: float) -> Machine:
        """Return a machine."""
        return Machine(name, self.folder, self.rules, speed=speed, offset=offset)

    def result(self) -> Result:
        """Return the result."""
        ledger = self.ledger
        return Result(
            self.seed,
            nodes=len(self.fleet.machines),
            violations=ledger.violations,
            faults=self.faults.counts,
            takeovers=ledger.takeovers,
            confirmed=ledger.confirmed,
            unleased=ledger.unleased,
            redelivered=ledger.redelivered,
            rebuilt=ledger.rebuilt,
            silences=ledger.silences,
            trace=list(ledger.trace.events),
        )

    # --- the end ----------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Wait until clients have their receipts, and all nodes the whole log."""
        while True:
            if not self.clients.running and not self._unsettled():
                return
            owner = self.fleet.owner()
            if not self.clients.running and owner is not None and owner.life and owner.life.term:
                owner.life.term.submit(Request(keeps=True))  # so that it notices what came late
            await trio.sleep(QUIET_S / 4)

    def _unsettled(self) -> str:
        """Return a description of what is not settled yet, or ""."""
        for machine in self.fleet.machines:
            if problem := self._lag(machine, NAMES):
                return problem
        owner = self.fleet.owner()
        if owner is None or owner.life is None or owner.life.term is None:
            return "there is no owner"
        return "" if owner.life.term.is_open else f"{owner.name} does not serve"

    def _lag(self, machine: Machine, names: ClusterNames) -> str:
        """Return what a machine's node of a partition lacks of its log, or ""."""
        streams, life = self.engine.streams, machine.life
        if life is None or names.partition not in life.nodes:
            return f"{machine.name} does not run"
        last = streams[names.log].last if names.log in streams else 0
        node = life.nodes[names.partition]
        if not node.lease.is_follower:
            return ""
        position = node.local.position
        return "" if position == last else f"{machine.name} has entry {position} of {last}"

    def _compare(self) -> None:
        """Check the result."""
        self._compare_states(NAMES)

    def _compare_states(self, names: ClusterNames) -> None:
        """Check that all nodes have the same state of a partition: that of the whole log."""
        expected = self._expected(names)
        for machine in self.fleet.machines:
            life = machine.life
            if life is None or names.partition not in life.nodes or self.ledger.violations:
                continue
            node = life.nodes[names.partition]
            if not node.lease.is_follower:
                continue
            local = node.local
            found = digest(local.state(), local.store, self.ledger.trimmed)
            if found and found != expected:
                self.ledger.wrong(
                    f"{machine.name} has another state: {difference(found, expected)}"
                )

    def _expected(self, names: ClusterNames) -> dict[str, object]:
        """Return the state that all entries ever stored lead to, in the reference store."""
        store, reader = MemoryStore(), BatchReader()
        commit = 0
        history = self.engine.streams[names.log].history
        entries = [LogEntry(each.sequence, each.payload) for each in history]
        for batch in reader.feed(entries):
            commit = store.append(batch.turns, commit)
        return digest(store.state(), store, self.ledger.trimmed)


def digest(found: Recovered, store: Store, trimmed: int) -> dict[str, object]:
    """Return the contents of a store for comparison. {} if messages are damaged, which reading
    shows.

    Stores may keep trimmed messages of streams.
    """
    messages = {}
    for place, level in found.places:
        page = store.read(place, level, 0, PAGE)
        if page.lost:
            return {}
        for run in page.runs:
            for number, body in zip(run.ids, run.bodies, strict=True):
                messages[number] = place, level, run.head, body
    streams = {
        name: [
            (offset, body, each.head)
            for each in store.read_stream(name, state.first, PAGE)
            for offset, body in enumerate(each.bodies, each.first)
            if offset >= trimmed
        ]
        for name, state in found.streams.items()
    }
    return {
        "commit": found.commit,
        "messages": messages,
        "settings": dict(found.settings),
        "deliveries": {key: count for key, count in found.deliveries.items() if key in messages},
        "streams": streams,
    }


def difference(found: dict[str, object], expected: dict[str, object]) -> str:
    """Return where two digests differ, in few words."""
    for name, value in expected.items():
        if found[name] != value:
            return f"{name}: {found[name]!r:.300} instead of {value!r:.300}"
    return ""


@contextmanager
def _heard() -> Iterator[None]:
    """Record log messages of nodes as events while the block runs."""

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            process = PROCESS.get()
            if isinstance(process, Life):
                process.log(record.getMessage())
                if record.exc_info and not process.is_dead:
                    process.fleet.ledger.wrong(f"a bug: {record.exc_info[1]!r}")

    logger, ear = logging.getLogger("trio_stomp"), Ear()
    before = logger.level, logger.propagate
    logger.addHandler(ear)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(ear)
        logger.level, logger.propagate = before


@contextmanager
def _planted(plant: str) -> Iterator[None]:
    """Plant a fault into the code while the block runs."""
    apply = LocalState.apply

    def forget(local: LocalState, batch: Batch) -> None:
        turns = [Turn([])] * len(batch.turns) if batch.first % 100 == 0 else batch.turns
        apply(local, evolve(batch, turns=turns))

    def is_held(lease: Lease, _now: float) -> bool:
        return lease.claim.holder == lease.node

    with ExitStack() as stack:
        if plant == LEASE:
            stack.enter_context(mock.patch.object(Lease, "is_held", is_held))
        elif plant == FORGET:
            stack.enter_context(mock.patch.object(LocalState, "apply", forget))
        yield


def simulate(
    seed: int,
    nodes: tuple[int, int],
    *,
    prints: bool = False,
    plant: str = "",
    duration_s: float = DURATION_S,
    make: Callable[..., Simulation] = Simulation,
) -> Result:
    """Run a seed, and return its result."""
    place = MEMORY if MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="cluster-sim-", dir=place))
    try:
        world = make(seed, nodes, folder, prints=prints, plant=plant, duration_s=duration_s)
        with world.rules.applied(), world.worlds(), _heard(), _planted(plant):
            trio.run(world.run, clock=world.rules.clock)
    finally:
        shutil.rmtree(folder)
    return world.result()
