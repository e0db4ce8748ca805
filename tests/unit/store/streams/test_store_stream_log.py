"""A stream's files: reading, trimming, compressing, undoing and finding."""

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from tests.support.stream_fakes import (
    DIRECTORY,
    EPOCH,
    EVERYTHING,
    HEAD,
    NAME,
    DiskFake,
    StreamLog,
    by_offset,
    commit,
    expected,
    fails_on,
    make_log,
    no_space,
    open_log,
    read_all,
    run,
)
from tests.support.stream_fakes import _small_extents as _small_extents
from tests.support.stream_fakes import disk as disk
from tests.support.stream_fakes import log as log
from trio_stomp.store import Append, StoreBroken, StreamState
from trio_stomp.store.disk import OsFiles
from trio_stomp.store.streams import _format as format_module

COUNTS = (1, 3, 2, 5, 1, 4, 9, 1, 1, 2, 6, 3, 2, 1)


def compress_all(log: StreamLog) -> int:
    count = 0
    while log.compress_one():
        count += 1
    return count


# Reading.


def test_a_limit_counts_messages_however_small_they_are(log: StreamLog) -> None:
    for first in range(0, 50, 10):
        log.append([Append(NAME, first, HEAD, [b""] * 10, 0)])
    assert len(by_offset(log.read(0, 1))) == 10  # whole records, so that each is decoded once
    assert len(by_offset(log.read(0, 20 * 256))) == 20
    assert len(by_offset(log.read(5, 20 * 256))) == 25


def test_a_long_run_becomes_several(disk: DiskFake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_module, "RUN_BYTES", 50)
    log = make_log(disk, 10_000)
    bodies = [b"x" * size for size in (10, 20, 100, 1, 2, 3, 30, 60, 0)]
    log.append([Append(NAME, 0, HEAD, bodies, 5)])
    assert [len(got.bodies) for got in log.read(0, EVERYTHING)] == [2, 1, 3, 1, 1, 1]
    assert read_all(log) == dict(enumerate(bodies))
    assert read_all(log, 4) == dict(list(enumerate(bodies))[4:])


def test_an_offset_that_is_not_the_next_is_refused(disk: DiskFake, log: StreamLog) -> None:
    commit(log, 3)
    steps = len(disk.steps)
    for wrong in ([run(log, 2), run(log, 2)], [Append(NAME, 4, HEAD, [b"x"], 0)]):
        with pytest.raises(ValueError, match="is not"):
            log.append(wrong)
    assert len(disk.steps) == steps
    assert log.state().next == 3


def test_a_body_cannot_pass_for_a_record(disk: DiskFake) -> None:
    """A record copied from another file has the wrong marker, and is ignored."""
    other = make_log(disk)
    commit(other, 3)
    record = bytes(disk.files[disk.paths(".log")[0]].durable)
    log = make_log(disk, 10_000)
    log.append([Append(NAME, 0, HEAD, [record, b"1"], 0), Append(NAME, 2, HEAD, [b"2"], 0)])
    path = disk.paths(".log")[0]
    disk.damage(path, 0)
    assert by_offset(open_log(disk).read(0, EVERYTHING)) == {2: b"2"}


@pytest.mark.parametrize("name", ["x", "../..", "a\0/b", "n" * 450, "🐘" * 1000, ""])
def test_any_name_and_epoch_comes_back(tmp_path: Path, name: str) -> None:
    directory = f"{tmp_path}/streams/1"
    StreamLog.create(directory, OsFiles(), name, name[:20]).close()
    log = StreamLog.open(directory, OsFiles())
    assert log is not None
    assert (log.name, log.epoch) == (name, name[:20])
    assert log.state() == StreamState(name[:20], 0, 0, 0)


def test_on_a_real_disk(tmp_path: Path) -> None:
    directory = f"{tmp_path}/streams/1"
    log = StreamLog.create(directory, OsFiles(), NAME, EPOCH, 2000)
    commit(log, *[30] * 20)
    assert compress_all(log) > 2
    log.close()
    log.close()
    again = StreamLog.open(directory, OsFiles(), 2000)
    assert again is not None
    assert read_all(again) == expected(600)
    again.trim(300)
    assert 200 < again.state().first <= 300
    again.drop()
    assert StreamLog.open(directory, OsFiles()) is None
    assert list(Path(directory).iterdir()) == []


def test_foreign_files_are_left_alone(disk: DiskFake, log: StreamLog) -> None:
    commit(log, 3)
    disk.close(disk.create(f"{DIRECTORY}/notes.log"))
    log = open_log(disk)
    assert read_all(log) == expected(3)
    log.drop()
    assert [path.rpartition("/")[2] for path in disk.files] == ["notes.log"]


# Beginning and end.


def test_a_stream_that_is_begun_again_is_empty(disk: DiskFake, log: StreamLog) -> None:
    commit(log, *COUNTS)
    compress_all(log)
    log.close()
    log = StreamLog.create(DIRECTORY, disk, NAME, "new")
    for again in (log, open_log(disk)):
        assert again.state() == StreamState("new", 0, 0, 0)
        assert read_all(again) == {}
        assert again.find_offset(0) == 0


