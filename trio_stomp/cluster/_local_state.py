"""The local state of a node: the result of the log's entries, on the node's own disk.

It is not synced for the log: entries that it lacks after a crash are read from the log again.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Protocol

import trio
from attrs import define, evolve, field

from trio_stomp.base import noop
from trio_stomp.cluster._commit_log import CommitLog, LogEntry
from trio_stomp.cluster._entries import Batch, BatchReader, header_of
from trio_stomp.cluster._snapshot import APPLIED, BASE, WRITER, Snapshot, without_ours
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
from trio_stomp.store.tools import View, export_lines

logger = logging.getLogger("trio_stomp")

Newest = Callable[[], tuple[Snapshot, Iterator[list[Record]]] | None]

REACH_S = 5.0
"""Longest wait for an entry of the log."""


class OtherLog(StoreError):
    """The log lacks what the local state has: it was rolled back, or is another one."""


class Unfit(StoreError):
    """The local state does not match the log at any entry, or the log begins after it."""

    def __init__(self) -> None:
        super().__init__(
            "the log of the cluster begins after this node's state, and no snapshot has what is"
            " between"
        )


class LocalStore(Store, Protocol):
    """A store that returns its content at any time, so that a follower need not recover again."""

    def state(self) -> Recovered:
        """Return the present content, as ``recover`` would after ``close``."""


@define(eq=False, repr=False)
class LocalState:
    """A local store to which the entries of a log are applied. Its methods block.

    One thread at a time uses it: that of the follower of the log, or of the log's owner.

    Args:
      open_local: Returns the local store, not recovered; True = a new one, without any data.
      newest: Returns the newest snapshot and its records, in groups for one append each, or None.
      log: The log, with which the state is compared.
      where: The place of the local store, for people to read.
      remove: Removes the local store, which is closed, as a whole or not at all.
      set_aside: Renames the local store, which is closed, and returns its new place.
    """

    open_local: Callable[[bool], LocalStore]
    newest: Newest
    log: CommitLog
    where: str = ""
    remove: Callable[[], None] = noop
    set_aside: Callable[[], str] = lambda: ""
    store: LocalStore = field(init=False)
    commit: int = 0
    """The number of the last turn. The local store's own number is less by ``_base``."""
    _base: int = 0
    position: int = 0
    """The sequence of the last entry that was read. Following continues after it."""
    _reader: BatchReader = field(factory=BatchReader)
    _is_open: bool = False
    _is_copy: bool = True
    """The state is empty or that of a snapshot, so nothing is lost with it."""
    is_damaged: bool = False
    """A read found damage, so ``open`` rebuilds the state."""
    appending: threading.Lock = field(factory=threading.Lock)
    """Held during an append. Its holder sees the local store between two appends."""
    _audit: tuple[int, Callable[[], None]] | None = None
    """The sequence of an entry, and a function to call when the state is that after the entry."""
    _applied: int = 0
    """The sequence of the last entry with turns."""

    def open(self, progress: Progress) -> None:
        """Open the local store, unless it is open. Replace it by a new one if it is damaged.

        Raises:
          OtherLog: The log lacks what the state has.
          StoreError: The local store cannot be used, or the log does not answer.
        """
        if not (self.is_damaged or self._is_open):
            found = self._opened(progress, is_new=False)
            after, base = (int(found.settings.get(each, "0")) for each in (APPLIED, BASE))
            of, _, writer = found.settings.get(WRITER, "").partition(" ")
            is_damaged = bool(found.damage or found.notes)
            # Without a sequence: a snapshot was not read to its end.
            self.is_damaged = is_damaged or bool(found.commit) != bool(after)
            # An older version wrote no writer, and may have gone on after a newer one.
            self._begin(found.commit, base, after, int(writer) if of == f"{after}" else 0)
            self._is_copy = not is_damaged and (writer == "0" or not found.commit)
        if self.is_damaged:
            self.renew(progress)
        else:
            self.compare()

    def renew(self, progress: Progress) -> None:
        """Open a new local store, filled from the newest snapshot. The former one is set aside.

        Raises: as ``open``.
        """
        self._set_aside()
        self.is_damaged = False
        commit, base, sequence = self._opened(progress, is_new=True).commit, 0, 0
        try:
            found = self.newest()
            if found is not None:
                snapshot, groups = found
                commit = self.store.append([Turn([Keep(WRITER, "0 0")])], commit)
                for records in groups:
                    commit = self.store.append([Turn(records, is_urgent=False)], commit)
                base, sequence = snapshot.commit - commit - 1, snapshot.sequence
                ours = {APPLIED: f"{sequence}", BASE: f"{base}", WRITER: f"{sequence} 0"}
                commit = self.store.append([Turn([Keep(*each) for each in ours.items()])], commit)
        except StoreError:
            self.close()
            raise
        self._begin(commit, base, sequence)
        self._is_copy = True
        self.compare()

    def _set_aside(self) -> None:
        self.close()
        if not self._is_copy:
            self._is_copy = True
            logger.warning("the former copy of this node is kept in %s", self.set_aside())

    def compare(self) -> None:
        """Check that the log has the entry with which the state ends, by its number and writer.

        Raises:
          OtherLog: It has another one, or ends before it.
          InDoubt, StoreUnavailable: The log does not answer.
        """
        entry = self.log.entry(self.position) if self.position else None
        if entry is None:
            last = self.log.last()
            if last >= self.position:
                return  # it was purged
            found = f"ends at entry {last}" if last else "is empty"
        elif self._is_known(entry):
            return
        else:
            found = "has another entry of that number"
        raise OtherLog(
            f"{self.where} has entries up to {self.position}, but the log of the cluster {found}:"
            " NATS has lost entries or was restored from an older copy, or it is another log."
            f" Nothing was changed. If this node's messages are to count, stop all nodes and use:"
            f" trio-stomp cluster import {self.where}; if the log is to count, rename the directory"
        )

    def _is_known(self, entry: LogEntry) -> bool:
        writer, first, part, parts = header_of(entry)
        if self._reader.writer:
            return writer == self._reader.writer
        return 0 < first <= self.commit and part == parts - 1

    def _opened(self, progress: Progress, *, is_new: bool) -> Recovered:
        self.store = self.open_local(is_new)
        found = self.store.recover(progress)
        self._is_open = True
        return found

    def _begin(self, commit: int, base: int, applied: int, writer: int = 0) -> None:
        """Continue after an entry of the log.

        Args:
          commit: The number of the local store's last commit.
          base: The number of commits before its first.
          applied: The sequence of the entry.
          writer: Its writer; 0 = not known.
        """
        self._base, self.commit = base, commit + base
        self.position = self._applied = applied
        self._reader = BatchReader(writer=writer)

    def state(self) -> Recovered:
        """Return the content of the local store. The last entry that was read began an epoch."""
        is_doubtful = self.position > 1 and self._reader.ended_at != self.position - 1
        found = without_ours(self.store.state())
        return evolve(found, commit=self.commit, is_doubtful=is_doubtful)

    def close(self) -> None:
        """Close the local store, if it is open."""
        if self._is_open:
            self._is_open = False
            self.store.close()

    def discard(self, progress: Progress) -> None:
        """Remove the local store, if there is one. The next ``open`` begins with a new one.

        Raises:
          OtherLog: Other nodes lack what it has, so it stays.
          StoreError: It cannot be removed.
        """
        self.open(progress)
        self.close()
        self.remove()
        self.is_damaged = False
        self._begin(0, 0, 0)

    def follow(self, entries: Sequence[LogEntry]) -> None:
        """Apply the next entries of the log.

        Raises:
          Unfit: Entries before them were deleted, or the local store has lost something.
          StoreError: An entry is damaged or not of this broker, or the local store fails.
        """
        if entries and (
            entries[0].sequence != self.position + 1
            or entries[-1].sequence != self.position + len(entries)  # some were deleted in between
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
        """Return the records without what streams already have.

        After a crash, streams may be one append ahead of the rest of the state.

        Args:
          records: The records of a turn.
          ahead: The next offset of each stream that the batch has changed so far, which is updated;
            -1 = the stream is gone.

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
        """Return the part of an append that a stream lacks, or None. Raises as ``_unknown``."""
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
        """Append a batch and its sequence to the local store, without a sync.

        Raises:
          StoreError: The local store failed.
        """
        *turns, last = batch.turns
        applied = f"{batch.sequence}"
        ours = Keep(APPLIED, applied), Keep(WRITER, f"{applied} {batch.writer}")
        records = (*last.records, *ours)
        lazy = [Turn(turn.records, is_urgent=False) for turn in turns]
        whole = [*lazy, Turn(records, is_urgent=False)]
        with self.appending:
            if self._audit is not None and self._audit[0] < batch.sequence:
                self._call()
            self.commit = self.store.append(whole, self.commit - self._base) + self._base
            self.position = self._applied = batch.sequence
            self._reader.writer, self._is_copy = batch.writer, False
            self._call_due()

    def call_after(self, sequence: int, act: Callable[[], None]) -> bool:
        """Call a function once, while the state is that after an entry of the log.

        It replaces the function of an earlier call that was not called yet.

        Args:
          sequence: The sequence of the entry.
          act: Called in the thread that appends, or in this one. It must not raise.

        Returns:
          False if the state is past this entry already, so that the function is never called.
        """
        with self.appending:
            if self._applied > sequence:
                return False
            self._audit = sequence, act
            self._call_due()
            return True

    def forget_call(self) -> None:
        """Forget the function given to ``call_after``. It is not called any more."""
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


@define(eq=False, repr=False)
class _Moment:
    """A view of the state after an entry, taken by the thread that appends."""

    take_view: Callable[[], View]
    view: View | None = None
    failure: str = ""
    is_over: trio.Event = field(factory=trio.Event)
    _token: trio.lowlevel.TrioToken = field(factory=trio.lowlevel.current_trio_token)

    def take(self) -> None:
        try:
            self.view = self.take_view()
            self.view.fix()
        except StoreError as error:
            self.failure = str(error)  # the append goes on
        self._token.run_sync_soon(self.is_over.set)


async def digest_at(
    local: LocalState, take_view: Callable[[], View], position: int
) -> tuple[str, int]:
    """Return a digest of the state after an entry of the log, and the number of its records.

    Args:
      local: The local state, in use.
      take_view: Returns a view of it.
      position: The sequence of the entry.

    Returns:
      The digest, in hexadecimal digits; "" if the entry has passed or does not come in time.

    Raises:
      StoreError: The state cannot be read.

    Checkpoint: always. Cancel: nothing was changed.
    """
    moment = _Moment(take_view)
    try:
        await _reach(local, moment, position)
        if moment.failure:
            raise StoreError(moment.failure)
        if moment.view is None:
            return "", 0
        return await trio.to_thread.run_sync(_digest, moment.view)
    finally:
        if moment.view is not None:
            moment.view.close()


async def _reach(local: LocalState, moment: _Moment, position: int) -> None:
    try:
        if await trio.to_thread.run_sync(local.call_after, position, moment.take):
            with trio.move_on_after(REACH_S):
                await moment.is_over.wait()
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(local.forget_call)  # no view is taken afterwards


def _digest(view: View) -> tuple[str, int]:
    digest, count = blake2b(digest_size=16), 0
    lines = export_lines(view, without_ours(view.recover(_ignore)), _ignore)
    next(lines)  # the header line has numbers that differ from store to store
    for line in lines:
        digest.update(line.encode() + b"\n")
        count += 1
    return digest.hexdigest(), count - 1


def _ignore(_done: int, _total: int) -> None:
    """Ignore progress."""
