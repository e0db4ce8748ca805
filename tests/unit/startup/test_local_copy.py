"""The copy of a partition in the directory of a node, which is removed as a whole or not at all."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import FakeLog
from tests.support.stores import ignore
from trio_stomp import Settings
from trio_stomp.cluster import LocalState, Newest, OtherLog, Snapshot
from trio_stomp.cluster._entries import Batch, epoch_entry
from trio_stomp.startup._node import local_state
from trio_stomp.store import Forget, JournalStore, Keep, Record, StoreError, Turn

WRITER = 5


def log() -> FakeLog:
    """Return a log that ends with entry 7."""
    found = FakeLog()
    for number in range(7):
        found.publish(epoch_entry(WRITER), number)
    return found


class Killed(BaseException):
    """The process is killed at this moment."""


def opened(path: Path, newest: Newest = lambda: None, purged: int = 0) -> LocalState:
    """Return the state that a node finds when it follows a log, of which entries were deleted."""
    found = log()
    found.purge(purged + 1)
    local = local_state(Settings(), path, newest, found)
    local.open(ignore)
    return local


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy with an entry of the log."""
    path = tmp_path / "cluster-c.03"
    local = opened(path)
    local.apply(Batch(first=1, sequence=7, writer=WRITER, turns=[Turn([Keep("k", "v")])]))
    local.close()
    return path


@pytest.mark.parametrize(("moment", "position"), [("before", 7), ("renamed", 0), ("halfway", 0)])
def test_a_kill_at_any_moment_of_the_removal_leaves_all_or_nothing(
    copy: Path, monkeypatch: pytest.MonkeyPatch, moment: str, position: int
) -> None:
    def rename(*_: object) -> None:
        raise Killed

    def remove(path: Path) -> None:
        files = [each for each in path.rglob("*") if each.is_file()]
        if not files:
            raise FileNotFoundError(path)
        if moment == "halfway":
            files[0].unlink()
        raise Killed

    local = opened(copy)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", remove)
        if moment == "before":
            patch.setattr(Path, "rename", rename)
        with pytest.raises(Killed):
            local.discard(ignore)
    again = opened(copy)
    assert again.position == position
    again.discard(ignore)
    assert list(copy.parent.iterdir()) == []
    assert opened(copy).position == 0


def test_a_copy_that_cannot_be_removed_is_reported_by_its_name(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StoreError, match=r"cluster-c\.03 cannot be removed: .*denied"):
        opened(copy).discard(ignore)


def grown(path: Path, key: str) -> LocalState:
    """Return a state with one more setting."""
    local = opened(path)
    number = local.commit + 1
    local.apply(Batch(first=number, sequence=7, writer=WRITER, turns=[Turn([Keep(key, "v")])]))
    return local


def test_the_last_two_copies_that_did_not_fit_are_kept(copy: Path) -> None:
    for key in ("1", "2", "3"):
        local = grown(copy, key)
        local.renew(ignore)
        local.close()
    found = sorted(each.name for each in copy.parent.iterdir())
    assert found == ["aside-2.cluster-c.03", "aside-3.cluster-c.03", "cluster-c.03"]
    assert opened(copy.parent / found[1]).store.state().settings["3"] == "v"


def test_a_copy_of_a_snapshot_or_of_nothing_is_not_kept(copy: Path) -> None:
    """A node that finds no fit snapshot tries again and again, and may be restarted meanwhile."""
    snapshot = Snapshot(sequence=7, commit=4, first=1, last=1)
    grown(copy, "k").close()
    records: list[list[Record]] = [[Keep("k", "v")]]
    for newest in (lambda: (snapshot, iter(records)), lambda: None) * 2:
        local = opened(copy, newest, purged=7)
        local.renew(ignore)
        local.renew(ignore)
        local.close()
    assert sorted(each.name for each in copy.parent.iterdir()) == [
        "aside-1.cluster-c.03",
        "cluster-c.03",
    ]


def test_a_snapshot_that_was_not_read_to_its_end_is_not_kept(copy: Path) -> None:
    def fail() -> Iterator[list[Record]]:
        yield [Keep("k", "v")]
        raise StoreError("no answer")

    local = opened(copy)
    local.discard(ignore)
    local.newest = lambda: (Snapshot(7, 4, 1, 1), fail())
    with pytest.raises(StoreError):
        local.renew(ignore)
    assert opened(copy).position == 0
    assert [each.name for each in copy.parent.iterdir()] == ["cluster-c.03"]


def test_a_state_of_a_version_that_kept_no_writer_is_compared_by_its_commits(copy: Path) -> None:
    store = JournalStore(str(copy))
    commit = store.recover(ignore).commit
    store.append([Turn([Forget("cluster:writer")])], commit)
    store.close()
    with pytest.raises(OtherLog, match="has another entry"):
        opened(copy)


def test_a_copy_that_cannot_be_renamed_is_reported(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = opened(copy)
    (copy.parent / "aside-x.cluster-c.03").mkdir()
    with pytest.raises(StoreError, match=r"cluster-c\.03 cannot be renamed"):
        local.renew(ignore)
