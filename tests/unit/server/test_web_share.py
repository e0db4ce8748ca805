"""The share of requests by HTTP: memory and slots, user by user."""

from contextlib import AsyncExitStack

import pytest
import trio

from trio_stomp.broker import MemoryBudget
from trio_stomp.server.connection._web_share import (
    OPERATIONS_AT_ONCE,
    OPERATIONS_OF_ONE,
    SLOT_S,
    WebShare,
)
from trio_stomp.transport import HttpError

MIB = 1024 * 1024


@pytest.fixture
def share() -> WebShare:
    return WebShare(MemoryBudget(64 * MIB))


def test_each_user_may_have_half_of_what_others_leave(share: WebShare) -> None:
    assert share.limit_bytes == 8 * MIB
    share.check("alice", 4 * MIB)
    share.charge("alice", 4 * MIB)
    with pytest.raises(HttpError, match="no room"):
        share.check("alice", 1)
    share.check("bob", 2 * MIB)
    share.charge("bob", 2 * MIB)
    with pytest.raises(HttpError, match="no room"):
        share.check("bob", 1)
    share.check("carol", MIB)
    share.charge("dave", 99 * MIB)  # what is sent already is not checked
    share.check("carol", 0)
    share.charge("dave", -99 * MIB)
    assert (share.held_bytes, share.memory.used_bytes) == (6 * MIB, 6 * MIB)
    share.charge("alice", -4 * MIB)
    share.charge("bob", -2 * MIB)
    assert (share.held_bytes, share.memory.used_bytes, share._held) == (0, 0, {})


def test_a_small_broker_has_room_for_small_answers() -> None:
    share = WebShare(MemoryBudget(MIB))
    share.check("alice", MIB // 2)
    with share.holding("alice", 5):
        assert share.memory.used_bytes == 5
    assert share.memory.used_bytes == 0


async def test_a_user_waits_for_earlier_operations_then_is_refused(
    share: WebShare, autojump_clock: trio.testing.MockClock
) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(OPERATIONS_OF_ONE):
            await stack.enter_async_context(share.operating("alice", is_admin=False))
        begin = trio.current_time()
        with pytest.raises(HttpError, match="of this user") as refused:
            async with share.operating("alice", is_admin=True):
                pass
        assert refused.value.code == "busy"
        assert trio.current_time() - begin == pytest.approx(SLOT_S)
        async with share.operating("bob", is_admin=False):
            assert share.running == OPERATIONS_OF_ONE + 1
    async with share.operating("alice", is_admin=False):
        pass
    assert (share.running, share._turns) == (0, {})


async def test_the_next_operation_of_a_user_begins_when_one_ends(
    share: WebShare, autojump_clock: trio.testing.MockClock
) -> None:
    ended: list[int] = []

    async def operate(number: int) -> None:
        async with share.operating("alice", is_admin=False):
            await trio.sleep(1)
            ended.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(operate, number)
    assert sorted(ended) == list(range(6))
    assert (share.running, share._turns) == (0, {})


async def test_one_slot_is_kept_for_admin(share: WebShare) -> None:
    async with AsyncExitStack() as stack:
        for number in range(OPERATIONS_AT_ONCE - 1):
            await stack.enter_async_context(share.operating(f"user {number}", is_admin=False))
        with pytest.raises(HttpError, match="too many operations"):
            async with share.operating("one more", is_admin=False):
                pass
        async with share.operating("admin", is_admin=True):
            with pytest.raises(HttpError, match="too many operations"):
                async with share.operating("another", is_admin=True):
                    pass
    assert (share.running, share._turns) == (0, {})
