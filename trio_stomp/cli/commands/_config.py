"""``trio-stomp config``: check, show, compare and import settings."""

import argparse
import json
from collections.abc import Iterator, Sequence

import attrs
import trio
from attrs import frozen

from trio_stomp.base import OptionError
from trio_stomp.broker import DestinationPolicy
from trio_stomp.cli._arguments import Arguments, parse
from trio_stomp.cli._command import JSON, Argument, Command, Helper, act
from trio_stomp.cli._tool import PROGRAM, WELL, put, say, show_json
from trio_stomp.cli.aliases import imported
from trio_stomp.config import (
    Configuration,
    Given,
    OptionSpec,
    Settings,
    changes,
    load,
    options,
    read_ruby_file,
    shown,
)

NEEDS_RESTART = 1

SERVE = "[FILE] [the options that the broker is started with]"

EPILOG = """\
check and show take the options of a broker, such as --config FILE (or FILE alone), and read the
same files and variables as the broker. The exit code is 0 on success and 2 for a bad option or
file; diff returns 1 if a difference requires a restart, else 0.
"""


class _Parser(Helper):
    """A parser that leaves the options of a broker to others, as ``rest``."""

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Implement ``ArgumentParser.parse_args``."""
        given, rest = self.parse_known_args(args, namespace)
        given.rest = rest
        return given


def _run(given: argparse.Namespace) -> int:
    """Run ``config``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
    """
    if given.rest and given.command not in ("check", "show"):
        raise OptionError(f"config {given.command}: unknown argument {given.rest[0]!r} (--help)")
    return act(given)


def _read(rest: Sequence[str]) -> Arguments:
    """Return a broker's settings. A first word without ``=`` is its file."""
    if rest and "=" not in rest[0] and not rest[0].startswith("-"):
        rest = ["--config", *rest]
    return parse(rest)


# check


def _check(given: argparse.Namespace) -> int:
    arguments = _read(given.rest)
    configuration = arguments.configuration
    if not given.no_files:
        trio.run(_check_files, arguments.settings)
    for line in _overridden(configuration):
        say(f"note: {line}")
    rules = arguments.settings.rules
    counts = (
        (len(configuration.given), "option"),
        (len(configuration.policies), "policy of destinations"),
        (len(rules.rules) if rules is not None else 0, "rule"),
    )
    counted = ", ".join(f"{n or 'no'} {_many(what, n)}" for n, what in counts)
    say(f"{', '.join(configuration.files) or 'no file was read'}: well; {counted}")
    return WELL


async def _check_files(settings: Settings) -> None:
    """Read the files named by the settings, and check that a broker would start with them."""
    # Imported late, because it imports the server.
    from trio_stomp.startup import Security, check_addresses

    security = Security(settings)
    await security.open()
    await check_addresses(settings, security, None)


def _many(what: str, count: int) -> str:
    if count == 1:
        return what
    return "policies of destinations" if what.startswith("policy") else f"{what}s"


def _overridden(configuration: Configuration) -> Iterator[str]:
    """Yield options that are given more than once, with the overridden values."""
    for name, values in configuration.given.items():
        for before in values[:-1]:
            yield (
                f"{_plain(before.source)}: {name} = {shown(before.value)} does not count;"
                f" {_plain(values[-1].source)} says {shown(values[-1].value)}"
            )
    for pattern, sources in configuration.policies.items():
        for earlier in sources[:-1]:
            yield (
                f"{_plain(earlier.source)}: the policy {shown(pattern)} does not count;"
                f" {_plain(sources[-1].source)} has one, too"
            )


# show


@frozen
class _Row:
    """An option in force."""

    spec: OptionSpec
    value: object
    given: tuple[Given, ...]

    @property
    def source(self) -> str:
        return _plain(self.given[-1].source) if self.given else "default"


def _show(given: argparse.Namespace) -> int:
    if given.changed and given.defaults:
        raise OptionError("config show: argument --defaults: not allowed with argument --changed")
    configuration = Configuration() if given.defaults else _read(given.rest).configuration
    rows = [
        _Row(spec, _value(configuration.settings, spec), configuration.given.get(spec.name, ()))
        for spec in options()
    ]
    if given.changed:
        rows = [row for row in rows if row.value != row.spec.default]
    if given.json:
        show_json(_as_json(rows, configuration))
    else:
        put("".join(f"{line}\n" for line in _as_text(rows, configuration)))
    return WELL


