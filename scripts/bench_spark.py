"""Measure the source, the tables and the analysis on synthetic data, with Spark and DuckDB.

    python scripts/bench_spark.py source --root /tmp/bench    600,000 messages of a broker's stream
    python scripts/bench_spark.py day --root /tmp/bench       a day of 10 s statistics, in tables
    python scripts/bench_spark.py rows --root /tmp/bench      50,000,000 rows, analysed

The source's messages are JSON of 393 bytes, in the stream of a broker with a data directory, which
the script starts. `trio-stomp spark once` drains it, and each micro-batch is
reported with its rows/s and the processor time of Spark (all its processes) and of the broker.

The day has 1,000 connections and 1,000 destinations: all are listed once a minute, and one in ten
in between, as the broker does. ``--latency full`` lists all latencies at each tick. It is written
without Spark, with a commit for each minute, and then compacted. The rows are of destinations,
queues and latencies, over twelve days. Generated data is kept, so a second run only measures.

DuckDB answers some of the questions from the same files, if it is installed. Needs Linux.
"""

import argparse
import importlib.util
import json
import os
import platform
import random
import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _bench.process import BenchError
from _bench.spark_source import Amount, measure_source

from trio_stomp.spark import SparkMissing, check_installed, open_session
from trio_stomp.spark._analysis import Thresholds
from trio_stomp.spark._results import analyse
from trio_stomp.spark._rows import RowBuilder
from trio_stomp.spark._session import settings
from trio_stomp.spark.lake import Store, Writer, compact, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = date(2026, 3, 14)
FIRST, DAYS = date(2026, 4, 1), 12
INTERVAL_S = 10
TICKS_A_BATCH = 6
BOUNDS = [0.05 * 2**power for power in range(21)]
PREFIX = '{{"v":1,"broker_id":"bench","epoch":"e1","offset":{offset},"ts":"{ts}","interval_s":10.0'
PREFIX += ',"boot":"b1"'
PAGE = PREFIX + ',"part":1,"parts":1,"full":false,"items":[{items}]}}'

ROWS: dict[str, tuple[int, int, dict[str, str]]] = {
    "destination": (
        8,
        500,
        {
            "enqueued_total": "{n} * ({t} + 1)",
            "delivered_total": "{n} * ({t} + 1) * 2",
            "acked_total": "0L",
            "nacked_total": "0L",
            "dropped_total": "{n} div 100",
            "bytes_in_total": "{n} * 117",
            "bytes_out_total": "{n} * 210",
            "depth": "CAST(rand(1) * 10 AS BIGINT)",
        },
    ),
    "queue": (
        1,
        50,
        {
            "capacity": "5000L",
            "prefetch": "1000L",
            "input_depth": "CAST(2500 + 2500 * sin({n} / 3000 + {t}) AS BIGINT)",
            "stale_depth": "0L",
            "ack_depth": "CAST(rand(2) * 100 AS BIGINT)",
            "oldest_unacked_age_s": "rand(3) * 20",
        },
    ),
    "latency": (
        1,
        200,
        {
            "stage": "'delivery'",
            "count_total": "{n} * 40",
            "sum_ms_total": "CAST({n} AS DOUBLE)",
            "max_ms": "9.5D",
            "le_ms": f"array({', '.join(f'{bound}D' for bound in BOUNDS)})",
            "bucket_counts": "transform(sequence(1, 22), b -> {n} * CASE b WHEN 5 THEN 9"
            " WHEN 6 THEN 20 WHEN 7 THEN 10 WHEN 8 THEN 1 ELSE 0 END)",
        },
    ),
}
"""For each table: the share of rows in tenths, the number of things, and the columns. {n} is the
tick, {t} the thing."""

