"""A journal with streams after a power cut: promises are kept, and units are whole."""

import copy
import random
from collections.abc import Iterator

import pytest
from _oracle.power import STREAMS, Life, State, broken_promises, disk_of, found_in, states
from _oracle.store_disk import Disk, open_store, read_all

from tests.support.journals import bodies_of
from tests.support.journals import directory as directory
from trio_stomp.store import Append, Begin, Done, DropPlace, Forget, Keep, Put, Record, Turn


def some_states(seed: int, count: int) -> Iterator[State]:
    for segment_bytes in (4096, 1 << 20):
        yield from states(seed, count, segment_bytes=segment_bytes)


@pytest.mark.parametrize("seed", range(4))
def test_confirmed_records_are_there_and_units_are_whole(directory: str, seed: int) -> None:
    kept = torn_units = 0
    for state in some_states(seed, 60):
        disk = disk_of(directory, state)
        store, recovered = open_store(directory, disk)
        queues, streams = found_in(store, recovered)
        assert broken_promises(state, queues, streams) == []
        assert recovered.damage == []
        kept += sum(map(len, state.queues.values()))
        torn_units += len(state.units)
        # The recovered store can be used, and later recoveries find the same content.
        first, name = recovered.next_id, STREAMS["/topic/s"]
        put = Put("queue:/queue/a", first, b"destination:/queue/a\n", [b"new"])
        offset = len(streams["/topic/s"])
        begin = [] if name in recovered.streams else [Begin(name, "e2")]
        append = Append(name, offset, b"destination:/topic/s\n", [b"new"], 1 << 41)
        store.append([Turn([put, *begin, append])], recovered.commit)
        store.close()
        store, recovered = open_store(directory, disk)
        queues["/queue/a"].append(b"new")
        streams["/topic/s"].append(b"new")
        assert found_in(store, recovered) == (queues, streams)
        store.close()
    assert kept > 500
    assert torn_units > 20


def killed_disks(directory: str, seed: int, share: float) -> Iterator[Disk]:
    """Yield the disks of killed stores: all writes are readable, but not all are synced."""
    chance, found = random.Random(seed), list[Disk]()
    life = Life(directory, chance, 4096)

    def keep() -> None:
        if chance.random() < share:
            disk = life.disk
            names = {id(file): copy.deepcopy(file) for file in disk.files.values()}
            names |= {id(f): copy.deepcopy(f) for f in disk.durable_names.values()}
            after = Disk({path: names[id(file)] for path, file in disk.files.items()})
            after.durable_names = {path: names[id(f)] for path, f in disk.durable_names.items()}
            found.append(after)

    life.cut = keep  # type: ignore[method-assign]
    life.run()
    yield from found


@pytest.mark.parametrize("seed", range(2))
def test_records_visible_after_a_kill_survive_a_power_cut(directory: str, seed: int) -> None:
    """Recovery returns what was written, though nothing had waited for the disk."""
    chance, unsynced = random.Random(seed), 0
    for disk in killed_disks(directory, seed, 0.1):
        unsynced += any(f.changes for p, f in disk.files.items() if "/streams/" in p)
        store, recovered = open_store(directory, disk)
        seen = found_in(store, recovered)
        after = disk.cut_power(chance, 0.0)
        store.close()
        store, recovered = open_store(directory, after)
        assert found_in(store, recovered) == seen
        store.close()
    assert unsynced > 5


@pytest.mark.parametrize("seed", range(10, 13))
def test_the_power_fails_again_while_the_journal_is_opened(directory: str, seed: int) -> None:
    chance = random.Random(seed)
    for state in states(seed, 20):
        disk, again = disk_of(directory, state), dict[frozenset[tuple[str, bytes]], Disk]()

        def cut(disk: Disk = disk, again: dict[frozenset[tuple[str, bytes]], Disk] = again) -> None:
            for written in (0.0, 0.5, 1.0):
                after = disk.cut_power(chance, written)
                again[frozenset((path, bytes(f.data)) for path, f in after.files.items())] = after

        disk.durable_names, disk.watcher = dict(disk.files), cut
        store, recovered = open_store(directory, disk)
        found = found_in(store, recovered)
        store.close()
        cut()
        for after in again.values():
            store, recovered = open_store(directory, after)
            assert found_in(store, recovered) == found
            store.close()


@pytest.mark.parametrize("seed", range(4))
def test_settings_that_were_promised_survive_a_power_cut(directory: str, seed: int) -> None:
    chance, disk = random.Random(seed), Disk()
    promised, asked = dict[str, str](), set[str]()
    cuts: list[tuple[Disk, dict[str, str], set[str]]] = []

    def cut() -> None:
        after = disk.cut_power(chance, chance.choice((0.0, 0.5)))
        cuts.append((after, dict(promised), set(asked)))

    store, recovered = open_store(directory, disk)
    commit, now = recovered.commit, dict[str, str]()
    disk.watcher = cut
    for number in range(60):
        key, is_urgent = chance.choice("klmn"), chance.random() < 0.7
        record: Record = Forget(key) if chance.random() < 0.3 else Keep(key, f"{number}" * 50)
        asked.add(key)
        commit = store.append([Turn([record], is_urgent)], commit)
        now.pop(key, None)
        if isinstance(record, Keep):
            now[key] = record.text
        if is_urgent:
            promised, asked = dict(now), set()
    store.close()
    for after, must, maybe in cuts:
        store, recovered = open_store(directory, after)
        found = {key: text for key, text in recovered.settings.items() if key not in maybe}
        assert found == {key: text for key, text in must.items() if key not in maybe}
        store.close()


def test_nothing_comes_back_when_old_files_are_deleted(directory: str) -> None:
    """The removal of a file may be lost; the records that ended its messages must remain."""
    chance, disk = random.Random(7), Disk()
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
        found = bodies_of(read_all(store, recovered))
        assert found[1] == b"kept"
        assert not found.keys() & gone
        store.close()
