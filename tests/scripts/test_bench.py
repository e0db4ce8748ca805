"""The benchmark's own check: whatever it measures, it got every message. No timing is asserted."""

import importlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.scripts import measured, run_script
from tests.support.tls import authority
from trio_stomp.base import Identity
from trio_stomp.broker import Action
from trio_stomp.config import read_acl_file

PATIENCE_S = 120

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs epoll, /proc")


Received = Callable[[Sequence[int]], int]


def bench(name: str) -> Any:
    """Return a part of the benchmark."""
    return importlib.import_module(f"_bench.{name}")


@pytest.fixture
def received() -> Received:
    """Return a connection that counts the messages of one read with these numbers."""
    wire = bench("wire")

    def count(numbers: Sequence[int]) -> int:
        ours, broker = socket.socketpair()
        with ours, broker:
            # The frames grow, as ids of messages do.
            broker.sendall(b"".join(b"MESSAGE %d\n%010d\x7f\0" % (n, n) for n in numbers))
            broker.shutdown(socket.SHUT_WR)
            connection = wire.Connection(ours, websocket=False)
            found: int = connection.read()
            return found

    return count


run = partial(run_script, "bench")


def quick(folder: Path, *arguments: str) -> tuple[Any, str]:
    """Return the JSON of a quick run, and its output."""
    return measured(folder, "bench", "--quick", *arguments)


needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="needs a C compiler"
)


@pytest.fixture
def floor() -> Iterator[Any]:
    """Return the floor, running."""
    module = bench("floor")
    with module.built_floor() as program, module.running_floor(program) as running:
        yield running


def test_a_quick_run_delivers_all(tmp_path: Path) -> None:
    names = ("headline-ws", "pairs-tcp", "idle-tcp")
    found, result = quick(tmp_path, "--scenario", *names)
    rows = {row["scenario"]: row for row in found["scenarios"]}
    assert rows["headline-ws"]["deliveries"] == 75 * 400
    assert rows["pairs-tcp"]["deliveries"] == 10 * 2000
    assert rows["idle-tcp"]["connections"] == 200
    assert all(f"| {name} |" in result for name in rows)


def test_a_quick_run_of_durable_scenarios_delivers_all_messages(tmp_path: Path) -> None:
    names = ("durable-step", "durable-step-100", "durable-4-4", "replay-tcp")
    found, _ = quick(tmp_path, "--scenario", *names)
    rows = {row["scenario"]: row for row in found["scenarios"]}
    assert rows["durable-step"]["deliveries"] == 40
    assert rows["durable-step-100"]["deliveries"] == 100 * 40
    assert rows["durable-4-4"]["deliveries"] == 4 * 64 * 40
    assert rows["replay-tcp"]["deliveries"] == 20_000


def test_a_quick_run_beside_a_durable_load_is_a_pair(tmp_path: Path) -> None:
    found, result = quick(tmp_path, "--beside")
    (pair,) = found["beside"]
    assert min(pair["fanout"], pair["durable"], pair["both"]) > 0
    assert "median" in result


def test_two_revisions_are_compared(tmp_path: Path) -> None:
    names = ("one-tcp", "durable-queue")
    found, result = quick(tmp_path, "--compare", ".", ".", "--scenario", *names)
    compared = found["compare"]
    assert compared["revisions"] == [".", "."]
    assert [row["scenario"] for row in compared["rows"]] == list(names)
    for row in compared["rows"]:
        assert row["ratio_median"] == pytest.approx(row["new_median"] / row["old_median"])
        assert f"| {row['scenario']} |" in result


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        ("no-such-revision", "no-such-revision is neither a directory nor a git revision"),
        ("docs", "docs has no trio_stomp; name a commit, a tag or a checkout"),
    ],
)
def test_unknown_revision_is_refused(old: str, expected: str) -> None:
    result = run("--quick", "--compare", old, ".", "--scenario", "one-tcp")
    assert result.returncode == 1
    assert expected in result.stderr


