"""The journal when the disk fails or is full, and when it must not grow for ever."""

import errno
import random
import sys
import threading
import time

import pytest
from _oracle.store_disk import Disk, filled, open_store, read_all, read_place

from tests.support.journals import directory as directory
from tests.support.journals import disk as disk
from tests.support.journals import store as store
from trio_stomp.store import (
    Append,
    Atomic,
    Begin,
    Delivered,
    Done,
    DropPlace,
    DropStream,
    Forget,
    JournalOptions,
    JournalStore,
    Keep,
    Put,
    StaleSequence,
    StoreBroken,
    StoreError,
    StoreUnavailable,
    Trim,
    Turn,
)
from trio_stomp.store.journal._extents import extent_of
from trio_stomp.store.journal._index import Index
from trio_stomp.store.journal.format import SEGMENT_HEADER_BYTES
from trio_stomp.store.tools import scan_records

KIB = bytes(1024)


def put(id: int, *bodies: bytes, place: str = "a") -> Put:
    return Put(place, id, b"head", bodies or (b"%d" % id,))


def turn(*records: object, urgent: bool = True) -> Turn:
    return Turn(records, urgent)  # type: ignore[arg-type]


def reopen(directory: str, disk: Disk, store: JournalStore) -> list[int]:
    """Return the ids of place a after a restart."""
    store.close()
    assert not disk.open_files
    store, recovered = open_store(directory, disk)
    assert recovered.damage == []
    ids = list(read_place(store, "a"))
    store.close()
    return ids


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_leaves_nothing(
    store: JournalStore, disk: Disk, directory: str, code: int
) -> None:
    store.append([turn(put(1))], 0)
    disk.fail("write", code)
    with pytest.raises(StoreUnavailable, match=f"{directory}/journal cannot be written") as raised:
        store.append([turn(put(2)), turn(put(3))], 1)
    assert "Make room" in str(raised.value)
    assert list(read_place(store, "a")) == [1]
    assert store.append([turn(put(2))], 1) == 2
    assert reopen(directory, disk, store) == [1, 2]


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (put(2), "the state on the disk is unknown"),
        (Append("s", 1, b"h", [b"1"], 6), "a failed commit cannot be undone"),
    ],
    ids=["journal", "stream"],
)
def test_a_failed_write_that_cannot_be_cut_back_breaks_the_store(
    store: JournalStore, disk: Disk, directory: str, record: Put | Append, text: str
) -> None:
    store.append([turn(put(1), Begin("s", "e"), Append("s", 0, b"h", [b"0"], 5))], 0)
    disk.fail("write", errno.EIO)
    disk.fail("truncate", errno.EIO)
    with pytest.raises(StoreBroken, match="restart the broker"):
        store.append([turn(record)], 1)
    with pytest.raises(StoreBroken, match=text):
        store.append([turn(put(2))], 1)
    assert list(read_place(store, "a")) == [1]
    assert reopen(directory, disk, store) == [1]


def test_a_failed_sync_loses_only_refused_records(disk: Disk, directory: str) -> None:
    store, _ = open_store(directory, disk, 1 << 20)
    store.append([turn(put(1), put(2), Keep("k", "x"), Delivered([2]))], 0)
    transient = Put("a", 4, b"head", [b"4"], transient=True)
    store.append([turn(put(3), transient, Done([1]), urgent=False)], 1)
    disk.fail("sync", errno.EIO)
    with pytest.raises(StoreUnavailable, match="Input/output error"):
        store.append([turn(put(5)), turn(Done([2]))], 2)
    assert list(read_place(store, "a")) == [2, 3, 4]
    assert store.statistics().files == 2
    # The deferred records were written again, and synced.
    after = disk.cut_power(random.Random(0), 0.0)
    assert store.append([turn(put(5))], 2) == 3
    assert list(read_place(store, "a")) == [2, 3, 4, 5]
    assert reopen(directory, disk, store) == [2, 3, 5]
    store, recovered = open_store(directory, after)
    assert recovered.commit == 2
    assert read_all(store, recovered) == {("a", 4): {2: (b"2", 1), 3: (b"3", 0)}}
    store.close()


