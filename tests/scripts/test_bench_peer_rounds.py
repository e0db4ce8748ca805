"""This broker beside others: runs, rounds and the table, without any broker."""

import json
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import pytest
from _bench import peers
from _bench.load import Run, Shape
from _bench.others import NotInstalledError
from _bench.peer_brokers import OURS, Peer, Standing
from _bench.peers import Measurement, Plan, Report, limited, measure_peers, warm_run
from _bench.peers_table import cell, lines, peers_figures, peers_table, shown
from _bench.process import BenchError, Broker, Cpu
from _bench.queues import QueueShape
from _bench.scenarios import peer_scenarios
from _bench.wire import RECEIPT_MARK, STRANGER, Connection

FANOUT, LATENCY, IDLE = (
    next(each for each in peer_scenarios() if each.name == name)
    for name in ("fanout-tcp", "latency-tcp", "idle-tcp")
)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs epoll, /proc")


# --- the generator with other brokers -----------------------------------------------------------


def read(data: bytes, *, mark: bytes, in_order: bool = True) -> int:
    """Return how many messages, or receipts, a connection finds there."""
    ours, broker = socket.socketpair()
    with ours, broker:
        broker.sendall(data)
        connection = Connection(ours, websocket=False, mark=mark)
        connection.in_order = in_order
        return connection.read()