def test_a_revision_is_taken_out_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.full
def test_a_quick_run_of_the_cost_of_security_measures_all_settings_alike(tmp_path: Path) -> None:
    result, outcome = quick(tmp_path, "--secure")
    found = result["secure"]
    cases = [(size, settings) for size in (117, 65_536) for settings in ("plain", "acl", "tls")]
    assert [(row["body_bytes"], row["settings"]) for row in found["fanout"]] == cases
    assert [(each["body_bytes"], each["settings"]) for each in found["runs"]] == cases
    assert {each["deliveries"] for each in found["runs"]} == {75 * 64}
    assert min(row["ratio_median"] for row in found["fanout"]) > 0
    assert [each["logins"] for each in found["logins"]] == [50, 4, 50, 10]
    assert "acl: promised 1.15 times plain at most, measured " in outcome


def test_cost_of_security_is_not_measured_at_a_running_broker() -> None:
    result = run("--secure", "--port", "61613", "--pid", "1")
    assert result.returncode == 2
    assert "--secure starts its own brokers" in result.stderr


def test_the_benchmark_has_51_rules_of_which_24_are_personal(tmp_path: Path) -> None:
    guarded = bench("guarded")
    file = tmp_path / "rules.toml"
    file.write_text("".join(guarded.rules_text()))
    access = read_acl_file(str(file))
    assert len(access.rules) == 51
    assert "51 rules" in guarded.SETTINGS["acl"]
    assert sum(rule.is_personal for rule in access.rules) == 24
    publisher = access.rights(Identity(guarded.PUBLISHER))
    assert publisher.decide(Action.SEND, "/topic/bench/0").rule is access.rules[3]
    subscriber = access.rights(Identity(guarded.SUBSCRIBER))
    assert subscriber.decide(Action.RECEIVE, "/topic/bench/0").rule is access.rules[50]
    assert not publisher.allows(Action.RECEIVE, "/topic/app-1/0/desk-1")


def cost_of(settings: str, pair: int, million_s: float, size: int = 117) -> Any:
    """One run of a million deliveries."""
    return bench("secure").Measured(settings, size, pair, 0, 10**6, 10**5, 2.0, million_s, 1.0)


def test_runs_are_compared_within_their_pair() -> None:
    runs = [
        cost_of("acl", 0, 3.0),
        cost_of("plain", 1, 8.0),
        cost_of("plain", 0, 2.0),
        cost_of("acl", 1, 8.8),
        cost_of("plain", 0, 100.0, size=65_536),
    ]
    assert bench("secure_table").ratios(runs, "acl", 117) == pytest.approx([1.5, 1.1])


def test_a_promise_holds_for_the_median_pair_of_small_bodies() -> None:
    plain = [cost_of("plain", pair, 1.0, size) for pair in range(3) for size in (117, 9000)]
    acl = [cost_of("acl", pair, cost) for pair, cost in enumerate((1.1, 1.15, 9.0))]
    tls = [cost_of("tls", pair, cost) for pair, cost in enumerate((2.0, 3.1, 3.2))]
    large = [cost_of(settings, pair, 5.0, 9000) for settings in ("acl", "tls") for pair in range(3)]
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
def test_spread_is_reported_by_quartiles(values: list[float], expected: tuple[float, ...]) -> None:
    assert tuple(bench("spread").Spread.of(values)) == expected


class Encrypted(NamedTuple):
    """The generator's end, what its bytes come from, and a broker's TLS, which speaks by hand."""

    ours: Any
    wire: socket.socket
    tls: ssl.SSLObject
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO

    def encrypted(self, data: bytes) -> bytes:
        """Return the ciphertext of the broker's data."""
        self.tls.write(data)
        return self.outgoing.read()

    def decrypted(self) -> bytes:
        """Return the data that the broker received."""
        with suppress(BlockingIOError):
            while data := self.wire.recv(1 << 20, socket.MSG_DONTWAIT):
                self.incoming.write(data)
        pieces = []
        with suppress(ssl.SSLWantReadError):
            while piece := self.tls.read(1 << 20):
                pieces.append(piece)
        return b"".join(pieces)


@pytest.fixture
def encrypted() -> Iterator[Encrypted]:
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
    # Data left in OpenSSL would be waited for in vain: epoll checks only the socket.
    data = b"".join(b"%010d" % number for number in range(6_000))
    encrypted.wire.sendall(
        b"".join(encrypted.encrypted(data[at : at + 500]) for at in range(0, 60_000, 500))
    )
    buffer = bytearray(256 * 1024)
    assert encrypted.ours.recv_into(buffer) == 60_000
    assert buffer[:60_000] == data
    with pytest.raises(BlockingIOError):
        encrypted.ours.recv_into(buffer)