def test_stream_messages_are_not_also_in_memory(store: JournalStore) -> None:
    # An idle broker writes its statistics, which nobody waits for, day and night.
    store.append([turn(Begin("s", "e"))], 0)
    bodies = [bytes([number]) * 99 for number in range(9)]
    before = [sys.getrefcount(body) for body in bodies]
    for at, body in enumerate(bodies):
        append = Append("s", at, b"", [body], 1)
        record = append if at % 2 else Atomic([append, Delivered([2])])
        store.append([turn(record, urgent=False)], at + 1)
    del append, record, body
    assert [sys.getrefcount(body) for body in bodies] == before


def test_a_failed_sync_of_the_first_commit(store: JournalStore, disk: Disk, directory: str) -> None:
    disk.fail("sync", errno.EIO)
    with pytest.raises(StoreUnavailable):
        store.append([turn(put(1))], 0)
    assert store.append([turn(put(1))], 0) == 1
    assert reopen(directory, disk, store) == [1]


@pytest.mark.parametrize("method", ["open", "truncate", "read", "create"])
def test_a_failed_sync_that_cannot_be_mended_breaks_the_store(
    store: JournalStore, disk: Disk, directory: str, method: str
) -> None:
    store.append([turn(put(1))], 0)
    # Data that is only in the system's memory is lost with the failed sync, or cut off.
    disk.fail("sync", errno.EIO)
    disk.fail(method, errno.EIO)
    if method == "truncate":
        disk.forget_cached = lambda handle: None  # type: ignore[method-assign]
    with pytest.raises(StoreBroken):
        store.append([turn(put(2))], 1)
    with pytest.raises(StoreBroken):
        store.append([turn(put(2))], 1)
    store.close()
    disk.faults.clear()
    store, recovered = open_store(directory, disk)
    assert 1 in read_place(store, "a")
    assert not recovered.damage
    store.close()


def test_loss_of_synced_data_breaks_the_store(store: JournalStore, disk: Disk) -> None:
    store.append([turn(put(1))], 0)
    (path,) = (name for name in disk.files if "/journal/" in name)
    disk.files[path].data[100] ^= 1
    disk.fail("sync", errno.EIO)
    disk.forget_cached = lambda handle: None  # type: ignore[method-assign]
    with pytest.raises(StoreBroken, match="no valid record"):
        store.append([turn(put(2))], 1)


def test_another_segment_that_cannot_be_made(
    store: JournalStore, disk: Disk, directory: str
) -> None:
    store.append([turn(put(1, *[KIB] * 5))], 0)
    for method in ("create", "write", "sync_directory"):
        disk.fail(method, errno.ENOSPC)
        with pytest.raises(StoreUnavailable):
            store.append([turn(put(6))], 1)
    assert store.append([turn(put(6))], 1) == 2
    assert store.statistics().files == 2
    assert reopen(directory, disk, store) == [1, 2, 3, 4, 5, 6]


def test_a_directory_that_cannot_be_opened_for_writing(disk: Disk, directory: str) -> None:
    disk.fail("create", errno.EROFS)
    with pytest.raises(StoreError, match="Read-only"):
        open_store(directory, disk)
    assert not disk.open_files
    store, _ = open_store(directory, disk)
    store.close()


def test_others_may_not_append(store: JournalStore) -> None:
    with pytest.raises(StaleSequence, match="the last commit is 0, not 4"):
        store.append([turn(put(1))], 4)
    assert store.append([], 0) == 0
    store.close()
    with pytest.raises(StoreBroken, match="is not open"):
        store.append([turn(put(1))], 0)


def test_records_that_are_not_urgent_wait_for_an_urgent_one(disk: Disk, directory: str) -> None:
    store, _ = open_store(directory, disk, 1 << 30)
    disk.calls.clear()
    commit = store.append([turn(put(1), urgent=False)], 0)
    assert "sync" not in disk.calls
    commit = store.append([turn(put(2), urgent=False), turn(put(3))], commit)
    assert disk.calls.count("sync") == 1
    # But not for ever.
    for id in range(4, 9):
        commit = store.append([turn(put(id, bytes(1 << 20)), urgent=False)], commit)
    assert disk.calls.count("sync") == 2
    store.close()


