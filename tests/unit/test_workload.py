"""Shapes of load against integrals and rates worked out by hand."""

from collections.abc import Callable
from itertools import pairwise
from math import pi, sqrt

import pytest

from headgate.model import TopicPartition
from headgate.simulation.workload import Workload, time_until, volumes
from headgate.simulation.workload_combined import Phases, Shift, Skew, Sum, rise_shift_fall
from headgate.simulation.workload_named import Shape, ShapeParameters, workload_of_shape
from headgate.simulation.workload_random import RandomWaits, RandomWalk
from headgate.simulation.workload_shapes import Cosine, Ramp, Spike, Steady, Step

A, B, C = (TopicPartition("orders", number) for number in range(3))
ABC = (A, B, C)


def in_slices(workload: Workload, end_s: float, slice_s: float) -> dict[TopicPartition, float]:
    """The volumes of many short slices, added up."""
    total: dict[TopicPartition, float] = {}
    number = 0
    while number * slice_s < end_s:
        for partition, volume in volumes(workload, number * slice_s, min(end_s, (number + 1) * slice_s)).items():
            total[partition] = total.get(partition, 0.0) + volume
        number += 1
    return total


# ------------------------------------------------------------------------------------------------------- shapes


def test_a_steady_load_is_its_rate_times_the_time() -> None:
    assert volumes(Steady({A: 300, B: 50}), 5, 15) == pytest.approx({A: 3000, B: 500})


def test_a_total_spreads_evenly_over_partitions() -> None:
    assert Steady.spread(ABC, 900).rates(0) == {A: 300, B: 300, C: 300}


def test_the_monitor_experiment_sends_35_70_and_140_records_of_123_bytes() -> None:
    # E1 (a): one record every 1, 0.5 and 0.25 s, 35 s each.
    e1 = Step((A,), ((0, 123), (35, 246), (70, 492)))
    assert volumes(e1, 0, 35)[A] == pytest.approx(35 * 123)
    assert volumes(e1, 35, 70)[A] == pytest.approx(70 * 123)
    assert volumes(e1, 70, 105)[A] == pytest.approx(140 * 123)


def test_a_step_is_zero_before_its_first_level_and_holds_its_last() -> None:
    step = Step((A,), ((10, 7),))
    assert (step.rates(9.99)[A], step.rates(10)[A], step.rates(1e6)[A]) == (0, 7, 7)


def test_a_step_between_two_slices_is_integrated_exactly() -> None:
    step = Step((A,), ((0, 100), (1 / 3, 1000)))
    assert volumes(step, 0, 1)[A] == pytest.approx(100 / 3 + 2000 / 3, rel=1e-12)
    assert in_slices(step, 1, 0.02)[A] == pytest.approx(100 / 3 + 2000 / 3, rel=1e-12)


def test_a_ramp_covers_a_triangle_and_then_stays() -> None:
    ramp = Ramp((A,), 0, 100, 10)
    assert volumes(ramp, 0, 10)[A] == pytest.approx(500)
    assert volumes(ramp, 0, 12)[A] == pytest.approx(700)


def test_a_cosine_peaks_where_it_says_and_has_its_mean_over_a_period() -> None:
    cosine = Cosine(100, 80, 60, {A: 10, B: 40})
    assert cosine.rates(10) == pytest.approx({A: 180, B: 20})
    assert volumes(cosine, 3, 63) == pytest.approx({A: 6000, B: 6000})
    # From the peak to the mean: mean · T/4 + amplitude · T / (2 pi).
    assert volumes(cosine, 10, 25)[A] == pytest.approx(100 * 15 + 80 * 60 / (2 * pi), rel=1e-9)


def test_staggered_cosines_keep_the_total() -> None:
    cosine = Cosine.staggered(ABC, 100, 80, 60)
    for t_s in (0, 7.5, 20, 41):
        assert sum(cosine.rates(t_s).values()) == pytest.approx(300)
    assert cosine.rates(20)[B] == pytest.approx(180)


