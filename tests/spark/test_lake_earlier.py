"""The import of files of earlier versions: all of them, each message once, at any time."""

import json
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the extra tables is not installed")

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.diag_bodies import Row, message, write_batch
from tests.support.diag_day import SAMPLE
from tests.support.lake import batch, offsets, write
from trio_stomp.spark.lake import (
    LakeError,
    Place,
    has_earlier,
    import_earlier,
    open_store,
)
from trio_stomp.spark.lake._records import split


def session(offset: int, **known: object) -> Row:
    return message("session", offset, **known)  # type: ignore[arg-type]


def write_day(root: Path, rows: list[Row]) -> None:
    """Write the tables of a day as the compaction of earlier versions did."""
    for kind, table in split(pa.Table.from_batches([batch(rows)])).tables.items():
        path = root / "stats" / kind / "date=2026-03-14"
        path.mkdir(parents=True)
        pq.write_table(table.drop_columns(["date"]), path / "part-0.zstd.parquet")
    (root / "stats" / "_compacted").mkdir()
    (root / "stats" / "_compacted" / "2026-03-14.json").write_text(json.dumps({"expired": True}))


def test_all_files_are_imported_and_each_message_once(tmp_path: Path) -> None:
    # Raw of a lost checkpoint, and of the one that followed; a day of which the beginning of raw
    # is removed; a message that came too late for its table; one that no table can hold.
    write_batch(tmp_path, 3, [session(n) for n in range(4, 8)])
    write_batch(tmp_path, 0, [session(n) for n in range(6, 10)], query="ffffffff")
    write_batch(tmp_path, 4, [session(2), session(10) | {"kind": "novelty"}])
    write_day(tmp_path, [session(n) for n in (0, 1, 3, 4, 5)])
    write_batch(tmp_path, 5, []).write_bytes(b"torn")
    store = open_store(tmp_path)
    done = import_earlier(store, str(tmp_path))
    assert (done.messages, done.rows, done.rest) == (10, 11, 1)
    for _ in range(2):
        assert offsets(store, "session") == list(range(10))
        assert offsets(store, "raw") == [10]
        assert import_earlier(open_store(tmp_path), str(tmp_path)).rows == 0


def test_new_messages_may_come_before_or_behind(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, [session(n) for n in range(6)])
    write(tmp_path, [session(n) for n in range(4)])
    import_earlier(open_store(tmp_path), str(tmp_path))
    # A stream that is read from its start again.
    write(tmp_path, [session(n) for n in range(8)])
    assert offsets(open_store(tmp_path), "session") == list(range(8))


def test_the_sample_is_an_earlier_root(tmp_path: Path) -> None:
    assert import_earlier(open_store(tmp_path), str(SAMPLE)).rows == 23045
    assert not has_earlier(Place.of(tmp_path))


def test_a_root_without_such_files_is_told(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="has no files of an earlier version"):
        import_earlier(open_store(tmp_path), str(tmp_path))
