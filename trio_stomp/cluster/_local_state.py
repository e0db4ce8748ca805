"""The local state of a node: what the entries of the log led to, on its own disk.

It is never synced for the log's sake: what it lacks after a crash, the log gives it again.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import define, evolve, field

from trio_stomp.cluster._commit_log import LogEntry
from trio_stomp.cluster._entries import Batch, BatchReader
from trio_stomp.cluster._snapshot import APPLIED, BASE, Snapshot, without_ours
from trio_stomp.store import (
    Append,
    Atomic,
    Begin,
    DropStream,
    Keep,
    Progress,
    Record,
    Recovered,
    Store,
    StoreError,
    Turn,
)


class Unfit(StoreError):
    """The local state is not what the log led to at any time, or the log begins after it."""

    def __init__(self) -> None:
        super().__init__(
            "the log of the cluster begins after this node's state, and no snapshot has what is"
            " between"
        )


class LocalStore(Store, Protocol):
    """A store that can tell its content at any time, so that a follower need not read it again."""

    def state(self) -> Recovered:
        """Return the present content, as ``recover`` would after ``close``."""


@define(eq=False, repr=False)
class LocalState:
    """A local store that the entries of a log are applied to. Its methods block.

    One thread at a time uses it: who follows the log, or the log's owner.

    Args:
      open_local: Returns the local store, not recovered; True = a new one, without any data.
      fill: Fills a new store from the newest snapshot, and returns it, or None.
    """

    open_local: Callable[[bool], LocalStore]
    fill: Callable[[Store], Snapshot | None]
    store: LocalStore = field(init=False)
    commit: int = 0
    """The number of the last turn. The local store has counted ``_base`` less."""
    _base: int = 0
    position: int = 0
    """The sequence of the last entry that was read. The next ones continue there."""
    _reader: BatchReader = field(factory=BatchReader)
    _is_open: bool = False
    is_damaged: bool = False
    """Something was damaged when it was read: ``open`` makes the state anew."""
    appending: threading.Lock = field(factory=threading.Lock)
    """Held during an append. Whoever holds it sees the local store at one moment."""
    _audit: tuple[int, Callable[[], None]] | None = None
    """A function to call once the state is that after an entry of the log, with its sequence."""
    _applied: int = 0
    """The sequence of the last entry with turns."""

    def open(self, progress: Progress) -> None:
        """Open the local store, unless it is open, or a new one if it is damaged."""
        if self.is_damaged:
            self.renew(progress)
            return
        if self._is_open:
            return
        found = self._opened(progress)
        after = int(found.settings.get(APPLIED, "0"))
        if found.damage or found.notes or bool(found.commit) != bool(after):
            self.renew(progress)
            return
        self._base = int(found.settings.get(BASE, "0"))
        self.commit, self.position, self._reader = found.commit + self._base, after, BatchReader()
        self._applied = after

    def renew(self, progress: Progress) -> None:
        """Open a new local store, with what the newest snapshot has."""
        self.close()
        self.is_damaged = False
        store = self.open_local(True)
        try:
            snapshot = self.fill(store)
        finally:
            store.close()
        if snapshot is not None:
            found = self._opened(progress)
            base = snapshot.commit - found.commit - 1
            keeps = Keep(APPLIED, f"{snapshot.sequence}"), Keep(BASE, f"{base}")
            self.store.append([Turn(keeps)], found.commit)
            self.close()
        self.open(progress)

    def state(self) -> Recovered:
        """Return what the local store has. The last entry that was read began an epoch."""
        is_doubtful = self.position > 1 and self._reader.ended_at != self.position - 1
        found = without_ours(self.store.state())
        return evolve(found, commit=self.commit, is_doubtful=is_doubtful)

    def _opened(self, progress: Progress) -> Recovered:
        self.store = self.open_local(False)
        found = self.store.recover(progress)
        self._is_open = True
        return found

    def close(self) -> None:
        """Close the local store, if it is open."""
        if self._is_open:
            self._is_open = False
            self.store.close()

    def follow(self, entries: Sequence[LogEntry]) -> None:
        """Apply the next entries of the log.

        Raises:
          Unfit: Entries before them were deleted, or the local store has lost something.
          StoreError: An entry is damaged or not ours, or the local store fails.
        """
        if entries and (
            entries[0].sequence != self.position + 1
            or entries[-1].sequence != self.position + len(entries)  # some between were deleted
        ):
            raise Unfit
        for batch in self._reader.feed(entries):
            if batch.first != self.commit + 1:
                raise Unfit
            ahead: dict[str, int] = {}
            turns = [
                evolve(turn, records=self._unknown(turn.records, ahead)) for turn in batch.turns
            ]
            self.apply(evolve(batch, turns=turns))
        if entries:
            self.position = entries[-1].sequence
            with self.appending:
                self._call_due()

    def _unknown(self, records: Sequence[Record], ahead: dict[str, int]) -> Sequence[Record]:
        """Leave out what streams have already: they may be an append ahead after a crash.

        Args:
          records: Of a turn.
          ahead: The next offset of each stream that the batch has changed so far, which is changed;
            -1 = it is gone.

        Raises:
          Unfit: A stream lacks messages.
        """
        if not any(isinstance(record, Append | Begin | DropStream | Atomic) for record in records):
            return records
        found: list[Record] = []
        for record in records:
            if isinstance(record, Atomic):
                found.append(Atomic(self._unknown(record.records, ahead)))  # type: ignore[arg-type]
                continue
            if isinstance(record, Append):
                rest = self._rest_of(record, ahead)
                if rest is not None:
                    found.append(rest)
                continue
            if isinstance(record, DropStream):
                ahead[record.stream] = -1
            elif isinstance(record, Begin):
                state = None if record.stream in ahead else self.store.stream_state(record.stream)
                if state is not None and state.epoch == record.epoch:
                    ahead[record.stream] = state.next
                    continue
                ahead[record.stream] = record.first
            found.append(record)
        return found

    def _rest_of(self, record: Append, ahead: dict[str, int]) -> Append | None:
        """Return what a stream lacks of an append, or None. Raises as ``_unknown``."""
        following = ahead.get(record.stream)
        if following is None:
            state = self.store.stream_state(record.stream)
            following = -1 if state is None else state.next
        skipped = following - record.first
        if skipped < 0:
            raise Unfit
        ahead[record.stream] = max(following, record.first + len(record.bodies))
        if skipped >= len(record.bodies):
            return None
        return evolve(record, first=following, bodies=record.bodies[skipped:])

    def apply(self, batch: Batch) -> None:
        """Append to the local store, with the sequence, and without a sync.

        Raises:
          StoreError: It failed.
        """
        *turns, last = batch.turns
        records = (*last.records, Keep(APPLIED, f"{batch.sequence}"))
        lazy = [Turn(turn.records, is_urgent=False) for turn in turns]
        whole = [*lazy, Turn(records, is_urgent=False)]
        with self.appending:
            if self._audit is not None and self._audit[0] < batch.sequence:
                self._call()
            self.commit = self.store.append(whole, self.commit - self._base) + self._base
            self.position = self._applied = batch.sequence
            self._call_due()

    def call_after(self, sequence: int, act: Callable[[], None]) -> bool:
        """Have a function called once, while the state is that after an entry of the log.

        Args:
          sequence: Of the entry.
          act: Called in the thread that appends, or in this one. It must not raise.

        Returns:
          Whether the state is not yet past this entry. An earlier call that waits is forgotten.
        """
        with self.appending:
            if self._applied > sequence:
                return False
            self._audit = sequence, act
            self._call_due()
            return True

    def forget_call(self) -> None:
        """Forget the function given to ``call_after``. It does not run afterwards."""
        with self.appending:
            self._audit = None

    def _call_due(self) -> None:
        if self._audit is not None and self._audit[0] <= self.position:
            self._call()

    def _call(self) -> None:
        assert self._audit is not None
        _, act = self._audit
        self._audit = None
        act()
