"""``trio-stomp history``: how the figures of a queue were before."""

import argparse
from datetime import UTC, datetime

from trio_stomp.cli._command import Argument, count, time_ms
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli._tool import WELL, say, show_json, show_table

EPILOG = """\
The figures come from the broker's stream of diagnostics (--diag-stream), with rates since the line
before. A line is missing where the broker did not run, or the queue was not among the 500 fullest.
It needs the right to monitor.
"""
ARGUMENTS = (
    Argument(
        "--since TIME",
        "the begin: a time, or a span such as 6h (default: as far as the broker remembers)",
        time_ms,
    ),
    Argument("--points N", "lines (default: 24)", count, default=24),
)
COLUMNS = ("waiting", "unacked", "bytes", "in_per_s", "out_per_s", "oldest_age_s")


def show_history(given: argparse.Namespace) -> int:
    """Print samples of a queue.

    Raises:
      CannotDo: the broker cannot be reached, or refuses.
    """
    query = {"queue": given.queue, "since": given.since, "points": given.points}
    found = open_site(given).operate("GET", "history", query)
    if given.json:
        show_json(found)
        return WELL
    rows = [
        (_time(each["ts_ms"]), *("" if each[name] is None else each[name] for name in COLUMNS))
        for each in found["points"]
    ]
    titles = [name.replace("_per_s", "/s").replace("_age_s", "-s") for name in COLUMNS]
    show_table(rows, "time", *titles)
    oldest = _time(found["oldest_ms"]) if found["oldest_ms"] else "nothing yet"
    say(f"{found['queue']}: the broker remembers from {oldest} on")
    return WELL


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
