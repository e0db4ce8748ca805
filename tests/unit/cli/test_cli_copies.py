"""Copies of what a store holds are as protected as the store."""

import os
import stat
from pathlib import Path

import pytest

from tests.support.commands import WELL
from tests.support.stores import fill
from trio_stomp.cli import main
from trio_stomp.store import JournalStore
from trio_stomp.store.disk import DirectoryLock


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A directory with a store."""
    path = str(tmp_path / "store")
    journal = JournalStore(path)
    fill(journal)
    journal.close()
    return path


def test_an_export_is_of_its_owner_alone(store: str, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        target, other = tmp_path / "copy", tmp_path / "other"
        other.write_text("precious")
        (tmp_path / "copy.part").symlink_to(other)
        assert main(["store", "export", store, str(target)]) == WELL
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert other.read_text() == "precious"
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".copy")]


def test_an_export_that_fails_leaves_nothing(store: str, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    target.mkdir()
    assert main(["store", "export", store, str(target)]) == 1
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".copy")]


def test_tables_are_of_their_owner_alone(tmp_path: Path) -> None:
    place = pytest.importorskip("trio_stomp.spark.lake._place").Place.of(str(tmp_path / "root"))
    other = tmp_path / "other"
    other.write_text("precious")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/x.part").symlink_to(other)
    place.write("x", b"1")
    assert (other.read_text(), place.read("x")) == ("precious", b"1")


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("precious")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/lock").symlink_to(other)
    with pytest.raises(OSError, match="symbolic link"):
        DirectoryLock(str(tmp_path / "data/lock"))
    assert other.read_text() == "precious"
