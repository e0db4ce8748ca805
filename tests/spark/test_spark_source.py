"""The data source ``stomp`` without Spark: its readers against a server of streams."""

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support import spark as _spark
from tests.support.stream_server import StreamServer, event

_spark.require()

import pyarrow as pa  # noqa: E402
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # noqa: E402

from trio_stomp.base import PREFIX, TABLES  # noqa: E402
from trio_stomp.spark import (  # noqa: E402
    StompDataSource,
    StreamAway,
    StreamError,
    _messages,
)
from trio_stomp.spark._rows import RAW_LAYOUT, heading, kind_of  # noqa: E402

MIN_PARTITION_ROWS = 5_000

ALL = ReadAllAvailable()
AT = "2026-01-01T00:00:00+00:00"

SCHEMA = StompDataSource({}).schema()

Row = dict[str, Any]


@pytest.fixture
def server() -> Iterator[StreamServer]:
    with StreamServer() as server:
        yield server


def source(server: StreamServer, **more: str) -> StompDataSource:
    return StompDataSource({"url": server.url, "Retry_S": "5", "timeout_s": "5"} | more)


def streaming(server: StreamServer, **more: str) -> Any:
    return source(server, **more).streamReader(schema=SCHEMA)


def batch(server: StreamServer, **more: str) -> Any:
    return source(server, **more).reader(schema=SCHEMA)


def read(reader: Any, ranges: list[Any]) -> list[Row]:
    """Read as executors do, with everything pickled on the way."""
    batches = []
    for part in ranges:
        there, range_ = pickle.loads(pickle.dumps((reader, part)))
        batches += list(there.read(range_))
    return [row for found in batches for row in found.to_pylist()]


def fill(server: StreamServer, count: int) -> None:
    for number in range(count):
        server.append("DIAG/event/subscribe", event("subscribe", number=number))


def end_of(reader: Any) -> int:
    """Return the end of the stream that is reported to Spark."""
    reported = reader.reportLatestOffset()
    assert reported is not None
    return int(reported["offset"])


def gap_of(row: Row) -> Row:
    assert row["kind"] == "_gap"
    body = json.loads(str(row["body"]))
    return {name: body[name] for name in ("lo", "hi", "prev_epoch", "reason")}


def test_a_row_of_the_raw_table(server: StreamServer) -> None:
    body = event("connect")
    server.append("DIAG/event/connect", body)
    row = read(batch(server), batch(server).partitions())[0]
    assert row.pop("stored_at").timestamp() == int(server.log.times[0] * 1000) / 1000
    assert row.pop("ts").isoformat().replace("+00:00", "Z") == json.loads(body)["ts"]
    assert row == {
        "broker_id": "north",
        "epoch": server.log.epoch,
        "offset": 0,
        "topic": "DIAG/event/connect",
        "kind": "event",
        "v": 1,
        "body": body.decode(),
    }


def test_the_time_of_storing_is_the_brokers_whatever_a_body_says(server: StreamServer) -> None:
    server.append("DIAG/session", b'{"v":1,"ts":"1970-01-01T00:00:00Z"}')
    server.append("DIAG/novelty", b"caf\xc3\xa9 \xff")
    found = read(batch(server, broker_id="east"), batch(server).partitions())
    assert [row["stored_at"].timestamp() for row in found] == [
        int(moment * 1000) / 1000 for moment in server.log.times
    ]
    assert [row["ts"] and row["ts"].year for row in found] == [1970, None]
    assert found[1]["body"] == "café \ufffd"
    assert (found[1]["kind"], found[1]["v"], found[1]["broker_id"]) == ("", None, "east")


def test_a_body_of_another_format_is_parsed_as_a_whole() -> None:
    ours = event("x")
    parsed = json.loads(ours)
    turned = json.dumps(dict(reversed(parsed.items()))).encode()
    assert heading(ours) == (b"north", parsed["ts"].encode(), 1)
    assert heading(turned) == ("north", parsed["ts"], 1)
    assert heading(b"[]") == heading(b"{") == heading(b"{}") == (None, None, None)


def test_a_wrong_time_does_not_affect_others(server: StreamServer) -> None:
    server.append("DIAG/session", b'{"v":1,"ts":"yesterday"}')
    server.append("DIAG/session", b'{"v":1,"ts":"2026-01-01T00:00:00"}')
    found = read(batch(server), batch(server).partitions())
    assert [row["ts"] and row["ts"].isoformat() for row in found] == [None, AT]


