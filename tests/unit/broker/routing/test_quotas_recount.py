"""Every charge to a quota is released: charges always equal the existing state (F9)."""

import random
from collections import Counter
from typing import Any

import pytest
from attrs import define

from tests.support.core import Actor, Bench, run_of
from tests.support.durable_fakes import DurableBench
from tests.support.quota_fakes import ALL, KIB, MIB, user
from trio_stomp.base import MemoryBudget, Quota
from trio_stomp.broker import BrokerPolicies, DestinationPolicy
from trio_stomp.broker.queues import Consumer, cost_alone
from trio_stomp.broker.routing import JOIN_BYTES, id_cost
from trio_stomp.broker.topics import Binding
from trio_stomp.protocol import Subscribed, Unsubscribed


def recounted(core: Bench) -> dict[Quota, tuple[int, int, int, int]]:
    """Return the correct charge of each quota, computed from the existing state."""
    broker = core.broker
    kept: Counter[Quota | None] = Counter()
    tables: Counter[Quota | None] = Counter()
    names: Counter[Quota | None] = Counter()
    later: Counter[Quota | None] = Counter()
    bindings = list(broker.bindings.durables)
    exact = [
        each
        for destination in broker.destinations
        for each in destination.exact
        if isinstance(each, Binding)
    ]
    joined = [*broker.bindings.durables, *exact]
    queues = set(broker.queues) | {each.queue for each in joined}
    heads, selectors = set(), set()
    for queue in queues:
        unacked = [
            each
            for consumer in queue.consumers
            for each in consumer.unacked.values()
            if each.source is queue
        ]
        for message in queue.waiting.in_order() + unacked:
            kept[message.publication.quota] += len(message.body) + 256
            heads.add(message.publication.head)
        for group, consumer in queue.groups.owners.items():
            tables[consumer.subscription.quota] += id_cost(group)
    for head in heads:
        kept[head.payer] += head.cost
    for destination in broker.destinations:
        names[destination.quota] += 1
        tables[destination.quota] += destination.cost
        for name, known in destination.seen.items():
            tables[known.quota] += id_cost(name)
        if destination.retained is not None:
            last = destination.retained
            kept[last.quota] += cost_alone(last.head, 1, len(last.bodies[-1]))
    for parked in broker.stale._parked.values():
        kept[parked.quota] += parked.overhead
        behind = parked.receiver._state.data if parked.receiver is not None else ()
        for run in [parked.first, *behind]:
            kept[run.publication.quota] += run.size
    for item in broker.scheduler.jobs.beginning_at(0):
        kept[item.quota] += item.cost
        later[item.quota] += len(item.bodies)
    for binding in bindings:
        tables[binding.quota] += binding.cost
        selectors.add(binding.selector)
    for subscription in broker.subscriptions._all:
        tables[subscription.quota] += subscription.cost
        selectors.add(subscription.selector)
        if isinstance(subscription.consumer, Consumer):
            tables[subscription.quota] += JOIN_BYTES * subscription.consumer.joined
    for selector in selectors - {None}:
        assert selector is not None
        tables[selector.payer] += selector.cost
    quotas = broker.quotas._quotas.values()
    return {each: (kept[each], tables[each], names[each], later[each]) for each in quotas}


def charged(core: Bench) -> dict[Quota, tuple[int, int, int, int]]:
    return {
        each: (each.kept_bytes, each.tables_bytes, each.destinations, each.scheduled)
        for each in core.broker.quotas._quotas.values()
    }


NAMES = ["/queue/a", "/queue/b", "/queue/old", "/queue/dead", "/topic/a", "/topic/b", "#work"]
AT_ONCE: dict[str, Any] = {"backoff_s": ()}
"""Returned messages wait in their queue, where they can be counted."""
POLICIES = {
    "/queue/old": DestinationPolicy(max_messages=3, overflow="drop-oldest", **AT_ONCE),
    "/queue/dead": DestinationPolicy(max_messages=3, overflow="dead-letter", **AT_ONCE),
    "/queue/b": DestinationPolicy(overflow="block", **AT_ONCE),
    "/queue/**": DestinationPolicy(**AT_ONCE),
    "/topic/**": DestinationPolicy(**AT_ONCE),
    "#work": DestinationPolicy(**AT_ONCE),
}
TOLD: list[dict[str, Any]] = [
    {},
    {"ttl": "500"},
    {"retain": "set"},
    {"retain": "remove"},
    {"AMQ_SCHEDULED_DELAY": "700"},
    {"AMQ_SCHEDULED_DELAY": "300", "AMQ_SCHEDULED_PERIOD": "300", "AMQ_SCHEDULED_REPEAT": "2"},
    {"persistent": "true"},
    {"persistent": "true", "retain": "set"},
    {"persistent": "true", "AMQ_SCHEDULED_DELAY": "700"},
    {"message_group": "g"},
    {"x-dedup-id": "1"},
]


