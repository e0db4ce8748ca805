"""``top``: its processing of DIAG records, and its display of a real broker."""

import json
import os
import pty
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.tool_fakes import PATIENCE_S, Told, environment, run, running, started
from tests.support.tool_fakes import told as told
from trio_stomp.cli import main
from trio_stomp.cli.commands._top import _top
from trio_stomp.cli.commands._top._board import SORTS, Board, Things, percentile
from trio_stomp.cli.commands._top._screen import _time, size
from trio_stomp.testing import ThreadedBroker, threaded_broker

rich = pytest.importorskip("rich", reason="pip install 'trio-stomp[cli]'")

LE_MS = [1.0, 2.0, 4.0]


def tell(board: Board, topic: str, ts: float = 0.0, **fields: object) -> None:
    record = {"ts": f"2026-11-21T12:00:{ts:09.6f}Z", "interval_s": 2.0, "boot": "b", **fields}
    board.take(f"DIAG/{topic}", json.dumps(record).encode())


def destinations(board: Board, ts: float, full: bool = True, **enqueued: int) -> None:
    items = [
        {"destination": name, "enqueued_total": total, "delivered_total": 2 * total, "depth": total}
        for name, total in enqueued.items()
    ]
    tell(board, "destinations", ts, part=1, parts=1, full=full, items=items)


def rates(board: Board) -> dict[str, float]:
    return {row["destination"]: row["in_per_s"] for row in board.frame()["destinations"]}


def test_rates_are_of_the_last_interval() -> None:
    board = Board()
    destinations(board, 0, a=10, b=5)
    assert rates(board) == {"a": 0.0, "b": 0.0}
    destinations(board, 2, a=30, b=5)
    assert rates(board) == {"a": 10.0, "b": 0.0}
    assert board.frame()["rates"]["out_per_s"] == 20.0
    # An object that is not in a list of changes has not changed.
    destinations(board, 4, full=False, b=6)
    assert rates(board) == {"a": 0.0, "b": 0.5}
    # An object that is not in a complete list has been removed.
    destinations(board, 6, b=6)
    assert rates(board) == {"b": 0.0}


def test_a_list_in_parts_is_one_list() -> None:
    board = Board()
    destinations(board, 0, a=1, b=1, c=1)
    for part, name in ((1, "a"), (2, "b")):
        items = [{"destination": name, "enqueued_total": 5}]
        tell(board, "destinations", 2, part=part, parts=2, full=True, items=items)
    assert rates(board) == {"a": 2.0, "b": 2.0}


def test_the_first_interval_of_a_boot_has_rates_all_counters_were_0_before() -> None:
    board = Board()
    tell(board, "process", 2, uptime_s=2.1, cpu_user_s_total=0.5, cpu_sys_s_total=0.5)
    assert board.is_ready
    destinations(board, 2, a=10)
    counts = {"le_ms": LE_MS, "bucket_counts": [0, 3, 0, 0]}
    items = [{"destination": "a", "stage": "delivery", **counts}]
    tell(board, "latency", 2, part=1, parts=1, full=True, items=items)
    assert rates(board) == {"a": 5.0}
    frame = board.frame()
    assert frame["latency_ms"]["p50"] == 1.5
    assert frame["process"]["cpu_percent"] == 50.0
    tell(board, "process", 4, uptime_s=4.1)
    destinations(board, 4, a=12, late=9)
    assert rates(board) == {"a": 1.0, "late": 0.0}


def test_figures_of_a_broker_that_runs_for_long_are_no_rates_alone() -> None:
    board = Board()
    tell(board, "process", 2, uptime_s=60.0)
    destinations(board, 2, a=10)
    assert not board.is_ready
    assert rates(board) == {"a": 0.0}


def test_a_counter_that_went_back_is_no_rate() -> None:
    board = Board()
    destinations(board, 0, a=10)
    destinations(board, 2, a=3)
    assert rates(board) == {"a": 0.0}


def test_things_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_stomp.cli.commands._top._board.MAX_THINGS", 2)
    things = Things(("destination",))
    things.take({"ts": "1", "items": [{"destination": str(n)} for n in range(9)]})
    assert len(things.now) == 2


def test_a_new_boot_begins_anew() -> None:
    board = Board()
    destinations(board, 0, a=10)
    tell(board, "event/drop", name="drop", reason="slow-consumer", detail="3")
    tell(board, "process", 0, boot="other", pid=1)
    frame = board.frame()
    assert (frame["boot"], frame["drops"], frame["destinations"]) == ("other", {}, [])
    assert not board.is_ready


@pytest.mark.parametrize(
    "body", [b"", b"x", b"[1]", b"[" * 99_999, b"\xff", b'{"items": 5}', b'{"items": [5, {}]}']
)
def test_unreadable_figures_are_skipped(body: bytes) -> None:
    board = Board()
    for topic in ("DIAG/destinations", "DIAG/process", "DIAG/event/drop", "DIAG/mine", "else"):
        board.take(topic, body)
    board.frame()


