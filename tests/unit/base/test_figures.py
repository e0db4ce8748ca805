"""Figures shared by all floors: percentiles and sizes for people."""

from math import inf

import pytest

from trio_stomp.base import percentile, rounded_size


@pytest.mark.parametrize(
    ("counts", "share", "longest", "value"),
    [
        ([4, 0, 0, 0], 0.5, inf, 0.5),
        ([0, 0, 4, 0], 1.0, inf, 4.0),
        ([1, 0, 1, 0], 0.5, inf, 1.0),
        ([0, 100, 0, 0], 0.5, inf, 1.5),
        ([0, 0, 10, 0], 0.0, inf, 2.0),
        # Beyond the last bound.
        ([0, 0, 0, 4], 0.5, inf, 4.0),
        ([0, 0, 0, 9], 1.0, 7.0, 7.0),
        ([0, 0, 0, 2], 0.5, 7.0, 5.5),
        # None is above the longest.
        ([0, 0, 9, 0], 0.99, 2.1, 2.1),
        ([0, 0, 0, 0], 0.99, inf, 0.0),
        ([0, 0, 0, 0], 0.99, 0.0, 0.0),
    ],
)
def test_percentiles_lie_between_the_bounds_of_their_bucket(
    counts: list[int], share: float, longest: float, value: float
) -> None:
    assert percentile([1, 2, 4], counts, share, longest) == pytest.approx(value)


def test_counts_that_do_not_match_the_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="3 counts for 3 bounds"):
        percentile([1, 2, 4], [1, 2, 3], 0.9)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 2048, "1,022 KiB"),
        (5 << 30, "5 GiB"),
        (3 << 40, "3 TiB"),
    ],
)
def test_sizes_have_the_largest_fitting_unit(count: int, text: str) -> None:
    assert rounded_size(count) == text
