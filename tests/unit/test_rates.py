"""Write rates from sampled counters, in virtual time; the published monitor experiment (E1) with its full window."""

import itertools
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from headgate.kafka.rates import Counter, Rate, Sample, WriteRates
from headgate.kafka.smoothing import BoxMean, Ewma, Smoothing
from headgate.model import TopicPartition

PAYLOAD_BYTES = 123
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Single:
    """A smoothing of one counter only."""

    def __init__(self, smoothing: Smoothing) -> None:
        self._smoothing = smoothing
        smoothing.arrange(np.array([-1]))

    def add(self, at_s: float, total: float) -> None:
        self._smoothing.add(at_s, np.array([[total], [0.0]]))

    @property
    def per_s(self) -> float:
        return float(self._smoothing.per_s[0, 0])

    @property
    def span_s(self) -> float:
        return float(self._smoothing.span_s[0])


def readings(smoothing: Smoothing, total_at: Callable[[float], float], until_s: int) -> list[float]:
    """The rate after each of the samples taken at 0, 1, 2 … s."""
    single, rates = Single(smoothing), []
    for second in range(until_s + 1):
        single.add(second, total_at(second))
        rates.append(single.per_s)
    return rates


def constant_rates_of_e1(second: float) -> float:
    """E1 (a): one message per 1 s, then per 0.5 s, then per 0.25 s, 35 s each."""
    first, second_, third = min(second, 35), min(max(second - 35, 0), 35), max(second - 70, 0)
    return PAYLOAD_BYTES * (int(first) + int(second_ * 2) + int(third * 4))


def test_e1_the_box_mean_ramps_linearly_after_a_step_and_converges_in_thirty_seconds() -> None:
    rates = readings(BoxMean(window_s=30), constant_rates_of_e1, until_s=105)
    assert rates[35] == pytest.approx(123)
    # k seconds after the step, k of the 30 s in the window were written at 246 B/s: 123 + 123 * k / 30
    assert [rates[35 + k] for k in (0, 10, 15, 30)] == pytest.approx([123, 164, 184.5, 246])
    assert rates[70] == pytest.approx(246)
    # and 246 + 246 * k / 30 after the second step
    assert [rates[70 + k] for k in (0, 10, 15, 30)] == pytest.approx([246, 328, 369, 492])
    steps = [after - before for before, after in itertools.pairwise(rates[35:66])]
    assert steps == pytest.approx([123 / 30] * 30)


def arrivals(seed: int, until_s: float) -> Sequence[float]:
    """E1 (b): the waits between messages are uniform on [0.01, 2] s."""
    chance, at_s, times = random.Random(seed), 0.0, []
    while at_s < until_s:
        at_s += chance.uniform(0.01, 2)
        times.append(at_s)
    return times


@pytest.mark.parametrize("smoothing", [BoxMean(30), Ewma(10)])
def test_e1_random_waits_settle_around_the_expected_rate(smoothing: Smoothing) -> None:
    until_s = 20_000
    times = arrivals(seed=7, until_s=until_s)
    rates = readings(smoothing, lambda second: PAYLOAD_BYTES * bisect_right(times, second), until_s)
    settled = rates[60:]
    # Mean wait 1.005 s, so 123 / 1.005 B/s. About 19 900 messages with a relative deviation of the wait of
    # 1.99 / sqrt(12) / 1.005 = 0.57 give a mean good to 0.57 / sqrt(19 900) = 0.4 %.
    assert sum(settled) / len(settled) == pytest.approx(123 / 1.005, rel=0.02)


def test_the_box_mean_uses_only_samples_inside_its_window() -> None:
    box = Single(BoxMean(window_s=10))
    for at_s, total in ((0.0, 0.0), (4.0, 4_000.0), (9.0, 4_000.0), (14.0, 5_000.0)):
        box.add(at_s, total)
    assert box.span_s == 10  # the sample at 4 s is exactly a window old and stays, the one at 0 s is evicted
    assert box.per_s == 100  # (5000 - 4000) / (14 - 4)


def test_the_box_mean_bridges_an_outage_longer_than_its_window() -> None:
    box = Single(BoxMean(window_s=10))
    box.add(0, 0)
    box.add(1, 100)
    box.add(61, 6_100)
    assert (box.span_s, box.per_s) == (60, 100)


@pytest.mark.parametrize("smoothing", [BoxMean(30), Ewma(5)])
def test_one_sample_is_no_rate(smoothing: Smoothing) -> None:
    single = Single(smoothing)
    single.add(100.0, 1e12)
    assert (single.per_s, single.span_s) == (0, 0)


def test_an_ewma_is_right_from_the_second_sample_on() -> None:
    ewma = Single(Ewma(half_life_s=5))
    ewma.add(0, 1_000)
    ewma.add(0.5, 1_100)
    assert ewma.per_s == pytest.approx(200)
    ewma.add(3, 1_600)  # uneven spacing, same rate
    assert ewma.per_s == pytest.approx(200)