def test_tls_that_comes_byte_by_byte_is_no_end(encrypted: Encrypted) -> None:
    buffer = bytearray(64 * 1024)
    *parts, last = (bytes([each]) for each in encrypted.encrypted(b"MESSAGE"))
    for part in parts:
        encrypted.wire.sendall(part)
        with pytest.raises(BlockingIOError):
            encrypted.ours.recv_into(buffer)
    encrypted.wire.sendall(last)
    assert encrypted.ours.recv_into(buffer) == 7
    assert buffer[:7] == b"MESSAGE"


@pytest.mark.parametrize("politely", [True, False], ids=["close_notify", "cut"])
def test_the_end_of_a_tls_stream_is_noticed(encrypted: Encrypted, politely: bool) -> None:
    if politely:
        with suppress(ssl.SSLWantReadError):
            encrypted.tls.unwrap()
        encrypted.wire.sendall(encrypted.outgoing.read() + b"and more")
    encrypted.wire.shutdown(socket.SHUT_WR)
    buffer = bytearray(64 * 1024)
    with pytest.raises(BlockingIOError):  # tickets for sessions to come; a close_notify
        encrypted.ours.recv_into(buffer)
    assert encrypted.ours.recv_into(buffer) == 0


def test_tls_sends_each_byte_once_however_often_the_socket_is_full(encrypted: Encrypted) -> None:
    data = b"".join(b"%010d" % number for number in range(200_000))
    connection = bench("wire").Connection(encrypted.ours, websocket=False)
    connection.send(data)
    assert connection.unsent
    values, turns = encrypted.decrypted(), 0
    while connection.unsent and turns < 1000:
        connection.flush()
        values += encrypted.decrypted()
        turns += 1
    assert values == data
    assert turns > 1


@pytest.mark.full
@needs_compiler
def test_a_quick_run_of_latency_measures_all_sides_alike(tmp_path: Path) -> None:
    result, outcome = quick(tmp_path, "--latency")
    found = result["latency"]
    sides = ("floor", "broker", "idle", "slow")
    cases = [(load, side) for load in ("1x1", "1x75") for side in sides]
    assert [(each["load"], each["side"]) for each in found["runs"]] == cases
    # Every copy of every message counts: 0.2 s at 2,000/s, and 75 copies at 500/s.
    assert [each["samples"] for each in found["runs"]] == [400] * 4 + [75 * 100] * 4
    for each in found["runs"]:
        for measure in ("read", "between"):
            shares = [each[measure][share] for share in ("p50", "p90", "p99", "p99.9")]
            assert 0 < shares[0] <= shares[1] <= shares[2] <= shares[3]
    assert len(found["rows"]) == 2 * 2 * 4
    assert len(found["promises"]) == 2 * 2 * 6
    assert found["idle_connections"] == 50
    assert "| 1x75, 500/s | the broker, 50 idle connections |" in outcome
    assert "1x1, broker, p50, between: promised 3.0 times floor at most" in outcome


@pytest.mark.full
@needs_compiler
def test_a_quick_run_of_the_distance_to_the_floor_has_topics_and_queues_over_tcp(
    tmp_path: Path,
) -> None:
    found, result = quick(tmp_path, "--floor")
    rows = found["floor"]
    names = [f"{name}-tcp" for name in ("headline", "fanout", "one", "thousand", "pairs", "paced")]
    names += ["queue-auto", "queue-ack-1000", "queue-ack", "queue-ack-10", "queue-ack-1"]
    names += ["queue-4-4", "queue-4-4-100"]
    assert [row["scenario"] for row in rows] == names
    for row in rows:
        assert row["floor_ratio_median"] == pytest.approx(
            row["broker_cpu_s_per_million_median"] / row["floor_cpu_s_per_million_median"]
        )
        assert f"| {row['scenario']} |" in result


def test_a_quick_run_of_pauses_tells_of_each_phase(tmp_path: Path) -> None:
    found, _ = quick(tmp_path, "--pauses", "--connections", "19000")
    opening, held, closing = found["pauses"]
    assert opening["what"] == "opening 50 connections"
    assert held["what"].startswith("50 idle, ")
    assert closing["what"] == "closing 50 connections"
    for row in (opening, held, closing):
        assert 0 <= row["gc_longest_ms"] <= row["gc_paused_ms"]


