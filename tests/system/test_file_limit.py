"""Connections never take the last files of the process."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.tool_fakes import PATIENCE_S, ROOT, environment, running
from trio_stomp.server._accepting import most_files

LIMIT = 120

RUN = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))
sys.argv = ["trio_stomp", *sys.argv[1:]]
runpy.run_module("trio_stomp", run_name="__main__")
"""


def files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_files_are_left_for_the_broker(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        (tmp_path / "log").open("w") as log,
        running(
            [sys.executable, "-c", RUN, "--port", f"{port}", "--data-dir", str(tmp_path / "data")],
            env=environment(),
            cwd=ROOT,
            stderr=log,
            stdout=subprocess.DEVNULL,
        ) as broker,
        ExitStack() as stack,
    ):
        end = time.monotonic() + PATIENCE_S
        while "listening on" not in (tmp_path / "log").read_text():
            assert time.monotonic() < end
            time.sleep(0.05)
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
            for _ in range(LIMIT)
        ]
        for client in clients:
            with suppress(OSError):
                client.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        answers = []
        for client in clients:
            try:
                answers.append(client.recv(100)[:9])
            except OSError:
                answers.append(b"")
        assert answers.count(b"CONNECTED") > 40
        assert answers.count(b"") > 20
        assert files(broker.pid) <= LIMIT - 32 + 1
        clients[0].sendall(b"SEND\ndestination:/queue/a\npersistent:true\nreceipt:1\n\nx\0")
        assert b"RECEIPT" in clients[0].recv(1000)
        while answers and answers[-1] != b"CONNECTED":
            answers.pop()
            clients.pop()
        before = files(broker.pid)
        clients.pop().close()
        while files(broker.pid) >= before:  # a loaded machine sees the end later
            assert time.monotonic() < end
            time.sleep(0.05)
        url = f"http://127.0.0.1:{port}/livez"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as page:
            assert page.status == 200
        while "connections are accepted again" not in (tmp_path / "log").read_text():
            assert time.monotonic() < end
            time.sleep(0.05)
        assert (tmp_path / "log").read_text().count("connections are closed at once") == 1


@pytest.mark.parametrize(("limit", "most"), [(100, 68), (10_000, 9_500), (-1, float("inf"))])
def test_how_many_files_connections_may_have(
    monkeypatch: pytest.MonkeyPatch, limit: int, most: float
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    assert most_files() == most
