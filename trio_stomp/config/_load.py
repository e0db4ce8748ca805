"""Building ``Settings`` from flat names and values, with errors that name the remedy.

An option is declared once, in the group of its floor. This module reads the declarations from
attrs, so a new option appears on the command line without a change here.
"""

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from trio_stomp.base import CHOICES, HELP, LIVE, MINIMUM, OptionError
from trio_stomp.config._settings import Settings

KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
MAX_SHOWN = 200
"""Maximum number of characters of a bad value in an error."""
TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@attrs.frozen
class OptionSpec:
    """An option, as described for the command line and the documentation."""

    group: str
    name: str
    type: type
    default: object
    help: str
    choices: tuple[str, ...]
    minimum: float | None
    live: bool = False

    @property
    def flag(self) -> str:
        """The option's name on the command line."""
        return "--" + self.name.replace("_", "-")


def groups() -> dict[str, type]:
    """Return the option class of each group in ``Settings``, in order."""
    found: dict[str, type] = {}
    for field in attrs.fields(Settings):
        # A group has a Factory as its default; policies by destination and rules are no groups.
        factory: Any = field.default
        if hasattr(factory, "factory"):
            found[field.name] = factory.factory
    return found


def options() -> tuple[OptionSpec, ...]:
    """Return all options of all groups, in the order of declaration."""
    return tuple(
        _spec(group, field) for group, kind in groups().items() for field in attrs.fields(kind)
    )


def _spec(group: str, field: "attrs.Attribute[Any]") -> OptionSpec:
    return OptionSpec(
        group=group,
        name=field.name,
        type=type(field.default),
        default=field.default,
        help=field.metadata[HELP],
        choices=field.metadata[CHOICES],
        minimum=field.metadata[MINIMUM],
        live=field.metadata[LIVE],
    )


NOWHERE: Mapping[str, str] = MappingProxyType({})


def build(values: Mapping[str, object], locations: Mapping[str, str] = NOWHERE) -> Settings:
    """Build settings from flat names, as in ``{"ttl_ms": 5000, "port": 0}``.

    Args:
      values: Options of any group, by name; missing ones keep their defaults.
      locations: Their positions by name, as in ``{"port": "/etc/x.toml:3"}``, with which an error
        begins.

    Raises:
      OptionError: a name is unknown, or a value has the wrong type or range.
    """
    specs = {spec.name: spec for spec in options()}
    chosen: dict[str, dict[str, object]] = {group: {} for group in groups()}
    for name, value in values.items():
        if name not in specs:
            raise OptionError(f"unknown option {name!r}{hint(name, specs)}")
        chosen[specs[name].group][name] = checked(specs[name], value)
    made: dict[str, Any] = {}
    for group, kind in groups().items():
        try:
            made[group] = kind(**chosen[group])
        except ValueError as error:
            raise OptionError(
                f"{_location_of(str(error), chosen[group], locations)}{error}"
            ) from None
    return Settings(**made)


def _location_of(message: str, chosen: Iterable[str], locations: Mapping[str, str]) -> str:
    """Return the position of the first option named in an error, or ""."""
    words = re.findall(r"\w+", message)
    at = [
        (words.index(name), locations[name])
        for name in chosen
        if name in words and name in locations
    ]
    return f"{min(at)[1]}: " if at else ""


def from_text(spec: OptionSpec, text: str) -> object:
    """Parse the value of an option.

    Raises:
      OptionError: the text is not a value of the option's type.
    """
    if spec.type is bool:
        if text.lower() not in TRUTHS:
            raise _wrong_kind(spec, text)
        return TRUTHS[text.lower()]
    try:
        value: object = spec.type(text)
    except ValueError:
        raise _wrong_kind(spec, text) from None
    return value


def hint(name: str, names: Iterable[str]) -> str:
    """Return the text ``did you mean ...?`` for the nearest known name, or an empty string."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def checked(spec: OptionSpec, value: object) -> object:
    """Return ``value`` in the type of the option. Its group checks ranges.

    Raises:
      OptionError: it has another type.
    """
    if spec.type is float and type(value) is int:
        return float(value)
    # Not isinstance: True is an int in Python, but a mistake in settings.
    if type(value) is not spec.type:
        raise _wrong_kind(spec, value)
    # NaN passes every minimum, and an infinite time-out protects from nothing.
    if isinstance(value, float) and not math.isfinite(value):
        raise OptionError(f"{spec.name} is {value}, but must be a finite number")
    return value


def _wrong_kind(spec: OptionSpec, value: object) -> OptionError:
    shown = repr(value)
    if len(shown) > MAX_SHOWN:
        shown = f"{shown[:MAX_SHOWN]}…"
    return OptionError(f"{spec.name} is {shown}, but must be {KINDS[spec.type]}")
