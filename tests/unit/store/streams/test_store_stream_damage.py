"""A stream with torn or altered files serves nothing altered, and loses nothing else."""

from collections.abc import Iterator

import pytest
from _oracle.store_disk import filled

from tests.support.stream_fakes import (
    DIRECTORY,
    DiskFake,
    StreamLog,
    body_at,
    commit,
    expected,
    fails_on,
    make_log,
    no_space,
    open_log,
    read_all,
    run,
)
from tests.support.stream_fakes import WHOLE as WHOLE
from tests.support.stream_fakes import _small_extents as _small_extents
from tests.support.stream_fakes import copy_of as copy_of
from tests.support.stream_fakes import disk as disk
from tests.support.stream_fakes import log as log
from trio_stomp.store.streams import _damage as damage_module
from trio_stomp.store.streams import _format


def marker_of(path: str) -> bytes:
    return bytes.fromhex(path.partition("-")[2].partition(".")[0])


def records(disk: DiskFake, path: str) -> list[tuple[int, int, range]]:
    """Return the start, end and offsets of each record of a raw file."""
    found = _format.walk(bytes(disk.files[path].data), marker_of(path))
    return [(at, end, range(header.first, header.next)) for at, end, header in found if header]


def set_tail(disk: DiskFake, data: bytes) -> str:
    path = disk.paths(".log")[-1]
    disk.files[path] = filled(data)
    return path


# A torn end.


def test_a_tail_that_is_cut_anywhere_ends_with_its_last_whole_record(
    disk: DiskFake, log: StreamLog
) -> None:
    commit(log, 9, 9, 9, 3, 1, 2)
    path = disk.paths(".log")[-1]
    ends = [(0, records(disk, path)[0][2].start)]
    ends += [(end, offsets.stop) for _, end, offsets in records(disk, path)]
    for size in range(len(disk.files[path].data)):
        after = copy_of(disk)
        set_tail(after, bytes(after.files[path].data[:size]))
        log = open_log(after)
        whole = max(next for end, next in ends if end <= size)
        assert log.state().next == whole
        assert read_all(log) == expected(whole)
        commit(log, 2)
        assert read_all(open_log(after)) == expected(whole + 2)
        assert log.take_damage() == []


@pytest.mark.parametrize("size", [1, 51, 52, 53, 5000])
def test_an_end_that_was_never_written_is_cut(disk: DiskFake, log: StreamLog, size: int) -> None:
    commit(log, 3, 2)
    set_tail(disk, bytes(disk.files[disk.paths(".log")[-1]].data) + bytes(size))
    log = open_log(disk)
    assert log.state().next == 5
    assert log.take_damage() == []
    commit(log, 1)
    assert read_all(open_log(disk)) == expected(6)


# Damage.


def check_damaged(disk: DiskFake, lost: set[int], next: int) -> None:
    """Open, read, and append: undamaged messages are there, and no offset is used twice."""
    log = open_log(disk)
    state = log.state()
    found = read_all(log)
    assert found == {n: body for n, body in expected(next).items() if n not in lost}
    assert state.next >= next
    if lost:
        assert log.take_damage()
        assert log.damaged
    assert open_log(disk).state().next == state.next
    commit(log, 2)
    log.close()
    after = open_log(disk)
    assert read_all(after) == {**found, **expected(state.next, state.next + 2)}
    assert after.take_damage() == []


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_in_the_last_file_damages_only_its_record(
    disk: DiskFake, log: StreamLog, bit: int
) -> None:
    commit(log, 3, 1, 2)
    path = disk.paths(".log")[0]
    for at, end, offsets in records(disk, path):
        bodies = [body_at(offset) for offset in offsets]
        body_ends = [end - len(b"".join(bodies[n + 1 :])) for n in range(len(bodies))]
        for place in range(at, end):
            after = copy_of(disk)
            after.damage(path, place, 1 << bit)
            hit = {
                n
                for n, b, e in zip(offsets, bodies, body_ends, strict=True)
                if e - len(b) <= place < e
            }
            check_damaged(after, hit or set(offsets), 6)