def test_close_writes_turns_that_were_not_urgent_and_raises_if_it_cannot(
    store: JournalStore, disk: Disk, directory: str
) -> None:
    store.append([turn(put(1), urgent=False)], 0)
    disk.fail("sync", errno.EIO, errno.EIO)
    with pytest.raises(StoreError):
        store.close()
    assert not disk.open_files
    store, _ = open_store(directory, disk)
    store.close()


def test_a_full_store_refuses_messages_and_accepts_records_that_make_room(
    disk: Disk, directory: str
) -> None:
    store, _ = open_store(directory, disk, 1 << 20, max_store_bytes=64 * 1024)
    commit, refused = 0, 1
    while store.statistics().bytes < 62 * 1024:
        commit = store.append([turn(put(refused, KIB))], commit)
        refused += 1
    large = put(refused, KIB, KIB)
    for record in (large, Atomic([large, Done([1])]), Keep("k", "x" * 2048)):
        with pytest.raises(StoreUnavailable, match=r"max_store_bytes \(65536\)"):
            store.append([turn(record)], commit)
    small = (Delivered([2]), Done([1]), Forget("k"), DropPlace("none"))
    commit = store.append([turn(*small)], commit)
    assert list(read_place(store, "a")) == list(range(2, refused))
    # The space of done messages is free again, though the first segment keeps one message.
    for done in range(3, refused):
        commit = store.append([turn(Done([done]))], commit)
    for again in range(refused, refused + 500):
        commit = store.append([turn(put(again, KIB)), turn(Done([again]))], commit)
    assert store.statistics().bytes <= store.statistics().limit_bytes
    assert reopen(directory, disk, store) == [2]


def test_one_old_message_and_one_setting_do_not_keep_the_disk_growing(
    store: JournalStore, disk: Disk, directory: str
) -> None:
    commit = store.append([turn(put(1), Keep("k", "x"), Keep("l", "y"), Delivered([1]))], 0)
    commit = store.append([turn(Forget("l"))], commit)
    sizes = []
    for id in range(2, 300):
        commit = store.append([turn(put(id, KIB, place="b")), turn(Done([id]))], commit)
        sizes.append(store.statistics().bytes)
    assert max(sizes) < 8 * 4096
    assert store.statistics().files <= 6
    store.close()
    store, recovered = open_store(directory, disk)
    assert read_all(store, recovered) == {("a", 4): {1: (b"1", 1)}}
    assert recovered.settings == {"k": "x"}
    assert recovered.commit == commit
    assert recovered.next_id == 300
    store.close()


def test_a_setting_alone_does_not_keep_a_segment(store: JournalStore) -> None:
    commit = store.append([turn(Keep("k", "x"))], 0)
    for id in range(1, 30):
        commit = store.append([turn(put(id, KIB)), turn(Done([id]))], commit)
    assert store.statistics().files <= 2


def test_copies_stay_in_order_and_are_written_piece_by_piece(disk: Disk, directory: str) -> None:
    store, _ = open_store(directory, disk, 64 * 1024)
    commit, kept = 0, []
    for id in range(1, 4000):
        place = "ab"[id % 2]
        commit = store.append([turn(put(id, KIB, place=place), urgent=id % 8 == 0)], commit)
        if id % 40 < 2 and place == "a":
            kept.append(id)
        else:
            commit = store.append([turn(Done([id]), urgent=False)], commit)
    assert list(read_place(store, "a", limit_bytes=1500)) == kept
    assert store.statistics().bytes < 3 * len(kept) * 1100 + 6 * 64 * 1024
    assert reopen(directory, disk, store) == kept


def test_large_segments_are_copied_a_piece_with_each_append(disk: Disk, directory: str) -> None:
    store, _ = open_store(directory, disk, 1 << 20)
    large, kept = bytes(30_000), list(range(1, 31))
    commit = store.append([turn(put(id, large)) for id in kept], 0)
    pieces = 0
    for id in range(31, 300):
        turns = [turn(put(id, large, place="b")), turn(Done([id]))]
        before = store.statistics().bytes
        commit = store.append(turns, commit)
        pieces += store.statistics().bytes - before > 2 * len(large)
    assert pieces > 1
    assert store.statistics().bytes < 8 << 20
    assert reopen(directory, disk, store) == kept