def test_a_dropped_stream_is_no_more(disk: DiskFake, log: StreamLog) -> None:
    commit(log, *COUNTS)
    compress_all(log)
    disk.damage(disk.paths(".packed")[0], 60)
    assert read_all(log) != expected(sum(COUNTS))
    log.append([run(log, 1)])
    log.drop()
    assert read_all(log) == {}
    assert log.state().bytes == 0
    assert not log.compress_one()
    assert disk.files == {}
    assert not disk.open_files
    assert StreamLog.open(DIRECTORY, disk) is None


def test_bytes_equal_the_sizes_of_the_files(disk: DiskFake, log: StreamLog) -> None:
    commit(log, *COUNTS)
    for _ in range(2):
        sizes = [len(disk.files[path].data) for path in disk.files]
        assert log.state().bytes == open_log(disk).state().bytes == sum(sizes)
        compress_all(log)


def test_json_takes_a_tenth_of_its_size(disk: DiskFake) -> None:
    log = make_log(disk, 20_000)
    for n in range(0, 600, 50):
        bodies = [
            b'{"queue":"/queue/orders","pending":%d,"consumers":3}' % (i % 7) for i in range(50)
        ]
        log.mark()
        log.append([Append(NAME, n, HEAD, bodies, n)])
    log.mark()
    before = log.state().bytes
    assert log.compress_one()
    assert log.state().bytes < before - 14_000


# Trimming and compressing.


def test_whole_files_are_trimmed(disk: DiskFake, log: StreamLog) -> None:
    commit(log, *COUNTS)
    total = sum(COUNTS)
    log.compress_one()
    for before in range(total + 2):
        log.trim(before)
        first = log.state().first
        assert first <= before
        assert read_all(log) == read_all(log, first) == expected(first, total)
        assert open_log(disk).state() == log.state()
    assert len(disk.paths(".log") + disk.paths(".packed")) == 1
    assert log.state().first > total - 10


def test_a_file_is_not_trimmed_while_it_is_compressed(disk: DiskFake, log: StreamLog) -> None:
    commit(log, *COUNTS)

    def trim_when_renamed(number: int, what: str, path: str) -> None:
        if what == "rename":
            log.trim(20)

    disk.fails = trim_when_renamed
    assert log.compress_one()
    assert log.state().first == 0
    assert read_all(log) == read_all(open_log(disk)) == expected(sum(COUNTS))
    log.trim(20)
    assert log.state().first > 0


def test_a_file_that_cannot_be_removed_is_still_there(disk: DiskFake, log: StreamLog) -> None:
    commit(log, *COUNTS)
    disk.fails = fails_on("remove")
    with pytest.raises(OSError):
        log.trim(20)
    assert read_all(log) == expected(sum(COUNTS))
    disk.fails = fails_on()
    log.trim(20)
    assert log.state().first > 0


def test_only_segments_that_were_full_at_the_mark_are_compressed(disk: DiskFake) -> None:
    log = StreamLog.create(DIRECTORY, disk, NAME, EPOCH, 400)
    assert not log.compress_one()
    for count in (30, 30, 30):
        log.append([run(log, count)])
    assert not log.compress_one()
    log.trim(EVERYTHING)
    assert not disk.paths(".packed")
    log.mark()
    assert compress_all(log) == len(disk.paths(".packed")) > 0
    log.trim(EVERYTHING)
    assert not disk.paths(".packed")


def test_slow_streams_are_compressed_better() -> None:
    sizes = {}
    for seconds in (9, 10):
        disk = DiskFake()
        log = make_log(disk, segment_bytes=60_000)
        for number in range(11):
            rows = b"".join(b'{"n":%d,"of":%d}' % (n, n * n % 97) for n in range(500))
            written_ms = 1000 * seconds if number else 0
            log.append([Append(NAME, number, HEAD, [rows], written_ms)])
        log.mark()
        commit(log, 1, written_ms=1000 * seconds)
        assert compress_all(log) == 1
        (path,) = disk.paths(".packed")
        sizes[seconds] = disk.size(disk.open(path))
        assert list(read_all(log)) == list(range(12))
        log.close()
    assert sizes[10] < 0.9 * sizes[9]


