"""Typed rows from the messages of ``raw``."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from trio_stomp.base import PAGE, PREFIX, Field, Table
from trio_stomp.spark._columns import DATE, IDX, KINDS, MESSAGE, RAW, STORED_AT, columns, schema_of
from trio_stomp.spark._json import objects
from trio_stomp.spark._types import type_of

FROM_RAW = {*MESSAGE, "ts", STORED_AT.name}
"""Columns with the source's values, whatever the body says."""

MAX_JSON_BYTES = 32 << 20
"""The JSON that is parsed at once: its rows take some times as much memory."""


@frozen
class Split:
    """Messages, divided by the table that has them.

    Args:
      tables: The typed rows, by kind.
      rest: The messages that no table can hold whole: of unknown kinds, with unknown fields or
        other types, or not JSON.
    """

    tables: dict[str, pa.Table]
    rest: pa.Table


def split(raw: pa.Table) -> Split:
    """Divide messages by kind, and make the rows of the tables."""
    kinds = raw.column("kind")
    # Rows of unknown kinds stay in the rest: a newer broker's, or a user's.
    in_rest = ~np.asarray(pc.is_in(kinds, pa.array(KINDS, pa.string())))
    tables = {}
    for kind in pc.unique(kinds.drop_null()).to_pylist():
        if kind in KINDS:
            places = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(kinds, kind), False)))
            typed = []
            for some in _slices(raw, places):
                is_chosen = np.zeros(raw.num_rows, bool)
                is_chosen[some] = True
                messages = chosen(raw, pa.array(is_chosen))
                rows, is_held = typed_rows(KINDS[kind], messages)
                in_rest[some[~is_held]] = True
                typed.append(rows)
            tables[kind] = pa.concat_tables(typed)
    return Split(tables, raw.select([field.name for field in RAW]).filter(pa.array(in_rest)))


def _slices(raw: pa.Table, places: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the numbers of messages in pieces of about ``MAX_JSON_BYTES``."""
    sizes = pc.fill_null(pc.binary_length(raw.column("body")), 0)
    ends = np.cumsum(np.asarray(sizes, np.int64)[places]) // MAX_JSON_BYTES
    yield from np.split(places, np.flatnonzero(np.diff(ends)) + 1)


def typed_rows(table: Table, messages: pa.Table) -> tuple[pa.Table, np.ndarray]:
    """Return the rows of a table, and which of the messages it holds whole.

    The row of an item repeats the common fields of its message. A message without items yields no
    row, unless it has common fields, which would be lost: then one row with nulls.
    """
    is_held = np.zeros(messages.num_rows, bool)
    parts = []
    bodies, wanted = messages.column("body").combine_chunks(), _body_type(table)
    for first, values in objects(bodies, wanted, "infer"):
        fields, is_whole = _known(values, wanted)
        is_held[first : first + len(values)] = is_whole
        parts.append(_rows(table, messages.slice(first, len(values)), fields))
    # A message that is stored under no day is not in a table, which is divided by days.
    is_held &= np.asarray(messages.column(STORED_AT.name).is_valid())
    empty = schema_of(columns(table)).empty_table()
    return pa.concat_tables([empty, *parts]), is_held


def _rows(table: Table, messages: pa.Table, fields: dict[str, pa.Array]) -> pa.Table:
    takes: pa.Array | None = None
    """The message of each row; None = each message has one row."""
    items: dict[str, pa.Array] = {}
    if table.is_list:
        lists = fields["items"]
        lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
        own = pc.list_flatten(lists)
        places = np.arange(len(own)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        items = dict(zip((field.name for field in own.type), own.flatten(), strict=True))
        items[IDX.name] = pa.array(places, pa.int64())
        bare = np.flatnonzero((lengths == 0) & bool(table.beside))
        if len(bare):
            items = {
                name: pa.concat_arrays([array, pa.nulls(len(bare), array.type)])
                for name, array in items.items()
            }
            items[IDX.name] = pc.fill_null(items[IDX.name], 0)
        of_item = np.repeat(np.arange(len(lengths)), lengths)
        takes = pa.array(np.concatenate([of_item, bare]))
    own_names = {field.name for field in table.fields}

    def column(field: Field) -> pa.Array | pa.ChunkedArray:
        name = field.name
        if table.is_list and (field is IDX or name in own_names):
            return items[name]
        if field is DATE:
            of_messages = messages.column(STORED_AT.name).cast(pa.date32())
        elif name in FROM_RAW:
            of_messages = messages.column(name).cast(type_of(field.type))
        else:
            of_messages = fields[name]
        return of_messages if takes is None else of_messages.take(takes)

    found = columns(table)
    made = pa.table([column(field) for field in found], schema=schema_of(found))
    return chosen(made, made.column(DATE.name).is_valid())


def chosen(rows: pa.Table, mask: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the rows that a mask chooses; if these are all, without a copy."""
    return rows if pc.all(mask, skip_nulls=False).as_py() else rows.filter(mask)


def _body_type(table: Table) -> pa.StructType:
    """Return the type of a message's JSON."""
    if not table.is_list:
        return pa.struct(list(schema_of((*PREFIX, *table.fields))))
    items = pa.list_(pa.struct(list(schema_of(table.fields))))
    return pa.struct([*schema_of((*PREFIX, *PAGE, *table.beside)), pa.field("items", items)])


def _known(values: pa.StructArray, wanted: pa.StructType) -> tuple[dict[str, pa.Array], np.ndarray]:
    """Return the known fields of messages by their names, and which messages have no other."""
    is_whole = np.ones(len(values), bool)
    known: dict[str, pa.Array] = {}
    for field, array in zip(values.type, values.flatten(), strict=True):
        if wanted.get_field_index(field.name) < 0:
            is_whole &= ~np.asarray(array.is_valid())
        elif pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type):
            kept, more = _items(array, wanted.field(field.name).type.value_type)
            is_whole &= ~more
            known[field.name] = kept
        else:
            known[field.name] = array
    return known, is_whole


def _items(lists: pa.ListArray, wanted: pa.StructType) -> tuple[pa.ListArray, np.ndarray]:
    """Return lists of items with the known fields only, and which lists have another field."""
    items = pc.list_flatten(lists)
    has_more = np.zeros(len(lists), bool)
    own = dict(zip((field.name for field in items.type), items.flatten(), strict=True))
    parents = np.asarray(pc.list_parent_indices(lists))
    for name in own.keys() - {field.name for field in wanted}:
        has_more[parents[np.asarray(own[name].is_valid())]] = True
    kept = pa.StructArray.from_arrays([own[f.name] for f in wanted], fields=list(wanted))
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), kept), has_more