TRAFFIC_SQL = """
WITH last AS (
  SELECT destination, boot, time_bucket(INTERVAL 1 MINUTE, ts) AS bucket,
    max(enqueued_total) AS enqueued, max(delivered_total) AS delivered
  FROM {destination} GROUP BY ALL
), grown AS (
  SELECT bucket, destination, enqueued - lag(enqueued) OVER w AS enqueued,
    delivered - lag(delivered) OVER w AS delivered
  FROM last WINDOW w AS (PARTITION BY destination, boot ORDER BY bucket)
) SELECT bucket, sum(enqueued) / 60, sum(delivered) / 60 FROM grown GROUP BY bucket"""
LATENCY_SQL = """
WITH last AS (
  SELECT destination, stage, time_bucket(INTERVAL 15 MINUTE, ts) AS bucket,
    max_by(bucket_counts, ts) AS counts FROM {latency} GROUP BY ALL
), grown AS (
  SELECT destination, stage, unnest(counts) AS now, generate_subscripts(counts, 1) AS place, bucket
  FROM last
), diffs AS (
  SELECT destination, stage, place, now - lag(now) OVER (
    PARTITION BY destination, stage, place ORDER BY bucket) AS number FROM grown
) SELECT destination, stage, place, sum(number) FROM diffs GROUP BY ALL"""
EPISODES_SQL = """
WITH bad AS (
  SELECT destination, ts, input_depth / capacity AS fill,
    ts - lag(ts) OVER w > INTERVAL 75 SECONDS AS is_first
  FROM {queue} WHERE input_depth >= 0.8 * capacity
  WINDOW w AS (PARTITION BY destination ORDER BY ts)
), islands AS (
  SELECT *, sum(coalesce(is_first, true)::INT) OVER (PARTITION BY destination ORDER BY ts) AS island
  FROM bad
) SELECT destination, min(ts), max(ts), max(fill) FROM islands GROUP BY destination, island"""


def day_messages(latency: str) -> Iterator[tuple[datetime, str, str]]:
    """Yield time, topic and body of all messages of a day."""
    chance = random.Random(1)
    names = [f"/queue/orders.{number:04d}" for number in range(1000)]
    sent = [0] * len(names)
    counts = [[0] * 22 for _ in names]
    offset = 0
    for tick in range(86_400 // INTERVAL_S):
        moment = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC) + timedelta(
            seconds=tick * INTERVAL_S
        )
        every = range(len(names))
        changed = every if tick % TICKS_A_BATCH == 0 else sorted(chance.sample(every, 100))
        for place in changed:
            sent[place] += chance.randrange(1, 50)
            counts[place][chance.randrange(3, 9)] += 7
        timed = every if latency == "full" else changed
        for topic, items in (
            ("DIAG/destinations", (destination(names[n], sent[n]) for n in changed)),
            (
                "DIAG/latency",
                (times(names[n], counts[n], s) for n in timed for s in STAGES),
            ),
            ("DIAG/queues", (queue(names[n], sent[n] % 90) for n in range(20))),
            ("DIAG/connections", (connection(n, sent[n]) for n in changed)),
            ("DIAG/process", None),
            ("DIAG/session", None),
        ):
            form = PREFIX + "}}" if items is None else PAGE
            text = form.format(
                offset=offset,
                ts=moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                items=",".join(items or ()),
            )
            yield moment, topic, text
            offset += 1


STAGES = ("ingress", "delivery")


def destination(name: str, sent: int) -> str:
    """Return an item of ``DIAG/destinations``."""
    return (
        f'{{"destination":"{name}","type":"work-queue","subscribers":2,"enqueued_total":{sent},'
        f'"delivered_total":{sent},"acked_total":{sent},"nacked_total":0,"dropped_total":0,'
        f'"bytes_in_total":{sent * 117},"bytes_out_total":{sent * 210},"depth":0,"unacked":0}}'
    )


def times(name: str, counts: list[int], stage: str) -> str:
    """Return an item of ``DIAG/latency``."""
    return (
        f'{{"destination":"{name}","stage":"{stage}","count_total":{sum(counts)},'
        f'"sum_ms_total":12.5,"max_ms":3.25,"le_ms":{BOUNDS},"bucket_counts":{counts}}}'
    )


