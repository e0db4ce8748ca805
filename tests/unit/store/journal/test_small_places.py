"""Remembered ids of many destinations are read without decoding all records for each."""

from collections import Counter

import pytest
from _oracle.store_disk import Disk, open_store, read_all, read_place

from tests.support.journals import directory as directory
from tests.support.journals import disk as disk
from trio_stomp.store import (
    Atomic,
    Done,
    DropPlace,
    JournalOptions,
    JournalStore,
    Put,
    Turn,
    verify,
)

PLACES, ROUNDS = 8, 60
SEEN = [f"seen:/queue/{number}" for number in range(PLACES)]
OPTIONS = JournalOptions(16_384)


def fill(store: JournalStore, commit: int = 0) -> int:
    """Remember an id for each place in turn, each with a message that ends at once."""
    for turn in range(PLACES * ROUNDS):
        id, place = 2 * commit + 1, SEEN[turn % PLACES]
        puts = [
            Put("queue:/queue/q", id, b"h", [bytes(99)]),
            Put(place, id + 1, b"u", [b"%d" % id]),
        ]
        commit = store.append([Turn([Atomic(puts)]), Turn([Done([id])])], commit)
    return commit


def ids_of(store: JournalStore) -> dict[str, list[int]]:
    return {place: list(read_place(store, place)) for place in SEEN}


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the decoded runs of messages, by place."""
    counts: Counter[str] = Counter()
    journal = "trio_stomp.store.journal"
    for module in ("_replay", "_reader"):
        path = f"{journal}.{module}.decode_run"
        decode = pytest.importorskip(f"{journal}.{module}").decode_run

        def counted(found: object, decode: object = decode) -> object:
            run = decode(found)  # type: ignore[operator]
            counts[run.place] += 1
            return run

        monkeypatch.setattr(path, counted)
    return counts


def test_recovery_decodes_no_record_for_each_place(
    directory: str, disk: Disk, decoded: Counter[str]
) -> None:
    store = JournalStore(directory, disk, OPTIONS)
    store.recover(lambda done, total: None)
    fill(store)
    written = ids_of(store)
    store.close()
    decoded.clear()
    store = JournalStore(directory, disk, OPTIONS)
    recovered = store.recover(lambda done, total: None)
    assert {place: recovered.places[place, 4].count for place in SEEN} == dict.fromkeys(
        SEEN, ROUNDS
    )
    assert ids_of(store) == written
    assert max(decoded[place] for place in SEEN) <= 2 * ROUNDS
    assert ids_of(store) == written  # from the files
    store.close()


def test_verify_decodes_no_record_for_each_place(
    tmp_path_factory: pytest.TempPathFactory, decoded: Counter[str]
) -> None:
    directory = str(tmp_path_factory.mktemp("store"))
    store, _ = open_store(directory, None, OPTIONS.segment_bytes)
    fill(store)
    store.close()
    decoded.clear()
    assert verify(directory, lambda done, total: None).messages == PLACES * ROUNDS
    assert max(decoded[place] for place in SEEN) <= 2 * ROUNDS


def test_a_store_that_follows_has_new_ids_at_hand(
    directory: str, disk: Disk, decoded: Counter[str]
) -> None:
    store = JournalStore(directory, disk, OPTIONS, follows=True)
    store.recover(lambda done, total: None)
    commit = fill(store)
    commit = store.append([Turn([DropPlace(SEEN[0]), Put(SEEN[0], 10_000, b"u", [b"x"])])], commit)
    decoded.clear()
    found = read_all(store, store.state())
    assert list(found[SEEN[0], 4]) == [10_000]
    assert all(len(found[place, 4]) == ROUNDS for place in SEEN[1:])
    assert max(decoded[place] for place in SEEN) <= ROUNDS
    # Once read, they are on the disk only.
    store.append([Turn([Put(SEEN[1], 10_001, b"u", [b"x"])])], commit)
    assert len(read_place(store, SEEN[1])) == ROUNDS + 1
    assert decoded
    store.close()


def test_what_is_appended_after_the_start_is_not_missed(directory: str, disk: Disk) -> None:
    store = JournalStore(directory, disk, OPTIONS)
    store.recover(lambda done, total: None)
    commit = fill(store)
    store.close()
    store = JournalStore(directory, disk, OPTIONS)
    store.recover(lambda done, total: None)
    commit = store.append([Turn([Put(SEEN[1], 10_001, b"u", [b"x"]), Done([6])])], commit)
    found = ids_of(store)[SEEN[1]]
    assert (len(found), found[-1]) == (ROUNDS, 10_001)
    store.close()


def test_no_id_is_missed_when_those_that_ended_are_forgotten(directory: str, disk: Disk) -> None:
    """It looks for these each time when it keeps twice as many, the first time at 1,024."""
    store = JournalStore(directory, disk, OPTIONS)
    store.recover(lambda done, total: None)
    count, commit = 2_050, 0
    for id in range(1, count + 1):
        commit = store.append([Turn([Put(SEEN[0], id, b"u", [b"%d" % id])])], commit)
    commit = store.append([Turn([Done(range(1, 10))])], commit)
    store.close()
    store = JournalStore(directory, disk, OPTIONS)
    recovered = store.recover(lambda done, total: None)
    assert recovered.places[SEEN[0], 4].count == count - 9
    assert list(read_place(store, SEEN[0])) == list(range(10, count + 1))
    store.close()


def test_messages_that_ended_are_not_read_for_ids_between_them(
    directory: str, disk: Disk, decoded: Counter[str]
) -> None:
    store = JournalStore(directory, disk, OPTIONS)
    store.recover(lambda done, total: None)
    fill(store)
    store.close()
    decoded.clear()
    store = JournalStore(directory, disk, OPTIONS)
    store.recover(lambda done, total: None)
    assert decoded["queue:/queue/q"] == PLACES * ROUNDS
    store.close()
