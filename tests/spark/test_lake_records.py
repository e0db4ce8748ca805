"""Typed rows: each record of a message, with the values that it says."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra tables is not installed")


from tests.support.diag_bodies import KINDS, Row, columns, message
from tests.support.lake import split_of
from trio_stomp.base import TABLES, Table
from trio_stomp.spark.lake import _records


def rows(kind: str, *messages: Row) -> list[dict[str, Any]]:
    parts = split_of(messages)
    assert parts.rest.num_rows == 0
    found: list[dict[str, Any]] = parts.tables[kind].to_pylist()
    return found


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_whole_message_of_each_kind_is_a_row(table: Table) -> None:
    (row,) = rows(table.name, message(table.name, 3, *([{}] if table.is_list else [])))
    assert list(row) == [field.name for field in columns(table)]
    assert (row["offset"], row["interval_s"], row["boot"]) == (3, 10.0, "b1")


def test_each_item_of_a_list_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    # Pieces as small as one message must not differ from one piece.
    monkeypatch.setattr(_records, "MAX_JSON_BYTES", 1)
    found = rows(
        "queue",
        message("queue", 1, {"destination": "/queue/a", "input_depth": 3, "capacity": 9}, {}),
        message("queue", 2),
        message("queue", 3, {"subscription_id": None, "oldest_input_age_s": None}, boot="b2"),
    )
    named = {(row["offset"], row["idx"]): row for row in found}
    assert set(named) == {(1, 0), (1, 1), (3, 0)}
    first = named[1, 0]
    assert (first["destination"], first["input_depth"], first["capacity"]) == ("/queue/a", 3, 9)
    assert (first["boot"], first["part"], first["date"].isoformat()) == ("b1", 1, "2026-03-14")
    assert (named[3, 0]["epoch"], named[3, 0]["boot"]) == ("e1", "b2")
    assert named[3, 0]["oldest_input_age_s"] is None


def test_fields_beside_an_empty_list_are_kept() -> None:
    full, empty = rows(
        "ws", message("ws", 1, {"session_id": "s"}, hits=5), message("ws", 2, hits=6)
    )
    assert (full["session_id"], full["hits"], full["idx"]) == ("s", 5, 0)
    assert (empty["session_id"], empty["hits"], empty["idx"]) == (None, 6, 0)


def test_a_wrong_message_does_not_affect_others() -> None:
    messages = [message("process", n, pid=n) for n in range(100)]
    for n, body in ((17, "{"), (60, '{"pid": "x"}'), (61, "[]"), (99, '{"pid": 1}}')):
        messages[n]["body"] = body
    parts = split_of(messages)
    assert parts.rest.column("offset").to_pylist() == [17, 60, 61, 99]
    assert parts.tables["process"].num_rows == 96


def test_a_field_that_an_old_message_lacks_is_null() -> None:
    old = message("process", 1, pid=5)
    body = json.loads(str(old["body"]))
    del body["fds"]
    # A message may be written over several lines.
    (row,) = rows("process", old | {"body": json.dumps(body, indent=1)})
    assert (row["pid"], row["fds"]) == (5, None)


def test_offset_epoch_and_day_come_from_the_source() -> None:
    moment = datetime(2026, 3, 15, 1, 2, 3, tzinfo=UTC)
    other = message("session", 7) | {"offset": 9, "epoch": "e9", "stored_at": moment}
    (row,) = rows("session", other)
    assert (row["offset"], row["epoch"], row["date"].isoformat()) == (9, "e9", "2026-03-15")


def test_timestamps_keep_their_microseconds() -> None:
    item = {"connected_at": "2026-03-13T23:59:59.123456Z"}
    (row,) = rows("connection", message("connection", 1, item))
    assert row["connected_at"].isoformat() == "2026-03-13T23:59:59.123456+00:00"


def test_histograms_are_lists() -> None:
    item = {"le_ms": [0.5, 1], "bucket_counts": [3, 4, 5]}
    (row,) = rows("latency", message("latency", 1, item))
    assert (row["le_ms"], row["bucket_counts"]) == ([0.5, 1.0], [3, 4, 5])
    assert KINDS["latency"].is_list