def test_drops_are_counted_by_reason() -> None:
    board = Board()
    tell(board, "event/drop", name="drop", reason="slow-consumer", detail="3")
    tell(board, "event/drop", name="drop", reason="slow-consumer", detail="")
    tell(board, "event/drop", name="drop", reason="x", detail="9" * 30)
    tell(board, "event/connect", name="connect")
    assert board.frame()["drops"] == {"slow-consumer": 4, "x": 1}


def test_closed_connection_is_not_shown() -> None:
    board = Board()
    items = [{"session_id": name, "state": "open", "bytes_in_total": 1} for name in ("1", "2", "3")]
    items[2]["state"] = "closed"
    tell(board, "connections", part=1, parts=1, full=True, items=items)
    tell(board, "event/disconnect", name="disconnect", session_id="1")
    assert [row["session_id"] for row in board.frame()["connections"]] == ["2"]


def test_processor_time_is_a_share_of_the_interval() -> None:
    board = Board()
    assert board.at_s == 0.0
    tell(board, "process", 0, cpu_user_s_total=1.0, cpu_sys_s_total=1.0)
    assert board.frame()["process"]["cpu_percent"] == 0.0
    tell(board, "process", 2, cpu_user_s_total=1.5, cpu_sys_s_total=1.5)
    assert board.frame()["process"]["cpu_percent"] == 50.0
    assert board.is_ready
    assert board.at_s == 1795262402.0


def test_latencies_are_of_the_last_interval() -> None:
    board = Board()

    def tell_counts(ts: float, *counts: int, le_ms: list[float] = LE_MS) -> None:
        items = [
            {"destination": "a", "stage": stage, "le_ms": le_ms, "bucket_counts": list(counts)}
            for stage in ("delivery", "ingress")
        ]
        tell(board, "latency", ts, part=1, parts=1, full=False, items=items)

    tell_counts(0, 100, 0, 0, 0)
    assert board.frame()["latency_ms"] == {"p50": None, "p99": None}
    tell_counts(2, 100, 10, 0, 0)
    assert board.frame()["latency_ms"] == {"p50": 1.5, "p99": 1.99}
    # Other buckets than before cannot be compared.
    tell_counts(4, 1, le_ms=[])
    assert board.frame()["latency_ms"] == {"p50": None, "p99": None}


@pytest.mark.parametrize(
    ("counts", "share", "value"),
    [
        ([4, 0, 0, 0], 0.5, 0.5),
        ([0, 0, 4, 0], 1.0, 4.0),
        ([0, 0, 0, 4], 0.5, 4.0),
        ([1, 0, 1, 0], 0.5, 1.0),
        ([0, 0, 0, 0], 0.5, None),
        ([1], 0.5, None),
        ([], 0.5, None),
    ],
)
def test_percentiles(counts: list[float], share: float, value: float | None) -> None:
    assert percentile(LE_MS, counts, share) == value


@pytest.mark.parametrize(
    ("counts", "longest", "value"),
    [([0, 0, 9, 0], 2.1, 2.1), ([0, 0, 0, 9], 7.0, 7.0), ([0, 9, 0, 0], 1.999, 1.99)],
)
def test_no_percentile_is_above_the_longest(
    counts: list[float], longest: float, value: float
) -> None:
    assert percentile(LE_MS, counts, 0.99, longest) == value


@pytest.mark.parametrize("sort", SORTS)
def test_destinations_are_sorted(sort: str) -> None:
    board = Board()
    destinations(board, 0, a=0, b=0, c=0)
    destinations(board, 2, a=1, b=3, c=2)
    order = [row["destination"] for row in board.frame(sort, shown=2)["destinations"]]
    assert order == (["b", "c"] if sort in ("in", "out", "depth") else ["a", "b"])
    assert board.frame(sort, shown=2)["destinations_total"] == 3


def test_the_fullest_queues_come_first() -> None:
    board = Board()
    items = [
        {"destination": "input", "input_depth": 99},
        {"destination": "a", "input_depth": 1, "ack_depth": 2},
        {"destination": "b", "stale_depth": 5, "ack_depth": None},
    ]
    tell(board, "queues", part=1, parts=1, full=True, items=items)
    assert [row["destination"] for row in board.frame()["queues"]] == ["b", "a"]


def test_keys() -> None:
    view = _top.View("out", 5)
    for key in "pxs":
        view.press(key)
    assert (view.sort, view.is_paused, view.is_over) == ("in", True, False)
    for key in "sssssq":
        view.press(key)
    assert (view.sort, view.is_over) == ("out", True)


@pytest.mark.parametrize(
    ("show", "value", "text"),
    [
        (size, 0, "0 B"),
        (size, 1023, "1,023 B"),
        (size, 1024, "1.0 KiB"),
        (size, 5 << 30, "5.0 GiB"),
        (_time, 61, "1 min 01 s"),
        (_time, 3700, "1 h 01 min"),
        (_time, 200_000, "2 d 7 h"),
    ],
)
def test_sizes_and_times(show: Callable[[float], str], value: float, text: str) -> None:
    assert show(value) == text


