"""Compaction and removal, beside writers."""

import os
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the extra tables is not installed")

from tests.support.diag_bodies import Row, message
from tests.support.lake import STREAM, batch, offsets, write
from trio_stomp.spark.lake import (
    LakeError,
    Writer,
    compact,
    drop_raw,
    open_store,
)

DAY, LATER = date(2026, 3, 14), date(2026, 3, 20)
MIDNIGHT_S = 16 * 3600


def session(offset: int, at_s: float = 0.0) -> Row:
    return message("session", offset, at_s=at_s)


def age(root: Path) -> None:
    """Make all files older than whatever is made now."""
    for path in root.rglob("*.*"):
        os.utime(path, (time.time() - 7200,) * 2)


def files(root: Path, name: str) -> list[Path]:
    return sorted((root / "tables" / name).glob("date=*/*.parquet"))


def test_small_files_become_one_for_each_day(tmp_path: Path) -> None:
    for offset in range(6):
        write(tmp_path, [session(offset, MIDNIGHT_S if offset > 3 else 0)])
    store = open_store(tmp_path)
    (made,) = [each for each in compact(store, date(2026, 3, 15)) if each.table == "session"]
    # The present day has few files, and is not over.
    assert (made.removed, made.added) == (4, 1)
    assert len(store.files("session")) == 3
    assert offsets(store, "session") == list(range(6))
    compact(store, LATER)
    assert len(store.files("session")) == 2
    again = compact(store, LATER)
    assert sum(each.removed + each.deleted for each in again) == 0


def test_merged_files_are_deleted_when_their_readers_have_ended(tmp_path: Path) -> None:
    for offset in range(3):
        write(tmp_path, [session(offset)])
    store = open_store(tmp_path)
    reader = store.dataset("session")
    assert reader is not None
    compact(store, LATER)
    assert len(files(tmp_path, "session")) == 4
    assert reader.to_table().num_rows == 3
    torn = tmp_path / "tables" / "session" / "date=2026-03-14" / "part-00000-torn.parquet"
    torn.write_bytes(b"PAR1")
    assert compact(store, LATER)[0].deleted == 0, "it may be of a writer at work"
    age(tmp_path)
    compact(store, LATER)
    assert not torn.exists()


def test_a_writer_continues_during_a_compaction(tmp_path: Path) -> None:
    writer = Writer(open_store(tmp_path), STREAM)
    for offset in range(8):
        writer.add(batch([session(offset)]))
        writer.flush()
        if offset % 3 == 2:
            compact(open_store(tmp_path), LATER)
    write(tmp_path, [session(offset) for offset in range(9)])
    assert offsets(open_store(tmp_path), "session") == list(range(9))


def test_raw_is_deleted_by_its_age_only(tmp_path: Path) -> None:
    unknown = {"kind": "novelty"}
    write(tmp_path, [session(0), session(1) | unknown, session(2, 9 * 86_400) | unknown])
    store = open_store(tmp_path)
    now = datetime(2026, 3, 24, tzinfo=UTC)
    assert drop_raw(store, timedelta(days=10), now=now) == 0
    assert drop_raw(store, timedelta(days=3), now=now) == 1
    assert offsets(store, "raw") == [2]
    assert offsets(store, "session") == [0]


def test_plain_parquet_can_only_be_appended_to(tmp_path: Path) -> None:
    write(tmp_path, [session(0)], "parquet")
    with pytest.raises(LakeError, match="which can only be appended to: name another --root"):
        compact(open_store(tmp_path))
