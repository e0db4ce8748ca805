"""Short runs of the scripts for clusters of processes: faults under load, and the benchmark."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cluster_faults
import pytest
from _cluster.wire import Wire
from _crash.cast import DEEP
from _crash.link import Link

from tests.support.foreign import running_broker
from tests.support.nats import nats_server
from tests.support.scripts import run_script

pytestmark = pytest.mark.foreign


@pytest.mark.parametrize(("partitions", "kinds"), [(1, "owner,pause,replace"), (3, "owner")])
def test_nothing_is_lost_or_repeated_when_owners_end_or_pause_or_servers_leave(
    tmp_path: Path, partitions: int, kinds: str
) -> None:
    """With partitions, transactions take from one and send to another."""
    nats_server()  # or the test is skipped
    found = tmp_path / "found.json"
    parts = "--partitions", str(partitions)
    rounds = "--rounds", "1", "--only", kinds
    done = run_script("cluster_faults", *rounds, *parts, "--json", str(found))
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(found.read_text())
    assert summary["first_violations"] == []
    assert summary["receipted"] > 1000
    assert summary["transactions_receipted"] > 10
    assert set(summary["silence"]) == set(kinds.split(","))


def test_a_drain_outlives_the_sessions_of_its_clients() -> None:
    """They end when a node that was just started gets partitions of others."""
    with running_broker() as port:
        wire = Wire(port)
        cluster: Any = SimpleNamespace(ports=[wire.port])
        faults = cluster_faults.Faults(cluster, 1, is_hasty=True)
        track = faults.ledger.tracks["deep"]
        link = Link(wire.port)
        for number in [track.new() for _ in range(10)]:
            link.send(f"SEND\ndestination:{DEEP}\nreceipt:{number}\n\ndeep {number} x\0")
            while not link.receive():
                pass
            track.receipted[number] = 1
        link.close()
        wire.cut()
        threading.Timer(1.5, wire.go_on).start()
        faults.drain()
        assert faults.ledger.violations == []
        assert faults.ledger.deliveries == 10


@pytest.mark.full
def test_a_cluster_is_measured() -> None:
    nats_server()
    done = run_script("bench", "--cluster", "--quick", "--seconds", "1")
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [line.split(" | ") for line in done.stdout.splitlines() if " trio_stomp " in line]
    assert len(rows) == 3
    assert all(float(row[2].replace(",", "")) > 0 for row in rows)
