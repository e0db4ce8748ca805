"""A store whose truth is a replicated log; a local store holds what the log says.

The local store is never synced for the log's sake: what it lacks after a crash, the log gives it
again. One entry of the log is what one ``append`` brought, with all its records, so that no record
of an ``Atomic`` is there without the others.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence

from attrs import define, evolve, field

from trio_stomp.cluster._commit_log import CommitLog, InDoubt
from trio_stomp.cluster._entries import Batch, BatchReader, encode_append, epoch_entry
from trio_stomp.store import (
    Keep,
    Page,
    Progress,
    Recovered,
    StaleSequence,
    Store,
    StoreBroken,
    StoreError,
    StoreStatistics,
    StoreUnavailable,
    Streamed,
    StreamState,
    Turn,
)

APPLIED = "cluster:applied"
"""The setting of the local store with the sequence of the last entry that it holds."""
PATIENCE_S = 10.0
"""How long an entry is tried to be published: for some seconds a log may have no leader."""


@define(eq=False)
class ReplicatedStore:
    """Implements ``Store`` over a log. One process owns the log: who recovered last.

    Args:
      log: The log.
      open_local: Returns the local store, not recovered; True = a new one, without any data.
      clock: The time in seconds, from any origin.
    """

    log: CommitLog
    open_local: Callable[[bool], Store]
    name: str = "stored:cluster"
    clock: Callable[[], float] = time.monotonic
    _local: Store = field(init=False)
    _writer: int = 0
    _sequence: int = 0
    """Of the last entry of the log, as this writer knows it."""
    _commit: int = 0
    """Of the last turn of the local store."""
    _broken: str = ""

    def recover(self, progress: Progress) -> Recovered:
        """Implement ``Store.recover``: become the owner, and bring the local state up to date.

        Raises:
          StoreUnavailable: The log does not answer.
        """
        self._writer = secrets.randbits(63) + 1
        epoch = epoch_entry(self._writer)
        try:
            while not self._sequence:
                self._sequence = self._begin(epoch)
        except InDoubt as error:
            raise StoreUnavailable(f"the log of the cluster cannot be used: {error}") from error
        found = self._open(progress)
        self._commit = found.commit
        return evolve(
            found,
            settings={key: text for key, text in found.settings.items() if key != APPLIED},
        )

    def _begin(self, epoch: bytes) -> int:
        """Try to publish the entry that begins the epoch. Return its sequence, or 0."""
        try:
            return self._publish(epoch, self.log.last())
        except StaleSequence:
            return 0  # the former owner still writes

    def _open(self, progress: Progress) -> Recovered:
        """Open the local store, and apply what it lacks. Make it anew if it does not fit."""
        for is_new in (False, True):
            self._local = self.open_local(is_new)
            found = self._local.recover(progress)
            try:
                if found.damage:
                    raise _Unfit
                applied = self._catch_up(found)
            except _Unfit:
                self._local.close()
                continue
            if not applied:
                return found
            self._local.close()
            self._local = self.open_local(False)
            return self._local.recover(progress)
        raise StoreError(
            "the log of the cluster does not begin at its beginning, and this node's state does"
            " not lead up to it: start a node first whose state does"
        )

    def _catch_up(self, found: Recovered) -> int:
        """Apply the entries that the local store lacks, and return how many appends they were.

        Raises:
          _Unfit: The local state is not what the log led to at any time.
        """
        after = int(found.settings.get(APPLIED, "0"))
        commit, count = found.commit, 0
        if bool(commit) != bool(after):
            raise _Unfit
        for batch in self._batches(after):
            if batch.first != commit + 1:
                raise _Unfit
            commit = self._apply(batch, commit)
            count += 1
        return count

    def _batches(self, after: int) -> Iterator[Batch]:
        """Yield the appends after a sequence, up to the beginning of this writer's epoch."""
        reader = BatchReader()
        while after < self._sequence:
            entries = self.log.read(after)
            if not entries:
                raise StoreUnavailable("the log of the cluster ends before its last entry")
            after = entries[-1].sequence
            yield from reader.feed(entries)

    def _apply(self, batch: Batch, commit: int) -> int:
        """Append to the local store, with the sequence, and without a sync."""
        *turns, last = batch.turns
        records = (*last.records, Keep(APPLIED, f"{batch.sequence}"))
        lazy = [Turn(turn.records, is_urgent=False) for turn in turns]
        return self._local.append([*lazy, Turn(records, is_urgent=False)], commit)

    def append(self, turns: Sequence[Turn], expected: int) -> int:
        """Implement ``Store.append``: durable means on the disks of most of the log's servers."""
        if self._broken:
            raise StoreBroken(self._broken)
        if expected != self._commit:
            raise StaleSequence(f"the last commit is {self._commit}, not {expected}")
        if not turns:
            return expected  # nothing is deferred
        first = expected + 1
        try:
            for entry in encode_append(self._writer, first, turns, self.log.max_bytes):
                self._sequence = self._publish(entry, self._sequence)
        except InDoubt as error:
            self._broken = f"whether the log of the cluster has the last messages: {error}"
            raise StoreBroken(self._broken) from error
        try:
            self._commit = self._apply(Batch(first, turns, self._sequence), expected)
        except StoreError as error:
            self._broken = f"the log of the cluster has what this node could not store: {error}"
            raise StoreBroken(self._broken) from error
        return self._commit

    def _publish(self, payload: bytes, expected: int) -> int:
        """Publish an entry, and find out what became of it if no answer comes.

        Raises:
          StaleSequence: Another writer was first.
          StoreUnavailable: The log refuses it.
          InDoubt: What became of it could not be found out in time.
        """
        deadline, doubt = self.clock() + PATIENCE_S, None
        while True:
            try:
                return self.log.publish(payload, expected)
            except StaleSequence:
                if doubt is not None and (found := self._find(payload, expected)):
                    return found
                raise
            except StoreUnavailable:
                if doubt is None:
                    raise  # nothing is there; else an earlier attempt may have succeeded
            except InDoubt as error:
                doubt = error
            if self.clock() > deadline:
                raise doubt

    def _find(self, payload: bytes, expected: int) -> int:
        """Return the sequence of an entry if an earlier attempt to publish it succeeded, else 0."""
        entries = self.log.read(expected)
        return entries[0].sequence if entries and entries[0].payload == payload else 0

    def read(self, place: str, level: int, after: int, limit_bytes: int) -> Page:
        """Implement ``Store.read``."""
        return self._local.read(place, level, after, limit_bytes)

    def read_stream(self, stream: str, first: int, limit_bytes: int) -> list[Streamed]:
        """Implement ``Store.read_stream``."""
        return self._local.read_stream(stream, first, limit_bytes)

    def find_offset(self, stream: str, written_ms: int) -> int:
        """Implement ``Store.find_offset``."""
        return self._local.find_offset(stream, written_ms)

    def stream_state(self, stream: str) -> StreamState | None:
        """Implement ``Store.stream_state``."""
        return self._local.stream_state(stream)

    def capacity(self) -> int:
        """Implement ``Store.capacity``."""
        return self._local.capacity()

    def statistics(self) -> StoreStatistics:
        """Implement ``Store.statistics``."""
        return self._local.statistics()

    def close(self) -> None:
        """Implement ``Store.close``. The log stays as it is: the next owner begins an epoch."""
        self._local.close()


class _Unfit(Exception):
    """The local state must be made anew from the log."""
