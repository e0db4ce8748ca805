"""Types of columns in SQL's words, for those who have no Spark to read them: ``ARRAY<DOUBLE>``."""

import re
from collections.abc import Iterator

import pyarrow as pa

from trio_stomp.spark._address import StreamError

PLAIN = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}

_DECIMAL = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)", re.IGNORECASE)
_NESTED = re.compile(r"(array|struct)<(.*)>", re.IGNORECASE | re.DOTALL)


def type_of(text: str) -> pa.DataType:
    """Return a type by its name.

    Raises:
      StreamError: there is none of this name.
    """
    text = text.strip()
    if decimal := _DECIMAL.fullmatch(text):
        digits, scale = map(int, decimal.groups())
        if scale <= digits and 1 <= digits <= 38:
            return pa.decimal128(digits, scale)
    if nested := _NESTED.fullmatch(text):
        is_array = nested[1].lower() == "array"
        return pa.list_(type_of(nested[2])) if is_array else pa.struct(fields_of(nested[2]))
    if (plain := PLAIN.get(text.lower())) is None:
        raise StreamError(
            f"no column can be {text or 'without a type'}: there are {', '.join(PLAIN).upper()},"
            " DECIMAL(9, 2), ARRAY<…> and STRUCT<…: …>"
        )
    return plain


def fields_of(text: str) -> list[pa.Field]:
    """Return the columns of a text such as ``sku STRING, price DECIMAL(9, 2)``.

    Raises:
      StreamError: it has another form, or a name twice.
    """
    found = []
    for part in _parts(text):
        name, *kind = re.split(r"\s*:\s*|\s+", part.strip(), maxsplit=1)
        found.append(pa.field(name, type_of("".join(kind))))
    # As a table does, which ignores case.
    names = [each.name.casefold() for each in found]
    if len(set(names)) < len(names) or "" in names:
        raise StreamError(
            f"{text!r} should name each column once, as in 'sku STRING, price DOUBLE'; tables"
            " ignore case, so rename one, or keep the field with body=text"
        )
    return found


def _parts(text: str) -> Iterator[str]:
    """Yield the parts between commas that are in no brackets."""
    depth = start = 0
    for at, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            yield text[start:at]
            start = at + 1
    yield text[start:]
