"""Detection of trouble in the statistics: full queues, slow consumers, little headroom.

Episodes are islands: successive bad rows without a longer pause. Good rows are filtered out first,
so a day without trouble costs little.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from trio_stomp.spark._analysis import Tables, Thresholds

LEAK_FIT = 0.7
"""The minimum straightness of a leak's growth, as the square of the correlation."""
GROWTH_S = 1800
"""The minimum time after a start before growth per hour is computed."""
LEAK_SHARE = 0.2
"""The share of the prefetch above which growth is analysed, for brokers that report no ages."""


def islands(bad: DataFrame, things: Sequence[str], pause_s: float) -> DataFrame:
    """Assign numbers to the runs of neighbouring rows, in the column ``island``.

    Args:
      bad: The bad rows.
      things: The columns that identify an item.
      pause_s: The longest pause within an island, beyond the interval of the rows.
    """
    order = Window.partitionBy(*things).orderBy("ts")
    pause = (F.unix_micros("ts") - F.unix_micros(F.lag("ts").over(order))) / 1_000_000
    is_first = F.when(pause <= pause_s + 1.5 * F.col("interval_s"), 0).otherwise(1)
    numbered = bad.withColumn("is_first", is_first)
    return numbered.withColumn("island", F.sum("is_first").over(order)).drop("is_first")


def seconds(begin: str, end: str) -> Column:
    """Return the time between two columns."""
    return (F.unix_micros(end) - F.unix_micros(begin)) / 1_000_000


def episodes(tables: Tables, limits: Thresholds) -> DataFrame:
    """Return the episodes of nearly full queues: input, queues, parked messages, prefetch."""
    fills = tables["queue"].select(
        "broker_id",
        "ts",
        "interval_s",
        "destination",
        F.expr("""stack(3,
            IF(destination = 'input', 'input', 'queue'), input_depth, capacity,
            'stale', stale_depth, capacity,
            'ack', ack_depth, prefetch) AS (queue, depth, capacity)"""),
    )
    fill = F.col("depth") / F.col("capacity")
    bad = fills.where((F.col("capacity") > 0) & (fill >= limits.saturated))
    things = ["broker_id", "queue", "destination"]
    # A row is valid until the next one.
    until = F.timestamp_micros(
        F.unix_micros("ts") + (F.col("interval_s") * 1_000_000).cast("bigint")
    )
    found = (
        islands(bad, things, limits.pause_s)
        .groupBy(*things, "island")
        .agg(
            F.min("ts").alias("begin"),
            F.max(until).alias("end"),
            F.max(fill).alias("peak_fill"),
            F.max("depth").alias("peak_depth"),
            F.max("capacity").alias("capacity"),
        )
    )
    lasted = found.withColumn("seconds", seconds("begin", "end"))
    return lasted.where(F.col("seconds") >= limits.episode_s).drop("island")


def consumers(tables: Tables, limits: Thresholds) -> DataFrame:
    """Return the episodes of late acknowledgements, and their kinds.

    ``leaking``: a linearly growing number of messages is never acknowledged. ``stuck``: the oldest
    message is never acknowledged. ``slow``: messages are acknowledged late. If a broker does not
    report the age of the oldest message, it is 0, and only leaks are found, by their growth.
    """
    age, unacked = F.col("oldest_unacked_age_s"), F.col("ack_depth")
    many = (age == 0) & (F.col("prefetch") > 0) & (unacked >= LEAK_SHARE * F.col("prefetch"))
    bad = tables["queue"].where((age >= limits.slow_s) | many)
    things = ["broker_id", "destination"]
    at = F.unix_micros("ts") / 1_000_000
    found = (
        islands(bad, things, limits.pause_s)
        .groupBy(*things, "island")
        .agg(
            F.min("ts").alias("begin"),
            F.max("ts").alias("end"),
            F.min_by("ack_depth", "ts").alias("unacked_begin"),
            F.max_by("ack_depth", "ts").alias("unacked_end"),
            F.max("ack_depth").alias("unacked_peak"),
            F.max("prefetch").alias("prefetch"),
            F.max("oldest_unacked_age_s").alias("oldest_s"),
            (F.regr_slope("ack_depth", at) * 3600).alias("growth_per_h"),
            F.regr_r2("ack_depth", at).alias("fit"),
        )
        .withColumn("seconds", seconds("begin", "end"))
    )
    untold = F.col("oldest_s") == 0
    never = untold | (F.col("oldest_s") >= 0.8 * F.col("seconds"))
    grows = (F.col("growth_per_h") > 0) & (F.col("fit") >= LEAK_FIT)
    long = F.col("seconds") >= limits.leak_s
    verdict = F.when(long & never & grows, "leaking").when(long & never, "stuck").otherwise("slow")
    judged = found.withColumn("verdict", verdict).drop("island")
    return judged.where(~untold | (F.col("verdict") == "leaking"))


