"""The benchmark's own check: whatever it measures, it got every message. No timing is asserted."""

import importlib
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests._tls import authority
from trio_stomp._identity import Identity
from trio_stomp.broker import Action
from trio_stomp.config import read_acl_file

BENCH = Path(__file__).parent.parent / "scripts" / "bench.py"
PATIENCE_S = 120

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs epoll, /proc")


Bench = Callable[[str], Any]
Received = Callable[[Sequence[int]], int]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return what gives a part of the benchmark."""
    monkeypatch.syspath_prepend(BENCH.parent)
    return lambda name: importlib.import_module(f"_bench.{name}")


@pytest.fixture
def received(bench: Bench) -> Received:
    """Return what counts the messages of one read that holds these numbers."""
    wire = bench("wire")

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


def test_two_revisions_are_compared(tmp_path: Path) -> None:
    file, names = tmp_path / "result.json", ("one-tcp", "durable-queue")
    result = run("--quick", "--compare", ".", ".", "--scenario", *names, "--json", str(file))
    assert result.returncode == 0, result.stderr
    compared = json.loads(file.read_text())["compare"]
    assert compared["revisions"] == [".", "."]
    assert [row["scenario"] for row in compared["rows"]] == list(names)
    for row in compared["rows"]:
        assert row["ratio_median"] == pytest.approx(row["new_median"] / row["old_median"])
        assert f"| {row['scenario']} |" in result.stdout


@pytest.mark.parametrize(
    ("old", "told"),
    [
        ("no-such-revision", "no-such-revision is no directory, and no revision that git knows"),
        ("docs", "docs has no trio_stomp; name a commit, a tag or a checkout"),
    ],
)
def test_what_is_no_revision_is_not_compared(old: str, told: str) -> None:
    result = run("--quick", "--compare", old, ".", "--scenario", "one-tcp")
    assert result.returncode == 1
    assert told in result.stderr


def test_a_revision_is_taken_out_of_git(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = bench("compare")
    (tmp_path / "repo" / "trio_stomp").mkdir(parents=True)
    main = tmp_path / "repo" / "trio_stomp" / "__main__.py"
    monkeypatch.setattr(compare, "ROOT", tmp_path / "repo")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    git = ("git", "-C", str(tmp_path / "repo"), *who)
    subprocess.run([*git, "init", "-q"], check=True)
    for text in ("old", "new"):
        main.write_text(text)
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", text], check=True)
    tree = compare.checkout("HEAD~1", tmp_path / "old")
    assert (tree / "trio_stomp" / "__main__.py").read_text() == "old"
    assert main.read_text() == "new"


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


def test_a_quick_run_of_what_security_costs_measures_all_settings_alike(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    result = run("--quick", "--secure", "--json", str(file))
    assert result.returncode == 0, result.stderr
    found = json.loads(file.read_text())["secure"]
    cases = [(size, settings) for size in (117, 65_536) for settings in ("plain", "acl", "tls")]
    assert [(row["body_bytes"], row["settings"]) for row in found["fanout"]] == cases
    assert [(each["body_bytes"], each["settings"]) for each in found["runs"]] == cases
    assert {each["deliveries"] for each in found["runs"]} == {75 * 64}
    assert min(row["ratio_median"] for row in found["fanout"]) > 0
    assert [each["logins"] for each in found["logins"]] == [50, 4, 50, 10]
    assert "acl: promised 1.15 times plain at most, measured " in result.stdout


def test_what_security_costs_is_not_measured_at_a_broker_that_runs() -> None:
    result = run("--secure", "--port", "61613", "--pid", "1")
    assert result.returncode == 2
    assert "--secure starts brokers of its own" in result.stderr


def test_the_rules_of_the_benchmark_are_those_of_a_house_of_some_size(
    bench: Bench, tmp_path: Path
) -> None:
    guarded = bench("guarded")
    file = tmp_path / "rules.toml"
    file.write_text("".join(guarded.rules_text()))
    access = read_acl_file(str(file))
    assert len(access.rules) == 51
    assert "51 rules" in guarded.SETTINGS["acl"]
    assert sum(rule.is_personal for rule in access.rules) == 24
    publisher = access.rights(Identity(guarded.PUBLISHER))
    assert publisher.verdict(Action.SEND, "/topic/bench/0").rule is access.rules[3]
    subscriber = access.rights(Identity(guarded.SUBSCRIBER))
    assert subscriber.verdict(Action.RECEIVE, "/topic/bench/0").rule is access.rules[50]
    assert not publisher.allows(Action.RECEIVE, "/topic/app-1/0/desk-1")


def measured(bench: Bench, settings: str, pair: int, million_s: float, size: int = 117) -> Any:
    """One run of a million deliveries."""
    made = bench("secure").Measured(settings, size, pair, 0, 10**6, 10**5, 2.0, million_s, 1.0)
    return made


def test_runs_are_compared_within_their_pair(bench: Bench) -> None:
    runs = [
        measured(bench, "acl", 0, 3.0),
        measured(bench, "plain", 1, 8.0),
        measured(bench, "plain", 0, 2.0),
        measured(bench, "acl", 1, 8.8),
        measured(bench, "plain", 0, 100.0, size=65_536),
    ]
    assert bench("secure_table").ratios(runs, "acl", 117) == pytest.approx([1.5, 1.1])


def test_a_promise_holds_for_the_median_pair_of_small_bodies(bench: Bench) -> None:
    plain = [measured(bench, "plain", pair, 1.0, size) for pair in range(3) for size in (117, 9000)]
    acl = [measured(bench, "acl", pair, cost) for pair, cost in enumerate((1.1, 1.15, 9.0))]
    tls = [measured(bench, "tls", pair, cost) for pair, cost in enumerate((2.0, 3.1, 3.2))]
    large = [
        measured(bench, settings, pair, 5.0, 9000)
        for settings in ("acl", "tls")
        for pair in range(3)
    ]
    costs = bench("secure").Costs([*plain, *acl, *tls, *large], [])
    text = bench("secure_table").secure_table(costs)
    assert "acl: promised 1.15 times plain at most, measured 1.15: kept" in text
    assert "tls: promised 3.00 times plain at most, measured 3.10: BROKEN" in text
    assert "| 117 | logins and 51 rules, TCP | 1.15 (1.12-5.08; 1.10-9.00) |" in text
    row = bench("secure_table").secure_rows(costs)[1]
    assert (row["settings"], row["ratio_least"], row["ratio_most"]) == ("acl", 1.1, 9.0)
    assert (row["deliveries_per_s"], row["messages_per_read"]) == (500_000, 10)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([2.0], (2.0,) * 5), ([5.0, 1.0, 3.0, 2.0, 4.0], (1.0, 2.0, 3.0, 4.0, 5.0))],
    ids=["one", "five"],
)
def test_the_spread_is_told_by_quartiles(
    bench: Bench, values: list[float], expected: tuple[float, ...]
) -> None:
    assert tuple(bench("secure_table").Spread.of(values)) == expected


class Encrypted(NamedTuple):
    """The generator's end, what its bytes come from, and a broker's TLS, which speaks by hand."""

    ours: Any
    wire: socket.socket
    tls: ssl.SSLObject
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO

    def said(self, data: bytes) -> bytes:
        """Return the ciphertext of what the broker says."""
        self.tls.write(data)
        return self.outgoing.read()

    def heard(self) -> bytes:
        """Return what has come to the broker."""
        with suppress(BlockingIOError):
            while data := self.wire.recv(1 << 20, socket.MSG_DONTWAIT):
                self.incoming.write(data)
        pieces = []
        with suppress(ssl.SSLWantReadError):
            while piece := self.tls.read(1 << 20):
                pieces.append(piece)
        return b"".join(pieces)


@pytest.fixture
def encrypted(bench: Bench) -> Iterator[Encrypted]:
    """Both ends of a connection, hands shaken."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority().certificate)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    mine, wire = socket.socketpair()
    mine.settimeout(PATIENCE_S)

    def shake_hands() -> None:
        while True:
            with suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                wire.sendall(outgoing.read())
                return
            wire.sendall(outgoing.read())
            incoming.write(wire.recv(1 << 16))

    with mine, wire, ThreadPoolExecutor(1) as pool:
        done = pool.submit(shake_hands)
        ours = bench("tls").TlsSocket(mine, authority().client_context(), "127.0.0.1")
        done.result(PATIENCE_S)
        ours.setblocking(False)
        yield Encrypted(ours, wire, tls, incoming, outgoing)