def test_spikes_come_back_and_last_their_width() -> None:
    # At 10 … 15, 30 … 35 and 50 … 55: 15 s of 1000 and 45 s of 100.
    spike = Spike((A,), 100, 1000, at_s=10, width_s=5, every_s=20)
    assert volumes(spike, 0, 60)[A] == pytest.approx(15 * 1000 + 45 * 100)
    assert in_slices(spike, 60, 0.7)[A] == pytest.approx(15 * 1000 + 45 * 100)
    assert volumes(spike, 32, 34)[A] == pytest.approx(2000)


def test_a_single_spike_comes_once() -> None:
    assert volumes(Spike((A,), 0, 10, at_s=1, width_s=2), 0, 1000)[A] == pytest.approx(20)


# -------------------------------------------------------------------------------------------------- random walk


def test_a_walk_never_leaves_zero_to_capacity_and_reaches_both_ends() -> None:
    walk = RandomWalk(ABC, capacity_bytes_per_s=1000, delta_percent=60, seed=3)
    seen = [rate for t_s in range(600) for rate in walk.rates(t_s).values()]
    assert min(seen) == 0
    assert max(seen) == 1000


def test_a_step_of_a_walk_is_uniform_within_delta_percent_of_capacity() -> None:
    walk = RandomWalk(ABC, capacity_bytes_per_s=1000, delta_percent=5, start_percent=50, seed=1)
    changes = []
    for before, after in pairwise(walk.rates(t_s) for t_s in range(1500)):
        for partition in ABC:
            change = after[partition] - before[partition]
            assert abs(change) <= 50 + 1e-9
            if 50 < before[partition] < 950:  # no clamp within reach
                changes.append(change)
    # U[-50, 50] has mean 0 and standard deviation 100/sqrt(12) = 28.9; five standard errors either way.
    spread = 100 / sqrt(12)
    mean = sum(changes) / len(changes)
    assert abs(mean) < 5 * spread / sqrt(len(changes))
    assert sqrt(sum(c * c for c in changes) / len(changes)) == pytest.approx(spread, rel=0.05)


@pytest.mark.parametrize(("percent", "rate"), [(0, 0), (50, 500), (100, 1000)])
def test_a_walk_starts_where_it_is_told_and_without_delta_stays(percent: float, rate: float) -> None:
    walk = RandomWalk(ABC, 1000, delta_percent=0, start_percent=percent)
    assert walk.rates(0) == walk.rates(400) == {A: rate, B: rate, C: rate}


def test_a_uniform_start_differs_between_partitions_and_averages_half_the_capacity() -> None:
    many = tuple(TopicPartition("t", number) for number in range(2000))
    start = RandomWalk(many, 1000, delta_percent=0, seed=5).rates(0)
    assert len(set(start.values())) == 2000
    # Standard error of the mean: 1000 / sqrt(12 · 2000) = 6.5.
    assert sum(start.values()) / 2000 == pytest.approx(500, abs=5 * 6.5)


def test_a_walk_is_the_same_in_whatever_order_it_is_asked() -> None:
    times = [0.0, 3.7, 255.0, 256.0, 700.5, 1024.0]
    forwards = RandomWalk(ABC, 1000, 15, seed=9)
    backwards = RandomWalk(ABC, 1000, 15, seed=9)
    expected = {t_s: forwards.rates(t_s) for t_s in times}
    assert {t_s: backwards.rates(t_s) for t_s in reversed(times)} == expected
    assert RandomWalk(ABC, 1000, 15, seed=10).rates(3.7) != expected[3.7]


def test_a_walk_changes_once_per_step() -> None:
    walk = RandomWalk((A,), 1000, 10, start_percent=50, step_s=0.1)
    assert walk.rates(0.3) == walk.rates(0.39)
    assert walk.rates(0.29) != walk.rates(0.3)
    by_hand = sum(walk.rates(i * 0.1 + 0.05)[A] * 0.1 for i in range(20))
    assert volumes(walk, 0, 2)[A] == pytest.approx(by_hand)


# ------------------------------------------------------------------------------------------------- random waits


