"""Parsing a command line into ``Arguments``: options, aliases, and stompica's words."""

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import field, frozen

from trio_stomp._version import __version__
from trio_stomp.base import OptionError
from trio_stomp.cli._command import Argument, Command, Helper
from trio_stomp.cli._tool import PROGRAM
from trio_stomp.cli.aliases import FLAGS, Storage, read_flags
from trio_stomp.config import (
    COMMAND_LINE,
    CONFIG_VARIABLE,
    Configuration,
    Given,
    OptionSpec,
    Settings,
    Source,
    from_text,
    hint,
    load,
    options,
)

OTHER_FLAGS = ("--config", "--policies", "--log-level", "--debug", "--version", "--help")

# Short flags of stompserver, and names of stompica.
ALIASES = {"host": ("-b",), "port": ("-p",), "processors": ("--writers",), "ttl_ms": ("--ttl",)}

# Words of stompica's command line.
WORDS = {
    "processors": "processors",
    "port": "port",
    "max_input_queue_size": "max_input_queue_size",
    "max_stale_queue_size": "max_stale_queue_size",
    "TTL": "ttl_ms",
    # stompica's authors announced it together with acknowledgements.
    "ack_timeout": "ack_timeout_ms",
}

TITLES = {
    "listen": "listening",
    "frames": "frames",
    "protocol": "sessions",
    "broker": "messages",
    "server": "connections and memory",
    "security": "authentication and access",
    "transport": "TLS and proxies",
    "web": "pages",
    "log": "the log, on standard error",
    "diag": "diagnostics",
    "store": "what survives",
    "journal": "the journal",
}

UNITS = {"_bytes": "BYTES", "_ms": "MS", "_s": "SECONDS", "host": "HOST", "port": "PORT"}

OF_STOMPSERVER = (
    "stompserver's flags\nstorage, in stompserver's words; the options above override these"
)

DESCRIPTION = """\
A STOMP 1.0, 1.1 and 1.2 message broker. TCP and WebSocket clients share one port;
the first bytes of a connection decide.
"""

EPILOG = """\
words:
  stompica's command line works unchanged: name=value in any order, 0 = the default, TTL and
  ack_timeout in ms; options override words.
    python -m trio_stomp processors=10 port=3000 max_input_queue_size=1000 \\
        max_stale_queue_size=1000 TTL=5000 ack_timeout=30000

settings:
  No file is read unless --config or the variable TRIO_STOMP_CONFIG names a TOML file, with a table
  for each group of options. Order of precedence, lowest first: defaults, the file, conf.d beside
  it, variables such as TRIO_STOMP__LISTEN__PORT=3000, the command line.

tools:
  trio-stomp store --help: inspect, check, move and compact a store.
  trio-stomp config --help: check, show, compare and import settings.

signals and exit codes:
  SIGINT and SIGTERM stop in order: received frames are processed first. A second one stops at
  once. The exit code is 0 after a stop, 1 if the address is not available, 2 for a bad option.
"""


@frozen
class Arguments:
    """The settings given by the command line, and the files and variables behind them.

    Args:
      new_directory: A directory to create before the start; "" = none.
      configuration: The source of each setting.
      reload: Reads the files again (for SIGHUP) and returns the new settings. It raises
        as ``parse`` does, and changes nothing.
    """

    settings: Settings
    new_directory: str = ""
    configuration: Configuration = field(factory=Configuration, eq=False, repr=False)
    reload: Callable[[], Settings] = field(default=Settings, eq=False, repr=False)


