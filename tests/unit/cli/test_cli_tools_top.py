"""``top``: rates between two snapshots, and its display of a real broker."""

import json
import os
import pty
import re
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.commands import parser_of
from tests.support.tool_fakes import PATIENCE_S, OutputOf, environment, run, running, started
from tests.support.tool_fakes import output_of as output_of
from trio_stomp.cli.commands._top import _top
from trio_stomp.cli.commands._top._frame import Growth, Record, Snapshot, frame
from trio_stomp.cli.commands._top._screen import _time, open_console, screen
from trio_stomp.testing import ThreadedBroker, threaded_broker

rich = pytest.importorskip("rich", reason="pip install 'trio-stomp[cli]'")

LE_MS = [1.0, 2.0, 4.0]
STALE = dict.fromkeys(("input_queue_size", "output_queue_size", "stale_queue_size"), 0)
SESSION = dict.fromkeys(("clients", "websockets", "subscriptions"), 0)


def destination(name: str, total: int = 0, **fields: object) -> Record:
    figures = dict.fromkeys(("subscribers", "depth", "unacked", "dropped_total"), 0)
    rates = {"enqueued_total": total, "delivered_total": 2 * total, "depth": total}
    return {"destination": name, "type": "topic", **figures, **rates, **fields}


def snapshot(uptime_s: float, *destinations: Record, boot: str = "b", **more: object) -> Snapshot:
    names = ("rss_bytes", "fds", "threads", "store_bytes", "loop_lag_ms_p99", "loop_lag_ms_max")
    process = {**dict.fromkeys(names, 0), "uptime_s": uptime_s, **more}
    overview = {
        "ts": "now",
        "broker_id": "x",
        "boot": boot,
        "process": process,
        "session": SESSION,
        "stale": STALE,
        "messages": {"dropped_total": {"slow-consumer": 4, "x": 0}},
        "le_ms": LE_MS,
        "latency": {"delivery": {"bucket_counts": [int(uptime_s), 3, 0, 0], "max_ms": 9.0}},
    }
    return Snapshot(overview, destinations, [], [])


def shown(*snapshots: Snapshot, sort: str = "out", rows: int = 20) -> Record:
    return frame(Growth(*snapshots), sort, rows)


def rates(*snapshots: Snapshot) -> dict[str, float]:
    found: list[Record] = shown(*snapshots)["destinations"]
    return {row["destination"]: row["in_per_s"] for row in found}


def test_rates_are_between_the_snapshots() -> None:
    before = snapshot(10, destination("a", 10), destination("b", 5), destination("back", 9))
    now = snapshot(
        12, destination("a", 30), destination("b", 5), destination("new", 8), destination("back", 1)
    )
    assert rates(before, now) == {"a": 10.0, "new": 4.0, "b": 0.0, "back": 0.0}
    found = shown(before, now)
    assert (found["rates"]["out_per_s"], found["interval_s"]) == (28.0, 2)
    assert found["drops"] == {"slow-consumer": 4}
    assert rates(now, now) == {"a": 0.0, "new": 0.0, "b": 0.0, "back": 0.0}


def test_after_a_restart_rates_are_since_the_start() -> None:
    before = snapshot(60, destination("a", 100), cpu_user_s_total=9.0)
    now = snapshot(2, destination("a", 10), boot="other", cpu_user_s_total=0.5)
    assert rates(before, now) == {"a": 5.0}
    found = shown(before, now)
    assert found["process"]["cpu_percent"] == 25.0
    assert found["latency_ms"]["p50"] == 1.167


def test_latencies_are_of_the_interval() -> None:
    def counted(*counts: int) -> Record:
        return {"latency": {"delivery": {"bucket_counts": list(counts), "max_ms": 1.9}}}

    before = snapshot(0, destination("a", **counted(100, 0, 0, 0)), destination("b"))
    now = snapshot(2, destination("a", **counted(100, 10, 0, 0)), destination("b"))
    first, second = sorted(shown(before, now)["destinations"], key=lambda row: row["destination"])
    assert first["latency_ms"] == {"p50": 1.5, "p99": 1.9}
    assert second["latency_ms"] == {"p50": None, "p99": None}


@pytest.mark.parametrize("sort", _top.SORTS)
def test_destinations_are_sorted(sort: str) -> None:
    before = snapshot(0, *(destination(name) for name in "abc"))
    now = snapshot(2, destination("a", 1), destination("b", 3), destination("c", 2))
    found = shown(before, now, sort=sort, rows=2)
    order = [row["destination"] for row in found["destinations"]]
    assert order == (["b", "c"] if sort in ("in", "out", "depth") else ["a", "b"])
    assert found["destinations_total"] == 3