def test_room_is_made_only_as_long_as_one_may_wait(disk: Disk, directory: str, monkeypatch) -> None:
    from trio_stomp.store.journal import _writer

    monkeypatch.setattr(_writer, "PIECES_AT_ONCE", 1)
    monkeypatch.setattr(_writer, "PIECE_BYTES", 1)
    store, _ = open_store(directory, disk, 1 << 20, max_store_bytes=64 * 1024)
    commit = 0
    for id in range(1, 55):
        commit = store.append([turn(put(id, KIB))], commit)
    for id in range(1, 55, 2):
        commit = store.append([turn(Done([id]))], commit)
    refused = 0
    while refused < 100:
        try:
            commit = store.append([turn(put(100, *[KIB] * 8))], commit)
            break
        except StoreUnavailable:
            refused += 1
    assert 0 < refused < 100
    assert reopen(directory, disk, store) == [*range(2, 55, 2), *range(100, 108)]


def test_failure_during_compaction_is_harmless(
    store: JournalStore, disk: Disk, directory: str
) -> None:
    commit = store.append([turn(put(1))], 0)
    chance = random.Random(1)
    for id in range(2, 200):
        turns = [turn(put(id, KIB, place="b")), turn(Done([id]))]
        disk.faults.clear()
        method = chance.choice(["remove", "sync_directory", "open", "read", "write", "sync"])
        if id < 150:
            disk.fail(method, *chance.choice([(errno.EIO,), (0, errno.EIO)]))
        try:
            commit = store.append(turns, commit)
        except StoreUnavailable:
            assert store.append([], commit) == commit
        except StoreBroken:
            disk.faults.clear()
            store.close()
            store, recovered = open_store(directory, disk)
            commit = recovered.commit
            done = [
                id for key in recovered.places if key[0] == "b" for id in read_place(store, *key)
            ]
            commit = store.append([turn(Done(done))], commit)
    assert store.statistics().files <= 6
    assert list(read_place(store, "b")) == []
    assert reopen(directory, disk, store) == [1]


def test_reader_finds_records_moved_meanwhile(store: JournalStore, disk: Disk) -> None:
    commit = store.append([turn(put(1))], 0)
    # The segment is deleted between the look into the index and the opening of the file.
    before = {name: file for name, file in disk.files.items() if "/journal/" in name}
    opened = disk.open

    def open_late(path: str) -> int:
        nonlocal commit
        disk.open = opened  # type: ignore[method-assign]
        for id in range(2, 60):
            turns = [turn(put(id, KIB, place="b")), turn(Done([id]))]
            commit = store.append(turns, commit)
        return opened(path)

    disk.open = open_late  # type: ignore[method-assign]
    assert list(read_place(store, "a")) == [1]
    assert not before.keys() & disk.files.keys()


def test_a_journal_file_that_was_removed_is_an_error(store: JournalStore, disk: Disk) -> None:
    store.append([turn(put(1))], 0)
    for name in [name for name in disk.files if "/journal/" in name]:
        del disk.files[name]
    with pytest.raises(StoreError, match="cannot be read"):
        store.read("a", 4, 0, 100)
    disk.fail("open", errno.EIO)
    with pytest.raises(StoreError, match="Input/output"):
        store.read("a", 4, 0, 100)


def test_others_read_while_one_appends_and_room_is_made(tmp_path) -> None:
    store = JournalStore(str(tmp_path), options=JournalOptions(4096))
    store.recover(lambda done, size: None)
    commit = store.append([turn(put(1, *[b"kept"] * 50))], 0)
    found: list[list[int]] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            found.append(list(read_place(store, "a", limit_bytes=40)))
            store.statistics()

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for id in range(51, 300):
        commit = store.append([turn(put(id, KIB, place="b")), turn(Done([id]))], commit)
    stop.set()
    for thread in threads:
        thread.join()
    store.close()
    assert found
    assert all(ids == list(range(1, 51)) for ids in found)


