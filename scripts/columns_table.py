"""Print the columns of the stored statistics for docs/operate/analysis.md, from the schema.

python scripts/columns_table.py            print them
python scripts/columns_table.py --write    put them into the page, between the two marks
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from trio_stomp.base.schema import PAGE, PREFIX, TABLES, Field
from trio_stomp.spark._columns import DATE, IDX, PROGRESS, RAW, STORED_AT

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "operate" / "analysis.md"
BEGIN = "<!-- columns: made by scripts/columns_table.py -->"
END = "<!-- columns: end -->"


def tables() -> Iterator[str]:
    """Yield the lines in Markdown."""
    yield from _section("`raw`", (*RAW, DATE))
    yield from _section("`progress`", (*PROGRESS, DATE))
    yield from _section("All tables", (*PREFIX, STORED_AT, DATE))
    yield from _section("`connection`, `ws`, `queue`, `destination`, `latency`", (*PAGE, IDX))
    for table in TABLES:
        yield from _section(f"`{table.name}`", (*table.fields, *table.beside))


def _section(title: str, fields: Sequence[Field]) -> Iterator[str]:
    yield from (f"### {title}", "", "| column | type | meaning |", "|---|---|---|")
    for field in fields:
        yield f"| `{field.name}` | {field.type} | {field.meaning} |"
    yield ""


def updated(document: str) -> str:
    """Return the document with the present columns between the marks."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([before + BEGIN, "", *tables(), END]) + after


def main(argv: Sequence[str]) -> None:
    """Print the columns, or put them into the document."""
    if "--write" in argv:
        document = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(updated(document), encoding="utf-8")
    else:
        print("\n".join(tables()))


if __name__ == "__main__":
    main(sys.argv[1:])
