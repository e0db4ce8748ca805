"""The layers of configuration: defaults, files, environment variables, command line.

Each layer overrides those before it. All values given for an option are remembered.
"""

import os
from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType

from attrs import evolve, field, frozen

from trio_stomp.base import OptionError
from trio_stomp.broker import AccessRules
from trio_stomp.config._acl_file import RulePart, rules_of
from trio_stomp.config._load import OptionSpec, build, from_text, hint, options
from trio_stomp.config._policy_file import read_policy_file
from trio_stomp.config._settings import Settings
from trio_stomp.config._settings_file import GivenPolicy, SettingsFile, read_settings_file
from trio_stomp.config._sources import COMMAND_LINE, ENVIRONMENT, FILE, Given, Source

MAX_FILES = 1000
CONF_D = "conf.d"
PREFIX = "TRIO_STOMP__"
"""Of variables that set options, as ``TRIO_STOMP__LISTEN__PORT=3000``.

Two underscores, because Kubernetes sets TRIO_STOMP_PORT for a service of that name.
"""
CONFIG_VARIABLE = "TRIO_STOMP_CONFIG"
"""The variable with the settings file, used if the command line names none."""

NOTHING: Mapping[str, Given] = MappingProxyType({})
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


@frozen(repr=False)
class Configuration:
    """Settings and their sources.

    Args:
      given: The values given for each option, by name; the last one is in force. A missing option
        has its default.
      policies: The given policies for each pattern of destinations; the last one is in force.
      files: The files read, in order.
    """

    settings: Settings = field(factory=Settings)
    given: Mapping[str, tuple[Given, ...]] = field(factory=dict)
    policies: Mapping[str, tuple[GivenPolicy, ...]] = field(factory=dict)
    files: tuple[str, ...] = ()

    def source(self, name: str) -> Source:
        """Return the source of an option's value."""
        return self.given[name][-1].source if name in self.given else Source()


def load(
    path: str | None = None,
    environ: Mapping[str, str] = NO_VARIABLES,
    command_line: Mapping[str, Given] = NOTHING,
    *,
    policies: str = "",
) -> Configuration:
    """Read all layers of a broker's configuration.

    Args:
      path: A settings file, read together with the files of ``conf.d`` beside it, or a directory of
        settings files; None = the one named by ``TRIO_STOMP_CONFIG``, or none.
      environ: The environment variables.
      command_line: The options of the command line, by name.
      policies: The file of ``--policies``, which replaces all policies of the settings files;
        "" = none.

    Raises:
      OptionError: a value is wrong; the text names the file and line, variable or option, the rule
        and the remedy.

    Limits: MAX_FILES; of each file ``MAX_FILE_BYTES``.
    """
    if path is None:
        path = environ.get(CONFIG_VARIABLE) or None
    elif not path:
        raise OptionError("--config names no file; leave it out to read none")
    files = [read_settings_file(each) for each in find_files(path)] if path is not None else []
    given: dict[str, tuple[Given, ...]] = {}
    layers = (*(file.options for file in files), read_environment(environ), command_line)
    for name, value in chain.from_iterable(layer.items() for layer in layers):
        given[name] = (*given.get(name, ()), value)
    locations = {name: location for name in given if (location := given[name][-1].source.location)}
    settings = build({name: values[-1].value for name, values in given.items()}, locations)
    by_pattern = _policies(files, policies)
    settings = evolve(
        settings,
        destinations=tuple((pattern, found[-1].policy) for pattern, found in by_pattern.items()),
        sources={
            **{name: values[-1].source for name, values in given.items()},
            **{pattern: found[-1].source for pattern, found in by_pattern.items()},
        },
        rules=_rules([file.rules for file in files if file.rules is not None], given),
    )
    return Configuration(settings, given, by_pattern, tuple(file.path for file in files))


def find_files(path: str) -> list[str]:
    """Return the files to read: those of a directory, or a file and its ``conf.d``.

    Raises:
      OptionError: a directory cannot be read, or has too many files.
    """
    if os.path.isdir(path):
        found = _in_directory(path)
        if not found:
            # Not silently the defaults: a mount may be missing.
            raise OptionError(f"{path}: has no file of settings, whose name would end in .toml")
        return found
    beside = os.path.join(os.path.dirname(path), CONF_D)
    return [path, *(_in_directory(beside) if os.path.isdir(beside) else ())]


def _in_directory(path: str) -> list[str]:
    try:
        # Editors create hidden files beside open ones.
        names = sorted(
            each for each in os.listdir(path) if each.endswith(".toml") and each[0] != "."
        )
    except OSError as error:
        raise OptionError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if len(names) > MAX_FILES:
        raise OptionError(
            f"{path}: has {len(names)} files, the limit is {MAX_FILES}; put some of them together"
        )
    return [os.path.join(path, each) for each in names]


def _policies(files: Iterable[SettingsFile], instead: str) -> dict[str, tuple[GivenPolicy, ...]]:
    """Return the policies in the order in which their patterns first appear."""
    found: dict[str, tuple[GivenPolicy, ...]] = {}
    if instead:
        source = Source(COMMAND_LINE, f"--policies {instead}")
        return {
            pattern: (GivenPolicy(policy, source),) for pattern, policy in read_policy_file(instead)
        }
    for file in files:
        for pattern, policy in file.policies.items():
            found[pattern] = (*found.get(pattern, ()), policy)
    return found


def _rules(parts: list[RulePart], given: Mapping[str, tuple[Given, ...]]) -> AccessRules | None:
    if not parts:
        return None
    rules = rules_of(parts)
    if not rules.rules:
        raise OptionError(
            f"{parts[0].path}: has [groups] or [certificates], but no [[rule]], so that nobody"
            ' could do anything; write a [[rule]], as allow = ["send", "receive"] and to = "**"'
        )
    acl_file = given["acl_file"][-1] if "acl_file" in given else None
    if acl_file is None or not acl_file.value:
        return rules
    if acl_file.source.kind == FILE:
        raise OptionError(
            f"{acl_file.source}: acl_file names a file of rules, but {rules.rules[0].location} is a"
            " rule, too; keep them in one place"
        )
    return None


def variable_of(spec: OptionSpec) -> str:
    """Return the environment variable of an option."""
    return f"{PREFIX}{spec.group}__{spec.name}".upper()


def read_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    """Return the options set by variables, by name. The case of variables does not matter.

    Raises:
      OptionError: a variable is unknown or its value invalid; the text names the variable, and
        the nearest known one or the broken rule.
    """
    specs = {variable_of(spec): spec for spec in options()}
    found: dict[str, Given] = {}
    for variable, text in environ.items():
        if not variable.upper().startswith(PREFIX):
            continue
        spec = specs.get(variable.upper())
        if spec is None:
            raise OptionError(f"unknown variable {variable}{_near(variable.upper(), specs)}")
        if spec.name in found:
            raise OptionError(
                f"{found[spec.name].source} and {variable} are the same variable; unset one"
            )
        try:
            value = from_text(spec, text)
        except OptionError as error:
            raise OptionError(f"{variable}: {error}") from None
        found[spec.name] = Given(value, Source(ENVIRONMENT, variable))
    return found


def _near(variable: str, specs: Mapping[str, OptionSpec]) -> str:
    """Return the variable of the option with that name in any group, or a hint."""
    name = variable.rpartition("__")[2]
    same = [each for each, spec in specs.items() if spec.name.upper() == name]
    if same:
        return f"; did you mean {same[0]}?"
    # Without the common prefix, which would make all of them similar.
    near = hint(variable.removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in specs])
    return near.replace("did you mean ", f"did you mean {PREFIX}")
