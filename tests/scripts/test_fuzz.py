"""The fuzz targets on their corpora, and the fuzzer itself, which finds planted faults."""

import importlib
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from _oracle.strategies import Decoded

from trio_stomp.frames import V1_2

SCRIPTS = Path(__file__).parents[2] / "scripts"
CORPORA = Path(__file__).parents[1] / "data" / "fuzz"
NAMES = sorted(path.stem for path in CORPORA.glob("*.txt"))
FRESH = 20
MOST_BYTES = 200_000
PATIENCE_S = 100


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def fuzz(name: str) -> ModuleType:
    return importlib.import_module(f"_fuzz.{name}")


# The targets.


@pytest.mark.parametrize("name", NAMES)
def test_the_corpus_finds_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for store in ("journal._tail", "streams._log"):  # the targets fix their random choices
        module = importlib.import_module(f"trio_stomp.store.{store}")
        monkeypatch.setattr(module, "token_bytes", module.token_bytes)
    try:
        target = fuzz("targets").make_target(name)
    except ModuleNotFoundError as error:
        pytest.skip(f"{error}: pip install 'trio-stomp[dev]'")
    inputs = fuzz("corpus").load(name)
    assert inputs
    chance = random.Random(name)
    for data in (*inputs, b"", *(target.generate(chance) for _ in range(FRESH))):
        target.run(data)


def test_every_target_has_a_corpus_and_all_are_small() -> None:
    assert sorted(fuzz("targets").MODULES) == NAMES
    assert sum(path.stat().st_size for path in CORPORA.iterdir()) < MOST_BYTES


def test_a_decoder_that_errs_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fuzz("targets.decoder")
    monkeypatch.setattr(module, "naive_decode", lambda *_: Decoded([], "invalid-header", None))
    with pytest.raises(fuzz("target").Finding, match="byte by byte"):
        module.decode(b"\xff\0SEND\n\n\0", V1_2)


def test_an_encoder_that_lets_a_header_break_out_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = fuzz("targets.encoder")
    monkeypatch.setattr(
        module,
        "encode_frame",
        lambda command, pairs, rules, body: b"MESSAGE\na:b\nc:d\n\n" + body + b"\0\n",
    )
    with pytest.raises(fuzz("target").Finding, match="nobody sent"):
        module.encode(b"\x03" + b"\x1fa\x1fb")
    assert V1_2 is module.RULES[3]


# The fuzzer.


def planted(run: Callable[[bytes], None]) -> SimpleNamespace:
    def generate(chance: random.Random) -> bytes:
        return b"a" * chance.randrange(4)

    return SimpleNamespace(
        name="planted",
        run=run,
        files=(),
        generate=generate,
        dictionary=(b"one", b"two", b"=7"),
        max_bytes=64,
    )


def run_planted(
    run: Callable[[bytes], None], found: Path, seconds: float = 5.0
) -> tuple[dict[str, object], list[bytes]]:
    """The report, and the inputs that were written down; ends with the first of them."""
    harness = fuzz("harness").Harness(planted(run), seconds, found, fuzz("lines").Lines([]))
    corpus: list[bytes] = [b"aaaa"]
    fuzz("engine").mutate(harness, corpus, 1)
    return harness.report(corpus), [path.read_bytes() for path in sorted(found.glob("*.bin"))]


@pytest.fixture
def _first_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz("harness"), "MOST_FINDINGS", 1)
    monkeypatch.setattr(fuzz("harness"), "CHECK_EVERY", 1)


@pytest.mark.usefixtures("_first_only")
def test_an_exception_is_found_and_made_short(tmp_path: Path) -> None:
    def run(data: bytes) -> None:
        if b"one" in data and b"=7" in data:
            raise KeyError(data)

    report, inputs = run_planted(run, tmp_path)
    assert len(report["findings"]) == 1  # type: ignore[arg-type]
    assert inputs in ([b"one=7"], [b"=7one"])
    assert "KeyError" in next(tmp_path.glob("*.txt")).read_text()


@pytest.mark.usefixtures("_first_only")
def test_a_hang_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz("harness"), "HANG_S", 0.02)
    monkeypatch.setattr(fuzz("harness"), "MINIMIZING_S", 0.0)

    def run(data: bytes) -> None:
        while b"two" in data:
            pass

    report, inputs = run_planted(run, tmp_path)
    assert "Hang" in str(report["findings"])
    assert b"two" in inputs[0]


@pytest.mark.usefixtures("_first_only")
def test_a_slow_input_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz("harness"), "SLOW_S", 0.002)
    monkeypatch.setattr(fuzz("harness"), "MINIMIZING_S", 0.0)

    def run(data: bytes) -> None:
        if b"two" in data:
            sum(range(1_000_000))

    report, inputs = run_planted(run, tmp_path)
    assert "slow" in report["findings"]  # type: ignore[operator]
    assert b"two" in inputs[0]


def test_memory_that_grows_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("LEAK_BLOCKS", 10_000), ("WARM_UP", 0.0), ("CHECK_EVERY", 8)):
        monkeypatch.setattr(fuzz("harness"), name, number)
    kept: list[object] = []

    def leak(data: bytes) -> None:
        if len(kept) < 100:
            kept.append([object() for _ in range(2000)])

    report, _ = run_planted(lambda data: None, tmp_path, 0.3)
    assert report["findings"] == {}
    report, _ = run_planted(leak, tmp_path, 0.3)
    assert "memory grows" in report["findings"]  # type: ignore[operator]


def test_valid_input_is_no_finding(tmp_path: Path) -> None:
    report, inputs = run_planted(lambda data: None, tmp_path, 0.1)
    assert report["findings"] == {}
    assert inputs == []
    assert report["executions"]


def test_lines_are_counted_within_functions_only(tmp_path: Path) -> None:
    path = tmp_path / "watched.py"
    path.write_text(
        "X = 1\n\n\ndef sign(n):\n    if n < 0:\n        return -1\n    return 1\n\n\n"
        "class C:\n    y = 2\n"
    )
    lines = fuzz("lines").Lines([path])
    names: dict[str, Callable[[int], int]] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    before = sys.gettrace()
    with lines:
        names["sign"](1)
    assert lines.missing() == ["watched.py:6"]
    with lines:
        names["sign"](-1)
    assert sys.gettrace() is before
    assert (lines.missing(), lines.total) == ([], 3)


def test_a_corpus_keeps_findings_and_inputs_that_reach_new_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = fuzz("corpus")
    monkeypatch.setattr(corpus, "DIRECTORY", tmp_path)
    (tmp_path / "planted.txt").write_text("# a crash\nb'found'\nb'old'\n")
    assert corpus.load("planted") == [b"found", b"old"]
    corpus.save(planted(lambda data: None), [b"new"], [])
    assert (tmp_path / "planted.txt").read_text() == "# a crash\nb'found'\n"
    assert corpus.load("not there") == []


def run_script(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "fuzz.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_the_whole_of_it(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    words = ["--target", "sniff", "--seconds", "0.3", "--engine", "mutate"]
    done = run_script(*words, "--findings", str(tmp_path), "--json", str(figures))
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(figures.read_text())
    assert result["executions"] > 0
    assert result["lines_covered"] == result["lines"]
    assert "0 findings" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_an_input_can_be_replayed(tmp_path: Path) -> None:
    path = tmp_path / "sniff-0.bin"
    path.write_bytes(b"GET / HTTP/1.1\r\n")
    done = run_script("--replay", str(path))
    assert (done.returncode, done.stderr.endswith("nothing found\n")) == (0, True)
