"""What a node holds on its own disk of a log: the state that the entries led to.

It is never synced for the log's sake: what it lacks after a crash, the log gives it again.
"""

from collections.abc import Callable, Sequence

from attrs import define, evolve, field

from trio_stomp.cluster._commit_log import LogEntry
from trio_stomp.cluster._entries import Batch, BatchReader
from trio_stomp.cluster._snapshot import APPLIED, BASE, Snapshot, without_ours
from trio_stomp.store import Keep, Progress, Recovered, Store, StoreError, Turn


class Unfit(StoreError):
    """The local state is not what the log led to at any time, or the log begins after it."""

    def __init__(self) -> None:
        super().__init__(
            "the log of the cluster begins after this node's state, and no snapshot has what is"
            " between"
        )


@define(eq=False, repr=False)
class LocalState:
    """A local store that the entries of a log are applied to. Its methods block.

    One thread at a time uses it: who follows the log, or the log's owner.

    Args:
      open_local: Returns the local store, not recovered; True = a new one, without any data.
      fill: Fills a new store from the newest snapshot, and returns it, or None.
    """

    open_local: Callable[[bool], Store]
    fill: Callable[[Store], Snapshot | None]
    store: Store = field(init=False)
    commit: int = 0
    """Of the last turn. The local store has counted ``_base`` less."""
    _base: int = 0
    position: int = 0
    """The sequence of the last entry that was read. The next ones continue there."""
    _reader: BatchReader = field(factory=BatchReader)
    _is_open: bool = False

    def open(self, progress: Progress) -> Recovered:
        """Open the local store as it is, or a new one if it is damaged. Return its state."""
        self.close()
        found = self._opened(progress)
        after = int(found.settings.get(APPLIED, "0"))
        if found.damage or bool(found.commit) != bool(after):
            return self.renew(progress)
        self._base = int(found.settings.get(BASE, "0"))
        self.commit, self.position, self._reader = found.commit + self._base, after, BatchReader()
        return evolve(without_ours(found), commit=self.commit)

    def renew(self, progress: Progress) -> Recovered:
        """Open a new local store, with what the newest snapshot has."""
        self.close()
        store = self.open_local(True)
        try:
            snapshot = self.fill(store)
        finally:
            store.close()
        if snapshot is not None:
            found = self._opened(progress)
            base = snapshot.commit - found.commit - 1
            known = Keep(APPLIED, f"{snapshot.sequence}"), Keep(BASE, f"{base}")
            self.store.append([Turn(known)], found.commit)
        return self.open(progress)

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

    def follow(self, entries: Sequence[LogEntry]) -> int:
        """Apply the next entries of the log. Return how many appends they completed.

        Raises:
          Unfit: Entries before them were deleted.
          StoreError: An entry is damaged or not ours, or the local store fails.
        """
        if entries and entries[0].sequence != self.position + 1:
            raise Unfit
        count = 0
        for batch in self._reader.feed(entries):
            if batch.first != self.commit + 1:
                raise Unfit
            self.apply(batch)
            count += 1
        if entries:
            self.position = entries[-1].sequence
        return count

    def apply(self, batch: Batch) -> None:
        """Append to the local store, with the sequence, and without a sync.

        Raises:
          StoreError: It failed.
        """
        *turns, last = batch.turns
        records = (*last.records, Keep(APPLIED, f"{batch.sequence}"))
        lazy = [Turn(turn.records, is_urgent=False) for turn in turns]
        whole = [*lazy, Turn(records, is_urgent=False)]
        self.commit = self.store.append(whole, self.commit - self._base) + self._base
        self.position = batch.sequence
