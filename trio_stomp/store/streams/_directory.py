"""The directory of a stream, and the files that make it exist.

| file | what it is |
|---|---|
| ``<epoch>.epoch`` | empty: the stream is there, and this is its epoch |
| ``<number>-<part of it>.name`` | empty: such is its name |
| ``<first offset>-<marker>.log`` | records as they came; the last of these is being written |
| ``<first offset>-<marker>.packed`` | a full one, compressed |
| ``….packed.part`` | one that is becoming so: worth nothing until it has its name |
| ``damaged/`` | copies of what was found damaged, for somebody to look at |
| ``dropped`` | what the epoch's file becomes, until all others are gone |

Name and epoch are in names of files and in no file, so no bad sector takes them away.
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
"""So many characters of a stream's name go into that of one file."""


def begin_directory(directory: str, files: Files, name: str, epoch: str) -> None:
    """Begin an empty stream, remove what is left of an older one, and wait for the disk."""
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
    """Remove all files of a stream. After a crash it is all there, or not there any more."""
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