@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_flipped_bit_in_a_full_file_damages_only_its_record(disk: DiskFake, bit: int) -> None:
    log = make_log(disk, 200)
    commit(log, 3, 2, 2)
    path = disk.paths(".log")[0]
    for place in range(len(disk.files[path].data)):
        after = copy_of(disk)
        after.damage(path, place, 1 << bit)
        log = open_log(after, 200)
        lost = expected(7).keys() - read_all(log).keys()
        assert 1 <= len(lost) <= 3
        assert read_all(log) == {n: body for n, body in expected(7).items() if n not in lost}
        assert len(log.take_damage()) == 1
        assert log.state().next == 7
        assert log.compress_one()
        assert read_all(log).keys() == read_all(open_log(after)).keys() == expected(7).keys() - lost
        assert log.take_damage() == []


def test_a_bit_that_flips_in_a_compressed_file_costs_a_block(disk: DiskFake) -> None:
    log = make_log(disk, 1500)
    commit(log, *[3] * 16)
    assert log.compress_one()
    [path] = disk.paths(".packed")
    data = bytes(disk.files[path].data)
    blocks = list(packed_blocks(data, marker_of(path)))
    assert len(blocks) > 2
    for place in range(len(data)):
        after = copy_of(disk)
        after.damage(path, place, 1 << place % 8)
        lost: set[int] = set()
        for at, end, offsets in blocks:
            if at <= place < end:
                lost = set(offsets)
        check_damaged(after, lost, 48)


def packed_blocks(data: bytes, marker: bytes) -> Iterator[tuple[int, int, range]]:
    at = 0
    while (header := _format.read_block_header(data, at, marker)) and _format.decode_block(
        data[at:], marker
    ):
        yield at, at + header.size, range(header.first, header.next)
        at += header.size


def test_offsets_that_may_have_been_lost_at_the_end_are_not_used_again(
    disk: DiskFake, log: StreamLog
) -> None:
    commit(log, 3, 2)
    path = disk.paths(".log")[0]
    at, end, _ = records(disk, path)[-1]
    disk.damage(path, at)
    for _ in range(2):
        log = open_log(disk)
        leapt = log.state().next
        assert 5 <= leapt <= 3 + (end - at) // 8
        assert read_all(log) == expected(3)
        assert log.find_offset(1) == leapt
    # A damaged file is not written to, nor truncated when a commit is undone.
    log.append([run(log, 1)])
    log.rollback()
    assert open_log(disk).state().next == leapt
    commit(log, 2)
    assert read_all(open_log(disk)) == {**expected(3), **expected(leapt, leapt + 2)}
    assert log.compress_one()
    assert read_all(open_log(disk)) == {**expected(3), **expected(leapt, leapt + 2)}


def test_damage_at_the_end_of_a_full_file_leaves_the_next_one_alone(disk: DiskFake) -> None:
    log = make_log(disk, 150)
    commit(log, 1, 20, 1, 1)
    first, second, *_ = disk.paths(".log")
    disk.damage(first, records(disk, first)[-1][0])
    log = open_log(disk, 150)
    assert read_all(log) == {**expected(1), **expected(21, 23)}
    assert [at for at in range(23) if read_all(log, at, 1) != read_all(log, at)] == []
    assert records(disk, second)[0][2].start == 21


def test_a_file_without_any_record_left_is_passed_by(disk: DiskFake) -> None:
    log = make_log(disk, 90)
    commit(log, 2, 2, 2, written_ms=5)
    paths = disk.paths(".log")
    disk.damage(paths[0], 0)
    disk.damage(paths[1], 20)
    log = open_log(disk, 90)
    assert (log.state().first, log.state().next) == (4, 6)
    assert read_all(log) == expected(4, 6)
    assert log.find_offset(0) == log.find_offset(5) == 4
    assert len(log.take_damage()) == 2
    assert log.compress_one()
    assert log.compress_one()
    assert not log.compress_one()
    assert read_all(log) == read_all(open_log(disk, 90)) == expected(4, 6)
    log.trim(4)
    assert len(disk.paths(".packed")) == 0


