"""``option``: one operator's setting, declared beside the code that it bounds.

Each floor keeps its own frozen group of options. ``config`` composes the groups and derives
the command line from the help text, unit and choices given here, so that nothing about an
option is written twice.
"""

from collections.abc import Callable
from typing import TypeVar

import attrs

T = TypeVar("T")

HELP = "help"
CHOICES = "choices"
MINIMUM = "minimum"
LIVE = "live"


def option(
    default: T,
    help: str,
    *,
    minimum: float | None = None,
    choices: tuple[str, ...] = (),
    live: bool = False,
) -> T:
    """Declare an attrs field that an operator may set.

    Args:
      default: The value in force when nobody says otherwise; its type is the option's type.
      help: One sentence for ``--help``; the unit stands in the name (``_bytes``, ``_s``, ``_ms``).
      minimum: The smallest number allowed, itself included.
      choices: The words allowed, for an option that is a word.
      live: Whether it can be changed while the broker runs. Only where every reader asks the
        shared group for it whenever it matters, and keeps no copy (``config.adopt``).
    """
    checks: list[Callable[..., None]] = []
    if minimum is not None:
        checks.append(_at_least(minimum))
    if choices:
        checks.append(_one_of(choices))
    metadata = {HELP: help, CHOICES: choices, MINIMUM: minimum, LIVE: live}
    field: T = attrs.field(default=default, validator=checks, metadata=metadata)
    return field


def _at_least(minimum: float) -> Callable[..., None]:
    def check(_: object, field: "attrs.Attribute[float]", value: float) -> None:
        if value < minimum:
            raise ValueError(f"{field.name} is {value}, but must be {minimum} or more")

    return check


def _one_of(choices: tuple[str, ...]) -> Callable[..., None]:
    def check(_: object, field: "attrs.Attribute[str]", value: str) -> None:
        if value not in choices:
            raise ValueError(f"{field.name} is {value!r}, but must be one of {', '.join(choices)}")

    return check
