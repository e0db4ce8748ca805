"""A core with a store: what tests of durability share.

``DurableBench`` is a ``Bench`` whose turns are told to a store: at once, or when the test says so.
``restarts`` makes a new core from what the store holds, as after a crash.
"""

from collections.abc import Sequence

from attrs import define, field

from tests.support.core import Bench
from trio_stomp.broker import Log, Recovery, StreamWanted
from trio_stomp.store import MemoryStore, Store, StoreError, Streamed, Turn

WALL_OFFSET_S = 1_700_000_000.0
PAGE_BYTES = 4096


@define(eq=False, repr=False)
class DurableBench(Bench):
    """A bench with a store.

    Args:
      store: Fresh, or what another bench left.
      is_prompt: The store answers with the end of each turn.
    """

    store: Store = field(factory=MemoryStore)
    is_prompt: bool = True
    wall_offset_s: float = WALL_OFFSET_S
    failures: list[str] = field(factory=list)
    turns: list[Turn] = field(factory=list)
    commit: int = 0

    def __attrs_post_init__(self) -> None:
        recovered = self.store.recover(lambda done, total: None)
        self.commit = recovered.commit
        self.broker = self.make(Log.of(self.store.name, recovered))
        recovery = Recovery(self.broker, recovered, self.store.read)
        recovery.run()
        self.failures = recovery.failures

    @property
    def log(self) -> Log:
        """The broker's."""
        assert self.broker.log is not None
        return self.broker.log

    def turn(self) -> None:
        """End the turn; if the store is prompt, until it has answered all that this leads to."""
        self.broker.end_turn(self.now)
        self._take()
        while self.is_prompt and (self.turns or self.log.pages):
            self.answers()
            self.loads()

    def answers(self) -> None:
        """The store appends what it was given, and answers."""
        turns, self.turns = self.turns, []
        if turns:
            self.commit = self.store.append(turns, self.commit)
            self.broker.committed(self.commit, self.now)
        self.broker.end_turn(self.now)
        self._take()

    def loads(self) -> None:
        """What is wanted is read from the store."""
        for wanted in self.log.take_pages():
            if isinstance(wanted, StreamWanted):
                self.broker.loaded_stream(wanted, self._of_stream(wanted), self.now)
                continue
            page = self.store.read(wanted.queue.place, wanted.level, wanted.after, PAGE_BYTES)
            self.broker.loaded(wanted, page, self.now)
        self.broker.end_turn(self.now)
        self._take()

    def _of_stream(self, wanted: StreamWanted) -> Sequence[Streamed] | int:
        if wanted.found is not None:
            return self.store.find_offset(wanted.stream, wanted.written_ms)
        return self.store.read_stream(wanted.stream, wanted.first, PAGE_BYTES)

    def fails(self, error: str = "the disk is full") -> None:
        """The store could not append what it was given."""
        self.turns = []
        self.broker.uncommitted(error, self.now)
        self.broker.end_turn(self.now)
        self._take()

    def restarts(self) -> "DurableBench":
        """A new core on the same store, as after a crash: what was not appended is lost."""
        return DurableBench(book=self.book, policies=self.policies, store=self.store, now=self.now)

    def _take(self) -> None:
        turn = self.log.take()
        if turn is not None:
            self.turns.append(turn)


__all__ = ["DurableBench", "StoreError"]
