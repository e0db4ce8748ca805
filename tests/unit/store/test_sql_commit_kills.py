"""A broker on PostgreSQL, killed at each step of a COMMIT, has all of it or nothing.

The COMMIT has the parts that the journal once tore (V3): the ACK of a stored message, a SEND to a
queue, and one to a stream.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from _crash.link import Gone, Link

from tests.support.foreign import LISTENING, ROOT
from tests.support.stores import Opened, Schema, cut_connections, make_place
from tests.support.stores import numbers as numbers
from tests.support.stores import postgres as postgres

pytest.importorskip("sqlalchemy", reason="pip install 'trio-stomp[sql]'")
pytest.importorskip("psycopg", reason="pip install 'trio-stomp[postgresql]'")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs SIGKILL")

WORK, OUT, STREAM = "/queue/work", "/queue/out", "/topic/s"
PATIENCE_S, MOST_STEPS = 20.0, 60

# A broker that ends at the Nth step of its work with the database once a file exists: before a
# statement, in the middle of a COPY, before and after a commit.
CHILD = """
import os, signal, sys
import psycopg
from sqlalchemy import event
from sqlalchemy.engine import Engine
from trio_stomp.cli import main

place, left = sys.argv[1], int(sys.argv[2])

def step(*_):
    global left
    if os.path.exists(place):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

def commits(connection, commit=psycopg.Connection.commit):
    step()
    commit(connection)
    step()

event.listen(Engine, "before_cursor_execute", step)
psycopg.Connection.commit = commits
whole_row = psycopg.Copy.write_row
def write_row(copy, row):
    step()
    whole_row(copy, row)
psycopg.Copy.write_row = write_row
sys.exit(main(sys.argv[3:]))
"""


@contextmanager
def broker(place: Schema, directory: Path, step: int) -> Iterator[int]:
    """Return the port of a broker that ends at a step after ``directory/armed`` was created."""
    policies = directory / "policies.toml"
    policies.write_text(f'["{STREAM}"]\nstream = true\n')
    command = [sys.executable, "-c", CHILD, str(directory / "armed"), str(step), "--port", "0"]
    command += ["--store-url", place.server.url(place.name), "--policies", str(policies)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            found = LISTENING.search(line := process.stderr.readline())
            assert found, line + process.stderr.read()
            yield int(found[1])
        finally:
            process.kill()


def replies(link: Any, count: int) -> list[Any]:
    """Receive a number of replies."""
    found: list[Any] = []
    until = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < until
        found += link.receive()
    return found


def commits(link: Any, armed: Path) -> bool:
    """Take a message, and report it in one transaction. Return whether a RECEIPT came."""
    link.send(f"SUBSCRIBE\nid:w\ndestination:{WORK}\nack:client-individual\n\n\0")
    (message,) = replies(link, 1)
    armed.touch()
    link.send(
        "BEGIN\ntransaction:t\n\n\0"
        f"ACK\nid:{message.headers['ack']}\ntransaction:t\n\n\0"
        f"SEND\ndestination:{OUT}\npersistent:true\ntransaction:t\n\nunit\0"
        f"SEND\ndestination:{STREAM}\npersistent:true\ntransaction:t\n\nunit\0"
        "COMMIT\ntransaction:t\nreceipt:done\n\n\0"
    )
    return [each.headers.get("receipt-id") for each in replies(link, 1)] == ["done"]


def test_a_commit_is_whole_or_absent_wherever_the_broker_is_killed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = make_place("postgresql", tmp_path, request)
    assert isinstance(place, Schema)
    armed, seen = tmp_path / "armed", []
    with broker(place, tmp_path, 1) as port, closing(Link(port)) as link:
        link.send(f"SEND\ndestination:{WORK}\npersistent:true\nreceipt:r\n\njob\0")
        assert len(replies(link, 1)) == 1
    for step in range(1, MOST_STEPS):
        with broker(place, tmp_path, step) as port, closing(Link(port)) as link:
            is_promised = False
            with suppress(Gone):
                is_promised = commits(link, armed)
        armed.unlink()
        cut_connections(place.server)
        opened = Opened(place)
        streamed = opened.recovered.streams.get(f"/stream{STREAM}")
        left, out = (len(opened.read(f"queue:{name}")) for name in (WORK, OUT))
        opened.store.close()
        found = (left, out, 0 if streamed is None else streamed.next)
        assert found in ((1, 0, 0), (0, 1, 1)), f"torn at step {step}"
        assert not is_promised or found == (0, 1, 1)
        seen.append(found)
        if found == (0, 1, 1):
            break
    assert len(seen) > 8, "not killed within the commit"
    assert seen[-1] == (0, 1, 1)