def test_a_receipt_that_comes_back_in_a_message_is_no_message() -> None:
    data = b"".join(b"MESSAGE\nreceipt:%010d\x1f\n\n%010d\x7f\0\n" % (n // 2, n) for n in range(9))
    assert read(data, mark=b"\x7f") == 9


def test_receipts_come_in_order_unless_that_is_not_promised() -> None:
    data = b"".join(b"RECEIPT\nreceipt-id:%010d\x1f\n\n\0\n" % n for n in (0, 2, 1, 3, 5, 4))
    assert read(data, mark=RECEIPT_MARK, in_order=False) == 6
    with pytest.raises(BenchError, match=r"message 5 was due, message 0000000004 came"):
        read(data, mark=RECEIPT_MARK)


class Loaded:
    """A load at a broker of one speed."""

    def __init__(self, shape: Shape | QueueShape, per_s: float) -> None:
        self.shape = shape
        self.sizes = [shape.messages]
        self._per_s = per_s

    def resize(self, messages: int) -> None:
        self.shape = self.shape._replace(messages=messages)
        self.sizes.append(messages)

    def run(self, limit_s: float) -> Run:
        return Run(1, min(limit_s, self.shape.messages / self._per_s), Cpu(0, 0, 0), 0, ())


@pytest.mark.parametrize("per_s", [50.0, 3_000.0, 1_000_000.0])
@pytest.mark.parametrize(
    "shape", [Shape(1, 75, 400, 16, 64, 256), QueueShape(1, 1, 2560, 64, 256, 1024)]
)
def test_a_run_lasts_as_long_as_it_is_to(shape: Shape | QueueShape, per_s: float) -> None:
    load = Loaded(shape, per_s)
    counted = warm_run(load, 4.0)  # type: ignore[arg-type]
    at_once = 64 if isinstance(shape, QueueShape) else 16
    assert not any(size % at_once for size in load.sizes)
    assert all(after <= 8 * before for before, after in pairwise(load.sizes[:-1]))
    assert counted.wall_s == pytest.approx(4.0, abs=at_once / per_s)


def test_nothing_takes_longer_than_it_may() -> None:
    before = signal.getsignal(signal.SIGALRM)
    ours, silent = socket.socketpair()
    with ours, silent:
        with pytest.raises(BenchError, match=r"it was not done within 0\.05 s"), limited(0.05):
            ours.recv(1)
        with limited(60):
            pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) is before


# --- rounds -------------------------------------------------------------------------------------

Starts = list[tuple[str, bool]]


def peer_of(name: str, starts: Starts, error: Exception | None = None) -> Peer:
    """A broker of no weight, or one that does not start."""

    @contextmanager
    def start(durable: bool) -> Iterator[Standing]:
        starts.append((name, durable))
        if error is not None:
            raise error
        yield Standing(Broker(0, 0), None, STRANGER, f"{name}/1")

    return Peer(name, start)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """Return a function that runs rounds without measuring."""

    def go(peers_of: Sequence[Peer], names: Sequence[str], failing: str = "") -> Report:
        def figures(_: Plan, standing: Standing, scenario: object, tag: str) -> dict[str, float]:
            if standing.server.startswith(failing or "nobody"):
                raise BenchError("it broke\nand this is its log")
            return {"million_s": 1.0}

        monkeypatch.setattr(peers, "_figures", figures)
        chosen = [each for each in peer_scenarios() if each.name in names]
        return measure_peers(Plan(peers_of, chosen, 2, 1.0, 1, False), lambda _: None)

    return go


def test_brokers_take_turns_and_are_started_for_each_purpose(rounds: Callable[..., Report]) -> None:
    starts: Starts = []
    brokers = [peer_of(name, starts) for name in (OURS, "b", "c")]
    report = rounds(brokers, ("fanout-tcp", "durable-queue", "idle-tcp"))
    order = [(run.scenario, run.round, run.peer, run.order) for run in report.runs]
    assert order[:6] == [
        *(("idle-tcp", 0, peer, n) for n, peer in enumerate((OURS, "b", "c"))),
        *(("fanout-tcp", 0, peer, n) for n, peer in enumerate((OURS, "b", "c"))),
    ]
    assert order[-3:] == [("durable-queue", 1, peer, n) for n, peer in enumerate(("b", "c", OURS))]
    assert starts[:9] == [(name, durable) for durable in (0, 0, 1) for name in (OURS, "b", "c")]
    assert len(starts) == 18


def test_failed_broker_is_restarted_and_skips_the_scenario(rounds: Callable[..., Report]) -> None:
    starts: Starts = []
    brokers = [peer_of(name, starts) for name in (OURS, "b")]
    report = rounds(brokers, ("fanout-tcp", "one-tcp"), failing="b/")
    assert report.failures == {("b", "fanout-tcp"): "it broke", ("b", "one-tcp"): "it broke"}
    assert [name for name, _ in starts] == [OURS, "b", "b", OURS]
    assert [run.peer for run in report.runs] == [OURS] * 4


def test_missing_broker_is_looked_for_once(rounds: Callable[..., Report]) -> None:
    starts: Starts = []
    brokers = [
        peer_of(OURS, starts),
        peer_of("b", starts, NotInstalledError("b", "b-server")),
        peer_of("c", starts, OSError(111, "refused")),
    ]
    report = rounds(brokers, ("fanout-tcp", "one-tcp"))
    assert report.absent.keys() == {"b", "c"}
    assert report.absent["b"].startswith("b is not installed; scripts/install_other_brokers.sh or")
    assert report.absent["c"] == "c: [Errno 111] refused"
    assert [name for name, _ in starts] == [OURS, "b", "c", OURS]
    with pytest.raises(OSError, match="refused"):
        rounds([peer_of(OURS, starts, OSError(111, "refused"))], ("fanout-tcp",))


# --- the table ----------------------------------------------------------------------------------


@pytest.fixture
def report() -> Report:
    """Two rounds of two loads, of which a peer failed in one."""
    made = Report()
    made.servers = {OURS: "ours/1", "b": "bee/2"}
    made.absent = {"c": "c is not installed; ask somebody"}
    made.failures = {("b", "latency-tcp"): "it closed"}
    for number, (ours, theirs) in enumerate([(2.0, 8.0), (1.0, 16.0)]):
        for peer, value in ((OURS, ours), ("b", theirs)):
            figures = {"million_s": value, "per_s": 1000 / value}
            made.runs.append(Measurement("fanout-tcp", peer, number, 0, figures))
        figures = {"p50_us": 100.0, "p99_us": 3000.0, "million_s": 5.0}
        made.runs.append(Measurement("latency-tcp", OURS, number, 0, figures))
    return made


def test_ratios_are_taken_within_the_round(report: Report) -> None:
    line = next(lines(report.runs[1:], [FANOUT]))  # the first round lacks ours
    assert line.ratios("b") == [16.0]
    assert next(lines(report.runs, [FANOUT])).ratios("b") == [4.0, 16.0]
    assert next(lines(report.runs, [LATENCY])).ratios("b") == []


def test_the_table_has_every_broker_that_took_part(report: Report) -> None:
    text = peers_table(report, [FANOUT, LATENCY, IDLE], [OURS, "b", "c"], "A machine.")
    assert f"| scenario | what | {OURS}: median | b | times {OURS}, in each round |" in text
    assert (
        f"| fanout-tcp | {FANOUT.what}: CPU s per million | 1.50 | 12.0 | 10.0 (4.00-16.0) |"
        in text
    )
    assert f"| fanout-tcp | {FANOUT.what}: deliveries/s | 750 | 93.8 | 0.16 (0.06-0.25) |" in text
    assert f"| latency-tcp | {LATENCY.what}: p99, µs | 3,000 | – | – |" in text
    assert f"Measured: {OURS} (ours/1), b (bee/2)." in text
    assert "- not measured: c is not installed; ask somebody" in text
    assert "- – latency-tcp, b: it closed" in text
    assert "idle-tcp" not in text
    assert text.endswith("A machine.")


def test_the_file_has_every_figure(report: Report) -> None:
    found = peers_figures(report, [FANOUT, LATENCY])
    rows = found["rows"]
    assert isinstance(rows, list)
    (row,) = (each for each in rows if (each["figure"], each["peer"]) == ("million_s", "b"))
    assert (row["value_median"], row["ratio_least"], row["ratio_most"]) == (12.0, 4.0, 16.0)
    assert found["failures"] == [{"peer": "b", "scenario": "latency-tcp", "reason": "it closed"}]
    assert json.loads(json.dumps(found))["runs"][0]["figures"] == {"million_s": 2, "per_s": 500}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.004, "0.00"), (9.994, "9.99"), (9.996, "10.0"), (99.96, "100"), (12_345.6, "12,346")],
)
def test_figures_have_some_three_digits(value: float, expected: str) -> None:
    assert shown(value) == expected


def test_spread_is_reported_if_there_is_one() -> None:
    assert (cell([]), cell([2.0]), cell([3.0, 1.0])) == ("–", "2.00", "2.00 (1.00-3.00)")
