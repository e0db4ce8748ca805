"""The store in memory: its costs, beyond the contract."""

import tracemalloc

from trio_stomp.store import Append, Begin, MemoryStore, Trim, Turn


def test_reading_a_stream_costs_in_proportion_to_the_messages_read() -> None:
    store = MemoryStore()
    appends = [Append("s", offset, b"", [b"x"], offset) for offset in range(50_000)]
    store.append([Turn([Begin("s", "e"), *appends])], 0)
    tracemalloc.start()
    try:
        for first in (0, 25_000):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            (run,) = store.read_stream("s", first, 1)[:1]
            _, peak = tracemalloc.get_traced_memory()
            assert run.first == first
            # The memory of the rows that are read, and not the 400,000 bytes of a list of all.
            assert peak - before < 250_000
    finally:
        tracemalloc.stop()
    store.append([Turn([Trim("s", 49_999)])], 1)
    assert [run.first for run in store.read_stream("s", 0, 1000)] == [49_999]
