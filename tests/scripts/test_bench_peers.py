"""Comparison with other brokers: the command, the participants, and the report on missing ones."""

import argparse
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from _bench.peer_brokers import OURS, Running, listener, server_of
from _bench.process import BenchError, Broker, family, running_broker
from _bench.wire import STRANGER

from tests.support.scripts import measured, run_script

BENCH = Path(__file__).parents[2] / "scripts" / "bench.py"
PATIENCE_S = 120

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs epoll, /proc")


def run(*arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run the benchmark to its end; where it finds programs is ``path``."""
    return run_script("bench", "--quick", "--peers", *arguments, path=str(path))


def compared(folder: Path, peer: str, *names: str) -> tuple[Any, str]:
    """Return the result and the output of a run with ``peer``."""
    words = ("--quick", "--peers", "--peer", peer, "--scenario", *names)
    found, result = measured(folder, "bench", *words, path=str(folder))
    return found["peers"], result


# --- the command ----------------------------------------------------------------------------------


def test_a_quick_run_measures_a_running_broker_and_names_absent_ones(
    tmp_path: Path,
) -> None:
    names = ("fanout-ws", "pairs-tcp", "queue-ack-1000", "durable-queue", "latency-tcp", "idle-tcp")
    with running_broker(()) as twin:
        peer = f"twin=localhost:{twin.port}"
        found, result = compared(tmp_path, peer, *names)
    assert found["failures"] == []
    assert [*found["absent"]] == ["rabbitmq", "activemq"]
    assert "scripts/install_other_brokers.sh or apt-get install rabbitmq-server" in result
    assert found["servers"].keys() == {OURS, "twin"}
    measured = [(each["scenario"], each["peer"]) for each in found["runs"]]
    assert sorted(measured) == sorted((name, peer) for name in names for peer in (OURS, "twin"))
    for row in found["rows"]:
        assert row["value_median"] > 0
        assert f"| {row['scenario']} |" in result
        if row["peer"] == OURS:
            assert row["ratio_median"] == 1


@contextmanager
def scripted(*answers: bytes) -> Iterator[int]:
    """Run a server that answers each read by the next of these, and then closes; its port."""

    def answer(connected: socket.socket) -> None:
        with connected, suppress(OSError):
            for each in answers:
                connected.recv(1 << 16)
                connected.sendall(each)
            connected.recv(1 << 16)

    def serve() -> None:
        with suppress(OSError):  # the end of the server
            while True:
                Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=serve)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_S)


WELCOME = b"CONNECTED\nversion:1.2\nserver:Strange/1\n\n\0\n"


def test_a_peer_that_fails_has_a_reason_and_no_figure(tmp_path: Path) -> None:
    with scripted(WELCOME, b"ERROR\nmessage:no\n\n\0\n") as port:
        peer = f"strange=127.0.0.1:{port}/{os.getpid()}"
        found, result = compared(tmp_path, peer, "queue-auto")
    (failure,) = found["failures"]
    assert (failure["peer"], failure["scenario"]) == ("strange", "queue-auto")
    assert "expected b'RECEIPT" in failure["reason"]
    assert "– queue-auto, strange: expected b'RECEIPT" in result
    assert "strange (Strange/1)" in result


def test_a_peer_that_refuses_the_login_is_not_measured(tmp_path: Path) -> None:
    with scripted(b"ERROR\nmessage:go away\n\n\0") as port:
        peer = f"strict=alice:hush@127.0.0.1:{port}/{os.getpid()}"
        result = run("--peer", peer, "--scenario", "one-tcp", path=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "- not measured: strict: it answered CONNECT by b'ERROR" in result.stdout
    assert "hush" not in result.stdout + result.stderr


def test_a_peer_that_does_not_run_ends_it_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    result = run("--peer", f"gone=127.0.0.1:{port}", path=tmp_path)
    assert result.returncode == 1
    assert f"no process listens on port {port}" in result.stderr
    result = run("--peer", f"gone=127.0.0.1:{port}/4194305", path=tmp_path)
    assert result.returncode == 1
    assert "gone: there is no process 4194305" in result.stderr


def test_our_own_failure_is_an_error_beside_the_table(tmp_path: Path) -> None:
    result = run("--scenario", "one-tcp", "--broker", "--max-body-bytes", "100", path=tmp_path)
    assert result.returncode == 1
    assert "one-tcp: the broker answered" in result.stderr
    assert f"– one-tcp, {OURS}: " in result.stdout


def test_our_own_broker_has_to_start(tmp_path: Path) -> None:
    result = run("--scenario", "one-tcp", "--broker", "--no-such-option", path=tmp_path)
    assert result.returncode == 1
    assert "unknown option --no-such-option" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--port", "1", "--pid", "1"), "--peers starts its own brokers"),
        (("--scenario", "paced-tcp"), "--peers does not know paced-tcp; it knows fanout-tcp,"),
        (("--floor",), "not allowed with argument"),
        (("--peer", "a=127.0.0.1:1/1", "--peer", "a=localhost:2/2"), "the names must differ"),
        (("--peer", "a:b"), "'a:b' is no NAME=[LOGIN:PASSCODE@]127.0.0.1:PORT[/PID]"),
    ],
)
def test_options_incompatible_with_peers_are_refused(
    arguments: Sequence[str], expected: str, tmp_path: Path
) -> None:
    result = run(*arguments, path=tmp_path)
    assert result.returncode == 2
    assert expected in result.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--peer", "a=127.0.0.1:1/1"), "--peer requires --peers"),
        (("--scenario", "latency-tcp"), "--scenario without --peers does not know latency-tcp"),
    ],
)
def test_options_of_peers_are_refused_in_other_modes(
    arguments: Sequence[str], expected: str
) -> None:
    command = [sys.executable, str(BENCH), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert expected in result.stderr


# --- brokers that run ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("go-stomp.d=127.0.0.1:61700", ("go-stomp.d", 61_700, 0, "")),
        ("a=localhost:1/42", ("a", 1, 42, "")),
        ("a=tester:se:cr/et@127.0.0.1:65535/7", ("a", 65_535, 7, "tester")),
    ],
)
def test_a_peer_is_named_with_its_port(text: str, expected: tuple[str, int, int, str]) -> None:
    peer = Running.parse(text)
    assert (peer.name, peer.port, peer.pid, peer.visitor.login) == expected
    assert peer.visitor.passcode == ("se:cr/et" if expected[3] else "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=me:hush@127.0.0.1:0", "'127.0.0.1:0' is no NAME="),
        ("a=me:hush@127.0.0.1:65536", "is no NAME="),
        ("a=me:hush@127.0.0.1", "is no NAME="),
        ("a=me:hush@192.0.2.1:61613", "192.0.2.1 is not this machine"),
        ("rabbitmq=me:hush@127.0.0.1:61613", "rabbitmq is in use"),
        (f"{OURS}=127.0.0.1:61613", f"{OURS} is in use"),
        ("=127.0.0.1:61613", "is no NAME="),
        ("a=127.0.0.1:61613/", "is no NAME="),
    ],
)
def test_malformed_peer_is_reported_without_its_passcode(text: str, expected: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        Running.parse(text)
    assert expected in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("address", ["127.0.0.1", "::"])
def test_the_owner_of_a_shared_port_is_the_parent_process(address: str) -> None:
    kind = socket.AF_INET6 if ":" in address else socket.AF_INET
    if kind == socket.AF_INET6 and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with socket.create_server((address, 0), family=kind) as server:
        file, port = server.fileno(), server.getsockname()[1]
        child = [sys.executable, "-c", "input()"]
        with subprocess.Popen(child, stdin=subprocess.PIPE, pass_fds=[file]) as worker:
            try:
                assert listener(port) == os.getpid()
            finally:
                worker.kill()


def test_a_port_of_strangers_to_each_other_needs_a_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        file, port = server.fileno(), server.getsockname()[1]
        child = [sys.executable, "-c", "input()"]
        workers = [
            subprocess.Popen(child, stdin=subprocess.PIPE, pass_fds=[file]) for _ in range(2)
        ]
    try:
        with pytest.raises(BenchError, match=r"all listen at port \d+; add /PID of one for all"):
            listener(port)
    finally:
        for each in workers:
            each.kill()
            each.communicate()


def test_child_processes_count_as_well() -> None:
    command = ["sh", "-c", "sleep 60 & echo $!; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            assert family(parent.pid) == [parent.pid, child]
            alone, all_of_it = Broker(0, parent.pid), Broker(0, parent.pid, family=True)
            # The parent waits; the child may still be on its way to be another program.
            assert all_of_it.rss_bytes() > alone.rss_bytes() > 0
            assert all_of_it.cpu().exact > alone.cpu().exact > 0
        finally:
            os.kill(child, signal.SIGKILL)
    with pytest.raises(OSError):
        all_of_it.cpu()


@pytest.mark.parametrize(
    ("answer", "expected"), [(WELCOME, "Strange/1"), (b"\nCONNECTED\nversion:1.0\n\n\0", "")]
)
def test_kind_of_an_answering_server_is_recognized(answer: bytes, expected: str) -> None:
    with scripted(answer) as port:
        assert server_of(port, STRANGER) == expected