def test_a_reader_finds_segments_that_are_compressed_meanwhile(
    disk: DiskFake, log: StreamLog
) -> None:
    for first in range(0, 48, 3):
        commit(log, 3, written_ms=first)

    def compress_before_open(number: int, what: str, path: str) -> None:
        if what == "open":
            disk.fails = fails_on()
            assert log.compress_one()

    disk.fails = compress_before_open
    assert by_offset(log.read(1, 1)) == expected(1, 3)
    log.trim(log.read(0, EVERYTHING)[-1].first // 2)
    first = log.state().first
    disk.fails = compress_before_open
    assert log.find_offset(first) == first


def test_a_reader_skips_segments_that_are_trimmed_meanwhile(disk: DiskFake, log: StreamLog) -> None:
    commit(log, *[3] * 12)

    def trim_before_open(number: int, what: str, path: str) -> None:
        if what == "open":
            disk.fails = fails_on()
            log.trim(20)

    disk.fails = trim_before_open
    first = log.read(0, 1)[0].first
    assert first == log.state().first > 0


def test_a_file_that_is_gone_is_an_error(disk: DiskFake, log: StreamLog) -> None:
    commit(log, 3)
    disk.remove(disk.paths(".log")[0])
    with pytest.raises(FileNotFoundError):
        log.read(0, 1)
    with pytest.raises(FileNotFoundError):
        log.find_offset(0)


def test_appends_compression_trimming_and_reads_run_at_once(tmp_path: Path) -> None:
    """One thread appends, one compresses, one trims, and two read from the beginning."""
    log = StreamLog.create(f"{tmp_path}/x", OsFiles(), NAME, EPOCH, 2000)
    total, failures = 3000, []

    def until_read(work: Callable[[], object]) -> None:
        try:
            while log.state().next < total:
                work()
        except BaseException as error:
            failures.append(error)

    def read() -> None:
        found = read_all(log, 0, 500)
        first = log.state().first
        kept = {offset: body for offset, body in found.items() if offset >= first}
        assert kept == expected(first, first + len(kept))

    threads = [Thread(target=until_read, args=(work,)) for work in (read, read, log.compress_one)]
    for thread in threads:
        thread.start()
    for number in range(total // 10):
        commit(log, 10)
        if number % 50 == 49:
            log.trim(number * 5)
    for thread in threads:
        thread.join()
    assert failures == []
    assert read_all(log) == expected(log.state().first, total)
    assert log.take_damage() == []


# Undoing.


def test_the_first_commit_is_undone(disk: DiskFake) -> None:
    log = StreamLog.create(DIRECTORY, disk, NAME, EPOCH)
    log.append([run(log, 3)])
    log.rollback()
    assert log.state() == open_log(disk).state() == StreamState(EPOCH, 0, 0, 0)
    assert not disk.paths(".log")
    assert not disk.open_files


def test_untouched_streams_are_not_undone(disk: DiskFake, log: StreamLog) -> None:
    log.append([run(log, 2)])
    log.mark()
    steps = len(disk.steps)
    log.rollback()
    assert len(disk.steps) == steps
    assert read_all(log) == expected(2)


def test_records_that_are_not_urgent_survive_a_failed_write(disk: DiskFake, log: StreamLog) -> None:
    log.append([run(log, 2)])
    log.mark()
    disk.fails = fails_on("write", error=no_space)
    with pytest.raises(OSError, match="space"):
        log.append([run(log, 3)])
    log.rollback()
    disk.fails = fails_on()
    assert read_all(log) == expected(2)
    assert read_all(open_log(disk)) == expected(2)


def test_after_a_failed_sync_earlier_records_are_read_again(disk: DiskFake, log: StreamLog) -> None:
    commit(log, 2)
    log.append([run(log, 3)])
    disk.fails = fails_on("sync")
    with pytest.raises(OSError):
        log.sync()
    disk.fails = fails_on()
    with pytest.raises(StoreBroken):
        log.sync()
    log.rollback()
    assert "forget_cached" in dict(disk.steps)
    commit(log, 1)
    assert read_all(open_log(disk)) == expected(3)


def test_lost_write_breaks_the_log(disk: DiskFake, log: StreamLog) -> None:
    log.append([run(log, 2)])
    log.mark()
    disk.fails = fails_on("sync")
    with pytest.raises(OSError):
        log.sync()
    disk.fails = fails_on()
    with pytest.raises(StoreBroken, match="data was lost"):
        log.rollback()
    with pytest.raises(StoreBroken):
        log.mark()
    assert not disk.open_files


def test_failed_undo_breaks_the_log(disk: DiskFake, log: StreamLog) -> None:
    commit(log, 2)
    log.append([run(log, 2)])
    disk.fails = fails_on("truncate")
    with pytest.raises(StoreBroken, match="undone"):
        log.rollback()
    disk.fails = fails_on()
    for refused in (log.mark, log.sync, log.rollback):
        with pytest.raises(StoreBroken, match="restart"):
            refused()


def test_reader_of_undone_records_reports_no_damage(disk: DiskFake, log: StreamLog) -> None:
    commit(log, 2)
    log.append([run(log, 1)])

    def undo_before_read(number: int, what: str, path: str) -> None:
        if what == "read":
            disk.fails = fails_on()
            log.rollback()
            log.append([Append(NAME, 2, HEAD, [b"another, and longer"], 0)])

    disk.fails = undo_before_read
    assert by_offset(log.read(0, EVERYTHING)).items() >= expected(2).items()
    assert log.take_damage() == []
    assert read_all(log) == {**expected(2), 2: b"another, and longer"}
