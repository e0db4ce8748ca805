"""``trio-stomp completion``: completion scripts for shells."""

import argparse
import importlib
from collections.abc import Iterator
from typing import Any

from trio_stomp._version import __version__
from trio_stomp.cli import _main
from trio_stomp.cli._command import Argument, Command
from trio_stomp.cli._tool import PROGRAM, WELL, CannotDo, put

SHELLS = ("bash", "zsh", "tcsh", "fish")
FILES = ("FILE", "SOURCE")
DIRECTORIES = ("DIR", "DIR|URL")

NAMES = {
    "DESTINATION": "destinations",
    "D": "destinations",
    "TO": "destinations",
    "QUEUE": "queues",
    "STREAM": "streams",
    "TOPIC": "last-values",
    "SESSION": "connections",
}
"""The kind of things whose names the shell offers, by the name of an argument."""
ASK = f"{PROGRAM} ls {{kind}} --names --count 200 --name {{word}} </dev/null 2>/dev/null"
"""Asks the broker. Nothing of its answer is expanded by the shell."""

EPILOG = """\
Names of destinations, queues, streams and sessions come from the broker of TRIO_STOMP_URL.


  bash:  trio-stomp completion bash > ~/.local/share/bash-completion/completions/trio-stomp
  zsh:   trio-stomp completion zsh > "${fpath[1]}/_trio-stomp"
  tcsh:  trio-stomp completion tcsh > ~/.trio-stomp.tcsh, which ~/.tcshrc then sources
  fish:  trio-stomp completion fish > ~/.config/fish/completions/trio-stomp.fish
"""


def _run(given: argparse.Namespace) -> int:
    """Print the script for the shell that the command line names.

    Raises:
      OptionError: an option is wrong; the text is one line for the operator.
      CannotDo: shtab is not installed.
    """
    try:
        shtab = importlib.import_module("shtab")
    except ModuleNotFoundError:
        raise CannotDo("this needs shtab, which is not installed: pip install shtab") from None
    parser = whole_parser()
    _mark(parser, {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY})
    functions = {shell: "\n".join(_functions(shell)) for shell in ("bash", "zsh")}
    script = shtab.complete(parser, shell=given.shell, root_prefix="trio_stomp", preamble=functions)
    put(f"{script}\n")
    return WELL


def _functions(shell: str) -> Iterator[str]:
    """Yield a function of a shell for each kind of names."""
    for kind in sorted(set(NAMES.values())):
        if shell == "bash":
            body = ASK.format(kind=kind, word='"$1*"')
        else:
            ask = ASK.format(kind=kind, word='"$PREFIX*"')
            body = f'local -a names; names=("${{(@f)$({ask})}}"); compadd -a names'
        yield f"_trio_stomp_{kind}() {{ {body}; }}"


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser of all commands, for inspection and not for parsing."""
    whole = argparse.ArgumentParser(prog=PROGRAM)
    whole.add_argument("--version", action="version", version=__version__)
    commands = whole.add_subparsers(dest="command")
    for _, group in _main.GROUPS:
        for name, text in group:
            made = _main.parser_of(name)
            commands.add_parser(name, help=text, description=text, parents=[made], add_help=False)
    return whole


def _mark(parser: argparse.ArgumentParser, marks: dict[str, Any]) -> None:
    """Let the shell offer files, and names of the broker, for arguments that take one."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _mark(command, marks)
            continue
        offered = None
        if action.metavar in FILES:
            offered = marks["FILE"]
        elif action.metavar in DIRECTORIES:
            offered = marks["DIR"]
        elif action.metavar in NAMES:
            kind = NAMES[str(action.metavar)]
            word = "(commandline -ct)'*'"
            offered = {
                **dict.fromkeys(("bash", "zsh"), f"_trio_stomp_{kind}"),
                "fish": f"({ASK.format(kind=kind, word=word)})",
            }
        if offered is not None:
            action.complete = offered  # type: ignore[attr-defined]


COMMAND = Command(_run, (Argument("SHELL", "{bash,zsh,tcsh,fish}", choices=SHELLS),), epilog=EPILOG)
