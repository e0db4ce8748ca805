"""A journal on a disk in memory: empty, open, and closed when the test is over."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from _oracle.store_disk import Disk, Messages, filled, open_store

from trio_stomp.store import JournalStore

BIG = 1 << 20
"""Bytes of a segment into which a test's messages fit."""


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def store(directory: str, disk: Disk) -> Iterator[JournalStore]:
    """Open a journal with small segments."""
    store, _ = open_store(directory, disk)
    yield store
    store.close()


def segments(disk: Disk) -> list[str]:
    """The journal's files, the oldest first."""
    return sorted(name for name in disk.files if "/journal/" in name)


def bodies_of(messages: Messages) -> dict[int, bytes]:
    return {id: body for found in messages.values() for id, (body, _) in found.items()}


def killed(disk: Disk) -> Disk:
    """Return the disk with all writes, as if the store was killed."""
    return Disk({path: filled(bytes(file.data)) for path, file in disk.files.items()})
