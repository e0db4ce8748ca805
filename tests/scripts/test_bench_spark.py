"""The measurement of Spark's source: every row is there, and each batch is charged its own time."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import spark as _spark

_spark.require()

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc"),
]

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def source() -> Any:
    return importlib.import_module("_bench.spark_source")


def write(root: Path, batch: int, offsets: list[int]) -> None:
    path = root / "tables" / "raw" / f"e@-{batch:015d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"offset": offsets}), path)


def test_processor_time_is_charged_between_two_moments(source: Any) -> None:
    samples = [source.Sample(10.0, 1.0, 0.0), source.Sample(12.0, 5.0, 1.0)]
    samples.append(source.Sample(14.0, 5.0, 1.5))
    assert source.used_between(samples, 11.0, 13.0) == (2.0, 0.75)
    assert source.used_between(samples, 12.0, 14.0) == (0.0, 0.5)
    assert source.used_between(samples, 0.0, 99.0) == (4.0, 1.5)


def test_a_body_is_json_of_the_length_asked_for(source: Any) -> None:
    made = list(source.bodies(source.Amount(messages=300), start=7))
    assert {len(body) for body in made} == {393}
    assert [json.loads(body)["number"] for body in made] == list(range(7, 300))
    with pytest.raises(source.BenchError, match="--body-bytes 100"):
        next(source.bodies(source.Amount(body_bytes=100)))


@pytest.mark.parametrize("offsets", [[0, 1], [0, 1, 2, 2], [0, 1, 3], [1, 2, 3], [0, 2, 2]])
def test_lost_or_duplicate_rows_invalidate_the_result(
    source: Any, tmp_path: Path, offsets: list[int]
) -> None:
    write(tmp_path, 0, offsets)
    with pytest.raises(source.BenchError):
        source.check(tmp_path, 3)


def test_all_that_is_asked_for_is_a_result(source: Any, tmp_path: Path) -> None:
    with pytest.raises(source.BenchError, match="no file"):
        source.check(tmp_path, 3)
    write(tmp_path, 0, [0, 1])
    write(tmp_path, 1, [2])
    source.check(tmp_path, 3)


@pytest.mark.full
def test_filled_stream_is_drained_and_reported_batch_by_batch(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "bench_spark.py"), "source", "--root", str(tmp_path)]
    path = os.pathsep.join([str(SCRIPTS.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*command, "--messages", "1100", "--max-rows", "600"],
        check=False,
        env=os.environ | {"PYTHONPATH": path.rstrip(os.pathsep)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    record = [json.loads(line) for line in done.stdout.splitlines()]
    names = ["machine", "stream", "start of Spark", "micro-batch", "micro-batch", "all"]
    assert [line["what"] for line in record] == names
    assert [line["rows"] for line in record[3:]] == [600, 500, 1100]
    assert record[1]["added"] == 1100
    for line in record[3:5]:
        assert line["rows_per_s"] == pytest.approx(line["rows"] / line["s"], rel=0.05)
        assert 0 < line["spark_cpu_s"] < record[-1]["spark_cpu_s"]
    # The files of the stream remain, so a second call has nothing to fill.
    assert sorted(path.name for path in (tmp_path / "source").iterdir()) == [
        "broker",
        "policies.toml",
    ]
