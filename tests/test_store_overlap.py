"""Copies of old messages beside new ones: nothing is lost, passed over or told twice (journal)."""

import random
from pathlib import Path

import pytest

from trio_stomp.store import Done, JournalOptions, JournalStore, Put, Record, Turn
from trio_stomp.store._extents import Extents, extent_of

PLACES = ("queue:fast", "queue:slow", "queue:deep")


def ignore(done: int, total: int) -> None:
    """Nobody looks at the progress."""


def ids_in(store: JournalStore, place: str) -> list[int]:
    """What is read of a place, page by page."""
    ids: list[int] = []
    after, is_last = 0, False
    while not is_last:
        page = store.read(place, 4, after, 2000)
        after, is_last = page.next, page.is_last
        ids += [id for run in page.runs for id in run.ids]
    return ids


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_when_segments_are_cleaned(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    waiting: dict[str, list[int]] = {place: [] for place in PLACES}
    options = JournalOptions(segment_bytes=chance.choice((4096, 16384)))
    next_id = 1
    for _ in range(6):
        store = JournalStore(str(tmp_path), options=options)
        recovered = store.recover(ignore)
        commit = recovered.commit
        assert {place: ids_in(store, place) for place in PLACES} == waiting
        found = {place: state.count for (place, _), state in recovered.places.items()}
        assert found == {place: len(ids) for place, ids in waiting.items() if ids}
        for _ in range(250):
            records: list[Record] = []
            for place in PLACES:
                count = chance.choice((0, 1, 1, 3))
                if count:
                    bodies = [b"x" * chance.randint(0, 300)] * count
                    records.append(Put(place, next_id, b"h", bodies))
                    waiting[place] += range(next_id, next_id + count)
                    next_id += count
            for place, share in (("queue:fast", 0.99), ("queue:slow", 0.9), ("queue:deep", 0.6)):
                done = [id for id in waiting[place][:8] if chance.random() < share]
                waiting[place] = [id for id in waiting[place] if id not in done]
                if done:
                    records.append(Done(done))
            commit = store.append([Turn(records)], commit)
        assert {place: ids_in(store, place) for place in PLACES} == waiting
        store.close()


def test_no_two_extents_overlap() -> None:
    extents = Extents()
    # Copies of older messages, whose originals are gone: between them there may be others still.
    for ids, start in (((20, 25), 0), ((50, 60), 100), ((30, 40), 200)):
        extents.add(extent_of(ids, 7, start, start + 100, 10, is_copy=True), 8)
    extents.add(extent_of((90, 91), 7, 300, 400, 10), 8)
    extents.add(extent_of((70, 80), 7, 400, 500, 10, is_copy=True), 8)
    found = [(extent.first, extent.last) for extent in extents]
    assert found == [(20, 25), (30, 40), (50, 60), (70, 80), (90, 91)]
    assert [extents.find(first) for first, _ in found] == list(range(5))


def test_what_came_one_after_the_other_is_one_extent() -> None:
    extents = Extents()
    assert extents.add(extent_of((1, 2), 7, 0, 100, 10), 8)
    assert not extents.add(extent_of((5, 6), 7, 100, 200, 10), 8)
    assert extents.add(extent_of((9, 9), 7, 200, 300, 10, is_copy=True), 8)
    assert not extents.add(extent_of((10, 10), 7, 300, 400, 10, is_copy=True), 8)
    assert extents.add(extent_of((12, 12), 7, 400, 500, 10), 8)
    assert [(extent.first, extent.last) for extent in extents] == [(1, 6), (9, 10), (12, 12)]
