"""The check of ``scripts/manage_million.py``: its operations go through all messages."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.scripts import run_script

run = partial(run_script, "manage_million", patience_s=300)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


@pytest.mark.full
def test_all_messages_are_searched_moved_and_purged(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    ran = run("--messages", "3000", "--limit-ms", "0.001", "--json", str(file))
    assert ran.returncode == 1
    assert "move: the p99 of the neighbour is above 0.001 ms" in ran.stdout
    found = json.loads(file.read_text())
    assert [(each["name"], each["messages"]) for each in found] == [
        ("idle", 0),
        ("search", 3000),
        ("move", 3000),
        ("purge", 3000),
    ]
    assert all(each["p50_ms"] <= each["p99_ms"] <= each["max_ms"] for each in found)
