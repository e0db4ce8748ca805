"""A stream whose disk fails or crashes at any step keeps its promises."""

from itertools import count, product

import pytest
from attrs import define

from tests.support.stream_fakes import (
    DIRECTORY,
    EPOCH,
    HEAD,
    NAME,
    Crash,
    DiskFake,
    StreamLog,
    body_at,
    commit,
    disk_error,
    expected,
    fails_at,
    fails_from,
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
from trio_stomp.store import Append, StoreBroken


@define
class Life:
    """The promises of a stream's log to its user, while a disk may fail."""

    disk: DiskFake
    is_begun: bool = False
    committed: int = 0
    trimmed: int = 0
    failed: int = 0

    def live(self) -> None:
        """Do every operation of a log, several times."""
        log = make_log(self.disk)
        self.is_begun = True
        for turn in range(14):
            self.commit(log, turn)
            if turn % 3 == 2:
                self.attempt(log.compress_one)
            if turn in (7, 12):
                self.trimmed = self.committed - 8
                self.attempt(lambda: log.trim(self.trimmed))
        self.attempt(lambda: self.check(log))
        log.close()

    def check(self, log: StreamLog) -> None:
        assert read_all(log) == expected(log.state().first, self.committed)

    def commit(self, log: StreamLog, turn: int) -> None:
        """Retry until it succeeds; undone content must not come back."""
        body = b"undone %d"
        while True:
            log.mark()
            try:
                if turn in (4, 9):
                    first = log.state().next
                    log.append([Append(NAME, first, HEAD, [body % first] * 9, 0)])
                    raise disk_error()
                log.append([run(log, turn % 4 + 1)])
                log.append([run(log, 2)])
                log.sync()
            except OSError:
                self.failed += 1
                log.rollback()
                turn += turn in (4, 9)
            else:
                self.committed = log.state().next
                return

    def attempt(self, action) -> None:
        try:
            action()
        except OSError:
            self.failed += 1
            action()


def check_promises(life: Life, after: DiskFake) -> None:
    """Check that after a crash everything promised is there, and nothing undone."""
    log = StreamLog.open(DIRECTORY, after, 400) if DIRECTORY in after.directories else None
    if log is None:
        assert not life.is_begun
        return
    state = log.state()
    assert (log.name, state.epoch) == (NAME, EPOCH)
    assert state.first <= life.trimmed
    assert state.next >= life.committed
    found = read_all(log)
    assert list(found) == list(range(state.first, state.next))
    for offset, body in found.items():
        is_kept = body == body_at(offset)
        assert is_kept or (offset >= life.committed and body.startswith(b"undone"))
    commit(log, 5)
    while log.compress_one():
        pass
    assert log.take_damage() == []
    log.close()
    more = expected(state.next, state.next + 5)
    assert read_all(open_log(after)) == {**found, **more}
    assert not [path for path in after.files if path.endswith(".part")]


def test_a_crash_at_any_step_keeps_the_promises() -> None:
    for step in count():
        disk = DiskFake(fails=fails_at(step, Crash))
        life = Life(disk)
        try:
            life.live()
        except Crash:
            pass
        else:
            break
        for keeps_names, keeps_data in product((True, False), repeat=2):
            after = disk.crashed(keeps_names=keeps_names, keeps_data=keeps_data)
            check_promises(life, after)
    assert step > 100


def leave_empty_files(disk: DiskFake, next: int) -> None:
    """Create the files that failed commits and an unfinished compression may leave behind."""
    disk.create(f"{DIRECTORY}/{0:020}-{0:016x}.packed.part")
    disk.create(f"{DIRECTORY}/{next:020}-{0:016x}.log")
    disk.create(f"{DIRECTORY}/{next:020}-{1:016x}.log")
    disk.create(f"{DIRECTORY}/{next - 1:020}-{0:016x}.log")


def leave_torn_end(disk: DiskFake, next: int) -> None:
    disk.files[disk.paths(".log")[-1]].data += b"torn"


def leave_older_empty_file(disk: DiskFake, next: int) -> None:
    disk.create(f"{DIRECTORY}/{next - 1:020}-{0:016x}.log")


@pytest.mark.parametrize("leave", [leave_empty_files, leave_torn_end, leave_older_empty_file])
def test_a_crash_during_opening_keeps_the_promises(leave) -> None:
    disk = DiskFake()
    life = Life(disk)
    life.live()
    leave(disk, life.committed)
    for step in count():
        after = copy_of(disk)
        after.fails = fails_at(step, Crash)
        try:
            open_log(after)
        except Crash:
            check_promises(life, copy_of(after))
        else:
            check_promises(life, copy_of(after))
            break
    assert step > 5


@pytest.mark.parametrize("fails_wholly", [False, True])
def test_a_file_that_cannot_be_removed_is_not_compressed(
    disk: DiskFake, log: StreamLog, fails_wholly
) -> None:
    commit(log, *[9] * 8)
    removed = (".log", ".packed") if fails_wholly else ".log"
    disk.fails = lambda number, what, path: (
        disk_error() if what == "remove" and path.endswith(removed) else None
    )
    with pytest.raises(OSError):
        log.compress_one()
    disk.fails = fails_on()
    assert read_all(log) == expected(72)
    assert len(disk.paths(".packed")) == fails_wholly
    for path in disk.paths(".packed"):
        disk.damage(path, 60)
    log = open_log(disk)
    assert not disk.paths(".packed")
    assert read_all(log) == expected(72)
    assert log.compress_one()
    assert read_all(open_log(disk)) == expected(72)


@pytest.mark.parametrize("error", [disk_error, no_space])
def test_a_failure_at_any_step_is_undone(error) -> None:
    for step in count():
        disk = DiskFake(fails=fails_at(step, error))
        life = Life(disk)
        try:
            life.live()
        except StoreBroken:
            # Undoing the failed commit failed, too; a restart finds the state.
            disk.fails = fails_on()
        except OSError:
            assert not life.is_begun
        check_promises(life, disk.crashed(keeps_names=False, keeps_data=False))
        if step >= len(disk.steps):
            break
    assert step > 100


@pytest.mark.parametrize("error", [disk_error, no_space])
def test_a_disk_that_fails_for_good_loses_no_confirmed_record(error) -> None:
    for step in count(20):
        disk = DiskFake(fails=fails_from(step, error))
        life = Life(disk)
        try:
            life.live()
        except (StoreBroken, OSError):
            for keeps in (True, False):
                check_promises(life, disk.crashed(keeps_names=keeps, keeps_data=keeps))
        else:
            break
    assert step > 100


def test_a_crash_while_it_is_dropped_leaves_all_or_nothing() -> None:
    for step, begins in product(range(30), (False, True)):
        disk = DiskFake()
        log = make_log(disk)
        commit(log, *[9] * 6)
        log.compress_one()
        disk.fails = fails_at(len(disk.steps) + step, Crash)
        try:
            if begins:
                StreamLog.create(DIRECTORY, disk, NAME, "new")
            else:
                log.drop()
        except Crash:
            pass
        for keeps_names in (True, False):
            after = disk.crashed(keeps_names=keeps_names, keeps_data=True)
            found = StreamLog.open(DIRECTORY, after)
            if found is None:
                assert not [path for path in after.files if not path.endswith(".name")]
            elif found.epoch == EPOCH:
                assert read_all(found) == expected(54)
            else:
                assert begins
                assert (found.name, found.state().next) == (NAME, 0)
