"""Source and sidecar against the broker itself: other tests have a copy of its streams."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import trio_stomp
from tests.support import spark as _spark
from tests.support.spark import spark as spark
from tests.support.tls import authority, issue

_spark.require()

import pyarrow.parquet as pq  # noqa: E402
from _bench.process import running_broker  # noqa: E402
from _crash.link import Link  # noqa: E402
from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: E402

from tests.support.consuming import PATIENCE_S, await_receipt, received  # noqa: E402
from trio_stomp.spark import StompDataSource, StreamAddress, StreamClient, StreamError  # noqa: E402

CONF = Path(trio_stomp.__file__).parent / "spark" / "conf"

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc"),
]

SCRIPT = Path(__file__).parents[2] / "scripts" / "diag_to_parquet.py"
TOPIC = "/topic/readings"
POLICY = f'["{TOPIC}"]\nstream = true\nstream_max_bytes = 60000\n'
BODY = "x" * 1000
SECRET = "a-secret-of-the-sidecar"
TALKATIVE = """
rootLogger.level = debug
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = debug
"""
"""Without the second, pyspark puts its own level in place of the first."""
ALL = ReadAllAvailable()
DOCUMENTED = (SCRIPT.parent.parent / "docs" / "operate" / "spark.md").read_text(encoding="utf-8")
RULES = DOCUMENTED.partition("```toml\n")[2].partition("```")[0]
"""The permissions of the login in docs/operate/spark.md, and all that these tests have."""


class Brokers:
    """Starts brokers of this tree, and speaks to them."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self._stack = stack
        self.policies = root / "policies.toml"
        self.policies.write_text(POLICY, encoding="utf-8")

    def start(self, *options: str) -> int:
        """Run one more until the test ends; its port."""
        known = ["--policies", str(self.policies), "--diag-interval-s", "3600", *options]
        return int(self._stack.enter_context(running_broker(known)).port)

    def send(self, port: int, count: int) -> None:
        """Send to the topic, and wait until the broker has it."""
        link = Link(port)
        head = f"SEND\ndestination:{TOPIC}\n"
        link.send(f"{head}\n{BODY}\0" * (count - 1) + f"{head}receipt:r\n\n{BODY}\0")
        await_receipt(link)
        link.close()


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with ExitStack() as stack:
        yield Brokers(tmp_path, stack)


def streaming(port: int) -> Any:
    options = {"url": f"stomp://127.0.0.1:{port}", "stream": f"/stream{TOPIC}", "retry_s": "5"}
    source = StompDataSource(options | {"failOnDataLoss": "false", "body": "text"})
    return source.streamReader(source.schema())


def rows(reader: Any, start: Any, end: Any) -> list[dict[str, Any]]:
    ranges = reader.partitions(start, end)
    return [row for part in ranges for found in reader.read(part) for row in found.to_pylist()]


def test_trimmed_messages_become_a_gap_row(brokers: Brokers) -> None:
    port = brokers.start()
    brokers.send(port, 5)
    reader = streaming(port)
    start = reader.initialOffset()
    assert start["offset"] == 0
    brokers.send(port, 200)
    end = reader.latestOffset(start, ALL)
    gap, *found = rows(reader, start, end)
    first = reader.client.bounds().first
    assert 100 < first < 205, "the broker keeps 60,000 bytes"
    assert (gap["offset"], gap["body"]) == (0, None)
    assert dict(gap["headers"]) == {"x-gap": "retention", "x-gap-until": str(first)}
    assert [row["offset"] for row in found] == list(range(first, 205))
    assert {row["body"] for row in found} == {BODY}


def test_a_lost_stream_becomes_a_gap_row(brokers: Brokers) -> None:
    before, after = brokers.start(), brokers.start()
    brokers.send(before, 8)
    reader = streaming(before)
    start = reader.initialOffset() | {"offset": 3}
    brokers.send(after, 2)
    reader = streaming(after)
    gap, *found = rows(reader, start, reader.latestOffset(start, ALL))
    assert (gap["offset"], gap["epoch"]) == (3, start["epoch"])
    assert dict(gap["headers"]) == {"x-gap": "epoch", "x-gap-until": "8"}
    assert [row["offset"] for row in found] == [0, 1]
    assert {row["epoch"] for row in found}.isdisjoint({start["epoch"]})


def test_an_offset_of_another_stream_is_refused(brokers: Brokers) -> None:
    """Otherwise its epoch would count as lost, and its next messages would be skipped."""
    port = brokers.start()
    brokers.send(port, 5)
    reader = streaming(port)
    start = reader.initialOffset()
    other = StompDataSource({"url": f"stomp://127.0.0.1:{port}"})
    wrong = other.streamReader(other.schema())
    refusal = f"is of /stream{TOPIC}, not of /stream/DIAG: give each stream a checkpoint of its own"
    with pytest.raises(StreamError, match=refusal):
        wrong.latestOffset(start, ALL)
    with pytest.raises(StreamError, match=refusal):
        wrong.partitions(wrong.initialOffset(), start)
    # Those of an earlier version do not tell their stream.
    earlier = {name: start[name] for name in ("epoch", "offset", "next", "at")}
    end = reader.latestOffset(earlier, ALL)
    assert [row["offset"] for row in rows(reader, earlier, end)] == [0, 1, 2, 3, 4]
    assert reader.latestOffset(earlier | {"offset": 5}, ALL) == earlier | {"offset": 5}


