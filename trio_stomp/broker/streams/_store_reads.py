"""Requests to the store for messages of a stream."""

from functools import partial
from typing import TYPE_CHECKING

from trio_stomp.broker.durability import Log, StoreRead
from trio_stomp.broker.headers import decode_head
from trio_stomp.broker.streams._stream import Stream, StreamRun
from trio_stomp.frames import Head

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trio_stomp.store import Store, Streamed

STRETCH_BYTES = 1024 * 1024
"""The bytes of one read from the store."""


def request_runs(
    log: Log | None,
    stream: Stream,
    first: int,
    take: "Callable[[list[StreamRun] | None], None]",
    *,
    joins: bool = True,
) -> None:
    """Read messages from the store, and call ``take`` with them in a later turn.

    Args:
      log: The log. There is one, as the stream is in the store.
      stream: The stream.
      first: The offset of the first message.
      take: Gets runs; None = the read failed and may be repeated.
      joins: Whether to merge runs with equal header blocks, which then share a time.
    """
    assert log is not None

    def done(runs: "Sequence[Streamed] | None", _now: float) -> None:
        take(None if runs is None else _runs_of(runs, joins=joins))

    log.reads.append(StoreRead(partial(_read_stream, stream.name, first), STRETCH_BYTES, done))


def request_offset(
    log: Log | None, stream: Stream, written_ms: int, take: "Callable[[int | None], None]"
) -> None:
    """Find the first message of a time or later, and call ``take`` with its offset.

    Args:
      log: The log. There is one, as the stream is in the store.
      stream: The stream.
      written_ms: The time, in ms since 1970.
      take: Gets the offset; None = the store failed and may be asked again.
    """
    assert log is not None
    find = partial(_find_offset, stream.name, written_ms)
    log.reads.append(StoreRead(find, 0, lambda offset, _now: take(offset)))


def _runs_of(found: "Sequence[Streamed]", *, joins: bool) -> list[StreamRun]:
    """Return runs that the store has read. With ``joins``, merge those with equal header blocks."""
    spans: list[list[Streamed]] = []
    at = -1
    for each in found:
        if joins and spans and spans[-1][0].head == each.head and each.first == at:
            spans[-1].append(each)
        else:
            spans.append([each])
        at = each.first + len(each.bodies)
    heads = {lines: decode_head(lines) for lines in {span[0].head for span in spans}}
    return [_joined(heads[span[0].head], span) for span in spans]


def _joined(head: Head, span: "Sequence[Streamed]") -> StreamRun:
    first = span[0]
    bodies = [body for each in span for body in each.bodies]
    times_ms = None
    if span[-1].written_ms != first.written_ms:
        times_ms = [each.written_ms for each in span for _ in each.bodies]
    return StreamRun(first.first, head, bodies, first.written_ms, times_ms)


def _read_stream(name: str, first: int, store: "Store", max_bytes: int) -> "Sequence[Streamed]":
    return store.read_stream(name, first, max_bytes)


def _find_offset(name: str, written_ms: int, store: "Store", _max_bytes: int) -> int:
    return store.find_offset(name, written_ms)