@pytest.mark.parametrize("table", [table for table in TABLES if table.topic], ids=lambda t: t.name)
def test_every_topic_has_its_kind(table) -> None:
    topic = table.topic + ("x" if table.topic.endswith("/") else "")
    assert kind_of(topic) == table.name
    assert kind_of("/topic/" + topic) == kind_of(topic[:-1].rstrip("/")) == ""


def test_a_gap_row_is_a_record_of_its_table(server: StreamServer) -> None:
    fill(server, 3)
    server.trim(2)
    first, second = read(
        batch(server, startingOffsets="0"), batch(server, startingOffsets="0").partitions()
    )
    assert gap_of(first) == {
        "lo": 0,
        "hi": 2,
        "prev_epoch": server.log.epoch,
        "reason": "retention",
    }
    table = next(table for table in TABLES if table.name == "_gap")
    body = json.loads(str(first["body"]))
    assert body.keys() == {field.name for field in table.columns}
    common = {field.name for field in PREFIX} & first.keys() - {"ts"}
    assert {name: body[name] for name in common} == {name: first[name] for name in common}
    assert (first["offset"], first["ts"]) == (0, second["stored_at"])
    assert first["stored_at"] == first["ts"]
    assert second["offset"] == 2


def test_a_trim_of_all_planned_messages_is_a_gap_too(server: StreamServer) -> None:
    fill(server, 10)
    reader = batch(server)
    ranges = reader.partitions()
    server.before_replay = lambda: server.trim(10)
    (row,) = read(reader, ranges)
    assert gap_of(row)["hi"] == 10
    planned_ms = int(datetime.fromisoformat(ranges[0].planned_at).timestamp() * 1000)
    assert row["ts"] == row["stored_at"] == datetime.fromtimestamp(planned_ms / 1000, UTC)


def test_every_read_of_a_range_is_the_same(server: StreamServer) -> None:
    fill(server, 50)
    server.trim(20)
    reader = streaming(server, startingOffsets="5")
    start = reader.initialOffset()
    ranges = reader.partitions(start, reader.latestOffset(start, ALL))
    fill(server, 5)
    found = read(reader, ranges)
    assert [row["offset"] for row in found] == [5, *range(20, 50)]
    assert read(reader, ranges) == found
    again = streaming(server)
    assert read(again, again.partitions(start, reader.latestOffset(start, ALL)))[:31] == found


def test_micro_batches_of_at_most_max_rows(server: StreamServer) -> None:
    fill(server, 25)
    reader = streaming(server, maxOffsetsPerTrigger="10")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    start = reader.initialOffset()
    seen: list[object] = []
    sizes = []
    while (end := reader.latestOffset(start, limit)) != start:
        found = read(reader, reader.partitions(start, end))
        sizes.append(len(found))
        seen += [row["offset"] for row in found]
        assert end_of(reader) == 25
        start = json.loads(json.dumps(end))
    assert (sizes, seen) == ([10, 10, 5], list(range(25)))
    assert json.dumps(reader.latestOffset(start, limit)) == json.dumps(start)


def test_a_long_absence_is_one_row_and_the_batch_is_still_full(server: StreamServer) -> None:
    fill(server, 100)
    reader = streaming(server, maxOffsetsPerTrigger="10")
    start = reader.initialOffset()
    server.trim(90)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    found = read(reader, reader.partitions(start, end))
    assert [row["offset"] for row in found] == [0, *range(90, 100)]


def test_available_now_ends_where_it_was_prepared(server: StreamServer) -> None:
    fill(server, 10)
    reader = streaming(server)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    fill(server, 10)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert (end["offset"], end["next"]) == (10, 10)
    assert end_of(reader) == 20
    assert reader.latestOffset(end, ALL) is end
    # Prepared again for the next run of the same reader.
    server.new_epoch()
    fill(server, 3)
    lost = reader.latestOffset(end, ALL)
    assert (lost["epoch"], lost["offset"]) == (server.log.epoch, 3)
    fill(server, 3)
    assert reader.latestOffset(lost, ALL) is lost


def test_lost_epoch_is_reported_and_the_new_one_read_from_its_start(server: StreamServer) -> None:
    fill(server, 30)
    reader = streaming(server, maxOffsetsPerTrigger="10")
    before = server.log.epoch
    start = reader.initialOffset()
    middle = reader.latestOffset(start, reader.getDefaultReadLimit())
    server.new_epoch()
    fill(server, 4)
    end = reader.latestOffset(middle, reader.getDefaultReadLimit())
    found = read(reader, reader.partitions(middle, end))
    assert gap_of(found[0]) == {"lo": 10, "hi": 30, "prev_epoch": before, "reason": "epoch"}
    assert (found[0]["epoch"], found[0]["offset"]) == (before, 10)
    assert [row["offset"] for row in found[1:]] == [0, 1, 2, 3]
    assert {row["epoch"] for row in found[1:]} == {server.log.epoch}
    # A batch that was planned before, and is read only now.
    (row,) = read(reader, reader.partitions(start, middle))
    assert gap_of(row) == {"lo": 0, "hi": 10, "prev_epoch": before, "reason": "epoch"}