def test_every_random_wait_completes_exactly_one_record() -> None:
    waits = RandomWaits(A, record_bytes=123, shortest_s=0.01, longest_s=2, seed=4)
    arrivals = list(waits.edges(0, 400))
    for earlier_s, later_s in pairwise([0.0, *arrivals]):
        assert 0.01 <= later_s - earlier_s <= 2
        assert volumes(waits, earlier_s, later_s)[A] == pytest.approx(123)
    assert volumes(waits, 0, arrivals[-1])[A] == pytest.approx(len(arrivals) * 123)
    # The mean wait is 1.005 s with a standard deviation of 1.99/sqrt(12) = 0.57.
    assert 400 / len(arrivals) == pytest.approx(1.005, abs=5 * 0.57 / sqrt(len(arrivals)))


# -------------------------------------------------------------------------------------------------- combinators


def test_zipf_divides_the_total_by_rank() -> None:
    # 1 + 1/2 + 1/3 = 11/6, so of 1100 the partitions get 600, 300 and 200.
    assert Skew.zipf(Steady.spread(ABC, 1100), ABC, 1).rates(0) == pytest.approx({A: 600, B: 300, C: 200})
    assert Skew.zipf(Steady.spread(ABC, 900), ABC, 0).rates(0) == pytest.approx({A: 300, B: 300, C: 300})


def test_weights_divide_a_changing_total() -> None:
    skew = Skew(Ramp((A, B), 0, 100, 10), {A: 3, B: 1})
    assert skew.rates(5) == pytest.approx({A: 75, B: 25})
    assert volumes(skew, 0, 10) == pytest.approx({A: 750, B: 250})


def test_a_shift_moves_load_little_by_little_and_keeps_the_total() -> None:
    shift = Shift(Steady({A: 100, B: 60, C: 40}), frozenset({A, B}), frozenset({C}), 0.5, begin_s=10, over_s=10)
    assert shift.rates(10) == pytest.approx({A: 100, B: 60, C: 40})
    assert shift.rates(15) == pytest.approx({A: 75, B: 45, C: 80})
    assert shift.rates(99) == pytest.approx({A: 50, B: 30, C: 120})
    # A: 10 s of 100, 10 s from 100 to 50, 10 s of 50.
    assert volumes(shift, 0, 30)[A] == pytest.approx(1000 + 750 + 500)
    assert sum(volumes(shift, 0, 30).values()) == pytest.approx(30 * 200)


def test_a_shift_may_be_instant_and_may_bring_new_partitions() -> None:
    shift = Shift(Steady({A: 100}), frozenset({A}), frozenset({B, C}), 1, begin_s=5, over_s=0)
    assert shift.rates(4.9) == {A: 100, B: 0, C: 0}
    assert shift.rates(5) == {A: 0, B: 50, C: 50}


def test_workloads_add_up_where_they_share_a_partition() -> None:
    both = Sum((Steady({A: 20, B: 8}), Step((B,), ((5, 1),))))
    assert both.rates(0) == {A: 20, B: 8}
    assert volumes(both, 0, 10) == pytest.approx({A: 200, B: 80 + 5})


def test_phases_follow_each_other_from_their_own_zero_and_then_end() -> None:
    phases = Phases(((10, Ramp((A,), 0, 10, 10)), (5, Step((A,), ((0, 1), (2, 3)))), (1, Steady({A: 7}))))
    assert phases.rates(5)[A] == 5
    assert phases.rates(11)[A] == 1
    assert phases.rates(13)[A] == 3
    assert phases.rates(15.5)[A] == 7
    assert phases.rates(16)[A] == 0
    assert volumes(phases, 0, 100)[A] == pytest.approx(50 + 2 * 1 + 3 * 3 + 7)
    assert in_slices(phases, 20, 0.3)[A] == pytest.approx(50 + 2 * 1 + 3 * 3 + 7)


def test_a_load_rises_shifts_and_falls_in_thirds() -> None:
    load = rise_shift_fall({A: 10, B: 10}, {A: 100, B: 50}, sources=[A], targets=[B], duration_s=90, share=0.8)
    assert load.rates(0) == pytest.approx({A: 10, B: 10})
    assert load.rates(30) == pytest.approx({A: 100, B: 50})
    assert load.rates(60) == pytest.approx({A: 20, B: 130})
    assert load.rates(89.999999) == pytest.approx({A: 2, B: 18}, rel=1e-4)
    # Totals: up from 20 to 150, level, down again.
    assert sum(volumes(load, 0, 90).values()) == pytest.approx(30 * 85 + 30 * 150 + 30 * 85)


