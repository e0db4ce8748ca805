"""The stale queue alone: limits, overflow, expiry, claims (SEEDS A6)."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.core import AMPLE, Pairs, head_bytes, numbered
from trio_stomp.broker import BrokerPolicies, Destination, MemoryBudget, ParkedDestination
from trio_stomp.broker.delivery import Publication
from trio_stomp.broker.names import Kind, compile_pattern, matches
from trio_stomp.broker.topics import StaleQueue
from trio_stomp.broker.topics._stale import (
    CHANNEL_OVERHEAD_BYTES,
    DESTINATION_OVERHEAD_BYTES,
    DESTINATION_SWEEPS,
    MAX_SWEPT,
    MESSAGE_OVERHEAD_BYTES,
    STEP,
    Claim,
)
from trio_stomp.frames import Head

FIRST = DESTINATION_OVERHEAD_BYTES
"""The additional cost of the first run at a destination."""


class Stale:
    """A stale queue, the routes that its test names, and what it was told."""

    def __init__(
        self,
        overflow: str = "drop-newest",
        *,
        size: int = 1000,
        room_bytes: int = AMPLE,
        budget: int = AMPLE,
        checks: bool = True,
    ) -> None:
        self.checks = checks
        policies = BrokerPolicies(
            ttl_ms=1,
            stale_overflow=overflow,
            max_stale_queue_size=size,
            max_stale_queue_bytes=room_bytes,
        )
        self.memory = MemoryBudget(budget)
        self.queue = StaleQueue(policies, self.memory)
        self.destinations: dict[str, Destination] = {}

    def park(
        self,
        name: str,
        *bodies: str,
        expires: float = 10.0,
        now: float = 0.0,
        headers: Pairs = (),
    ) -> None:
        destination = self.destinations.setdefault(name, Destination(name, Kind.TOPIC))
        head = Head("SEND", headers, destination=name)
        raw = [body.encode() for body in bodies]
        self.queue.park(Publication(destination, head, raw, 0.0, expires), now)
        self.check()

    def claims(self, name: str) -> Claim:
        claim = Claim(self.queue)
        for _ in claim.gather([(name, compile_pattern(name, "native"))]):
            pass
        return claim

    def claim(self, name: str) -> list[ParkedDestination]:
        return [parked for _, parked in self.claims(name)._parked]

    def release(self, parked: ParkedDestination) -> None:
        """Release the rest of a claimed destination for others."""
        assert isinstance(parked.claim, Claim)
        parked.claim.end()

    def take_all(self, name: str, now: float = 0.0) -> list[str]:
        """Claim and take everything."""
        bodies: list[str] = []
        claim = self.claims(name)
        while not claim.is_empty:
            run = claim.next_run(now)
            bodies += [body.decode() for body in run.publication.bodies] if run else []
            self.check()
        return bodies

    def check(self) -> None:
        """Sizes must add up, and stay in bounds, at all times."""
        if not self.checks:
            return
        queue, limits = self.queue, self.queue.policies
        held = queue.candidates()
        assert len(held) == queue.destinations()
        assert sum(parked.size for parked in held) == queue.size
        assert sum(parked.bytes for parked in held) == queue.bytes == self.memory.used_bytes
        assert 0 <= queue.size <= limits.max_stale_queue_size
        assert queue.bytes <= min(limits.max_stale_queue_bytes, self.memory.limit_bytes)
        if not held:
            assert queue.bytes == 0


@pytest.fixture
def stale() -> Stale:
    return Stale()


def run_cost(bodies: Sequence[str], headers: Pairs = ()) -> int:
    return head_bytes(headers) + sum(len(b) + MESSAGE_OVERHEAD_BYTES for b in bodies)


def test_parked_messages_return_once_and_in_order(stale: Stale):
    stale.park("a", "0", "1")
    stale.park("b", "x")
    stale.park("a", "2")
    stale.park("a", "3", "4")
    assert (stale.queue.size, stale.queue.destinations()) == (6, 2)
    assert (stale.queue.depth("a"), stale.queue.depth("b"), stale.queue.depth("c")) == (5, 1, 0)
    assert stale.take_all("a") == ["0", "1", "2", "3", "4"]
    assert stale.take_all("a") == []
    assert stale.take_all("b") == ["x"]
    assert stale.memory.used_bytes == 0


def test_the_channel_of_an_emptied_destination_is_closed(stale: Stale):
    stale.park("a", "0")
    stale.park("a", "1")
    (parked,) = stale.claim("a")
    assert parked.sender is not None
    stale.queue.take(parked)
    assert parked.sender.statistics().open_send_channels == 1
    stale.queue.take(parked)
    assert parked.sender.statistics().open_send_channels == 0
    assert parked.sender.statistics().open_receive_channels == 0


def test_statistics_count_every_message_once():
    stale = Stale(size=3)
    stale.park("a", "0", "1", expires=1.0)
    stale.park("b", "0", "1", expires=2.0)
    stale.queue.sweep(1.0)
    stale.take_all("b")
    counted = stale.queue.statistics
    assert (counted.parked, counted.dropped, counted.expired, counted.revived) == (3, 1, 2, 1)
    assert (stale.destinations["a"].expired, stale.destinations["b"].dropped) == (2, 1)


# --- limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overflow", "kept"),
    [("drop-newest", ["0", "1", "2", "3"]), ("drop-oldest", ["2", "3", "4", "5"])],
)
def test_the_count_is_exact(overflow: str, kept: list[str]):
    stale = Stale(overflow, size=4)
    for number in range(6):
        stale.park("a", str(number))
    assert stale.take_all("a") == kept
    assert stale.destinations["a"].dropped == stale.queue.statistics.dropped == 2


@pytest.mark.parametrize(
    ("overflow", "kept"),
    [("drop-newest", ["old", "0", "1", "2"]), ("drop-oldest", ["1", "2", "3", "4"])],
)
def test_a_run_that_does_not_fit_is_cut_exactly(overflow: str, kept: list[str]):
    stale = Stale(overflow, size=4)
    stale.park("a", "old")
    stale.park("a", "0", "1", "2", "3", "4")
    assert stale.take_all("a") == kept
    assert stale.queue.statistics.dropped == 2


@pytest.mark.parametrize(
    ("overflow", "kept"), [("drop-newest", ["00", "1"]), ("drop-oldest", ["1", "22"])]
)
@pytest.mark.parametrize("limit", ["bytes", "budget"])
def test_bytes_are_exact(overflow: str, kept: list[str], limit: str):
    room = FIRST + run_cost(kept)
    for short in (0, 1):
        if limit == "bytes":
            stale = Stale(overflow, room_bytes=room - short)
        else:
            stale = Stale(overflow, budget=room - short)
        stale.park("a", "00", "1", "22")
        assert stale.queue.bytes == FIRST + run_cost(stale_bodies(stale))
        expected = kept if not short else kept[:1] if overflow == "drop-newest" else kept[1:]
        assert stale.take_all("a") == expected
        assert stale.queue.statistics.dropped == 3 - len(expected)


@pytest.mark.parametrize(
    ("overflow", "kept"), [("drop-newest", ["00", "1"]), ("drop-oldest", ["1", "22"])]
)
def test_a_run_that_fits_neither_by_count_nor_by_bytes_is_cut_once(overflow: str, kept: list[str]):
    stale = Stale(overflow, size=2, room_bytes=FIRST + run_cost(kept))
    stale.park("a", "00", "1", "22")
    assert stale.take_all("a") == kept
    assert stale.queue.statistics.dropped == 1


def stale_bodies(stale: Stale) -> list[str]:
    (parked,) = stale.queue.candidates()
    return [body.decode() for body in parked.first.publication.bodies]


def test_headers_and_destinations_and_channels_are_charged():
    headers = (("destination", "a"), ("big", "x" * 5000))
    stale = Stale()
    stale.park("a", "0", headers=headers)
    assert stale.queue.bytes == FIRST + run_cost("0", headers)
    stale.park("a", "1", headers=headers)
    stale.park("a", "2", headers=headers)
    assert stale.queue.bytes == FIRST + CHANNEL_OVERHEAD_BYTES + 3 * run_cost("0", headers)
    stale.park("b", "0")
    (first,) = stale.claim("a")
    stale.queue.take(first)
    stale.queue.take(first)
    both = 2 * FIRST + CHANNEL_OVERHEAD_BYTES + run_cost("0", headers) + run_cost("0")
    assert stale.queue.bytes == both
    stale.queue.take(first)
    assert stale.queue.bytes == FIRST + run_cost("0")


def test_a_message_over_the_limit_drives_nothing_out():
    stale = Stale("drop-oldest", room_bytes=4000)
    stale.park("a", "small")
    stale.park("b", "x" * 4000)
    assert stale.take_all("*") == ["small"]
    assert stale.destinations["b"].dropped == 1


def test_a_run_over_the_limit_keeps_its_newest():
    stale = Stale("drop-oldest", room_bytes=FIRST + run_cost(["x" * 100] * 3))
    stale.park("a", "old")
    stale.park("b", *(f"{number:100}" for number in range(9)))
    assert [body.strip() for body in stale.take_all("*")] == ["6", "7", "8"]


def test_drop_oldest_drops_the_first_to_expire_wherever_it_is():
    stale = Stale("drop-oldest", size=4)
    stale.park("b", "b0", expires=3.0)
    stale.park("a", "a0", expires=1.0)
    stale.park("c", "c0", expires=2.0)
    stale.park("a", "a1", expires=4.0)
    for number, at in enumerate(["a", "c", "b", "a"]):
        before = stale.destinations[at].dropped
        stale.park("d", f"d{number}", expires=9.0 + number)
        assert stale.destinations[at].dropped == before + 1
    assert stale.take_all("*") == ["d0", "d1", "d2", "d3"]


def test_drop_oldest_does_not_take_a_revived_message_for_the_oldest():
    stale = Stale("drop-oldest", size=3)
    stale.park("a", "a0", expires=1.0)
    stale.park("b", "b0", expires=3.0)
    stale.park("a", "a1", expires=5.0)
    (revived,) = stale.claim("a")
    stale.queue.take(revived)
    stale.release(revived)
    stale.park("c", "c0", "c1", expires=9.0)
    assert stale.take_all("*") == ["a1", "c0", "c1"]


def test_drop_oldest_finds_a_victim_after_revivals_have_emptied_destinations():
    # Each round leaves an entry in the heap of due times whose destination is gone, or younger.
    stale = Stale("drop-oldest", size=2)
    for turn in range(50):
        due = 10.0 + turn
        stale.park("a", f"a{turn}", expires=due)
        stale.park("b", f"b{turn}", expires=due)
        if turn % 3 == 0:
            assert stale.take_all("a") in ([f"a{turn}"], [])
    stale.park("c", "c0", "c1", expires=99.0)
    assert stale.take_all("*") == ["c0", "c1"]


def test_the_budget_of_the_process_does_not_drop_parked_messages():
    stale = Stale("drop-oldest", budget=FIRST + run_cost("0"))
    stale.park("a", "0")
    stale.park("b", "1")
    assert stale.take_all("*") == ["0"]
    assert stale.destinations["b"].dropped == 1


def test_a_budget_overdrawn_by_others_takes_nothing():
    stale = Stale(budget=1000)
    stale.memory.used_bytes = 5000
    stale.queue.park(
        Publication(Destination("a", Kind.TOPIC), Head("SEND", ()), [b"x"], 0.0, 10.0), 0.0
    )
    assert stale.queue.size == 0
    assert stale.memory.used_bytes == 5000


# --- expiry -----------------------------------------------------------------------------------


def test_a_full_queue_sweeps_before_it_drops():
    stale = Stale(size=2)
    stale.park("a", "0", expires=1.0)
    stale.park("b", "1", expires=5.0)
    stale.park("c", "2", expires=6.0, now=1.0)
    assert stale.take_all("*", now=1.0) == ["1", "2"]
    assert stale.queue.statistics.dropped == 0
    assert stale.queue.statistics.expired == 1


def test_the_sweep_drops_only_expired_messages(stale: Stale):
    stale.park("a", "0", "1", expires=1.0)
    stale.park("a", "2", expires=2.0)
    stale.park("b", "3", expires=1.5)
    stale.park("a", "4", expires=3.0)
    for now, left in ((0.9, 5), (1.0, 3), (1.4, 3), (1.6, 2), (2.5, 1), (3.0, 0)):
        stale.queue.sweep(now)
        stale.check()
        assert stale.queue.size == left
    assert stale.queue.statistics.expired == 5


def test_removal_in_between_does_not_confuse_the_sweep(stale: Stale):
    stale.park("a", "0", expires=1.0)
    stale.park("a", "1", expires=3.0)
    (parked,) = stale.claim("a")
    stale.queue.take(parked)
    stale.queue.sweep(2.0)
    assert stale.queue.size == 1
    stale.queue.sweep(3.0)
    assert stale.queue.size == 0
    assert not stale.queue.refresh(parked, 3.0)
    # The name comes back; the one that was claimed has nothing to do with it.
    stale.park("a", "2", expires=9.0)
    assert not stale.queue.holds(parked)
    assert not stale.queue.refresh(parked, 3.0)
    stale.release(parked)
    assert stale.take_all("a") == ["2"]


def test_a_sweep_costs_in_proportion_to_the_expired_messages():
    stale = Stale(size=10**6, checks=False)
    for number in range(3000):
        stale.park(f"a{number}", "x", expires=5.0 if number else 1.0)
    counter = Counted(stale)
    stale.queue.sweep(1.0)
    assert stale.queue.size == 2999
    assert counter.lookups <= 3


def sweeps(stale: Stale, now: float) -> list[int]:
    """Sweep until nothing is left, and return the number of messages that each turn dropped."""
    lost, is_more = [], True
    while is_more:
        before = stale.queue.size
        is_more = stale.queue.sweep(now)
        lost.append(before - stale.queue.size)
        stale.check()
    return lost


@pytest.mark.parametrize(("names", "runs"), [(1, 2000), (500, 1), (7, 300)])
def test_much_that_has_expired_goes_in_several_turns(names: int, runs: int):
    stale = Stale(size=10**6, checks=False)
    for number in range(names * runs):
        stale.park(f"a{number % names}", "x", expires=1.0 + number % 3)
    stale.park("b", "x", expires=50.0)
    stale.checks = names < 10
    lost = sweeps(stale, 9.0)
    assert len(lost) >= names * runs // MAX_SWEPT
    assert sum(lost) == names * runs
    # The last of a destination costs more: the bound is of time.
    assert max(lost) <= (MAX_SWEPT if runs > 1 else MAX_SWEPT // DESTINATION_SWEEPS)
    assert stale.queue.statistics.expired == names * runs
    assert sweeps(stale, 9.0) == [0]
    assert stale.take_all("*") == ["x"]


def test_expired_messages_make_room_after_several_sweeps():
    stale = Stale(size=2 * MAX_SWEPT, checks=False)
    for _ in range(2 * MAX_SWEPT):
        stale.park("a", "old", expires=1.0)
    stale.park("b", *["new"] * (MAX_SWEPT + 10), expires=9.0, now=5.0)
    assert stale.queue.statistics.dropped == 0
    assert stale.queue.depth("b") == MAX_SWEPT + 10
    assert 0 < stale.queue.depth("a") < MAX_SWEPT  # no more than it took
    assert len(stale.take_all("b", now=5.0)) == MAX_SWEPT + 10


def test_nothing_expired_is_given_though_the_sweep_has_not_come_to_it():
    stale = Stale(size=10**6, checks=False)
    for _ in range(3 * MAX_SWEPT):
        stale.park("a", "old", expires=1.0)
    stale.park("a", "new", expires=9.0)
    assert stale.queue.sweep(5.0)
    assert stale.take_all("a", now=5.0) == ["new"]


def test_entries_of_due_times_do_not_pile_up():
    stale = Stale(checks=False)
    for turn in range(5000):
        stale.park("a", "x", expires=100.0 + turn)
        stale.take_all("a")
    assert len(stale.queue._due) < 1100
    stale.park("a", "last", expires=1e6)
    stale.queue.sweep(1e5)
    assert stale.take_all("a") == ["last"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(0, 9))))
def test_after_everything_has_expired_nothing_is_charged(parkings):
    stale = Stale("drop-oldest", size=7, room_bytes=9000)
    for name, count, expires in parkings:
        stale.park(name, *numbered("m", count), expires=float(expires))
    for now in range(10):
        stale.queue.sweep(float(now))
        stale.check()
    assert stale.queue.size == stale.memory.used_bytes == 0
    counted = stale.queue.statistics
    assert counted.parked + counted.dropped >= sum(count for _, count, _ in parkings)
    assert (
        sum(destination.expired for destination in stale.destinations.values()) == counted.expired
    )
    assert (
        sum(destination.dropped for destination in stale.destinations.values()) == counted.dropped
    )


# --- claims -----------------------------------------------------------------------------------


def test_claimed_message_is_exclusive_until_released(stale: Stale):
    stale.park("a.x", "0")
    stale.park("a.y", "1")
    (claimed,) = stale.claim("a.x")
    assert [parked.destination.name for parked in stale.claim("a.*")] == ["a.y"]
    assert stale.claim("*") == []
    stale.release(claimed)
    assert stale.claim("*") == [claimed]


NAMES = [
    "a",
    "a.b",
    "a.b.c",
    "a/b",
    "ab",
    "b",
    "b.a",
    "#a",
    "a\U0010ffff\U0010ffff",
    "a\U0010ffffb",
]


@pytest.mark.parametrize(
    "pattern", ["*", "a*", "a.*", "a.>", "*.b", "*.a", "a/*", "#*", "a.b.>", "a.*.c", "x*", "ab*"]
)
@pytest.mark.parametrize("grammar", ["native", "seed"])
def test_a_wildcard_claims_exactly_the_matching_backlog(pattern: str, grammar: str):
    compiled = compile_pattern(pattern, grammar)
    stale = Stale()
    for name in NAMES:
        stale.park(name, "x")
    found = [
        parked.destination.name for parked in stale.queue.matching(pattern, compiled) if parked
    ]
    if compiled is None:
        assert found == []
    else:
        assert found == sorted(name for name in NAMES if matches(compiled, name))


@pytest.mark.parametrize("grammar", ["native", "seed"])
def test_an_unrelated_subscribe_looks_at_no_parked_name(grammar: str):
    stale = Stale(size=10**6, checks=False)
    for number in range(5000):
        stale.park(f"/parked/a{number:05}", "x")
    counter = Counted(stale)
    for name in ("/other/a", "/other/*", "/parked/b*", "/parkee/*", "/parked/a02500x*", "#w"):
        assert not any(stale.queue.matching(name, compile_pattern(name, grammar)))
    assert counter.lookups <= 10 + 2 * STEP
    (found, *_) = stale.queue.matching("x", compile_pattern("/parked/a02500*", grammar))
    assert found is not None
    assert found.destination.name == "/parked/a02500"
    assert counter.lookups <= 20 + 3 * STEP


class Counted:
    """Counts how often the sorted names of a stale queue are looked at."""

    def __init__(self, stale: Stale) -> None:
        self.lookups = 0
        self._names = stale.queue._parked
        stale.queue._parked = self

    def get(self, name: str) -> ParkedDestination | None:
        self.lookups += 1
        return self._names.get(name)  # type: ignore[no-any-return]

    def __contains__(self, name: str) -> bool:
        self.lookups += 1
        return name in self._names

    def __getitem__(self, name: str) -> ParkedDestination:
        self.lookups += 1
        return self._names[name]  # type: ignore[no-any-return]

    def __delitem__(self, name: str) -> None:
        del self._names[name]

    def __len__(self) -> int:
        return len(self._names)

    def irange(self, minimum: str):
        for name in self._names.irange(minimum):
            self.lookups += 1
            yield name
