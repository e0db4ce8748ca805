"""The bound on the memory of all outboxes whose sources can wait, together."""

from trio_stomp.broker import MemoryBudget
from trio_stomp.server.io import OutboxShared

KIB = 1024


class Waiting:
    """An outbox whose source waits for memory."""

    def __init__(self, shared: OutboxShared) -> None:
        self.shared = shared
        self.waiting_bytes = 0
        self.calls = 0

    def on_room(self) -> None:
        """Count the calls."""
        self.calls += 1


def test_each_outbox_gets_a_share_of_what_is_free() -> None:
    memory = MemoryBudget(1000 * KIB)
    shared = OutboxShared(memory, 512 * KIB)
    assert shared.has_room_for(112 * KIB)
    assert not shared.has_room_for(113 * KIB)
    memory.used_bytes = 820 * KIB
    assert shared.has_room_for(9 * KIB)
    assert not shared.has_room_for(10 * KIB)
    memory.used_bytes = 950 * KIB  # the rest is for those that have nothing
    assert shared.has_room_for(0)
    assert not shared.has_room_for(1)
    memory.used_bytes = 1000 * KIB
    assert shared.has_room_for(0)  # what fills the memory may be what it would get
    shared.blocked = {Waiting(shared)}  # type: ignore[arg-type]
    assert not shared.has_room_for(0)


def test_sources_that_wait_for_memory_go_on_in_turn() -> None:
    memory = MemoryBudget(1000 * KIB, used_bytes=1000 * KIB)
    shared = OutboxShared(memory, 512 * KIB)
    waiting = [Waiting(shared) for _ in range(20)]
    shared.starved = dict.fromkeys(waiting)  # type: ignore[arg-type]
    shared.blocked = set(waiting)  # type: ignore[arg-type]
    shared.feed()
    assert sum(each.calls for each in waiting) == 0
    memory.used_bytes = 0
    shared.feed()
    assert [each.calls for each in waiting] == [1] * 16 + [0] * 4
    shared.feed()
    assert [each.calls for each in waiting] == [1] * 20
    assert not shared.starved
