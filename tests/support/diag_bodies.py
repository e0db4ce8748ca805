"""Messages of DIAG for tests of the tables: short to write, complete as the broker writes them."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from trio_stomp.base.schema import PREFIX, Field
from trio_stomp.spark._columns import DATE, IDX, KEYS, KINDS, PROGRESS, RAW, columns, schema_of

__all__ = [
    "DATE",
    "IDX",
    "KEYS",
    "KINDS",
    "PROGRESS",
    "RAW",
    "START",
    "Row",
    "columns",
    "message",
    "record",
    "schema_of",
]

START = datetime(2026, 3, 14, 8, 0, tzinfo=UTC)
EMPTY: dict[str, object] = {
    "BIGINT": 0,
    "DOUBLE": 0.0,
    "STRING": "",
    "BOOLEAN": False,
    "TIMESTAMP": "2026-03-14T08:00:00.000000Z",
    "ARRAY<DOUBLE>": [],
    "ARRAY<BIGINT>": [],
}

Row = dict[str, object]


def record(fields: Iterable[Field], known: Mapping[str, object]) -> Row:
    """Return a record of all fields, with empty values by default."""
    return {field.name: EMPTY[field.type] for field in fields} | dict(known)


def message(
    kind: str,
    offset: int,
    *items: Mapping[str, object],
    at_s: float = 0.0,
    boot: str = "b1",
    broker: str = "north",
    stored: datetime | None = None,
    **known: object,
) -> Row:
    """Return one message as a row of raw; ``items`` are the records of a list."""
    table, ts = KINDS[kind], START + timedelta(seconds=at_s)
    body = record(PREFIX, {"broker_id": broker, "epoch": "e1", "offset": offset, "v": 1})
    body |= {"ts": ts.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "interval_s": 10.0, "boot": boot}
    if table.is_list:
        body |= {"part": 1, "parts": 1, "full": True} | record(table.beside, known)
        body["items"] = [record(table.fields, item) for item in items]
    else:
        body |= record(table.fields, known)
    return {
        "broker_id": broker,
        "epoch": "e1",
        "offset": offset,
        "topic": table.topic,
        "kind": kind,
        "stored_at": stored or ts,
        "ts": ts,
        "v": 1,
        "body": json.dumps(body),
    }
