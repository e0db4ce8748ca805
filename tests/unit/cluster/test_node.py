"""Nodes with their engine and network in memory, in virtual time (scripts/cluster_sim.py)."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
from _cluster.clients import Clients
from _cluster.desk import STORED, Request, Term
from _cluster.engine import Engine, Session
from _cluster.faults import TAKEOVER_S, TTL_S, Faults
from _cluster.nodes import GONE, KEPT, NAMES, Fleet, Machine
from _cluster.simulation import Simulation, simulate

Script = Callable[[Fleet, Engine], Awaitable[None]]
Play = Callable[..., None]
SOON_S = 20.0


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run a test on nodes without clients and without any fault."""

    def play(script: Script, nodes: int = 3, followers: int = 9) -> None:
        async def happen(faults: Faults, _until: float) -> None:
            with trio.fail_after(10 * SOON_S):
                await script(faults.fleet, faults.engine)

        def nobody(clients: Clients) -> list[Callable[[], Awaitable[None]]]:
            clients.running = 0
            return []

        monkeypatch.setattr(Faults, "happen", happen)
        monkeypatch.setattr(Clients, "all", nobody)
        found = simulate(1, (nodes, nodes), make=partial(Simulation, followers=followers))
        assert found.violations == [], found.trace

    return play


async def until(condition: Callable[[], bool]) -> None:
    """Wait a limited time until a condition holds."""
    with trio.fail_after(SOON_S):
        for _ in iter(condition, True):
            await trio.sleep(0.05)


async def owned(fleet: Fleet, former: Machine | None = None) -> tuple[Machine, Term]:
    """Return the machine whose node serves clients, and its term as the owner."""

    def serves() -> bool:
        machine = fleet.owner()
        term = machine.life.term if machine is not None and machine.life is not None else None
        if machine is None or machine is former or term is None or not term.is_open:
            return False
        found.append((machine, term))
        return True

    found: list[tuple[Machine, Term]] = []
    await until(serves)
    return found[0]


async def purged(fleet: Fleet, engine: Engine) -> tuple[Machine, Machine]:
    """Store enough that a snapshot covers the whole log. Return the owner and a standby."""
    owner, term = await owned(fleet)
    for number in range(8):
        request = Request([b"m-%d " % number + bytes(6000)])
        fleet.ledger.sent.update(request.bodies)
        term.submit(request)
        await request.answered.wait()
        assert request.answer == STORED
    log = engine.streams[NAMES.log]
    await until(lambda: log.first > log.last)
    return owner, next(each for each in fleet.machines if each is not owner)


def is_ready(machine: Machine, engine: Engine) -> bool:
    """Return whether a node has the whole log, and may take the lease."""
    node = machine.life.nodes.get(0) if machine.life is not None else None
    if node is None:
        return False
    return node.lease.is_candidate and node.local.position == engine.streams[NAMES.log].last


def test_a_standby_behind_a_purge_of_the_whole_log_is_up_to_date_soon(
    play: Play,
) -> None:
    """No later entry comes that could reveal that one before it is missing."""

    async def script(fleet: Fleet, engine: Engine) -> None:
        _, standby = await purged(fleet, engine)
        fleet.kill(standby, GONE)
        fleet.start(standby)
        await until(lambda: is_ready(standby, engine))
        assert fleet.ledger.rebuilt == 1

    play(script)


def test_a_standby_notices_that_all_that_it_lacks_was_purged_meanwhile(
    play: Play,
) -> None:
    async def script(fleet: Fleet, engine: Engine) -> None:
        owner, _ = await owned(fleet)
        late = next(each for each in fleet.machines if each is not owner)
        await until(lambda: is_ready(late, engine))
        late.place.stall("down")
        await purged(fleet, engine)
        # Its consumer was asked for messages, but has no more to deliver.
        for wire in late.place.wires:
            wire.down._held.clear()
        late.place.go_on()
        await until(lambda: is_ready(late, engine))

    play(script)


