"""Incomplete ends of journals: batches without a promise are cut off, damage is quarantined.

Damage in a copy made by compaction does not affect its original.
"""

import errno

import pytest
from _oracle.store_disk import Disk, filled, open_store, read_all

from tests.support.journals import BIG, bodies_of, killed, segments
from tests.support.journals import directory as directory
from tests.support.journals import disk as disk
from trio_stomp.store import Atomic, Done, Keep, Put, StoreError, Turn
from trio_stomp.store.journal import list_segments, scan
from trio_stomp.store.journal.format import (
    COMMIT,
    COPY,
    PUT,
    SEGMENT_HEADER_BYTES,
    Found,
    decode_run,
)


def flipped(disk: Disk, path: str, at: int) -> Disk:
    """Return the disk after a kill, with one bit of a file changed."""
    after = killed(disk)
    after.files[path].data[at] ^= 1
    return Disk({path: filled(bytes(file.data)) for path, file in after.files.items()})


def records(directory: str, disk: Disk) -> list[tuple[str, Found]]:
    """Return all records of the journal, with their files."""
    found = []
    for segment in list_segments(disk, f"{directory}/journal"):
        handle = disk.open(segment.path)
        start, end = SEGMENT_HEADER_BYTES, disk.size(handle)
        found += [(segment.path, each) for each in scan(disk, handle, segment.marker, start, end)]
        disk.close(handle)
    return found


def copies_beside_originals(directory: str, disk: Disk) -> list[tuple[str, Found]]:
    """Return the copies of records whose original segment is still there."""
    everything = records(directory, disk)
    put = {id for _, found in everything if found.kind == PUT for id in decode_run(found).ids}
    copies = [(path, found) for path, found in everything if found.kind == COPY]
    return [(path, found) for path, found in copies if put.issuperset(decode_run(found).ids)]


def half_cleaned(directory: str) -> tuple[Disk, dict[int, bytes]]:
    """Return a journal with copies beside their originals, and its live messages.

    It is in this state after the copies are written and before the oldest segment is removed.
    """
    disk, found = Disk(), list[tuple[Disk, dict[int, bytes]]]()
    store, _ = open_store(directory, disk, 4096)
    commit, live = 0, dict[int, bytes]()

    def look() -> None:
        if disk.calls[-1] == "remove":
            found.append((killed(disk), dict(live)))

    disk.watcher = look
    for id in range(1, 400):
        live[id] = b"%d " % id * 100
        turns = [Turn([Put("a", id, b"", [live[id]])])]
        if id > 8 and id % 9:
            turns.append(Turn([Done([id])]))
            del live[id]
        commit = store.append(turns, commit)
    store.close()
    return next(pair for pair in found if len(copies_beside_originals(directory, pair[0])) > 1)


def test_damage_to_a_copy_takes_nothing_from_its_original(directory: str) -> None:
    disk, live = half_cleaned(directory)
    copies = copies_beside_originals(directory, disk)
    assert len(copies) > 1
    for path, found in copies:
        for at in (found.offset, found.offset + 40, found.end - 1):
            store, recovered = open_store(directory, flipped(disk, path, at))
            assert bodies_of(read_all(store, recovered)) == live
            store.close()


@pytest.mark.parametrize("is_synced", [False, True])
def test_a_bad_byte_in_the_newest_batch_takes_it_as_a_whole(
    disk: Disk, directory: str, is_synced
) -> None:
    """An end known to have been on the disk is damage, and only the damaged record is lost."""
    store, _ = open_store(directory, disk, BIG)
    store.append([Turn([Put("a", 1, b"", [b"one"]), Keep("k", "1")])], 0)
    (path,) = segments(disk)
    start = len(disk.files[path].data)
    atomic = Atomic([Put("a", 2, b"", [b"two", b"three"]), Done([1])])
    store.append([Turn([atomic]), Turn([Put("b", 4, b"", [b"four"]), Keep("k", "2")])], 1)
    end = len(disk.files[path].data)
    if is_synced:
        store.append([Turn([Put("b", 5, b"", [b"five"])])], 3)
    disk = killed(disk)
    store.close()
    for at in range(start, end):
        after = flipped(disk, path, at)
        again, recovered = open_store(directory, after, BIG)
        found = bodies_of(read_all(again, recovered))
        again.close()
        if is_synced:
            assert recovered.damage
            assert recovered.notes == []
            assert found[5] == b"five"
            assert len(found.keys() - {1, 2, 3, 4, 5}) == 0
            # One record is damaged: the transaction, or a message, or a setting, or none.
            assert len({2, 3, 4} - found.keys()) <= 2
        else:
            assert found == {1: b"one"}
            assert recovered.settings == {"k": "1"}
            assert recovered.commit == 1
            assert recovered.damage == []
            assert "was cut off" in recovered.notes[0]
            assert any("/damaged/" in name for name in after.files)