def parse(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> Arguments:
    """Read the command line, and the settings file and variables that it overrides.

    Args:
      argv: The arguments, without the name of the program.
      environ: The environment variables; None = those of this process.

    Raises:
      OptionError: an argument or file is wrong; the text is one line for the operator.
      SystemExit: ``--help`` or ``--version`` was given, and its text is printed.
    """
    environ = dict(os.environ if environ is None else environ)
    given, rest = make_parser().parse_known_args(list(argv))
    storage = read_flags(given)
    chosen = {**_flags(storage), **dict(_words(rest)), **dict(_options(given))}
    configuration = load(given.config, environ, chosen, policies=given.policies)
    return Arguments(
        configuration.settings,
        storage.directory,
        configuration,
        partial(_settings, tuple(argv), environ),
    )


def _settings(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    return parse(argv, environ).settings


def _flags(storage: Storage) -> dict[str, Given]:
    """Return the settings that stompserver's flags stand for."""
    return {
        name: Given(value, Source(COMMAND_LINE, storage.flag(name)))
        for name, value in storage.values.items()
    }


def _options(given: argparse.Namespace) -> Iterator[tuple[str, Given]]:
    """Yield the settings made by the broker's own options.

    An option overrides a word at any position, since argparse does not report their order.
    """
    for spec in options():
        if spec.name in given:
            value = getattr(given, spec.name)
            flag = f"--no-{spec.flag[2:]}" if value is False else spec.flag
            value = value if spec.type is bool else from_text(spec, value)
            yield spec.name, Given(value, Source(COMMAND_LINE, flag))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser, with one argument group for each group of options."""
    own = (
        Argument("--version", action="version", version=f"{PROGRAM} {__version__}"),
        Argument(
            "-C --config FILE",
            "TOML file of settings, and *.toml of conf.d beside it; or a directory of such files;"
            f" by default what {CONFIG_VARIABLE} names (docs/operate/configuration.md)",
        ),
        Argument(
            "-d --debug",
            "the same as --log-level debug",
            default=argparse.SUPPRESS,
            dest="log_level",
            action="store_const",
            const="debug",
        ),
        Argument(
            "--policies FILE",
            "TOML file of policies by destination (docs/use/queues.md)",
            default="",
        ),
    )
    flags = (
        Argument(usage, text, default=argparse.SUPPRESS, section=OF_STOMPSERVER)
        for usage, text in FLAGS
    )
    command = Command(
        arguments=(*own, *map(_argument, options()), *flags),
        text=DESCRIPTION,
        epilog=EPILOG,
        parser=Helper,
        usage=f"{PROGRAM} [options] [name=value ...]",
    )
    return command.make_parser()


def _argument(spec: OptionSpec) -> Argument:
    """Return an option. If it is not given, it is absent from the namespace."""
    flags = " ".join([*ALIASES.get(spec.name, ()), spec.flag])
    is_switch = spec.type is bool
    more: dict[str, Any] = {"action": argparse.BooleanOptionalAction} if is_switch else {}
    return Argument(
        flags if is_switch else f"{flags} {_metavar(spec)}",
        f"{spec.help} (default: {_shown(spec.default)})".replace("%", "%%"),
        default=argparse.SUPPRESS,
        section=TITLES.get(spec.group, spec.group),
        dest=spec.name,
        **more,
    )


def _metavar(spec: OptionSpec) -> str:
    if spec.choices:
        return "{" + ",".join(spec.choices) + "}"
    for ending, unit in UNITS.items():
        if spec.name.endswith(ending):
            return unit
    return "N"


def _shown(default: object) -> str:
    """Return a default in the notation of the command line: no ``True``, no ``5.0``."""
    if isinstance(default, bool):
        return "yes" if default else "no"
    return f"{default:g}" if isinstance(default, float) else str(default)


def _words(rest: Iterable[str]) -> Iterator[tuple[str, Given]]:
    """Yield the settings made by stompica's words, under our names."""
    specs = {spec.name: spec for spec in options()}
    for word in rest:
        name, equals, text = word.partition("=")
        if word.startswith("-"):
            flags = [*(spec.flag for spec in options()), *OTHER_FLAGS]
            raise OptionError(f"unknown option {name}{hint(name, flags)} (--help lists all)")
        if name in specs and name not in WORDS:
            raise OptionError(f"{word!r} is not a word of stompica's; use {specs[name].flag}")
        if not equals or name not in WORDS:
            names = ", ".join(WORDS)
            raise OptionError(f"unknown word {word!r}{hint(name, WORDS)} (known: {names})")
        value = from_text(specs[WORDS[name]], text)
        if value != 0:
            yield WORDS[name], Given(value, Source(COMMAND_LINE, word))
