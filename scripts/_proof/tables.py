"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]], words: Sequence[str]) -> str:
    """A table; all columns are numbers, to the right, but those named in ``words``."""
    marks = ["---" if name in words else "--:" for name in head]
    lines = [_line(head), "|" + "|".join(marks) + "|", *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
