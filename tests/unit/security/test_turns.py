"""Turns: each network after its neighbour, and who goes where more wait than may."""

import pytest
import trio
import trio.lowlevel
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from trio_stomp.security._turns import Displaced, FairQueue, Turns

PATHS = st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"))


def taken(queue: FairQueue[str]) -> str:
    """All that waits, in turn; the first letter of each."""
    return "".join(queue.take()[0] for _ in range(queue.count))


def test_each_network_has_its_turn_however_many_wait_in_it() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(4):
        queue.put(("flood", "1"), f"f{number}")
    queue.put(("a", "1"), "a")
    queue.put(("b", "1"), "b")
    assert taken(queue) == "fabfff"


def test_a_network_within_another_shares_its_turns() -> None:
    queue: FairQueue[str] = FairQueue()
    for site in range(4):
        queue.put(("provider", site), f"f{site}")
    queue.put(("provider", 0), "g")
    queue.put(("other", 0), "o")
    queue.put(("other", 0), "p")
    assert taken(queue) == "fofpffg"


def test_the_newest_of_the_most_crowded_group_is_displaced() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(3):
        queue.put(("crowd", number % 2), f"c{number}")
    queue.put(("few", 0), "f0")
    queue.put(("few", 0), "f1")
    assert [queue.displace() for _ in range(5)] == ["c2", "f1", "c1", "f0", "c0"]
    assert queue.count == 0


@given(st.lists(st.tuples(st.sampled_from(["put", "put", "take", "displace", "remove"]), PATHS)))
def test_as_a_model_of_lists(steps: list[tuple[str, tuple[str, str]]]) -> None:
    """Nothing is lost or twice there; no network waits while a neighbour has two turns."""
    queue: FairQueue[int] = FairQueue()
    there: dict[int, tuple[str, str]] = {}
    for number, (what, path) in enumerate(steps):
        if what == "put":
            queue.put(path, number)
            there[number] = path
        elif there and what == "take":
            path = there.pop(item := queue.take())
            # It is the oldest from its address.
            assert all(item < other for other, its in there.items() if its == path)
        elif there and what == "displace":
            sizes = [sum(its[0] == name for its in there.values()) for name in "ab"]
            path = there.pop(queue.displace())
            assert sizes["ab".index(path[0])] == max(sizes)
        elif there and what == "remove":
            item = min(there)
            queue.remove(there.pop(item), item)
        assert queue.count == len(there)
    assert sorted(queue.take() for _ in range(queue.count)) == sorted(there)
    assert not queue._inner


async def test_slots_are_bounded_and_handed_on() -> None:
    turns = Turns(2)
    most = running = 0
    order = []

    async def go(name: str, number: int) -> None:
        nonlocal most, running
        async with turns.turn((name,), 100):
            running += 1
            most = max(most, running)
            order.append(name)
            await trio.testing.wait_all_tasks_blocked()
            running -= 1

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(go, "flood", number)
        await trio.lowlevel.checkpoint()
        nursery.start_soon(go, "one", 0)
    assert most == 2
    assert order.index("one") <= 4
    assert turns.count == turns.busy == 0


async def test_a_crowd_makes_room_for_another_and_not_for_itself() -> None:
    turns = Turns(1)
    reported = []

    async def go(path: str) -> None:
        try:
            async with turns.turn((path,), 3):
                await trio.sleep_forever()
        except Displaced:
            reported.append(path)

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(go, "crowd")
        await wait_all_tasks_blocked()
        assert reported == ["crowd"]
        nursery.start_soon(go, "other")
        await wait_all_tasks_blocked()
        assert reported == ["crowd", "crowd"]
        assert turns.count == 3
        nursery.cancel_scope.cancel()
    assert turns.count == 0


async def test_cancelled_waiter_passes_its_turn_on() -> None:
    turns = Turns(1)
    done = []

    async def go(name: str, scope: trio.CancelScope) -> None:
        with scope:
            async with turns.turn((name,), 9):
                done.append(name)

    first, second = trio.CancelScope(), trio.CancelScope()
    async with trio.open_nursery() as nursery, turns.turn(("holder",), 9):
        nursery.start_soon(go, "first", first)
        await wait_all_tasks_blocked()
        nursery.start_soon(go, "second", second)
        await wait_all_tasks_blocked()
        first.cancel()  # it hears so together with the turn
    assert done == ["second"]
    assert turns.count == 0


async def test_a_turn_ends_with_an_error_too() -> None:
    turns = Turns(1)
    with pytest.raises(KeyError):
        async with turns.turn(("a",), 1):
            raise KeyError
    assert turns.count == 0