@pytest.mark.parametrize("mode", ["--latency", "--floor"])
def test_without_a_compiler_there_is_no_floor(mode: str, tmp_path: Path) -> None:
    result = run("--quick", mode, path=str(tmp_path))
    assert result.returncode == 1
    assert "the floor is written in C, and none of cc, gcc, clang is installed" in result.stderr
    assert "Traceback" not in result.stderr
    assert not result.stdout


def test_compiler_error_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho no such header >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    module = bench("floor")
    with (
        pytest.raises(Exception, match=r"does not compile .*floor\.c: no such header"),
        module.built_floor(),
    ):
        raise AssertionError("it runs all the same")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--latency", "--scenario", "one-tcp"), "--latency and --scenario exclude each other"),
        (
            ("--floor", "--scenario", "one-ws"),
            "--floor supports only headline-tcp,",
        ),
        (("--floor", "--port", "1", "--pid", "1"), "--floor starts its own brokers"),
        (("--pauses", "--connections", "0"), "--seconds and --connections must be more than 0"),
        (("--latency", "--seconds", "nan"), "--seconds and --connections must be more than 0"),
        (("--latency", "--floor"), "not allowed with argument"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    arguments: Sequence[str], expected: str
) -> None:
    result = run("--quick", *arguments)
    assert result.returncode == 2
    assert expected in result.stderr


@needs_compiler
def test_the_floor_sends_the_same_frames_as_the_broker(floor: Any) -> None:
    wire, process = bench("wire"), bench("process")
    sends = wire.Sends("/topic/bench/0", 117, websocket=False)

    def exchanged(port: int) -> tuple[bytes, bytes]:
        """Return the frames to subscriber and publisher for twice three messages."""
        subscriber = wire.Connection.open(port, websocket=False)
        publisher = wire.Connection.open(port, websocket=False)
        with closing(subscriber), closing(publisher):
            subscriber.subscribe("/topic/bench/0")
            messages, receipts = b"", b""
            for number in range(2):
                publisher.socket.sendall(sends.with_receipt(range(3), number))
                messages += _frames(subscriber.socket, 3)
                receipts += _frames(publisher.socket, 1)
            return messages, receipts

    with process.running_broker(()) as broker:
        messages, receipt = exchanged(broker.port)
    # The broker's name for its boot is its own, and as long as its clock wants it.
    boot = re.compile(rb"message-id:[^.\n]+\.1-")
    bare, bare_receipt = exchanged(floor.port)
    assert boot.sub(b"message-id:", bare) == boot.sub(b"message-id:", messages)
    assert abs(len(bare) - len(messages)) <= 6 * 2
    assert bare_receipt == receipt


def _frames(connected: socket.socket, count: int) -> bytes:
    """Read a number of frames."""
    data = b""
    while data.count(b"\0\n") < count:
        more = connected.recv(1 << 16)
        assert more
        data += more
    return data


@needs_compiler
def test_the_floor_gives_a_queue_s_messages_as_the_broker_does(floor: Any) -> None:
    wire, process = bench("wire"), bench("process")
    subscribe = "SUBSCRIBE\nid:%d\ndestination:/queue/q\nack:%s\n%sreceipt:s\n\n\0"
    send = b"SEND\ndestination:/queue/q\ncontent-length:1\n%b\n%d\0"
    sends = b"".join(send % (b"receipt:r\n" if n == 6 else b"", n) for n in range(7))
    ack = re.compile(rb"\nack:(.+)\n")

    def exchanged(port: int) -> list[bytes]:
        """Return the frames to a producer, to a consumer of two at a time, and to one of any
        number."""
        opened = [wire.Connection.open(port, websocket=False) for _ in range(3)]
        producer, filtered, eager = (each.socket for each in opened)
        with closing(producer), closing(filtered), closing(eager):
            asked = subscribe % (1, "client-individual", "prefetch-count:2\n")
            opened[1].ask(asked.encode(), b"RECEIPT\n")
            opened[2].ask((subscribe % (2, "auto", "")).encode(), b"RECEIPT\n")
            producer.sendall(sends)
            got = [_frames(producer, 1), _frames(filtered, 2), _frames(eager, 5)]
            producer.sendall(sends)
            got += [_frames(producer, 1), _frames(eager, 7)]
            acks = b"".join(b"ACK\nid:%b\n\n\0" % id for id in ack.findall(got[1]))
            filtered.sendall(
                acks + b"BEGIN\ntransaction:e\n\n\0ABORT\ntransaction:e\nreceipt:e\n\n\0"
            )
            got.append(_frames(filtered, 1))
            producer.sendall(sends)
            got += [_frames(producer, 1), _frames(filtered, 2), _frames(eager, 5)]
            return got

    with process.running_broker(()) as broker:
        expected = exchanged(broker.port)
    # The numbers of deliveries are arbitrary.
    boot = re.compile(rb"\n(ack|message-id):[^\n]+-\d+")
    bare = [boot.sub(rb"\n\1:", each) for each in exchanged(floor.port)]
    assert bare == [boot.sub(rb"\n\1:", each) for each in expected]


