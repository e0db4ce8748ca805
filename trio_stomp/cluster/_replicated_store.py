"""A store whose authority is a replicated log. A local store holds the state of the log.

All records of one ``append`` are in one entry of the log, or in parts that count only together. So
no record of an ``Atomic`` is there without the others.
"""

import math
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from attrs import define

from trio_stomp.base import noop
from trio_stomp.broker.queues import PLACE as QUEUE
from trio_stomp.broker.topics import PREFIX as DURABLE
from trio_stomp.cluster._commit_log import CommitLog, InDoubt
from trio_stomp.cluster._entries import Batch, encode_append, end_entry, epoch_entry
from trio_stomp.cluster._local_state import LocalState, Unfit
from trio_stomp.store import (
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
    Turn,
    flaws_of,
)


@define(eq=False)
class ReplicatedStore:
    """Implements ``Store`` over a log. The process that recovered last owns the log.

    Args:
      log: The log.
      local: The local state, which nothing else uses until ``close``. It stays open afterwards, so
        that the node can follow the log at once, unless it failed.
      on_lost: Called with the reason, in any thread, when nothing can be stored any more: another
        node owns the log, or this one does not know what the log has.
      patience_s: How long publishing an entry is retried while no answer comes.
      clock: The time in seconds, from any origin.
      is_orderly: ``close`` tells the next owner that all deliveries are in the log.
    """

    log: CommitLog
    local: LocalState
    name: str = "stored:cluster"
    on_lost: Callable[[str], None] = noop
    patience_s: float = math.inf
    clock: Callable[[], float] = time.monotonic
    is_orderly: bool = True
    appends: int = 0
    records: int = 0
    append_s: float = 0.0
    """The total time of ``appends``, which had ``records``, in seconds."""
    doubtful_since: float = math.inf
    """The time of the first request without an answer; ``math.inf`` = the log answers."""
    _writer: int = 0
    epoch: int = 0
    """The sequence of the log's entry with which this writer began."""
    _sequence: int = 0
    """The sequence of the log's last entry, as far as this writer knows."""
    _broken: str = ""
    _is_behind: bool = False
    """The last append failed, so the log lacks something that the caller has."""
    _has_local_failed: bool = False
    _doubtful_below: int = 0
    """A former owner may have delivered messages with lower ids without recording it."""

    def recover(self, progress: Progress) -> Recovered:
        """Implement ``Store.recover``: bring the local state up to date, and become the owner.

        Nothing is written before the local state is known to fit the log.

        Raises:
          OtherLog: The log lacks what the local state has.
          Unfit: The newest snapshot does not reach the log.
          StoreUnavailable: The log does not answer, or another node owns it by now.
        """
        self._writer = secrets.randbits(63) + 1
        epoch = epoch_entry(self._writer)
        try:
            self.local.open(progress)
            self._read_on(self.log.last(), progress)
            while not self._sequence:
                self.epoch = self._sequence = self._begin(epoch)
            self._read_on(self._sequence, progress)
        except InDoubt as error:
            raise StoreUnavailable(f"the log of the cluster cannot be used: {error}") from error
        if self.local.position > self._sequence:
            raise StoreUnavailable("another node owns the log of the cluster")
        found = self.local.state()
        self._doubtful_below = found.next_id if found.is_doubtful else 0
        return found

    def _begin(self, epoch: bytes) -> int:
        """Try to publish the entry that begins the epoch. Return its sequence, or 0."""
        try:
            return self._publish(epoch, self.log.last())
        except StaleSequence:
            return 0  # the former owner still writes

    def _read_on(self, last: int, progress: Progress) -> None:
        """Apply the log up to an entry. Rebuild the local state if it does not lead up to the log.

        Raises: as ``recover``.
        """
        renewed_at = -1
        while self.local.position < last:
            entries = self.log.read(self.local.position)
            if not entries and self.log.entry(last) is not None:
                raise StoreUnavailable("the log of the cluster ends before its last entry")
            try:
                if not entries:
                    raise Unfit  # all were purged
                self.local.follow(entries)
            except Unfit:
                self.local.renew(progress)
                # While it was read, another node may have made a newer one and shortened the log.
                if self.local.position == renewed_at:
                    raise
                renewed_at = self.local.position

    def append(self, turns: Sequence[Turn], expected: int) -> int:
        """Implement ``Store.append``: durable means on the disks of most of the log's servers."""
        if self._broken:
            raise StoreBroken(self._broken)
        if expected != self.local.commit:
            raise StaleSequence(f"the last commit is {self.local.commit}, not {expected}")
        if not turns:
            return expected  # nothing is deferred
        if flaws := flaws_of(turns):
            # The log could hold them, but no node's own store could.
            raise ValueError(flaws[0][1])
        first, started = expected + 1, self.clock()
        self._is_behind = True
        try:
            for entry in encode_append(self._writer, first, turns, self.log.max_bytes):
                self._sequence = self._publish(entry, self._sequence)
        except StaleSequence as error:
            self.on_lost(f"another node owns the log of the cluster: {error}")
            raise
        except InDoubt as error:
            raise self._break(
                f"whether the log of the cluster has the last messages: {error}"
            ) from error
        try:
            self.local.apply(Batch(first, turns, self._sequence, self._writer))
        except StoreError as error:
            self._has_local_failed = True
            raise self._break(
                f"the log of the cluster has what this node could not store: {error}"
            ) from error
        self._is_behind = False
        self.appends += 1
        self.records += sum([len(turn.records) for turn in turns])
        self.append_s += self.clock() - started
        return self.local.commit

    def _break(self, reason: str) -> StoreBroken:
        self._broken = reason
        self.on_lost(reason)
        return StoreBroken(reason)

    def give_up(self) -> None:
        """Stop retrying entries that got no answer, and do not end in order. For any thread."""
        self.patience_s = 0.0
        self.is_orderly = False

    def _publish(self, payload: bytes, expected: int) -> int:
        """Publish an entry, and if no answer comes, find out whether it was stored.

        Raises:
          StaleSequence: Another writer was first.
          StoreUnavailable: The log refuses it.
          InDoubt: It could not be found out in time.
        """
        doubt: InDoubt | None = None
        while True:
            try:
                sequence = self.log.publish(payload, expected)
            except StaleSequence:
                if doubt is None or not (sequence := self._find(payload, expected)):
                    raise
            except StoreUnavailable:
                if doubt is None:
                    raise  # it was not stored; with a doubt, an earlier attempt may have succeeded
                sequence = 0
            except InDoubt as error:
                doubt, sequence = error, 0
            if sequence:
                self.doubtful_since = math.inf
                return sequence
            self.doubtful_since = min(self.doubtful_since, self.clock())
            if self.clock() > self.doubtful_since + self.patience_s:
                assert doubt is not None
                raise doubt

    def _find(self, payload: bytes, expected: int) -> int:
        """Return the sequence of an entry if an earlier attempt to publish it succeeded, else 0.

        Raises:
          InDoubt: The log cannot be read, or the entry after the expected one was purged.
        """
        try:
            entries = self.log.read(expected)
        except StoreUnavailable as error:
            raise InDoubt(str(error)) from error
        if not entries or entries[0].sequence != expected + 1:
            raise InDoubt(f"the entry after {expected} was purged before it could be read")
        return entries[0].sequence if entries[0].payload == payload else 0

    def read(self, place: str, level: int, after: int, limit_bytes: int) -> Page:
        """Implement ``Store.read``. If a message is damaged, another node may have it.

        Raises:
          StoreUnavailable: The local state is damaged. It is rebuilt when it is opened next.
        """
        page = self.local.store.read(place, level, after, limit_bytes)
        if page.lost or self.local.is_damaged:
            self.local.is_damaged = True
            reason = f"{page.lost} stored messages are damaged on this node: its copy is made anew"
            self._broken = reason
            self.on_lost(reason)
            raise StoreUnavailable(reason)
        return page

    def read_stream(self, stream: str, first: int, limit_bytes: int) -> list[Streamed]:
        """Implement ``Store.read_stream``."""
        return self.local.store.read_stream(stream, first, limit_bytes)

    def find_offset(self, stream: str, written_ms: int) -> int:
        """Implement ``Store.find_offset``."""
        return self.local.store.find_offset(stream, written_ms)

    def stream_state(self, stream: str) -> StreamState | None:
        """Implement ``Store.stream_state``."""
        return self.local.store.stream_state(stream)

    def capacity(self) -> int:
        """Implement ``Store.capacity``."""
        return self.local.store.capacity()

    def statistics(self) -> StoreStatistics:
        """Implement ``Store.statistics``."""
        return self.local.store.statistics()

    def close(self) -> None:
        """Implement ``Store.close``: write the end of the epoch if this owner ends in order."""
        if self._has_local_failed:
            self.local.close()
        elif self._sequence and self.is_orderly and not (self._is_behind or self._has_doubtful()):
            with suppress(StoreError):
                self._publish(end_entry(self._writer), self._sequence)

    def _has_doubtful(self) -> bool:
        """Return whether messages remain that a former owner may have delivered unrecorded.

        Other places have what no consumer gets, such as ids for duplicate detection.
        """
        if not self._doubtful_below:
            return False
        return any(
            state.first < self._doubtful_below and place.startswith((QUEUE, DURABLE))
            for (place, _), state in self.local.state().places.items()
        )
