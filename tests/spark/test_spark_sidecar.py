"""The sidecar with a real Spark: whatever ends it, no row is lost, and none is there twice."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import spark as _spark
from tests.support.spark import spark as spark
from tests.support.stream_server import StreamServer, event

_spark.require("pyspark", "deltalake")

from tests.support.commands import parser_of  # noqa: E402
from tests.support.lake import offsets  # noqa: E402
from trio_stomp.cli import main  # noqa: E402
from trio_stomp.cli.commands import _spark as _spark_command  # noqa: E402
from trio_stomp.spark import StreamAddress, StreamAway, StreamClient, StreamError  # noqa: E402
from trio_stomp.spark.lake import Store, open_store  # noqa: E402
from trio_stomp.spark.running._demo import busy_clients, running_broker  # noqa: E402
from trio_stomp.spark.running._sidecar import Reporter, follow  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Warnings of pyspark and its libraries are not ours to fix.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

SCRIPT = Path(__file__).parents[2] / "scripts" / "diag_to_parquet.py"
PATIENCE_S = 120


@pytest.fixture
def server() -> Iterator[StreamServer]:
    with StreamServer() as server:
        yield server


@pytest.fixture
def drain(
    spark: "SparkSession", server: StreamServer, tmp_path: Path, capsys: Any
) -> Callable[..., list[dict[str, Any]]]:
    """Return a function that runs ``once`` and returns the printed lines."""

    def run(*options: str) -> list[dict[str, Any]]:
        words = ["once", "--url", server.url, "--root", str(tmp_path), "--retry-s", "5", *options]
        capsys.readouterr()
        given = parser_of("spark").parse_args(words)
        follow(spark, _spark_command.sidecar_of(given), Event())
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def fill(server: StreamServer, count: int) -> None:
    for number in range(count):
        server.append("DIAG/event/subscribe", event("subscribe", number=number))


def stored(root: Path) -> Store:
    return open_store(root)


def commits(root: Path) -> Path:
    """Return the directory of the only query's commits."""
    (found,) = (root / "checkpoints").glob("DIAG@127.0.0.1=3A*/commits")
    return found


