"""``trio-stomp completion``: completion scripts for shells."""

import argparse
import importlib
from collections.abc import Sequence
from typing import Any

from trio_stomp._version import __version__
from trio_stomp.cli import _main
from trio_stomp.cli._tool import (
    WELL,
    CannotDo,
    Parser,
    make_tool_parser,
)

NAME = "completion"
SHELLS = ("bash", "zsh", "tcsh", "fish")
COMMAND = "trio-stomp"
"""The command to complete; shells cannot complete `python -m trio_stomp`."""

FILES = ("FILE", "SOURCE")
DIRECTORIES = ("DIR", "DIR|URL")

EPILOG = """\
  bash:  trio-stomp completion bash > ~/.local/share/bash-completion/completions/trio-stomp
  zsh:   trio-stomp completion zsh > "${fpath[1]}/_trio-stomp"
  tcsh:  trio-stomp completion tcsh > ~/.trio-stomp.tcsh, which ~/.tcshrc then sources
  fish:  trio-stomp completion fish > ~/.config/fish/completions/trio-stomp.fish
"""


def main(argv: Sequence[str]) -> int:
    """Print the script for the shell that the command line names.

    Raises:
      OptionError: an option is wrong; the text is one line for the operator.
      CannotDo: shtab is not installed.
    """
    given = make_parser().parse_args(list(argv))
    try:
        shtab = importlib.import_module("shtab")
    except ModuleNotFoundError:
        raise CannotDo("this needs shtab, which is not installed: pip install shtab") from None
    parser = whole_parser()
    _mark_files(parser, {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY})
    print(shtab.complete(parser, shell=given.shell, root_prefix="trio_stomp"))
    return WELL


def make_parser() -> Parser:
    """Return the parser of the arguments after ``completion``."""
    parser = make_tool_parser(NAME, "Print a completion script for a shell.", EPILOG)
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="{bash,zsh,tcsh,fish}")
    return parser


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser of all commands, for inspection and not for parsing."""
    whole = argparse.ArgumentParser(prog=COMMAND)
    whole.add_argument("--version", action="version", version=__version__)
    commands = whole.add_subparsers(dest="command")
    for _, group in _main.GROUPS:
        for name, text in group:
            # The parser of ``serve`` is in another module than its code.
            is_serve = name == "serve"
            module = "trio_stomp.cli._arguments" if is_serve else _main.module_of(name)
            made = importlib.import_module(module).make_parser()
            commands.add_parser(name, help=text, description=text, parents=[made], add_help=False)
    return whole


def _mark_files(parser: argparse.ArgumentParser, marks: dict[str, Any]) -> None:
    """Let the shell offer file names for options that take one."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _mark_files(command, marks)
        elif action.metavar in FILES:
            action.complete = marks["FILE"]  # type: ignore[attr-defined]
        elif action.metavar in DIRECTORIES:
            action.complete = marks["DIR"]  # type: ignore[attr-defined]
