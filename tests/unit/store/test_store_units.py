"""A transaction or composite SEND with streams is one unit, even if the disk fails in it."""

import errno
import random

import pytest
from _oracle.store_disk import Disk, filled, open_store, read_all
from attrs import define, evolve

from tests.support.core import run_of
from tests.support.durable_fakes import DurableBench
from tests.support.journals import directory as directory
from tests.support.journals import killed
from trio_stomp.broker import DestinationPolicy
from trio_stomp.store import (
    Append,
    JournalOptions,
    JournalStore,
    Recovered,
    StoreBroken,
    StoreUnavailable,
    Turn,
)

NAMES = ("/stream/topic/s", "/stream/topic/t")
SAVED = (("persistent", "true"),)


@define(eq=False)
class Begun:
    """A store with a message in a queue, and what a broker writes for a COMMIT that moves it.

    Args:
      unit: An ACK, a SEND to another queue, and SENDs to the topics of two streams.
    """

    store: JournalStore
    disk: Disk
    commit: int
    unit: Turn

    def append(self, unit: Turn | None = None) -> int:
        self.commit = self.store.append([unit or self.unit], self.commit)
        return self.commit


def begun(directory: str) -> Begun:
    disk = Disk()
    store = JournalStore(directory, disk, JournalOptions(1 << 20))
    book = {f"/topic/{name}": DestinationPolicy(stream=True) for name in "st"}
    core = DurableBench(book=book, store=store)
    for topic in book:
        core.broker.destinations.ensure(topic)
    worker, frames = core.unacknowledged("/queue/a", "one")
    core.is_prompt = False
    streamed = [run_of(topic, ["streamed", "twice"], SAVED) for topic in book]
    worker.commits(worker.acked(*frames), *streamed, run_of("/queue/b", ["two"], SAVED))
    core.turn()
    (unit,) = core.turns
    return Begun(store, disk, core.commit, unit)


def begun_and_failing(directory: str) -> Begun:
    """Make the journal's next sync fail, but not those of the streams before it."""
    made = begun(directory)
    made.disk.fail("sync", 0, 0, errno.EIO)
    return made


def held(store: JournalStore, recovered: Recovered) -> set[bytes]:
    found = {body for ids in read_all(store, recovered).values() for body, _ in ids.values()}
    for name in NAMES:
        assert recovered.streams[name].first == 0
        runs = store.read_stream(name, 0, 1 << 20)
        assert recovered.streams[name].next == sum(len(run.bodies) for run in runs)
        found |= {body + name.encode() for run in runs for body in run.bodies}
    return found


BEFORE = {b"one"}
AFTER = {b"two", *(body + name.encode() for body in (b"streamed", b"twice") for name in NAMES)}


def without_power(disk: Disk) -> Disk:
    return disk.cut_power(random.Random(1), 0.0)


def held_after(directory: str, store: JournalStore, disk: Disk) -> set[bytes]:
    """Return the content of the store after reopening it on the rest of its disk."""
    store.close()
    store, recovered = open_store(directory, disk)
    try:
        return held(store, recovered)
    finally:
        store.close()


@pytest.mark.parametrize("is_written", [True, False])
def test_records_possibly_in_a_broken_journal_stay_in_the_streams(
    directory: str, is_written: bool
) -> None:
    made = begun_and_failing(directory)
    made.disk.fail("forget_cached", errno.EIO)
    with pytest.raises(StoreBroken):
        made.append()
    # Nobody sees a unit that may not hold.
    assert made.store.read_stream(NAMES[0], 0, 1 << 20) == []
    after = killed(made.disk) if is_written else without_power(made.disk)
    assert held_after(directory, made.store, after) == (AFTER if is_written else BEFORE)


def test_records_missing_in_a_failed_journal_are_undone(directory: str) -> None:
    made = begun_and_failing(directory)
    with pytest.raises(StoreUnavailable):
        made.append()
    made.append()
    assert held_after(directory, made.store, without_power(made.disk)) == AFTER


def test_a_unit_is_on_the_disk_though_it_is_not_urgent(directory: str) -> None:
    """A reader may have seen its streams, so the rest of the unit must not be lost."""
    made = begun(directory)
    made.append(evolve(made.unit, is_urgent=False))
    assert held_after(directory, made.store, without_power(made.disk)) == AFTER


def test_streams_alone_cost_no_wait_for_the_journal(directory: str) -> None:
    made = begun(directory)
    made.disk.calls.clear()
    made.append(Turn([Append(NAMES[0], 0, b"", [b"x"], 1)], is_urgent=False))
    assert made.disk.calls.count("sync") == 1
    made.store.close()


def test_later_records_prove_that_a_unit_held(directory: str) -> None:
    """A lost journal costs no more of a stream than its end."""
    made = begun(directory)
    (journal,) = (path for path in made.disk.files if "/journal/" in path)
    size, commit = len(made.disk.files[journal].data), made.commit
    made.append()
    made.append(Turn([Append(NAMES[0], 2, b"", [b"behind"], 1 << 60)]))
    after = killed(made.disk)
    made.store.close()
    after.files[journal] = filled(bytes(after.files[journal].data[: size + 10]))
    store, recovered = open_store(directory, after)
    assert recovered.commit == commit
    assert [recovered.streams[name].next for name in NAMES] == [3, 0]
    store.close()