@needs_compiler
def test_the_floor_loses_nothing_for_a_subscriber_that_reads_late(floor: Any) -> None:
    wire = bench("wire")
    late, prompt, publisher = (wire.Connection.open(floor.port, websocket=False) for _ in range(3))
    got = {late: bytearray(), prompt: bytearray()}
    sends = wire.Sends("/topic/late", 4096, websocket=False)
    rounds, count, deadline = 3, 4_000, time.monotonic() + PATIENCE_S
    end = b"%010d\x7f\0\n" % (count - 1)
    with closing(late), closing(prompt), closing(publisher):
        for each in got:
            each.subscribe("/topic/late")
            each.start()
        publisher.start()
        for each_round in range(1, rounds + 1):
            publisher.send(sends.of(range(count)))
            # 16 MB, more than sockets hold, of which the late one takes some: the floor has to
            # keep the rest, and to move it when the next come.
            enough = {prompt: each_round * count * 4096, late: each_round * (2 << 20)}
            while any(len(data) < enough[each] for each, data in got.items()):
                assert time.monotonic() < deadline
                publisher.flush()
                for each, data in got.items():
                    if len(data) < enough[each]:
                        with suppress(BlockingIOError):
                            data += each.socket.recv(1 << 20)
        for each, data in got.items():
            each.socket.settimeout(10)
            while len(data) < rounds * count * 4096 or not data.endswith(end):
                more = each.socket.recv(1 << 20)
                assert more
                data += more
    numbers = [int(each) for each in wire.END.findall(got[prompt])]
    assert numbers == [*range(count)] * rounds
    assert got[late] == got[prompt]


@needs_compiler
def test_the_floor_serves_the_others_when_a_subscriber_leaves(floor: Any) -> None:
    wire = bench("wire")
    stays, goes, publisher = (wire.Connection.open(floor.port, websocket=False) for _ in range(3))
    with closing(stays), closing(goes), closing(publisher):
        for each in (stays, goes):
            each.subscribe("/topic/left")
        sends = wire.Sends("/topic/left", 4096, websocket=False)
        goes.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0] + [0] * 4))
        goes.close()  # by RST, with nothing read
        publisher.ask(
            sends.with_receipt([0], 0), b"RECEIPT\nreceipt-id:0000000000\x1f\nmatched:1\n"
        )
        assert _frames(stays.socket, 1)
        stays.start()
        publisher.start()
        publisher.send(sends.of(range(2_000)))
        deadline = time.monotonic() + PATIENCE_S
        while stays.received < 2_000:
            assert time.monotonic() < deadline
            publisher.flush()
            stays.read()


@needs_compiler
def test_the_floor_takes_frames_byte_by_byte(floor: Any) -> None:
    wire = bench("wire")
    frames = b"CONNECT\n\n\0SUBSCRIBE\nid:b\ndestination:/x\n\n\0"
    frames += b"SEND\ndestination:/x\ncontent-length:3\n\na\0b\0"
    sends = wire.Sends("/nobody", 117, websocket=False)
    with (
        socket.create_connection((wire.HOST, floor.port), timeout=PATIENCE_S) as connected,
        closing(wire.Connection.open(floor.port, websocket=False)) as other,
    ):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number, each in enumerate(frames):
            early = connected.recv(1 << 16, socket.MSG_PEEK) if number == len(frames) - 1 else b""
            assert b"MESSAGE" not in early
            connected.sendall(bytes([each]))
            # When this is answered, that byte has been read: one thread does both.
            other.ask(sends.with_receipt([0], 0), b"RECEIPT\n")
        data = _frames(connected, 2)
    assert data.endswith(b"destination:/x\ncontent-length:3\n\na\0b\0\n")


