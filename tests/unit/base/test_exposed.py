"""Warnings about files that other users of the machine may read or change."""

import os
from pathlib import Path

import pytest

from trio_stomp.base import READ, WRITE, exposed


@pytest.mark.parametrize(
    ("mode", "rights", "what"),
    [
        (0o600, READ | WRITE, ""),
        (0o640, READ | WRITE, ""),  # a group of ours
        (0o604, READ | WRITE, "read"),
        (0o604, WRITE, ""),
        (0o602, WRITE, "change"),
        (0o606, READ | WRITE, "change"),
    ],
)
def test_rights_of_others(tmp_path: Path, mode: int, rights: int, what: str) -> None:
    path = tmp_path / "x"
    path.touch()
    path.chmod(mode)
    warning = exposed(str(path), rights)
    assert (f"has mode {mode:04o}: other users may {what} it" in warning) is bool(what)


def test_rights_of_another_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o770)
    monkeypatch.setattr(os, "getegid", lambda: -1)
    monkeypatch.setattr(os, "getgroups", lambda: [-2])
    assert "may change it" in exposed(str(tmp_path), WRITE)


def test_what_is_not_there_is_not_exposed(tmp_path: Path) -> None:
    assert exposed(str(tmp_path / "x"), READ) == ""