def test_streams_and_places_fail_together(store: JournalStore, disk: Disk, directory: str) -> None:
    commit = store.append([turn(Begin("s", "e"), Append("s", 0, b"h", [b"0"], 5), put(1))], 0)
    both = turn(Append("s", 1, b"h", [b"1"], 6), put(2))
    for method, codes in (("write", (0, errno.EIO)), ("sync", (errno.EIO,)), ("write", (28,))):
        disk.fail(method, *codes)
        with pytest.raises(StoreUnavailable, match="Make room"):
            store.append([both], commit)
        assert [run.bodies for run in store.read_stream("s", 0, 99)] == [[b"0"]]
        assert list(read_place(store, "a")) == [1]
    begun = turn(Begin("new", "e"), Append("new", 0, b"h", [b"0"], 5), put(2))
    disk.fail("write", 0, errno.EIO)
    with pytest.raises(StoreUnavailable):
        store.append([begun], commit)
    assert store.stream_state("new") is None
    commit = store.append([both, turn(Trim("s", 1), Trim("none", 1))], commit)
    assert store.find_offset("s", 6) == 1
    assert store.find_offset("none", 6) == 0
    assert store.read_stream("none", 0, 99) == []
    with pytest.raises(ValueError):
        store.append([turn(Append("s", 7, b"h", [b"7"], 9), put(3))], commit)
    store.close()
    store, recovered = open_store(directory, disk)
    assert recovered.streams["s"].next == 2
    assert recovered.streams.keys() == {"s"}
    assert list(read_place(store, "a")) == [1, 2]
    disk.fail("read", errno.EIO, errno.EIO)
    with pytest.raises(StoreError, match="cannot be read"):
        store.read_stream("s", 0, 99)
    disk.fail("read", errno.EIO)
    with pytest.raises(StoreError, match="cannot be read"):
        store.find_offset("s", 6)
    disk.fail("remove", errno.EIO)
    commit = store.append([turn(DropStream("s"))], commit)
    assert store.stream_state("s") is None
    store.append([turn(DropStream("none"))], commit)
    store.close()
    store, recovered = open_store(directory, disk)
    assert recovered.streams == {}
    store.close()
    # The same object may be opened again.
    assert store.recover(lambda done, size: None).streams == {}
    store.close()


def test_full_files_of_a_stream_are_compressed(
    store: JournalStore, disk: Disk, directory: str
) -> None:
    commit, offset = store.append([turn(Begin("s", "e"))], 0), 0
    for _ in range(36):
        record = Append("s", offset, b"h", [bytes(1 << 20)], 5)
        commit, offset = store.append([turn(record)], commit), offset + 1
    store.close()
    assert any(name.endswith(".packed") for name in disk.files)
    store, recovered = open_store(directory, disk)
    assert recovered.streams["s"].next == offset
    assert len(store.read_stream("s", 0, 1 << 30)) == offset
    store.close()


def test_a_dropped_stream_can_be_begun_again(store: JournalStore) -> None:
    old = Append("s", 0, b"h", [b"old"], 5)
    commit = store.append([turn(Atomic([Begin("s", "e"), old, put(2)]))], 0)
    commit = store.append([turn(DropStream("s"), Begin("s", "f"), put(1))], commit)
    state = store.stream_state("s")
    assert state is not None
    assert (state.epoch, state.next) == ("f", 0)


def test_journal_can_be_listed_while_the_broker_runs(
    store: JournalStore, disk: Disk, directory: str
) -> None:
    store.append([turn(put(1, b"one", b"two"), Keep("k", "x"))], 0)
    store.append([turn(Atomic([put(3), Done([1])]), Delivered([2]))], 1)
    store.append([turn(put(4, *[KIB] * 4)), turn(put(8))], 2)
    store.append([turn(put(9), DropPlace("b"), Forget("k"))], 4)
    found = list(scan_records(directory, disk))
    assert [type(item.content).__name__ for item in found] == [
        *("Commit", "Copy", "Keep"),
        *("Commit", "Copy", "Done", "Delivered"),
        *("Commit", "Copy", "Copy"),
        *("Commit", "Copy", "DropPlace", "Forget"),
    ]
    assert [item.is_atomic for item in found].count(True) == 2
    assert not any(item.damage for item in found)
    paths = sorted({item.path for item in found})
    assert len(paths) == 2
    # An incomplete batch is ignored; damage elsewhere is reported.
    first, last = disk.files[paths[0]].data, disk.files[paths[1]].data
    del last[-1]
    first[first.find(b"two")] ^= 1
    first[10] ^= 1
    atomic = next(item for item in found if item.is_atomic)
    first[atomic.offset + atomic.length - 1] ^= 1
    keep = next(item for item in found if isinstance(item.content, Keep))
    first[keep.offset + keep.length - 1] ^= 1
    found = list(scan_records(directory, disk))
    assert [item.damage for item in found if item.damage] == [
        "damaged header",
        "1 damaged messages",
        "no valid record",
        "damaged transaction",
    ]
    assert {item.path for item in found} == {paths[0]}
    del last[-9:]
    last.extend(bytes(20))
    del last[60:]
    last.extend(bytes(20))
    assert {item.path for item in scan_records(directory, disk)} == {paths[0]}


