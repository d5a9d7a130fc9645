"""Latency quantiles, by hand."""

import pytest

from headgate.lake.latency import QUANTILE_POINTS, commit_latency_ms, merge_quantiles, weighted_quantile
from headgate.model import CycleStats


def test_a_quantile_is_the_smallest_value_that_covers_its_share_of_the_weight() -> None:
    samples = [(30.0, 1.0), (10.0, 2.0), (20.0, 1.0)]
    assert [weighted_quantile(samples, q) for q in (0.0, 0.5, 0.51, 0.75, 0.76, 1.0)] == [10, 10, 20, 20, 30, 30]


def test_the_latency_of_a_commit_counts_every_cycle_by_its_records() -> None:
    # 30 records that are 1 s old and 10 that are 5 s old: three quarters within a second.
    young = CycleStats(records=30, timestamps_ms=(99_000,) * QUANTILE_POINTS)
    old = CycleStats(records=10, timestamps_ms=(95_000,) * QUANTILE_POINTS)
    points = commit_latency_ms([young, old, CycleStats()], committed_at_ms=100_000)
    assert len(points) == QUANTILE_POINTS
    assert (points[0], points[15], points[16], points[20]) == (1000, 1000, 5000, 5000)  # 0, 0.75, 0.8 and 1


def test_commits_without_records_have_no_latency() -> None:
    assert commit_latency_ms([CycleStats()], 100) == ()
    assert merge_quantiles([((), 0)], 0.5) is None


@pytest.mark.parametrize(("quantile", "expected"), [(0.5, 100.0), (0.9, 100.0), (0.95, 900.0)])
def test_several_commits_are_merged_by_their_records(quantile: float, expected: float) -> None:
    assert merge_quantiles([((100.0,) * 21, 90), ((900.0,) * 21, 10)], quantile) == expected
