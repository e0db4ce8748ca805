"""The directory of a stream.

| file | content |
|---|---|
| ``<epoch>.epoch`` | empty; the stream exists, with this epoch |
| ``<number>-<part>.name`` | empty; a part of the stream's name |
| ``<first offset>-<marker>.log`` | records; the newest of these files is appended to |
| ``<first offset>-<marker>.packed`` | a full file, compressed |
| ``….packed.part`` | an incomplete compressed file, ignored |
| ``damaged/`` | copies of damaged bytes, for inspection |
| ``dropped`` | the renamed ``.epoch`` file, while the stream is being removed |

Name and epoch are stored in file names only, so that no bad sector can destroy them.
"""

import os
from contextlib import suppress
from urllib.parse import quote, unquote

from trio_stomp.store.disk import Files
from trio_stomp.store.streams._damage import DAMAGED
from trio_stomp.store.streams._segment import STEM, UNFINISHED

EPOCH = ".epoch"
NAME = ".name"
DROPPED = "dropped"
NAME_PART = 200
"""Maximum number of characters of a stream's name in one file name."""


def begin_directory(directory: str, files: Files, name: str, epoch: str) -> None:
    """Begin an empty stream, remove the files of an older one, and sync."""
    files.make_directory(directory)
    clear_directory(directory, files)
    quoted = quote(name, safe="")
    for number, start in enumerate(range(0, len(quoted), NAME_PART)):
        part = f"{number:04}-{quoted[start : start + NAME_PART]}{NAME}"
        files.close(files.create(os.path.join(directory, part)))
    files.sync_directory(directory)
    files.close(files.create(os.path.join(directory, quote(epoch, safe="") + EPOCH)))
    files.sync_directory(directory)
    files.sync_directory(os.path.dirname(directory))


def read_directory(directory: str, files: Files) -> tuple[str, str, set[str]] | None:
    """Return a stream's name, its epoch and its file names, or None if there is no stream."""
    names = set(files.names(directory))
    if DROPPED in names:
        clear_directory(directory, files)
        return None
    epoch = next((name for name in names if name.endswith(EPOCH)), None)
    if epoch is None:
        return None
    parts = sorted(name for name in names if name.endswith(NAME))
    quoted = "".join(part.partition("-")[2].removesuffix(NAME) for part in parts)
    return unquote(quoted), unquote(epoch.removesuffix(EPOCH)), names


def clear_directory(directory: str, files: Files) -> None:
    """Remove all files of a stream. After a crash the stream either exists as a whole or not."""
    names = files.names(directory)
    dropped = os.path.join(directory, DROPPED)
    for name in names:
        if name.endswith(EPOCH):
            files.rename(os.path.join(directory, name), dropped)
            files.sync_directory(directory)
    for name in names:
        if name.endswith(NAME) or STEM.fullmatch(name.removesuffix(UNFINISHED)):
            files.remove(os.path.join(directory, name))
    if DAMAGED in names:
        damaged = os.path.join(directory, DAMAGED)
        for name in files.names(damaged):
            files.remove(os.path.join(damaged, name))
    with suppress(FileNotFoundError):
        files.remove(dropped)