def test_a_client_cannot_drive_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    from trio_stomp.cli.commands._top._screen import open_console, screen

    board = Board()
    tell(board, "process", 0, broker_id="[red]x\x1b[31m", store_bytes=5)
    for ts in (0, 2):
        items = [{"destination": name} for name in ("[bold]\x1b]0;evil\x07", "b")]
        tell(board, "destinations", ts, part=1, parts=1, full=True, items=items)
    items = [{"session_id": "1", "user": "\x1b[2J", "remote": "r", "transport": "tcp"}]
    tell(board, "connections", 0, part=1, parts=1, full=True, items=items)
    tell(board, "queues", 0, part=1, parts=1, full=True, items=[{"destination": "\x9b"}])
    tell(board, "event/drop", name="drop", reason="\x1b[1m", detail="3")
    console = open_console(is_live=False)
    console.print(screen(board.frame(shown=1), "out", is_paused=True, keys=True))
    told = capsys.readouterr().out
    assert not re.search("[\x1b\x07\x9b]", told)
    assert "[bold]" in told or "b" in told
    assert "[red]x\\x1b[31m" in told
    assert "destinations by out (1 of 2)" in told
    assert "PAUSED  q quit" in told


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadedBroker]:
    with threaded_broker(diag_interval_s=0.3) as broker:
        yield broker


def test_one_screen(broker: ThreadedBroker) -> None:
    assert run("send", "/queue/a", "x", "--url", broker.url).returncode == 0
    ran = run("top", "--once", "--url", broker.url)
    assert (ran.returncode, ran.stderr) == (0, "")
    for word in ("clients", "memory", "delivery p50", "destinations by out", "/queue/a"):
        assert word in ran.stdout
    assert "\x1b" not in ran.stdout


def test_a_frame_on_each_line_until_it_is_ended(broker: ThreadedBroker) -> None:
    ran = run("top", "--json", "--for", "4", "--url", broker.url)
    assert ran.returncode == 0, ran.stderr
    frames = [json.loads(line) for line in ran.stdout.splitlines()]
    assert 2 <= len(frames) <= 16
    assert len({frame["ts"] for frame in frames}) == len(frames)
    assert frames[0]["interval_s"] == 0.3
    assert frames[0]["process"]["rss_bytes"] > 0
    assert set(frames[0]["rates"]) == {
        f"{name}_per_s" for name in ("in", "out", "bytes_in", "bytes_out", "dropped")
    }
    with started("top", "--json", "--url", broker.url) as (process, _, stdout, _):
        assert stdout.readline().startswith("{")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def test_a_broker_without_a_stream_is_watched_too() -> None:
    with threaded_broker(diag_interval_s=0.3, diag_stream=False) as broker:
        ran = run("top", "--once", "--json", "--url", broker.url)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout)["interval_s"] == 0.3


def test_one_screen_of_a_fresh_broker_takes_one_interval_and_says_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_top, "QUIET_S", 0.5)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    interval_s = 4.0
    with threaded_broker(diag_interval_s=interval_s) as broker:
        began = time.monotonic()
        assert main(["top", "--once", "--json", "--url", broker.url]) == 0
        took_s = time.monotonic() - began
    out, err = capsys.readouterr()
    assert json.loads(out)["interval_s"] == interval_s
    assert (
        err == "waiting for figures, which the broker sends every few seconds (--diag-interval-s)\n"
    )
    assert took_s < 1.75 * interval_s, "two intervals are over"


def test_silent_broker_is_reported(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_top, "PATIENCE_S", 0.2)
    with threaded_broker(diag_interval_s=0) as broker:
        error = told("top", "--once", "--json", "--url", broker.url, code=1)
    assert "the broker sent nothing for 0.2 s; its --diag-interval-s may be 0" in error


def test_the_screen_in_a_terminal(broker: ThreadedBroker) -> None:
    ours, theirs = pty.openpty()
    with running(
        [sys.executable, "-m", "trio_stomp", "top", "--url", broker.url],
        env=environment(TERM="xterm", LINES="40"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        deadline = time.monotonic() + PATIENCE_S
        while b"q quit" not in shown and time.monotonic() < deadline:
            shown += os.read(ours, 65536)
        os.write(ours, b"spq")
        try:
            while os.read(ours, 65536):
                pass
        except OSError:
            pass  # the other end is closed
        assert process.wait(PATIENCE_S) == 0
    os.close(ours)
    assert b"clients" in shown


def test_output_without_a_terminal_has_no_screen(broker: ThreadedBroker) -> None:
    ran = run("top", "--url", broker.url)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "standard output is not a terminal; use --once, or --json" in ran.stderr


def test_without_rich_it_is_named(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert "pip install rich; or use --json" in told("top", "--once", code=1)
