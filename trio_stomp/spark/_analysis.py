"""Analysis of the statistics: rates, latencies, trouble, headroom.

Handles: counters that restart, lists that report only changes, lost messages. Does not handle:
words and pictures (``reporting``), making the tables (``_compact``).

Each function computes one table of results; ``RESULTS`` lists them. All are lazy, and only the
percentiles pass through the driver.

An item that is missing from a list within a minute has not changed. So a counter's increase
between two rows belongs to the end of that time, and no gaps need filling.
"""

from collections.abc import Mapping, Sequence
from math import ceil, log

import attrs
from attrs import frozen
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, LongType

from trio_stomp.base import percentile

Tables = Mapping[str, DataFrame]

TRAFFIC = (
    "enqueued_total",
    "delivered_total",
    "acked_total",
    "nacked_total",
    "dropped_total",
    "bytes_in_total",
    "bytes_out_total",
)
COUNTS = tuple(name.removesuffix("_total") for name in TRAFFIC)

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
"""The percentiles of latencies. Counts can be added up; percentiles cannot."""

SPAN_S = 6 * 3600
"""From this span on, buckets have the widths of the thresholds."""
WIDTHS_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900)
"""The bucket widths for shorter spans."""
NEW_S = 180
"""All items are reported once a minute, so an item first seen later than this is new."""
WHOLE_TICKS = 3
"""A broker first heard within this many intervals of its start has reported all its counts."""


@frozen
class Thresholds:
    """The thresholds of trouble, and the widths of time buckets.

    Args:
      bucket_s: Width for rates, if the data cover six hours or more (else see ``fitted``).
      coarse_s: Width for latencies and drops, under the same condition.
      saturated: Share of a queue's capacity that counts as full.
      episode_s: The shortest saturation worth reporting.
      pause_s: The longest interruption within one episode.
      slow_s: Age of the oldest unacknowledged message that counts as slow.
      leak_s: How long a consumer's backlog must grow to count as a leak.
      lag_ms: How long 99 of 100 turns may occupy the event loop.
      memory_bytes: The broker's memory limit; 0 = unknown.
      fds: The broker's limit on file descriptors; 0 = unknown.
    """

    bucket_s: int = 60
    coarse_s: int = 900
    saturated: float = 0.8
    episode_s: int = 60
    pause_s: int = 60
    slow_s: float = 30.0
    leak_s: int = 900
    lag_ms: float = 50.0
    memory_bytes: float = 0.0
    fds: int = 0

    def fitted(self, span_s: float, interval_s: float) -> "Thresholds":
        """Return the thresholds with bucket widths that suit data of this span."""
        if span_s >= SPAN_S:
            return self
        fine = _width(min(span_s / 120, self.bucket_s), interval_s)
        coarse = _width(min(span_s / 24, self.coarse_s), fine)
        return attrs.evolve(self, bucket_s=fine, coarse_s=coarse)


def _width(about_s: float, least_s: float) -> int:
    wide = [width for width in WIDTHS_S if width >= least_s] or [ceil(least_s)]
    return min(wide, key=lambda width: abs(log(width / about_s)) if about_s else width)


def bucket(width_s: int) -> Column:
    """Return the start of a row's time bucket."""
    seconds = F.floor(F.unix_micros("ts") / (width_s * 1_000_000)) * width_s
    return F.timestamp_seconds(seconds).alias("bucket")


def is_new(is_first: Column, after_s: int) -> Column:
    """Return whether an item's first row covers its whole life.

    It does if the data contain the broker's start, or if the item appeared when the broker had been
    heard for a while.
    """
    age_s = F.unix_seconds("bucket") - F.unix_seconds("begin")
    return is_first & (F.col("is_whole") | (age_s >= max(after_s, NEW_S)))


def whole_boots(process: DataFrame) -> DataFrame:
    """Return the starts of a broker within the data. Their counters began at 0."""
    whole = F.min("uptime_s") <= WHOLE_TICKS * F.max("interval_s")
    return process.groupBy("broker_id", "boot").agg(whole.alias("is_whole"))


def unheard(process: DataFrame, width_s: int) -> DataFrame:
    """Return for each bucket how long the broker was silent before it."""
    order = Window.partitionBy("broker_id").orderBy("bucket")
    gone = F.unix_seconds("bucket") - F.unix_seconds(F.lag("bucket").over(order))
    hole = F.when(gone > 3 * width_s, gone - width_s).otherwise(0)
    reported = process.select("broker_id", bucket(width_s)).distinct()
    return reported.select("broker_id", "bucket", F.sum(hole).over(order).alias("unheard_s"))


