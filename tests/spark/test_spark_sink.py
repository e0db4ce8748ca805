"""The sink without Spark: its writers against a broker, over connections that break."""

import json
import logging
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest
from _bench.process import running_broker
from _crash.link import Link, Reply

from tests.support import spark as _spark

_spark.require()

import pyarrow as pa  # noqa: E402
from pyspark.sql.types import (  # noqa: E402
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from tests.support.consuming import received  # noqa: E402
from tests.support.diag_bodies import message  # noqa: E402
from trio_stomp.spark import StompDataSource, StreamAddress, StreamAway, StreamError  # noqa: E402
from trio_stomp.spark.format import InsightSink  # noqa: E402

Q = "/queue/q"
POLICY = '["/queue/small"]\ndedup_window = 3\n["/queue/none"]\ndedup_window = 0\n'
WAIT_S = 10

TYPES = {
    "body": BinaryType(),
    "destination": StringType(),
    "headers": MapType(StringType(), StringType()),
    "dedup_id": StringType(),
    "offset": LongType(),
}
ARROW = {"body": pa.binary(), "headers": pa.map_(pa.string(), pa.string())}

Rows = dict[str, list[object]]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    root = tmp_path_factory.mktemp("broker")
    policies = root / "policies.toml"
    policies.write_text(POLICY, encoding="utf-8")
    options = ("--data-dir", str(root / "data"), "--policies", str(policies))
    with running_broker((*options, "--diag-interval-s", "0")) as broker:
        yield broker.port


def schema(*names: str) -> StructType:
    return StructType([StructField(name, TYPES[name]) for name in names])


def writer(port: int, *names: str, **options: str) -> Any:
    """Return a writer as an executor gets it."""
    known = {"url": f"stomp://127.0.0.1:{port}", "retry_s": "5", "timeout_s": "5"}
    made = StompDataSource(known | options).streamWriter(schema(*names), overwrite=False)
    return pickle.loads(pickle.dumps(made))


def batch(rows: Rows) -> pa.RecordBatch:
    arrays = [pa.array(column, ARROW.get(name, pa.string())) for name, column in rows.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(rows))


def write(port: int, rows: Rows, prefix: str, **options: str) -> Any:
    return writer(port, *rows, **options).publish([batch(rows)], prefix)


def test_a_message_with_its_headers_and_bytes(port: int) -> None:
    headers: list[tuple[str, str | None]]
    headers = [("na:me", "x\ny:\r"), ("destination", "/queue/elsewhere"), ("receipt", "r")]
    headers += [("x-dedup-id", "theirs"), ("x-stream-offset", "5"), ("empty", None)]
    rows: Rows = {
        "destination": [f"{Q}:b", None],
        "body": [b"caf\xc3\xa9\n", None],
        "headers": [headers, None],
    }
    commit = write(port, rows, "b-0", destination="/queue/other")
    assert commit.counts == {f"{Q}:b": 1, "/queue/other": 1}
    (message,) = received(port, f"{Q}\\cb", 1)
    assert message.body == "café\n"
    found = message.headers
    assert (found["na\\cme"], found["empty"], found["content-length"]) == ("x\\ny\\c\\r", "", "6")
    assert (found["persistent"], found["x-dedup-id"]) == ("true", "b-0-0")
    assert not {"receipt", "x-stream-offset"} & found.keys()
    (bare,) = received(port, "/queue/other", 1)
    assert (bare.body, bare.headers["x-dedup-id"]) == ("", "b-0-1")


def test_a_batch_that_is_repeated_comes_once(port: int) -> None:
    rows: Rows = {"body": [b"%d" % number for number in range(1200)]}
    for _ in range(2):
        assert write(port, rows, "q-7-0", destination=Q).counts == {Q: 1200}
    write(port, rows, "q-8-0", destination=Q)
    bodies = [message.body for message in received(port, Q, 2400)]
    assert bodies == [str(number) for number in range(1200)] * 2


def test_a_column_with_ids_survives_a_lost_checkpoint(port: int) -> None:
    for prefix in ("first-0-0", "second-0-3"):
        write(port, {"body": [b"a", b"b"], "dedup_id": ["1", "2"]}, prefix, destination="/queue/c")
    assert [message.body for message in received(port, "/queue/c", 2)] == ["a", "b"]


class Cutter:
    """A proxy that breaks the first connections once the broker's RECEIPTs arrive."""

    def __init__(self, port: int, cuts: int) -> None:
        self._port, self.cuts = port, cuts
        self._opened = [socket.create_server(("127.0.0.1", 0))]
        self.port = self._opened[0].getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._opened:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WAIT_S)
        for each in self._opened:
            each.close()

    def _run(self, work: Callable[..., None], *sockets: socket.socket) -> None:
        self._threads.append(threading.Thread(target=work, args=sockets))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._opened[0].accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._opened += [near, far]
                self._run(self._copy, near, far)
                self._run(self._copy, far, near)

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if b"RECEIPT\n" in data and self.cuts:
                    self.cuts -= 1
                    break
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def test_lost_receipts_cause_no_duplicates(port: int) -> None:
    rows: Rows = {"body": [b"%d" % number for number in range(1100)]}
    with Cutter(port, cuts=3) as proxy:
        commit = write(proxy.port, rows, "cut-0-0", destination="/queue/cut")
    assert (proxy.cuts, commit.counts) == (0, {"/queue/cut": 1100})
    bodies = [message.body for message in received(port, "/queue/cut", 1100)]
    assert bodies == [str(number) for number in range(1100)]


