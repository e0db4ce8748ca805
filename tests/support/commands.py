"""The commands of the program, their parsers, and the exit codes that docs/use/cli.md tells."""

from trio_stomp.cli._main import ALIASES, names, parser_of, run_command

__all__ = [
    "ALIASES",
    "BAD_OPTION",
    "CANNOT",
    "PIPE_CLOSED",
    "TERMINATED",
    "UNWRITTEN",
    "WELL",
    "names",
    "parser_of",
    "run_command",
]

WELL, CANNOT, BAD_OPTION, UNWRITTEN = 0, 1, 2, 74
PIPE_CLOSED, TERMINATED = 141, 143
