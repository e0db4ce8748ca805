"""``option``: an operator's setting, declared beside the code that uses it.

Each floor has its own frozen groups of options. ``config`` composes them, and derives the command
line from the help texts, units and choices here, so that nothing is written twice.
"""

from collections.abc import Callable
from typing import TypeVar

import attrs

T = TypeVar("T")

HELP = "help"
CHOICES = "choices"
MINIMUM = "minimum"
LIVE = "live"
MAX_INTEGER = 2**63 - 1
"""The largest number that configuration files and records can hold."""


def option(
    default: T,
    help: str,
    *,
    minimum: float | None = None,
    maximum: float = MAX_INTEGER,
    choices: tuple[str, ...] = (),
    live: bool = False,
) -> T:
    """Declare an attrs field that an operator may set.

    Args:
      default: The default value, whose type is the option's type.
      help: One sentence for ``--help``; the name has the unit (``_bytes``, ``_s``, ``_ms``).
      minimum: The minimum of a number.
      maximum: The maximum of a number.
      choices: The allowed words; () = any text.
      live: Whether it can be changed while the broker runs. This requires that all code reads it
        from the shared group each time, and keeps no copy (``config.adopt``).
    """
    checks: list[Callable[..., None]] = []
    if isinstance(default, int | float):
        checks.append(_within(-maximum if minimum is None else minimum, maximum))
    if choices:
        checks.append(_one_of(choices))
    metadata = {HELP: help, CHOICES: choices, MINIMUM: minimum, LIVE: live}
    field: T = attrs.field(default=default, validator=checks, metadata=metadata)
    return field


def _within(minimum: float, maximum: float) -> Callable[..., None]:
    def check(_: object, field: "attrs.Attribute[float]", value: float) -> None:
        if value < minimum:
            raise ValueError(f"{field.name} is {value}, but must be {minimum} or more")
        if value > maximum:
            raise ValueError(f"{field.name} is {value}, but must be {maximum} or less")

    return check


def _one_of(choices: tuple[str, ...]) -> Callable[..., None]:
    def check(_: object, field: "attrs.Attribute[str]", value: str) -> None:
        if value not in choices:
            raise ValueError(f"{field.name} is {value!r}, but must be one of {', '.join(choices)}")

    return check
