"""E-3: what a consumer can do, from its cycles, by hand-computed numbers; and what policies make of it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from headgate.model import Assignment, ConsumerLoad, Decision, Observation, PartitionLoad, TopicPartition
from headgate.model.capacity import CYCLES_KEPT, CYCLES_OF_MEAN, CapacityMeter, Estimate
from headgate.policies.believing import FORGET_S
from headgate.policies.replica_capacity import UNKNOWN, LastMeasured
from headgate.policies.slo import Slo
from headgate.simulation.arrivals import counted, varied
from headgate.simulation.run import RunSettings, simulate


def metered(estimate: Estimate, cycles: Sequence[tuple[float, float]]) -> float | None:
    meter = CapacityMeter(estimate)
    for work, busy_s in cycles:
        meter.add(work, busy_s)
    return meter.per_s


def test_the_mean_is_all_work_over_all_time() -> None:
    # 100 in 1 s and 300 in 1 s and 100 in 3 s: 500 in 5 s, not the mean of 100, 300 and 33.
    assert metered("mean", [(100, 1), (300, 1), (100, 3)]) == pytest.approx(100)


def test_the_mean_forgets_all_but_the_newest_cycles() -> None:
    assert metered("mean", [(1, 1)] * 50 + [(200, 1)] * CYCLES_OF_MEAN) == pytest.approx(200)


def test_three_cycles_at_another_speed_begin_the_mean_anew_and_one_or_two_do_not() -> None:
    usual, slow = [(200.0, 1.0)] * 27, (80.0, 1.0)
    assert metered("mean", [*usual, slow, slow]) == pytest.approx((27 * 200 + 2 * 80) / 29)
    assert metered("mean", [*usual, slow, slow, slow]) == pytest.approx(80)
    assert metered("mean", [*usual, slow, slow, slow, *[(200.0, 1.0)] * 3]) == pytest.approx(200)  # and back
    noise = [(200.0 * share, 1.0) for share in (0.8, 0.8, 0.8, 1.2, 1.2, 1.2)]  # below and above, but not by a quarter
    assert metered("mean", [*usual, *noise]) == pytest.approx((21 * 200 + 1200 + 3 * 200) / 30)


def test_the_worst_case_is_the_slowest_cycle_until_it_is_too_long_ago() -> None:
    slow, usual = (50.0, 1.0), (200.0, 1.0)
    assert metered("worst_case", [usual, slow, usual]) == 50
    assert metered("worst_case", [slow] + [usual] * CYCLES_KEPT) == 200


def test_p99_leaves_out_the_slowest_of_a_hundred_cycles() -> None:
    # Of 200 cycles 198 are at least as fast as the third slowest.
    cycles = [(float(n), 1.0) for n in range(1, 201)]
    assert metered("p99", cycles) == 3
    # Of few cycles none can be left out: it is the worst case then.
    assert metered("p99", [(200, 1), (50, 1), (100, 1)]) == 50


def test_a_fixed_capacity_and_an_idle_consumer_measure_nothing() -> None:
    assert metered("fixed", [(200, 1)]) is None
    assert metered("worst_case", [(0, 1), (100, 0)]) is None
    assert metered("mean", []) is None


def told(
    at_s: float, records_per_s: float | None, of_bytes: float = 100.0, bytes_per_s: float | None = None
) -> Observation:
    """Ten records a second come, of this size; one consumer says what it measured."""
    p = TopicPartition("t", 0)
    loads = {1: ConsumerLoad(capacity_bytes_per_s=bytes_per_s, capacity_records_per_s=records_per_s)}
    return Observation(at_s, at_s, {p: PartitionLoad(10 * of_bytes, 10.0)}, Assignment({1: frozenset({p})}), loads, 0.0)


def with_nothing_coming(seen: Observation) -> Observation:
    return replace(seen, partitions=dict.fromkeys(seen.partitions, PartitionLoad(0.0, 0.0, 1000)))


def test_policies_take_the_configured_capacity_then_the_slowest_measured_then_the_one_in_bytes() -> None:
    seen = told(0.0, 180.0)
    seen = replace(seen, consumers={**seen.consumers, 2: ConsumerLoad(capacity_records_per_s=120.0)})
    assert LastMeasured(200.0, None).look(seen) == 200
    assert LastMeasured(None, 5000.0).look(seen) == 120
    assert LastMeasured(None, 5000.0).look(told(0.0, None)) == 50  # 5,000 B/s of records of 100 bytes
    assert LastMeasured(None, None).look(told(0.0, None)) is None


def test_what_was_measured_holds_while_those_who_measured_it_are_replaced_but_not_for_good() -> None:
    last = LastMeasured(None, 5000.0)
    assert last.look(told(0.0, 500.0)) == 500
    assert last.look(told(FORGET_S, None)) == 500
    assert last.look(told(FORGET_S + 1, None)) == 50, "whoever is not busy could never show that it does more"


def test_what_was_measured_holds_for_good_where_nothing_comes_that_would_tell_how_large_records_are() -> None:
    """Consumers that work off what is left are not forgotten, or a group could not shrink when they are done."""
    last = LastMeasured(None, 5000.0)
    assert last.look(told(0.0, 500.0)) == 500
    assert last.look(with_nothing_coming(told(10 * FORGET_S, None))) == 500
    policy = Slo(slo_s=5.0, consumer_capacity_bytes_per_s=5000.0)
    for at_s in (0.0, 1.0, 2.0, 3.0, 10 * FORGET_S):
        came = told(at_s, 500.0 if at_s < 10 else None)
        seen = replace(came, slot_s=1.0, partitions={p: x._replace(arrivals=(10,)) for p, x in came.partitions.items()})
        decision = policy.decide(seen if at_s < 10 else with_nothing_coming(seen))
    assert UNKNOWN not in decision.reason


def test_what_was_measured_is_bytes_and_more_records_if_they_are_smaller() -> None:
    last = LastMeasured(None, 5000.0)
    assert last.look(told(0.0, 20.0, of_bytes=10_000.0, bytes_per_s=200_000.0)) == 20
    assert last.look(told(1.0, None, of_bytes=1000.0)) == 200
    assert last.look(with_nothing_coming(told(2.0, None))) == 20, "of records as they were when it was measured"
    # Not the mix of everything: who measured 20 reads large records where most are small.
    mixed = told(3.0, 20.0, of_bytes=100.0, bytes_per_s=200_000.0)
    assert last.look(mixed) == 20
    assert last.look(told(4.0, None, of_bytes=10_000.0)) == 20


class Watching:
    """Remembers the capacities it was told."""

    def __init__(self) -> None:
        self.told: list[float | None] = []

    def decide(self, seen: Observation) -> Decision:
        self.told.append(seen.consumers[1].capacity_records_per_s)
        return Decision(None, "watching")


@pytest.mark.parametrize(("estimate", "expected"), [("mean", 100.0), ("worst_case", 200 / 3), ("fixed", None)])
def test_simulated_consumers_report_as_live_ones_do(estimate: Estimate, expected: float | None) -> None:
    # Ten records a second, in turn of half and of one and a half times the usual 1/100 s.
    arrivals = counted([[10]] * 10)
    costs = np.where(np.arange(100) // 10 % 2, 1.5, 0.5)
    policy = Watching()
    simulate(
        replace(arrivals, costs=(costs,)),
        policy,
        RunSettings(period_s=1.0, phase_s=0.5, warm_up_s=0.0, capacity_estimate=estimate).with_group(
            capacity_records_per_s=100.0
        ),
    )
    assert policy.told[-1] == (None if expected is None else pytest.approx(expected))


def test_records_of_varied_cost_take_longer_or_shorter_and_a_spread_beyond_all_is_refused() -> None:
    arrivals = varied(counted([[5], [5], [5]]), 0.5, np.random.default_rng(1))
    assert arrivals.costs is not None
    (costs,) = arrivals.costs
    assert all(0.5 <= cost <= 1.5 for cost in costs)
    assert [len(set(costs[n : n + 5].tolist())) for n in (0, 5, 10)] == [1, 1, 1]
    outcome = simulate(arrivals, Watching(), RunSettings().with_group(capacity_records_per_s=100.0))
    # The last of five records that came at once is done when all five are.
    assert outcome.latency_s[0][4::5] == pytest.approx(0.05 * costs[::5])
    with pytest.raises(ValueError, match="below 1"):
        varied(arrivals, 1.0, np.random.default_rng(1))
