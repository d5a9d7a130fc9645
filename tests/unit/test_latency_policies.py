"""The latency paper's policies and their baselines: decisions by hand, golden rows from the spec."""

import inspect
import math
from typing import Any

import numpy as np
import pytest

from headgate.model import Assignment, ConsumerLoad, Observation, PartitionLoad, TopicPartition
from headgate.policies.binpack_lag import Algorithm1, Algorithm2
from headgate.policies.fixed_size import EqualCount, LoadBalance, overprovisioned_size
from headgate.policies.kubernetes import Hpa, Keda
from headgate.policies.linear import Linear, RatioOnly
from headgate.policies.optimal import Optimal, offline
from headgate.policies.registry import build_policy, may_be_none, policy_names
from headgate.policies.slo import Slo
from headgate.simulation.traces import w1

P = [TopicPartition("t", n) for n in range(5)]


def owned(*groups: list[int]) -> Assignment:
    return Assignment({n + 1: frozenset(P[i] for i in group) for n, group in enumerate(groups)})


def seen(
    loads: dict[int, tuple[float, float]],
    assignment: Assignment,
    at_s: float = 100,
    age_s: float = 0.1,
    pause_s: float | None = None,
) -> Observation:
    """Partition index → (records per second, lag)."""
    partitions = {P[i]: PartitionLoad(100 * rate, rate, int(lag)) for i, (rate, lag) in loads.items()}
    return Observation(at_s, at_s - age_s, partitions, assignment, {}, at_s, pause_s=pause_s)


def steps(sizes: list[int]) -> tuple[int, int]:
    changes = np.diff([1, *sizes, 1])
    return int(changes[changes > 0].sum()), int(-changes[changes < 0].sum())


# Golden rows of the spec


def test_linear_on_w1_costs_25_52_replica_minutes_in_6_steps_up_and_6_down() -> None:
    sizes = [Linear().wanted(math.ceil(rate), 5) for rate in w1()]
    assert sum(sizes) / 60 == pytest.approx(25.52, abs=0.005)
    assert steps(sizes) == (6, 6)


@pytest.mark.parametrize(("events", "cost", "ups"), [(85, 32.70, 6), (100, 28.88, 8)])
def test_optimal_on_w1_costs_what_the_paper_prints_for_85_events(events: int, cost: float, ups: int) -> None:
    sizes = offline([[math.ceil(rate) / 5] * 5 for rate in w1()], events)
    assert sum(sizes) / 60 == pytest.approx(cost, abs=0.005)
    assert steps(sizes) == (ups, ups)


def test_overprovisioning_takes_five_replicas_in_both_workloads() -> None:
    assert overprovisioned_size(350, 5, 200, 0.5) == 5
    assert overprovisioned_size(368, 5, 200, 0.5) == 5


# Algorithms 1 and 2


@pytest.mark.parametrize("make", [Algorithm1, Algorithm2])
def test_lag_beyond_the_big_bins_scales_up_and_spreads(make: type[Algorithm1] | type[Algorithm2]) -> None:
    # 5 x 28 waiting = 140 > 90, the room of one bin at f_up 0.9: two hold 84 and 56, with 50 ms of rebalance too.
    decision = make().decide(seen(dict.fromkeys(range(5), (30, 28)), owned([0, 1, 2, 3, 4])))
    assert decision.trigger == "UP"
    assert decision.assignment is not None
    assert sorted(len(decision.assignment[c]) for c in decision.assignment) == [2, 3]
    assert decision.inputs["packed_up"] == 2
    assert decision.rejected


def test_small_bins_scale_down_only_when_everything_fits_them() -> None:
    two = owned([0, 1, 2], [3, 4])
    # f_down 0.4: room for 80 records/s and 40 waiting.
    assert Algorithm1().decide(seen(dict.fromkeys(range(5), (10, 9)), two)).keeps  # 45 > 40
    down = Algorithm1().decide(seen(dict.fromkeys(range(5), (10, 8)), two))
    assert down.trigger == "DOWN"
    assert down.assignment is not None
    assert len(down.assignment) == 1