def test_keys_sort_pause_and_quit() -> None:
    view = _top.View("out", 5)
    view.press("pxs")
    assert (view.sort, view.is_paused, view.is_over) == ("in", True, False)
    view.press("sssss")
    assert (view.sort, view.is_over) == ("out", False)
    view.press("")  # the terminal is closed
    assert view.is_over


@pytest.mark.parametrize(
    ("seconds", "text"), [(61, "1 min 01 s"), (3700, "1 h 01 min"), (200_000, "2 d 7 h")]
)
def test_times(seconds: float, text: str) -> None:
    assert _time(seconds) == text


def test_a_client_cannot_drive_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    evil = [destination(name) for name in ("[bold]\x1b]0;evil\x07", "b")]
    connection = {"session_id": "1", "user": "\x1b[2J", "remote": "r", "transport": "tcp"}
    queue = dict.fromkeys(("input_depth", "stale_depth", "ack_depth", "oldest_input_age_s"), 0)
    now = snapshot(0, *evil, store_bytes=5)
    now.overview["broker_id"] = "[red]x\x1b[31m"
    now.overview["messages"]["dropped_total"]["\x1b[1m"] = 3
    now = Snapshot(
        now.overview,
        now.destinations,
        [{**connection, "state": "open", "subscriptions": 0}],
        [{"destination": "\x9b", **queue}],
    )
    console = open_console(is_live=False)
    console.print(screen(shown(now, now, rows=1), "out", is_paused=True, keys=True))
    printed = capsys.readouterr().out
    assert not re.search("[\x1b\x07\x9b]", printed)
    assert "[bold]" in printed or "b" in printed
    assert "[red]x\\x1b[31m" in printed
    assert "destinations by out (1 of 2)" in printed
    assert "PAUSED  q quit" in printed


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadedBroker]:
    with threaded_broker(diag_interval_s=0) as broker:
        yield broker


OFTEN = ("--interval", "0.2")


def test_one_screen(broker: ThreadedBroker) -> None:
    assert run("send", "/queue/a", "x", "--url", broker.url).returncode == 0
    ran = run("top", "--once", "--url", broker.url, *OFTEN)
    assert (ran.returncode, ran.stderr) == (0, "")
    for word in ("clients", "memory", "delivery p50", "destinations by out", "/queue/a"):
        assert word in ran.stdout
    assert "\x1b" not in ran.stdout
    assert "DIAG" not in ran.stdout


def test_a_frame_on_each_line_until_it_is_ended(broker: ThreadedBroker) -> None:
    ran = run("top", "--json", "--for", "1", "--url", broker.url, *OFTEN)
    assert ran.returncode == 0, ran.stderr
    frames = [json.loads(line) for line in ran.stdout.splitlines()]
    assert 1 <= len(frames) <= 5
    assert len({frame["ts"] for frame in frames}) == len(frames)
    assert frames[0]["interval_s"] >= 0.2
    assert frames[0]["process"]["rss_bytes"] > 0
    assert set(frames[0]["rates"]) == {
        f"{name}_per_s" for name in ("in", "out", "bytes_in", "bytes_out", "dropped")
    }
    for number in (signal.SIGINT, signal.SIGTERM):
        with started("top", "--json", "--url", broker.url, *OFTEN) as (process, _, stdout, _):
            assert stdout.readline().startswith("{")
            process.send_signal(number)
            assert process.wait(PATIENCE_S) == 0


def test_requests_that_take_much_come_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_args: object) -> Snapshot:
        return snapshot(0)

    clock = iter([1.0, 1.5])
    pauses: list[float] = []
    view = _top.View("out", 20)

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        view.is_over = True

    monkeypatch.setattr(Snapshot, "of", read)
    monkeypatch.setattr(time, "process_time", lambda: next(clock))
    given = parser_of("top").parse_args(["--interval", "0.2"])
    site: Any = None
    assert len(list(_top._snapshots(site, view, given, wait))) == 1
    assert pauses == [40 * 0.5]


def test_the_screen_in_a_terminal(broker: ThreadedBroker) -> None:
    ours, theirs = pty.openpty()
    with running(
        [sys.executable, "-m", "trio_stomp", "top", "--url", broker.url, *OFTEN],
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


def test_without_rich_it_is_named(output_of: OutputOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert "pip install rich; or use --json" in output_of("top", "--once", code=1)
