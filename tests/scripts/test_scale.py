"""The check of ``scripts/scale.py``: it receives every message, and its figures are correct."""

import importlib
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripts import measured, run_script

run = partial(run_script, "scale", patience_s=300)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs epoll, /proc")


def module(name: str) -> Any:
    """One of the scripts' modules."""
    return importlib.import_module(name)


@pytest.mark.full
def test_a_quick_run_delivers_all_and_tells_all(tmp_path: Path) -> None:
    found, result = measured(tmp_path, "scale", "--quick")
    assert (found["quick"], found["failures"]) == (True, [])
    points = found["points"]
    sizes: dict[str, list[int]] = {}
    for each in points:
        sizes.setdefault(each["dimension"], []).append(each["size"])
        assert each["broker_cpu_s_per_million"] > 0
        assert each["rss_bytes"] > 10**6
        assert each["longest_turn_ms_probing"] > 0
        # All of them come, or there is no result; the deep queue's consumer gets a few beforehand.
        low, high = (640, 840) if each["dimension"] == "queue-head" else (640, 640)
        assert low <= each["deliveries"] <= high
        assert f"| {each['dimension']} | {each['size']:,} |" in result
    assert sizes.pop("destinations-round") == [10, 100]
    assert sizes.pop("queue-head") == [1000, 2000]
    names = ("connections", "subscriptions", "patterns", "patterns-walk", "destinations")
    assert sizes == {name: [0, 100] for name in (*names, "queue-depth", "stale")}
    firsts = [each for each in points if each["size"] in (0, 1000) or each["added"] == 10]
    assert {each["ratio"] for each in firsts} == {1}
    herd = [(each["what"], each["connections"]) for each in found["herd"]]
    idle = [f"idle: {what}" for what in ("disconnect", "reconnect", "disconnect again")]
    subscribers = ("subscriptions", "patterns", "patterns-walk")
    assert herd == [
        *((what, 100) for what in idle),
        *((f"with 100 {name}: disconnect", 1) for name in subscribers),
    ]
    assert [(each["what"], each["connections"]) for each in found["idle"]] == [
        ("TCP", 100),
        ("WebSocket", 100),
    ]
    # Cost and turns of nine dimensions, turns and waits of six herds.
    assert len(found["promises"]) == 2 * 9 + 2 * 6
    assert result.count(": kept") + result.count(": BROKEN") == 30


def test_dimension_is_chosen_by_its_name(tmp_path: Path) -> None:
    found, result = measured(tmp_path, "scale", "--quick", "--only", "stale")
    assert {each["dimension"] for each in found["points"]} == {"stale"}
    assert (found["herd"], found["idle"]) == ([], [])
    assert "--max-stale-queue-size 2000000" in result


def test_unknown_dimension_is_refused() -> None:
    result = run("--only", "nothing")
    assert result.returncode == 2
    assert "queue-head" in result.stderr


def test_no_pattern_of_the_fill_matches_a_destination_of_the_load() -> None:
    from trio_stomp.broker.names import compile_pattern, matches

    name = module("_bench.scale_fill").pattern_of("/topic/bench")
    texts = {name(n) for n in range(1000)}
    assert len(texts) == 100  # ten subscriptions to each
    patterns = [compile_pattern(text, "native") for text in texts]
    for pattern in patterns:
        assert pattern is not None
        assert not any(matches(pattern, f"/topic/bench/{n}") for n in range(1000))
    one = compile_pattern("/topic/*/0", "native")
    assert one is not None
    assert matches(one, "/topic/bench/0")


def test_messages_go_round() -> None:
    sends = module("_bench.scale_fill").RoundSends(["/topic/a", "/topic/b"], 20)
    frames = sends.with_receipt(range(3, 6), 7).split(b"\0")
    assert frames.pop() == b""
    assert [frame.partition(b"destination:")[2].partition(b"\n")[0] for frame in frames] == [
        b"/topic/b",
        b"/topic/a",
        b"/topic/b",
    ]
    assert [frame.rpartition(b"\n\n")[2] for frame in frames] == [
        b"x" * 9 + b"%010d\x7f" % n for n in range(3, 6)
    ]
    assert [b"receipt:0000000007\x1f\n" in frame for frame in frames] == [False, False, True]


def test_a_fill_never_has_a_batch_for_two_connections() -> None:
    fills = module("_bench.scale_fill")
    batches: list[range] = []

    class Noted(fills.Fill):  # type: ignore[misc, name-defined]
        def add(self, numbers: range) -> None:
            batches.append(numbers)

    fill = Noted(0)
    for size in (0, 10, 100, 25_000, 25_000):
        fill.to(size)
    assert [n for batch in batches for n in batch] == list(range(25_000))
    for batch in batches:
        assert batch[0] // fills.PER_CONNECTION == batch[-1] // fills.PER_CONNECTION


def series(name: str, promised: float, costs: dict[int, float], turn_ms: float) -> list[Any]:
    """Points of one dimension with such costs, each of two runs of which the first is cheaper."""
    scale, pauses = module("_bench.scale"), module("_bench.pauses")
    process, load = module("_bench.process"), module("_bench.load")
    dimension = scale.Dimension(name, name, tuple(costs), (), None, promised=promised)
    calm = pauses.Phase("", 1.0, (0, 0, 0), 0.0, 0.0, turn_ms)
    return [
        scale.Point(
            dimension,
            size,
            [
                load.Run(1000, 1.0, process.Cpu(0, 0, each / 1000), 0.1, ())
                for each in (cost, 9 * cost)
            ],
            1 << 20,
            size,
            process.Cpu(0, 0, 1.0),
            calm,
            calm,
            calm,
            0.01,
            0.01,
        )
        for size, cost in costs.items()
    ]