def increases(
    tables: Tables, kind: str, keys: Sequence[str], counters: Sequence[str], width_s: int
) -> DataFrame:
    """Return the growth of counters in each bucket, for each item.

    Counters restart at 0 with the broker, and when an item is reported with less than before. The
    values in an item's first row do not count, unless the item is new or the data contain the start
    of its broker. ``span_s`` is the time of the growth: the bucket, plus any preceding time without
    statistics.

    Counters only grow, so a bucket's maximum is its last value, and rows need no sorting.
    """
    things = ["broker_id", *keys]
    last = (
        tables[kind]
        .groupBy(*things, "boot", bucket(width_s))
        .agg(F.min("ts").alias("at"), *(F.max(name).alias(name) for name in counters))
    )
    begins = last.groupBy("broker_id").agg(F.min("bucket").alias("begin"))
    order = Window.partitionBy(*things).orderBy("at")
    gone = F.unix_seconds("bucket") - F.unix_seconds(F.lag("bucket").over(order))
    lost = F.col("unheard_s") - F.lag("unheard_s").over(order)
    same_boot = F.lag("boot").over(order) == F.col("boot")

    def increase(name: str) -> Column:
        now, before = F.col(name), F.lag(name).over(order)
        grown = F.when(same_boot & (now >= before), now - before).otherwise(now)
        first = F.when(is_new(before.isNull(), 3 * width_s), now).otherwise(F.lit(0))
        return F.when(before.isNull(), first).otherwise(grown).alias(name.removesuffix("_total"))

    boots = whole_boots(tables["process"])
    if kind == "process":  # its counters cover the life of the process, which is longer
        boots = boots.withColumn("is_whole", F.lit(False))
    # If it is unknown when the broker was heard, a long time without a row means no change.
    span = F.when(same_boot & (gone > 3 * width_s), F.coalesce(lost + width_s, gone))
    return (
        last.join(F.broadcast(begins), "broker_id")
        .join(F.broadcast(boots), ["broker_id", "boot"], "left")
        .join(F.broadcast(unheard(tables["process"], width_s)), ["broker_id", "bucket"], "left")
        .select(
            *things,
            "bucket",
            F.coalesce(span, F.lit(width_s)).alias("span_s"),
            *(increase(name) for name in counters),
        )
    )


def rates(tables: Tables, limits: Thresholds) -> DataFrame:
    """Return the counts of each destination in each bucket."""
    return increases(tables, "destination", ["destination"], TRAFFIC, limits.bucket_s)


def traffic(tables: Tables, _limits: Thresholds) -> DataFrame:
    """Return messages and bytes per second over all destinations, by bucket."""
    sums = [F.sum(F.col(name) / F.col("span_s")).alias(f"{name}_per_s") for name in COUNTS]
    return tables["rates"].groupBy("broker_id", "bucket").agg(*sums)


def top_destinations(tables: Tables, _limits: Thresholds) -> DataFrame:
    """Return the totals of each destination, and the rate of its busiest bucket."""
    busiest = F.max(F.col("enqueued") / F.col("span_s")).alias("peak_per_s")
    sums = [F.sum(name).alias(name) for name in COUNTS]
    return tables["rates"].groupBy("broker_id", "destination").agg(*sums, busiest)


def bucket_counts(tables: Tables, limits: Thresholds) -> DataFrame:
    """Return the number of messages in each histogram bucket, by destination and time."""
    things = ["broker_id", "destination", "stage"]
    frame = tables["latency"].withColumn("bucket", bucket(limits.coarse_s))
    # The last row of each stretch of time, found without moving the arrays.
    ends = frame.groupBy(*things, "boot", "bucket").agg(F.max("ts").alias("ts"))
    last = frame.join(ends, [*things, "boot", "bucket", "ts"], "left_semi")
    begins = ends.groupBy("broker_id").agg(F.min("bucket").alias("begin"))
    order = Window.partitionBy(*things).orderBy("ts")

    def before(name: str) -> Column:
        return F.lag(name).over(order)

    grown = (
        F.when(is_new(before("count_total").isNull(), limits.coarse_s), F.col("bucket_counts"))
        .when(before("count_total").isNull(), F.transform("bucket_counts", lambda _: F.lit(0)))
        .when(
            (before("boot") == F.col("boot"))
            & (before("count_total") <= F.col("count_total"))
            & (before("le_ms") == F.col("le_ms")),
            F.zip_with("bucket_counts", before("bucket_counts"), lambda now, old: now - old),
        )
        .otherwise(F.col("bucket_counts"))
    )
    return (
        last.join(F.broadcast(begins), "broker_id")
        .join(F.broadcast(whole_boots(tables["process"])), ["broker_id", "boot"], "left")
        .withColumn("grown", grown)
        .select(*things, "bucket", "le_ms", F.posexplode("grown").alias("place", "count"))
        .where("count > 0")
    )


