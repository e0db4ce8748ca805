"""Users with changing rights: helpers for tests of owners and of what remains of removed users."""

from typing import Any

from tests.support.core import Actor
from tests.support.durable_fakes import DurableBench
from trio_stomp.base import Identity
from trio_stomp.broker import AccessRules
from trio_stomp.broker.rules import Action, Rule

Q, T = "/queue/q", "/topic/t"
ALICE = Identity("alice", method="passcode")
BOB = Identity("bob", method="passcode")
OPS = Identity("carol", frozenset({"ops", "staff"}), method="token")
ANYTHING = frozenset(Action)
LATER: dict[str, Any] = {"AMQ_SCHEDULED_DELAY": "5000"}


def rules(*users: str, groups: frozenset[str] = frozenset()) -> AccessRules:
    """Return rules that allow everything to named users, and nothing to others."""
    if not users and not groups:
        return AccessRules()
    return AccessRules((Rule(True, ANYTHING, ("**",), users, groups, location="r1"),))


def everybody(_: Identity) -> bool:
    return True


def judged(core: DurableBench, by: AccessRules | None) -> None:
    """The operator's rules change."""
    core.broker.use_rules(by, everybody, core.now)
    core.turn()


def enters(core: DurableBench, who: Identity) -> Actor:
    actor = core.actor()
    actor.client.identity, actor.client.user = who, who.name
    core.broker.authorizer.admit(actor.client)
    return actor


def reads_all(core: DurableBench) -> Actor:
    actor = core.actor()
    actor.client.rights = None
    return actor


def got(core: DurableBench, name: str) -> list[str]:
    """Return the bodies that a new subscriber with all rights receives."""
    reader = reads_all(core)
    reader.subscribes(name)
    core.turn()
    bodies = reader.bodies()
    reader.unsubscribes()
    core.turn()
    return bodies


def is_clean(core: DurableBench) -> None:
    core.turn()
    assert core.store.statistics().live_messages == 0
    assert core.memory.kept_bytes == core.broker.scheduler.waiting == 0