def test_an_ewma_covers_half_of_a_step_in_one_half_life_and_seven_eighths_in_three() -> None:
    def total(second: float) -> float:
        return 100 * second + 100 * max(0, second - 200)

    ewma = readings(Ewma(half_life_s=5), total, until_s=230)
    assert ewma[200] == pytest.approx(100)
    assert ewma[205] == pytest.approx(150)
    assert ewma[215] == pytest.approx(187.5)
    box = readings(BoxMean(window_s=30), total, until_s=230)
    assert box[215] == pytest.approx(150)  # the box has seen half a window of the new rate


def sample(at_s: float, **partitions: tuple[float, int, int]) -> Sample:
    """`p0=(payload bytes, end offset, life)`."""
    names = {"p0": P0, "p1": P1}
    return Sample(at_s, {names[name]: Counter(*counter) for name, counter in partitions.items()})


def test_a_new_partition_is_reported_at_once_with_rate_zero() -> None:
    rates = WriteRates(BoxMean(30), min_span_s=30)
    rates.update(sample(0, p0=(0, 0, 0)), [P0])
    rates.update(sample(1, p0=(500, 5, 0)), [P0])
    both = rates.update(sample(2, p0=(1_000, 10, 0), p1=(70_000, 700, 0)), [P0, P1])
    assert both == {P0: Rate(500, 5, 10, 2), P1: Rate(0, 0, 700, 0)}


def test_overload_shows_before_the_minimal_span() -> None:
    rates = WriteRates(BoxMean(30), min_span_s=30)
    rates.update(sample(0, p0=(0, 0, 0)), [P0])
    assert rates.update(sample(1, p0=(4_000_000, 4_000, 0)), [P0])[P0].bytes_per_s == 4_000_000


def test_a_restarted_window_holds_the_last_rate_until_the_minimal_span_is_reached() -> None:
    rates = WriteRates(BoxMean(30), min_span_s=3)
    for second in range(11):
        rates.update(sample(second, p0=(1_000 * second, 10 * second, 0)), [P0])
    # Another leader at 11 s: a new life, whose counter starts elsewhere; from now on only 100 B/s are written.
    seen = [rates.update(sample(11 + k, p0=(55 + 100 * k, 110 + k, 1)), [P0])[P0] for k in range(5)]
    assert [rate.bytes_per_s for rate in seen] == [1_000, 1_000, 1_000, 100, 100]
    assert [rate.records_per_s for rate in seen] == [10, 10, 10, 1, 1]
    assert [rate.span_s for rate in seen] == [0, 1, 2, 3, 4]


def test_a_restarted_window_may_raise_the_rate_at_once() -> None:
    rates = WriteRates(BoxMean(30), min_span_s=3)
    for second in range(11):
        rates.update(sample(second, p0=(1_000 * second, second, 0)), [P0])
    rates.update(sample(11, p0=(0, 11, 1)), [P0])
    assert rates.update(sample(12, p0=(9_000, 12, 1)), [P0])[P0].bytes_per_s == 9_000


def test_noise_of_short_windows_is_not_carried_from_restart_to_restart() -> None:
    rates = WriteRates(BoxMean(30), min_span_s=10)
    rates.update(sample(0, p0=(0, 0, 0)), [P0])
    assert rates.update(sample(1, p0=(50_000, 1, 0)), [P0])[P0].bytes_per_s == 50_000
    rates.update(sample(2, p0=(50_000, 2, 1)), [P0])
    assert rates.update(sample(3, p0=(50_100, 3, 1)), [P0])[P0].bytes_per_s == 100


def test_the_rates_of_an_earlier_monitor_are_held_over_its_restart() -> None:
    before = {P0: Rate(2_000, 20, 900, 30), P1: Rate(1_000, 10, 400, 30)}
    rates = WriteRates(BoxMean(30), min_span_s=3, held=before)
    first = rates.update(sample(0, p0=(0, 1_000, 0)), [P0, P1])
    assert first == {P0: Rate(2_000, 20, 1_000, 0), P1: before[P1]}
    for second in (1, 2):
        rates.update(sample(second, p0=(100 * second, 1_000 + second, 0)), [P0])
    assert rates.update(sample(3, p0=(300, 1_003, 0)), [P0])[P0] == Rate(100, 1, 1_003, 3)


def test_a_partition_without_a_leader_keeps_its_rate_and_a_deleted_one_goes() -> None:
    rates = WriteRates(BoxMean(30), min_span_s=1)
    rates.update(sample(0, p0=(0, 0, 0), p1=(0, 0, 0)), [P0, P1])
    rates.update(sample(1, p0=(100, 1, 0), p1=(200, 2, 0)), [P0, P1])
    assert rates.update(sample(2, p0=(200, 2, 0)), [P0, P1])[P1] == Rate(200, 2, 2, 1)
    assert set(rates.update(sample(3, p0=(300, 3, 0)), [P0])) == {P0}
    assert set(rates.update(sample(4, p0=(400, 4, 0)), [P0, P1])) == {P0}
