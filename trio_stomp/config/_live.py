"""The differences between two settings, and the way to apply some of them to a running broker.

The parts of a broker keep the group of options that they were given, and ask it whenever they need
a value. So a live option is changed in that one object, by ``adopt``, and nowhere else.
"""

from collections.abc import Iterator
from typing import Any

import attrs
from attrs import evolve, frozen

from trio_stomp.base import OptionError
from trio_stomp.broker import DestinationPolicy, PolicyBook
from trio_stomp.config._load import OptionSpec, groups, options
from trio_stomp.config._settings import Settings
from trio_stomp.config._sources import shown

DESTINATIONS = "destinations"
RULES = "rules"


@frozen
class Change:
    """One thing in which two settings differ.

    Args:
      group: The table that it stands in.
      name: The option; for policies the pattern of destinations, or "" for their order; for rules
        "".
      before: What it was, fit to be logged; "" = it was not there.
      after: What it shall be.
      is_live: Whether that can be while the broker runs; else after its next start.
    """

    group: str
    name: str
    before: str
    after: str
    is_live: bool

    def __str__(self) -> str:
        where = f"[{self.group}]"
        if self.group == DESTINATIONS and self.name:
            where = f"[destinations.{shown(self.name)}]"
        elif self.name:
            where = f"{where} {self.name}"
        if not self.before or not self.after:
            return f"{where}: new: {self.after}" if self.after else f"{where}: gone: {self.before}"
        return f"{where}: {self.before} -> {self.after}"


def changes(old: Settings, new: Settings) -> tuple[Change, ...]:
    """Return the differences, in the order of the settings."""
    return (*_options(old, new), *_policies(old, new), *_rules(old, new))


def _options(old: Settings, new: Settings) -> Iterator[Change]:
    for spec in options():
        before, after = (getattr(getattr(each, spec.group), spec.name) for each in (old, new))
        if before != after:
            yield Change(spec.group, spec.name, shown(before), shown(after), spec.live)


def _policies(old: Settings, new: Settings) -> Iterator[Change]:
    before, after = dict(old.destinations), dict(new.destinations)
    for pattern in dict.fromkeys([*before, *after]):
        policies = before.get(pattern), after.get(pattern)
        if policies[0] != policies[1]:
            was, shall = map(_fields, policies)
            yield Change(DESTINATIONS, pattern, was, shall, True)
    kept = [[each for each in side if each in before and each in after] for side in (before, after)]
    if kept[0] != kept[1]:
        was, shall = (", ".join(map(shown, side)) for side in kept)
        yield Change(DESTINATIONS, "", was, shall, True)


def _fields(policy: DestinationPolicy | None) -> str:
    """Return the fields of a policy that differ from the defaults, or "" without a policy."""
    if policy is None:
        return ""
    told = [
        f"{each.name} = {shown(value)}"
        for each in attrs.fields(DestinationPolicy)
        if (value := getattr(policy, each.name)) != each.default
    ]
    return ", ".join(told) or "the defaults"


def _rules(old: Settings, new: Settings) -> Iterator[Change]:
    if _without_places(old) != _without_places(new):
        yield Change(RULES, "", _counted(old), _counted(new), True)


def _without_places(settings: Settings) -> object:
    """Return the rules, wherever in a file they stand."""
    rules = settings.rules
    if rules is None:
        return None
    return [evolve(each, place="") for each in rules.rules], rules.groups, rules.certificates


def _counted(settings: Settings) -> str:
    rules = settings.rules
    if rules is None:
        return "none"
    counts = f"{len(rules.rules)} rules, {len(rules.groups)} groups"
    return f"{counts}, {len(rules.certificates)} certificates"


def own(settings: Settings) -> Settings:
    """Return a copy of the settings that shares no group with them.

    ``adopt`` changes the groups of options in place. A broker that is given settings makes them
    its own first, so that its caller's stay what they are.
    """
    return evolve(settings, **{group: evolve(getattr(settings, group)) for group in groups()})


def adopt(settings: Settings, new: Settings) -> tuple[Change, ...]:
    """Change the live part of the settings that a running broker has, in place.

    This, with ``put``, is the one place where a frozen group of options changes. To be called
    between two turns of the dispatcher, or in one, by the task that owns the broker; nothing here
    waits.

    Args:
      settings: Those that the broker was made with, after ``own``.
      new: What they shall be. What is not live in it is left alone.

    Returns: All that differed, the rest included (``is_live`` tells which).

    Raises:
      OptionError: the operator's fault: what is live goes with what is not, and that cannot be
        changed; nothing has been.
    """
    told = changes(settings, new)
    put(settings, new)
    return told


def put(settings: Settings, new: Settings) -> None:
    """Apply the live part of new settings, as ``adopt`` does, but without comparing them.

    Raises:
      OptionError: as ``adopt``.
    """
    live: dict[str, dict[str, Any]] = {}
    for spec in options():
        if spec.live:
            live.setdefault(spec.group, {})[spec.name] = _value(new, spec)
    _check(settings, live)
    for group, values in live.items():
        for name, value in values.items():
            object.__setattr__(getattr(settings, group), name, value)
    object.__setattr__(settings, DESTINATIONS, new.destinations)
    object.__setattr__(settings, RULES, new.rules)


def _value(settings: Settings, spec: OptionSpec) -> object:
    return getattr(getattr(settings, spec.group), spec.name)


def _check(settings: Settings, live: dict[str, dict[str, Any]]) -> None:
    for group, values in live.items():
        try:
            evolve(getattr(settings, group), **values)
        except ValueError as error:
            raise OptionError(
                f"[{group}] {error}; that requires a restart of the broker, and this change "
                "cannot be made before"
            ) from None


def policy_book(settings: Settings) -> PolicyBook:
    """Return the policies by destination of some settings, and what holds where there is none.

    Raises:
      OptionError: a pattern that is none, or is there twice.
    """
    default = DestinationPolicy(
        max_redeliveries=settings.broker.max_redeliveries,
        ack_timeout_ms=settings.broker.ack_timeout_ms,
    )
    return PolicyBook(settings.destinations, default)
