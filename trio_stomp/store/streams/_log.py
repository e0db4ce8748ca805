"""One stream on the disk: a directory of files, each a part of the log.

One thread appends, marks, rolls back and trims; another may compress; any thread may read. A read
opens its file, and looks it up again if it was replaced or removed meanwhile. So an idle stream has
no open file.

| file in the directory | content |
|---|---|
| ``<epoch>.epoch`` | empty; the stream exists, with this epoch |
| ``<number>-<part>.name`` | empty; a part of the stream's name |
| ``<first offset>-<marker>.log`` | records; the newest of these files is appended to |
| ``<first offset>-<marker>.packed`` | a full file, compressed |
| ``….packed.part`` | an incomplete compressed file, ignored |
| ``damaged/`` | copies of damaged bytes, for inspection |
| ``dropped`` | the renamed ``.epoch`` file, while the stream is being removed |

Name and epoch are stored in file names only, so that no bad sector can destroy them.

Failures of the disk are raised as ``OSError``, without a text for operators.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from secrets import token_bytes
from urllib.parse import quote, unquote

from trio_stomp.store._port import StoreBroken, Streamed, StreamState
from trio_stomp.store._records import Append
from trio_stomp.store.disk import Files
from trio_stomp.store.streams._damage import DAMAGED, StreamDamage
from trio_stomp.store.streams._format import (
    MARKER_BYTES,
    count_messages,
    decode_block,
    decode_run,
    encode_run,
    split_bodies,
    tail_of,
    walk,
)
from trio_stomp.store.streams._index import StreamIndex
from trio_stomp.store.streams._recovery import NO_JOURNAL, JournalState, is_whole, recover_segments
from trio_stomp.store.streams._segment import (
    STEM,
    UNFINISHED,
    Extent,
    Segment,
    opened,
    segment_path,
    write_packed,
)

SEGMENT_BYTES = 16 * 1024 * 1024
EPOCH = ".epoch"
NAME = ".name"
DROPPED = "dropped"
NAME_PART = 200
"""Maximum number of characters of a stream's name in one file name."""


