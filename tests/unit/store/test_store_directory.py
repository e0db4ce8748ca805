"""The directory of a journal: all names are on the disk, and one broker owns it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trio_stomp.store import (
    JournalOptions,
    JournalStore,
    Put,
    Recovered,
    StoreBroken,
    StoreLocked,
    Turn,
)
from trio_stomp.store.disk import OsFiles


def opened(directory: Path, segment_bytes: int = 1 << 20) -> tuple[JournalStore, Recovered]:
    store = JournalStore(str(directory), options=JournalOptions(segment_bytes))
    return store, store.recover(lambda done, size: None)


@pytest.mark.parametrize("is_new", [True, False])
def test_the_name_of_each_directory_is_on_the_disk(tmp_path: Path, monkeypatch, is_new) -> None:
    """Even if the process that created them was killed before the sync."""
    data = tmp_path / "a" / "b"
    if not is_new:
        for part in ("journal", "streams"):
            (data / part).mkdir(parents=True)
    synced: set[str] = set()
    fsync = os.fsync

    def note(handle: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    store, _ = opened(data)
    store.close()
    assert {str(data), str(data.parent), str(data / "journal"), str(data / "streams")} <= synced
    assert (str(tmp_path) in synced) == is_new


def test_a_parent_that_may_not_be_read_is_no_hindrance(tmp_path: Path, monkeypatch) -> None:
    def refuse(self: OsFiles, path: str) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(OsFiles, "sync_directory", refuse)
    OsFiles().make_directory(str(tmp_path / "x" / "y"))
    assert (tmp_path / "x" / "y").is_dir()


def test_the_lock_file_is_its_owners_alone_and_names_him(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.close()
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    (tmp_path / "lock").write_text("1234567890\n")  # left by an earlier broker
    store, _ = opened(tmp_path)
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    store.close()


def test_removing_the_lock_file_admits_no_second_broker(tmp_path: Path) -> None:
    store, recovered = opened(tmp_path)
    (tmp_path / "lock").unlink()
    with pytest.raises(StoreLocked, match="used by process unknown"):
        opened(tmp_path)
    code = (
        "import sys; from trio_stomp.store import JournalStore;"
        "JournalStore(sys.argv[1]).recover(lambda done, size: None)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "StoreLocked" in ran.stderr
    store.append([Turn([Put("a", 1, b"", [b"one"])])], recovered.commit)
    store.close()
    store, recovered = opened(tmp_path)
    assert recovered.places["a", 4].count == 1
    store.close()


def test_a_directory_that_was_replaced_is_not_written_to(tmp_path: Path) -> None:
    """After it was moved, another broker began at its path, and owns the new files."""
    data = tmp_path / "data"
    store, recovered = opened(data, 4096)
    commit = store.append([Turn([Put("a", 1, b"", [bytes(5000)])])], recovered.commit)
    data.rename(tmp_path / "moved")
    other, _ = opened(data, 4096)
    before = sorted(path.name for path in (data / "journal").iterdir())
    with pytest.raises(StoreBroken, match="moved or replaced"):
        store.append([Turn([Put("a", 2, b"", [b"two"])])], commit)
    store.close()
    other.close()
    assert sorted(path.name for path in (data / "journal").iterdir()) == before
    store, recovered = opened(tmp_path / "moved")
    assert recovered.places["a", 4].count == 1
    store.close()
