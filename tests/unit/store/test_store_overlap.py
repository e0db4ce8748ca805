"""Copies of old messages beside new ones: none is lost, skipped or returned twice (journal)."""

import random
from pathlib import Path

import pytest
from _oracle.store_disk import read_place

from tests.support.stores import ignore
from trio_stomp.store import Atomic, Done, JournalOptions, JournalStore, Put, Record, Turn
from trio_stomp.store.disk import OsFiles
from trio_stomp.store.journal.format import Copy
from trio_stomp.store.tools import scan_records

PLACES = ("queue:fast", "queue:slow", "queue:deep")


def ids_in(store: JournalStore, place: str) -> list[int]:
    """Return the ids of a place, read page by page."""
    return list(read_place(store, place, limit_bytes=2000))


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


def test_copies_among_new_messages_are_not_passed_over(tmp_path: Path) -> None:
    """The remaining messages of a deep queue are copied, a few at a time, between its new ones."""
    store = JournalStore(str(tmp_path), options=JournalOptions(segment_bytes=4096))
    commit = store.recover(ignore).commit
    deep: list[int] = []
    fast: list[int] = []
    for first in range(1, 1000, 11):
        both = (
            Put(PLACES[2], first, b"h", [b"x" * 50]),
            Put(PLACES[0], first + 1, b"h", [b"y"] * 10),
        )
        commit = store.append([Turn([*both])], commit)
        deep.append(first)
        fast += range(first + 1, first + 11)
    # The newest segments have nothing of the deep queue, so one segment will have all of it.
    for id in range(1100, 1108):
        commit = store.append([Turn([Put(PLACES[0], id, b"h", [b"y" * 4096])])], commit)
        fast.append(id)
    commit = store.append([Turn([Done(fast[:-1])])], commit)
    store.close()
    large = JournalOptions(segment_bytes=1 << 20)
    store = JournalStore(str(tmp_path), options=large)
    commit = store.recover(ignore).commit
    commit = store.append([Turn([Done(fast[-1:])])], commit)
    for id in range(1200, 1240):
        commit = store.append([Turn([Put(PLACES[2], id, b"h", [b"x" * 50])])], commit)
        deep.append(id)
        assert ids_in(store, PLACES[2]) == deep
    assert store.statistics().files == 1
    store.close()
    store = JournalStore(str(tmp_path), options=large)
    assert store.recover(ignore).places[PLACES[2], 4].count == len(deep)
    assert ids_in(store, PLACES[2]) == deep
    store.close()


def test_damage_in_a_mixed_file_costs_only_its_record(tmp_path: Path) -> None:
    store = JournalStore(str(tmp_path))
    bodies = [b"body %d" % id for id in range(8)]
    puts = {id: Put(PLACES[2], id, b"h", [bodies[id]]) for id in range(1, 8)}
    commit = store.recover(ignore).commit
    commit = store.append([Turn([puts[1]])], commit)
    # 3 and 7 first; the damaged message is between them.
    late = Atomic([puts[2], puts[4], puts[6], Done([9])])
    store.append([Turn([puts[3], puts[5], puts[7], late])], commit)
    store.close()
    (file,) = tmp_path.glob("journal/*.log")
    offset = next(
        each.offset
        for each in scan_records(str(tmp_path), OsFiles())
        if isinstance(each.content, Copy) and list(each.content.ids) == [5]
    )
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)
    store = JournalStore(str(tmp_path))
    assert store.recover(ignore).damage
    assert ids_in(store, PLACES[2]) == [1, 2, 3, 4, 6, 7]
    store.close()