def connection(number: int, sent: int) -> str:
    """Return an item of ``DIAG/connections``."""
    return (
        f'{{"session_id":"s{number}","user":"shop","remote":"10.0.0.1:{40000 + number}",'
        '"transport":"tcp","stomp_version":"1.2","state":"open",'
        '"connected_at":"2026-03-14T00:00:00.000000Z","subscriptions":1,'
        f'"frames_in_total":{sent},"frames_out_total":{sent},"bytes_in_total":{sent * 117},'
        f'"bytes_out_total":{sent * 210},"errors_total":0,"heartbeats_missed_total":0,'
        '"heartbeat_rtt_ms":null,"last_in_age_s":0.25}'
    )


def queue(name: str, depth: int) -> str:
    """Return an item of ``DIAG/queues``."""
    return (
        f'{{"destination":"{name}","subscription_id":null,"input_depth":{depth},"stale_depth":0,'
        f'"ack_depth":{depth},"input_bytes":0,"capacity":1000,"oldest_input_age_s":0.1,'
        '"oldest_unacked_age_s":0.2,"prefetch":100,"redelivered_total":0,"expired_total":0,'
        '"dropped_total":0,"nacked_total":0,"enqueued_total":0,"acked_total":0}'
    )


def write_day(root: Path, latency: str) -> None:
    """Write a day to tables, minute by minute, and merge their files."""
    store = open_store(root)
    writer = Writer(store, "/stream/DIAG")
    writing = size = 0.0
    messages: list[tuple[int, int, bytes, bytes]] = []
    for number, (moment, topic, body) in enumerate(day_messages(latency)):
        head = f"MESSAGE\ndestination:{topic}\n".encode()
        messages.append((number, int(moment.timestamp() * 1000), head, body.encode()))
        size += len(body)
        if len(messages) < 6 * TICKS_A_BATCH:
            continue
        clock = time.process_time()
        at = moment.isoformat()
        rows = RowBuilder("/stream/DIAG", "e1", messages[0][0], planned_at=at, broker_id="")
        for batch in (*rows.add(messages), *rows.flush()):
            writer.add(batch)
        writer.flush()
        messages.clear()
        writing += time.process_time() - clock
    files = count_files(store)
    clock, cpu = time.monotonic(), time.process_time()
    compact(store, DAY + timedelta(days=1))
    say(
        "a day in tables",
        messages=writer.totals.messages,
        rows=writer.totals.rows,
        json_mb=round(size / 1e6),
        write_cpu_s=round(writing, 1),
        files_before=files,
        files=count_files(store),
        merge_s=round(time.monotonic() - clock, 1),
        merge_cpu_s=round(time.process_time() - cpu, 1),
        mb=round(sum(store.size(name) for name in store.place.names("tables")) / 1e6),
    )


def count_files(store: Store) -> int:
    """Return the number of files of all tables."""
    return sum(len(store.files(name)) for name in store.place.names("tables"))


def make_rows(spark: "SparkSession", root: Path, rows: int) -> None:
    """Write tables of ``rows`` rows in all: eight of ten are of destinations."""
    start = int(datetime(FIRST.year, FIRST.month, FIRST.day, tzinfo=UTC).timestamp())
    with settings(spark):
        for kind, (parts, things, own) in ROWS.items():
            number = rows * parts // 10
            step = DAYS * 86_400 * things / number
            moment = f"({start} + floor(id / {things}) * {step}) * 1000000"
            common = {
                "broker_id": "'bench'",
                "epoch": "'e1'",
                "boot": "'b1'",
                "offset": "id",
                "ts": f"timestamp_micros(CAST({moment} AS BIGINT))",
                "interval_s": f"CAST({max(step, 1)} AS DOUBLE)",
                "destination": f"concat('/queue/n', id % {things})",
            }
            texts = [
                f"{text.format(n=f'floor(id / {things})', t=f'(id % {things})')} AS {name}"
                for name, text in (common | own).items()
            ]
            frame = spark.range(0, number, 1, DAYS * 2).selectExpr(*texts)
            dated = frame.selectExpr("*", "to_date(ts) AS date").repartition("date")
            ordered = dated.sortWithinPartitions("date", "destination", "ts")
            writer = ordered.write.option("compression", "zstd")
            writer.parquet(str(root / "tables" / kind))


