"""``trio-stomp tables``: the broker's streams as tables of Delta Lake, without Java."""

import argparse
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from trio_stomp.base import OptionError
from trio_stomp.cli._command import JSON, Argument, Command, seconds
from trio_stomp.cli._connect_options import SOURCE, complete_source, warn_if_exposed
from trio_stomp.cli._tool import WELL, CannotDo, say, show_json

if TYPE_CHECKING:
    from trio_stomp.spark.lake import Drain, Store

NAME = "tables"
EXTRA = "pip install 'trio-stomp[tables]'"
PATIENCE_S = 5.0
COMPACT_EVERY_S = 3600.0
DIAG, BODY, TABLE = "/stream/DIAG", "binary", "messages"

EPILOG = """\
This reads /stream/DIAG from where the tables are, and writes new rows every --interval seconds:
one table for each kind of statistics, below ROOT/tables. With --stream it reads another stream, to
one table. A message is in its table once, whatever kills this command; whoever runs it again goes
on where it ended. Several may run beside each other, also for several brokers, and beside the
sidecar of Spark. Once an hour it merges small files.

  trio-stomp tables --stream /stream/topic/prices --table prices \\
      --body json --schema 'sku STRING, price DECIMAL(9, 2)'

ROOT is a directory or an address such as s3://bucket/diag; credentials of the storage come from the
environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, ...), the broker's from TRIO_STOMP_LOGIN and
TRIO_STOMP_PASSCODE, or --credentials-file.
"""


def _run(given: argparse.Namespace) -> int:
    """Run ``tables``, and return the exit code.

    Raises:
      CannotDo: the broker, the storage or a package is missing.
      OptionError: an option is wrong; the text is one line for the operator.
    """
    try:
        from trio_stomp.spark import StreamAway, StreamError
        from trio_stomp.spark.lake import LakeError
    except ModuleNotFoundError as error:
        raise CannotDo(f"{error.name} is not installed: {EXTRA}") from None
    warn_if_exposed(given.credentials_file)
    try:
        _work(given)
    except (StreamAway, StreamError, LakeError) as error:
        raise CannotDo(f"{error}") from None
    return WELL


def _work(given: argparse.Namespace) -> None:
    """Do what the options say: compact, drop and end; or read the stream."""
    from trio_stomp.spark.lake import compact, drop_raw, open_store

    store = open_store(given.root, given.format)
    store.place.check()
    if given.once or not (given.compact or given.raw_max_age):
        _follow(given, store)
    if given.raw_max_age:
        _say(given, "dropped", days=drop_raw(store, given.raw_max_age, messages=given.table))
    if given.compact:
        for made in compact(store):
            if made.removed or made.deleted:
                _say(given, "compacted", table=made.table, files=made.removed, into=made.added)


def _follow(given: argparse.Namespace, store: "Store") -> None:
    """Read the stream once, or every ``--interval`` seconds."""
    drain = _drain(given, store)
    store.place.check_room()
    if given.once:
        _read(given, drain)
        return
    # Ctrl-C and SIGTERM are the ordinary end. Whoever runs this again goes on where it ended.
    with suppress(KeyboardInterrupt):
        _follow_for_ever(given, store, drain)


def _follow_for_ever(given: argparse.Namespace, store: "Store", drain: "Drain") -> None:
    from trio_stomp.spark import StreamAway
    from trio_stomp.spark.lake import DeltaStore, compact

    merged_at, is_heard = time.monotonic(), False
    while True:
        began = time.monotonic()
        try:
            _read(given, drain)
            is_heard = True
        except StreamAway as error:
            # The first look must succeed, so that a wrong address is told at once.
            if not is_heard:
                raise
            _say(given, f"waiting for {error}")
        if time.monotonic() - merged_at > COMPACT_EVERY_S and isinstance(store, DeltaStore):
            compact(store)
            merged_at = time.monotonic()
        time.sleep(max(0.0, began + given.interval - time.monotonic()))


def _drain(given: argparse.Namespace, store: "Store") -> "Drain":
    """Return a reader of the stream.

    Raises:
      OptionError: options do not fit together.
      StreamError: one is wrong.
    """
    from trio_stomp.spark import Layout, StreamAddress, StreamClient
    from trio_stomp.spark.lake import Drain

    if given.stream == DIAG and (given.body, given.table) != (BODY, TABLE):
        raise OptionError(f"{NAME}: --body and --table are for --stream, of users' messages")
    if (given.body == "json") != bool(given.schema):
        raise OptionError(
            f"{NAME}: --body json and --schema 'price DOUBLE, …' belong together: the columns"
        )
    complete_source(given)
    address = StreamAddress(
        given.url,
        given.stream,
        ca_file=given.ca_file,
        credentials_file=given.credentials_file,
        retry_s=PATIENCE_S,
    )
    return Drain(
        StreamClient(address),
        store,
        table=given.table,
        layout=Layout.of(given.body, given.schema),
        broker_id=given.broker_id,
    )


def _read(given: argparse.Namespace, drain: "Drain") -> None:
    before, clock = drain.writer.totals, time.monotonic()
    bounds = drain.run()
    after, took_s = drain.writer.totals, time.monotonic() - clock
    if given.once or after.messages > before.messages:
        _say(
            given,
            "read",
            messages=after.messages - before.messages,
            rows=after.rows - before.rows,
            raw=after.rest - before.rest,
            offset=bounds.next,
            seconds=round(took_s, 3),
        )


def _say(given: argparse.Namespace, event: str, **figures: object) -> None:
    if given.json:
        show_json({"event": event, **figures})
        return
    told = (
        f"{name} {value:,}" if isinstance(value, int | float) else f"{name} {value}"
        for name, value in figures.items()
    )
    say(f"{datetime.now(UTC):%H:%M:%S} {event}  {'  '.join(told)}".rstrip())


def retention(text: str) -> timedelta:
    """Return the time of ``3d`` or ``12h``.

    Raises:
      ArgumentTypeError: the text is not like these.
    """
    number, unit = text[:-1], {"d": "days", "h": "hours"}.get(text[-1:])
    if unit is None or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not like 3d or 12h")
    return timedelta(**{unit: int(number)})


COMMAND = Command(
    _run,
    (
        Argument("--root ROOT", "directory or URI of the tables (default: diag)", default="diag"),
        Argument("--once", "read what is there now, and end"),
        Argument(
            "--interval SECONDS",
            "seconds between two looks at the stream (default: 10)",
            seconds,
            default=10.0,
        ),
        Argument(
            "--format",
            "of new tables (default: delta); plain Parquet has one writer, and is never merged",
            default="",
            choices=("delta", "parquet"),
        ),
        Argument("--compact", "merge small files, delete old ones, and end"),
        Argument(
            "--raw-max-age 30d",
            "delete older days of raw and --table, whose messages are nowhere else",
            retention,
        ),
        Argument("--stream STREAM", "the stream to read (default: /stream/DIAG)", default=DIAG),
        Argument("--table TABLE", "of the messages of --stream (default: messages)", default=TABLE),
        Argument("--body", "of --stream (binary)", default=BODY, choices=(BODY, "text", "json")),
        Argument("--schema COLUMNS", "for --body json: 'sku STRING, price DOUBLE'", default=""),
        Argument(
            "--broker-id BROKER_ID",
            "names the broker of --stream, if one root has several",
            default="",
        ),
        *SOURCE,
        JSON,
    ),
    "Write the broker's statistics or a stream to tables of Delta Lake, without Java.",
    EPILOG,
)
