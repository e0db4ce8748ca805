"""Messages to systemd and sockets from it, with a socket in its place."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from trio_stomp.cli.process import feed_watchdog, handed_over, notify

ROOT = Path(__file__).parents[3]


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[tuple[socket.socket, dict[str, str]]]:
    """The socket that systemd listens on, and the environment that it gives."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.settimeout(10)
        yield listener, {"NOTIFY_SOCKET": path}


def test_systemd_gets_status_updates(systemd: tuple[socket.socket, dict[str, str]]) -> None:
    listener, environment = systemd
    assert notify("READY=1", environment)
    assert listener.recv(100) == b"READY=1"


def test_missing_systemd_socket_is_no_error() -> None:
    assert not notify("READY=1", {})
    assert not notify("READY=1", {"NOTIFY_SOCKET": "/nowhere/at/all"})
    assert not notify("READY=1", {"NOTIFY_SOCKET": "@trio-stomp-nobody-is-there"})


@pytest.mark.parametrize(
    ("asked", "times"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 7),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": f"{os.getpid()}"}, 7),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": f"{os.getpid() + 1}"}, 0),
        ({"WATCHDOG_USEC": "soon"}, 0),
        ({}, 0),
    ],
    ids=["asked", "us", "another", "no number", "not asked"],
)
async def test_when_it_wants_to_hear_from_us(
    systemd: tuple[socket.socket, dict[str, str]],
    autojump_clock,
    asked: dict[str, str],
    times: int,
) -> None:
    listener, environment = systemd
    with trio.move_on_after(10):
        await feed_watchdog({**environment, **asked})
    assert [listener.recv(100) for _ in range(times)] == [b"WATCHDOG=1"] * times
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.recv(100)


async def test_the_loop_feeds_the_watchdog_twice_as_often_as_it_must(
    systemd: tuple[socket.socket, dict[str, str]], autojump_clock
) -> None:
    listener, environment = systemd
    with trio.move_on_after(10):
        await feed_watchdog({**environment, "WATCHDOG_USEC": "4000000"})
    heard = [listener.recv(100) for _ in range(5)]
    assert heard == [b"WATCHDOG=1"] * 5
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.recv(100)
    await feed_watchdog(environment)  # nobody asks: it ends at once


def test_sockets_that_are_for_another_process_are_not_ours() -> None:
    assert handed_over({"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid() + 1)}) == []
    assert handed_over({"LISTEN_FDS": "many", "LISTEN_PID": str(os.getpid())}) == []
    assert handed_over({}) == []


ACTIVATE = """
import os, sys
os.environ["LISTEN_PID"] = str(os.getpid())
os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.execv(sys.executable, [sys.executable, "-m", "trio_stomp", *sys.argv[2:]])
"""


def test_a_broker_that_was_handed_its_socket(systemd: tuple[socket.socket, dict[str, str]]) -> None:
    notified, environment = systemd
    notified.settimeout(60)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-c", ACTIVATE, str(listener.fileno())],
            cwd=ROOT,
            env={**os.environ, **environment, "LISTEN_FDS": "1"},
            pass_fds=[listener.fileno()],
            stderr=subprocess.DEVNULL,
        )
        try:
            printed = notified.recv(1000).decode()
            assert printed.startswith("READY=1\n")
            assert f"127.0.0.1:{port}" in printed
            with socket.create_connection(("127.0.0.1", port), 60) as client:
                client.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
                assert client.recv(1000).startswith(b"CONNECTED\n")
            process.terminate()
            assert notified.recv(1000) == b"STOPPING=1"
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