@define(eq=False)
class Walk:
    """Users with random actions."""

    core: Bench
    random: random.Random
    users: list[Actor]
    number: int = 0

    def user(self) -> Actor:
        """Another one, or a connection of one that is there."""
        self.number += 1
        return user(self.core, self.random.choice("abc"), client_id=f"c{self.number % 4}")

    def step(self, actor: Actor) -> None:
        """Do one thing."""
        rng, name = self.random, self.random.choice(NAMES)
        key = name + rng.choice(["", "x"])
        match rng.randrange(12):
            case 0 | 1 | 2:
                bodies = ["b" * rng.randrange(2000) for _ in range(rng.randrange(1, 4))]
                actor.sends(name, *bodies, **rng.choice(TOLD))
            case 3:
                actor.sends(f"/queue/a,/topic/{rng.randrange(30)},{name}", **rng.choice(TOLD))
            case 4 | 5 if key not in actor.client.subscriptions:
                headers = [("selector", f"a = {rng.randrange(3)}")] * rng.randrange(2)
                if name.startswith("/topic") and rng.randrange(2):
                    headers.append(("durable-subscription-name", key))
                result = rng.choice([name, name, "/queue/>" if "queue" in name else name])
                mode = rng.choice(["auto", "client", "client-individual"])
                actor.does(Subscribed(key, result, mode, tuple(headers), None))
            case 6 if key in actor.client.subscriptions:
                durable = (("durable-subscription-name", key),) * rng.randrange(2)
                actor.does(Unsubscribed(key, None, None, durable))
            case 7 | 8:
                got = [each for each in actor.frames() if each.get("ack")]
                for each in got[: rng.randrange(1, 9)]:
                    (actor.acks if rng.randrange(3) else actor.nacks)(each)
            case 9:
                count = rng.choice([2, 3, 140])
                actor.commits(*[run_of(rng.choice(NAMES), ("m",)) for _ in range(count)])
            case 10:
                self.core.passes(rng.random())
            case 11 if rng.randrange(3) == 0:
                actor.is_gone()


def walk(core: Bench, seed: int) -> None:
    """Do anything, and see after each turn that the figures are right."""
    rng = random.Random(seed)
    moves = Walk(core, rng, [])
    moves.users = [moves.user() for _ in range(4)]
    for _ in range(150):
        place = rng.randrange(4)
        if moves.users[place].client.is_refused or moves.users[place].client.is_gone:
            moves.users[place] = moves.user()
        moves.step(moves.users[place])
        core.turn()
        core.broker.leaving.finish(core.now)
        core.turn()
        assert charged(core) == recounted(core)


def empties(core: Bench) -> None:
    """All go, and all that they left."""
    for actor in core.peers:
        actor.is_gone()
    for queue in list(core.broker.queues):
        core.broker.queues.end(queue.name, core.now)
    for _ in range(5):
        core.passes(1000)
    for binding in list(core.broker.bindings.durables):
        core.broker.bindings.end_durable(binding, core.now)
    for name, owner in list(core.broker.last_values.owners.items()):
        core.broker.last_values._end(core.broker.destinations.open(name), owner)
    core.ends()
    quotas = core.broker.quotas._quotas.values()
    assert {(each.kept_bytes, each.scheduled) for each in quotas} == {(0, 0)}
    while core.broker.destinations._forget_idle(lambda: False):
        pass
    assert all(each.is_unused for each in quotas)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("limit", [150 * KIB, 8 * MIB])
def test_charges_equal_the_existing_state(seed: int, limit: int) -> None:
    core = Bench(
        book=POLICIES,
        policies=BrokerPolicies(ttl_ms=[0, 900][seed % 2], max_destinations=40),
        memory=MemoryBudget(limit, 0.8),
    )
    core.broker.use_rules(ALL, lambda _: True, core.now)
    walk(core, seed)
    empties(core)


@pytest.mark.parametrize("seed", range(12))
def test_charges_equal_the_existing_state_with_a_store(seed: int) -> None:
    limits = BrokerPolicies(ttl_ms=[0, 900][seed % 2], max_destinations=40)
    core = DurableBench(book=POLICIES, policies=limits, memory=MemoryBudget(MIB, 0.8))
    core.broker.use_rules(ALL, lambda _: True, core.now)
    walk(core, seed)
    empties(core)
