"""The wheel of deadlines: which connections are checked, when, and how often."""

import itertools
import math

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_stomp.server._watchdog import MAX_LOOKS, Watchdog


@define(eq=False)
class Suspect:
    """Is checked, and returns when to be checked next."""

    answers: list[float] = field(factory=list)
    looks: list[float] = field(factory=list)
    is_finished: bool = False
    next_look: float = math.inf

    def look(self, now: float) -> float:
        self.looks.append(now)
        return self.answers.pop(0) if self.answers else math.inf


async def test_the_earliest_deadline_is_checked_first(
    autojump_clock, nursery: trio.Nursery
) -> None:
    watchdog = Watchdog()
    late, early = Suspect(), Suspect()
    watchdog.watch(late, 20.0)
    nursery.start_soon(watchdog.run)
    watchdog.watch(early, 10.0)
    await trio.sleep(15)
    assert (early.looks, late.looks) == ([10.0], [])
    await trio.sleep(15)
    assert (early.looks, late.looks) == ([10.0], [20.0])


async def test_a_nearer_deadline_shortens_the_sleep(autojump_clock, nursery: trio.Nursery) -> None:
    watchdog = Watchdog()
    nursery.start_soon(watchdog.run)
    suspect = Suspect()
    await trio.sleep(1)
    watchdog.watch(suspect, 100.0)
    await trio.sleep(1)
    watchdog.watch(suspect, 5.0)
    watchdog.watch(suspect, 50.0)  # later than its other deadline
    await trio.sleep(200)
    assert suspect.looks == [5.0]


async def test_the_answer_is_the_next_look(autojump_clock, nursery: trio.Nursery) -> None:
    watchdog = Watchdog()
    nursery.start_soon(watchdog.run)
    suspect = Suspect(answers=[3.0, 7.5, math.inf])
    watchdog.watch(suspect, 2.0)
    await trio.sleep(100)
    assert suspect.looks == [2.0, 3.0, 7.5]
    watchdog.watch(suspect, 150.0)
    await trio.sleep(100)
    assert suspect.looks == [2.0, 3.0, 7.5, 150.0]


async def test_ended_connection_is_ignored(autojump_clock, nursery: trio.Nursery) -> None:
    watchdog = Watchdog()
    nursery.start_soon(watchdog.run)
    suspect = Suspect()
    watchdog.watch(suspect, 2.0)
    suspect.is_finished = True
    await trio.sleep(10)
    assert suspect.looks == []


async def test_looking_may_ask_to_be_watched(autojump_clock, nursery: trio.Nursery) -> None:
    """A heart-beat that blocks makes the outbox request a check of its stall."""
    watchdog = Watchdog()

    @define(eq=False)
    class Nested(Suspect):
        def look(self, now: float) -> float:
            super().look(now)
            if len(self.looks) < 3:
                watchdog.watch(self, now + 5)
                return now + 8
            return math.inf

    suspect = Nested()
    nursery.start_soon(watchdog.run)
    watchdog.watch(suspect, 1.0)
    await trio.sleep(100)
    assert suspect.looks == [1.0, 6.0, 11.0]


async def test_a_late_watchdog_looks_at_all_that_is_due(
    mock_clock: MockClock, nursery: trio.Nursery
) -> None:
    watchdog = Watchdog()
    nursery.start_soon(watchdog.run)
    suspects = [Suspect() for _ in range(10)]
    for number, suspect in enumerate(suspects):
        watchdog.watch(suspect, float(number))
    mock_clock.jump(7.5)
    await wait_all_tasks_blocked()
    assert [suspect.looks for suspect in suspects] == [[7.5]] * 8 + [[]] * 2


async def test_what_came_while_the_process_stood_still_is_read_first(
    mock_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Or a client that sent its heart-beats to a paused container would be ended for silence."""
    watchdog = Watchdog()
    looks_before_reading: list[float] = []
    suspect = Suspect()

    async def read() -> None:
        await trio.sleep(7)
        for _ in range(20):  # many others are read before it
            await trio.lowlevel.checkpoint()
        looks_before_reading.extend(suspect.looks)

    nursery.start_soon(watchdog.run)
    nursery.start_soon(read)
    watchdog.watch(suspect, 5.0)
    await wait_all_tasks_blocked()
    mock_clock.jump(7.5)
    await wait_all_tasks_blocked()
    assert (looks_before_reading, suspect.looks) == ([], [7.5])


@pytest.mark.parametrize("when", ["before", "after"])
async def test_nothing_to_watch_costs_nothing(
    autojump_clock, nursery: trio.Nursery, when: str
) -> None:
    watchdog = Watchdog()
    suspect = Suspect()
    if when == "before":
        watchdog.watch(suspect, math.inf)
    nursery.start_soon(watchdog.run)
    await wait_all_tasks_blocked()
    if when == "after":
        watchdog.watch(suspect, math.inf)
    statistics = trio.lowlevel.current_statistics()
    assert statistics.seconds_to_next_deadline == math.inf


async def test_thousands_of_deadlines_due_at_once_are_checked_between_other_tasks(
    autojump_clock, nursery: trio.Nursery
) -> None:
    watchdog = Watchdog()
    suspects = [Suspect() for _ in range(1000)]
    for suspect in suspects:
        watchdog.watch(suspect, 10.0)
    nursery.start_soon(watchdog.run)
    await trio.sleep_until(10.0)
    seen = [0]
    while seen[-1] < 1000:
        await trio.lowlevel.checkpoint()
        seen.append(sum(len(suspect.looks) for suspect in suspects))
    # Tasks of one round run in any order, so two turns may come between two of this test.
    assert max(after - before for before, after in itertools.pairwise(seen)) <= 2 * MAX_LOOKS
    assert all(suspect.looks == [10.0] for suspect in suspects)


async def test_clients_that_came_and_left_are_not_remembered(
    autojump_clock, nursery: trio.Nursery
) -> None:
    """Thousands connect and leave within the ten seconds until their first check."""
    watchdog = Watchdog()
    nursery.start_soon(watchdog.run)
    staying = Suspect()
    watchdog.watch(staying, 30.0)
    for _ in range(20_000):
        suspect = Suspect()
        watchdog.watch(suspect, trio.current_time() + 10.0)
        suspect.is_finished = True
    assert len(watchdog._wheel) < 5_000
    await trio.sleep(40)
    assert staying.looks == [30.0]


async def test_no_connection_is_checked_twice_at_a_time(
    autojump_clock, nursery: trio.Nursery
) -> None:
    # Otherwise an answer of "now", as after rounding down, would stop the broker for good.
    watchdog = Watchdog()
    suspect = Suspect([10.0, 10.0, 9.0, 11.0])
    watchdog.watch(suspect, 10.0)
    nursery.start_soon(watchdog.run)
    await trio.sleep(15)
    assert len(suspect.looks) == 5
    assert suspect.looks == sorted(set(suspect.looks))
    assert suspect.looks[-1] == 11.0
