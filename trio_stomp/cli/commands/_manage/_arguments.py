"""What the management commands share: their arguments, most of them parameters of requests."""

import argparse
from collections.abc import Sequence
from typing import Any

from trio_stomp.cli._command import JSON, Argument, Command, Run, count, size_in_bytes, time_ms
from trio_stomp.cli._connect_options import ACCESS
from trio_stomp.cli._http_get import understanding
from trio_stomp.web.declared import QUEUE, Flag, Number, Parameter, Time


def tool(run: Run, arguments: Sequence[Argument], text: str = "", epilog: str = "") -> Command:
    """Return a command that asks a broker."""

    def understood(given: argparse.Namespace) -> int:
        with understanding(given):
            return run(given)

    return Command(understood, (*arguments, JSON, *ACCESS), text, epilog)


def argument_of(declared: Parameter) -> Argument:
    """Return the argument of a command for a parameter of its request."""
    name, value, parse = declared.name, declared.value or declared.name.upper(), None
    help = declared.help
    if isinstance(declared, Flag):
        return Argument(f"--{name}", help)
    if isinstance(declared, Time):
        value, parse, help = "TIME", time_ms, f"{help}: a time, or a span before now, such as 10m"
    elif isinstance(declared, Number):
        value, parse = "N", count if declared.least else size_in_bytes
    if declared.most_times > 1:
        value, help = f"{value}...", f"{help}; repeatable"
    usage = value if declared.is_required else f"--{name.replace('_', '-')} {value}"
    return Argument(usage, help, parse, dest=name)


def values_of(given: argparse.Namespace, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return the parameters of a request that the command line gives."""
    return {each.name: getattr(given, each.name) for each in parameters}


NAMED = argument_of(QUEUE)
DEAD = Argument("QUEUE", "where the dead letters come from: see dlq --help")
EXACT = Argument("--exact", "QUEUE is the dead-letter queue itself")
YES = Argument("--yes", "do not ask for confirmation")
