"""The profile of the benchmark. No timing is asserted."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench.py"
PATIENCE_S = 120
COLUMNS = {"Trio", "transport", "server", "protocol", "frames", "broker", "rest"}

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs epoll, /proc")


def part(name: str) -> Any:
    """Return a part of the benchmark."""
    return importlib.import_module(f"_bench.{name}")


@pytest.mark.parametrize(
    ("file", "column"),
    [
        ("/x/trio_stomp/broker/_queue.py", "broker"),
        ("/home/trio_stomp/trio_stomp/server/_outbox.py", "server"),
        ("/x/trio_stomp/store/_journal.py", "rest"),
        ("/x/trio_stomp/_memory.py", "rest"),
        ("/v/site-packages/trio/_core/_run.py", "Trio"),
        ("/v/site-packages/outcome/_impl.py", "Trio"),
        ("<attrs generated methods trio._core._traps.X>", "rest"),
        ("/usr/lib/python3.11/enum.py", "rest"),
    ],
)
def test_code_belongs_to_a_floor_to_trio_or_to_neither(file: str, column: str) -> None:
    assert part("shares").column_of(file) == column


def test_shares_are_of_all_samples() -> None:
    rows = [
        ("/x/trio_stomp/broker/_queue.py", "Queue.pump", 6),
        ("/x/trio_stomp/transport/_wire.py", "SocketWire.send_nowait", 10),
        ("/x/trio_stomp/frames/_decoder.py", "FrameDecoder._decode", 3),
        ("/v/trio/_core/_run.py", "unrolled_run", 1),
    ]
    [scenario, *_] = part("scenarios").scenarios()
    found = part("shares").shares_of(scenario, 2.0, 0.25, rows)
    assert found.parts["broker"] == 0.3
    assert found.parts["transport"] == 0.5
    assert sum(found.parts.values()) == pytest.approx(1)
    assert found.hottest == [("broker: Queue.pump", 0.3), ("frames: FrameDecoder._decode", 0.15)]
    line = part("shares").shares_table([found]).splitlines()[-1]
    assert line.startswith("| headline-ws | 2.00 | 25 | 5 | 50 | 0 | 0 | 15 | 30 | 0 |")


def test_a_profile_has_samples_of_the_broker(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    command = [sys.executable, str(BENCH), "--profile", "--seconds", "0.1", "--json", str(file)]
    chosen = ["--scenario", "queue-auto", "one-tcp"]
    subprocess.run([*command, *chosen], check=True, timeout=PATIENCE_S)
    rows = json.loads(file.read_text())["profile"]
    assert [row["scenario"] for row in rows] == ["one-tcp", "queue-auto"]
    for row in rows:
        assert row["samples"] > 0
        assert sum(row[column] for column in COLUMNS) == pytest.approx(1)
        assert 0 <= row["kernel"] <= 1