def test_a_node_does_not_end_if_the_engine_is_silent_while_it_reads_a_snapshot(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Engine._request

    def interrupted(
        engine: Engine, session: Session, method: str, reply: bytes, payload: bytes
    ) -> None:
        request(engine, session, method, reply, payload)
        if method == f"STREAM.MSG.GET.{NAMES.snapshots}" and not silences:
            silences.append(method)
            engine.troubles.outage = "silent"
            engine.network.at(4, engine.troubles.end)

    silences: list[str] = []

    async def script(fleet: Fleet, engine: Engine) -> None:
        _, standby = await purged(fleet, engine)
        fleet.kill(standby, GONE)
        fleet.start(standby)
        life = standby.life
        monkeypatch.setattr(Engine, "_request", interrupted)
        await until(lambda: is_ready(standby, engine))
        assert silences
        assert standby.life is life

    play(script)


def test_a_node_does_not_end_if_its_connection_ends_while_it_asks_for_its_double(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = Engine.tell

    def cut(standby: Machine, engine: Engine, subject: bytes, reply: bytes, payload: bytes) -> bool:
        if subject == NAMES.node(standby.name):
            monkeypatch.setattr(Engine, "tell", tell)
            standby.place.drop()
            return True
        return tell(engine, subject, reply, payload)

    async def script(fleet: Fleet, engine: Engine) -> None:
        _, standby = await purged(fleet, engine)
        fleet.kill(standby, GONE)
        monkeypatch.setattr(Engine, "tell", lambda *args: partial(cut, standby)(*args))
        fleet.start(standby)
        life = standby.life
        await until(lambda: is_ready(standby, engine))
        assert Engine.tell is tell
        assert standby.life is life

    play(script)


def test_deliveries_of_a_killed_owner_stay_doubtful_after_an_orderly_end(
    play: Play,
) -> None:
    """An owner that ends in order cannot know what its predecessor had delivered."""

    async def script(fleet: Fleet, engine: Engine) -> None:
        await purged(fleet, engine)
        owner, term = await owned(fleet)
        taken = Request(takes=2)
        owner.place.stall("up")  # the marks of these deliveries do not reach the log
        term.submit(taken)
        await taken.answered.wait()
        assert len(taken.taken) == 2
        fleet.kill(owner, GONE)
        owner.place.go_on()
        second, _ = await owned(fleet, owner)
        second.is_wanted = False
        assert second.life is not None
        second.life.handle.stop()
        _, term = await owned(fleet, second)
        again = Request(takes=2)
        term.submit(again)
        await again.answered.wait()
        assert again.taken == taken.taken  # the ledger checks that they are marked
        second.is_wanted = True

    play(script)


def test_a_former_owner_that_still_waits_for_an_answer_leaves_the_lease_to_others(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = Engine._publish_to

    async def script(fleet: Fleet, engine: Engine) -> None:
        owner, term = await owned(fleet)
        await until(lambda: all(is_ready(each, engine) for each in fleet.machines))
        writer = term.store._writer.to_bytes(8, "little")

        def lose(engine: Engine, *where: object, payload: bytes) -> None:
            if writer not in payload:
                publish(engine, *where, payload=payload)  # type: ignore[arg-type]

        monkeypatch.setattr(Engine, "_publish_to", lose)
        request = Request([b"m"])
        fleet.ledger.sent.update(request.bodies)
        term.submit(request)
        await trio.sleep(TTL_S)
        owner.place.stall("up")
        second, _ = await owned(fleet, owner)
        owner.place.go_on()
        await trio.sleep(0.1)
        killed_at = trio.current_time()
        fleet.kill(second, GONE)
        (third,) = (each for each in fleet.machines if each not in (owner, second))
        await until(lambda: third.life is not None and third.life.term is not None)
        assert trio.current_time() < killed_at + TTL_S + TAKEOVER_S
        fleet.start(second)

    play(script)


def role(machine: Machine) -> str:
    """Return what a node is, as it says."""
    node = machine.life.nodes.get(0) if machine.life is not None else None
    return node.role if node is not None else ""


def by_role(fleet: Fleet, name: str) -> list[Machine]:
    return [each for each in fleet.machines if role(each) == name]


def are(fleet: Fleet, *roles: str) -> bool:
    """Return whether nodes have these roles, in any order."""
    return sorted(map(role, fleet.machines)) == sorted(roles)


def test_a_watcher_takes_over_with_all_messages_when_owner_and_follower_are_dead(
    play: Play,
) -> None:
    async def script(fleet: Fleet, engine: Engine) -> None:
        owner, _ = await purged(fleet, engine)
        await until(lambda: are(fleet, "owner", "standby", "watching", "watching"))
        (follower,) = by_role(fleet, "standby")
        watchers = by_role(fleet, "watching")
        assert not any(each.life.nodes[0].local._is_open for each in watchers if each.life)
        for each in (follower, owner):
            each.is_wanted = False
            fleet.kill(each, GONE)
        third, term = await owned(fleet, owner)
        assert third in watchers
        taken = Request(takes=8)
        term.submit(taken)
        await taken.answered.wait()
        assert len(taken.taken) == 8
        for each in (follower, owner):
            each.is_wanted = True
            fleet.start(each)

    play(script, 4, 1)


def test_a_node_that_follows_has_precedence_though_it_still_reads(play: Play) -> None:
    async def script(fleet: Fleet, _engine: Engine) -> None:
        owner, _ = await owned(fleet)
        await until(lambda: are(fleet, "owner", "standby", "watching", "watching"))
        (follower,) = by_role(fleet, "standby")
        fleet.kill(follower, KEPT)
        follower.journal_s = 6.0
        fleet.start(follower)
        await until(lambda: role(follower) == "reading")
        owner.is_wanted = False
        fleet.kill(owner, KEPT)
        second, _ = await owned(fleet, owner)
        assert second is follower
        owner.is_wanted = True
        fleet.start(owner)

    play(script, 4, 1)


def test_a_lost_follower_is_replaced_and_another_follows_before_it_stops(play: Play) -> None:
    async def script(fleet: Fleet, _engine: Engine) -> None:
        await owned(fleet)
        await until(lambda: are(fleet, "owner", "standby", "watching", "watching"))
        (follower,) = by_role(fleet, "standby")
        others = by_role(fleet, "watching")
        for each in others:
            each.journal_s = 3.0
        follower.is_wanted = False
        fleet.kill(follower, KEPT)
        await until(lambda: len(by_role(fleet, "standby")) == 1)
        (deputy,) = by_role(fleet, "standby")
        assert deputy in others
        follower.is_wanted, follower.journal_s = True, 3.0
        fleet.start(follower)  # it is first in the partition's order again
        await until(lambda: role(follower) == "reading")
        while role(follower) == "reading":
            assert role(deputy) == "standby"
            await trio.sleep(0.05)
        await until(lambda: role(deputy) == "watching")

    play(script, 4, 1)


def test_a_hand_over_to_a_watcher_waits_until_it_has_the_state(play: Play) -> None:
    async def script(fleet: Fleet, engine: Engine) -> None:
        owner, _ = await purged(fleet, engine)
        await until(lambda: are(fleet, "owner", "standby", "watching", "watching"))
        heir, *_ = by_role(fleet, "watching")
        heir.journal_s = 3.0
        order = b'{"do": "move", "to": "%b"}' % heir.name.encode()
        engine.tell(NAMES.node(owner.name), b"", order)
        await until(lambda: role(heir) == "reading")
        while role(heir) == "reading":
            assert role(owner) == "owner"
            await trio.sleep(0.05)
        second, _ = await owned(fleet, owner)
        assert second is heir

    play(script, 4, 1)
