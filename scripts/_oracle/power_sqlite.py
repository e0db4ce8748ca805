"""States of a SQLite store after power cuts, with the promises that hold for them.

SQLite in WAL mode appends the pages of a commit to ``-wal`` and, if the commit is synchronous
(``synchronous=FULL``), syncs that file. At checkpoints it copies the pages to the database file,
which it syncs before it restarts ``-wal`` from its beginning. So there are two
kinds of states of an append: some sectors of ``-wal``, as during a commit; or all of ``-wal`` and
some sectors of the database file.
"""

import random
import tempfile
from collections.abc import Iterator
from itertools import count as numbers
from pathlib import Path

from attrs import define

from _oracle.power import STATES_OF_A_LIFE, STREAMS, WRITTEN, Life, State, _by_queue
from trio_stomp.store import SqlStore

SECTOR = 512
HEADER = 32
"""Bytes of the header of ``-wal``, with numbers that differ each time it restarts."""
NAME = "broker.db"
FULL = 2
CHECKPOINT_PAGES = 16
"""Instead of SQLite's 1000, so that a life has some checkpoints."""


def sqlite_states(seed: int, count: int) -> Iterator[State]:
    """Yield states of several lives. The same seed yields the same promises."""
    left = count
    for life in numbers():
        chance = random.Random(f"{seed} {life} sqlite")
        with tempfile.TemporaryDirectory() as directory:
            found = SqliteLife(directory, chance, 0).run()
        for state in chance.sample(found, min(STATES_OF_A_LIFE, left, len(found))):
            left -= 1
            yield state
        if not left:
            return


@define(eq=False)
class SqliteLife(Life):
    """A store's life on a real disk. Its files are read after each append."""

    def run(self) -> list[State]:
        """Return all states, some for each append."""
        store = SqlStore(f"sqlite:///{self.directory}/{NAME}")
        commit = store.recover(lambda _done, _size: None).commit
        assert store._writer is not None
        store._writer.exec_driver_sql(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        store._writer.commit()
        synced = self._files()
        for number in range(self.turns):
            made = [self.turn(number) for _ in range(self.chance.choice((1, 1, 1, 2, 3)))]
            commit = store.append(made, commit)
            now = self._files()
            is_all = any(turn.is_urgent for turn in made)
            # The header is synced before what follows it, and before that, when "-wal" restarts,
            # the database file. What that was before another checkpoint is not known.
            has_restarted = now[1][:HEADER] != synced[1][:HEADER] and now[0] != synced[0]
            if not has_restarted:
                before = now[1][:HEADER] + synced[1][HEADER:]
                self._cut(synced[0], self._torn(before, now[1]))
            if is_all:
                self.promise(is_all=True)
            # The actual requests to SQLite, not the expected ones.
            has_synced = store._writer.exec_driver_sql("PRAGMA synchronous").scalar_one() >= FULL
            store._writer.rollback()
            if has_synced or now[0] != synced[0]:
                # Before a page is copied to the database file, all of the other file is synced.
                database = now[0] if has_restarted else self._torn(synced[0], now[0])
                self._cut(database, now[1])
                synced = now
        store.close()
        return self.found

    def _files(self) -> tuple[bytes, bytes]:
        path = Path(self.directory, NAME)
        wal = path.with_name(f"{NAME}-wal")
        return path.read_bytes(), wal.read_bytes() if wal.exists() else b""

    def _torn(self, before: bytes, after: bytes) -> bytes:
        """Return the former content with some of the sectors written since."""
        if before == after:
            return after
        share = self.chance.choice(WRITTEN)
        size = len(after) if self.chance.random() < 0.8 else len(before)
        made = bytearray(before[:size].ljust(size, b"\0"))
        for at in range(0, size, SECTOR):
            if self.chance.random() < share:
                made[at : at + SECTOR] = after[at : min(at + SECTOR, size)]
        return bytes(made)

    def _cut(self, database: bytes, wal: bytes) -> None:
        if self.chance.random() < 0.5:
            self.found.append(self._state({NAME: database, f"{NAME}-wal": wal}))

    def _state(self, contents: dict[str, bytes]) -> State:
        everything = dict(sorted({**self.waiting, **self.coming, **self.going}.items()))
        maybe = dict(sorted({**self.coming, **self.going}.items()))
        return State(
            contents,
            _by_queue([self.waiting[id] for id in sorted(self.waiting)]),
            _by_queue(maybe.values()),
            _by_queue(everything.values()),
            {topic: list(self.streamed[topic]) for topic in STREAMS},
            {topic: list(self.streaming[topic]) for topic in STREAMS},
            list(self.units),
        )
