"""Damage: truncated files, flipped bits, missing files, files of others."""

import random
from collections.abc import Sequence

import pytest
from _oracle.store_disk import (
    Disk,
    Model,
    filled,
    open_store,
    read_all,
    read_place,
    some_turns,
)

from tests.support.journals import BIG, bodies_of, segments
from tests.support.journals import directory as directory
from tests.support.journals import disk as disk
from tests.support.journals import store as store
from trio_stomp.store import (
    Atomic,
    Delivered,
    Done,
    JournalStore,
    Keep,
    Put,
    Record,
    StoreError,
    Turn,
)
from trio_stomp.store.disk import Quarantine
from trio_stomp.store.journal import Segment, Shared, summarize
from trio_stomp.store.journal._replay import Replay


def write_journal(directory: str, turns: Sequence[Turn], segment_bytes: int = BIG) -> Disk:
    """Return a journal's files, with one batch for each turn."""
    disk = Disk()
    store, recovered = open_store(directory, disk, segment_bytes)
    for commit, turn in enumerate(turns, recovered.commit):
        store.append([turn], commit)
    store.close()
    return disk


def states_after(turns: Sequence[Turn]) -> list[Model]:
    model, states = Model(), [Model()]
    for turn in turns:
        model.apply(turn.records)
        states.append(model.copy())
    return states


def test_a_journal_cut_anywhere_gives_a_prefix_of_its_batches(directory: str) -> None:
    turns = list(some_turns(random.Random(1), 12))
    disk = write_journal(directory, turns)
    (path,) = segments(disk)
    states, data = states_after(turns), bytes(disk.files[path].data)
    seen = set()
    for size in range(len(data)):
        cut = Disk({path: filled(data[:size])})
        store, recovered = open_store(directory, cut, BIG)
        state = states[recovered.commit]
        assert read_all(store, recovered) == state.places
        assert recovered.settings == state.settings
        assert recovered.damage == []
        assert recovered.next_id > max(bodies_of(state.places), default=0)
        seen.add(recovered.commit)
        if size % 10:
            store.close()
            continue
        # The recovered store can be used.
        store.append([Turn([Put("new", recovered.next_id, b"", [b"new"])])], recovered.commit)
        store.close()
        store, again = open_store(directory, cut, BIG)
        assert again.commit == recovered.commit + 1
        assert read_all(store, again).pop(("new", 4))
        store.close()
    assert seen == set(range(len(turns) + 1))


def test_any_flipped_bit_damages_only_its_record(directory: str) -> None:
    turns = [
        Turn([Put("a", 1, b"head", [b"one", b"two", b"three"])]),
        Turn([Atomic([Put("a", 4, b"head", [b"four"]), Keep("k", "text")]), Done([2])]),
        Turn([Put("b", 5, b"", [b"five"]), Delivered([5])]),
        Turn([Keep("l", "x"), Put("a", 6, b"", [b"six"])]),
    ]
    disk = write_journal(directory, turns)
    (path,) = segments(disk)
    data = bytes(disk.files[path].data)
    whole = bodies_of(states_after(turns)[-1].places)
    one = data.find(b"onetwothree")
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        broken = Disk({path: filled(bytes(flipped))})
        lines, found = look_at(broken, path) if bit % 5 else open_and_look(directory, broken)
        assert lines, bit
        assert any("/damaged/" in name for name in broken.files)
        # 2 was done: if the record that says so is damaged, it is back, unchanged.
        found.pop(2, None)
        assert whole.items() >= found.items()
        lost = whole.keys() - found.keys()
        assert len(lost) <= 1 or lost == {1, 3}
        if one <= bit // 8 < one + len(b"onetwothree"):
            assert len(lost) <= 1


def test_a_byte_too_much_between_records_costs_the_last_commit_at_most(directory: str) -> None:
    turns = [Turn([Put("a", id, b"", [b"body %d" % id])]) for id in (1, 2, 3)]
    disk = write_journal(directory, turns)
    (path,) = segments(disk)
    data = bytes(disk.files[path].data)
    records = [at for at in range(len(data)) if data.startswith(bytes.fromhex(path[-20:-4]), at)]
    for at in records[1:]:
        lines, found = look_at(Disk({path: filled(data[:at] + b"x" + data[at:])}), path)
        assert lines, at
        assert {1, 2} <= found.keys(), at


def open_and_look(directory: str, disk: Disk) -> tuple[Sequence[str], dict[int, bytes]]:
    store, recovered = open_store(directory, disk, BIG)
    found = bodies_of(read_all(store, recovered))
    store.close()
    return [*recovered.damage, *recovered.notes], found


