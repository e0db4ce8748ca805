"""The screen of ``top``: a frame of figures as ``rich`` tables."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from trio_stomp.base import rounded_size
from trio_stomp.cli._tool import CannotDo, printable


def open_console(*, is_live: bool) -> Any:  # noqa: ANN401
    """Return a ``rich`` console.

    Raises:
      CannotDo: rich is not installed.
    """
    try:
        # Optional: mypy does not find it where it is not installed.
        console = importlib.import_module("rich.console").Console(highlight=False)
    except ModuleNotFoundError:
        raise CannotDo(
            "this needs rich, which is not installed: pip install rich; or use --json"
        ) from None
    if is_live and not console.is_terminal:
        raise CannotDo("standard output is not a terminal; use --once, or --json")
    return console


def screen(
    frame: Mapping[str, Any], sort: str, *, is_paused: bool = False, keys: bool = False
) -> Any:  # noqa: ANN401
    """Return the screen of a frame."""
    group = importlib.import_module("rich.console").Group
    parts = [_head(frame)]
    if frame["destinations"]:
        parts.append(_destinations(frame, sort))
    if frame["queues"]:
        parts.append(_queues(frame["queues"]))
    if frame["connections"]:
        parts.append(_connections(frame["connections"]))
    if frame["drops"]:
        reasons = ", ".join(f"{reason} {many:,}" for reason, many in frame["drops"].items())
        parts.append(_text(f"dropped: {reasons}", "yellow"))
    if keys:
        state = "PAUSED  " if is_paused else ""
        parts.append(_text(f"{state}q quit  p pause  s sort ({sort})", "dim"))
    return group(*parts)


def _text(text: str, style: str = "") -> Any:  # noqa: ANN401
    # Plain text, as client-chosen names could contain markup.
    return importlib.import_module("rich.text").Text(printable(text), style=style)


def _head(frame: Mapping[str, Any]) -> Any:  # noqa: ANN401
    process, rates, waiting = frame["process"], frame["rates"], frame["waiting"]
    latency = frame["latency_ms"]
    lines = [
        f"{frame['broker_id']}  up {_time(frame['uptime_s'])}  {frame['ts']}",
        f"clients {frame['clients']:,} ({frame['websockets']:,} WebSocket)  "
        f"subscriptions {frame['subscriptions']:,}",
        f"in {rates['in_per_s']:,}/s {rounded_size(rates['bytes_in_per_s'])}/s  "
        f"out {rates['out_per_s']:,}/s {rounded_size(rates['bytes_out_per_s'])}/s  "
        f"dropped {rates['dropped_per_s']:,}/s",
        f"delivery p50 {_ms(latency['p50'])}  p99 {_ms(latency['p99'])}  "
        f"loop p99 {_ms(process['loop_lag_ms_p99'])}  max {_ms(process['loop_lag_ms_max'])}",
        f"memory {rounded_size(process['rss_bytes'])}  cpu {process['cpu_percent']} %  "
        f"files {process['fds']:,}  threads {process['threads']:,}"
        + (f"  store {rounded_size(process['store_bytes'])}" if process["store_bytes"] else ""),
        f"waiting: input {waiting['input']:,}  output {waiting['output']:,}  "
        f"stale {waiting['stale']:,}",
    ]
    group = importlib.import_module("rich.console").Group
    return group(_text(lines[0], "bold"), *map(_text, lines[1:]))


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[object]]) -> Any:  # noqa: ANN401
    table = importlib.import_module("rich.table").Table(
        title=title, title_justify="left", box=None, pad_edge=False
    )
    for number, name in enumerate(names):
        is_text = all(isinstance(row[number], str) for row in rows)
        table.add_column(
            name, justify="left" if is_text else "right", no_wrap=True, overflow="ellipsis"
        )
    for row in rows:
        table.add_row(*(_text(_cell(cell)) for cell in row))
    return table


def _cell(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    return f"{cell:,}" if isinstance(cell, int) else "" if cell is None else str(cell)


def _destinations(frame: Mapping[str, Any], sort: str) -> Any:  # noqa: ANN401
    rows, total = frame["destinations"], frame["destinations_total"]
    fields = ("in_per_s", "out_per_s", "depth", "unacked", "dropped_total", "subscribers")
    return _table(
        f"destinations by {sort}" + (f" ({len(rows)} of {total:,})" if total > len(rows) else ""),
        ("destination", "in/s", "out/s", "depth", "unacked", "dropped", "subscribers", "p99 ms"),
        [
            (row["destination"], *(row[each] for each in fields), row["latency_ms"]["p99"])
            for row in rows
        ],
    )


def _queues(rows: Sequence[Mapping[str, Any]]) -> Any:  # noqa: ANN401
    fields = ("input_depth", "stale_depth", "ack_depth", "oldest_input_age_s")
    return _table(
        "queues",
        ("queue", "waiting", "stale", "unacked", "oldest s"),
        [(str(row["destination"]), *(row[each] for each in fields)) for row in rows],
    )


def _connections(rows: Sequence[Mapping[str, Any]]) -> Any:  # noqa: ANN401
    return _table(
        "connections",
        ("user", "from", "over", "subs", "in B/s", "out B/s", "session"),
        [
            (
                str(row["user"] or ""),
                str(row["remote"] or ""),
                str(row["transport"] or ""),
                row["subscriptions"] or 0,
                row["bytes_in_per_s"],
                row["bytes_out_per_s"],
                str(row["session_id"] or ""),
            )
            for row in rows
        ],
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f} ms"


def _time(seconds: float) -> str:
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return (
        f"{hours} h {minutes % 60:02} min" if hours else f"{minutes} min {int(seconds) % 60:02} s"
    )
