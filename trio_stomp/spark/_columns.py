"""The columns of all tables, derived from the schema of the broker's records. It needs no Spark.

A table of the statistics has one row for each record, with a column for each field; ``raw`` has the
messages that no such table can hold, unchanged. New columns are appended to those of a record;
older files have null there.
"""

from collections.abc import Iterable

import pyarrow as pa

from trio_stomp.base import PAGE, PREFIX, TABLES, Field, Table
from trio_stomp.spark._types import type_of

STORED_AT = Field("stored_at", "TIMESTAMP", "when the broker stored the message, by its clock")

RAW = (
    Field("broker_id", "STRING", "which broker"),
    Field("epoch", "STRING", "the epoch of the stream"),
    Field("offset", "BIGINT", "number of the message in its epoch"),
    Field("topic", "STRING", "where the broker published it"),
    Field("kind", "STRING", "the table that its records belong to"),
    STORED_AT,
    Field("ts", "TIMESTAMP", "when the figures were taken"),
    Field("v", "BIGINT", "version of the schema"),
    Field("body", "STRING", "the message's JSON"),
)

PROGRESS = (
    Field("broker_id", "STRING", "which broker"),
    Field("epoch", "STRING", "the epoch of the stream"),
    Field("stream", "STRING", "the stream that was read"),
    Field("table", "STRING", "the table of a user's stream; empty for the statistics"),
    Field("first", "BIGINT", "offset of the first message of the commit"),
    Field("next", "BIGINT", "offset after its last message"),
    Field("messages", "BIGINT", "number of its messages, gaps included"),
    STORED_AT,
    Field("written_at", "TIMESTAMP", "when the writer committed them, by its clock"),
)
"""A row for each commit of the writer, which is written behind the rows of all tables."""

IDX = Field("idx", "BIGINT", "place of the item in its message, from 0")
DATE = Field("date", "DATE", "day of stored_at in UTC, by which the files are partitioned")
MESSAGE = ("broker_id", "epoch", "offset")
"""The columns that identify a message permanently."""

KEYS: dict[str, tuple[str, ...]] = {
    "connection": ("session_id",),
    "ws": ("session_id",),
    "queue": ("destination", "subscription_id"),
    "destination": ("destination",),
    "latency": ("destination", "stage"),
    "process": (),
    "session": (),
    "stale": (),
    "event": ("name", "session_id"),
    "_gap": (),
}
"""The columns that identify an item within a broker."""

KINDS: dict[str, Table] = {table.name: table for table in TABLES}


def columns(table: Table) -> tuple[Field, ...]:
    """Return the columns of a table as stored."""
    listed = (*PAGE, IDX) if table.is_list else ()
    return (*PREFIX, *listed, *table.fields, *table.beside, STORED_AT, DATE)


def schema_of(fields: Iterable[Field]) -> pa.Schema:
    """Return columns as a schema of Arrow. All are nullable, as old files lack newer ones."""
    return pa.schema([(field.name, type_of(field.type)) for field in fields])
