"""``trio-stomp spark``: the broker's statistics and streams in Spark."""

import argparse
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from trio_stomp.base import OptionError
from trio_stomp.cli._connect_options import add_source, warn_if_exposed
from trio_stomp.cli._tool import (
    WELL,
    CannotDo,
    Parser,
    add_commands,
    make_tool_parser,
    say,
    seconds,
)

if TYPE_CHECKING:
    from trio_stomp.spark.running import Sidecar

NAME = "spark"
EXTRA = "pip install 'trio-stomp[spark]'"
NOTEBOOK = "stats.ipynb"
MIB = 1 << 20

COMMANDS = {
    "once": "write what is in the stream now to tables, and end",
    "watch": "write the stream to tables as it comes, until stopped",
    "report": "analyse the tables, and make a page of what was found",
    "notebook": "write a notebook on the tables, to open with Jupyter",
    "demo": "run a broker with clients, write its statistics, and make the report",
}

EPILOG = """\
Spark needs Java 17 and `pip install 'trio-stomp[spark]'`. `trio-stomp tables` writes the same
tables without either, and merges their files. The login comes from TRIO_STOMP_LOGIN and
TRIO_STOMP_PASSCODE, or --credentials-file. Every batch is one line of JSON. SIGTERM and SIGINT
stop after the present batch. docs/operate/spark.md has examples.
"""


def main(argv: Sequence[str]) -> int:
    """Run ``spark``, and return the exit code.

    Raises:
      CannotDo: the broker, the storage, Java or a package is missing, or Spark failed.
      OptionError: an option is wrong; the text is one line for the operator.
    """
    given = make_parser().parse_args(list(argv))
    try:
        from trio_stomp.spark import SparkMissing, StreamAway, StreamError
        from trio_stomp.spark.lake import LakeError
        from trio_stomp.spark.running import SidecarError, cause
    except ModuleNotFoundError as error:
        raise CannotDo(f"{error.name} is not installed: {EXTRA}") from None
    warn_if_exposed(getattr(given, "credentials_file", ""))
    try:
        RUN[given.command](given)
    except (CannotDo, OptionError):
        raise
    except (StreamAway, StreamError, SparkMissing, LakeError, SidecarError) as error:
        if given.debug:
            raise
        raise CannotDo(f"{error}") from None
    except Exception as error:
        # Errors of Spark have a hundred lines, of which the first says what is wrong.
        if given.debug:
            raise
        line = cause(f"{error}") or type(error).__name__
        raise CannotDo(f"{line}; --debug prints the trace") from None
    return WELL


def make_parser() -> Parser:
    """Return the parser of the arguments after ``spark``."""
    text = "The broker's statistics and streams in Spark: tables, insight, a report."
    parser = make_tool_parser(NAME, text, EPILOG)
    commands = add_commands(parser, COMMANDS)
    for command in commands.values():
        add: Callable[..., object] = command.add_argument
        add("--debug", action="store_true", help="print the trace of an error")
        add("--root", default="diag", help="directory or URI of all files (default: diag)")
    for name in ("once", "watch"):
        _add_stream(commands[name])
    add = commands["watch"].add_argument
    add("--interval", type=seconds, default=60.0, metavar="S", help="seconds (default: 60)")
    add("--insight", action="store_true", help="publish rates and findings to /topic/insight/…")
    _add_report(commands["report"])
    add = commands["notebook"].add_argument
    add("file", nargs="?", type=Path, default=Path(NOTEBOOK), help=f"(default: {NOTEBOOK})")
    add = commands["demo"].add_argument
    add("--seconds", type=seconds, default=20.0, help="of load (default: 20)")
    return parser


def _add_stream(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--format", choices=("delta", "parquet"), default="", help="of new tables (default: delta)")
    add("--checkpoint", default="", help="one for each stream (default: in ROOT/checkpoints)")
    add_source(parser)
    add("--stream", default="/stream/DIAG", help="the stream to read (default: /stream/DIAG)")
    add("--starting", help="for a new checkpoint: earliest (default), latest, or an offset")
    add("--since", help="instead: a time in ms since 1970, or like 2026-03-09T12:00:00Z")
    add("--max-rows", type=int, help="rows of a batch (default: 200000)")
    add("--retry-s", type=float, help="time limit for reconnecting (default: 60)")
    add("--broker-id", help="the broker's id for rows of messages without one")
    add("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark")


def _add_report(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--from", dest="first", type=date.fromisoformat, metavar="DATE", help="in UTC")
    add("--to", dest="last", type=date.fromisoformat, metavar="DATE", help="included")
    add("--broker", default="", help="only this one (default: all)")
    add("--html", type=Path, help="where the page goes (default: beside the results)")
    add("--saturated", type=float, default=0.8, help="share of a capacity (default: 0.8)")
    add("--memory-limit-mib", type=float, default=0.0, help="the broker's memory limit")
    add("--max-fds", type=int, default=0, help="the broker's limit of file descriptors")


def source_options(given: argparse.Namespace) -> dict[str, str]:
    """Return the options of the source that were given."""
    names = ("url", "stream", "broker_id", "ca_file", "credentials_file", "retry_s")
    values = {name: getattr(given, name) for name in names} | {
        "startingOffsets": given.starting,
        "startingTimestamp": given.since,
        "maxOffsetsPerTrigger": given.max_rows,
        # A loss is a row, here as in the statistics.
        "failOnDataLoss": "false",
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def _follow(given: argparse.Namespace) -> None:
    from trio_stomp.spark.running import run_sidecar

    wrong = [pair for pair in given.conf if "=" not in pair]
    if wrong:
        raise OptionError(f"{NAME}: --conf {wrong[0]} should be KEY=VALUE")
    run_sidecar(sidecar_of(given), dict(pair.split("=", 1) for pair in given.conf))


def sidecar_of(given: argparse.Namespace) -> "Sidecar":
    """Return what ``once`` or ``watch`` runs.

    Raises:
      OptionError: the options do not fit together.
    """
    from trio_stomp.spark.running import Sidecar

    is_watch = given.command == "watch"
    if is_watch and given.insight and given.stream != "/stream/DIAG":
        raise OptionError(f"{NAME}: --insight is made from /stream/DIAG, not {given.stream}")
    return Sidecar(
        source=source_options(given),
        root=given.root,
        interval_s=given.interval if is_watch else None,
        format=given.format,
        checkpoint=given.checkpoint,
        has_insight=is_watch and given.insight,
    )


def _report(given: argparse.Namespace) -> None:
    from trio_stomp.spark import Thresholds
    from trio_stomp.spark.running import make_report

    thresholds = Thresholds(
        saturated=given.saturated, memory_bytes=given.memory_limit_mib * MIB, fds=given.max_fds
    )
    days = {"first": given.first, "last": given.last}
    report = make_report(given.root, thresholds, **days, broker=given.broker, html=given.html)
    say(*report.splitlines())


def _notebook(given: argparse.Namespace) -> None:
    from trio_stomp.spark.running import NOTEBOOK_FILE

    if given.file.exists():
        raise CannotDo(f"{given.file} exists: name another file")
    shutil.copyfile(NOTEBOOK_FILE, given.file)
    say(f"{given.file}: DIAG_ROOT={given.root} jupyter lab {given.file}")


def _demo(given: argparse.Namespace) -> None:
    from trio_stomp.spark.running import run_demo

    say(*run_demo(Path(given.root), given.seconds).splitlines())


RUN: Mapping[str, Callable[[argparse.Namespace], None]] = MappingProxyType(
    {"once": _follow, "watch": _follow, "report": _report, "notebook": _notebook, "demo": _demo}
)
