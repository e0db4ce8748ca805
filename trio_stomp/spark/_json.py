"""Parses the JSON of many bodies by one call of C++."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json


def objects(
    bodies: pa.StringArray, kind: pa.StructType, others: str, first: int = 0
) -> Iterator[tuple[int, pa.StructArray]]:
    """Yield the objects of neighbouring bodies, each time with the number of the first one.

    A body that is null, or no object of this type, is left out. It takes no other with it: halves
    lead to it.

    Args:
      bodies: The bodies.
      kind: The type of an object. A field that is missing is null.
      others: What happens to fields without a type: ``ignore``, or ``infer`` to have them too.
      first: The number of the first of these bodies.
    """
    if not len(bodies):
        return
    found = _objects(bodies, kind, others)
    if found is None and others == "ignore" and (finer := _in_ns(kind)) != kind:
        exact = _objects(bodies, finer, others)
        found = exact and exact.cast(kind, safe=False)
    if found is not None:
        yield first, found
    elif len(bodies) > 1:
        middle = len(bodies) // 2
        yield from objects(bodies[:middle], kind, others, first)
        yield from objects(bodies[middle:], kind, others, first + middle)


def _in_ns(kind: pa.DataType) -> pa.DataType:
    """Return a type with all times in nanoseconds.

    Times with so many digits (Go's) are refused by a coarser type, and years after 2262 by this.
    """
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns", kind.tz)
    if pa.types.is_list(kind):
        return pa.list_(_in_ns(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_ns(field.type)) for field in kind])
    return kind


def _objects(bodies: pa.StringArray, kind: pa.StructType, others: str) -> pa.StructArray | None:
    """Return an object for each body; None if one has none."""
    if bodies.null_count:
        return None
    data = _lines(bodies)
    schema = pa.schema([pa.field("m", kind)])
    parsing = pyarrow.json.ParseOptions(schema, unexpected_field_behavior=others)
    reading = pyarrow.json.ReadOptions(use_threads=False, block_size=data.size + 1)
    try:
        table = pyarrow.json.read_json(pa.BufferReader(data), reading, parsing)
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(bodies) or table.column_names != ["m"]:
        return None
    found = table.column("m").combine_chunks()
    return None if found.null_count else found


def _lines(bodies: pa.StringArray) -> pa.Buffer:
    """Return each body as the member of an object in a line of its own.

    Nothing in a body can leave its line: in JSON a line feed is white space, or wrong, and so is
    CR. So as many objects as lines are one for each.
    """
    if pc.any(pc.match_substring(bodies, "\n")).as_py():
        bodies = pc.replace_substring(bodies, "\n", "\r")
    lines = pc.binary_join_element_wise('{"m":', bodies, "}\n", "")
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return data.slice(int(ends[0]), int(ends[-1] - ends[0]))
