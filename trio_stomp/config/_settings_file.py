"""A settings file: a table for each group of options, policies and rules.

[listen]
port = 3000

[destinations."/topic/prices.>"]
stream = true

[[rule]]
allow = ["send", "receive"]
to = "**"
"""

from collections.abc import Iterator

from attrs import frozen

from trio_stomp.base import OptionError
from trio_stomp.broker import DestinationPolicy
from trio_stomp.config._acl_file import RulePart
from trio_stomp.config._load import OptionSpec, checked, groups, hint, options
from trio_stomp.config._policy_file import read_policy_table
from trio_stomp.config._sources import FILE, Given, Source, toml
from trio_stomp.config._toml_file import TomlFile, read_toml

DESTINATIONS = "destinations"
RULE_TABLES = ("groups", "certificates", "rule")


@frozen(repr=False)
class GivenPolicy:
    """A policy and its source."""

    policy: DestinationPolicy
    source: Source


@frozen(repr=False)
class SettingsFile:
    """The content of one file of settings.

    Args:
      rules: None = the file has neither groups nor certificates nor rules.
    """

    path: str
    options: dict[str, Given]
    policies: dict[str, GivenPolicy]
    rules: RulePart | None


def read_settings_file(path: str) -> SettingsFile:
    """Read one file of settings.

    Raises:
      OptionError: the file is wrong; the text names the file, the line, the rule and the remedy.
    """
    file = read_toml(path)
    tables = (*groups(), DESTINATIONS, *RULE_TABLES)
    for name, content in file.tables.items():
        if name not in tables:
            raise OptionError(f"{file.location(name)}: {_unknown(name, content, tables)}")
    rules = None
    if any(name in file.tables for name in RULE_TABLES):
        rules = RulePart(path, file.text, file.tables, file.lines)
    return SettingsFile(path, dict(_options(file)), dict(_policies(file)), rules)


def _unknown(name: str, content: object, tables: tuple[str, ...]) -> str:
    """Return the error and remedy for an unknown top-level name of a file."""
    group = next((spec.group for spec in options() if spec.name == name), None)
    if isinstance(content, dict | list):
        if name.startswith("/"):
            return f"unknown table [{toml(name)}]; write [destinations.{toml(name)}]"
        return f"unknown table [{name}]{hint(name, tables)}; there are {', '.join(tables)}"
    if group is not None:
        return f"{name} is outside of a table; write it under [{group}]"
    names = [spec.name for spec in options()]
    return f"unknown key {name!r}{hint(name, names)}; keys belong in tables, as port under [listen]"


def _options(file: TomlFile) -> Iterator[tuple[str, Given]]:
    specs = {spec.name: spec for spec in options()}
    for group in groups():
        content = file.tables.get(group, {})
        if not isinstance(content, dict):
            raise OptionError(
                f"{file.location(group)}: {group} must be a table, which begins with [{group}]"
            )
        for name, value in content.items():
            spec = specs.get(name)
            if spec is None or spec.group != group:
                raise OptionError(f"{file.location(group, name)}: {_misplaced(group, name, spec)}")
            yield name, Given(_value(file, spec, value), _source(file, group, name))


def _misplaced(group: str, name: str, spec: OptionSpec | None) -> str:
    if spec is not None:
        return f"[{group}] has no {name}; write it under [{spec.group}]"
    near = hint(name, [each.name for each in options() if each.group == group])
    if not near:
        # It may belong into another table.
        near = hint(name, [f"[{each.group}] {each.name}" for each in options()])
    return f"unknown key {name!r} in [{group}]{near}"


def _value(file: TomlFile, spec: OptionSpec, value: object) -> object:
    try:
        return checked(spec, value)
    except OptionError as error:
        raise OptionError(
            f"{file.location(spec.group, spec.name)}: {error}; write it as in"
            f" {spec.name} = {toml(spec.default)}"
        ) from None


def _source(file: TomlFile, *keys: str) -> Source:
    return Source(FILE, file.path, file.line(*keys))


def _policies(file: TomlFile) -> Iterator[tuple[str, GivenPolicy]]:
    content = file.tables.get(DESTINATIONS, {})
    if not isinstance(content, dict):
        raise OptionError(
            f"{file.location(DESTINATIONS)}: destinations must be a table; policies begin with"
            ' [destinations."/topic/name"]'
        )
    for pattern, values in content.items():
        location = file.location(DESTINATIONS, pattern)
        if not isinstance(values, dict):
            raise OptionError(
                f"{location}: {pattern} is outside of a policy; write it under"
                ' [destinations."/topic/name"], the pattern of destinations that it is for'
            )
        locations = {name: file.location(DESTINATIONS, pattern, name) for name in values}
        policy = read_policy_table(location, pattern, values, locations)
        yield pattern, GivenPolicy(policy, _source(file, DESTINATIONS, pattern))