def test_tls_hands_out_all_that_one_read_brought(encrypted: Encrypted) -> None:
    # What stayed behind in OpenSSL would be waited for in vain: epoll looks at the socket alone.
    data = b"".join(b"%010d" % number for number in range(6_000))
    encrypted.wire.sendall(
        b"".join(encrypted.said(data[at : at + 500]) for at in range(0, 60_000, 500))
    )
    buffer = bytearray(256 * 1024)
    assert encrypted.ours.recv_into(buffer) == 60_000
    assert buffer[:60_000] == data
    with pytest.raises(BlockingIOError):
        encrypted.ours.recv_into(buffer)


def test_tls_that_comes_byte_by_byte_is_no_end(encrypted: Encrypted) -> None:
    buffer = bytearray(64 * 1024)
    *parts, last = (bytes([each]) for each in encrypted.said(b"MESSAGE"))
    for part in parts:
        encrypted.wire.sendall(part)
        with pytest.raises(BlockingIOError):
            encrypted.ours.recv_into(buffer)
    encrypted.wire.sendall(last)
    assert encrypted.ours.recv_into(buffer) == 7
    assert buffer[:7] == b"MESSAGE"


@pytest.mark.parametrize("politely", [True, False], ids=["close_notify", "cut"])
def test_tls_tells_the_end(encrypted: Encrypted, politely: bool) -> None:
    if politely:
        with suppress(ssl.SSLWantReadError):
            encrypted.tls.unwrap()
        encrypted.wire.sendall(encrypted.outgoing.read() + b"and more")
    encrypted.wire.shutdown(socket.SHUT_WR)
    buffer = bytearray(64 * 1024)
    with pytest.raises(BlockingIOError):  # tickets for sessions to come; a close_notify
        encrypted.ours.recv_into(buffer)
    assert encrypted.ours.recv_into(buffer) == 0


def test_tls_sends_each_byte_once_however_often_the_socket_is_full(
    bench: Bench, encrypted: Encrypted
) -> None:
    data = b"".join(b"%010d" % number for number in range(200_000))
    connection = bench("wire").Connection(encrypted.ours, websocket=False)
    connection.send(data)
    assert connection.unsent
    heard, turns = encrypted.heard(), 0
    while connection.unsent and turns < 1000:
        connection.flush()
        heard += encrypted.heard()
        turns += 1
    assert heard == data
    assert turns > 1
