"""The journal: a store in append-only files of its own.

| in the directory | content |
|---|---|
| ``lock`` | the process id of the broker that uses it |
| ``journal/<number>-<marker>.log`` | segments: records of places and settings, oldest first |
| ``streams/`` | the logs of streams |
| ``damaged/`` | copies of damaged bytes, for inspection |
"""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from attrs import evolve

from trio_stomp.store._options import JournalOptions
from trio_stomp.store._port import (
    Page,
    Progress,
    Recovered,
    StaleSequence,
    StoreBroken,
    StoreError,
    StoreStatistics,
    StoreUnavailable,
    Streamed,
    StreamState,
)
from trio_stomp.store._records import Turn
from trio_stomp.store.disk import DirectoryLock, Files, OsFiles
from trio_stomp.store.journal._opening import cut_torn, replay
from trio_stomp.store.journal._replay import summarize
from trio_stomp.store.journal._segment import list_segments
from trio_stomp.store.journal._shared import Shared
from trio_stomp.store.journal._writer import Writer
from trio_stomp.store.streams import Streams, is_bound, stream_records

if TYPE_CHECKING:
    from trio_stomp.store.journal._tally import Tally


class JournalStore:
    """Keeps messages, settings and streams in files of a directory.

    Args:
      directory: Used by this store alone; created if missing.
      files: The disk; None = the operating system's.
      options: Sizes; None = defaults.
      follows: Keep what ``state`` needs up to date, for a store that another broker's follows.
    """

    name = "stored:journal"

    def __init__(
        self,
        directory: str,
        files: Files | None = None,
        options: JournalOptions | None = None,
        *,
        follows: bool = False,
    ) -> None:
        self._directory = directory
        self._files = files or OsFiles()
        self._options = options or JournalOptions()
        self._shared = Shared(directory, self._files)
        self._streams = Streams(f"{directory}/streams", self._files)
        self._writer: Writer | None = None
        self._lock: DirectoryLock | None = None
        self._follows = follows
        self._tally: Tally | None = None

    def recover(self, progress: Progress) -> Recovered:
        """Implement ``Store.recover``."""
        shared = self._shared
        try:
            self._files.make_directory(self._directory)
            self._files.make_directory(shared.journal)
            lock = self._lock = DirectoryLock(f"{self._directory}/lock")
            segments = list_segments(self._files, shared.journal)
            found = replay(self._files, segments, shared.quarantine, progress)
            damage, notes = self._streams.open(found.journal_state(segments))
            number = cut_torn(self._files, segments)
            shared.index = found.index
            shared.segments = {segment.number: segment for segment in segments}
            shared.sweep()
            self._writer = Writer.begin(shared, self._options, number, found.commit, lock.is_ours)
            self._tally = found.tally
            recovered = self.state()
        except BaseException as error:  # also if the start is given up
            self.close()
            if not isinstance(error, OSError):
                raise
            raise StoreError(
                f"{self._directory} cannot be opened: {error}. Repair it and restart the broker"
            ) from error
        shared.keeps_small = self._follows
        if not self._follows:
            self._tally = None
        return evolve(recovered, damage=found.damage + damage, notes=found.notes + notes)

    def state(self) -> Recovered:
        """Return the present content of a store that ``follows``, as ``recover`` would.

        The appending thread calls it.

        Raises:
          OSError: the disk failed.
        """
        assert self._writer is not None
        index = self._shared.index
        return Recovered(
            commit=self._writer.commit,
            next_id=index.next_id,
            places=summarize(index, self._shared.read_extent, self._tally),
            settings={key: text for key, (text, _) in index.settings.items()},
            deliveries=dict(index.deliveries),
            streams=self._streams.states(),
        )

    def append(self, turns: Sequence[Turn], expected: int) -> int:
        """Implement ``Store.append``."""
        writer = self._writer
        if writer is None or writer.broken:
            raise StoreBroken(writer.broken if writer else f"{self._directory} is not open")
        if expected != writer.commit:
            raise StaleSequence(
                f"{self._directory}: the last commit is {writer.commit}, not {expected}"
            )
        if not self._follows:
            with self._shared.lock:
                self._shared.index.small.clear()
        if records := stream_records(turns):
            # Records of a stream that belong to an atomic group are valid by its commit number.
            is_tied = is_bound(turns)
            try:
                self._streams.write(records, writer.commit + len(turns) if is_tied else 0)
                self._streams.sync()
                writer.append(turns, is_tied)
            except BaseException as error:
                self._undo(error)
                raise
            self._streams.finish(records)
        elif turns:
            writer.append(turns)
        if self._tally is not None:
            self._tally.note(turns)
            self._tally.prune(self._shared.index.live)
        return writer.commit

    def _undo(self, error: BaseException) -> None:
        """Undo the streams' part of an append that failed."""
        if self._writer is not None and self._writer.broken:
            # It is unknown whether the journal has it. Recovery decides, and cuts the streams.
            self._streams.leave()
            return
        streams = f"{self._directory}/streams"
        try:
            self._streams.undo()
        except (OSError, StoreBroken) as second:
            assert self._writer is not None
            self._writer.broken = f"{streams}: {second}. Repair it and restart the broker"
            raise StoreBroken(self._writer.broken) from second
        if isinstance(error, OSError):
            raise StoreUnavailable(
                f"{streams} cannot be written: {error}; nothing of this was stored. "
                "Make room on the disk, or repair it"
            ) from error

    def read(self, place: str, level: int, after: int, limit_bytes: int) -> Page:
        """Implement ``Store.read``."""
        return self._shared.read((place, level), after, limit_bytes)

    def read_stream(self, stream: str, first: int, limit_bytes: int) -> list[Streamed]:
        """Implement ``Store.read_stream``."""
        log = self._streams.get(stream)
        try:
            return [] if log is None else log.read(first, limit_bytes)
        except OSError as error:
            raise StoreError(f"{self._directory}/streams cannot be read: {error}") from error

    def find_offset(self, stream: str, written_ms: int) -> int:
        """Implement ``Store.find_offset``, and return 0 if there is no such stream."""
        log = self._streams.get(stream)
        try:
            return 0 if log is None else log.find_offset(written_ms)
        except OSError as error:
            raise StoreError(f"{self._directory}/streams cannot be read: {error}") from error

    def stream_state(self, stream: str) -> StreamState | None:
        """Implement ``Store.stream_state``."""
        log = self._streams.get(stream)
        return None if log is None else log.state()

    def capacity(self) -> int:
        """Implement ``Store.capacity``: its size plus free disk space, or ``max_store_bytes``."""
        with suppress(OSError):
            size = self._shared.bytes + shutil.disk_usage(self._directory).free
            return min(size, self._options.max_store_bytes or size)
        return self._options.max_store_bytes

    def statistics(self) -> StoreStatistics:
        """Implement ``Store.statistics``."""
        shared, writer = self._shared, self._writer
        syncs, sync_s = writer.sync_figures() if writer else (0, 0.0)
        return StoreStatistics(
            bytes=shared.bytes + sum(state.bytes for state in self._streams.states().values()),
            limit_bytes=self._options.max_store_bytes,
            live_messages=shared.index.live.count,
            files=len(shared.segments),
            commits=writer.commits if writer else 0,
            syncs=syncs,
            sync_s=sync_s,
            damaged=shared.quarantine.found + self._streams.damaged,
        )

    def close(self) -> None:
        """Implement ``Store.close``.

        Raises:
          StoreError: deferred records may not be on the disk.
        """
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                try:
                    writer.sync()
                finally:
                    writer.close()
            self._streams.close()
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None
