"""The live content of a store as records, to be written to another store or to a file."""

import heapq
import math
from collections.abc import Iterable, Iterator

from attrs import evolve

from trio_stomp.store._port import Page, Progress, Recovered, StoreError
from trio_stomp.store._records import RECORD_BYTES, Append, Begin, Done, Keep, Put
from trio_stomp.store.tools._view import View

READ_BYTES = 32 * 1024 * 1024
"""Bytes read ahead of all places together. Pages of a place have sizes within the next bounds."""
MIN_PAGE_BYTES, MAX_PAGE_BYTES = 16 * 1024, 1024 * 1024
GROUP_BYTES = 1024 * 1024

Content = Keep | Put | Begin | Append


def content(view: View, recovered: Recovered, progress: Progress) -> Iterator[Content]:
    """Yield the content of a store: settings, messages in the order of their ids, streams.

    Damaged messages are missing. The ids and offsets of a record have no gaps.

    Args:
      view: The view of the store.
      recovered: The result of ``view.recover``.
      progress: Called with the bytes of bodies.

    Raises:
      StoreError: The store cannot be read.
    """
    for key, text in sorted(recovered.settings.items()):
        yield Keep(key, text)
    total = sum(place.bytes for place in recovered.places.values())
    total += sum(stream.bytes for stream in recovered.streams.values())
    done = 0
    for record in _stored(view, recovered):
        if not isinstance(record, Begin):
            done += sum(map(len, record.bodies))
            progress(min(done, total), total)
        yield record
    progress(total, total)


def _stored(view: View, recovered: Recovered) -> Iterator[Put | Begin | Append]:
    share = READ_BYTES // max(len(recovered.places), 1)
    page_bytes = min(max(share, MIN_PAGE_BYTES), MAX_PAGE_BYTES)
    places = sorted(recovered.places.items())
    yield from _merged([_messages(view, key, state.count, page_bytes) for key, state in places])
    for name, state in sorted(recovered.streams.items()):
        yield Begin(name, state.epoch, state.first)
        first = state.first
        while first < state.next and (runs := view.read_stream(name, first, MAX_PAGE_BYTES)):
            for run in runs:
                yield Append(name, run.first, run.head, list(run.bodies), run.written_ms)
                first = run.first + len(run.bodies)


def pages(view: View, key: tuple[str, int], count: int, page_bytes: int) -> Iterator[Page]:
    """Yield the pages of a place's level.

    Args:
      view: The view of the store.
      key: The place and level.
      count: The number of its messages, as recovered.
      page_bytes: The approximate size of a page.

    Raises:
      StoreError: it cannot be read, or has fewer messages, and no others are damaged.
    """
    after, is_last, found = 0, False, 0
    while not is_last:
        page = view.read(*key, after, page_bytes)
        after, is_last = page.next, page.is_last
        found += page.lost + sum(len(run.ids) for run in page.runs)
        yield page
    if found < count:
        raise StoreError(
            f"{found} of {count} messages of {key[0]}, level {key[1]}, can be read, and no others "
            "are damaged. Report this, and keep the store"
        )


def _messages(view: View, key: tuple[str, int], count: int, page_bytes: int) -> Iterator[Put]:
    """Yield the messages of a place's level."""
    for page in pages(view, key, count, page_bytes):
        for run in page.runs:
            for start, end in _without_gaps(run.ids):
                yield Put(
                    key[0],
                    first=run.ids[start],
                    head=run.head,
                    bodies=run.bodies[start:end],
                    level=key[1],
                    received_ms=run.received_ms,
                    expires_ms=run.expires_ms,
                    deliveries=run.deliveries,
                )


def _without_gaps(ids: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the parts of ids that follow one another."""
    start, count = 0, len(ids)
    if ids[-1] - ids[0] != count - 1:
        for index in range(1, count):
            if ids[index] != ids[index - 1] + 1:
                yield start, index
                start = index
    yield start, count


def _merged(levels: Iterable[Iterator[Put]]) -> Iterator[Put]:
    """Yield messages of all levels in the order of their ids: the order of their acceptance."""
    firsts = [(next(level, None), level) for level in levels]
    heap = [(put.first, number, put, rest) for number, (put, rest) in enumerate(firsts) if put]
    heapq.heapify(heap)
    while heap:
        _, number, put, rest = heap[0]
        bound = min([each[0] for each in heap[1:3]], default=math.inf)  # the next smallest
        count = int(min(bound - put.first, len(put.bodies)))
        if count < len(put.bodies):
            yield evolve(put, bodies=put.bodies[:count])
            following: Put | None = evolve(put, first=put.first + count, bodies=put.bodies[count:])
        else:
            yield put
            following = next(rest, None)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following.first, number, following, rest))


def grouped(records: Iterable[Content | Done]) -> Iterator[list[Content | Done]]:
    """Yield records in groups, for one append each. Like messages in a row become one record.

    Args:
      records: The records. Their lists of bodies are of no other use.
    """
    group: list[Content | Done] = []
    size = 0
    for record in records:
        if isinstance(record, Put | Append):
            size += len(record.head) + sum(map(len, record.bodies))
            size += RECORD_BYTES * len(record.bodies)
            if not (group and _extend(group[-1], record)):
                group.append(record)
        else:
            size += RECORD_BYTES
            group.append(record)
        # Later records must be in another append than the beginning of their stream.
        if size >= GROUP_BYTES or isinstance(record, Begin):
            yield group
            group, size = [], 0
    if group:
        yield group


def _extend(last: Content | Done, record: Put | Append) -> bool:
    """Add the messages of a record to the one before it. Return False if they differ."""
    if not isinstance(last, Put | Append) or last.first + len(last.bodies) != record.first:
        return False
    if _shared(last) != _shared(record):
        return False
    assert isinstance(last.bodies, list)
    last.bodies.extend(record.bodies)
    return True


def _shared(record: Put | Append) -> tuple[object, ...]:
    """Return what all messages of a record have in common."""
    if isinstance(record, Append):
        return Append, record.stream, record.head, record.written_ms
    times = record.received_ms, record.expires_ms
    return Put, record.place, record.level, record.head, times, record.deliveries


def used_id(next_id: int, last_id: int) -> list[Put | Done]:
    """Return records that use up the ids before ``next_id``, since message ids contain them.

    Args:
      next_id: The id of the next message.
      last_id: The last id of the messages.
    """
    used = next_id - 1
    return [Put("import:", used, b"", [b""]), Done([used])] if used > last_id else []
