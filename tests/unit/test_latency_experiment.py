"""The latency experiment: orderings the spec demands, ours against its targets, results that survive a restart."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from headgate.experiments.campaign import Case, Results, Run, run_all, run_case
from headgate.experiments.clairvoyant import bound, bound_of_the_curve, placements, without_foresight
from headgate.experiments.latency_cases import held_out, sweeps, tables, variants
from headgate.experiments.latency_report import report
from headgate.simulation.arrivals import burst, even
from headgate.simulation.outcome import Outcome
from headgate.simulation.traces import w1

CASES = {row.case.key: row.case for row in tables()}


def runs(key: str, seeds: int = 2) -> list[Outcome]:
    return [run_case(CASES[key], seed, 1.03 + 0.04 * (seed % 2)) for seed in range(seeds)]


def sla(outcomes: list[Outcome]) -> float:
    return float(np.mean([o.sla_percent for o in outcomes]))


def cost(outcomes: list[Outcome]) -> float:
    return float(np.mean([o.replica_minutes for o in outcomes]))


def test_under_skew_algorithm_2_beats_linear_by_more_than_ten_points() -> None:
    assert sla(runs("w1s/alg2")) - sla(runs("w1s/linear")) > 10


def test_with_slow_rebalances_algorithm_2_beats_algorithm_1_and_overprovisioning_costs_more() -> None:
    second = runs("w1/alg2-tr2")
    assert sla(second) > sla(runs("w1/alg1-tr2"))
    assert cost(second) < 50


def test_the_peaks_of_latency_go_away_with_short_heartbeats() -> None:
    slow, quick = runs("w1/alg2", 4), runs("w1/alg2-hb", 4)
    assert np.mean([o.max_latency_s for o in quick]) < 1 < np.mean([o.max_latency_s for o in slow])
    stalled = max(slow, key=lambda o: o.max_latency_s)
    assert stalled.causes()["scale-down stall"] > stalled.causes()["scale-up rebalance"]


@pytest.mark.parametrize(
    ("key", "goal", "limit"), [("w1/ours", 99.5, 28.5), ("w1s/ours", 99.5, 24.5), ("w1m/ours", 100.0, 16.0)]
)
def test_ours_reaches_its_targets_on_w1(key: str, goal: float, limit: float) -> None:
    outcomes = runs(key)
    assert sla(outcomes) >= goal
    assert cost(outcomes) <= limit


def test_every_row_of_every_table_is_a_case_of_its_own() -> None:
    rows = [*tables(), *variants(), *sweeps(), *held_out()]
    printed = [row for row in rows if row.published is not None]
    assert len(printed) == 20  # 3 + 3 simulated rows of tables 2 and 3, 4 skewed, 4 heartbeat, 6 rebalance
    by_key: dict[str, Case] = {}
    for row in rows:
        first = by_key.setdefault(row.case.key, row.case)
        assert (first.trace, first.settings, first.producer) == (row.case.trace, row.case.settings, row.case.producer)


def test_results_survive_a_restart_and_are_not_run_twice(tmp_path: Path) -> None:
    results = Results(tmp_path / "runs.csv")
    run_all([CASES["w1/linear"]], 1, results)
    again = Results(tmp_path / "runs.csv", resume=True)
    assert again.runs == results.runs
    assert [r.period_s for r in again.of("w1/linear")] == [1.03, 1.07]
    told: list[tuple[str, int, int]] = []
    run_all([CASES["w1/linear"]], 1, again, lambda *news: told.append(news))
    assert len(again.runs) == 2
    assert told[-1] == ("done", 2, 2)


def test_the_report_says_reproduced_or_not_and_how_far(tmp_path: Path) -> None:
    results = Results(tmp_path / "runs.csv")
    blank = {f.name: 0 for f in fields(Run) if f.name not in ("key", "sla_percent", "replica_minutes")}
    for key, sla_percent, minutes in (("w1/alg2", 97.0, 31.0), ("w1/linear", 90.0, 25.5), ("w1/ours", 99.6, 29.0)):
        results.add(Run(key=key, sla_percent=sla_percent, replica_minutes=minutes, **blank))
    text = report([r for r in tables() if r.table.startswith("Table 2")], [], results, 1, quick=True)
    assert "| Alg 2 | 1 | 97.00 (97.00 … 97.00) | 31.00 (31.0 … 31.0) | " in text
    assert "| 97.4, 30.21, 6/6 | reproduced |" in text
    assert "not: SLA -4.7 points" in text
    assert "missed: cost is 0.50 above" in text
    assert "| Linear, W1 | 25.52 | 6/6 | 25.52, 6/6 |" in text


def test_the_clairvoyant_bound_is_below_ours_and_exact_on_small_cases() -> None:
    assert len(placements(3)) == 5
    # 150 in one partition and 50 in another, in time 100: one replica is late with 100, two with 50.
    assert bound(np.array([[150, 50]]), 100, 50).replica_minutes == pytest.approx(1 / 60)
    assert bound(np.array([[150, 50]]), 100, 75).replica_minutes == pytest.approx(2 / 60)
    # 200 over two partitions at random: two replicas expect 2 x 7.07 x 0.399 = 5.64 late, that is 97.18 %.
    assert bound_of_the_curve(np.array([200.0]), even(2), 100, 97.1).sla_percent == pytest.approx(97.18, abs=0.01)
    batches = burst(w1(), even(5), np.random.default_rng([0, 5])).per_second()
    least = bound(batches, 100.0, 99.5)
    assert least.sla_percent >= 99.5
    assert least.replica_minutes < cost(runs("w1/ours", 1))


def test_without_foresight_a_jump_is_late_until_what_it_needs_is_there() -> None:
    # Five seconds of 100 fit one replica, six of 180 need two, which are there after four: 4 · 80 late of 1,580.
    found = without_foresight(np.array([[50, 50]] * 5 + [[90, 90]] * 6), 100.0, 4)
    assert found.sla_percent == pytest.approx(100 * (1 - 320 / 1580))
    assert found.replica_minutes == pytest.approx((9 * 1 + 2 * 2) / 60)
