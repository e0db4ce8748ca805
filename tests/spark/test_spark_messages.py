"""Rows of any stream, without Spark: its readers against a broker, and a server of streams."""

import json
import pickle
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from _bench.process import running_broker

from tests.support import spark as _spark
from tests.support.stream_server import StreamServer

_spark.require()

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # noqa: E402
from pyspark.sql.types import (  # noqa: E402
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from trio_stomp.spark import StompDataSource, StreamError  # noqa: E402
from trio_stomp.spark._messages import json_rows  # noqa: E402

STREAM = "/stream/topic/a"
POLICY = '["/topic/a:b"]\nstream = true\n'

Row = dict[str, Any]


@pytest.fixture
def server() -> Iterator[StreamServer]:
    with StreamServer(stream=STREAM) as server:
        yield server


def source(server: StreamServer, **more: str) -> StompDataSource:
    return StompDataSource({"url": server.url, "stream": STREAM, "retry_s": "5"} | more)


def table(source: StompDataSource, columns: dict[str, DataType] | None = None) -> list[Row]:
    """Read the whole stream as executors do, with everything pickled on the way."""
    chosen = [StructField(name, kind) for name, kind in (columns or {}).items()]
    reader = source.reader(StructType(chosen) if chosen else source.schema())
    parts = [pickle.loads(pickle.dumps((reader, part))) for part in reader.partitions()]
    return [row for there, part in parts for found in there.read(part) for row in found.to_pylist()]


def test_messages_keep_their_bytes_and_headers(tmp_path: Path) -> None:
    policies = tmp_path / "policies.toml"
    policies.write_text(POLICY, encoding="utf-8")
    with running_broker(("--policies", str(policies), "--diag-interval-s", "0")) as broker:
        url = f"stomp://127.0.0.1:{broker.port}"
        stream = "/stream/topic/a:b"
        with socket.create_connection(("127.0.0.1", broker.port)) as link:
            link.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
            for body in (b"\xff\x00\xfe\n", b""):
                head = "SEND\ndestination:/topic/a\\cb\nna\\cme:x\\ny\\cz\nna\\cme:second\n"
                head += f"content-length:{len(body)}\ncontent-type:image/png\ntimestamp:86400000\n"
                link.sendall(head.encode() + b"x-stream-offset:99\n\n" + body + b"\0")
            link.sendall(b"DISCONNECT\nreceipt:both\n\n\0")
            answers = b""
            while b"receipt-id:both" not in answers:
                answers += link.recv(4096)
        options = {"url": url, "stream": stream}
        rows = table(StompDataSource(options))
    assert [row["body"] for row in rows] == [b"\xff\x00\xfe\n", b""]
    assert [row["offset"] for row in rows] == [0, 1]
    (epoch,) = {row["epoch"] for row in rows}
    assert [row["message_id"] for row in rows] == [f"{epoch}-0", f"{epoch}-1"]
    assert {row["destination"] for row in rows} == {"/topic/a:b"}
    expected = {"na:me": "x\ny:z", "content-type": "image/png", "timestamp": "86400000"}
    assert dict(rows[0]["headers"]) == dict(rows[1]["headers"]) == expected
    assert all(abs((row["stored_at"] - datetime.now(UTC)).total_seconds()) < 60 for row in rows)


def test_only_the_columns_of_the_schema(server: StreamServer) -> None:
    server.append("/topic/a", b"caf\xc3\xa9 \xff")
    server.append("/topic/b", b"x")
    columns: dict[str, DataType] = {"destination": StringType(), "body": StringType()}
    assert table(source(server, body="text"), columns) == [
        {"destination": "/topic/a", "body": "café \ufffd"},
        {"destination": "/topic/b", "body": "x"},
    ]


FIELDS: dict[str, DataType] = {
    "sku": StringType(),
    "offset": LongType(),
    "price": DecimalType(9, 2),
    "at": TimestampType(),
    "sizes": ArrayType(DoubleType()),
    "_corrupt_record": StringType(),
}


@pytest.mark.parametrize("digits", ["1234567", "12345678", "123456789"])
def test_times_with_nanoseconds_are_cut_to_microseconds(server: StreamServer, digits: str) -> None:
    bodies = [f"2026-01-01T00:00:00.{digits}Z", "9999-01-01T00:00:00Z", "2026-01-01T00:00:00.9Z"]
    for at in bodies:
        server.append("/topic/a", json.dumps({"at": at}).encode())
    rows = table(source(server, body="json"), FIELDS)
    assert [row["_corrupt_record"] for row in rows] == [None] * 3
    first, last, other = (row["at"] for row in rows)
    assert first == datetime(2026, 1, 1, microsecond=123456, tzinfo=UTC)
    assert (last.year, other.microsecond) == (9999, 900000)


def test_fields_of_json_are_columns_and_corrupt_bodies_are_null(server: StreamServer) -> None:
    good = {"sku": "a", "price": "1.25", "at": "2026-01-01T00:00:00Z", "sizes": [1, 2.5], "x": 1}
    bodies = [json.dumps(good).encode(), b"\xff", b'{"sku":\n"b"}', b'{"sku":"c"}{"sku":"d"}', b""]
    bodies += [b'{"sku":"d"}}\n{"v":{"sku":"e"}', b'{"sku":5}', b'{"sku":"a\nb"}', b'{"sku":"f"}']
    for body in bodies:
        server.append("/topic/a", body)
    rows = table(source(server, body="json"), FIELDS)
    assert [row["offset"] for row in rows] == list(range(9))
    assert [row["sku"] for row in rows] == ["a", None, "b", None, None, None, None, None, "f"]
    wrong = [
        None if row["sku"] else body.decode(errors="replace")
        for row, body in zip(rows, bodies, strict=True)
    ]
    assert [row["_corrupt_record"] for row in rows] == wrong
    first = rows[0]
    assert (str(first["price"]), first["sizes"]) == ("1.25", [1.0, 2.5])
    assert first["at"] == datetime(2026, 1, 1, tzinfo=UTC)


def test_no_body_changes_the_row_of_a_neighbour() -> None:
    import pyarrow as pa

    kind = pa.struct([("n", pa.int64())])
    hostile = [
        b'{"n":1',
        b"}",
        b'{"n":1}},{"v":{"n":2}',
        b'{"n":"',
        b'"}',
        b"[{",
        b"}]",
        b"{}\0",
        b"\n",
    ]
    for body in hostile:
        for other in hostile:
            rows, wrong = json_rows([b'{"n":1}', body, other, b'{"n":2}'], kind)
            found = [row and row["n"] for row in rows.to_pylist()]
            assert (found[0], found[3]) == (1, 2), (body, other)
            assert wrong.to_pylist()[1:3] == [body.decode(), other.decode()]


def test_lost_messages_are_an_error_or_a_row(server: StreamServer) -> None:
    for number in range(5):
        server.append("/topic/a", b"%d" % number)
    server.trim(3)
    with pytest.raises(StreamError) as caught:
        table(source(server, startingOffsets="1"))
    assert f"messages 1 to 2 of {STREAM}, epoch {server.log.epoch}, are lost (retention)" in str(
        caught.value
    )
    gap, *found = table(source(server, startingOffsets="1", failOnDataLoss="false"))
    assert (gap["offset"], gap["body"], gap["destination"]) == (1, None, STREAM)
    assert gap["headers"] == [("x-gap", "retention"), ("x-gap-until", "3")]
    assert gap["stored_at"] == found[0]["stored_at"]
    assert [row["offset"] for row in found] == [3, 4]
    # From the earliest message on, nothing is missing.
    assert len(table(source(server))) == 2


def test_a_lost_epoch_is_an_error_too_even_if_all_of_it_was_read(server: StreamServer) -> None:
    server.append("/topic/a", b"")
    stream = source(server).streamReader(source(server).schema())
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    server.new_epoch()
    after = stream.latestOffset(end, ReadAllAvailable())
    with pytest.raises(StreamError, match=r"from 1 on .*lost \(epoch\)"):
        [list(stream.read(part)) for part in stream.partitions(end, after)]


def test_micro_batches_have_at_most_max_bytes_per_trigger(server: StreamServer) -> None:
    for _ in range(50):
        server.append("/topic/a", b"x" * 10_000)
    stream = source(server, maxBytesPerTrigger="105000").streamReader(source(server).schema())
    at = stream.initialOffset()
    sizes = []
    while (end := stream.latestOffset(at, ReadMaxRows(20))) != at:
        sizes.append(int(end["offset"]) - int(at["offset"]))
        at = end
    assert sizes == [10] * 5
    # One that is larger than the limit comes alone.
    tiny = source(server, maxBytesPerTrigger="1").streamReader(source(server).schema())
    assert tiny.latestOffset(tiny.initialOffset(), ReadAllAvailable())["offset"] == 1


@pytest.mark.parametrize(
    ("body", "column", "kind", "message"),
    [
        ("binary", "bode", StringType(), "there is no column bode: with body=binary there are"),
        ("binary", "body", StringType(), "column body should be binary, not string"),
        ("text", "offset", StringType(), "column offset should be bigint, not string"),
        ("json", "tags", MapType(StringType(), StringType()), "no column can be map"),
        ("json", "a", ArrayType(MapType(StringType(), LongType())), "no column can be map"),
    ],
)
def test_wrong_columns_are_reported(
    server: StreamServer, body: str, column: str, kind: DataType, message: str
) -> None:
    schema = StructType([StructField(column, kind)])
    with pytest.raises(StreamError, match=message):
        source(server, body=body).reader(schema)