def look_at(disk: Disk, path: str) -> tuple[Sequence[str], dict[int, bytes]]:
    """Return the result of recovery, without the steps before and after reading."""
    segment = Segment(1, bytes.fromhex(path[-20:-4]), path)
    replay = Replay(disk, Quarantine("/damaged", disk))
    replay.run([segment], lambda size: None)
    shared = Shared("", disk)
    shared.index, shared.segments = replay.index, {1: segment}
    places = summarize(replay.index, shared.read_extent)
    pages = [shared.read(key, 0, BIG) for key in places]
    found = {
        id: body
        for page in pages
        for run in page.runs
        for id, body in zip(run.ids, run.bodies, strict=True)
    }
    return [*replay.damage, *replay.notes], found


def test_damage_in_an_open_store_is_skipped_and_counted(disk: Disk, directory: str) -> None:
    store, _ = open_store(directory, disk, BIG)
    puts = [Put("a", 1 + 3 * n, b"", [b"%d-%d" % (n, m) for m in range(3)]) for n in range(4)]
    for commit, put in enumerate(puts):
        store.append([Turn([put])], commit)
    (path,) = segments(disk)
    data = disk.files[path].data
    data[data.find(b"1-1")] ^= 1  # a body: id 5
    data[data.find(b"2-02-1") - 30] ^= 1  # a front: ids 7 to 9
    page = store.read("a", 4, 0, BIG)
    assert [id for run in page.runs for id in run.ids] == [1, 2, 3, 4, 6, 10, 11, 12]
    assert page.lost == 4
    assert page.is_last
    assert store.statistics().damaged == 2
    assert store.statistics().live_messages == 8
    assert store.read("a", 4, 0, BIG).lost == 0
    store.close()


@pytest.mark.parametrize("neighbours", [False, True])
def test_a_damaged_record_loses_its_messages_at_either_end(
    disk: Disk, directory: str, neighbours: bool
) -> None:
    store, _ = open_store(directory, disk, BIG)
    records: list[Record] = [
        Put("a", 1, b"", [b"first"]),
        *[Put("b", 2, b"", [b"other"])] * neighbours,
        Put("a", 3, b"", [b"middle"]),
        Atomic([Put("a", 4, b"", [b"in a transaction"])]),
        *[Atomic([Put("b", 5, b"", [b"other"]), Delivered([5])])] * neighbours,
        Put("a", 6, b"", [b"last"]),
    ]
    store.append([Turn(records)], 0)
    data = disk.files[segments(disk)[0]].data
    for body in (b"first", b"in a transaction", b"last"):
        data[data.find(body) - 1] ^= 1
    page = store.read("a", 4, 0, BIG)
    assert [run.ids for run in page.runs] == [[3]]
    assert page.lost == 3
    if neighbours:
        assert list(read_place(store, "b")) == [2, 5]
    store.close()


def test_damage_in_the_middle_is_set_aside_once_or_reported(directory: str) -> None:
    disk = write_journal(directory, list(some_turns(random.Random(2), 40)), 4096)
    first = segments(disk)[0]
    disk.files[first].data[300] ^= 1
    disk.fail("create", 28)
    store, recovered = open_store(directory, disk)
    assert len(recovered.damage) == 1
    assert "set aside" not in recovered.damage[0]
    store.close()
    for _ in range(2):
        store, recovered = open_store(directory, disk)
        assert len(recovered.damage) == 1
        assert first in recovered.damage[0]
        assert f"{directory}/damaged/" in recovered.damage[0]
        store.close()
        assert len([name for name in disk.files if "/damaged/" in name]) == 1


@pytest.fixture
def four_files(directory: str) -> Disk:
    """Return a journal of four files, with eleven batches."""
    turns = [Turn([Put("a", id, b"", [bytes(1500)])]) for id in range(1, 12)]
    disk = write_journal(directory, turns, 4096)
    assert len(segments(disk)) == 4
    return disk


def test_a_damaged_header_and_a_torn_file_in_the_middle(directory: str, four_files: Disk) -> None:
    disk, names = four_files, segments(four_files)
    disk.files[names[0]].data[30] ^= 1
    del disk.files[names[1]].data[-3:]
    store, recovered = open_store(directory, disk)
    assert [line.split(": ")[1].split(",")[0] for line in recovered.damage] == [
        "damaged header",
        "no valid record",
    ]
    assert recovered.commit == 11
    store.close()


def test_missing_file_is_reported(directory: str, four_files: Disk) -> None:
    disk, names = four_files, segments(four_files)
    del disk.files[names[1]]
    store, recovered = open_store(directory, disk)
    assert recovered.damage == [f"{names[0]}: the file that followed it (number 2) is missing"]
    store.close()