def test_a_promise_is_judged_by_the_worst_size_and_the_cheapest_run() -> None:
    script = module("scale")
    flat = series("flat", 1.5, {0: 2.0, 10: 3.0, 100: 1.0}, 99.0)
    steep = series("steep", 2.0, {10: 1.0, 100: 2.5}, 101.0)
    lone = series("lone", 1.5, {10: 1.0}, 1.0)
    lines = [each.line() for each in script.promises([*flat, *steep, *lone], [])]
    assert lines == [
        "flat, cost of a message at 10 by that at 0: promised 1.5 at most, measured 1.5: kept",
        "steep, cost of a message at 100 by that at 10: promised 2 at most, measured 2.5: BROKEN",
        "flat, longest turn: probe, DIAG: promised 100 ms at most, measured 99 ms: kept",
        "steep, longest turn: probe, DIAG: promised 100 ms at most, measured 101 ms: BROKEN",
        "lone, longest turn: probe, DIAG: promised 100 ms at most, measured 1 ms: kept",
    ]
    rows = script.point_rows([*flat, *steep])
    assert [row["ratio"] for row in rows] == [1.0, 1.5, 0.5, 1.0, 2.5]
    assert rows[0]["broker_cpu_s_per_million_max"] == pytest.approx(18.0)


def test_a_herd_is_judged_by_its_longest_turn_and_the_wait_of_others() -> None:
    script, pauses = module("scale"), module("_bench.pauses")
    phase = pauses.Phase("disconnect", 1.0, (0, 0, 0), 0.0, 0.0, 42.0)
    herd = module("_bench.scale_herd").Herd(7, phase, module("_bench.process").Cpu(0, 0, 1), 3.2)
    assert [each.line() for each in script.promises([], [herd])] == [
        "7 connections disconnect, longest turn: promised 100 ms at most, measured 42 ms: kept",
        "7 connections disconnect, what another waits: promised 100 ms at most,"
        " measured 3.2e+03 ms: BROKEN",
    ]


def test_failed_dimension_is_reported_and_the_others_continue(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script, process = module("scale"), module("_bench.process")
    good = series("stale", 1.5, {0: 1.0, 10: 1.0}, 1.0)

    def measure(dimension: Any, say: Any, *, quick: bool) -> Any:
        if dimension.name == "queue-head":
            raise process.BenchError("message 7 was due, message 9 came")
        yield from good

    monkeypatch.setattr(script, "measure", measure)
    file = tmp_path / "result.json"
    arguments = ["--only", "queue-head", "stale", "--json", str(file)]
    assert script.main(arguments) == 1
    assert "- FAILED: queue-head: message 7 was due, message 9 came" in capsys.readouterr().out
    found = json.loads(file.read_text())
    assert len(found["points"]) == 2
    assert len(found["failures"]) == 1


@pytest.mark.parametrize(
    ("hard", "possible"), [(20_000, 19_000), (1024, 896), (64, 1), (-1, 19_000)]
)
def test_there_are_as_many_connections_as_descriptors_allow(
    hard: int, possible: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale = module("_bench.scale")
    monkeypatch.setattr(scale.resource, "getrlimit", lambda _: (64, hard))
    assert scale.allowed(19_000) == possible
    connections = next(iter(scale.dimensions(possible)))
    assert connections.sizes == sorted({0, *(min(possible, n) for n in (19, 190, 1900, 19_000))})


@pytest.mark.parametrize("numbers", [[1], [0, 2], [0, 0], [0, 1, 1]])
def test_the_deep_queue_wants_every_message_in_order(numbers: list[int]) -> None:
    fills, wire = module("_bench.scale_fill"), module("_bench.wire")
    queue = fills.DeepQueue.__new__(fills.DeepQueue)
    queue._taken, queue._left, queue._acks = 0, b"", b""
    data = b"".join(b"MESSAGE\nack:%d\n\n%010d\x7f\0" % (n, n) for n in numbers)
    wire.BUFFER[: len(data)] = data
    with pytest.raises(Exception, match="message 0 was due"):
        queue._take(len(data))
    with pytest.raises(Exception, match="closed a connection"):
        queue._take(0)


def test_the_deep_queue_acknowledges_every_message_though_frames_are_cut() -> None:
    fills, wire = module("_bench.scale_fill"), module("_bench.wire")
    queue = fills.DeepQueue.__new__(fills.DeepQueue)
    queue._taken, queue._left, queue._acks = 0, b"", b""
    data = b"".join(b"MESSAGE\nack:%d\n\n%010d\x7f\0" % (n, n) for n in range(3))
    for part in (data[:30], data[30:41], data[41:]):
        wire.BUFFER[: len(part)] = part
        queue._take(len(part))
    assert queue._taken == 3
    assert queue._acks == b"".join(b"ACK\nid:%d\n\n\0" % n for n in range(3))
