"""Users who log in to a core: shared helpers of the tests of quotas."""

from tests.support.core import VERSIONS, Actor, Bench
from trio_stomp.base import ANONYMOUS, Identity
from trio_stomp.broker import AccessRules
from trio_stomp.broker.rules import Action, Rule
from trio_stomp.protocol import NO_HEARTBEATS, Opened

KIB = 1024
MIB = 1024 * KIB
ALL = AccessRules((Rule(True, frozenset(Action), ("**",), ("*", "anonymous")),))
"""Rules that allow everything to all logged-in users."""


def user(core: Bench, name: str, **reported: str) -> Actor:
    """Return a logged-in client."""
    actor = core.actor()
    identity = Identity(name, method="passcode") if name else ANONYMOUS
    headers = tuple((key.replace("_", "-"), text) for key, text in reported.items())
    actor.does(Opened(VERSIONS["1.2"], NO_HEARTBEATS, headers, identity))
    actor.outbox.staged.clear()
    return actor