def test_damage_that_was_not_read_before_is_found_when_compressing(disk: DiskFake) -> None:
    log = make_log(disk, 1500)
    commit(log, *[3] * 16)
    path = disk.paths(".log")[0]
    places = records(disk, path)
    for at, _, _ in places[:5]:
        disk.damage(path, at)
    at, end, offsets = places[-1]
    disk.damage(path, end - 1)
    assert log.compress_one()
    assert len(log.take_damage()) == 3
    lost = {n for _, _, offsets in places[:5] for n in offsets} | {offsets[-1]}
    for again in (log, open_log(disk, 1500)):
        assert read_all(again).keys() == expected(48).keys() - lost
        assert again.take_damage() == []


def test_a_time_whose_messages_are_all_damaged_has_the_next_offset(
    disk: DiskFake, log: StreamLog
) -> None:
    commit(log, 3, written_ms=5)
    disk.damage(disk.paths(".log")[0], 0)
    assert log.find_offset(5) == 3


def test_damage_of_several_records_in_a_row_is_one(disk: DiskFake) -> None:
    log = make_log(disk, 10_000)
    commit(log, 2, 2, 2, 2, 2)
    [path] = disk.paths(".log")
    for at, *_ in records(disk, path)[1:4]:
        disk.damage(path, at + 20)
    log = open_log(disk)
    for _ in range(3):
        assert read_all(log) == {**expected(2), **expected(8, 10)}
    [line] = log.take_damage()
    start, end = records(disk, path)[0][1], records(disk, path)[-1][0]
    name = f"{path.rpartition('/')[2]}-{start}"
    assert (
        line
        == f"{path}: {end - start} bytes at {start} are damaged, and set aside as damaged/{name}"
    )
    copy = disk.files[f"{DIRECTORY}/damaged/{name}"]
    assert copy.data == disk.files[path].data[start:end]
    assert log.damaged == 1
    assert log.take_damage() == open_log(disk).take_damage() == []


def test_a_record_of_another_kind_is_not_read(disk: DiskFake, monkeypatch) -> None:
    log = make_log(disk)
    commit(log, 2)
    monkeypatch.setattr(_format, "_RUN", b"RUN3")
    commit(log, 2)
    monkeypatch.undo()
    assert read_all(open_log(disk)) == expected(2)


def test_a_compressed_file_whose_end_is_damaged_is_searched_for_blocks(disk: DiskFake) -> None:
    log = make_log(disk, 1500)
    commit(log, *[3] * 16)
    assert log.compress_one()
    [path] = disk.paths(".packed")
    size = len(disk.files[path].data)
    blocks = list(packed_blocks(bytes(disk.files[path].data), marker_of(path)))
    for kept in range(size):
        after = copy_of(disk)
        del after.files[path].data[kept:]
        log = open_log(after, 1500)
        lost = {n for at, end, offsets in blocks for n in offsets if end > kept}
        assert read_all(log) == {n: body for n, body in expected(48).items() if n not in lost}
        assert log.state().next == 48
    log = open_log(disk, 1500)
    disk.damage(path, size - 1)
    disk.damage(path, blocks[1][0])
    lost = set(blocks[1][2])
    assert read_all(open_log(disk, 1500)).keys() == expected(48).keys() - lost


def test_damage_that_cannot_be_set_aside_is_reported_too(disk: DiskFake, log: StreamLog) -> None:
    commit(log, 2, 2)
    disk.damage(disk.paths(".log")[0], 60)
    disk.fails = fails_on("write", "make_directory", error=no_space)
    assert read_all(log) == expected(2, 4)
    [line] = log.take_damage()
    assert line.endswith("are damaged; they cannot be copied: [Errno 28] No space left on device")
    assert not disk.open_files


def test_number_of_stored_lines_is_bounded(disk: DiskFake, monkeypatch) -> None:
    monkeypatch.setattr(damage_module, "MAX_LINES", 3)
    log = make_log(disk, 10_000)
    commit(log, *[1] * 12)
    [path] = disk.paths(".log")
    for at, *_ in records(disk, path)[::2]:
        disk.damage(path, at)
    assert len(read_all(log)) == 6
    assert len(log.take_damage()) == 3
    assert log.damaged == 6
