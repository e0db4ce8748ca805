"""The differences between two settings, and applying them to a running broker.

The parts of a broker keep their group of options and read a value whenever they need it. So
``adopt`` changes a live option in that one object only.
"""

from collections.abc import Iterator
from typing import Any

import attrs
from attrs import evolve, frozen

from trio_stomp.base import OptionError
from trio_stomp.broker import AccessRules, DestinationPolicy, PolicyBook
from trio_stomp.config._load import OptionSpec, groups, options
from trio_stomp.config._settings import Settings
from trio_stomp.config._sources import shown, toml

DESTINATIONS = "destinations"
RULES = "rules"
SOURCES = "sources"


@frozen
class Change:
    """One difference between two settings.

    Args:
      group: The table of the settings file.
      name: The option; for policies the pattern of destinations, or "" for their order; for rules
        "".
      before: The old value for the log, without secrets; "" = it did not exist.
      after: The new value.
      is_live: Whether a running broker can apply it; otherwise it requires a restart.
    """

    group: str
    name: str
    before: str
    after: str
    is_live: bool

    def __str__(self) -> str:
        where = f"[{self.group}]"
        if self.group == DESTINATIONS and self.name:
            where = f"[destinations.{toml(self.name)}]"
        elif self.name:
            where = f"{where} {self.name}"
        if not self.before or not self.after:
            return f"{where}: new: {self.after}" if self.after else f"{where}: gone: {self.before}"
        return f"{where}: {self.before} -> {self.after}"


def changes(old: Settings, new: Settings) -> tuple[Change, ...]:
    """Return the differences, in the order of the settings."""
    return (*_options(old, new), *_policies(old, new), *rule_changes(old.rules, new.rules))


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
    common = [
        [each for each in side if each in before and each in after] for side in (before, after)
    ]
    if common[0] != common[1]:
        was, shall = (", ".join(map(shown, side)) for side in common)
        yield Change(DESTINATIONS, "", was, shall, True)


def _fields(policy: DestinationPolicy | None) -> str:
    """Return the fields of a policy that differ from the defaults, or "" without a policy."""
    if policy is None:
        return ""
    fields = [
        f"{each.name} = {shown(value)}"
        for each in attrs.fields(DestinationPolicy)
        if (value := getattr(policy, each.name)) != each.default
    ]
    return ", ".join(fields) or "the defaults"


def rule_changes(old: AccessRules | None, new: AccessRules | None) -> Iterator[Change]:
    """Yield the differences between access rules, but not those of their positions in files."""
    if _without_places(old) != _without_places(new):
        yield Change(RULES, "", _counted(old), _counted(new), True)


def _without_places(rules: AccessRules | None) -> object:
    if rules is None:
        return None
    return [evolve(each, location="") for each in rules.rules], rules.groups, rules.certificates


def _counted(rules: AccessRules | None) -> str:
    if rules is None:
        return "none"
    counts = f"{len(rules.rules)} rules, {len(rules.groups)} groups"
    return f"{counts}, {len(rules.certificates)} certificates"


def own(settings: Settings) -> Settings:
    """Return a copy of the settings that shares no group with them.

    ``adopt`` changes the groups of options in place. So a broker copies its settings first, and
    those of its caller stay unchanged.
    """
    return evolve(settings, **{group: evolve(getattr(settings, group)) for group in groups()})


def adopt(settings: Settings, new: Settings) -> tuple[Change, ...]:
    """Change the live settings of a running broker in place.

    Only this and ``put`` change frozen groups of options. Call it in the task that owns the broker,
    between two turns of the dispatcher or within one; nothing here waits.

    Args:
      settings: The settings of the broker, made by ``own``.
      new: The new settings. Those that are not live are ignored.

    Returns: All differences, including those not applied (see ``is_live``).

    Raises:
      OptionError: a live option is valid only together with one that requires a restart; nothing
        was changed.
    """
    changed = changes(settings, new)
    put(settings, new)
    return changed


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
    fixed = {spec.name for spec in options() if not spec.live}
    kept = {name: source for name, source in settings.sources.items() if name in fixed}
    read = {name: source for name, source in new.sources.items() if name not in fixed}
    object.__setattr__(settings, SOURCES, {**kept, **read})


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
    """Return the policies by destination, with the defaults for other destinations.

    Raises:
      OptionError: a pattern is invalid, or appears twice.
    """
    default = DestinationPolicy(
        max_redeliveries=settings.broker.max_redeliveries,
        ack_timeout_ms=settings.broker.ack_timeout_ms,
    )
    return PolicyBook(settings.destinations, default)