def _value(settings: Settings, spec: OptionSpec) -> object:
    return getattr(getattr(settings, spec.group), spec.name)


def _as_text(rows: Sequence[_Row], configuration: Configuration) -> Iterator[str]:
    group = ""
    for row in rows:
        if row.spec.group != group:
            yield f"{'' if not group else chr(10)}[{row.spec.group}]"
            group = row.spec.group
        over = "".join(
            f"; not {shown(each.value)}, as {_plain(each.source)} says"
            for each in reversed(row.given[:-1])
        )
        yield f"{row.spec.name} = {shown(row.value)}  # {row.source}{over}"
    for pattern, sources in configuration.policies.items():
        over = "".join(f"; not as {_plain(each.source)} says" for each in reversed(sources[:-1]))
        yield f"\n[destinations.{shown(pattern)}]  # {_plain(sources[-1].source)}{over}"
        for name, value in _fields(sources[-1].policy):
            yield f"{name} = {shown(value)}"
    rules = configuration.settings.rules
    if rules is not None:
        yield "\n# Rules, in the order of evaluation:"
        for rule in rules.rules:
            yield f"# {_plain(rule.location)}: {'allow' if rule.allow else 'deny'}"


def _fields(policy: DestinationPolicy) -> Iterator[tuple[str, object]]:
    for each in attrs.fields(DestinationPolicy):
        value = getattr(policy, each.name)
        if value != each.default:
            yield each.name, value


def _as_json(rows: Sequence[_Row], configuration: Configuration) -> dict[str, object]:
    rules = configuration.settings.rules
    return {
        "files": list(configuration.files),
        "options": {
            f"{row.spec.group}.{row.spec.name}": {
                "value": _masked(row.value),
                "default": row.spec.default,
                "source": row.source,
                "live": row.spec.live,
                "overridden": [
                    {"value": _masked(each.value), "source": str(each.source)}
                    for each in reversed(row.given[:-1])
                ],
            }
            for row in rows
        },
        "destinations": [
            {
                "pattern": pattern,
                "policy": dict(_fields(sources[-1].policy)),
                "source": str(sources[-1].source),
                "overridden": [str(each.source) for each in reversed(sources[:-1])],
            }
            for pattern, sources in configuration.policies.items()
        ],
        "rules": [rule.location for rule in rules.rules] if rules is not None else None,
    }


def _masked(value: object) -> object:
    return json.loads(shown(value)) if isinstance(value, str) else value


def _plain(text: object) -> str:
    """Return a name without characters that could break its line."""
    shown_text = str(text)
    return shown_text if shown_text.isprintable() else repr(shown_text)


# diff


def _diff(given: argparse.Namespace) -> int:
    # Compare files only: a variable would hide their differences.
    found = changes(load(given.old).settings, load(given.new).settings)
    for change in found:
        say(f"{'live   ' if change.is_live else 'restart'}  {change}")
    restarts = sum(not change.is_live for change in found)
    if not found:
        say("nothing differs")
    elif restarts:
        say(f"{restarts} of {len(found)} differences require a restart")
    return NEEDS_RESTART if restarts else WELL


# import


def _import(given: argparse.Namespace) -> int:
    put(imported(read_ruby_file(given.file)))
    return WELL


COMMAND = Command(
    _run,
    text="Tools for settings.",
    epilog=EPILOG,
    parser=_Parser,
    commands={
        "check": Command(
            _check,
            (
                Argument(
                    "--no-files", "do not read the files of users, rules, keys and certificates"
                ),
            ),
            "check all files as a start would, without opening ports or stores",
            usage=f"{PROGRAM} config check [-h] [--no-files] {SERVE}",
        ),
        "show": Command(
            _show,
            (
                JSON,
                Argument("--changed", "only values that differ from the defaults"),
                Argument("--defaults", "the defaults; read nothing"),
            ),
            "list the effective settings with their sources",
            usage=f"{PROGRAM} config show [-h] [--json] [--changed | --defaults] {SERVE}",
        ),
        "diff": Command(
            _diff,
            (Argument("OLD"), Argument("NEW")),
            "compare two settings files, and mark changes that require a restart",
        ),
        "import": Command(
            _import, (Argument("FILE"),), "write a settings file from stompserver's configuration"
        ),
    },
)