def test_a_file_that_goes_while_it_is_listed_is_left_out(
    store: JournalStore, disk: Disk, directory: str
) -> None:
    store.append([turn(put(1))], 0)
    disk.fail("open", errno.ENOENT)
    disk.faults["open"] = [FileNotFoundError(errno.ENOENT, "gone")]
    assert list(scan_records(directory, disk)) == []


def test_progress_is_reported_in_bytes(store: JournalStore, disk: Disk, directory: str) -> None:
    for commit in range(8):
        store.append([turn(put(commit + 1, KIB))], commit)
    store.close()
    total = sum(len(file.data) for path, file in disk.files.items() if "/journal/" in path)
    reported: list[tuple[int, int]] = []
    store = JournalStore(directory, disk)
    store.recover(lambda done, size: reported.append((done, size)))
    store.close()
    assert [size for _, size in reported] == [total] * len(reported) == [total] * 2
    assert reported[-1] == (total, total)


@pytest.mark.parametrize("content", [b"", b"short", bytes(SEGMENT_HEADER_BYTES)])
def test_empty_files_of_many_starts_are_not_kept(
    disk: Disk, directory: str, content: bytes
) -> None:
    path = f"{directory}/journal/0000000003-0123456789abcdef.log"
    disk.files[path] = filled(content)
    for _ in range(3):
        store, recovered = open_store(directory, disk)
        assert recovered.damage == []
        assert store.statistics().files <= 2
        store.close()
    names = sorted(name[-25:-21] for name in disk.files if "/journal/" in name)
    assert names == ["0003", "0004"]


def test_pages_of_very_many_places(tmp_path, monkeypatch) -> None:
    from trio_stomp.store.journal import _shared

    monkeypatch.setattr(_shared, "MAX_CURSORS", 2)
    store, _ = open_store(str(tmp_path), Disk(), 1 << 20)
    places = [f"place {n}" for n in range(5)]
    ids = {place: range(1 + 9 * n, 10 + 9 * n) for n, place in enumerate(places)}
    commit = 0
    for place in places:
        bodies = [b"body"] * 9
        commit = store.append([turn(put(ids[place][0], *bodies, place=place))], commit)
    found: dict[str, list[int]] = {place: [] for place in places}
    after = dict.fromkeys(places, 0)
    for _ in range(5):
        for place in places:
            page = store.read(place, 4, after[place], 8)
            found[place] += [id for run in page.runs for id in run.ids]
            after[place] = page.next
    assert found == {place: list(range_) for place, range_ in ids.items()}
    store.close()


def test_reading_takes_the_time_of_the_messages_not_of_the_ids_between_them(tmp_path) -> None:
    store, _ = open_store(str(tmp_path), Disk(), 1 << 24)
    commit = 0
    for number in range(300):
        commit = store.append([turn(put(200 * number + 1, place="sparse"))], commit)
    for number in range(300):
        commit = store.append([turn(put(100_000 + number, place="dense"))], commit)
    times = []
    for place in ("dense", "sparse"):
        start = time.thread_time()
        assert len(read_place(store, place)) == 300
        times.append(time.thread_time() - start)
    assert times[1] < 10 * times[0]
    store.close()


def test_an_extent_whose_segment_has_gone(store: JournalStore) -> None:
    with pytest.raises(FileNotFoundError):
        store._shared.read_extent(("a", 4), extent_of([1], 99, 0, 10, 1))


def test_delivery_counts_of_done_messages_are_not_kept() -> None:
    index = Index()
    index.live.add([1, 2])
    index.set_deliveries([1, 2, 3], [4, 0, 5])
    assert index.deliveries == {1: 4}