def test_file_of_noise_is_reported_and_left(directory: str) -> None:
    path = f"{directory}/journal/0000000001-0123456789abcdef.log"
    disk = Disk({path: filled(random.Random(1).randbytes(2000))})
    store, recovered = open_store(directory, disk)
    assert recovered.damage
    assert recovered.commit == 0
    store.append([Turn([Put("a", 1, b"", [b"x"])])], 0)
    store.close()


@pytest.mark.parametrize("name", ["notes.txt", "0000000001-0123456789abcdef.log.bak", "1-0.log"])
def test_a_file_that_is_not_ours_is_refused(tmp_path, name: str) -> None:
    path = f"{tmp_path}/journal/{name}"
    disk = Disk({path: filled(b"whatever")})
    with pytest.raises(StoreError, match="move it away") as raised:
        open_store(str(tmp_path), disk)
    assert path in str(raised.value)
    assert list(disk.files) == [path]


def test_a_newer_format_is_refused_and_nothing_changed(directory: str) -> None:
    from zlib import crc32

    disk = write_journal(directory, [Turn([Put("a", 1, b"", [b"x"])])])
    (path,) = segments(disk)
    data = disk.files[path].data
    data[20] = 3
    data[56:60] = crc32(data[:56]).to_bytes(4, "little")
    before = bytes(data)
    with pytest.raises(StoreError, match="has format 3, this program knows 2"):
        open_store(directory, disk)
    assert segments(disk) == [path]
    assert bytes(disk.files[path].data) == before
    assert not disk.open_files


def test_a_renamed_file_is_refused(directory: str) -> None:
    disk = write_journal(directory, [Turn([Put("a", 1, b"", [b"x"])])])
    (path,) = segments(disk)
    disk.files[path.replace("0000000001-", "0000000007-")] = disk.files.pop(path)
    with pytest.raises(StoreError, match="was renamed"):
        open_store(directory, disk)


def test_a_file_of_another_kind_with_our_name_is_damaged(tmp_path) -> None:
    from zlib import crc32

    header = bytearray(60)
    header[:8] = b"other!!\n"
    header[56:] = crc32(header[:56]).to_bytes(4, "little")
    path = f"{tmp_path}/journal/0000000001-0123456789abcdef.log"
    disk = Disk({path: filled(bytes(header) + b"content")})
    store, recovered = open_store(str(tmp_path), disk)
    assert len(recovered.damage) == 1
    store.close()


def test_a_directory_that_cannot_be_read(disk: Disk, directory: str) -> None:
    disk.fail("names", 5)
    with pytest.raises(StoreError, match="cannot be opened"):
        open_store(directory, disk)
    store, _ = open_store(directory, disk)
    store.close()


def test_reported_and_set_aside_damage_is_bounded(directory: str) -> None:
    disk = write_journal(directory, [Turn([Put("a", 1 + n, b"", [b"body"]) for n in range(1100)])])
    (path,) = segments(disk)
    data = disk.files[path].data
    at = data.find(b"body")
    while at >= 0:
        data[at] ^= 1
        at = data.find(b"body", at)
    disk.files.update({f"{directory}/damaged/{n}": filled(b"") for n in range(900)})
    store, recovered = open_store(directory, disk, BIG)
    assert len(recovered.damage) == 1000
    assert store.statistics().damaged == 1100
    assert len([name for name in disk.files if "/damaged/" in name]) == 1000
    store.close()


def test_a_damaged_message_is_left_out_though_its_copied_neighbours_are_whole(
    store: JournalStore, disk: Disk, directory: str
) -> None:
    """A crash interrupted the copying; the original segment is still there, and damaged."""
    bodies = [b"%d" % id * 50 for id in range(1, 6)]
    commit = store.append([Turn([Put("a", 1, b"", bodies)])], 0)
    (first,) = segments(disk)
    original = bytes(disk.files[first].data)
    for id in range(6, 60):
        turns = [Turn([Put("b", id, b"", [bytes(1000)])]), Turn([Done([id])])]
        commit = store.append(turns, commit)
        if first not in disk.files:
            break
    store.close()
    flipped = bytearray(original)
    flipped[original.find(bodies[2])] ^= 1
    names = segments(disk)
    disk.files[first] = filled(bytes(flipped))
    store, recovered = open_store(directory, disk)
    assert list(read_place(store, "a")) == [1, 2, 4, 5]
    assert any("1 damaged messages" in line for line in recovered.damage)
    assert first not in names
    store.close()