def latency(frame: DataFrame, things: Sequence[str]) -> DataFrame:
    """Return the percentiles of summed histograms, for each of ``things`` and stage."""
    by = ["broker_id", "stage", *things, "le_ms"]
    sums = frame.groupBy(*by, "place").agg(F.sum("count").alias("count"))
    pairs = F.collect_list(F.struct("place", "count")).alias("pairs")
    rows = []
    for row in sums.groupBy(*by).agg(pairs).collect():
        counts = [0] * (len(row["le_ms"]) + 1)
        for place, count in row["pairs"]:
            counts[place] = count
        found = [percentile(row["le_ms"], counts, share) for share in SHARES.values()]
        rows.append((*(row[name] for name in by), counts, sum(counts), *found))
    types = sums.select(*by).schema.add("counts", ArrayType(LongType())).add("messages", LongType())
    for name in SHARES:
        types = types.add(name, DoubleType())
    return frame.sparkSession.createDataFrame(rows, types)


def latency_by_time(tables: Tables, _limits: Thresholds) -> DataFrame:
    """Return the percentiles of each time bucket, over all destinations."""
    return latency(tables["bucket_counts"], ["bucket"])


def latency_by_destination(tables: Tables, _limits: Thresholds) -> DataFrame:
    """Return the percentiles of each destination, over the whole time."""
    return latency(tables["bucket_counts"], ["destination"])


def drops(tables: Tables, limits: Thresholds) -> DataFrame:
    """Return the number of lost messages, by reason, destination, user and time."""
    count = F.coalesce(F.expr("try_cast(detail AS BIGINT)"), F.lit(1))
    return (
        tables["event"]
        .where(F.col("name") == "drop")
        .groupBy("broker_id", "reason", "destination", "user", bucket(limits.coarse_s))
        .agg(F.sum(count).alias("dropped"))
    )


def load(tables: Tables, limits: Thresholds) -> DataFrame:
    """Return the worst value of each process figure, by bucket."""
    worst = (
        "rss_bytes",
        "fds",
        "trio_tasks",
        "loop_lag_ms_p50",
        "loop_lag_ms_p99",
        "loop_lag_ms_max",
    )
    return (
        tables["process"]
        .groupBy("broker_id", "boot", bucket(limits.bucket_s))
        .agg(*(F.max(name).alias(name) for name in worst))
    )


def processor(tables: Tables, limits: Thresholds) -> DataFrame:
    """Return the share of one processor core that the broker used, by bucket."""
    counters = ["cpu_user_s_total", "cpu_sys_s_total", "gc_pause_ms_total"]
    used = (F.col("cpu_user_s") + F.col("cpu_sys_s")) / F.col("span_s")
    return increases(tables, "process", [], counters, limits.bucket_s).select(
        "broker_id", "bucket", used.alias("cores"), "gc_pause_ms"
    )


def clients(tables: Tables, limits: Thresholds) -> DataFrame:
    """Return the maximum number of clients, by bucket."""
    names = ("clients", "websockets", "subscriptions")
    most = [F.max(name).alias(name) for name in names]
    return tables["session"].groupBy("broker_id", bucket(limits.bucket_s)).agg(*most)


def depths(tables: Tables, limits: Thresholds) -> DataFrame:
    """Return the largest backlogs by bucket: input, queues, parked, unacknowledged."""
    is_input = F.col("destination") == "input"
    by_tick = (
        tables["queue"]
        .groupBy("broker_id", "ts")
        .agg(
            F.sum(F.when(is_input, F.col("input_depth"))).alias("input"),
            F.sum(F.when(~is_input, F.col("input_depth"))).alias("queues"),
            F.sum("stale_depth").alias("stale"),
            F.sum("ack_depth").alias("unacked"),
        )
    )
    most = [F.max(name).alias(name) for name in ("input", "queues", "stale", "unacked")]
    return by_tick.groupBy("broker_id", bucket(limits.bucket_s)).agg(*most)


def starts(tables: Tables, _limits: Thresholds) -> DataFrame:
    """Return each start of a broker in the data, and when it was last heard."""
    return (
        tables["process"]
        .groupBy("broker_id", "boot")
        .agg(
            F.min("ts").alias("first"),
            F.max("ts").alias("last"),
            F.min(F.timestamp_micros(
                F.unix_micros("ts") - (F.col("uptime_s") * 1_000_000).cast("bigint")
            )).alias("started"),
            F.count("*").alias("ticks"),
            F.max("interval_s").alias("interval_s"),
        )
    )  # fmt: skip


def gaps(tables: Tables, _limits: Thresholds) -> DataFrame:
    """Return the gaps in the statistics."""
    lost = (F.col("hi") - F.col("lo")).alias("messages")
    return tables["_gap"].select("broker_id", "ts", "prev_epoch", "lo", "hi", lost, "reason")
