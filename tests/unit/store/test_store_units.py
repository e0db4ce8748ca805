"""A transaction or composite SEND with streams is one unit, even if the disk fails in it."""

import errno
import random

import pytest
from _oracle.store_disk import Disk, filled, open_store, read_all

from tests.support.journals import directory as directory
from tests.support.journals import killed
from trio_stomp.store import (
    Append,
    Atomic,
    Begin,
    Done,
    JournalStore,
    Put,
    Recovered,
    StoreBroken,
    StoreUnavailable,
    Turn,
)

NAMES = ("/stream/topic/s", "/stream/topic/t")


def begun(directory: str) -> tuple[JournalStore, Disk, int]:
    disk = Disk()
    store, _ = open_store(directory, disk, 1 << 20)
    begin = [Begin(name, "e") for name in NAMES]
    return store, disk, store.append([Turn([*begin, Put("a", 1, b"", [b"one"])])], 0)


def begun_and_failing(directory: str) -> tuple[JournalStore, Disk, int]:
    """Make the journal's next sync fail, but not those of the streams before it."""
    store, disk, commit = begun(directory)
    disk.fail("sync", 0, 0, errno.EIO)
    return store, disk, commit


def unit() -> Atomic:
    appends = [Append(name, 0, b"", [b"streamed", b"twice"], 1) for name in NAMES]
    return Atomic([Put("b", 2, b"", [b"two"]), Done([1]), *appends])


def held(store: JournalStore, recovered: Recovered) -> set[bytes]:
    found = {body for ids in read_all(store, recovered).values() for body, _ in ids.values()}
    for name in NAMES:
        assert recovered.streams[name].first == 0
        runs = store.read_stream(name, 0, 1 << 20)
        assert recovered.streams[name].next == sum(len(run.bodies) for run in runs)
        found |= {body + name.encode() for run in runs for body in run.bodies}
    return found


BEFORE = {b"one"}
AFTER = {b"two", *(body + name.encode() for body in (b"streamed", b"twice") for name in NAMES)}


def without_power(disk: Disk) -> Disk:
    return disk.cut_power(random.Random(1), 0.0)


def held_after(directory: str, store: JournalStore, disk: Disk) -> set[bytes]:
    """Return the content of the store after reopening it on the rest of its disk."""
    store.close()
    store, recovered = open_store(directory, disk)
    try:
        return held(store, recovered)
    finally:
        store.close()


@pytest.mark.parametrize("is_written", [True, False])
def test_records_possibly_in_a_broken_journal_stay_in_the_streams(
    directory: str, is_written: bool
) -> None:
    store, disk, commit = begun_and_failing(directory)
    disk.fail("forget_cached", errno.EIO)
    with pytest.raises(StoreBroken):
        store.append([Turn([unit()])], commit)
    # Nobody sees a unit that may not hold.
    assert store.read_stream(NAMES[0], 0, 1 << 20) == []
    after = killed(disk) if is_written else without_power(disk)
    assert held_after(directory, store, after) == (AFTER if is_written else BEFORE)


def test_records_missing_in_a_failed_journal_are_undone(directory: str) -> None:
    store, disk, commit = begun_and_failing(directory)
    with pytest.raises(StoreUnavailable):
        store.append([Turn([unit()])], commit)
    assert store.append([Turn([unit()])], commit) == commit + 1
    assert held_after(directory, store, without_power(disk)) == AFTER


def test_a_unit_is_on_the_disk_though_it_is_not_urgent(directory: str) -> None:
    """A reader may have seen its streams, so the rest of the unit must not be lost."""
    store, disk, commit = begun(directory)
    store.append([Turn([unit()], is_urgent=False)], commit)
    assert held_after(directory, store, without_power(disk)) == AFTER


def test_streams_alone_cost_no_wait_for_the_journal(directory: str) -> None:
    store, disk, commit = begun(directory)
    disk.calls.clear()
    append = Append(NAMES[0], 0, b"", [b"x"], 1)
    store.append([Turn([append], is_urgent=False)], commit)
    assert disk.calls.count("sync") == 1
    store.close()


def test_later_records_prove_that_a_unit_held(directory: str) -> None:
    """A lost journal costs no more of a stream than its end."""
    store, disk, commit = begun(directory)
    commit = store.append([Turn([unit()])], commit)
    store.append([Turn([Append(NAMES[0], 2, b"", [b"behind"], 2)])], commit)
    after = killed(disk)
    store.close()
    (journal,) = (path for path in after.files if "/journal/" in path)
    after.files[journal] = filled(bytes(after.files[journal].data[:300]))
    store, recovered = open_store(directory, after)
    assert recovered.commit == 1
    assert [recovered.streams[name].next for name in NAMES] == [3, 0]
    store.close()
