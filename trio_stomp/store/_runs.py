"""Groups single messages of a store into the runs that ``Store`` returns."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from trio_stomp.store._port import Page, Stored, Streamed

MAX_ROWS = 1000
"""Maximum number of messages in one read."""


class Row(NamedTuple):
    """A message of a place."""

    id: int
    body: bytes
    head: bytes
    received_ms: int
    expires_ms: int
    deliveries: int


class StreamRow(NamedTuple):
    """A message of a stream."""

    offset: int
    body: bytes
    head: bytes
    written_ms: int


def count_within(sizes: Iterable[int], limit_bytes: int) -> int:
    """Return how many messages of these sizes fit the limit: at least one, if there are any."""
    taken = 0
    for size in sizes:
        if taken and limit_bytes <= 0:
            break
        taken += 1
        limit_bytes -= size
    return taken


def page_of(rows: Iterable[Row], after: int, is_last: bool) -> Page:
    """Return a page of rows sorted by id. Neighbours with equal headers and times form a run."""
    runs = []
    for shared, group in groupby(rows, key=lambda row: row[2:]):
        found = list(group)
        runs.append(Stored([row.id for row in found], [row.body for row in found], *shared))
    return Page(runs, runs[-1].ids[-1] if runs else after, is_last)


def streamed_of(rows: Iterable[StreamRow]) -> Iterator[Streamed]:
    """Yield runs of rows sorted by offset. A gap, another header block or time ends a run."""
    numbered = enumerate(rows)
    for (_, head, written_ms), group in groupby(
        numbered, key=lambda pair: (pair[1].offset - pair[0], pair[1].head, pair[1].written_ms)
    ):
        found = [row for _, row in group]
        yield Streamed(found[0].offset, head, [row.body for row in found], written_ms)