def test_a_replica_over_the_limit_is_reassigned_though_the_size_is_right() -> None:
    # E-27: high, high, low on {high, high}, {low}.
    decision = Algorithm1().decide(seen({0: (100, 60), 1: (100, 60), 2: (10, 5)}, owned([0, 1], [2])))
    assert decision.trigger == "REASS"
    assert decision.assignment is not None
    placed = decision.assignment.by_partition()
    assert placed[P[0]] != placed[P[1]]


def test_the_literal_reassignment_leaves_replicas_idle_and_the_corrected_one_does_not() -> None:
    # {0, 1, 2} has 96 waiting, over 90; all 5 together need two bins of 90, so two of three replicas would do.
    loads = {0: (20.0, 32.0), 1: (20.0, 32.0), 2: (20.0, 32.0), 3: (45.0, 10.0), 4: (45.0, 10.0)}
    three = owned([0, 1, 2], [3], [4])
    literal = Algorithm1(literal=True, f_down=0.3).decide(seen(loads, three))
    full = Algorithm1(literal=False, f_down=0.3).decide(seen(loads, three))
    assert literal.trigger == full.trigger == "REASS"
    assert literal.assignment is not None
    assert full.assignment is not None
    assert len(literal.assignment) == len(full.assignment) == 3
    assert sum(not literal.assignment[c] for c in literal.assignment) == 1
    assert all(full.assignment[c] for c in full.assignment)


def test_algorithm_2_turns_a_reassignment_into_a_scale_up_when_the_rebalance_adds_lag() -> None:
    # Two bins hold the lag there is (60 + 5 | 60), not what 1 s without service adds (each 100: 160, clipped, alone).
    loads = {0: (100.0, 60.0), 1: (100.0, 60.0), 2: (10.0, 5.0)}
    before = owned([0, 1], [2])
    assert Algorithm1().decide(seen(loads, before)).trigger == "REASS"
    up = Algorithm2().decide(seen(loads, before, pause_s=1.0))
    assert up.trigger == "UP"
    assert up.reason.startswith("phase 1 REASS, phase 2 UP: ")  # E-22
    assert up.assignment is not None
    assert len(up.assignment) == 3


def test_a_decision_tells_rate_and_lag_by_partition_and_what_each_packing_needed() -> None:
    decision = Algorithm1().decide(seen({0: (100.0, 60.0), 1: (30.0, 6.0)}, owned([0, 1])))
    told = dict(decision.inputs)
    # Big bins have 90 of lag and 180 of rate, small ones 40 and 80: one of each kind and two.
    assert (told["consumers"], told["packed_up"], told["packed_down"]) == (1, 1, 2)
    assert (told["t-0 records_per_s"], told["t-0 lag_records"]) == (100, 60)
    assert (told["t-1 records_per_s"], told["t-1 lag_records"]) == (30, 6)


def test_algorithm_2_defers_a_scale_down_that_its_own_rebalance_would_spoil() -> None:
    policy = Algorithm2()
    two, loads = owned([0, 1, 2], [3, 4]), dict.fromkeys(range(5), (15.0, 1.0))
    # 5 waiting fit one bin of 40; after 2 s without service 5 + 150 wait, more than one bin.
    deferred = policy.decide(seen(loads, two, pause_s=2.0))
    assert deferred.keeps
    assert deferred.trigger == "DOWN"
    assert deferred.reason.startswith("phase 1 DOWN, phase 2 none: scale-down deferred")
    assert policy.deferred_downs == 1
    assert not Algorithm2().decide(seen(loads, two, pause_s=0.05)).keeps


def test_nothing_is_decided_during_the_cooldown() -> None:
    policy = Algorithm1(cooldown_s=10)
    one = owned([0, 1, 2, 3, 4])
    busy = dict.fromkeys(range(5), (30.0, 30.0))
    assert not policy.decide(seen(busy, one, at_s=100)).keeps
    assert policy.decide(seen(busy, one, at_s=109.9)).keeps
    assert not policy.decide(seen(busy, one, at_s=110)).keeps


def test_an_oversized_partition_is_told_of() -> None:
    decision = Algorithm1().decide(seen({0: (250.0, 10.0), 1: (5.0, 0.0)}, owned([0], [1])))
    assert [a.about for a in decision.alerts] == ["oversize t-0"]