def test_stream_is_drained_in_batches_and_resumed(
    server: StreamServer, drain: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    fill(server, 250)
    lines = drain("--max-rows", "100")
    batches = [line for line in lines if line["event"] == "batch"]
    assert [line["rows"] for line in batches] == [100, 100, 50]
    assert [line["lag"] for line in batches] == [150, 50, 0]
    assert batches[0]["ms"]["addBatch"] >= 0
    assert (lines[0]["event"], lines[-1]["event"]) == ("started", "done")
    assert offsets(stored(tmp_path), "event") == list(range(250))
    # Nothing new makes no batch; something new does.
    assert [line["event"] for line in drain()] == ["started", "done"]
    fill(server, 5)
    drain()
    assert offsets(stored(tmp_path), "event") == list(range(255))


@pytest.mark.full
@pytest.mark.parametrize("lost", ["commit", "checkpoint", "commit-and-messages"])
def test_a_crash_loses_and_repeats_nothing(
    server: StreamServer,
    drain: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
    lost: str,
) -> None:
    """The process dies right before its last commit, or the checkpoint is lost as a whole."""
    fill(server, 20)
    drain("--max-rows", "10")
    if lost == "checkpoint":
        shutil.rmtree(tmp_path / "checkpoints")
    else:
        (commits(tmp_path) / "1").unlink()
        (commits(tmp_path) / ".1.crc").unlink()
    if lost == "commit-and-messages":
        server.trim(20)
    fill(server, 5)
    drain("--max-rows", "10")
    assert offsets(stored(tmp_path), "event") == list(range(25))
    assert offsets(stored(tmp_path), "_gap") == []


@pytest.mark.full
def test_lost_messages_become_a_row(
    server: StreamServer, drain: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    fill(server, 10)
    drain()
    fill(server, 10)
    server.trim(15)
    drain()
    server.new_epoch()
    fill(server, 3)
    drain()
    assert offsets(stored(tmp_path), "event") == sorted([*range(10), *range(15, 20), *range(3)])
    table = stored(tmp_path).dataset("_gap")
    assert table is not None
    gaps = table.to_table().sort_by("lo").to_pylist()
    assert [(gap["lo"], gap["hi"], gap["reason"]) for gap in gaps] == [
        (10, 15, "retention"),
        (20, 20, "epoch"),
    ]


def test_the_source_as_a_table(spark: "SparkSession", server: StreamServer) -> None:
    fill(server, 12)
    # Spark finds it by itself.
    reader = spark.read.format("stomp").option("url", server.url)
    table = reader.option("startingOffsets", "2").load()
    assert table.where("kind = 'event'").count() == 10
    assert table.selectExpr("max(offset)", "min(v)", "max(ts) < now()").first() == (11, 1, True)
    assert reader.option("startingOffsets", "latest").load().count() == 0
    chosen = "body BINARY, headers MAP<STRING, STRING>, destination STRING"
    first = reader.option("startingOffsets", "11").schema(chosen).load().first()
    assert first is not None
    assert json.loads(first.body)["offset"] == 11
    assert (first.headers, first.destination) == ({}, "DIAG/event/subscribe")


def test_refusal_by_the_broker_is_reported_in_one_line(
    drain: Callable[..., list[dict[str, Any]]],
) -> None:
    with pytest.raises(StreamError, match=r"^[^\n]* refused: no stream /stream/other$"):
        drain("--stream", "/stream/other")


@pytest.mark.full
def test_a_signal_lets_the_batch_be_finished_and_no_row_is_lost(
    server: StreamServer, tmp_path: Path
) -> None:
    base = [sys.executable, str(SCRIPT), "--url", server.url, "--root", str(tmp_path)]
    fill(server, 5000)
    command = [*base, "--interval", "0.1", "--max-rows", "500"]
    environ = os.environ | {"PYTHONPATH": str(SCRIPT.parent.parent)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as running:
        assert running.stdout is not None
        lines = (json.loads(line) for line in running.stdout)
        assert next(lines)["event"] == "started"
        assert next(lines)["event"] == "batch"
        running.send_signal(signal.SIGTERM)
        assert [line["event"] for line in lines][-1] == "stopped"
        assert running.wait(PATIENCE_S) == 0
    seen = offsets(stored(tmp_path), "event")
    committed = [int(n.name) for n in commits(tmp_path).glob("[0-9]*")]
    assert seen == list(range(500 * (max(committed) + 1)))


@pytest.mark.parametrize("root", ["/proc/none", "nowhere://x"])
def test_a_root_that_cannot_be_written_is_reported_before_java_starts(root: str) -> None:
    environ = os.environ | {"PYTHONPATH": str(SCRIPT.parent.parent), "JAVA_HOME": "/none"}
    command = [sys.executable, str(SCRIPT), "--once", "--root", root]
    ended = subprocess.run(command, check=False, env=environ, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert ended.stderr.startswith(f"trio-stomp spark: error: {root}")


def test_missing_java_is_reported_in_one_line(tmp_path: Path) -> None:
    environ = {"JAVA_HOME": str(tmp_path), "PYTHONPATH": str(SCRIPT.parent.parent)}
    command = [sys.executable, str(SCRIPT), "--once", "--root", str(tmp_path / "root")]
    ended = subprocess.run(command, check=False, env=environ, capture_output=True, text=True)
    expected = f"Spark needs Java 17 or newer, and there is none in JAVA_HOME={tmp_path}\n"
    assert (ended.returncode, ended.stderr) == (1, f"trio-stomp spark: error: {expected}")


def test_missing_pyspark_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('gone', name='pyspark')")
    path = os.pathsep.join([str(tmp_path), str(SCRIPT.parent.parent)])
    command = [sys.executable, str(SCRIPT), "--once", "--root", str(tmp_path / "root")]
    ended = subprocess.run(
        command, check=False, env={"PYTHONPATH": path}, capture_output=True, text=True
    )
    expected = "pyspark is not installed: pip install 'trio-stomp[spark]'\n"
    assert (ended.returncode, ended.stderr) == (1, f"trio-stomp spark: error: {expected}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["once", "--interval", "1"], "--interval"),
        (["once", "--format", "csv"], "csv"),
        (["once", "--conf", "x"], "--conf x should be KEY=VALUE"),
        (["watch", "--insight", "--stream", "/stream/topic/a"], "--insight is made from /stream"),
    ],
)
def test_wrong_command_lines_are_reported(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["spark", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_absent_broker_is_reported_before_java_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"stomp://127.0.0.1:{closed.getsockname()[1]}"
    words = ["spark", "once", "--url", url, "--root", str(tmp_path), "--retry-s", "0.1"]
    assert main(words) == 1
    first, last = capsys.readouterr().err.splitlines()
    assert first == f"waiting for {url}: Connection refused"
    assert last.startswith(f"trio-stomp spark: error: {url} did not answer")
    with pytest.raises(StreamAway):
        main([*words, "--debug"])


def test_a_notebook_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.ipynb"
    assert main(["spark", "notebook", str(file), "--root", "lake"]) == 0
    assert f"DIAG_ROOT=lake jupyter lab {file}" in capsys.readouterr().out
    assert json.loads(file.read_text())["cells"]
    assert main(["spark", "notebook", str(file)]) == 1
    assert f"{file} exists: name another file" in capsys.readouterr().err


def test_an_error_of_spark_s_own_is_a_line_and_debug_prints_its_trace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise ValueError("[PATH_NOT_FOUND] no such path\n\nJVM stacktrace:\n\tat org.apache.spark")

    monkeypatch.setattr(_spark_command, "act", fail)
    assert main(["spark", "report"]) == 1
    expected = "trio-stomp spark: error: [PATH_NOT_FOUND] no such path; --debug prints the trace\n"
    assert capsys.readouterr().err == expected
    with pytest.raises(ValueError, match="PATH_NOT_FOUND"):
        main(["spark", "report", "--debug"])


def test_a_report_without_tables_names_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["spark", "report", "--root", str(tmp_path)]) == 1
    expected = f"has no tables: first trio-stomp spark once --root {tmp_path}"
    assert expected in capsys.readouterr().err


def test_the_demo_has_a_broker_with_traffic(tmp_path: Path) -> None:
    options = ("--diag-interval-s", "0.2")
    with running_broker(options) as url, busy_clients(url):
        client = StreamClient(StreamAddress(url, retry_s=PATIENCE_S))
        bounds = client.bounds()
        seen: set[str] = set()
        deadline = time.monotonic() + PATIENCE_S
        wanted = {"/topic/prices.0", "/topic/pictures", "/queue/orders"}
        while not wanted <= seen and time.monotonic() < deadline:
            for some in client.read(bounds.epoch, bounds.next, bounds.next + 1):
                seen |= {name for name in wanted if name.encode() in some[0][3]}
            bounds = bounds._replace(next=bounds.next + 1)
    assert seen == wanted


def test_progress_on_a_terminal_is_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    reporter: Any = Reporter(sys.stdout)
    offset = {"epoch": "e", "offset": 10, "next": 30, "at": ""}
    progress = Namespace(
        batchId=0,
        timestamp="now",
        numInputRows=10,
        durationMs={"addBatch": 1},
        sources=[Namespace(endOffset=json.dumps(offset), latestOffset=json.dumps(offset))],
    )
    idle = Namespace(batchId=1, timestamp="later", durationMs={"triggerExecution": 1})
    for recent in ([], [progress], [progress, idle]):
        reporter.look(Namespace(recentProgress=recent))
    reporter.close()
    out, err = capsys.readouterr()
    assert [json.loads(line)["lag"] for line in out.splitlines() if "{" in line] == [20]
    assert "10.0/30.0" in err
