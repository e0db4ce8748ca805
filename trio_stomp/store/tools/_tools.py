"""The operations on a store that no broker has open: inspect, verify, export, import, compact."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator

from attrs import frozen

from trio_stomp.store._port import Progress, Recovered, Store, StoreError
from trio_stomp.store._records import Turn
from trio_stomp.store.disk import OsFiles
from trio_stomp.store.journal import JournalStore
from trio_stomp.store.tools._content import pages
from trio_stomp.store.tools._inspect import scan_records
from trio_stomp.store.tools._interchange import export_lines, import_lines
from trio_stomp.store.tools._view import JournalView, View, open_view

STREAM_BYTES = 4 * 1024 * 1024
PATIENCE = 1000
"""Number of appends without progress after which ``compact`` gives up."""


@frozen
class CheckResult:
    """The result of ``verify``.

    Args:
      messages: Number of messages in places.
      streamed: Number of messages in streams.
      bytes: Size of their bodies.
      records: Number of records of the journal by kind; empty for a database.
      damage: A line for each damaged part, with file, position and size.
    """

    messages: int
    streamed: int
    bytes: int
    records: dict[str, int]
    damage: list[str]


def verify(target: str, progress: Progress) -> CheckResult:
    """Read all of a store, without changing it, and return what was found and is damaged.

    Args:
      target: A directory, or the URL of a database.
      progress: Called with the bytes done and the total.

    Raises:
      StoreError: the store cannot be read at all, or messages that it counts are missing.
    """
    view = open_view(target)
    try:
        recovered = view.recover(progress)
        damage = view.take_damage()
        counts: Counter[str] = Counter()
        if isinstance(view, JournalView):
            # Scan again record by record, for the kinds, and for damage in finished messages.
            damage = _scan(target, counts, damage)
        messages, size = _read_places(view, recovered)
        streamed, more = _read_streams(view, recovered)
        damage += view.take_damage()
    finally:
        view.close()
    return CheckResult(messages, streamed, size + more, dict(counts), list(dict.fromkeys(damage)))


def _scan(directory: str, counts: Counter[str], reported_lines: list[str]) -> list[str]:
    """Return a line for each damaged part, and count the journal's records by kind.

    Args:
      directory: The store's directory.
      counts: Is increased for each record.
      reported_lines: Lines that recovery reported.
    """
    lines = []
    try:
        for scanned in scan_records(directory.rstrip("/"), OsReadFiles()):
            counts[type(scanned.content).__name__ if scanned.content else "damaged"] += 1
            if scanned.damage:
                lines.append(
                    f"{scanned.path}: {scanned.damage}, {scanned.length} bytes "
                    f"from {scanned.offset} on"
                )
    except OSError as error:
        raise StoreError(f"{directory} cannot be read: {error}") from error
    # Prefer lines that name the copy which a broker has set aside.
    reported = {line.rpartition("; set aside in ")[0] or line: line for line in reported_lines}
    return [*(reported.pop(line, line) for line in lines), *reported.values()]


class OsReadFiles(OsFiles):
    """The system's files, opened for reading only."""

    def open(self, path: str) -> int:
        """Implement ``Files.open``."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _read_places(view: View, recovered: Recovered) -> tuple[int, int]:
    count = size = 0
    for key, state in recovered.places.items():
        for page in pages(view, key, state.count, STREAM_BYTES):
            count += sum(len(run.ids) for run in page.runs)
            size += sum(sum(map(len, run.bodies)) for run in page.runs)
    return count, size


def _read_streams(view: View, recovered: Recovered) -> tuple[int, int]:
    count = size = 0
    for name, state in recovered.streams.items():
        first = state.first
        while first < state.next and (runs := view.read_stream(name, first, STREAM_BYTES)):
            for run in runs:
                count += len(run.bodies)
                size += sum(map(len, run.bodies))
            first = runs[-1].first + len(runs[-1].bodies)
    return count, size


def inspect(target: str, progress: Progress) -> dict[str, object]:
    """Return a summary of a store as values for JSON, without changing it.

    Raises:
      StoreError: the store cannot be read at all.
    """
    view = open_view(target)
    try:
        recovered = view.recover(progress)
        return {
            "store": view.name,
            "commit": recovered.commit,
            "next_id": recovered.next_id,
            "places": list(_places(recovered)),
            "streams": [
                {
                    "name": name,
                    "epoch": state.epoch,
                    "first": state.first,
                    "next": state.next,
                    "bytes": state.bytes,
                }
                for name, state in sorted(recovered.streams.items())
            ],
            "settings": sorted(recovered.settings),
            "redelivered": len(recovered.deliveries),
            "files": [{"file": file, "bytes": size} for file, size in view.files()],
            "damage": view.take_damage(),
        }
    finally:
        view.close()


def _places(recovered: Recovered) -> Iterator[dict[str, object]]:
    for (place, level), state in sorted(recovered.places.items()):
        yield {
            "place": place,
            "level": level,
            "messages": state.count,
            "bytes": state.bytes,
            "first_id": state.first,
        }


def export_from(target: str, progress: Progress) -> Iterator[str]:
    """Yield the content of a store as lines of ``_interchange``, without changing it.

    Raises:
      StoreError: the store cannot be read.
    """
    view = open_view(target)
    try:
        recovered = view.recover(lambda _done, _total: None)
        yield from export_lines(view, recovered, progress)
    finally:
        view.close()


def import_to(target: str, lines: Iterable[str]) -> dict[str, int]:
    """Import the lines of ``export_from`` into a new directory or an empty database.

    Returns:
      Counts, as ``import_lines`` does.

    Raises:
      StoreError: as ``import_lines``.
      StoreLocked: a broker uses the store.
    """
    store = _open_store(target)
    try:
        return import_lines(store, lines)
    finally:
        store.close()


def _open_store(target: str) -> Store:
    if "://" not in target:
        return JournalStore(target)
    from trio_stomp.store import SqlStore

    return SqlStore(target)


def compact(directory: str, progress: Progress) -> tuple[int, int]:
    """Rewrite a journal without finished messages, and compress full stream files.

    It uses the cleaner of a running broker, so it may be killed at any moment.

    Returns:
      Bytes before and after.

    Raises:
      StoreLocked: a broker uses the store.
      StoreError: the directory has no journal, or the disk failed.
    """
    if "://" in directory:
        raise StoreError("a database compacts itself; use its command VACUUM")
    JournalView(directory).close()
    store = JournalStore(directory)
    commit = store.recover(lambda _done, _total: None).commit
    try:
        before = store.statistics().bytes
        _rewrite(store, commit, progress)
        after = store.statistics().bytes
    finally:
        store.close()
    return before, after


def _rewrite(store: JournalStore, commit: int, progress: Progress) -> None:
    """Make the cleaner copy every existing segment, however many live messages it has."""
    writer, shared = store._writer, store._shared
    assert writer is not None
    cleaner = writer._cleaner
    newest = next(reversed(shared.segments))
    total, stalled, left = shared.bytes, 0, (-1, -1)
    while (oldest := next(iter(shared.segments))) < newest:
        cleaner.is_cleaning = True
        commit = store.append([Turn(())], commit)
        now = oldest, len(cleaner._work)
        stalled = stalled + 1 if now == left else 0
        left = now
        if stalled > PATIENCE:
            raise StoreError(f"{shared.segments[oldest].path} cannot be deleted: repair the disk")
        old = sum(each.end for number, each in shared.segments.items() if number < newest)
        progress(total - old, total)
    for name in store._streams.states():
        log = store._streams.get(name)
        while log is not None and log.compress_one():
            pass