# --------------------------------------------------------------------------------------------- time until a total


def test_the_time_until_a_total_inverts_the_integral() -> None:
    assert time_until(Steady({A: 600, B: 400}), 5000) == pytest.approx(5)
    assert time_until(Ramp((A,), 0, 100, 10), 125) == pytest.approx(5)  # 100/10 · t²/2 = 5 t²
    assert time_until(Spike((A,), 0, 10, at_s=100, width_s=10), 50) == pytest.approx(105)
    assert time_until(Steady({A: 1}), 0) == 0


def test_a_total_that_never_comes_is_refused() -> None:
    with pytest.raises(ValueError, match="fewer records or a higher rate"):
        time_until(Phases(((10, Steady({A: 1})),)), 11)


# ------------------------------------------------------------------------------------------------- by name, checks


@pytest.mark.parametrize("shape", sorted(set(Shape) - {Shape.step, Shape.waits, Shape.ramp}))
def test_a_shape_by_name_has_the_total_it_was_given_as_its_mean(shape: Shape) -> None:
    many = tuple(TopicPartition("t", number) for number in range(40))
    given = ShapeParameters(total_bytes_per_s=1000, period_s=20, peak_bytes_per_s=1000, walk_delta_percent=50)
    mean = sum(volumes(workload_of_shape(shape, many, given), 0, 200).values()) / 200
    assert mean == pytest.approx(1000, rel=0.05 if shape is Shape.walk else 1e-9)


def test_a_shape_by_name_can_be_skewed() -> None:
    given = ShapeParameters(total_bytes_per_s=100, levels=((0, 80), (5, 160)), weights=(5, 2, 1))
    step = workload_of_shape(Shape.step, ABC, given)
    assert step.rates(0) == pytest.approx({A: 50, B: 20, C: 10})
    assert step.rates(6) == pytest.approx({A: 100, B: 40, C: 20})


def test_spikes_by_name_rise_to_five_times_the_base() -> None:
    spike = workload_of_shape(Shape.spike, (A, B), ShapeParameters(total_bytes_per_s=10))
    assert (spike.rates(0)[A], spike.rates(10)[A], spike.rates(20)[A]) == (5, 25, 5)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Steady({A: -1}), "rate of orders-0 must be zero or more"),
        (lambda: Steady({A: float("nan")}), "zero or more"),
        (lambda: Steady({}), "at least one partition"),
        (lambda: Step((A,), ()), "at least one level"),
        (lambda: Step((A,), ((5, 1), (5, 2))), "must rise in time"),
        (lambda: Step((A, A), ((0, 1),)), "named twice"),
        (lambda: Ramp((A,), 0, 1, 0), "length of a ramp"),
        (lambda: Cosine(10, 11, 60, {A: 0}), "negative"),
        (lambda: Cosine(10, 5, 0, {A: 0}), "period"),
        (lambda: Spike((A,), 1, 2, 0, 10, every_s=10), "overlap"),
        (lambda: RandomWalk((A,), 100, -1), "delta"),
        (lambda: RandomWalk((A,), 100, 5, start_percent=101), "between 0 and 100"),
        (lambda: RandomWaits(A, 100, 2, 1), "below the shortest"),
        (lambda: Skew(Steady({A: 1}), {A: 0}), "all be zero"),
        (lambda: Shift(Steady({A: 1}), frozenset({A}), frozenset({A}), 1, 0, 1), "both a source and a target"),
        (lambda: Shift(Steady({A: 1}), frozenset({A}), frozenset({B}), 1.5, 0, 1), "between 0 and 1"),
        (lambda: Phases(()), "at least one phase"),
        (lambda: workload_of_shape(Shape.steady, ABC, ShapeParameters(weights=(1, 2))), "2 weights for 3 partitions"),
    ],
)
def test_impossible_parameters_are_refused_with_a_reason(wrong: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        wrong()