def test_lost_epoch_that_was_read_completely_is_reported_too(server: StreamServer) -> None:
    fill(server, 5)
    reader = streaming(server)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    server.new_epoch()
    after = reader.latestOffset(end, ALL)
    assert after["offset"] == 0
    (row,) = read(reader, reader.partitions(end, after))
    assert gap_of(row)["lo"] == gap_of(row)["hi"] == 5


def test_a_range_may_be_read_by_several(server: StreamServer) -> None:
    reader = streaming(server, partitions="4")
    whole = 2 * MIN_PARTITION_ROWS
    start: dict[str, Any] = {"epoch": "e", "offset": 7, "next": 7, "at": AT}
    ranges = reader.partitions(start, start | {"offset": 7 + 10 * whole})
    assert [range_.lo for range_ in ranges] == [
        7 + 5 * number * MIN_PARTITION_ROWS for number in range(4)
    ]
    assert [range_.hi for range_ in ranges] == [*(r.lo for r in ranges[1:]), 7 + 10 * whole]
    assert len(reader.partitions(start, start | {"offset": 7 + whole})) == 2
    assert len(reader.partitions(start, start | {"offset": 8})) == 1


@pytest.mark.parametrize(
    ("starting", "ending", "expected"),
    [
        ("earliest", "latest", [2, 3, 4]),
        ("3", "latest", [3, 4]),
        ("3", "4", [3]),
        ("latest", "latest", []),
        ("4", "3", []),
        ("earliest", "99", [2, 3, 4]),
    ],
)
def test_start_and_end_offsets_of_a_batch(
    server: StreamServer, starting: str, ending: str, expected: list[int]
) -> None:
    fill(server, 5)
    server.trim(2)
    reader = batch(server, startingOffsets=starting, endingOffsets=ending)
    assert [row["offset"] for row in read(reader, reader.partitions())] == expected


def test_a_start_by_time(server: StreamServer) -> None:
    fill(server, 5)
    at = server.log.times[3] = server.log.times[4] = int(server.log.times[2]) + 2.0
    assert streaming(server, startingTimestamp=f"{at * 1000:.0f}").initialOffset()["offset"] == 3
    iso = datetime.fromtimestamp(at, UTC).replace(tzinfo=None).isoformat()
    assert streaming(server, startingTimestamp=iso).initialOffset()["offset"] == 3


def test_batches_are_of_a_bounded_size(
    server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_messages, "BATCH_ROWS", 10)
    fill(server, 25)
    reader = batch(server)
    found = list(reader.read(reader.partitions()[0]))
    assert [len(part) for part in found] == [10, 10, 5]
    assert {part.schema for part in found} == {RAW_LAYOUT.schema}
    assert all(isinstance(part, pa.RecordBatch) for part in found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"passcode": "s3cret"}, "passcode cannot be an option"),
        ({"urll": "x"}, "unknown option urll; there are: url, "),
        ({"startingOffsets": "soon"}, "startingOffsets=soon should be earliest, latest"),
        ({"endingOffsets": "-1"}, "endingOffsets=-1 should be earliest, latest"),
        ({"startingTimestamp": "noon"}, "startingTimestamp=noon should be in milliseconds"),
        ({"startingOffsets": "3", "startingTimestamp": "5"}, "give one of them"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger=0 should be a number of at least 1"),
        ({"timeout_s": "x"}, "timeout_s=x should be a number"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss=no should be true or false"),
        ({"stream": "/topic/a"}, "should begin with /stream/: /stream/topic/a"),
        ({"body": "avro"}, "body=avro should be one of binary, text, json"),
        ({"body": "json"}, "body=json needs a schema"),
        ({"url": "127.0.0.1:1"}, "should be stomp://host:port"),
    ],
)
def test_wrong_options_are_reported(options: dict[str, str], message: str) -> None:
    with pytest.raises(StreamError) as caught:
        StompDataSource(options).schema()
    assert message in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_absent_broker_is_reported_after_a_while(server: StreamServer) -> None:
    reader = streaming(server, retry_s="0.2")
    server.kill()
    with pytest.raises(StreamAway):
        reader.initialOffset()
