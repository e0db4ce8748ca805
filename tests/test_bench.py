"""The benchmark's own check: whatever it measures, it got every message. No timing is asserted."""

import importlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "scripts" / "bench.py"
PATIENCE_S = 120

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs epoll, /proc")


Received = Callable[[Sequence[int]], int]


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Received:
    """Return what counts the messages of one read that holds these numbers."""
    monkeypatch.syspath_prepend(BENCH.parent)
    wire = importlib.import_module("_bench.wire")

    def count(numbers: Sequence[int]) -> int:
        ours, broker = socket.socketpair()
        with ours, broker:
            # Of growing length, as the ids of messages grow.
            broker.sendall(b"".join(b"MESSAGE %d\n%010d\x7f\0" % (n, n) for n in numbers))
            broker.shutdown(socket.SHUT_WR)
            connection = wire.Connection(ours, websocket=False)
            found: int = connection.read()
            return found

    return count


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the benchmark to its end."""
    return subprocess.run(
        [sys.executable, str(BENCH), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_quick_run_delivers_all(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    result = run(
        "--quick", "--scenario", "headline-ws", "pairs-tcp", "idle-tcp", "--json", str(file)
    )
    assert result.returncode == 0, result.stderr
    rows = {row["scenario"]: row for row in json.loads(file.read_text())["scenarios"]}
    assert rows["headline-ws"]["deliveries"] == 75 * 400
    assert rows["pairs-tcp"]["deliveries"] == 10 * 2000
    assert rows["idle-tcp"]["connections"] == 200
    assert all(f"| {name} |" in result.stdout for name in rows)


def test_a_quick_run_of_what_survives_delivers_all(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    names = ("durable-step", "durable-step-100", "durable-4-4", "replay-tcp")
    result = run("--quick", "--scenario", *names, "--json", str(file))
    assert result.returncode == 0, result.stderr
    rows = {row["scenario"]: row for row in json.loads(file.read_text())["scenarios"]}
    assert rows["durable-step"]["deliveries"] == 40
    assert rows["durable-step-100"]["deliveries"] == 100 * 40
    assert rows["durable-4-4"]["deliveries"] == 4 * 64 * 40
    assert rows["replay-tcp"]["deliveries"] == 20_000


def test_a_quick_run_beside_a_durable_load_is_a_pair(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    result = run("--quick", "--beside", "--json", str(file))
    assert result.returncode == 0, result.stderr
    (pair,) = json.loads(file.read_text())["beside"]
    assert min(pair["fanout"], pair["durable"], pair["both"]) > 0
    assert "median" in result.stdout


def test_an_error_of_the_broker_is_no_result() -> None:
    result = run("--quick", "--scenario", "fanout-tcp", "--broker", "--max-body-bytes", "100")
    assert result.returncode == 1
    assert "body-too-large" in result.stderr
    assert "fanout-tcp" not in result.stdout


def test_a_broker_that_does_not_start_is_no_result() -> None:
    result = run("--quick", "--scenario", "fanout-tcp", "--broker", "--no-such-option")
    assert result.returncode == 1
    assert "unknown option --no-such-option" in result.stderr


def test_messages_are_counted_whatever_their_length(received: Received) -> None:
    assert received([*range(90), *range(90, 200)]) == 200
    assert received([0]) == 1


@pytest.mark.parametrize(
    "numbers",
    [[0, 1, 3], [1, 2], [0, 1, 1], [0, 2, 1], []],
    ids=["lost", "first", "twice", "order", "end"],
)
def test_a_message_lost_doubled_or_out_of_order_is_an_error(
    received: Received, numbers: list[int]
) -> None:
    with pytest.raises(Exception, match=r"message \d+ was due|closed a connection"):
        received(numbers)