def measure_rows(spark: "SparkSession", root: Path, rows: int) -> None:
    """Make rows if there are none, and analyse them."""
    if not (root / "tables").exists():
        clock = time.monotonic()
        make_rows(spark, root, rows)
        say("rows made", rows=rows, s=round(time.monotonic() - clock, 1))
    clock = begin = time.monotonic()
    used = first_used = cpu_s(spark)
    last = FIRST + timedelta(days=DAYS - 1)
    for name in analyse(spark, root, FIRST, last, thresholds=Thresholds()):
        now, after = time.monotonic(), cpu_s(spark)
        say("Spark", result=name, s=round(now - clock, 1), cpu_s=round(after - used, 1))
        clock, used = now, after
    say("Spark", result="all", s=round(clock - begin, 1), cpu_s=round(used - first_used, 1))


def measure_duckdb(root: Path) -> None:
    """Measure the queries that are most expensive for Spark with DuckDB."""
    import duckdb

    files = {
        kind: f"read_parquet('{root}/tables/{kind}/*.parquet')"
        for kind in ("destination", "queue", "latency")
    }
    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    count = "SELECT count(*) FROM {destination}"
    questions = {
        "count": count,
        "rates, traffic": TRAFFIC_SQL,
        "latency": LATENCY_SQL,
        "episodes": EPISODES_SQL,
    }
    for name, sql in questions.items():
        clock, used = time.monotonic(), time.process_time()
        found = len(connection.execute(sql.format(**files)).fetchall())
        took, used = time.monotonic() - clock, time.process_time() - used
        say("DuckDB", result=name, s=round(took, 2), cpu_s=round(used, 2), rows=found)


def cpu_s(spark: "SparkSession") -> float:
    """Return the processor time of Spark's JVM, which hardly depends on other programs."""
    gateway: Any = spark.sparkContext._gateway
    text = Path(f"/proc/{gateway.proc.pid}/stat").read_text(encoding="ascii")
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def say(what: str, **figures: object) -> None:
    """Print one line of JSON."""
    print(json.dumps({"what": what, **figures}), flush=True)


def measure_spark(options: argparse.Namespace) -> None:
    """Measure the analysis."""
    spark = open_session("bench_spark", conf={"spark.driver.memory": options.memory})
    spark.sparkContext.setLogLevel("ERROR")
    root = options.root / "rows"
    measure_rows(spark, root, options.rows)
    spark.stop()
    if importlib.util.find_spec("duckdb") is not None:
        measure_duckdb(root)


def main() -> int:
    """Run the requested measurement, and return the exit code."""
    amount = Amount()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("what", choices=("source", "day", "rows"))
    add("--root", type=Path, required=True)
    add("--messages", type=int, default=amount.messages, help="source: messages in the stream")
    add("--body-bytes", type=int, default=amount.body_bytes, help="source: size of a message")
    add("--max-rows", type=int, default=amount.max_rows, help="source: rows of a micro-batch")
    add("--runs", type=int, default=1, help="source: number of runs")
    add("--rows", type=int, default=50_000_000)
    add("--latency", choices=("changed", "full"), default="changed")
    add("--memory", default="4g", help="rows: of the JVM")
    options = parser.parse_args()
    say("machine", python=platform.python_version(), system=platform.platform())
    try:
        if options.what == "day":
            write_day(options.root / "day", options.latency)
            return 0
        check_installed()
        if options.what == "source":
            asked = Amount(options.messages, options.body_bytes, options.max_rows)
            measure_source(options.root / "source", asked, options.runs, say)
        else:
            measure_spark(options)
    except (BenchError, SparkMissing) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
