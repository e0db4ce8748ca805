"""Appends to the journal, and handles failures of the disk."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EDQUOT, ENOSPC

from attrs import define, field

from trio_stomp.store._options import JournalOptions
from trio_stomp.store._port import StoreBroken, StoreError, StoreUnavailable
from trio_stomp.store._records import Record, Turn
from trio_stomp.store.journal._cleaner import Cleaner, Piece
from trio_stomp.store.journal._index import Index
from trio_stomp.store.journal._opening import cut, replay
from trio_stomp.store.journal._shared import Shared
from trio_stomp.store.journal._tail import Batch, Tail
from trio_stomp.store.streams import journal_records

MAX_UNSYNCED_BYTES = 4 * 1024 * 1024
"""Maximum bytes of deferred records, which are also held in memory until they are synced."""
PIECE_BYTES = 256 * 1024
"""Bytes copied out of the oldest segment with an append, plus four times the last append's size."""
PIECES_AT_ONCE = 16
"""Maximum number of pieces copied before an append is refused because the store is full."""
SEGMENTS_WITHIN_LIMIT = 8
"""Minimum number of segments of a limited store, so that deleting one frees enough space."""


@define(eq=False)
class Writer:
    """The appending thread's part of a journal.

    Args:
      commit: Commit number of the last turn.
      commits: Turns appended since the start.
      broken: Why it must not be used any more; "" if it may be.
    """

    _shared: Shared
    _options: JournalOptions
    _tail: Tail
    commit: int
    _is_ours: Callable[[], bool]
    commits: int = 0
    broken: str = ""
    _cleaner: Cleaner = field(init=False)
    _unsynced: list[Record] = field(factory=list)
    _unsynced_turns: int = 0
    _batch_bytes: int = 0
    _syncs: int = 0
    _sync_s: float = 0.0

    def __attrs_post_init__(self) -> None:
        self._shared.segments[self._tail.segment.number] = self._tail.segment
        self._cleaner = Cleaner(self._shared)
        self._cleaner.judge()

    @classmethod
    def begin(
        cls,
        shared: Shared,
        options: JournalOptions,
        number: int,
        commit: int,
        is_ours: Callable[[], bool],
    ) -> "Writer":
        """Begin a new segment, and return its writer.

        Args:
          shared: The state shared with readers.
          options: The store's options.
          number: Number of the new segment.
          commit: Number of the last commit.
          is_ours: Returns whether the directory's path still names the locked directory.
        """
        tail = Tail.begin(shared.files, shared.journal, number, commit, shared.index.next_id)
        return cls(shared, options, tail, commit, is_ours)

    def append(self, turns: Sequence[Turn], is_tied: bool = False) -> None:
        """Append turns, as ``Store.append`` does.

        Args:
          turns: The turns, in order.
          is_tied: Records in streams depend on this commit, which is therefore synced.
        """
        while True:
            try:
                return self._append_turns(turns, is_tied)
            except StoreUnavailable as error:
                cause = error.__cause__
                is_full = isinstance(cause, OSError) and cause.errno in (ENOSPC, EDQUOT)
                if not is_full or not self._gains_room():
                    raise

    def _gains_room(self) -> bool:
        """Delete old segments, though nothing can be appended. Return whether there was one.

        The disk may be full of them: only appends delete any, and copy what lives in them.
        """
        count = len(self._shared.segments)
        self.sync()
        self._cleaner.judge()
        with suppress(StoreUnavailable):
            for _ in range(PIECES_AT_ONCE):
                self._tidy()
                if len(self._shared.segments) < count:
                    return True
                if not self._cleaner.is_cleaning:
                    return False
                self._append(*self._encode((), piece_bytes=1), (), ())
        self._cleaner.is_cleaning = False
        return False

    def _append_turns(self, turns: Sequence[Turn], is_tied: bool) -> None:
        records = journal_records(turns)
        batch, piece = self._encode(records)
        if self._is_too_much(batch):
            self._make_room(batch)
            batch, piece = self._encode(records)
            if self._is_too_much(batch):
                raise StoreUnavailable(
                    f"{self._shared.journal} has reached max_store_bytes "
                    f"({self._options.max_store_bytes}); nothing of this was stored. "
                    "Consume messages or raise the limit"
                )
        self._append(batch, piece, turns, records, is_tied)

    def _append(
        self,
        batch: Batch,
        piece: Piece,
        turns: Sequence[Turn],
        records: Sequence[Record],
        is_tied: bool = False,
    ) -> None:
        tail = self._tail
        self._write(batch, self.commit + len(turns), len(turns))
        is_large = tail.segment.end - tail.synced > MAX_UNSYNCED_BYTES
        if is_tied or is_large or not turns or any(turn.is_urgent for turn in turns):
            self.sync()
        else:
            self._unsynced += records
            self._unsynced_turns += len(turns)
        self.commit += len(turns)
        self.commits += len(turns)
        self._batch_bytes = batch.size
        self._apply(batch, piece)
        self._tidy()

    def _is_too_much(self, batch: Batch) -> bool:
        limit = self._options.max_store_bytes
        return bool(batch.grows and limit and self._shared.bytes + batch.size > limit)

    def _make_room(self, batch: Batch) -> None:
        """Free space by copying at most PIECES_AT_ONCE pieces out of old segments."""
        self._cleaner.judge(is_crowded=True)
        for _ in range(PIECES_AT_ONCE):
            if not self._cleaner.is_cleaning or not self._is_too_much(batch):
                return
            self._append(*self._encode(()), (), ())

    def _tidy(self) -> None:
        """Free disk space. Ignore failures, because the append itself is stored."""
        with suppress(OSError):
            self._shared.sweep()
            if self._tail.is_synced:
                self._cleaner.free()

    def sync(self) -> None:
        """Sync everything written.

        Raises:
          StoreUnavailable: earlier appends are stored, but not the one that called this.
          StoreBroken: it is unknown what is stored.
        """
        if self.broken or self._tail.is_synced:
            return
        try:
            self._tail.sync()
        except OSError as error:
            try:
                self._begin_anew()
            except (OSError, StoreError) as second:
                raise self._break(second) from second
            raise self._unavailable(error) from error
        self._forget_unsynced()

    def sync_figures(self) -> tuple[int, float]:
        """Return the number of syncs and the seconds spent in them."""
        return self._syncs + self._tail.syncs, self._sync_s + self._tail.sync_s

    def close(self) -> None:
        """Mark the journal as closed, if everything is synced, and close the file."""
        tail = self._tail
        if tail.is_synced and not self.broken:
            batch = Batch(tail.segment.marker, self._shared.index.next_id)
            # The mark may fail: it only helps to diagnose damage.
            with suppress(OSError):
                tail.write(batch.buffers(self.commit, 0, tail.synced, is_closed=True), batch.size)
                tail.sync()
        tail.close()

    def _next_piece(self, size: int) -> Piece:
        try:
            return self._cleaner.next_piece(size or PIECE_BYTES + 4 * self._batch_bytes)
        except OSError as error:
            raise self._unavailable(error) from error

    def _forget_unsynced(self) -> None:
        self._unsynced.clear()
        self._unsynced_turns = 0

    def _encode(self, records: Sequence[Record], piece_bytes: int = 0) -> tuple[Batch, Piece]:
        """Encode records, preceded by the copies of the next piece.

        Copies come first, because the records may finish the copied messages.
        """
        self._roll()
        piece = self._next_piece(piece_bytes)
        batch = Batch(self._tail.segment.marker, self._shared.index.next_id)
        for copy in piece.copies:
            batch.add(copy)
        for setting in piece.settings:
            batch.add(setting)
        batch.grows = False
        for record in records:
            batch.add(record)
        return batch, piece

    def _write(self, batch: Batch, commit: int, turns: int) -> None:
        try:
            self._tail.write(batch.buffers(commit, turns, self._tail.synced), batch.size)
        except OSError as error:
            # If disk space is short, copying would aggravate that.
            self._cleaner.is_cleaning = False
            try:
                self._tail.cut_back()
            except OSError as second:
                raise self._break(second) from second
            raise self._unavailable(error) from error

    def _apply(self, batch: Batch, piece: Piece) -> None:
        segment = self._tail.segment
        base = segment.end - batch.size
        with self._shared.lock:
            self._cleaner.give_up(piece)
            for record, start, end in batch.entries:
                self._shared.apply(record, segment.number, base + start, base + end)

    def _roll(self) -> None:
        """Begin a new segment if the current one is full."""
        full, limit = self._options.segment_bytes, self._options.max_store_bytes
        if limit:
            full = min(full, limit // SEGMENTS_WITHIN_LIMIT)
        if self._tail.segment.end < full:
            return
        # Only the last segment may be torn.
        self.sync()
        if not self._is_ours():
            raise self._break(StoreError("its directory was moved or replaced"))
        try:
            self._begin(self._shared.index)
        except OSError as error:
            raise self._unavailable(error) from error

    def _begin(self, index: Index) -> None:
        """Begin a new segment, and replace the index by one of all earlier segments."""
        shared, before = self._shared, self._tail
        number = before.segment.number + 1
        self._tail = Tail.begin(shared.files, shared.journal, number, self.commit, index.next_id)
        with shared.lock:
            shared.segments[number] = self._tail.segment
            shared.index = index
        self._retire(before)
        self._cleaner.judge()

    def _retire(self, tail: Tail) -> None:
        self._syncs += tail.syncs
        self._sync_s += tail.sync_s
        with suppress(OSError):
            tail.close()

    def _begin_anew(self) -> None:
        """Continue in a new segment after a failed sync.

        A second sync would report success, although the system has dropped the unwritten data. So
        the segment is truncated to its last synced size, read again to verify it, and never written
        to any more. Deferred records of accepted appends are written to the new segment.

        Raises:
          OSError: the disk failed again.
          StoreError: the synced part is damaged.
        """
        shared, tail = self._shared, self._tail
        cut(shared.files, tail.segment.path, tail.synced)
        segments, found = list(shared.segments.values()), shared.quarantine.found
        recovered = replay(
            shared.files, segments, shared.quarantine, lambda _done, _size: None, True
        )
        if shared.quarantine.found > found:
            raise StoreError(recovered.damage[0])
        self._begin(recovered.index)
        self._cleaner = Cleaner(shared)
        if self._unsynced_turns:
            self._cleaner.is_cleaning = False
            batch, piece = self._encode(self._unsynced)
            buffers = batch.buffers(self.commit, self._unsynced_turns, self._tail.synced)
            self._tail.write(buffers, batch.size)
            self._tail.sync()
            self._apply(batch, piece)
            self._forget_unsynced()

    def _unavailable(self, error: OSError) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._shared.journal} cannot be written: {error}; nothing of this was stored. "
            "Make room on the disk, or repair it"
        )

    def _break(self, error: Exception) -> StoreBroken:
        self.broken = (
            f"{self._shared.journal}: {error}; the state on the disk is unknown. "
            "Repair it and restart the broker"
        )
        return StoreBroken(self.broken)
