"""Turns of reading: who is admitted at once, who waits, and who goes first."""

from collections.abc import Callable

import trio
from attrs import define, field
from trio.testing import wait_all_tasks_blocked

from trio_stomp.base import noop
from trio_stomp.server.io import MOST_S, ReadTurns


@define(eq=False)
class Sender:
    """An owner of connections."""

    name: str
    read_s: float = 0.0


@define
class Readers:
    """Readers that wait for turns, and the order in which these came."""

    turns: ReadTurns
    nursery: trio.Nursery
    came: list[str] = field(factory=list)

    async def start(self, owner: Sender, cost_s: float, name: str = "") -> None:
        """Wait for a turn in a task of its own, as far as that waits."""

        async def read() -> None:
            await self.turns.wait(owner, cost_s)
            self.came.append(name or owner.name)

        self.nursery.start_soon(read)
        await wait_all_tasks_blocked()

    async def grant(self) -> bool:
        """End a turn of the dispatcher."""
        is_more = self.turns.grant()
        await wait_all_tasks_blocked()
        return is_more


def turns_with(woken: Callable[[], None]) -> ReadTurns:
    return ReadTurns(woken)


async def test_readers_are_admitted_at_once_while_little_is_on_its_way() -> None:
    woken: list[str] = []
    async with trio.open_nursery() as nursery:
        here = Readers(turns_with(lambda: woken.append("turn")), nursery)
        for _ in range(5):
            await here.start(Sender("a"), MOST_S / 5)
        assert (len(here.came), woken) == (5, [])
        await here.start(Sender("b"), MOST_S)
        assert (len(here.came), woken) == (5, ["turn"])
        assert await here.grant()  # nothing is finished
        here.turns.finish(Sender("a"), MOST_S / 5, MOST_S)
        assert len(here.came) == 5  # a pass of the loop has its share
        assert not await here.grant()
        assert here.came[5:] == ["b"]


async def test_owner_that_used_less_goes_first_however_many_connections_another_has() -> None:
    async with trio.open_nursery() as nursery:
        here = Readers(turns_with(lambda: None), nursery)
        heavy, light = Sender("heavy"), Sender("light")
        await here.start(heavy, MOST_S, "heavy 0")
        for number in range(1, 5):
            await here.start(heavy, MOST_S, f"heavy {number}")
        for number in range(3):
            await here.start(light, MOST_S / 5, f"light {number}")
        for _ in range(6):
            here.turns.finish(Sender("any"), MOST_S, MOST_S)
            await here.grant()
        # Those of one pass run in any order.
        assert sorted(here.came[1:5]) == ["heavy 1", "light 0", "light 1", "light 2"]
        assert here.came[5:] == [f"heavy {number}" for number in range(2, 5)]


async def test_small_slice_does_not_wait_behind_the_large_ones_of_newcomers() -> None:
    async with trio.open_nursery() as nursery:
        here = Readers(turns_with(lambda: None), nursery)
        await here.start(Sender("first"), MOST_S)
        for number in range(3):
            await here.start(Sender(f"new {number}"), MOST_S)
        await here.start(Sender("small"), MOST_S / 100)
        here.turns.finish(Sender("first"), MOST_S, MOST_S)
        await here.grant()
        assert "small" in here.came
        assert len(here.came) == 3
        here.turns.abandon()


async def test_owner_that_was_idle_has_no_credit_from_before() -> None:
    async with trio.open_nursery() as nursery:
        here = Readers(turns_with(lambda: None), nursery)
        busy, idle = Sender("busy", 100.0), Sender("idle")
        await here.start(busy, MOST_S, "busy 0")
        for number in range(1, 3):
            await here.start(busy, MOST_S, f"busy {number}")
            await here.start(idle, MOST_S, f"idle {number}")
        for _ in range(5):
            here.turns.finish(Sender("any"), MOST_S, MOST_S)
            await here.grant()
        assert here.came == ["busy 0", "idle 1", "busy 1", "idle 2", "busy 2"]
        assert idle.read_s > 100


async def test_newcomer_is_not_behind_an_owner_whose_earlier_slice_cost_more_than_expected() -> (
    None
):
    async with trio.open_nursery() as nursery:
        here = Readers(turns_with(lambda: None), nursery)
        dear, others = Sender("dear"), [Sender(f"other {number}") for number in range(5)]
        await here.start(dear, MOST_S)
        await here.start(dear, MOST_S, "dear again")
        for each in others:
            await here.start(each, 2 * MOST_S)
        here.turns.finish(dear, MOST_S, 10 * MOST_S)  # while it waits for its next turn
        await here.grant()
        assert here.came == ["dear", "dear again"]
        await here.start(Sender("new"), MOST_S / 10)
        here.turns.finish(dear, MOST_S, MOST_S)
        await here.grant()
        assert "new" in here.came
        here.turns.abandon()


async def test_owner_whose_slice_took_very_long_waits_a_bounded_time() -> None:
    """The time of the process is no measure of a client: it may have stood still meanwhile."""
    slow, others = Sender("slow"), [Sender(f"{number}") for number in range(10)]
    async with trio.open_nursery() as nursery:
        here = Readers(turns_with(noop), nursery)
        await here.start(slow, MOST_S)
        here.turns.finish(slow, MOST_S, 5.0)
        await here.start(slow, MOST_S, "slow again")
        served = 0
        while "slow again" not in here.came and served < 10:
            for each in others:
                await here.start(each, MOST_S)
            for each in others:
                await here.grant()
                here.turns.finish(each, MOST_S, MOST_S)
            served += 1
        here.turns.abandon()
    assert served < 10


async def test_wait_outlives_a_cancellation_and_ends_with_the_dispatcher() -> None:
    turns = turns_with(lambda: None)
    sender = Sender("a")
    await turns.wait(sender, MOST_S)
    came = False
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            nonlocal came
            with trio.CancelScope() as scope:
                scope.cancel()
                await turns.wait(sender, MOST_S)
                came = True

        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        assert not came
        turns.abandon()
    assert came
    await turns.wait(sender, MOST_S)  # does not wait
