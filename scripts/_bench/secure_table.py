"""Tables of the cost of security: medians, and the spread of the runs."""

import statistics
from collections.abc import Iterator, Sequence

from _bench.guarded import BARE, SETTINGS
from _bench.secure import ALLOCATOR, LARGE_BYTES, SMALL_BYTES, Costs, Logins, Measured
from _bench.spread import Row, Spread, spread_row

PROMISES = {"acl": 1.15, "tls": 3.0}
"""Maximum processor time for small bodies, relative to the bare broker."""


def ratios(runs: Sequence[Measured], settings: str, body_bytes: int) -> list[float]:
    """Return the ratio of the guarded broker's processor time to the bare one's, in each pair."""
    of_size = [run for run in runs if run.body_bytes == body_bytes]
    bare = {run.pair: run.million_s for run in of_size if run.settings == BARE}
    return [run.million_s / bare[run.pair] for run in of_size if run.settings == settings]


def secure_rows(costs: Costs) -> list[Row]:
    """Return a row for each length of bodies and each of the settings, with all its spreads."""
    return [
        _row(costs.runs, settings, what, size)
        for size in dict.fromkeys(run.body_bytes for run in costs.runs)
        for settings, what in SETTINGS.items()
    ]


def _row(runs: Sequence[Measured], settings: str, what: str, size: int) -> Row:
    mine = [run for run in runs if run.settings == settings and run.body_bytes == size]
    row: Row = {"settings": settings, "what": what, "body_bytes": size, "runs": len(mine)}
    row |= spread_row("broker_cpu_s_per_million", [run.million_s for run in mine])
    row |= spread_row("ratio", ratios(runs, settings, size))
    row["deliveries_per_s"] = statistics.median(run.deliveries / run.wall_s for run in mine)
    row["messages_per_read"] = statistics.median(run.deliveries / run.reads for run in mine)
    row["generator_cpu_s_per_million"] = statistics.median(
        run.generator_cpu_s * 1e6 / run.deliveries for run in mine
    )
    if size == SMALL_BYTES and settings in PROMISES:
        row["promised_ratio"] = PROMISES[settings]
    return row


def login_row(each: Logins) -> Row:
    """Return the cost of opening one session."""
    return {
        "what": each.what,
        "logins": each.opened,
        "broker_cpu_ms_per_login": each.broker_cpu_s * 1000 / each.opened,
        "logins_per_s": each.opened / each.wall_s,
    }


def secure_table(costs: Costs) -> str:
    """Return all of it as tables in Markdown."""
    return "\n".join([*_fanout_lines(costs), "", *_login_lines(costs.logins), "", *_words(costs)])


def _fanout_lines(costs: Costs) -> Iterator[str]:
    yield (
        "| body, bytes | broker | CPU s per million: median (quartiles; min-max) "
        "| times plain, in each pair | deliveries/s | messages a read "
        "| generator CPU s per million |"
    )
    yield "|--:|---|--:|--:|--:|--:|--:|"
    for row in secure_rows(costs):
        size, what = row["body_bytes"], row["what"]
        ratio = "" if row["settings"] == BARE else _spread(row, "ratio")
        yield (
            f"| {size} | {what} | {_spread(row, 'broker_cpu_s_per_million')} | {ratio} "
            f"| {row['deliveries_per_s']:,.0f} | {row['messages_per_read']:.1f} "
            f"| {row['generator_cpu_s_per_million']:.2f} |"
        )


def _spread(row: Row, name: str) -> Spread:
    return Spread(*(float(row[f"{name}_{part}"] or 0) for part in Spread._fields))


def _login_lines(logins: Sequence[Logins]) -> Iterator[str]:
    yield "| a session opens with | how many | broker CPU ms each | per second |"
    yield "|---|--:|--:|--:|"
    for row in map(login_row, logins):
        yield (
            f"| {row['what']} | {row['logins']} | {row['broker_cpu_ms_per_login']:.2f} "
            f"| {row['logins_per_s']:,.0f} |"
        )


def _words(costs: Costs) -> Iterator[str]:
    """Yield the options of the brokers that differ from the defaults, and the verdicts."""
    variables = " ".join(f"{name}={value}" for name, value in ALLOCATOR.items())
    yield f"brokers with bodies of {LARGE_BYTES} bytes: {variables}"
    for settings, most in PROMISES.items():
        median = statistics.median(ratios(costs.runs, settings, SMALL_BYTES))
        kept = "kept" if median <= most else "BROKEN"
        yield f"{settings}: promised {most:.2f} times plain at most, measured {median:.2f}: {kept}"
