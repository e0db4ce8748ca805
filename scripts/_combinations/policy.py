"""Policies of the queues of a scenario, in the model and as the broker's settings."""

from dataclasses import asdict, dataclass, fields
from random import Random

BACKOFF_S = (0.0, 0.3)
DROPS_OLD = ("drop-oldest", "dead-letter")
SHORT_MS, LONG_MS = 300, 600_000
"""Lifetimes that end during a scenario, and those that do not."""


@dataclass(frozen=True)
class Policy:
    """The fields of a policy that the model knows, with the broker's defaults."""

    ttl_ms: int = 0
    max_messages: int = 0
    overflow: str = "reject"
    max_redeliveries: int = 4
    backoff_s: tuple[float, ...] = BACKOFF_S
    dead_letter: str = ""
    dead_letter_expired: bool = False
    priority: bool = True
    exclusive: bool = False
    persistent: str = "header"
    dedup_window: int = 10_000

    def delay_s(self, failures: int) -> float:
        """Return the delay after a number of failures."""
        return self.backoff_s[min(failures, len(self.backoff_s)) - 1]

    def stores(self, *, is_persistent: bool) -> bool:
        """Return whether a message is durable, if there is a store."""
        return self.persistent == "always" or (self.persistent == "header" and is_persistent)


DEAD = Policy(backoff_s=(0.0, 1.0, 2.0, 4.0))
"""That of a dead-letter queue, which no pattern of ours reaches."""


def draw(dice: Random, later: list[str], *, expiring: float) -> Policy:
    """Return a random policy.

    Args:
      later: Queues that its dead letters may go to, beside the default queue.
      expiring: How probable it is that messages expire.
    """
    limited = dice.random() < 0.45
    expires = dice.random() < expiring
    overflows = ("reject", "drop-oldest", "drop-oldest", "drop-newest", "dead-letter", "block")
    return Policy(
        ttl_ms=dice.choice((SHORT_MS, SHORT_MS, LONG_MS)) if expires else 0,
        max_messages=dice.randint(2, 5) if limited else 0,
        overflow=dice.choice(overflows) if limited else "reject",
        max_redeliveries=dice.choice((0, 1, 1, 2, 4)),
        backoff_s=dice.choice((BACKOFF_S, BACKOFF_S, (0.0,), (0.3,), (0.0, 0.0, 0.8))),
        dead_letter=dice.choice(later) if later and dice.random() < 0.4 else "",
        dead_letter_expired=dice.random() < max(0.5, expiring),
        priority=dice.random() < 0.85,
        exclusive=dice.random() < 0.07,
        persistent=dice.choice(("header", "header", "header", "always", "never")),
        dedup_window=dice.choice((10_000, 2)),
    )


def as_toml(policies: dict[str, Policy]) -> str:
    """Return the settings of queues."""
    lines: list[str] = []
    for name, policy in policies.items():
        lines.append(f'[destinations."{name}"]')
        for each in fields(policy):
            value = asdict(policy)[each.name]
            text = f'"{value}"' if isinstance(value, str) else str(value).lower()
            text = str(list(value)) if isinstance(value, tuple) else text
            lines.append(f"{each.name} = {text}")
    return "\n".join(lines) + "\n"
