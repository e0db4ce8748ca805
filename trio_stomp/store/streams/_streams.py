"""The streams of a journal, one log for each."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256

from attrs import define, field

from trio_stomp.store._port import StreamState
from trio_stomp.store._records import (
    Append,
    Atomic,
    Begin,
    DropStream,
    Record,
    Trim,
    Turn,
)
from trio_stomp.store.disk import Files
from trio_stomp.store.streams._log import SEGMENT_BYTES, StreamLog
from trio_stomp.store.streams._recovery import NO_JOURNAL, JournalState

StreamRecord = Begin | Append | Trim | DropStream


def stream_records(turns: Sequence[Turn]) -> list[StreamRecord]:
    """Return the turns' records that concern streams, in order."""
    return [
        record
        for turn in turns
        for outer in turn.records
        for record in (outer.records if isinstance(outer, Atomic) else (outer,))
        if isinstance(record, StreamRecord)
    ]


def journal_records(turns: Sequence[Turn]) -> list[Record]:
    """Return the turns' records that do not concern streams, in order."""
    found: list[Record] = []
    for turn in turns:
        for record in turn.records:
            if isinstance(record, Atomic):
                parts = [part for part in record.records if not isinstance(part, StreamRecord)]
                record = record if len(parts) == len(record.records) else Atomic(parts)
            if not isinstance(record, StreamRecord):
                found.append(record)
    return found


def is_bound(turns: Sequence[Turn]) -> bool:
    """Return whether an append to a stream is part of an atomic group."""
    for turn in turns:
        for record in turn.records:
            if isinstance(record, Atomic) and any(isinstance(p, Append) for p in record.records):
                return True
    return False


def stream_directory(directory: str, name: str) -> str:
    """Return the directory of a stream's log. The log stores the name, so any is valid."""
    return f"{directory}/{sha256(name.encode()).hexdigest()[:32]}"


@define(eq=False)
class Streams:
    """All logs, and the steps of an append to them.

    Call ``write``, ``sync`` and ``finish``; or ``undo`` if something failed before ``finish``.
    Readers may see messages as soon as they are written, so they are synced even if not urgent.
    """

    _directory: str
    _files: Files
    _segment_bytes: int = SEGMENT_BYTES
    _logs: dict[str, StreamLog] = field(factory=dict)
    _touched: dict[str, StreamLog] = field(factory=dict)
    _begun: list[str] = field(factory=list)
    _to_drop: list[StreamLog] = field(factory=list)
    _unpacked_bytes: int = SEGMENT_BYTES
    """Bytes written since the last search for files to compress."""
    _packer: threading.Thread | None = None

    def open(self, journal_state: JournalState = NO_JOURNAL) -> tuple[list[str], list[str]]:
        """Open all streams, and return lines about damage and notes about doubtful cuts."""
        files = self._files
        files.make_directory(self._directory)
        lines: list[str] = []
        notes: list[str] = []
        for name in files.names(self._directory):
            log = StreamLog.open(
                f"{self._directory}/{name}", files, self._segment_bytes, journal_state
            )
            if log is not None:
                self._logs[log.name] = log
                lines += log.take_damage()
                notes += log.take_notes()
        files.sync_directory(self._directory)
        return lines, notes

    def write(self, records: Sequence[StreamRecord], commit: int = 0) -> None:
        """Begin streams and append to them.

        Args:
          records: The records, in order.
          commit: Commit of the journal that they depend on; 0 = none.

        Raises:
          OSError, StoreBroken: call ``undo``.
        """
        for record in records:
            if isinstance(record, Begin):
                self._begin(record)
            elif isinstance(record, Append):
                self._append(record, commit)

    def _begin(self, record: Begin) -> None:
        name = record.stream
        older = self._logs.pop(name, None)
        if older is not None:
            older.close()
        path = stream_directory(self._directory, name)
        log = StreamLog.create(path, self._files, name, record.epoch, self._segment_bytes)
        self._logs[name] = self._touched[name] = log
        self._begun.append(name)
        log.mark()
        if record.first:
            log.start_at(record.first)

    def _append(self, record: Append, commit: int) -> None:
        log = self._logs[record.stream]
        if record.stream not in self._touched:
            log.mark()
            self._touched[record.stream] = log
        log.append([record], commit)
        self._unpacked_bytes += sum(map(len, record.bodies))

    def sync(self) -> None:
        """Wait until all writes are on the disk.

        Raises:
          OSError, StoreBroken: call ``undo``.
        """
        for log in self._touched.values():
            log.sync()

    def undo(self) -> None:
        """Undo all writes since ``finish``.

        Raises:
          OSError, StoreBroken: that failed as well.
        """
        touched, self._touched = self._touched, {}
        begun, self._begun = self._begun, []
        for name, log in touched.items():
            if name in begun:
                del self._logs[name]
                log.drop()
            else:
                log.rollback()

    def leave(self) -> None:
        """Hide uncommitted writes but leave them on the disk: recovery decides."""
        touched, self._touched = self._touched, {}
        self._begun.clear()
        for log in touched.values():
            log.leave()

    def finish(self, records: Sequence[StreamRecord]) -> None:
        """Commit the writes, then trim and drop. Failures to delete files are ignored.

        Args:
          records: The records that were written.
        """
        self._touched.clear()
        self._begun.clear()
        latest = {record.stream: record for record in records if not isinstance(record, Trim)}
        for record in records:
            if isinstance(record, Trim) and record.stream in self._logs:
                with suppress(OSError):
                    self._logs[record.stream].trim(record.before)
        for name, record in latest.items():
            if isinstance(record, DropStream) and name in self._logs:
                self._to_drop.append(self._logs.pop(name))
        dropping, self._to_drop = self._to_drop, []
        for log in dropping:
            try:
                log.drop()
            except OSError:
                self._to_drop.append(log)
        self._pack()

    def get(self, name: str) -> StreamLog | None:
        """Return a stream's log, or None if there is no such stream."""
        return self._logs.get(name)

    def states(self) -> dict[str, StreamState]:
        """Return the states of all streams, by name."""
        return {name: log.state() for name, log in tuple(self._logs.items())}

    @property
    def damaged(self) -> int:
        """Return the number of damaged parts found."""
        return sum(log.damaged for log in tuple(self._logs.values()))

    def _pack(self) -> None:
        """Start a thread that compresses full files, if there may be some."""
        is_busy = self._packer is not None and self._packer.is_alive()
        if self._unpacked_bytes < self._segment_bytes or is_busy:
            return
        self._unpacked_bytes = 0
        work = [log.compress_one for log in self._logs.values()]
        self._packer = threading.Thread(target=_pack_all, args=(work,), daemon=True)
        self._packer.start()

    def close(self) -> None:
        """Close all logs."""
        if self._packer is not None:
            self._packer.join()
        for log in self._logs.values():
            log.close()
        self._logs.clear()


def _pack_all(work: Sequence[Callable[[], bool]]) -> None:
    for compress_one in work:
        # A file that cannot be compressed stays uncompressed.
        with suppress(OSError):
            while compress_one():
                pass
