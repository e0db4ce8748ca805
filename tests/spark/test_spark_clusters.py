"""Source, sink, sidecar and report where driver and executors are processes of their own."""

import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

import trio_stomp
from tests.support import spark as _spark

_spark.require("pyspark", "deltalake", "grpc")

import pyspark  # noqa: E402
from _bench.process import running_broker  # noqa: E402
from _crash.link import Link  # noqa: E402
from _crash.ports import free_port  # noqa: E402

from tests.support.consuming import PATIENCE_S, await_receipt, received  # noqa: E402
from tests.support.diag_day import diag_day as diag_day  # noqa: E402
from tests.support.lake import offsets  # noqa: E402
from trio_stomp.spark.lake import open_store  # noqa: E402

CONF = Path(trio_stomp.__file__).parent / "spark" / "conf"

pytestmark = [pytest.mark.spark, pytest.mark.full]

ROOT = Path(__file__).parents[2]
COPY = str(ROOT / "tests" / "support" / "spark_copy.py")
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
TOPIC, COUNT = "/topic/readings", 12_000
POLICY = f'["{TOPIC}"]\nstream = true\n["/queue/copy"]\ndedup_window = 20000\n'
How = tuple[list[str], dict[str, str]]
"""The words before a program and its arguments, and the environment."""
Way = Callable[[Path], AbstractContextManager[How]]


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Run a broker with messages in the stream of a topic."""
    policies = tmp_path / "policies.toml"
    policies.write_text(POLICY, encoding="utf-8")
    with running_broker(("--policies", str(policies), "--diag-interval-s", "3600")) as broker:
        link = Link(broker.port)
        frame = f"SEND\ndestination:{TOPIC}\nkind:%s\n\n%d\0"
        link.send("".join(frame % (number % 3, number) for number in range(COUNT)))
        link.send("DISCONNECT\nreceipt:r\n\n\0")
        await_receipt(link)
        link.close()
        yield broker.port


@contextmanager
def local_cluster(scratch: Path) -> Iterator[How]:
    """Yield how ``spark-submit`` runs a program with executors in two processes."""
    archive = scratch / "trio_stomp.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for file in [*(ROOT / "trio_stomp").rglob("*"), ROOT / "pyspark_stomp.py"]:
            if file.suffix in (".py", ".html", ".ipynb") and file.is_file():
                made.write(file, file.relative_to(ROOT))
    conf = ROOT / "conf" / "spark-defaults.conf"
    words = [str(SUBMIT), "--master", "local-cluster[2,1,1024]", "--properties-file", str(conf)]
    # Both executors are awaited.
    words += ["--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0"]
    # All processes have the archive alone.
    yield [*words, "--py-files", str(archive)], {"SPARK_CONF_DIR": str(CONF), "PYTHONPATH": ""}


@contextmanager
def own_server(_: Path) -> Iterator[How]:
    """Yield how a program starts a server of Spark Connect for itself."""
    yield [sys.executable], {"SPARK_REMOTE": "local[2]"}


@contextmanager
def remote_server(scratch: Path) -> Iterator[How]:
    """Yield how a program uses a server of Spark Connect that runs already."""
    number = free_port()
    settings = {"spark.connect.grpc.binding.port": f"{number}", "spark.ui.enabled": "false"}
    settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    words = [str(SUBMIT), "--master", "local[2]"]
    words += [word for name, text in settings.items() for word in ("--conf", f"{name}={text}")]
    words += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    log = scratch / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(
            [*words, "spark-internal"], cwd=scratch, env=environment(), stdout=out, stderr=out
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while "Spark Connect server started" not in log.read_text():
            assert server.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield [sys.executable], {"SPARK_REMOTE": f"sc://127.0.0.1:{number}"}
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


def environment(more: Mapping[str, str] = {}) -> dict[str, str]:
    """Return that of a driver, whose executors use this Python and this tree."""
    known = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    return os.environ | known | {"SPARK_LOCAL_IP": "127.0.0.1"} | dict(more)


@pytest.mark.parametrize("way", [local_cluster, own_server, remote_server])
def test_a_stream_is_copied_and_stored_each_message_once(
    way: Way, port: int, tmp_path: Path
) -> None:
    url, stream, root = f"stomp://127.0.0.1:{port}", f"/stream{TOPIC}", tmp_path / "root"
    with way(tmp_path) as how:
        told = run(how, tmp_path, COPY, url, stream, "/queue/copy", str(tmp_path / "checkpoint"))
        words = ("--once", "--url", url, "--stream", stream, "--root", str(root))
        lines = run(how, tmp_path, str(ROOT / "scripts" / "diag_to_parquet.py"), *words)
    count, processes = map(int, told.split())
    assert count == COUNT
    assert processes == 2 or way is not local_cluster, "both executors read the stream"
    copies = received(port, "/queue/copy", COUNT)
    assert sorted(int(copy.body) for copy in copies) == list(range(COUNT))
    assert all(copy.headers["kind"] == str(int(copy.body) % 3) for copy in copies)
    assert json.loads(lines.splitlines()[-1])["event"] == "done"
    assert offsets(open_store(root), "messages") == list(range(COUNT))


@pytest.mark.parametrize("way", [local_cluster, own_server, remote_server])
def test_a_day_is_analysed_and_reported(way: Way, diag_day: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    with way(tmp_path) as how:
        words = ("--root", str(diag_day), "--html", str(page))
        told = run(how, tmp_path, str(ROOT / "scripts" / "diag_analysis.py"), *words)
    assert told.splitlines()[-1] == str(page)
    assert "10.5 M messages came in, 42.2 M went out" in page.read_text()


def run(how: How, scratch: Path, program: str, *words: str) -> str:
    """Run a program to its end, and return its output."""
    before, more = how
    done = subprocess.run(
        [*before, program, *words],
        cwd=scratch,
        env=environment(more),
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    causes = [line for line in done.stderr.splitlines() if not line.startswith("\tat ")]
    assert done.returncode == 0, "\n".join(causes)[-8000:]
    return done.stdout