@pytest.mark.parametrize(
    "wrong", [{"f_up": 0.3, "f_down": 0.4}, {"slo_s": 0}, {"capacity_records_per_s": -1}, {"f_up": 1.0}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"above 0|f_down < f_up"):
        Algorithm2(**wrong)


@pytest.mark.parametrize(
    "policy",
    [Algorithm1(), Algorithm2(), Linear(), RatioOnly(), Hpa(), Keda(), Optimal(), EqualCount(3), LoadBalance(3)],
)
def test_every_policy_holds_on_stale_or_missing_measurements(policy: Algorithm1) -> None:
    one = owned([0, 1, 2, 3, 4])
    assert policy.decide(seen(dict.fromkeys(range(5), (300.0, 300.0)), one, age_s=60)).reason.startswith("hold")
    assert policy.decide(seen({}, Assignment())).reason.startswith("hold")


def test_broken_meters_do_not_move_partitions() -> None:
    nan = {i: PartitionLoad(math.nan, math.nan, -5) for i in range(5)}
    observation = Observation(100, 100, {P[i]: load for i, load in nan.items()}, owned([0, 1, 2, 3, 4]), {}, 100)
    for policy in (Algorithm1(), Algorithm2(), Linear(), Keda()):
        assert policy.decide(observation).keeps


def test_a_pause_that_is_no_number_loses_no_partition() -> None:
    decision = Algorithm2().decide(seen(dict.fromkeys(range(5), (30, 28)), owned([0, 1, 2, 3, 4]), pause_s=math.nan))
    assert decision.assignment is not None
    assert decision.assignment.partitions == frozenset(P)


# Linear and the others


def test_linear_takes_one_replica_per_88_9_records_and_places_them_blindly() -> None:
    assert [Linear().wanted(rate, 5) for rate in (0, 88.8, 89, 177.7, 178, 5000)] == [1, 1, 2, 2, 3, 5]
    assert [RatioOnly().wanted(rate, 5) for rate in (0, 200, 201, 400, 401)] == [1, 1, 2, 2, 3]
    decision = Linear().decide(seen(dict.fromkeys(range(5), (20.0, 0.0)), owned([0, 1, 2, 3, 4])))
    assert decision.assignment == owned([0, 1, 2], [3, 4])  # Kafka's range assignor


def test_keda_asks_for_total_lag_over_the_threshold_up_to_the_partitions() -> None:
    one = owned([0, 1, 2, 3, 4])
    up = Keda().decide(seen(dict.fromkeys(range(5), (10.0, 6.0)), one))  # 30 / 10
    assert up.assignment is not None
    assert len(up.assignment) == 3
    capped = Keda().decide(seen(dict.fromkeys(range(5), (10.0, 100.0)), one))
    assert capped.inputs["metric"] == 50  # 5 partitions x 10, not 500
    assert capped.assignment is not None
    assert len(capped.assignment) == 5
    lagging = Keda(limit_to_partitions_with_lag=True).decide(seen({0: (10.0, 100.0), 1: (1.0, 0.0)}, owned([0, 1])))
    assert lagging.keeps


def test_keda_and_hpa_tolerate_ten_percent() -> None:
    assert Keda().decide(seen({0: (1.0, 21.0), 1: (1.0, 0.0)}, owned([0], [1]))).keeps  # 1.05
    assert Hpa().decide(seen({0: (75.0, 0.0), 1: (75.0, 0.0)}, owned([0, 1]))).keeps  # 0.75 of 0.7


def test_scaling_down_waits_for_the_highest_recommendation_of_five_minutes() -> None:
    policy = Keda()
    busy, calm = dict.fromkeys(range(5), (10.0, 6.0)), dict.fromkeys(range(5), (10.0, 0.0))
    three = owned([0, 1], [2, 3], [4])
    assert policy.decide(seen(busy, three, at_s=0)).keeps
    assert policy.decide(seen(calm, three, at_s=299)).keeps
    down = policy.decide(seen(calm, three, at_s=315))
    assert down.assignment is not None
    assert len(down.assignment) == 1


def test_hpa_adds_at_most_four_or_doubles() -> None:
    many = [TopicPartition("t", n) for n in range(40)]
    loads = {p: PartitionLoad(0, 200, 0) for p in many}
    decision = Hpa().decide(Observation(0, 0, loads, Assignment({1: frozenset(many)}), {}, 0))
    assert decision.assignment is not None
    assert len(decision.assignment) == 5


def test_load_balancing_moves_only_when_the_busiest_gains_enough() -> None:
    even = {0: (50.0, 0.0), 1: (50.0, 0.0), 2: (50.0, 0.0), 3: (48.0, 0.0)}
    assert LoadBalance(2).decide(seen(even, owned([0, 1], [2, 3]))).keeps
    uneven = {0: (90.0, 0.0), 1: (80.0, 0.0), 2: (10.0, 0.0), 3: (10.0, 0.0)}
    decision = LoadBalance(2).decide(seen(uneven, owned([0, 1], [2, 3])))
    assert decision.trigger == "balance"
    assert decision.inputs["busiest_after"] == 100  # 90 + 10 | 80 + 10


PARAMETERS: dict[str, dict[str, float]] = {
    "slo": {"slo_s": 1.0},
    "sentinel": {},
    "algorithm1": {},
    "algorithm2": {"f_up": 0.8},
    "linear": {},
    "ratio": {},
    "optimal": {"events": 100},
    "hpa": {},
    "keda": {"lag_threshold": 50},
    "equal_count": {"replicas": 3},
    "load_balance": {"replicas": 3},
    "overprovisioned": {"peak_records_per_s": 2000, "partitions": 5},
}


@pytest.mark.parametrize("name", policy_names())
def test_no_policy_exceeds_the_consumers_the_fleet_may_have(name: str) -> None:
    policy = build_policy(
        name,
        "mwf",
        consumer_capacity_bytes_per_s=20_000,
        packing_capacity_bytes_per_s=15_000,
        max_consumers=2,
        params=PARAMETERS[name],
    )
    assignment = Assignment({1: frozenset(P)})
    for second in range(60):  # 5 partitions with 190 records/s each want 5 consumers of 200
        loads = {p: PartitionLoad(19_000, 190.0, 1_000, 190 * second, (19,) * 10) for p in P}
        consumers = {c: ConsumerLoad(capacity_records_per_s=200.0) for c in assignment}
        decision = policy.decide(Observation(second, second, loads, assignment, consumers, 0, 0.1))
        if decision.assignment is not None:
            assignment = decision.assignment
            assert assignment.partitions == frozenset(P)
            assert len(assignment) <= 2
    assert len(assignment) == 2


def test_every_latency_policy_is_found_by_name() -> None:
    for name, params in PARAMETERS.items():
        built = build_policy(
            name, "mwf", consumer_capacity_bytes_per_s=2e6, packing_capacity_bytes_per_s=1.5e6, params=params
        )
        assert hasattr(built, "decide")


def test_a_policys_annotations_may_be_texts_whose_names_are_not_there_any_more() -> None:
    """As of a policy of somebody else's, with `from __future__ import annotations` and names for type checkers only."""
    empty = inspect.Parameter("x", inspect.Parameter.KEYWORD_ONLY)
    assert may_be_none(empty.replace(annotation="Measured | None"))
    assert may_be_none(empty.replace(annotation="Optional[Measured]"))
    assert may_be_none(empty.replace(annotation=float | None))
    assert not may_be_none(empty.replace(annotation="Measured"))
    assert not may_be_none(empty.replace(annotation=float))


def test_the_pipelines_goal_reaches_a_policy_that_asks_for_one() -> None:
    built = build_policy(
        "slo",
        "mwf",
        consumer_capacity_bytes_per_s=2e6,
        packing_capacity_bytes_per_s=1.5e6,
        max_consumers=7,
        slo_s=30.0,
        quantile=0.99,
        params={"thrift": 2.0},
    )
    assert isinstance(built, Slo)
    assert (built.slo_s, built.quantile, built.max_consumers, built.thrift) == (30.0, 0.99, 7, 2.0)
    assert built.consumer_capacity_bytes_per_s == 2e6
