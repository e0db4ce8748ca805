"""The columns of a user's stream in Spark's types: what a reader's schema may have."""

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from trio_stomp.spark._address import StreamError
from trio_stomp.spark._messages import Layout
from trio_stomp.spark._types import type_of


def layout_of(schema: StructType, body: str) -> Layout:
    """Return the layout of a table with this schema.

    Raises:
      StreamError: a column is unknown, or has another type.
    """
    known = {each.name: each.type for each in Layout.of(body).schema}
    columns = []
    for field in schema:
        found, kind = field.dataType.simpleString(), known.get(field.name)
        if kind is None and body != "json":
            raise StreamError(
                f"there is no column {field.name}: with body={body} there are {', '.join(known)};"
                " with body=json, other columns are fields of the body"
            )
        if kind is not None and found != (wanted := from_arrow_type(kind).simpleString()):
            raise StreamError(f"column {field.name} should be {wanted}, not {found}")
        columns.append(pa.field(field.name, kind or type_of(found)))
    return Layout(body, pa.schema(columns))