class StreamLog:
    """The messages of one stream, by offset. Use ``create`` or ``open``.

    Args:
      directory: Used by this log alone.
      files: The disk.
      name: Name of the stream.
      epoch: Epoch of the stream.
      segment_bytes: Size at which a file is full.
    """

    def __init__(
        self, directory: str, files: Files, name: str, epoch: str, segment_bytes: int
    ) -> None:
        self.directory = directory
        self.name = name
        self.epoch = epoch
        self._files = files
        self._segment_bytes = segment_bytes
        self._damage = StreamDamage(directory, files)
        self._index = StreamIndex()
        self._handle: int | None = None
        """The open newest segment, while it is not synced."""
        self._is_touched = False
        """Writes were begun since the mark."""
        self._is_synced = True
        self._since = 0
        """Size of the newest segment at its last sync."""
        self._in_doubt = False
        """A sync failed: the state of the disk is unknown until ``rollback`` reads it."""
        self._is_broken = False
        """The state of the disk is unknown until the log is opened again."""
        self._packing = threading.Lock()

    @classmethod
    def create(
        cls,
        directory: str,
        files: Files,
        name: str,
        epoch: str,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> "StreamLog":
        """Create an empty stream, remove the files of an older one, and sync."""
        begin_directory(directory, files, name, epoch)
        return cls(directory, files, name, epoch, segment_bytes)

    @classmethod
    def open(
        cls,
        directory: str,
        files: Files,
        segment_bytes: int = SEGMENT_BYTES,
        journal_state: JournalState = NO_JOURNAL,
    ) -> "StreamLog | None":
        """Open and read a stream's log. Return None if it was never begun, or was dropped.

        Syncs its content, so that readers never see messages that a power cut could remove. Damaged
        parts are set aside and reported by ``take_damage``.
        """
        found = read_directory(directory, files)
        if found is None:
            return None
        name, epoch, names = found
        log = cls(directory, files, name, epoch, segment_bytes)
        log._index = StreamIndex(recover_segments(names, files, log._damage, journal_state))
        files.sync_directory(directory)
        return log

    # For the appending thread.

    def mark(self) -> None:
        """Confirm all content: ``rollback`` returns to here. Call this before ``append``.

        Raises:
          StoreBroken: an earlier ``rollback`` failed or is missing.
        """
        self._insist(not self._in_doubt)
        self._index.mark()
        self._is_touched = False

    def _insist(self, is_known: bool) -> None:
        if self._is_broken or not is_known:
            raise StoreBroken(f"{self.directory}: the state on the disk is unknown; restart")

    def start_at(self, offset: int) -> None:
        """Set the first offset of an empty log, which is stored in a file's name."""
        self._index.next = offset
        self._is_touched = True
        self._writable()

    def append(self, records: Sequence[Append], commit: int = 0) -> None:
        """Write messages at the end. They can be read at once, and are durable after ``sync``.

        Args:
          records: The records, in order.
          commit: Commit of the journal that they depend on; 0 = none.

        Raises:
          ValueError: an offset is not the next one; nothing was done.
          OSError: the disk failed; call ``rollback``.
        """
        self._check_offsets(records)
        self._is_touched = True
        tail = self._writable()
        at = tail.end
        if self._is_synced:
            self._since = at
        since = self._since
        buffers: list[bytes] = []
        added: list[tuple[int, int, int, int, int]] = []
        for record in records:
            for first, bodies in split_bodies(record.first, record.bodies):
                parts = encode_run(
                    tail.marker,
                    first=first,
                    head=record.head,
                    bodies=bodies,
                    written_ms=record.written_ms,
                    since=since,
                    commit=commit,
                )
                buffers += parts
                end = at + sum(map(len, parts))
                added.append((at, end, first, first + len(bodies), record.written_ms))
                at = end
        self._is_synced = False
        self._files.write(self._open_tail(tail), tail.end, buffers)
        self._index.add_runs(added)

    def _check_offsets(self, records: Sequence[Append]) -> None:
        expected = self._index.next
        for record in records:
            if record.first != expected:
                raise ValueError(f"{record.stream}: offset {record.first} is not {expected}")
            expected += len(record.bodies)

    def _writable(self) -> Segment:
        """Return the segment to append to: the newest one, or a new one."""
        tail = self._index.tail
        if tail is not None and not tail.is_sealed and tail.end < self._segment_bytes:
            return tail
        self.sync()
        marker, first = token_bytes(MARKER_BYTES), self._index.next
        path = segment_path(self.directory, first, marker)
        self._handle = self._files.create(path)
        segment = Segment(path, marker, first, first)
        self._index.add_segment(segment)
        self._files.sync_directory(self.directory)
        return segment

    def _open_tail(self, tail: Segment) -> int:
        if self._handle is None:
            self._handle = self._files.open(tail.path)
        return self._handle

    def _close_tail(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._files.close(handle)

    def sync(self) -> None:
        """Sync all files.

        Raises:
          OSError: the disk failed; call ``rollback``.
          StoreBroken: an earlier ``rollback`` failed or is missing.
        """
        self._insist(not self._in_doubt)
        handle = self._handle
        if self._is_synced or handle is None:
            return
        self._in_doubt = True
        self._files.sync(handle)
        self._in_doubt = False
        self._is_synced = True
        self._close_tail()

    def rollback(self) -> None:
        """Undo all appends since ``mark``, synced or not.

        Raises:
          StoreBroken: that failed, or older records are damaged.
        """
        self._insist(True)
        if not (self._is_touched or self._in_doubt):
            return
        self._is_broken = True
        try:
            self._restore(self._index.cut())
        except OSError as error:
            text = f"{self.directory}: a failed commit cannot be undone: {error}; restart"
            raise StoreBroken(text) from error
        self._is_broken = self._in_doubt = self._is_touched = False
        self._is_synced = True

    def leave(self) -> None:
        """Hide appends since ``mark``, but leave them on the disk: recovery decides."""
        self._is_broken = True
        self._close_tail()
        self._index.cut()

    def _restore(self, newer: Sequence[Segment]) -> None:
        self._close_tail()
        for segment in newer:
            self._files.remove(segment.path)
        if newer:
            # If one reappeared after a crash, two files would have its offsets.
            self._files.sync_directory(self.directory)
        tail = self._index.tail
        if tail is None or tail.is_sealed:
            return
        with opened(self._files, self._files.open(tail.path)) as handle:
            self._files.truncate(handle, tail.end)
            self._files.sync(handle)
            if self._in_doubt:
                # After a failed sync the system may count data as written that the disk never got.
                self._files.forget_cached(handle)
                if not is_whole(tail, self._files.read(handle, 0, tail.end)):
                    raise StoreBroken(f"{tail.path}: written data was lost; restart")

    def trim(self, before: int) -> None:
        """Remove files whose messages all precede an offset. This cannot be undone.

        The newest file at ``mark`` stays, and so does a file that is being compressed.
        """
        while (segment := self._index.pop_oldest(before)) is not None:
            try:
                self._files.remove(segment.path)
            except OSError:
                self._index.put_back(segment)
                raise

    def drop(self) -> None:
        """Remove the stream with its files. Call it instead of ``close``."""
        with self._packing:
            self._close_tail()
            self._index.clear()
            clear_directory(self.directory, self._files)

    def close(self) -> None:
        """Close the open file, without a sync. Waits for a running compression."""
        with self._packing:
            self._close_tail()

    # For any thread.

    def compress_one(self) -> bool:
        """Compress the oldest full file, and return whether there was one.

        Other threads may use the log meanwhile.

        Raises:
          OSError: the disk failed; the content is unchanged.
        """
        with self._packing:
            raw = self._index.claim_raw()
            if raw is None:
                return False
            try:
                self._pack(raw)
            finally:
                self._index.release()
            return True

    def _pack(self, raw: Segment) -> None:
        packed = write_packed(raw, self._files, self._damage)
        self._index.replace(raw, packed)
        try:
            self._files.remove(raw.path)
        except OSError:
            # The next start would find both files.
            self._index.replace(packed, raw)
            with suppress(OSError):
                self._files.remove(packed.path)
            raise

    def read(self, first: int, limit_bytes: int) -> list[Streamed]:
        """Implement ``Store.read_stream``. It reads whole records, or they would be decoded twice.

        Raises:
          OSError: the disk failed.
        """
        runs: list[Streamed] = []
        while (extent := self._index.find(first)) is not None:
            data = self._load(extent)
            if data is None:
                continue
            for run in self._runs(extent, data, first):
                part, size = tail_of(run, first)
                runs.append(part)
                limit_bytes -= size
                if limit_bytes <= 0:
                    return runs
            first = extent.next
        return runs

    def _load(self, extent: Extent) -> bytes | None:
        """Return the records of an extent, or None if its file was replaced or removed."""
        try:
            handle = self._files.open(extent.path)
        except FileNotFoundError:
            if self._index.holds(extent.segment):
                raise
            return None
        with opened(self._files, handle):
            data = self._files.read(handle, extent.at, extent.size)
        if not extent.is_packed:
            return data
        records = decode_block(data, extent.marker)
        if records is None:
            self._damage.set_aside(extent.path, extent.at, data)
        return records or b""

    def _runs(self, extent: Extent, data: bytes, first: int) -> Iterator[Streamed]:
        """Yield the messages of an extent, from the record that holds ``first`` on."""
        for at, end, header in walk(data, extent.marker):
            runs: list[Streamed] = []
            if header is not None:
                if header.next <= first:
                    continue
                runs = decode_run(data, at, header)
                if count_messages(runs) == header.count:
                    yield runs[0]
                    first = header.next  # skips a repeated record
                    continue
            # The records of a block were checked when it was compressed, and records that were
            # rolled back meanwhile are not damaged.
            if not extent.is_packed and not extent.is_outdated:
                self._damage.set_aside(extent.path, extent.at + at, data[at:end])
            yield from (run for run in runs if run.first + len(run.bodies) > first)

    def find_offset(self, written_ms: int) -> int:
        """Implement ``Store.find_offset``.

        Raises:
          OSError: the disk failed.
        """
        while (extent := self._index.find_time(written_ms)) is not None:
            data = self._load(extent)
            if data is None:
                continue
            for _, _, header in walk(data, extent.marker):
                if header is not None and header.written_ms >= written_ms:
                    return header.first
            following = self._index.find(extent.next)
            if following is not None:
                return following.first
            break
        return self._index.next

    def state(self) -> StreamState:
        """Return the current state of the log."""
        return StreamState(self.epoch, *self._index.figures())

    @property
    def damaged(self) -> int:
        """Return the number of damaged parts found since the log was opened."""
        return self._damage.count

    def take_damage(self) -> list[str]:
        """Return a line for each damaged part found since the last call."""
        return self._damage.take_lines()

    def take_notes(self) -> list[str]:
        """Return notes on parts that opening cut off although they seemed to be complete."""
        return self._damage.take_notes()


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
