"""Many quantiles in one pass against one after the other, and shares against what quantiles are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.lake.latency import share_within, weighted_quantile, weighted_quantiles

samples = st.lists(st.tuples(st.integers(0, 20).map(float), st.integers(1, 9).map(float)), min_size=1, max_size=30)
points = st.lists(st.floats(0, 1e6), min_size=2, max_size=30).map(sorted)


@given(samples, st.lists(st.floats(0, 1), max_size=10).map(sorted))
def test_quantiles_in_one_pass_are_those_of_one_after_the_other(
    samples: list[tuple[float, float]], quantiles: list[float]
) -> None:
    assert weighted_quantiles(samples, quantiles) == tuple(weighted_quantile(samples, q) for q in quantiles)


@given(points, st.floats(-1, 1e6 + 1), st.floats(-1, 1e6 + 1))
def test_shares_grow_with_their_bound_and_lie_between_those_of_the_points_around_it(
    points: list[float], one: float, other: float
) -> None:
    low, high = sorted((share_within(points, one), share_within(points, other)))
    assert (share_within(points, min(one, other)), share_within(points, max(one, other))) == (low, high)
    intervals = len(points) - 1
    surely = max((i for i, point in enumerate(points) if point <= one), default=0) / intervals
    assert share_within(points, one) == pytest.approx(surely, abs=1 / intervals)
    assert 0 <= share_within(points, one) <= 1
