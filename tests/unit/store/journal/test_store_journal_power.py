"""The power fails: at any moment, with any of what was not synced on the disk, sector by sector."""

import random
from collections.abc import Sequence

import pytest
from _oracle.store_disk import Disk, Messages, Model, open_store, read_all, some_turns
from attrs import frozen

from trio_stomp.store import Atomic, Done, DropPlace, Forget, Keep, Put, Record, Turn

TURNS = 30
SHARE = 0.4
"""So many of a life's moments are looked at, and all of its last turn."""


@frozen
class Moment:
    """A disk after a power cut; what had been promised, and what had been asked for since."""

    disk: Disk
    promised: Model
    asked: list[Turn]
    commit: int


def live(directory: str, chance: random.Random, segment_bytes: int) -> list[Moment]:
    """Run a store; return power cuts."""
    disk, moments = Disk(), []
    promised, now, commit, number = Model(), Model(), 0, 0
    asked: list[Turn] = []
    turns = list(some_turns(chance, TURNS))

    def cut() -> None:
        if number >= TURNS - 1 or chance.random() < SHARE:
            for written in (0.0, 0.5, 0.5, 0.9, 1.0):
                after = disk.cut_power(chance, written)
                moments.append(Moment(after, promised, list(asked), commit))

    disk.watcher = cut
    store, _ = open_store(directory, disk, segment_bytes)
    for number, turn in enumerate(turns):
        asked.append(turn)
        store.append([turn], number)
        now.apply(turn.records)
        if turn.is_urgent:
            promised, asked, commit = now.copy(), [], number + 1
    store.close()
    promised, asked, commit = now.copy(), [], TURNS
    cut()
    return moments


def distinct(moments: Sequence[Moment]) -> list[Moment]:
    """All but those in which another's disk, promises and wishes are found again: two of three."""
    found = {(look_of(each.disk), len(each.asked), each.commit): each for each in moments}
    return [*found.values()]


def look_of(disk: Disk) -> frozenset[tuple[str, bytes]]:
    return frozenset((path, bytes(file.data)) for path, file in disk.files.items())


def flat(messages: Messages) -> dict[int, bytes]:
    return {id: body for found in messages.values() for id, (body, _) in found.items()}


def parts(turns: Sequence[Turn]) -> list[Record]:
    return [record for turn in turns for record in turn.records]


def simple(records: Sequence[Record]) -> list[Record]:
    return [
        part
        for record in records
        for part in (record.records if isinstance(record, Atomic) else (record,))
    ]


def check(moment: Moment, found: dict[int, bytes], kept: dict[str, str]) -> None:
    promised, asked = flat(moment.promised.places), simple(parts(moment.asked))
    finished = {id for record in asked if isinstance(record, Done) for id in record.ids}
    new = {
        id: body
        for record in asked
        if isinstance(record, Put)
        for id, body in enumerate(record.bodies, record.first)
    }
    assert {
        id: body for id, body in promised.items() if id not in finished
    }.items() <= found.items()
    assert found.items() <= (promised | new).items()
    touched = {record.key for record in asked if isinstance(record, Keep | Forget)}
    for key in kept.keys() | moment.promised.settings.keys():
        if key not in touched:
            assert kept.get(key) == moment.promised.settings.get(key)
    for record in parts(moment.asked):
        if isinstance(record, Atomic):
            check_atomic(record, moment, found)


def check_atomic(atomic: Atomic, moment: Moment, found: dict[int, bytes]) -> None:
    """A Put and a Done: both or none, as far as nobody else had to do with their messages."""
    put, done = atomic.records
    assert isinstance(put, Put)
    assert isinstance(done, Done)
    others = simple([other for other in parts(moment.asked) if other is not atomic])
    taken = {id for other in others if isinstance(other, Done) for id in other.ids}
    put_ids = set(range(put.first, put.first + len(put.bodies)))
    if put_ids & found.keys():
        assert not set(done.ids) & found.keys()
        assert put_ids - taken <= found.keys()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("segment_bytes", [4096, 1 << 20])
def test_what_was_promised_survives_a_power_cut(tmp_path, seed: int, segment_bytes: int) -> None:
    chance = random.Random(seed)
    directory = str(tmp_path)
    moments = distinct(live(directory, chance, segment_bytes))
    assert len(moments) > 1.5 * TURNS
    for moment in moments:
        store, recovered = open_store(directory, moment.disk, segment_bytes)
        messages = read_all(store, recovered)
        assert recovered.commit >= moment.commit
        check(moment, flat(messages), dict(recovered.settings))
        store.append([Turn([Keep("after", "x")])], recovered.commit)
        store.close()
        # What was found once is found again, and no more.
        store, again = open_store(directory, moment.disk, segment_bytes)
        assert read_all(store, again) == messages
        assert dict(again.settings) == {**recovered.settings, "after": "x"}
        store.close()


@pytest.mark.parametrize("seed", range(10, 13))
def test_the_power_fails_again_while_the_journal_is_opened(tmp_path, seed: int) -> None:
    chance = random.Random(seed)
    directory = str(tmp_path)
    for moment in chance.sample(distinct(live(directory, chance, 4096)), 20):
        again: dict[frozenset[tuple[str, bytes]], Disk] = {}
        disk = moment.disk

        def cut(disk: Disk = disk, again: dict[frozenset[tuple[str, bytes]], Disk] = again) -> None:
            for written in (0.0, 0.5, 1.0):
                after = disk.cut_power(chance, written)
                again[look_of(after)] = after

        disk.watcher = cut
        store, recovered = open_store(directory, disk)
        messages = read_all(store, recovered)
        store.close()
        cut()
        for after in again.values():
            store, recovered = open_store(directory, after)
            assert read_all(store, recovered) == messages
            store.close()


def test_nothing_comes_back_when_old_files_are_deleted(tmp_path) -> None:
    """A file's removal may be lost; then what finished with its messages must still be there."""
    chance, directory, disk = random.Random(7), str(tmp_path), Disk()
    cuts: list[tuple[Disk, set[int]]] = []
    finished: set[int] = set()

    def cut() -> None:
        if disk.calls[-1] in ("remove", "sync_directory"):
            cuts.extend((disk.cut_power(chance, 0.5), set(finished)) for _ in range(4))

    store, _ = open_store(directory, disk)
    commit = store.append([Turn([Put("keep", 1, b"", [b"kept"])])], 0)
    disk.watcher = cut
    for id in range(2, 60):
        commit = store.append([Turn([Put("a", id, b"", [bytes(1000)])])], commit)
        if id % 3:
            commit = store.append([Turn([Done([id])])], commit)
            finished.add(id)
        if id % 10 == 0:
            commit = store.append([Turn([DropPlace("a")])], commit)
            finished.update(range(2, id + 1))
    store.close()
    assert len(cuts) > 20
    for after, gone in cuts:
        store, recovered = open_store(directory, after)
        found = flat(read_all(store, recovered))
        assert found[1] == b"kept"
        assert not found.keys() & gone
        store.close()
