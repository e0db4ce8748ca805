"""Atomic groups in the journal: what they take, and an index that does not fit the file."""

import pytest
from _oracle.store_disk import Disk, open_store, read_place
from attrs import evolve

from tests.support.journals import BIG
from tests.support.journals import directory as directory
from tests.support.journals import disk as disk
from trio_stomp.store import (
    Atomic,
    Done,
    Page,
    Put,
    StoreError,
    Turn,
    export_from,
    verify,
)
from trio_stomp.store.tools import View, open_view


@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_large_group_is_read_once_for_each_page(
    directory: str, disk: Disk, is_reopened: bool
) -> None:
    store, _ = open_store(directory, disk, BIG)
    body = bytes(9_000)
    puts = [Put(f"{'ab'[id % 2]}", id, b"", [body]) for id in range(1, 81)]
    store.append([Turn([Atomic(puts)])], 0)
    if is_reopened:
        store.close()
        store, _ = open_store(directory, disk, BIG)
    before = disk.calls.count("read")
    assert list(read_place(store, "a")) == list(range(2, 81, 2))
    assert disk.calls.count("read") == before + 1
    store.close()


def test_ended_groups_give_their_place_back(directory: str, disk: Disk) -> None:
    """One message that stays does not keep the groups before and after it on the disk."""
    store, _ = open_store(directory, disk, 4096)
    for number in range(100):
        ids = range(20 * number + 1, 20 * number + 21)
        puts = [Put("a", id, b"head", [bytes(50)]) for id in ids]
        store.append([Turn([Atomic(puts)])], 2 * number)
        store.append([Turn([Done(ids if number else ids[1:])])], 2 * number + 1)
    assert store.statistics().bytes < 8 * 4096
    assert list(read_place(store, "a")) == [1]
    store.close()


@pytest.mark.parametrize("places", ["aaa", "aba"])
def test_messages_that_the_index_counts_and_the_file_lacks_are_an_error(
    directory: str, disk: Disk, places: str
) -> None:
    store, _ = open_store(directory, disk, BIG)
    (file,) = (file for path, file in disk.files.items() if "/journal/" in path)
    starts = [len(file.data)]
    for id, place in enumerate(places + "z", 1):
        store.append([Turn([Put(place, id, b"", [b"body"])])], id - 1)
        starts.append(len(file.data))
    # The last message of place a is exchanged for one of place z, which is undamaged.
    size = starts[-1] - starts[-2]
    file.data[starts[2] : starts[2] + size] = file.data[starts[3] : starts[3] + size]
    text = f"{places.count('a') - 1} of {places.count('a')} messages of a, level 4"
    with pytest.raises(StoreError, match=text):
        store.read("a", 4, 0, BIG)
    store.close()


@pytest.mark.parametrize("lost", [0, 1])
def test_tools_fail_if_messages_are_missing(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    target = str(tmp_path_factory.mktemp("store"))
    store, _ = open_store(target)
    store.append([Turn([Put("a", 1, b"", [b"body"])])], 0)
    store.close()
    kind = type(open_view(target))
    read = kind.read

    def read_less(view: View, place: str, level: int, after: int, limit_bytes: int) -> Page:
        return evolve(read(view, place, level, after, limit_bytes), runs=[], lost=lost)

    monkeypatch.setattr(kind, "read", read_less)
    if lost:
        assert verify(target, lambda done, total: None).messages == 0
        return
    with pytest.raises(StoreError, match="0 of 1 messages of a, level 4"):
        verify(target, lambda done, total: None)
    with pytest.raises(StoreError, match="0 of 1 messages of a, level 4"):
        list(export_from(target, lambda done, total: None))
