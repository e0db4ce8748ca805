"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]], words: Sequence[str]) -> str:
    """Return a table. All columns but those in ``words`` are numbers, aligned to the right."""
    marks = ["---" if name in words else "--:" for name in head]
    lines = [_line(head), "|" + "|".join(marks) + "|", *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
