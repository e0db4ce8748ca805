"""Random scenarios: policies, steps, and what happens to the broker between phases."""

from dataclasses import dataclass, field, replace
from random import Random

from _combinations.policy import Policy, draw
from _combinations.scene import Step

QUEUES = "abc"
LINKS = 3
WAIT, STOP, KILL, RELOAD = "wait", "stop", "kill", "reload"


@dataclass
class Plan:
    """A scenario: policies by name, and phases of steps. Between two phases is an event."""

    number: int
    policies: dict[str, Policy]
    phases: list[list[Step]]
    later: dict[str, Policy] = field(default_factory=dict)
    """The policies from the reload on."""


def events(dice: Random) -> list[str]:
    """Return what happens to the broker between the phases of its scenarios."""
    return [*dice.choices((WAIT, STOP, KILL), (4, 3, 3), k=dice.randint(1, 3)), WAIT]


def plan(dice: Random, number: int, phases: int) -> Plan:
    """Return a random scenario."""
    names = [f"/queue/s{number}.{letter}" for letter in QUEUES]
    topic = f"/topic/s{number}"
    policies: dict[str, Policy] = {}
    expiring = dice.choice((0.1, 0.1, 0.9))
    for place, name in enumerate(names):
        policies[name] = draw(dice, names[place + 1 :], expiring=expiring)
    for policy_name, policy in list(policies.items()):
        target = policies.get(policy.dead_letter)
        if policy.dead_letter_expired and target is not None and target.max_messages:
            policies[policy_name] = replace(policy, dead_letter="")
    drawn = draw(dice, [], expiring=0)
    policies[topic] = replace(drawn, ttl_ms=0, max_messages=0, overflow="reject", exclusive=False)
    features = {name: dice.random() < share for name, share in SHARES.items()}
    if features["group"]:  # a dead letter in memory has no group until it is read from the store
        policies = {name: replace(each, dead_letter="") for name, each in policies.items()}
    steps = [[step(dice, features) for _ in range(dice.randint(4, 16))] for _ in range(phases)]
    return Plan(number, policies, steps)


SHARES = {
    "ttl": 0.4,
    "group": 0.4,
    "sort": 0.6,
    "priority": 0.5,
    "id": 0.25,
    "delay": 0.2,
    "level": 0.25,
    "exclusive": 0.15,
    "topic": 0.4,
    "manage": 0.4,
    "composite": 0.25,
}
"""How many scenarios have a feature."""
DEEP = dict.fromkeys(SHARES, False) | {"sort": True, "priority": True, "group": True}


def deep_plan(dice: Random, number: int, phases: int) -> Plan:
    """Return a scenario with queues of so many messages that some stay in the store."""
    drawn = plan(dice, number, phases)
    drawn.policies = {
        name: replace(
            each,
            max_messages=0,
            overflow="reject",
            ttl_ms=0,
            persistent="header",
            max_redeliveries=99,
        )
        for name, each in drawn.policies.items()
    }
    for steps in drawn.phases:
        flood = Step("flood", dice.randrange(LINKS), dice.randrange(3), dice.choice((1200, 1600)))
        level = dice.choice(("", "", "", "9"))
        flood = replace(flood, sort="a", group="g", priority=level, id=f"{dice.random()}")
        own = [replace(step(dice, DEEP), to=flood.to) for _ in range(14)]
        # A walk through a queue misses stored messages behind others in memory.
        own = [each for each in own if each.verb not in ("browse", "manage")]
        # Dead letters of messages that are stored only to save memory are durable.
        own = [replace(each, how="nack") if each.how == "reject" else each for each in own]
        works = [Step("work", pick=dice.randrange(12), count=4) for _ in range(8)]
        steps[:] = [*own[:4], flood, *dice.sample(own[4:] + works, 12)]
    return drawn


def message(dice: Random, has: dict[str, bool]) -> Step:
    """Return a SEND."""

    def some(feature: str, share: float, values: tuple[str, ...]) -> str:
        return dice.choice(values) if has[feature] and dice.random() < share else ""

    to = dice.randrange(3)
    to = 3 if has["composite"] and dice.random() < 0.2 else to
    to = 4 if has["topic"] and dice.random() < 0.4 else to
    return Step(
        "send",
        dice.randrange(LINKS),
        to,
        dice.choice((1, 1, 1, 2, 5)),
        dice.random() < 0.6,
        some("priority", 0.6, ("0", "4", "9")),
        some("sort", 0.8, ("a", "b")),
        some("group", 0.6, ("g", "h")),
        some("ttl", 0.4, ("300", "300", "600000")),
        some("id", 0.5, ("i", "j", "k")),
        some("delay", 0.4, ("200", "600")),
    )


def step(dice: Random, has: dict[str, bool]) -> Step:
    """Return a random step."""
    verbs = ("send", "subscribe", "settle", "unsubscribe", "leave", "commit", "browse", "manage")
    weights = (10, 4, 8, 1, 1, 2, 1, 2 if has["manage"] else 0)
    verb = dice.choices(verbs, weights)[0]
    link, pick = dice.randrange(LINKS), dice.randrange(12)
    pick |= has["group"]  # no consumer of dead letters
    if verb == "send":
        return message(dice, has)
    if verb == "subscribe":
        to = dice.choice((0, 1, 2, 0, 1, 2, 3, 4 if has["topic"] else 0))
        return Step(
            verb,
            link,
            to,
            sort=dice.choice(("a", "b", "")) if has["sort"] else "",
            ack=dice.choice(("auto", "client", "client-individual", "client-individual")),
            prefetch=dice.choice((1, 1, 2, 5, 100)),
            level=dice.choice((0, 1)) if has["level"] else 0,
            exclusive=has["exclusive"] and dice.random() < 0.5,
            pick=pick,
        )
    if verb == "commit":
        inner = tuple(replace(message(dice, has), count=1) for _ in range(dice.randrange(3)))
        how, is_abort = dice.choice(("ack", "ack", "nack")), dice.random() < 0.25
        return Step(
            verb, link, count=dice.randrange(3), pick=pick, how=how, inner=inner, exclusive=is_abort
        )
    if verb == "manage":
        how = dice.choice(("purge", "move", "move", "redeliver", "pause", "resume", "resume"))
        return Step(verb, link, dice.randrange(3), how=how, pick=pick)
    hows = {
        "settle": ("ack", "ack", "ack", "nack", "nack", "reject"),
        "leave": ("disconnect", "drop", "error"),
    }
    how = dice.choice(hows.get(verb, ("",)))
    sort = dice.choice(("", "a")) if has["sort"] else ""
    return Step(verb, link, dice.randrange(3), dice.randrange(4), sort=sort, pick=pick, how=how)