def slow_subscribers(tables: Tables, _limits: Thresholds) -> DataFrame:
    """Return the slow subscribers of topics, with their losses and disconnections."""
    event = tables["event"]
    count = F.coalesce(F.expr("try_cast(detail AS BIGINT)"), F.lit(1))
    is_drop = (F.col("name") == "drop") & (F.col("reason") == "slow-consumer")
    is_end = (F.col("name") == "disconnect") & (F.col("reason") == "slow-consumer")
    # The interval's total for the whole stream names no subscriber.
    bad = event.where(is_drop & (F.col("user") != "") | is_end | (F.col("name") == "slow"))
    return bad.groupBy("broker_id", "user").agg(
        F.max("destination").alias("destination"),
        F.min("ts").alias("begin"),
        F.max("ts").alias("end"),
        F.sum(F.when(F.col("name") == "slow", 1).otherwise(0)).alias("times"),
        F.sum(F.when(is_drop, count).otherwise(0)).alias("dropped"),
        F.sum(F.when(is_end, 1).otherwise(0)).alias("put_out"),
    )


def headroom(tables: Tables, limits: Thresholds) -> DataFrame:
    """Return the peak use of each scarce resource, and its growth per hour.

    Growth is measured since the last start, which may have repaired a fault.
    """
    process = tables["process"]
    last = process.groupBy("broker_id").agg(F.max_by("boot", "ts").alias("last_boot"))
    is_last = F.col("boot") == F.col("last_boot")
    at = F.unix_micros("ts") / 3_600_000_000

    last_at = F.when(is_last, at)
    is_long = F.max(last_at) - F.min(last_at) >= GROWTH_S / 3600

    def resource(name: str, column: str, capacity: float) -> DataFrame:
        slope = F.regr_slope(F.when(is_last, F.col(column)).cast("double"), at)
        growth = F.when(is_long, slope)
        return (
            process.join(F.broadcast(last), "broker_id")
            .groupBy("broker_id")
            .agg(
                F.lit(name).alias("resource"),
                F.max(column).cast("double").alias("peak"),
                F.max_by("ts", column).alias("at"),
                F.max_by(column, "ts").cast("double").alias("latest"),
                F.lit(capacity or None).cast("double").alias("capacity"),
                growth.alias("growth_per_h"),
            )
        )

    fill = F.col("input_depth") / F.col("capacity")
    input_queue = (
        tables["queue"]
        .where("destination = 'input' AND capacity > 0")
        .groupBy("broker_id")
        .agg(
            F.lit("input queue").alias("resource"),
            F.max_by("input_depth", fill).cast("double").alias("peak"),
            F.max_by("ts", fill).alias("at"),
            F.max_by("input_depth", "ts").cast("double").alias("latest"),
            F.max_by("capacity", fill).cast("double").alias("capacity"),
            F.lit(None).cast("double").alias("growth_per_h"),
        )
    )
    return (
        resource("memory", "rss_bytes", limits.memory_bytes)
        .unionByName(resource("file descriptors", "fds", limits.fds))
        .unionByName(resource("loop lag p99", "loop_lag_ms_p99", limits.lag_ms))
        .unionByName(input_queue)
    )
