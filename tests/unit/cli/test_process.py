"""The broker as a process: its first line of log, one client, signals, exit codes."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LISTENING = re.compile(r"listening on 127\.0\.0\.1:(\d+)")
CONNECT = b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"

# Only a broken broker exceeds this.
PATIENCE_S = 30

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


class Broker:
    """A running broker: its process, its first line of log, its port."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.process = process
        self.log = process.stderr
        self.first_line = self.log.readline()
        found = LISTENING.search(self.first_line)
        assert found, self.first_line + self.log.read()
        self.port = int(found[1])

    def dial(self) -> socket.socket:
        """Open a connection whose every call gives up after a while."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def wait(self) -> int:
        """Wait for the end; return the exit code."""
        return self.process.wait(PATIENCE_S)


@contextmanager
def running(*arguments: str) -> Iterator[Broker]:
    """Run a broker in its own process, and kill it if the test leaves it running."""
    command = [sys.executable, "-m", "trio_stomp", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Broker(process)
        finally:
            process.kill()


def receive_frame(connection: socket.socket) -> bytes:
    """Return the bytes up to the NUL and the line feed behind a frame, or to the stream's end."""
    data = b""
    while not data.endswith(b"\0\n") and (more := connection.recv(4096)):
        data += more
    return data


def test_the_first_line_tells_all_and_a_client_connects() -> None:
    with running("--port", "0", "processors=10", "TTL=5000") as broker:
        assert '"level": "info"' in broker.first_line
        assert "TCP and WebSocket" in broker.first_line
        assert "limits: 20000 connections" in broker.first_line
        assert "ttl 5000 ms" in broker.first_line
        assert f" --url stomp://127.0.0.1:{broker.port}" in broker.first_line
        with broker.dial() as connection:
            connection.sendall(CONNECT)
            answer = receive_frame(connection)
        assert answer.startswith(b"CONNECTED\n")
        assert b"\nversion:1.2\n" in answer


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_order(number: signal.Signals) -> None:
    with running("-p", "0") as broker, broker.dial() as connection:
        connection.sendall(CONNECT)
        assert receive_frame(connection).startswith(b"CONNECTED\n")
        broker.process.send_signal(number)
        assert broker.wait() == 0
        assert f"stopping: got {number.name}" in broker.log.read()


@pytest.mark.parametrize("closed", [(2,), (0, 1, 2)])
def test_a_daemon_without_standard_streams(closed: tuple[int, ...]) -> None:
    """Mosquitto 234: the broker ended with 1, and said nothing anywhere."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    def close() -> None:
        for number in closed:
            os.close(number)

    command = [sys.executable, "-m", "trio_stomp", "--port", f"{port}"]
    with subprocess.Popen(command, cwd=ROOT, preexec_fn=close) as process:
        try:
            answer = b""
            while not answer:
                assert process.poll() is None
                time.sleep(0.05)
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as link:
                    link.sendall(CONNECT)
                    answer = receive_frame(link)
            assert answer.startswith(b"CONNECTED\n")
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def refused(*arguments: str) -> str:
    """Run a broker that cannot listen; return its one line."""
    result = subprocess.run(
        [sys.executable, "-m", "trio_stomp", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "address already in use; stop the program that uses it, or choose another"),
        # 192.0.2.0/24 is kept for documents: no machine has it.
        ("192.0.2.1", "cannot assign requested address; choose an address of this machine"),
        ("a..b", "no such host; choose an address of this machine with --host\n"),
    ],
)
def test_an_address_that_cannot_be_had(host: str, expected: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = refused("--host", host, "--port", str(port), "--insecure")
    assert line.startswith(f"trio-stomp: error: cannot listen on {host}:{port}: {expected}")
