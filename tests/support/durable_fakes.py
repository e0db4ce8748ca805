"""A core with a store: shared helpers of the tests of durability.

``DurableBench`` is a ``Bench`` that submits its turns to a store, immediately or when the test says
so.
``restarts`` makes a new core from the contents of the store, as after a crash.
"""

from attrs import define, field

from tests.support.core import Actor, Bench, Received, counted_turns
from trio_stomp.broker import Log, Recovery
from trio_stomp.store import MemoryStore, Store, StoreError, Turn, append_sound

WALL_OFFSET_S = 1_700_000_000.0
PAGE_BYTES = 4096


@define(eq=False, repr=False)
class DurableBench(Bench):
    """A bench with a store.

    Args:
      store: A new one, or that of an earlier bench.
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
        self.broker = self.make(Log.of(self.store.name, recovered, counted_turns()))
        recovery = Recovery(self.broker, recovered, self.store.read)
        recovery.run()
        self.failures = recovery.failures

    @property
    def log(self) -> Log:
        """The broker's."""
        assert self.broker.log is not None
        return self.broker.log

    def turn(self) -> None:
        """End the turn. A prompt store answers until no work is left."""
        self.broker.end_turn(self.now)
        self._take()
        while self.is_prompt and (self.turns or self.log.reads):
            self.answers()
            self.loads()

    def answers(self) -> None:
        """Let the store append and answer."""
        turns, self.turns = self.turns, []
        if turns:
            self.commit, left_out = append_sound(self.store, turns, self.commit)
            self.broker.committed(self.commit, self.now, left_out)
        self.broker.end_turn(self.now)
        self._take()

    def appends(self) -> None:
        """End the turn, and let the store append and answer."""
        self.turn()
        self.answers()

    def unacknowledged(
        self, destination: str, *bodies: str, ack: str = "client"
    ) -> tuple[Actor, list[Received]]:
        """Return a new consumer and its stored messages; the store has answered all."""
        reader = self.reader(destination, ack=ack)
        self.actor().sends(destination, *bodies, persistent="true")
        self.appends()
        frames = reader.reads()
        self.answers()
        return reader, frames

    def loads(self) -> None:
        """Let the store read the requested pages."""
        for wanted in self.log.take_reads():
            wanted.take(wanted.read(self.store, PAGE_BYTES), self.now)
        self.broker.end_turn(self.now)
        self._take()

    def fails(self, error: str = "the disk is full") -> None:
        """Let the store fail to append."""
        self.turns = []
        self.broker.uncommitted(error, self.now)
        self.broker.end_turn(self.now)
        self._take()

    def restarts(self) -> "DurableBench":
        """Return a new core on the same store, as after a crash. Records that were not appended are
        lost."""
        return DurableBench(book=self.book, policies=self.policies, store=self.store, now=self.now)

    def _take(self) -> None:
        turn = self.log.take()
        if turn is not None:
            self.turns.append(turn)


def answered(core: DurableBench) -> None:
    """End the turn, and let the store answer until no work is left."""
    core.turn()
    while core.broker.has_more or core.turns or core.log.reads:
        core.answers()
        core.loads()


__all__ = ["DurableBench", "StoreError", "answered"]