def test_a_broker_that_stays_away_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(StreamAway, match=r"did not answer"):
        write(port, {"body": [b"a"]}, "b-0", destination=Q, retry_s="0.2")


@pytest.mark.parametrize(("name", "window"), [("/queue/small", 3), ("/queue/none", 0)])
def test_more_messages_than_the_broker_remembers_are_refused_while_all_are_known(
    port: int, name: str, window: int
) -> None:
    rows: Rows = {"body": [b"%d" % number for number in range(5)]}
    for _ in range(2):
        with pytest.raises(StreamError) as caught:
            write(port, rows, "small-0", destination=name)
        assert f"{name}: more than {window} messages of one partition" in str(caught.value)
    # Without a window nobody can tell: one message is sent to find out.
    expected = ["0", "1", "2"] if window else ["0", "0"]
    assert [message.body for message in received(port, name, len(expected))] == expected


def test_partitions_that_are_together_too_many_are_reported(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    made = writer(port, "body", destination="/queue/small")
    commits = [
        made.publish([batch({"body": [b"a", b"b"]})], f"sum-{partition}") for partition in range(2)
    ]
    with caplog.at_level(logging.WARNING):
        made.commit([*commits, None], batchId=4)
    assert "batch 4 has 4 messages for /queue/small, of which the broker remembers 3 ids" in (
        caplog.text
    )
    received(port, "/queue/small", 4)


def test_a_message_that_the_broker_refuses_is_reported(port: int) -> None:
    with pytest.raises(StreamError, match="refused"):
        write(port, {"body": [b"a"]}, "b-0", destination="DIAG/session")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"body": [b"a"], "destination": [None]}, "row 0 of partition b-0 has no destination"),
        ({"body": [b"a"], "destination": [Q], "dedup_id": [None]}, "has no dedup_id"),
        ({"body": [b"a"], "destination": ["/queue/a\0b"]}, "header 'destination' has a NUL"),
    ],
)
def test_rows_that_cannot_be_sent(port: int, rows: Rows, message: str) -> None:
    with pytest.raises(StreamError, match=message):
        write(port, rows, "b-0")


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (("body",), {}, "where do the messages go"),
        (("destination",), {}, "there is no column body"),
        (("body", "offset"), {"destination": Q}, "unknown column offset: there are body, dest"),
        (("body",), {"destination": Q, "persistent": "1"}, "persistent=1 should be true or false"),
        (("body",), {"destinations": Q}, "unknown option destinations; there are: url, "),
    ],
)
def test_wrong_tables_and_options_are_reported(
    names: tuple[str, ...], options: dict[str, str], message: str
) -> None:
    with pytest.raises(StreamError, match=message):
        writer(1, *names, **options)


def test_each_write_has_its_own_ids_and_cannot_overwrite(tmp_path: Path) -> None:
    source = StompDataSource({"destination": Q})
    made: list[Any] = [source.writer(schema("body"), overwrite=False) for _ in range(2)]
    first, second = made
    assert first.write_id != second.write_id
    assert pickle.loads(pickle.dumps(first)).write_id == first.write_id
    with pytest.raises(StreamError, match="cannot be replaced"):
        source.writer(schema("body"), overwrite=True)
    other = StructType([StructField("body", LongType())])
    with pytest.raises(StreamError, match="column body should be binary or string, not bigint"):
        source.writer(other, overwrite=False)


def test_insight_is_published_once_after_a_restart() -> None:
    with running_broker(("--diag-interval-s", "3600")) as broker:
        link = Link(broker.port)
        link.send("SUBSCRIBE\nid:1\ndestination:/topic/insight/>\n\n\0")
        address = StreamAddress(f"stomp://127.0.0.1:{broker.port}", retry_s=5)
        rows = []
        for number in range(4):
            items = {"destination": "/topic/a", "enqueued_total": 60 * number}
            row = message("destination", number, items, at_s=60.0 * number)
            rows.append(("another epoch", number, "destination", str(row["body"])))
        for _ in range(2):
            InsightSink(address).publish(rows)
        found: list[Reply] = []
        while len(found) < 3:
            found += link.receive()
        found += link.receive()
        link.close()
    listed = [json.loads(reply.body)["destinations"] for reply in found]
    assert [[each["in_per_s"] for each in some] for some in listed] == [[], [1.0], [1.0]]
    assert {reply.headers["rule"] for reply in found} == {"rates"}
