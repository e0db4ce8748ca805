"""The spread of several runs: their median, quartiles and extremes."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

Row = dict[str, float | int | str | bool | None]
"""A line of a table, as the JSON file has it."""


class Spread(NamedTuple):
    """The spread of several runs."""

    least: float
    lower: float
    median: float
    upper: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of values. With one value, all quartiles are that value."""
        ordered = sorted(values)
        quartiles = (
            statistics.quantiles(ordered, n=4, method="inclusive")
            if len(ordered) > 1
            else [ordered[0]] * 3
        )
        lower, median, upper = quartiles
        return cls(ordered[0], lower, median, upper, ordered[-1])

    def __str__(self) -> str:
        return self.shown(2)

    def shown(self, digits: int) -> str:
        """Return the median, with quartiles and extremes in brackets, rounded to ``digits``
        decimals."""
        least, lower, median, upper, most = (f"{value:.{digits}f}" for value in self)
        return f"{median} ({lower}-{upper}; {least}-{most})"


def spread_row(name: str, values: Sequence[float]) -> Row:
    """Return the parts of a spread, ``name`` in front of each."""
    return {f"{name}_{part}": value for part, value in Spread.of(values)._asdict().items()}
