"""A journal that has filled its disk takes messages again when others have ended.

LavinMQ 201: the queue was purged, and nothing could be sent to it until the broker was restarted.
"""

import errno
from collections.abc import Sequence

import pytest
from _oracle.store_disk import Disk, open_store, read_place

from tests.support.journals import directory as directory
from trio_stomp.store import Done, JournalStore, Keep, Put, StoreUnavailable, Turn

KIB = bytes(1024)
SEGMENT = 4096


class SmallDisk(Disk):
    """A disk with room for some bytes."""

    capacity = 64 * 1024

    def write(self, handle: int, offset: int, buffers: Sequence[bytes]) -> None:
        used = sum(len(file.data) for file in self.files.values())
        if used + sum(map(len, buffers)) > self.capacity:
            self.fail("write", errno.ENOSPC)
        super().write(handle, offset, buffers)


def filled(directory: str, disk: Disk, first: bytes = KIB) -> tuple[JournalStore, int, int]:
    """Return a store whose disk is full, its commit and its last id."""
    store, _ = open_store(directory, disk, SEGMENT)
    commit = store.append([Turn([Keep("setting", "text"), Put("a", 1, b"", [first])])], 0)
    for id in range(2, 1000):
        try:
            commit = store.append([Turn([Put("a", id, b"", [KIB])])], commit)
        except StoreUnavailable:
            return store, commit, id - 1
    raise AssertionError("the disk is not full")


def test_it_takes_messages_again_when_all_have_ended(directory: str) -> None:
    disk = SmallDisk()
    store, commit, last = filled(directory, disk)
    commit = store.append([Turn([Done(range(1, last + 1))], False)], commit)
    new = range(last + 1, 2 * last - SEGMENT // 1024)
    for id in new:
        commit = store.append([Turn([Put("a", id, b"", [KIB])])], commit)
    store.close()
    store, recovered = open_store(directory, disk, SEGMENT)
    assert recovered.damage == []
    assert recovered.settings["setting"] == "text"
    assert list(read_place(store, "a")) == list(new)
    store.close()


def test_what_lives_in_the_oldest_segment_moves(directory: str) -> None:
    disk = SmallDisk()
    store, commit, last = filled(directory, disk, b"small")
    commit = store.append([Turn([Done(range(2, last + 1))])], commit)
    commit = store.append([Turn([Put("a", last + 1, b"", [KIB])])], commit)
    assert list(read_place(store, "a")) == [1, last + 1]
    store.close()


@pytest.mark.parametrize("ended", [0, 3])
def test_it_stays_full_of_messages_that_live(directory: str, ended: int) -> None:
    disk = SmallDisk()
    store, commit, last = filled(directory, disk)
    if ended:
        commit = store.append([Turn([Done(range(last - ended, last))])], commit)
    with pytest.raises(StoreUnavailable):
        store.append([Turn([Put("a", last + 1, b"", [KIB])])], commit)
    assert len(list(read_place(store, "a"))) == last - ended
    store.close()
