"""The two counters of the core: durations in buckets, and bytes against a budget."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_stomp.broker import BOUNDS_MS, Histogram, MemoryBudget


def place(seconds: float) -> int:
    histogram = Histogram()
    histogram.observe(seconds, 1)
    return histogram.buckets.index(1)


def test_bounds_double_and_one_bucket_is_open():
    assert BOUNDS_MS[0] == 0.05
    assert all(after == 2 * before for before, after in pairwise(BOUNDS_MS))
    assert len(Histogram().buckets) == len(BOUNDS_MS) + 1


@given(st.floats(0, 1e7))
def test_a_duration_lies_below_the_bound_of_its_bucket_and_not_below_the_one_before(seconds):
    number = place(seconds)
    if number < len(BOUNDS_MS):
        assert seconds * 1000 <= BOUNDS_MS[number] * 1.000001
    if number:
        assert seconds * 1000 >= BOUNDS_MS[number - 1] * 0.999999


@pytest.mark.parametrize(("seconds", "number"), [(0.0, 0), (0.00004, 0), (0.00006, 1), (99.0, 21)])
def test_an_observation_belongs_to_the_bucket_of_its_bound(seconds: float, number: int):
    assert place(seconds) == number


def test_observations_add_up():
    histogram = Histogram()
    histogram.observe(0.5, 3)
    histogram.observe(0.25, 2)
    histogram.observe(1.0, 1)
    assert histogram.count == sum(histogram.buckets) == 6
    assert histogram.sum_s == 3.0
    assert histogram.max_s == 1.0


def test_a_budget_takes_a_charge_that_fits_and_nothing_of_one_that_does_not():
    memory = MemoryBudget(10)
    assert memory.take(10)
    assert not memory.take(1)
    assert memory.used_bytes == 10
    memory.give(4)
    assert not memory.take(5)
    assert memory.take(4)
    assert memory.used_bytes == 10


@pytest.mark.parametrize(("used", "is_high"), [(0, False), (90, False), (91, True), (100, True)])
def test_nine_tenths_are_high(used: int, is_high: bool):
    assert MemoryBudget(100, used_bytes=used).is_high is is_high