@needs_compiler
def test_a_floor_that_ends_says_why() -> None:
    module, wire = bench("floor"), bench("wire")
    with (
        pytest.raises(Exception, match=r"the floor ended: .*the floor does not know NONSENSE"),
        module.built_floor() as program,
        module.running_floor(program) as running,
        closing(wire.Connection.open(running.port, websocket=False)) as connection,
    ):
        connection.ask(b"NONSENSE\n\n\0", b"RECEIPT\n")


def test_the_latency_of_a_side_is_compared_within_its_round() -> None:
    shares = dict.fromkeys(("p50", "p90", "p99", "p99.9"), 1.0)

    def run_of(side: str, pair: int, p50: float) -> Any:
        more = shares | {"p50": p50}
        return bench("latency").Latencies("1x1", side, pair, 0, 10, 3, shares, more)

    floor = [run_of("floor", pair, p50) for pair, p50 in ((1, 4.0), (0, 1.0), (2, 1.0))]
    broker = [run_of("broker", pair, p50) for pair, p50 in ((0, 2.0), (1, 16.0), (2, 3.1))]
    others = [run_of(side, pair, 3.0) for side in ("idle", "slow") for pair in range(3)]
    small = [*floor, *broker, *others]
    runs = [*small, *(each._replace(load="1x75") for each in small)]
    module = bench("latency_table")
    assert module.ratios(runs, "1x1", "broker", "between", "p50") == pytest.approx([2.0, 4.0, 3.1])
    text = module.latency_table(runs, 5000)
    assert (
        "1x1, broker, p50, between: promised 3.0 times floor at most, measured 3.10: BROK" in text
    )
    assert "1x1, broker, p50, read: promised 3.0 times floor at most, measured 1.00: kept" in text
    assert "1x1, idle, p50, between: promised 1.5 times broker at most, measured 0.97: kept" in text
    assert "1x1: 9 slow consumers were dropped in all rounds" in text


@pytest.mark.parametrize(
    ("longest", "expected"),
    [
        ([90.0, 0.0, 0.0], (0.0, "kept")),
        ([0.0, 20.0, 1.0], (20.0, "kept")),
        ([0.0, 1.0, 21.0], (21.0, "BROKEN")),
    ],
    ids=["before", "one", "too-long"],
)
def test_the_longest_pause_is_that_of_all_intervals(
    longest: list[float], expected: tuple[float, str]
) -> None:
    records = [
        {
            "gc_pause_ms_total": total,
            "gc_pause_ms_max": pause,
            "gc_collections_total": [int(total), 1],
            "loop_lag_ms_max": lag,
        }
        for total, pause, lag in zip((5.0, 35.0, 65.0), longest, (90.0, 1.0, 2.0), strict=True)
    ]
    phase = bench("pauses").phase_of("it", 1.0, records)
    assert (phase.longest, phase.verdict) == expected
    assert (phase.collections, phase.paused) == ((60, 0), 60.0)
    assert phase.turn == 2.0  # the first record covers the time before


def test_no_more_connections_are_asked_for_than_files_may_be_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses = bench("pauses")
    limits = {"hard": 4096}
    monkeypatch.setattr(pauses.resource, "getrlimit", lambda _: (1024, limits["hard"]))
    assert pauses.allowed(100) == 100
    assert 3000 < pauses.allowed(19_000) < 4096
    limits["hard"] = pauses.resource.RLIM_INFINITY
    assert pauses.allowed(19_000) == 19_000


def test_slow_consumers_are_dropped_by_a_broker_and_counted() -> None:
    with (
        bench("process").running_broker(("--max-outbox-bytes", "65536")) as broker,
        closing(bench("slow").SlowConsumers(broker.port)) as slow,
    ):
        deadline = time.monotonic() + PATIENCE_S
        while slow.ended() <= 10:  # those of the first round, and one more
            assert time.monotonic() < deadline


def test_slow_consumers_that_are_refused_are_no_result() -> None:
    module, process = bench("slow"), bench("process")
    with (
        process.running_broker(("--max-connections", "5")) as broker,
        pytest.raises(process.BenchError, match=r"the slow consumers: .*too-many-connections"),
    ):
        module.SlowConsumers(broker.port)