@pytest.mark.full
def test_a_batch_of_the_statistics(spark: "SparkSession", brokers: Brokers) -> None:
    port = brokers.start("--diag-interval-s", "0.2")
    place = StreamAddress(f"stomp://127.0.0.1:{port}")
    client = StreamClient(place)
    # A range that lies in the future ends once it is there.
    assert sum(map(len, client.read(client.bounds().epoch, 0, 50))) == 50
    spark.dataSource.register(StompDataSource)
    table = spark.read.format("stomp").option("url", place.url).option("endingOffsets", "50").load()
    found = {row["kind"]: row["count"] for row in table.groupBy("kind").count().collect()}
    assert sum(found.values()) == 50
    assert {"process", "session", "destination", "event"} <= set(found)
    assert table.where("ts IS NULL OR broker_id = '' OR v IS NULL").count() == 0


@pytest.mark.full
def test_a_secret_is_sent_to_the_broker_and_appears_nowhere_else(
    spark: "SparkSession", brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not in plans, logs, the checkpoint, files or messages."""
    trusted = authority()
    users, certificate, secret = (tmp_path / name for name in ("users", "broker.pem", "secret"))
    hashing = [sys.executable, "-m", "trio_stomp", "passwd", "add", str(users), "diag", "--stdin"]
    subprocess.run(hashing, check=True, input=f"{SECRET}\n", capture_output=True, text=True)
    secret.write_text(f"diag\n{SECRET}\n")
    issue(trusted, certificate)
    rules = tmp_path / "acl.toml"
    rules.write_text(RULES, encoding="utf-8")
    allowed = ("--passwd-file", str(users), "--acl-file", str(rules))
    port = brokers.start(*allowed, "--tls-cert", str(certificate))
    url = f"stomps://127.0.0.1:{port}"
    with pytest.raises(StreamError, match="refused"):
        StreamClient(StreamAddress(url, ca_file=trusted.file)).bounds()

    out = tmp_path / "out"
    given = ["--once", "--root", str(out), "--url", url, "--ca-file", trusted.file]
    # All output that Spark can produce, including its settings.
    conf = tmp_path / "conf"
    conf.mkdir()
    text = (CONF / "log4j2.properties").read_text(encoding="utf-8")
    (conf / "log4j2.properties").write_text(text + TALKATIVE, encoding="utf-8")
    known = {"PYTHONPATH": str(SCRIPT.parent.parent), "SPARK_CONF_DIR": str(conf)}
    # Both ways at once: the file takes precedence.
    known |= {"TRIO_STOMP_LOGIN": "diag", "TRIO_STOMP_PASSCODE": SECRET}
    values = ["--conf", "spark.logConf=true", "--credentials-file", str(secret)]
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), *given, *values],
        check=False,
        env=os.environ | known,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "spark.logConf=true" in ended.stderr, "it tells of its settings"
    assert SECRET not in ended.stdout + ended.stderr
    files = sorted(out.glob("tables/*/date=*/*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in files) > 0
    assert not [
        path for path in out.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]

    monkeypatch.setenv("TRIO_STOMP_LOGIN", "diag")
    monkeypatch.setenv("TRIO_STOMP_PASSCODE", SECRET)
    spark.dataSource.register(StompDataSource)
    options = {"url": url, "ca_file": trusted.file, "credentials_file": str(secret)}
    plan: Any = spark.read.format("stomp").options(**options).load()
    shown = plan._jdf.queryExecution().toString()
    assert "stomp" in shown
    assert SECRET not in shown


@pytest.mark.full
def test_a_batch_that_spark_repeats_is_sent_once(
    spark: "SparkSession", brokers: Brokers, tmp_path: Path
) -> None:
    port = brokers.start()
    url = f"stomp://127.0.0.1:{port}"
    commits = tmp_path / "checkpoint" / "commits"

    def run() -> None:
        reader = spark.readStream.format("stomp").option("url", url)
        rows = reader.option("stream", f"/stream{TOPIC}").load().select("body", "headers")
        sink = rows.writeStream.format("stomp").option("url", url).option("destination", "/queue/a")
        sink = sink.option("checkpointLocation", str(commits.parent)).queryName("out")
        assert sink.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)

    brokers.send(port, 30)
    run()
    # As if it had been killed before it noted that the batch was sent.
    (commits / "0").unlink()
    (commits / ".0.crc").unlink()
    run()
    found = received(port, "/queue/a", 30)
    query = json.loads((commits.parent / "metadata").read_text())["id"]
    assert [reply.headers["x-dedup-id"] for reply in found] == [
        f"{query}-0-0-{n}" for n in range(30)
    ]
    assert {reply.body for reply in found} == {BODY}
    table = spark.range(3).selectExpr("CAST(id AS STRING) AS body")
    table.write.format("stomp").options(url=url, destination="/queue/a").mode("append").save()
    assert sorted(reply.body for reply in received(port, "/queue/a", 3)) == ["0", "1", "2"]