def test_remains_of_a_failed_write_after_the_end_are_ignored(disk: Disk, directory: str) -> None:
    """A longer batch failed, a shorter one followed, and the truncation between them was lost."""
    store, _ = open_store(directory, disk, BIG)
    commit = store.append([Turn([Put("a", 1, b"", [b"one"])])], 0)
    disk.fail("write", errno.ENOSPC)
    with pytest.raises(Exception, match="nothing of this was stored"):
        store.append([Turn([Put("a", n, b"", [b"failed"]) for n in range(2, 40)])], commit)
    (path,) = segments(disk)
    file = disk.files[path]
    failed = next(data for _, data in reversed(file.changes) if data is not None)
    store.append([Turn([Put("a", 2, b"", [b"two"])])], commit)
    after = killed(disk)
    after.files[path] = filled(bytes(after.files[path].data) + failed[-200:])
    store.close()
    store, recovered = open_store(directory, after, BIG)
    assert bodies_of(read_all(store, recovered)) == {1: b"one", 2: b"two"}
    assert recovered.damage == []
    store.close()


def test_a_store_that_was_closed_says_so_and_its_last_batch_is_no_less_than_others(
    disk: Disk,
    directory: str,
) -> None:
    store, _ = open_store(directory, disk, BIG)
    store.append([Turn([Put("a", 1, b"", [b"one", b"two"])])], 0)
    store.close()
    (path,) = segments(disk)
    assert [found.kind for _, found in records(directory, disk)] == [COMMIT, PUT, COMMIT]
    store, recovered = open_store(
        directory, flipped(disk, path, disk.files[path].data.find(b"two"))
    )
    assert bodies_of(read_all(store, recovered)) == {1: b"one"}
    assert len(recovered.damage) == 1
    assert recovered.notes == []
    store.close()


def test_many_segments_freed_at_once_are_deleted_in_several_appends(
    disk: Disk, directory: str
) -> None:
    """Each deletion waits for the disk, so one append makes two, however many are due."""
    store, _ = open_store(directory, disk, 4096)
    commit, count = 0, 60
    for id in range(1, count + 1):
        commit = store.append([Turn([Put("a", id, b"", [bytes(4096)])])], commit)
    assert store.statistics().files == count
    appends = 0
    done = Done(range(1, count + 1))
    while store.statistics().files > 1:
        disk.calls.clear()
        commit = store.append([Turn([done])], commit)
        assert disk.calls.count("remove") <= 2
        assert disk.calls.count("sync_directory") <= 3
        appends += 1
    assert appends < count
    store.close()


def test_a_start_that_fails_forgets_no_number(disk: Disk, directory: str) -> None:
    """In a journal of one empty file, only the header has the last commit and id."""
    store, _ = open_store(directory, disk, 4096)
    commit = store.append([Turn([Put("a", 1, b"", [bytes(5000)])])], 0)
    commit = store.append([Turn([Done([1])])], commit)
    store.close()
    for _ in range(2):  # the number of starts that free all dead records
        store, recovered = open_store(directory, disk, 4096)
        commit = store.append([Turn([Done([1])])], recovered.commit)
        store.close()
    for path in segments(disk)[:-1]:
        del disk.files[path]
    (path,) = segments(disk)
    disk.files[path] = filled(bytes(disk.files[path].data[:SEGMENT_HEADER_BYTES]))
    disk.fail("create", errno.ENOSPC)
    with pytest.raises(StoreError):
        open_store(directory, disk)
    store, recovered = open_store(directory, disk)
    assert (recovered.commit, recovered.next_id) == (commit - 1, 2)
    store.close()
