"""The checks of ``doctor`` on the data directory and its disk."""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trio_stomp.cli._banner import size
from trio_stomp.cli.commands._doctor._machine import FAIL, OK, WARN, Finding

LITTLE_BYTES, TOO_LITTLE_BYTES = 1 << 30, 64 << 20
SYNCS = 20
SYNC_BYTES = 4096
SLOW_SYNC_S = 0.020
"""A slower sync noticeably delays each persistent SEND."""
QUICK_SYNC_S = 0.000_02
"""A faster sync did not write to a disk."""
MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs")


def check_data_directory(path: str) -> Iterator[Finding]:
    """Check whether the data directory can be used."""
    if not path:
        text = "no --data-dir is given: without one, nothing survives a restart"
        yield Finding(OK, "data", text)
        return
    directory = Path(path)
    if directory.exists() and not directory.is_dir():
        yield Finding(FAIL, "data", f"{path} is not a directory", "name another with --data-dir")
        return
    there = _nearest(directory)
    if not os.access(there, os.W_OK | os.X_OK):
        yield Finding(
            FAIL,
            "data",
            f"{there} cannot be written to by this user",
            f"change its owner: chown USER {there}, or name another with --data-dir",
        )
        return
    yield Finding(OK, "data", f"{path} {'is there' if there == directory else 'can be made'}")
    yield check_space(path, shutil.disk_usage(there).free)
    if (found := check_kind(path, file_system(there))) is not None:
        yield found
    yield check_sync(there)


def _nearest(directory: Path) -> Path:
    """Return the directory or its nearest existing parent."""
    absolute = Path(os.path.abspath(directory))
    there = next(each for each in (absolute, *absolute.parents) if each.is_dir())
    return directory if there == absolute else there


def check_space(path: str, free_bytes: int) -> Finding:
    """Check the free space."""
    text = (
        f"{free_bytes / (1 << 30):,.1f} GiB free"
        if free_bytes >= 1 << 30
        else (f"{free_bytes >> 20} MiB free")
    )
    remedy = f"free some, or move {path} to a larger disk"
    if free_bytes < TOO_LITTLE_BYTES:
        return Finding(FAIL, "space", f"{text}: less than {size(TOO_LITTLE_BYTES)}", remedy)
    if free_bytes < LITTLE_BYTES:
        return Finding(WARN, "space", f"{text}: less than {size(LITTLE_BYTES)}", remedy)
    return Finding(OK, "space", text)


def file_system(path: Path, mounts: str = "/proc/mounts") -> str:
    """Return the type of the file system, or "" if it is unknown."""
    try:
        lines = Path(mounts).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    inside = os.path.realpath(path)
    best, kind = -1, ""
    for line in lines:
        words = line.split()
        if len(words) < 3:
            continue
        at = words[1].replace("\\040", " ").rstrip("/")
        # The last mount at a path covers the earlier ones.
        if (inside == at or inside.startswith(f"{at}/")) and len(at) >= best:
            best, kind = len(at), words[2]
    return kind


def check_kind(path: str, kind: str) -> Finding | None:
    """Check whether the directory is on a disk, not in memory."""
    if kind in MEMORY_FILE_SYSTEMS:
        text = f"{path} is in memory ({kind}): its content does not survive a reboot"
        return Finding(WARN, "disk", text, "name a directory on a disk with --data-dir")
    if kind in NETWORK_FILE_SYSTEMS:
        text = f"{path} is on a network file system ({kind}): locks and syncs may lie"
        return Finding(WARN, "disk", text, "name a directory on a local disk with --data-dir")
    return None


def check_sync(there: Path, clock: Callable[[], float] = time.perf_counter) -> Finding:
    """Measure the time of a sync."""
    try:
        median = _sync_s(there, clock)
    except OSError as error:
        return Finding(
            FAIL,
            "sync",
            f"{there} cannot be written to: {error.strerror}",
            "repair the disk, or name a directory on another with --data-dir",
        )
    text = f"{median * 1000:,.2f} ms to sync a write to the disk"
    if median > SLOW_SYNC_S:
        return Finding(
            WARN, "sync", f"{text}: each persistent SEND waits this long", "use a faster disk (SSD)"
        )
    if median < QUICK_SYNC_S:
        return Finding(
            WARN,
            "sync",
            f"{text}: implausibly fast; a power failure may lose messages",
            "use a disk, or a virtual one, that obeys fsync",
        )
    return Finding(OK, "sync", text)


def _sync_s(there: Path, clock: Callable[[], float]) -> float:
    sync = getattr(os, "fdatasync", os.fsync)
    taken: list[float] = []
    with tempfile.NamedTemporaryFile(dir=there, prefix=".trio_stomp-doctor-") as file:
        for _ in range(SYNCS):
            file.write(bytes(SYNC_BYTES))
            file.flush()
            before = clock()
            sync(file.fileno())
            taken.append(clock() - before)
    return statistics.median(taken)
