"""The set of ids compared with Python's set, and the extents with a list."""

from hypothesis import given
from hypothesis import strategies as st

from trio_stomp.store.journal._extents import (
    MANY_EXTENTS,
    MAX_EXTENT_BYTES,
    MAX_EXTENT_IDS,
    Extents,
    extent_of,
    share_for,
)
from trio_stomp.store.journal._id_set import IdSet
from trio_stomp.store.journal.format import Copy

IDS = st.one_of(st.integers(0, 3000), st.sampled_from([0, 511, 512, 513, 1023, 1024, 1 << 40]))
RANGES = st.builds(lambda first, size: range(first, first + size), IDS, st.integers(0, 1500))
SOME = st.one_of(RANGES, st.lists(IDS, max_size=5), st.builds(lambda ids: ids[::3], RANGES))


@given(st.lists(st.tuples(st.booleans(), SOME), max_size=12), RANGES)
def test_an_id_set_is_a_set(changes, asked: range) -> None:
    found = IdSet()
    expected: set[int] = set()
    for adds, ids in changes:
        if adds:
            found.add(ids)
            expected |= set(ids)
        else:
            found.remove(ids)
            expected -= set(ids)
    inside = sorted(expected & set(asked))
    assert found.count == len(expected)
    assert found.count_of(asked) == len(inside)
    assert list(found.members_of(asked)) == inside
    assert found.first_of(asked) == (inside[0] if inside else None)
    assert found.last_of(asked) == (inside[-1] if inside else None)
    assert found.has_all(asked) == (len(inside) == len(asked))
    assert all((id in found) == (id in expected) for id in (*asked[:3], 0, 511, 512, 1 << 40))


def test_dense_ids_take_almost_no_memory() -> None:
    ids = IdSet()
    for first in range(0, 1 << 20, 100):
        ids.add(range(first, first + 100))
    chunks = ids._chunks
    assert len(chunks) <= (1 << 20) // 512 + 1
    assert len(set(map(id, chunks.values()))) <= 2
    ids.remove(range(2 << 20))
    assert not chunks


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(1, 90_000)), max_size=30)
)
def test_extents_are_merged_while_it_is_of_use(runs) -> None:
    extents = Extents()
    everything: list[int] = []
    id = position = 0
    for count, gap, size in runs:
        id, start = id + gap, position + gap * 30_000
        ids, position = range(id, id + count), start + size
        extents.add(extent_of(ids, 1 + position // 400_000, start, position, size), 8)
        everything += ids
        id += count
    found = list(extents)
    assert [id for id in everything if not any(id in extent.ids for extent in found)] == []
    assert sum(extent.count for extent in found) == len(everything)
    for extent in found:
        merged = extent.count > 5
        assert extent.end - extent.start <= MAX_EXTENT_BYTES or not merged
        assert extent.own * 8 >= extent.end - extent.start
        assert extents[extents.position_after(extent.first - 1)].first == extent.first
        assert extents[extents.find(extent.first)].last == extent.last
    assert extents.find(id + 1) == -1


def test_lock_step_producers_share_their_extents() -> None:
    extents = Extents()
    for id in range(0, 10_000, 8):
        extents.add(extent_of([id], 1, id * 200, id * 200 + 200, 100), 8)
    assert len(extents) <= 10_000 * 200 // MAX_EXTENT_BYTES + 1


def test_ids_far_apart_are_no_extent() -> None:
    extents = Extents()
    for number in range(4):
        ids = [number * MAX_EXTENT_IDS // 2]
        extents.add(extent_of(ids, 1, number * 100, number * 100 + 100, 10), 8)
    assert len(extents) == 2


def test_many_extents_are_merged_more_boldly() -> None:
    assert share_for(0) == share_for(MANY_EXTENTS - 1) == 8
    assert share_for(MANY_EXTENTS) == 64


def test_neighbours_are_merged_once_all_are_known() -> None:
    extents = Extents()
    for id, start in ((1, 0), (50, 100), (20, 200), (70, 300)):
        extents.add(extent_of([id], 1, start, start + 100, 10, is_copy=True), 8)
    extents.add(extent_of([90], 2, 0, 100, 10), 8)
    extents.add(extent_of([91], 2, 100, 200, 10), 8)
    extents.remove(0)
    assert [extent.first for extent in extents] == [20, 50, 70, 90]
    extents.coalesce(8)
    assert [(e.first, e.last, e.start, e.end) for e in extents] == [
        (20, 20, 200, 300),
        (50, 70, 100, 400),
        (90, 91, 0, 200),
    ]


def test_a_copy_among_newer_messages_stays_apart_from_them() -> None:
    """Otherwise a reader from 1 on would meet 50 before 2, and skip 2."""
    extents = Extents()
    extents.add(extent_of([1], 1, 0, 100, 10, is_copy=True), 8)
    extents.add(extent_of([2], 1, 900, 1000, 10, is_copy=True), 8)
    extents.add(extent_of([50], 1, 200, 300, 10), 8)
    extents.coalesce(8)
    assert [(e.first, e.last, e.start, e.end) for e in extents] == [
        (1, 2, 0, 1000),
        (50, 50, 200, 300),
    ]


def test_a_copy_names_each_id() -> None:
    copy = Copy("a", [1, 5], b"h", [b"x", b"y"], 4, 0, 0, False, [0, 2])
    extent = extent_of(copy.ids, 1, 0, 10, 2, is_copy=True)
    assert extent.ids == range(1, 6)
    assert not extent.is_pure


def test_no_two_extents_overlap() -> None:
    extents = Extents()
    # Copies of older messages, whose originals are gone; others may still be between them.
    for ids, start in (((20, 25), 0), ((50, 60), 100), ((30, 40), 200)):
        extents.add(extent_of(ids, 7, start, start + 100, 10, is_copy=True), 8)
    extents.add(extent_of((90, 91), 7, 300, 400, 10), 8)
    extents.add(extent_of((70, 80), 7, 400, 500, 10, is_copy=True), 8)
    found = [(extent.first, extent.last) for extent in extents]
    assert found == [(20, 25), (30, 40), (50, 60), (70, 80), (90, 91)]
    assert [extents.find(first) for first, _ in found] == list(range(5))


def test_an_extent_is_never_read_out_of_order() -> None:
    extents = Extents()
    # Two old messages were copied, and each time a new one was written after them.
    for id, start, is_copy in ((1, 0, True), (8, 100, False), (3, 200, True), (9, 300, False)):
        extents.add(extent_of((id,), 7, start, start + 100, 10, is_copy=is_copy), 8)
    extents.coalesce(8)
    found = [(extent.first, extent.last, extent.start, extent.end) for extent in extents]
    assert found == [(1, 3, 0, 300), (8, 9, 100, 400)]


def test_extents_of_interleaved_ids_are_merged() -> None:
    extents = Extents()
    for id, start, end in ((4, 0, 100), (6, 100, 200), (5, 200, 400), (7, 200, 400), (9, 400, 500)):
        extents.add(extent_of((id,), 7, start, end, 10), 8)
    found = [(each.first, each.last, each.start, each.end, each.count) for each in extents]
    assert found == [(4, 7, 0, 400, 4), (9, 9, 400, 500, 1)]
    assert [each.is_mixed for each in extents] == [True, False]
