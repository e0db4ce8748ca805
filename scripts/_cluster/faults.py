"""The faults of a simulated cluster: those of nodes, the network and the engine."""

import random
from collections.abc import Callable, Mapping

import trio
from attrs import define, field

from _cluster.engine import SERVERS, Engine
from _cluster.nodes import DAMAGED, GONE, KEPT, NAMES, TORN, Fleet, Machine
from _cluster.streams import Stream

TTL_S = 1.2
TAKEOVER_S = 0.5
"""Time limit for a takeover after the lease has expired."""
WATCHER_S = 2.5
"""The same, if no follower is alive."""
ANSWER_S = 2 * TTL_S
"""Limit of a node's wait for an answer, as in ``nats_options``."""
RENEWED_S = 0.3
"""Entries that are older should have been applied everywhere."""


@define(eq=False)
class Faults:
    """Lets faults happen, and ends them.

    Args:
      counts: The number of faults of each kind.
      active: Faults that have not ended.
    """

    fleet: Fleet
    engine: Engine
    chance: random.Random
    counts: dict[str, int] = field(factory=dict)
    active: int = 0
    _number: int = 0
    _over_at: float = 0.0
    """The time when the last fault ended, from which the waits for lost requests count."""

    def kinds(self) -> Mapping[str, tuple[int, Callable[[], str]]]:
        """Return the kinds of faults, with the frequency of each."""
        return {
            "owner killed": (6, lambda: self._kill(self.fleet.owner())),
            "standby killed": (3, lambda: self._kill(self._standby())),
            "owner and followers killed": (2, self._kill_copies),
            "owner stopped": (2, self._stop),
            "owner moved": (2, self._move),
            "owner paused": (5, lambda: self._pause(self.fleet.owner())),
            "standby paused": (2, lambda: self._pause(self._standby())),
            "network stalled": (5, self._stall),
            "network cut": (3, self._cut),
            "server killed": (3, self._server),
            "majority lost": (4, self._outage),
            "requests lost or late": (4, self._flaky),
            "consumers late": (2, self._lag),
            "engine full": (1, self._fill),
        }

    async def happen(self, until: float) -> None:
        """Let faults happen until a time."""
        while True:
            await trio.sleep(min(self.chance.expovariate(0.8), 6.0))
            if trio.current_time() > until:
                return
            kinds = self.kinds()
            weights = [weight for weight, _ in kinds.values()]
            (kind,) = self.chance.choices(list(kinds), weights)
            written = kinds[kind][1]()
            if written:
                self._number += 1
                self.counts[kind] = self.counts.get(kind, 0) + 1
                self.fleet.ledger.trace.add("*", f"{kind}: {written}")

    def heal(self) -> None:
        """End all faults at once."""
        self.engine.troubles.end()
        for machine in self.fleet.machines:
            machine.place.is_cut = False
            machine.place.go_on()
            machine.journal_s = 0.0
            self.fleet.go_on(machine)
            self.fleet.start(machine)

    # --- nodes ------------------------------------------------------------------------------------

    def _standby(self) -> Machine | None:
        owner = self.fleet.owner()
        return self.chance.choice([each for each in self.fleet.machines if each is not owner])

    def _for(self, least: float, most: float, end: Callable[[], None]) -> float:
        """End a fault after a time, which is returned."""
        duration = self.chance.uniform(least, most)
        self.active += 1

        def over() -> None:
            self.active -= 1
            self._over_at = trio.current_time()
            end()

        self.fleet.network.at(duration, over)
        return duration

    def _kill(self, machine: Machine | None) -> str:
        if machine is None or machine.life is None:
            return ""
        disk = self.chance.choices((KEPT, TORN, DAMAGED, GONE), (6, 3, 1, 2))[0]
        if machine is self.fleet.owner():
            self._expect_takeover(machine)
        self.fleet.kill(machine, disk)
        slow = self.chance.random() < 0.3
        machine.journal_s = self.chance.uniform(0.5, 8.0) if slow else 0.0
        away = self._for(0.0, 4.0, lambda: self.fleet.start(machine))
        reads = f", reads it in {machine.journal_s:.1f} s" if slow else ""
        return f"{machine.name} for {away:.2f} s, its directory {disk}{reads}"

    def _kill_copies(self) -> str:
        """Kill the owner and all nodes that follow, if others are left."""
        owner = self.fleet.owner()
        others = [each for each in self.fleet.machines if each is not owner and each.life]
        followers = [each for each in others if not _watches(each)]
        if owner is None or len(followers) == len(others):
            return ""
        return "; ".join([self._kill(each) for each in (*followers, owner)])

    def _stop(self) -> str:
        machine = self.fleet.owner()
        if machine is None or machine.life is None:
            return ""
        machine.life.handle.stop()
        return machine.name

    def _move(self) -> str:
        machine, heir = self.fleet.owner(), self._standby()
        if machine is None or heir is None:
            return ""
        order = b'{"do": "move", "to": "%b"}' % heir.name.encode()
        self.engine.tell(NAMES.node(machine.name), b"", order)
        return f"{machine.name} to {heir.name}"

    def _pause(self, machine: Machine | None) -> str:
        if machine is None or machine.life is None or machine.life.is_paused:
            return ""
        life = machine.life
        self.fleet.pause(machine)

        def end() -> None:
            if machine.life is life:
                self.fleet.go_on(machine)

        return f"{machine.name} for {self._for(0.1, 4.0, end):.2f} s"

    # --- network ----------------------------------------------------------------------------------

    def _some(self) -> Machine:
        owner = self.fleet.owner()
        if owner is not None and self.chance.random() < 0.7:
            return owner
        return self.chance.choice(self.fleet.machines)

    def _stall(self) -> str:
        machine = self._some()
        if machine.place.stalled or machine.place.is_cut:
            return ""
        ways = self.chance.choice((("up", "down"), ("up",), ("down",)))
        machine.place.stall(*ways)
        duration = self._for(0.1, 4.0, machine.place.go_on)
        return f"{machine.name} {' and '.join(ways)} for {duration:.2f} s"

    def _cut(self) -> str:
        machine = self._some()
        if machine.place.stalled or machine.place.is_cut:
            return ""
        machine.place.cut()

        def end() -> None:
            machine.place.is_cut = False

        return f"{machine.name} for {self._for(0.0, 4.0, end):.2f} s"

    # --- engine -----------------------------------------------------------------------------------

    def _server(self) -> str:
        troubles = self.engine.troubles
        host = self.chance.choice(SERVERS)
        if troubles.down or troubles.outage:
            return ""
        troubles.down.add(host)
        self.engine.drop(host)

        def end() -> None:
            troubles.down.discard(host)

        duration = self._for(0.2, 5.0, end)
        if self.chance.random() < 0.5:  # it led the log or the leases
            self._lose_leaders(self.chance.uniform(0.3, min(4.0, duration)))
        return f"{host} for {duration:.2f} s"

    def _lose_leaders(self, seconds: float) -> str:
        troubles = self.engine.troubles
        troubles.outage = self.chance.choice(("silent", "absent", "unready"))

        def end() -> None:
            troubles.outage = ""

        return f"{troubles.outage} for {self._for(seconds, seconds, end):.2f} s"

    def _outage(self) -> str:
        if self.engine.troubles.outage:
            return ""
        if self.chance.random() < 0.3:
            for host in SERVERS:
                self.engine.drop(host)
        return self._lose_leaders(self.chance.uniform(0.2, 7.0))

    def _flaky(self) -> str:
        troubles = self.engine.troubles
        troubles.flaky = self.chance.choice((0.05, 0.2, 0.5))

        def end() -> None:
            troubles.flaky = 0.0

        return f"{troubles.flaky} for {self._for(0.5, 5.0, end):.2f} s"

    def _lag(self) -> str:
        troubles = self.engine.troubles
        troubles.lag_s = self.chance.choice((0.05, 0.5, 2.0))

        def end() -> None:
            troubles.lag_s = 0.0

        return f"by {troubles.lag_s} s for {self._for(0.5, 5.0, end):.2f} s"

    def _fill(self) -> str:
        troubles = self.engine.troubles
        troubles.full = True

        def end() -> None:
            troubles.full = False

        return f"for {self._for(0.2, 2.0, end):.2f} s"

    # --- silence ----------------------------------------------------------------------------------

    def _expect_takeover(self, owner: Machine) -> None:
        """Check later that the loss of an owner caused no long silence, unless another fault
        happens."""
        others = [each for each in self.fleet.machines if each is not owner]
        is_calm = self.engine.troubles.are_none and all(each.speed == 1 for each in others)
        ready = [each for each in others if self._is_ready(each)]
        fit, limit_s = [each for each in ready if self._is_fit(each)], TTL_S + TAKEOVER_S
        if not any(each.life for each in others if not _watches(each)):
            fit, limit_s = ready, TTL_S + WATCHER_S
        is_calm &= trio.current_time() > self._over_at + ANSWER_S
        if not (is_calm and fit) or owner.life is None or not owner.life.term:
            return
        killed_at, number, ledger = trio.current_time(), self._number + 1, self.fleet.ledger
        names = ", ".join(each.name for each in fit)

        def check() -> None:
            if self._number != number:
                return  # something else happened meanwhile
            if ledger.taken_at > killed_at:
                ledger.silences.append(ledger.taken_at - killed_at)
                return
            ledger.wrong(f"no owner {limit_s} s after a kill, though {names} could")

        self.fleet.network.at(limit_s, check)

    def _is_ready(self, machine: Machine) -> bool:
        """Return whether a node knows the lease and can write it."""
        life, place = machine.life, machine.place
        if life is None or life.is_paused or life.node is None or place.stalled or place.is_cut:
            return False
        node = life.node
        is_recent = node.lease.sequence >= _settled(self.engine.streams[NAMES.leases])
        return node.jetstream.client.is_connected and is_recent

    def _is_fit(self, machine: Machine) -> bool:
        """Return whether a node that is ready is up to date."""
        assert machine.life is not None
        assert machine.life.node is not None
        local = machine.life.node.local
        return local._is_open and local.position >= _settled(self.engine.streams[NAMES.log])


def _watches(machine: Machine) -> bool:
    """Return whether a node runs that does not follow."""
    node = machine.life.node if machine.life is not None else None
    return node is not None and not node.lease.is_follower


def _settled(stream: Stream) -> int:
    """Return the sequence up to which every node should have read a stream."""
    recent = trio.current_time() - RENEWED_S
    return sum(1 for each in stream.history if each.at < recent)
