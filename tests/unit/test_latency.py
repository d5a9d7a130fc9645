"""Latency quantiles, by hand, and what Prometheus is told of them."""

from dataclasses import replace
from itertools import count

import pytest
from prometheus_client import REGISTRY

from headgate.config.settings import Slo
from headgate.lake.commit import CommitResult
from headgate.lake.commit_report import report, show_start
from headgate.lake.latency import (
    QUANTILE_POINTS,
    latencies_ms,
    mean,
    merge_points,
    merge_quantiles,
    share_within,
    weighted_quantile,
)
from headgate.model import CycleStats, Skip, TopicPartition
from headgate.model.ledger import Ledger
from tests.announcements import announce

_tables = count()


def test_a_quantile_is_the_smallest_value_that_covers_its_share_of_the_weight() -> None:
    samples = [(30.0, 1.0), (10.0, 2.0), (20.0, 1.0)]
    assert [weighted_quantile(samples, q) for q in (0.0, 0.5, 0.51, 0.75, 0.76, 1.0)] == [10, 10, 20, 20, 30, 30]


def test_the_latency_of_a_commit_counts_every_cycle_by_its_records() -> None:
    # 30 records that are 1 s old and 10 that are 5 s old: three quarters within a second.
    young = CycleStats(records=30, timestamps_ms=(99_000,) * QUANTILE_POINTS)
    old = CycleStats(records=10, timestamps_ms=(95_000,) * QUANTILE_POINTS)
    points = merge_points((latencies_ms(stats, 100_000), stats.records) for stats in (young, old, CycleStats()))
    assert len(points) == QUANTILE_POINTS
    assert (points[0], points[75], points[76], points[100]) == (1000, 1000, 5000, 5000)  # 0, 0.75, 0.76 and 1


def test_commits_without_records_have_no_latency() -> None:
    assert latencies_ms(CycleStats(), 100) == ()
    assert merge_points([((), 0)]) == ()
    assert merge_quantiles([((), 0)], 0.5) is None


@pytest.mark.parametrize(("quantile", "expected"), [(0.5, 100.0), (0.9, 100.0), (0.95, 900.0)])
def test_several_commits_are_merged_by_their_records(quantile: float, expected: float) -> None:
    assert merge_quantiles([((100.0,) * 21, 90), ((900.0,) * 21, 10)], quantile) == expected


def test_between_two_quantiles_records_lie_evenly() -> None:
    points = (1.0, 2.0, 4.0, 4.0, 8.0)  # a quarter of the records between each two
    bounds = (0.9, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 8.0, 9.0)
    assert [share_within(points, bound) for bound in bounds] == [0, 0, 0.125, 0.25, 0.375, 0.75, 0.8125, 1, 1]
    assert mean(points) == pytest.approx((1.5 + 3 + 4 + 6) / 4)
    assert share_within((5.0,), 4.0) == 0
    assert share_within((5.0,), 5.0) == 1


def shown(name: str, table: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"table": table, **labels}) or 0.0


def committed(table: str, *cycles: CycleStats, goal_s: float = 30.0) -> None:
    """One commit of these cycles at second 10,000."""
    announcements = tuple(replace(announce(("t", 0, 0, 1)), stats=stats) for stats in cycles)
    report("c", table, CommitResult(Ledger(), 1, True, announcements), 10_000_000, Slo(latency_s=goal_s))


def aged(records: int, *ages_s: float) -> CycleStats:
    """Records of so many ages at second 10,000, the oldest first, each age as often."""
    oldest_first = [int(10_000_000 - 1000 * age_s) for age_s in ages_s]
    return CycleStats(records=records, timestamps_ms=tuple(oldest_first))


def test_one_late_record_of_a_hundred_thousand_does_not_miss_a_goal_of_99_percent() -> None:
    table = f"lake.straggler{next(_tables)}"
    committed(table, aged(100_000, 3600.0, *[1.0] * (QUANTILE_POINTS - 1)))
    assert shown("headgate_latency_seconds_count", table) == 100_000
    assert 1 <= shown("headgate_late_records_total", table) < 1000


def test_late_records_and_the_histogram_add_up_over_commits() -> None:
    table = f"lake.added{next(_tables)}"
    committed(table, aged(100, 2.0, 2.0), aged(300, 50.0, 10.0))  # evenly from 10 s to 50 s: 150 are later than 30 s
    committed(table, aged(50, 40.0, 40.0), CycleStats())
    assert shown("headgate_late_records_total", table) == pytest.approx(150 + 50)
    assert shown("headgate_latency_seconds_count", table) == pytest.approx(450)
    assert shown("headgate_latency_seconds_sum", table) == pytest.approx(100 * 2 + 300 * 30 + 50 * 40)
    within = {bound: shown("headgate_latency_seconds_bucket", table, le=bound) for bound in ("2.0", "20.0", "60.0")}
    assert within == pytest.approx({"2.0": 100, "20.0": 100 + 75, "60.0": 450})
    assert shown("headgate_latency_seconds_bucket", table, le="+Inf") == pytest.approx(450)


def test_a_clock_that_is_ahead_makes_no_negative_latency() -> None:
    table = f"lake.ahead{next(_tables)}"
    committed(table, aged(10, -5.0, -7.0))
    assert shown("headgate_latency_seconds_sum", table) == 0
    assert shown("headgate_latency_seconds_bucket", table, le="0.25") == 10


def test_what_alerts_compare_over_time_is_there_before_the_first_commit() -> None:
    """What Kafka took while the pipeline was down is in its first commit: no alert if the counter begins with it."""
    table = f"lake.begun{next(_tables)}"
    show_start(table)
    counters = ["commits", "commit_conflicts", "announcements_refused", "rows", "rejected_records"]
    names = [*(f"{counter}_total" for counter in (*counters, "late_records")), "latency_seconds_count"]
    assert {REGISTRY.get_sample_value(f"headgate_{name}", {"table": table}) for name in names} == {0}
    skipped = [{"table": table, "reason": reason} for reason in ("retention", "gap")]
    assert {REGISTRY.get_sample_value("headgate_skipped_offsets_total", labels) for labels in skipped} == {0}


def test_what_retention_took_is_counted_apart_from_gaps_in_which_nothing_was() -> None:
    table, partition = f"lake.skipped{next(_tables)}", TopicPartition("t", 0)
    skips = (Skip(partition, 0, 5, 5, "retention"), Skip(partition, 7, 8, 1, "gap"), Skip(partition, 9, 12, 2, "gap"))
    announcements = tuple(announce(("t", 0, 0, 20), skips=some) for some in (skips[:2], skips[2:]))
    report("c", table, CommitResult(Ledger(), 1, True, announcements), 10_000_000, Slo())
    assert shown("headgate_skipped_offsets_total", table, reason="retention") == 5
    assert shown("headgate_skipped_offsets_total", table, reason="gap") == 3
