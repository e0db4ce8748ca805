"""``trio-stomp spark``: the broker's statistics and streams in Spark."""

import argparse
import shutil
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from trio_stomp.base import OptionError
from trio_stomp.cli._command import Argument, Command, act, seconds
from trio_stomp.cli._connect_options import SOURCE, complete_source, warn_if_exposed
from trio_stomp.cli._tool import WELL, CannotDo, say

if TYPE_CHECKING:
    from trio_stomp.spark.running import Sidecar

NAME = "spark"
EXTRA = "pip install 'trio-stomp[spark]'"
NOTEBOOK = "stats.ipynb"
MIB = 1 << 20

EPILOG = """\
Spark needs Java 17 and `pip install 'trio-stomp[spark]'`. `trio-stomp tables` writes the same
tables without either, and merges their files. The login comes from TRIO_STOMP_LOGIN and
TRIO_STOMP_PASSCODE, or --credentials-file. Every batch is one line of JSON. SIGTERM and SIGINT
stop after the present batch. docs/operate/spark.md has examples.
"""


def _run(given: argparse.Namespace) -> int:
    """Run ``spark``, and return the exit code.

    Raises:
      CannotDo: the broker, the storage, Java or a package is missing, or Spark failed.
      OptionError: an option is wrong; the text is one line for the operator.
    """
    try:
        from trio_stomp.spark import SparkMissing, StreamAway, StreamError
        from trio_stomp.spark.lake import LakeError
        from trio_stomp.spark.running import SidecarError, cause
    except ModuleNotFoundError as error:
        raise CannotDo(f"{error.name} is not installed: {EXTRA}") from None
    warn_if_exposed(getattr(given, "credentials_file", ""))
    try:
        act(given)
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


def source_options(given: argparse.Namespace) -> dict[str, str]:
    """Return the options of the source that were given."""
    complete_source(given)
    names = ("url", "stream", "broker_id", "ca_file", "credentials_file", "retry_s")
    values = {name: getattr(given, name) for name in names} | {
        "startingOffsets": given.starting,
        "startingTimestamp": given.since,
        "maxOffsetsPerTrigger": given.max_rows,
        # A loss is a row, here as in the statistics.
        "failOnDataLoss": "false",
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def _follow(given: argparse.Namespace) -> int:
    from trio_stomp.spark.running import run_sidecar

    wrong = [pair for pair in given.conf if "=" not in pair]
    if wrong:
        raise OptionError(f"{NAME}: --conf {wrong[0]} should be KEY=VALUE")
    run_sidecar(sidecar_of(given), dict(pair.split("=", 1) for pair in given.conf))
    return WELL


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


def _report(given: argparse.Namespace) -> int:
    from trio_stomp.spark import Thresholds
    from trio_stomp.spark.running import make_report

    thresholds = Thresholds(
        saturated=given.saturated, memory_bytes=given.memory_limit_mib * MIB, fds=given.max_fds
    )
    days = {"first": given.first, "last": given.last}
    report = make_report(given.root, thresholds, **days, broker=given.broker, html=given.html)
    say(*report.splitlines())
    return WELL


def _notebook(given: argparse.Namespace) -> int:
    from trio_stomp.spark.running import NOTEBOOK_FILE

    if given.file.exists():
        raise CannotDo(f"{given.file} exists: name another file")
    shutil.copyfile(NOTEBOOK_FILE, given.file)
    say(f"{given.file}: DIAG_ROOT={given.root} jupyter lab {given.file}")
    return WELL


def _demo(given: argparse.Namespace) -> int:
    from trio_stomp.spark.running import run_demo

    say(*run_demo(Path(given.root), given.seconds).splitlines())
    return WELL


DEBUG = (
    Argument("--debug", "print the trace of an error"),
    Argument("--root ROOT", "directory or URI of all files (default: diag)", default="diag"),
)
STREAM = (
    *DEBUG,
    Argument(
        "--format", "of new tables (default: delta)", default="", choices=("delta", "parquet")
    ),
    Argument(
        "--checkpoint CHECKPOINT", "one for each stream (default: in ROOT/checkpoints)", default=""
    ),
    *SOURCE,
    Argument(
        "--stream STREAM", "the stream to read (default: /stream/DIAG)", default="/stream/DIAG"
    ),
    Argument(
        "--starting STARTING", "for a new checkpoint: earliest (default), latest, or an offset"
    ),
    Argument("--since SINCE", "instead: a time in ms since 1970, or like 2026-03-09T12:00:00Z"),
    Argument("--max-rows MAX_ROWS", "rows of a batch (default: 200000)", int),
    Argument("--retry-s RETRY_S", "time limit for reconnecting (default: 60)", float),
    Argument("--broker-id BROKER_ID", "the broker's id for rows of messages without one"),
    Argument("--conf KEY=VALUE...", "a setting of Spark", default=[]),
)
WATCH = (
    Argument("--interval S", "seconds (default: 60)", seconds, default=60.0),
    Argument("--insight", "publish rates and findings to /topic/insight/…"),
)
REPORT = (
    *DEBUG,
    Argument("--from DATE", "in UTC", date.fromisoformat, dest="first"),
    Argument("--to DATE", "included", date.fromisoformat, dest="last"),
    Argument("--broker BROKER", "only this one (default: all)", default=""),
    Argument("--html HTML", "where the page goes (default: beside the results)", Path),
    Argument("--saturated SATURATED", "share of a capacity (default: 0.8)", float, default=0.8),
    Argument(
        "--memory-limit-mib MEMORY_LIMIT_MIB", "the broker's memory limit", float, default=0.0
    ),
    Argument("--max-fds MAX_FDS", "the broker's limit of file descriptors", int, default=0),
)
NOTEBOOK_AT = Argument("[file]", f"(default: {NOTEBOOK})", Path, default=Path(NOTEBOOK))
LOAD = Argument("--seconds SECONDS", "of load (default: 20)", seconds, default=20.0)
COMMAND = Command(
    _run,
    text="The broker's statistics and streams in Spark: tables, insight, a report.",
    epilog=EPILOG,
    commands={
        "once": Command(_follow, STREAM, "write what is in the stream now to tables, and end"),
        "watch": Command(
            _follow, (*STREAM, *WATCH), "write the stream to tables as it comes, until stopped"
        ),
        "report": Command(_report, REPORT, "analyse the tables, and make a page of what was found"),
        "notebook": Command(
            _notebook, (*DEBUG, NOTEBOOK_AT), "write a notebook on the tables, to open with Jupyter"
        ),
        "demo": Command(
            _demo,
            (*DEBUG, LOAD),
            "run a broker with clients, write its statistics, and make the report",
        ),
    },
)
