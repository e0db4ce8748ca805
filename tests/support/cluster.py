"""A log in memory that fails as its test says, and the place of a store that replicates to it."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from attrs import define, field

from trio_stomp.cluster import InDoubt, LocalState, LogEntry, ReplicatedStore, newest
from trio_stomp.store import JournalStore, MemoryStore, StaleSequence, Store, StoreUnavailable

PATIENCE_S = 10.0
LOST = "lost"
"""The request is lost."""
UNANSWERED = "unanswered"
"""The entry is stored; the answer is lost."""
REFUSED = "refused"
"""The log refuses to store for the moment."""
LATE = "late"
"""No answer comes. The entry is stored before the next request, if its sequence still fits."""


@define(eq=False)
class FakeLog:
    """A log with the faults that can occur between a node and the servers.

    Args:
      faults: What happens to the next requests to publish; "" = nothing. A function is called
        while the request is lost.
      at_once: Entries that a read returns.
    """

    max_bytes: int = 200
    at_once: int = 3
    faults: deque[str | Callable[[], None]] = field(factory=deque)
    now: float = 0.0
    """Each fault takes a second."""
    entries: list[LogEntry] = field(factory=list)
    _last: int = 0
    _late: list[tuple[bytes, int]] = field(factory=list)

    def publish(self, payload: bytes, expected: int) -> int:
        self._settle()
        assert len(payload) <= self.max_bytes
        fault = self.faults.popleft() if self.faults else ""
        self.now += bool(fault)
        if callable(fault):
            fault()
            raise InDoubt("no answer")
        if fault == REFUSED:
            raise StoreUnavailable("the stream is full")
        if fault == LOST:
            raise InDoubt("no answer")
        if fault == LATE:
            self._late.append((payload, expected))
            raise InDoubt("no answer")
        self._store(payload, expected)
        if fault == UNANSWERED:
            raise InDoubt("no answer")
        return self.last()

    def last(self) -> int:
        self._settle()
        return self._last

    def purge(self, below: int) -> None:
        """Delete the entries with lesser sequences."""
        self.entries = [entry for entry in self.entries if entry.sequence >= below]

    def entry(self, sequence: int) -> LogEntry | None:
        self._settle()
        return next((each for each in self.entries if each.sequence == sequence), None)

    def read(self, after: int) -> Sequence[LogEntry]:
        self._settle()
        return [entry for entry in self.entries if entry.sequence > after][: self.at_once]

    def _store(self, payload: bytes, expected: int) -> None:
        if expected != self._last:
            raise StaleSequence(f"the last sequence is {self._last}")
        self._last += 1
        self.entries.append(LogEntry(self._last, payload))

    def _settle(self) -> None:
        late, self._late = self._late, []
        for payload, expected in late:
            if expected == self._last:
                self._store(payload, expected)


class ProcessStore(ReplicatedStore):
    """A store that also closes its local state, as the end of its process does."""

    def close(self) -> None:
        super().close()
        self.local.close()


@define
class Node:
    """A node: the log, and a directory for its state. A crash loses the directory."""

    path: Path
    log: FakeLog = field(factory=lambda: FakeLog(max_bytes=1 << 20, at_once=50))
    snapshots: FakeLog = field(factory=FakeLog)
    _number: int = 0

    def open_local(self, is_new: bool) -> JournalStore:
        self._number += is_new
        local = self.path / f"local-{self._number}"
        local.mkdir(exist_ok=True)
        return JournalStore(str(local), follows=True)

    def make(self) -> ProcessStore:
        fill_new = partial(newest, self.snapshots)
        return ProcessStore(self.log, LocalState(self.open_local, fill_new, self.log))

    def crash(self, store: Store) -> None:
        store.close()
        self._number += 1


@define
class Memories:
    """Places with local stores in memory: each is new and empty."""

    log: FakeLog = field(factory=FakeLog)
    snapshots: FakeLog = field(factory=FakeLog)

    def make(self) -> ReplicatedStore:
        locals_: list[MemoryStore] = []

        def open_local(is_new: bool) -> MemoryStore:
            if is_new or not locals_:
                locals_.append(MemoryStore())
            return locals_[-1]

        return ProcessStore(
            self.log,
            LocalState(open_local, partial(newest, self.snapshots), self.log),
            patience_s=PATIENCE_S,
            clock=lambda: self.log.now,
        )
