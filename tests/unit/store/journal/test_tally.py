"""The payers of a journal's content, summed up while it is read."""

import shutil
from pathlib import Path

import pytest

from trio_stomp.store import Done, JournalOptions, JournalStore, Put, Turn, stored_cost
from trio_stomp.store.journal import _tally as tally_module
from trio_stomp.store.journal._id_set import IdSet

KEY = ("queue:/queue/a", 4)
ALICE, BOB = b"x-trio-stomp-charged:user alice\n", b"x-trio-stomp-charged:user bob\n"


def living(tally: tally_module.Tally, *ids: int) -> dict[bytes, int]:
    live = IdSet()
    for id in ids:
        live.add([id])
    return tally.living(KEY, live)


def test_rows_of_one_user_grow_as_long_as_they_are_without_a_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tally_module, "MAX_ROW_IDS", 4)
    tally = tally_module.Tally()
    for first in range(1, 9, 2):
        tally.add(KEY, range(first, first + 2), 20, ALICE)
    assert tally.count == 2
    tally.add(KEY, range(9, 10), 7, BOB)
    tally.add(KEY, range(20, 21), 10, ALICE)
    assert tally.count == 4
    assert living(tally, *range(1, 30)) == {ALICE: 90, BOB: 7}
    assert living(tally, 1, 8, 9) == {ALICE: 20, BOB: 7}
    assert living(tally) == {}
    tally.drop("queue:/queue/b")
    assert tally.count == 4
    tally.drop(KEY[0])
    assert tally.count == 0
    assert living(tally, 1) == {}


def test_there_are_not_more_rows_than_memory_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally_module, "MAX_ROWS", 2)
    tally = tally_module.Tally()
    for first in (1, 5, 9):
        tally.add(KEY, range(first, first + 1), 10, ALICE)
    assert tally.count == 2
    assert living(tally, 1, 5, 9) == {ALICE: 20}


def test_ids_of_copies_are_distinguished() -> None:
    assert list(tally_module.stretches(range(3, 6))) == [range(3, 6)]
    assert list(tally_module.stretches([3, 4, 7, 9, 10])) == [
        range(3, 5),
        range(7, 8),
        range(9, 11),
    ]


def test_copies_of_live_messages_are_charged_as_before(tmp_path: Path) -> None:
    """The cleaner copies the live records of an old segment into a new one."""
    options = JournalOptions(segment_bytes=4096)
    store = JournalStore(str(tmp_path), options=options)
    commit = store.recover(lambda done, size: None).commit
    head, body = ALICE + b"a:b\n", b"x" * 100
    kept = range(1, 400, 10)
    for id in range(1, 400):
        put = Put(KEY[0], id, head, [body])
        commit = store.append([Turn([put])], commit)
    gone = [id for id in range(1, 400) if id not in kept]
    commit = store.append([Turn([Done(gone)])], commit)
    for first in range(1000, 1050):
        commit = store.append([Turn([Put("queue:other", first, b"", [b"y" * 3000])])], commit)
    files = len(list((tmp_path / "journal").iterdir()))
    store.close()
    again = JournalStore(str(tmp_path), options=options)
    state = again.recover(lambda done, size: None).places[KEY]
    assert state.count == len(kept)
    assert state.charged == {ALICE: stored_cost(len(head), len(kept), 100 * len(kept))}
    assert files < 60
    again.close()


def test_the_capacity_is_the_space_of_the_disk_or_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JournalStore(str(tmp_path))
    store.recover(lambda done, size: None)
    assert 0 < store.capacity() <= shutil.disk_usage(tmp_path).total
    bounded = JournalStore(str(tmp_path), options=JournalOptions(max_store_bytes=12345))
    assert bounded.capacity() == 12345
    store.close()
    monkeypatch.setattr(shutil, "disk_usage", _fails)
    assert bounded.capacity() == 12345
    assert store.capacity() == 0


def _fails(path: str) -> None:
    raise OSError("the disk is gone")
