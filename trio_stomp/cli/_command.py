"""Commands and their arguments: a line declares an argument, and the parsers are made of them."""

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, NoReturn

from attrs import frozen

from trio_stomp.base import OptionError
from trio_stomp.cli._tool import PROGRAM, near, put

CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
UNKNOWN = "unrecognized arguments: "
MAX_SECONDS = 365 * 24 * 3600.0
MAX_COUNT = 10**15

Run = Callable[[argparse.Namespace], int]


class Helper(argparse.ArgumentParser):
    """A parser whose help is output like any other, and whose errors are one line."""

    def print_help(self, file: object = None) -> None:  # noqa: ARG002
        """Print the help: argparse would ignore that the output is full."""
        put(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Refuse the command line.

        Raises:
          OptionError: always.
        """
        name = self.prog.partition(" ")[2]
        raise OptionError(f"{name}: {message}" if name else message)


class Parser(Helper):
    """A parser whose errors are one line with the remedy, and never quote a possible secret.

    Options may stand anywhere: before a command, and between positional arguments. Plain argparse
    would treat an optional positional argument as missing at the first option.
    """

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Implement ``ArgumentParser.parse_known_args``."""
        words = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(self._sorted(words), namespace)

    def _sorted(self, words: Sequence[str]) -> list[str]:
        """Return the words with the options and their values first, or behind the command."""
        has_commands = any(isinstance(each, argparse._SubParsersAction) for each in self._actions)
        if has_commands and (not words[:1] or words[0] in self._option_string_actions):
            return list(words)
        known = dict(_options(self))
        options: list[str] = []
        others: list[str] = []
        unknown: list[str] = []
        rest = iter(words)
        for word in rest:
            name = word.partition("=")[0] if word.startswith("--") else word[:2]
            if word == "--":
                others += rest
            elif word == "-" or not word.startswith("-") or self._is_number(word):
                others.append(word)
            else:
                options.append(word)
                if name not in known:
                    unknown.append(word)
                elif name == word and known[name].nargs is None:
                    options += islice(rest, 1)
        if has_commands:
            return [*others[:1], *options, *(["--"] if others[1:] else ()), *others[1:]]
        if unknown:
            self.error(UNKNOWN + " ".join(unknown))
        return [*options, "--", *others] if others else options

    def _is_number(self, word: str) -> bool:
        return self._negative_number_matcher.match(word) is not None

    def error(self, message: str) -> NoReturn:
        """Implement ``Helper.error``."""
        if found := CHOICE.search(message):
            message += near(found[1], re.findall(r"[\w-]+", found[2]))
        elif message.startswith(UNKNOWN):
            message = self._unknown(message.removeprefix(UNKNOWN).split(" "))
        super().error(message)

    def _unknown(self, words: Sequence[str]) -> str:
        words = [word for word in words if word != "--"]
        flags = [word.partition("=")[0] for word in words if word.startswith("-") and word != "-"]
        if not flags:
            return f"{words[0][:80]!r} is an unexpected argument (see --help)"
        # The rest of the message is omitted: it may hold a passcode.
        if flags[0].startswith("--pass"):
            return (
                f"{flags[0]} is not an option: every user of the machine can see a passcode on "
                "the command line; use TRIO_STOMP_PASSCODE or --passcode-file"
            )
        # Imported here, so that only a typing error costs the time.
        from trio_stomp.cli._hints import option_hint

        ours = dict(_options(self))
        hints = (f"{flag[:80]}{option_hint(flag, ours)}" for flag in dict.fromkeys(flags[:4]))
        return f"{UNKNOWN}{'; '.join(hints)} (--help lists all)"


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Yield all options of a parser and of its commands."""
    for action in parser._actions:
        yield from ((flag, action) for flag in action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _options(command)


@frozen(init=False)
class Argument:
    """An argument of a command.

    Args:
      flags: Its name, or its options.
      section: The title of its group in the help, and behind a line break the description of the
        group; "" = that of all options.
      options: The keyword arguments of ``ArgumentParser.add_argument``.
    """

    flags: tuple[str, ...]
    section: str
    options: Mapping[str, Any]

    def __init__(
        self,
        usage: str,
        help: str | None = None,
        type: Callable[[str], Any] | None = None,
        default: object = None,
        *,
        section: str = "",
        **options: Any,  # noqa: ANN401
    ) -> None:
        """Declare an argument.

        Args:
          usage: Its options and the name of its value as in a help: ``--force``,
            ``-C --config FILE``, ``--id ID...`` for one that may be repeated; or the name of a word
            of the command line: ``QUEUE``, ``[BODY]`` if it may be left out, ``FILE...`` for one or
            more.
          help: Its meaning, for the help.
          type: Parses the value.
          default: The value without it.
          section: As in the class.
          options: Further arguments of ``add_argument``.
        """
        words = usage.split()
        flags = tuple(word for word in words if word.startswith("-"))
        value = "" if len(flags) == len(words) else words[-1]
        name = value.strip("[.]")
        options = {"default": default, **options} | ({"help": help} if help is not None else {})
        if value:
            options["metavar"] = name
        if not flags:
            flags = (options.pop("dest", name.lower().replace("-", "_")),)
            if value != name:
                options["nargs"] = "+" if value[0] != "[" else "*" if "..." in value else "?"
        elif value.endswith("..."):
            options["action"] = "append"
        elif not value and not options.keys() & {"choices", "action"}:
            options |= {"action": "store_true", "default": default or False}
        if type is not None:
            options["type"] = type
        self.__attrs_init__(flags, section, options)

    @property
    def name(self) -> str:
        """The attribute of the parsed command line that has its value."""
        return str(self.options.get("dest") or self.flags[0].lstrip("-").replace("-", "_"))


JSON = Argument("--json", "for programs")
PROGRESS = Argument(
    "--progress",
    "show progress on standard error (default: if it is a terminal)",
    action=argparse.BooleanOptionalAction,
)


def act(given: argparse.Namespace) -> int:
    """Run the command of a command that the command line names."""
    code: int = given.act(given)
    return code


@frozen
class Command:
    """A command.

    Args:
      run: Does it, and returns the exit code; for a command that has commands, around the one that
        is named: ``act``.
      arguments: Its arguments, in the order of the help.
      text: What it does; "" = as in the list of all commands.
      epilog: The end of the help.
      commands: The commands that it has, one of which must be named.
      defaults: Further attributes of the parsed command line.
      usage: The first line of the help; None = made of the arguments.
      parser: The class of the parser.
    """

    run: Run = act
    arguments: Sequence[Argument] = ()
    text: str = ""
    epilog: str = ""
    commands: "Mapping[str, Command]" = MappingProxyType({})
    defaults: Mapping[str, object] = MappingProxyType({})
    parser: type[Helper] = Parser
    usage: str | None = None

    def make_parser(self, name: str = "", text: str = "") -> Helper:
        """Return the parser of the arguments after the command's name.

        Args:
          name: The name of the command.
          text: What it does, unless it says so itself.
        """
        made = self.parser(
            prog=f"{PROGRAM} {name}".strip(),
            usage=self.usage,
            description=self.text or text,
            epilog=self.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self._complete(made)
        return made

    def _complete(self, parser: argparse.ArgumentParser) -> None:
        """Add arguments and commands to a parser."""
        sections: dict[str, argparse._ArgumentGroup] = {}
        for each in self.arguments:
            place: argparse._ActionsContainer = parser
            if each.section:
                if each.section not in sections:
                    title, _, text = each.section.partition("\n")
                    sections[each.section] = parser.add_argument_group(title, text or None)
                place = sections[each.section]
            place.add_argument(*each.flags, **each.options)
        parser.set_defaults(**self.defaults)
        if not self.commands:
            return
        made = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
        for name, command in self.commands.items():
            text = command.text
            child = made.add_parser(
                name, usage=command.usage, help=text, description=text, allow_abbrev=False
            )
            command._complete(child)
            child.set_defaults(act=command.run)


def seconds(text: str) -> float:
    """Parse a number of seconds, above 0.

    Raises:
      ArgumentTypeError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a number of seconds above 0")
    return value


def count(text: str) -> int:
    """Parse a whole number, 1 or more."""
    return _whole(text, 1, MAX_COUNT)


def size_in_bytes(text: str) -> int:
    """Parse a number of bytes, 0 or more."""
    return _whole(text, 0, MAX_COUNT)


def port_number(text: str) -> int:
    """Parse a port number."""
    return _whole(text, 0, 65535)


def time_ms(text: str) -> int:
    """Parse a time, into milliseconds since 1970.

    Raises:
      ArgumentTypeError: it is none.
    """
    # Imported here, as few commands take a time.
    from trio_stomp.cli._times import time_of

    try:
        return int(time_of(text) * 1000)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _whole(text: str, least: int, most: int) -> int:
    # int() alone accepts "1_0" and the digits of every script.
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(
            f"{text[:80]!r} is not a whole number from {least} to {most}"
        )
    return value
