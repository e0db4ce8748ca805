"""The copy of a partition in the directory of a node, which is removed as a whole or not at all."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.support.stores import ignore
from trio_stomp import Settings
from trio_stomp.cluster import LocalState
from trio_stomp.cluster._entries import Batch
from trio_stomp.startup._node import _open_local, _remove_local
from trio_stomp.store import Keep, StoreError, Turn


class Killed(BaseException):
    """The process is killed at this moment."""


def opened(path: Path) -> LocalState:
    """Return the state that a node finds when it follows."""
    local = LocalState(
        partial(_open_local, Settings(), path), lambda: None, partial(_remove_local, path)
    )
    local.open(ignore)
    return local


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy with an entry of the log."""
    path = tmp_path / "cluster-c.03"
    local = opened(path)
    local.apply(Batch(first=1, sequence=7, turns=[Turn([Keep("k", "v")])]))
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
            local.discard()
    again = opened(copy)
    assert again.position == position
    again.discard()
    assert list(copy.parent.iterdir()) == []
    assert opened(copy).position == 0


def test_a_copy_that_cannot_be_removed_is_reported_by_its_name(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StoreError, match=r"cluster-c\.03 cannot be removed: .*denied"):
        _remove_local(copy)
