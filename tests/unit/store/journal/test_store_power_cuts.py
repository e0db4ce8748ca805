"""A journal with streams after a power cut: what was promised is there, and units are whole."""

import copy
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from _oracle.power import STREAMS, Life, State, broken_promises, disk_of, found_in, states
from _oracle.store_disk import Disk, open_store

from trio_stomp.store import Append, Begin, Put, Turn


def some_states(seed: int, count: int) -> Iterator[State]:
    for segment_bytes in (4096, 1 << 20):
        yield from states(seed, count, segment_bytes=segment_bytes)


@pytest.mark.parametrize("seed", range(4))
def test_what_was_promised_is_there_and_what_holds_together_is_whole(
    tmp_path: Path, seed: int
) -> None:
    directory, kept, torn_units = str(tmp_path), 0, 0
    for state in some_states(seed, 60):
        disk = disk_of(directory, state)
        store, recovered = open_store(directory, disk)
        queues, streams = found_in(store, recovered)
        assert broken_promises(state, queues, streams) == []
        assert recovered.damage == []
        kept += sum(map(len, state.queues.values()))
        torn_units += len(state.units)
        # It goes on from there, and what was found once is found again.
        first, name = recovered.next_id, STREAMS["/topic/s"]
        put = Put("queue:/queue/a", first, b"destination:/queue/a\n", [b"new"])
        offset = len(streams["/topic/s"])
        begin = [] if name in recovered.streams else [Begin(name, "e2")]
        append = Append(name, offset, b"destination:/topic/s\n", [b"new"], 1 << 41)
        store.append([Turn([put, *begin, append])], recovered.commit)
        store.close()
        store, recovered = open_store(directory, disk)
        queues["/queue/a"].append(b"new")
        streams["/topic/s"].append(b"new")
        assert found_in(store, recovered) == (queues, streams)
        store.close()
    assert kept > 500
    assert torn_units > 20


def killed_disks(directory: str, seed: int, share: float) -> Iterator[Disk]:
    """What a killed store leaves: all that it wrote can be read, and not all is on the disk."""
    chance, found = random.Random(seed), list[Disk]()
    life = Life(directory, chance, 4096)

    def keep() -> None:
        if chance.random() < share:
            disk = life.disk
            names = {id(file): copy.deepcopy(file) for file in disk.files.values()}
            names |= {id(f): copy.deepcopy(f) for f in disk.durable_names.values()}
            after = Disk({path: names[id(file)] for path, file in disk.files.items()})
            after.durable_names = {path: names[id(f)] for path, f in disk.durable_names.items()}
            found.append(after)

    life.cut = keep  # type: ignore[method-assign]
    life.run()
    yield from found


@pytest.mark.parametrize("seed", range(2))
def test_what_is_seen_after_a_kill_survives_a_power_cut(tmp_path: Path, seed: int) -> None:
    """Recovery shows what was written, though nobody had waited for the disk."""
    directory, chance, unsynced = str(tmp_path / "data"), random.Random(seed), 0
    (tmp_path / "data").mkdir()
    for disk in killed_disks(directory, seed, 0.1):
        unsynced += any(f.changes for p, f in disk.files.items() if "/streams/" in p)
        store, recovered = open_store(directory, disk)
        seen = found_in(store, recovered)
        after = disk.cut_power(chance, 0.0)
        store.close()
        store, recovered = open_store(directory, after)
        assert found_in(store, recovered) == seen
        store.close()
    assert unsynced > 5
