"""Our policy: what it forecasts, what it thinks will be late, when it acts, and what it says it cannot mend."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headgate.model import Abilities, Assignment, ConsumerLoad, Decision, Observation, PartitionLoad, TopicPartition
from headgate.policies.advice import PERSISTS_BEATS, hot_partitions, slow_moves
from headgate.policies.forecast import Forecast, Load
from headgate.policies.lateness import LateAccount, late_by_moving, late_per_s
from headgate.policies.pricing import Prices
from headgate.policies.replica_capacity import LastMeasured
from headgate.policies.slo import Slo

P = tuple(TopicPartition("t", n) for n in range(5))
EVEN = np.full(5, 0.2)
BURST = np.array([10.0] + [0.0] * 9)
SMOOTH = np.ones(10)


def load(level: float, shape: np.ndarray = BURST, slope: float = 0.0, shares: np.ndarray = EVEN) -> Load:
    return Load(P[: len(shares)], shares, level, slope, 0.0, shape, 0.1, 1.0, 0.0, level, steady_beats=PERSISTS_BEATS)


def owned(*groups: list[int]) -> Assignment:
    return Assignment({n + 1: frozenset(P[i] for i in group) for n, group in enumerate(groups)})


class Watched:
    """A policy fed second by second with bursts; it is told the assignment it has, never obeyed."""

    def __init__(self, policy: Slo, assignment: Assignment, partitions: int = 5, **more: object) -> None:
        self.policy, self.assignment, self.more = policy, assignment, more
        self.at_s, self.partitions = 0.0, partitions

    def second(self, each: list[int], capacity: float | None = 200.0) -> Decision:
        self.at_s += 1
        partitions = {
            P[n]: PartitionLoad(100.0 * count, float(count), 0, 0, (count, *[0] * 9)) for n, count in enumerate(each)
        }
        consumers = {c: ConsumerLoad(capacity_records_per_s=capacity) for c in self.assignment}
        return self.policy.decide(
            Observation(self.at_s, self.at_s, partitions, self.assignment, consumers, 0.0, 0.1, **self.more)  # type: ignore[arg-type]
        )

    def seconds(self, count: int, each: list[int]) -> Decision:
        for _ in range(count):
            decision = self.second(each)
        return decision


# Forecast


def test_a_steady_rise_is_extrapolated_and_a_constant_is_not() -> None:
    forecast = Forecast()
    for second in range(30):
        count = 10 + 2 * second
        forecast.add(_seen(second, [count] * 5))
    seen = forecast.load(4.0)
    assert seen.slope == pytest.approx(10.0, rel=0.02)  # 5 partitions, 2 more each second
    assert seen.level == pytest.approx(5 * (10 + 2 * 29.5), rel=0.02)
    assert seen.at(0) == pytest.approx(seen.level)
    flat = Forecast()
    for second in range(30):
        flat.add(_seen(second, [20] * 5))
    assert flat.load(4.0).slope == 0
    assert flat.load(4.0).level == 100


def test_a_jump_is_believed_at_once_and_remembered() -> None:
    forecast = Forecast()
    for second in range(30):
        forecast.add(_seen(second, [20] * 5))
        forecast.load(4.0)
    forecast.add(_seen(30, [60, 60, 20, 20, 20]))
    seen = forecast.load(4.0)
    assert seen.level == 180
    (jump,) = seen.jumps
    assert jump.level == 180
    assert jump.pattern == pytest.approx([0.5, 0.5, 0, 0, 0])  # two partitions got 40 more each
    forecast.add(_seen(31, [80, 80, 20, 20, 20]))  # the beat before held only part of it
    (jump,) = forecast.load(4.0).jumps
    assert jump.level == 220
    assert seen.jumps_per_s > 0


def test_shares_are_slow_until_one_changes_beyond_its_noise() -> None:
    forecast = Forecast()
    for second in range(40):
        forecast.add(_seen(second, [20] * 5))
        forecast.load(4.0)
    assert forecast.load(4.0).shares == pytest.approx(EVEN, abs=0.01)
    for second in range(40, 45):
        forecast.add(_seen(second, [60, 10, 10, 10, 10]))
        forecast.load(4.0)
    assert forecast.load(4.0).shares[0] == pytest.approx(0.6, abs=0.05)


def test_bursts_and_smooth_streams_have_different_shapes() -> None:
    bursts, smooth = Forecast(), Forecast()
    for second in range(5):
        bursts.add(_seen(second, [20] * 5))
        smooth.add(_seen(second, [20] * 5, spread=True))
    assert bursts.load(1.0).shape == pytest.approx(BURST)
    assert smooth.load(1.0).shape == pytest.approx(SMOOTH)


def test_without_slots_the_mean_rate_is_taken_as_smooth() -> None:
    forecast = Forecast()
    for second in range(5):
        partitions = {p: PartitionLoad(0, 20.0) for p in P}
        forecast.add(Observation(second, second, partitions, owned([0, 1, 2, 3, 4]), {}, 0))
    assert forecast.is_ready
    assert forecast.load(1.0).level == pytest.approx(100)
    assert forecast.load(1.0).shape == pytest.approx(SMOOTH)


def _seen(second: int, each: list[int], spread: bool = False) -> Observation:
    slots = [(c // 10,) * 10 if spread else (c, *[0] * 9) for c in each]
    partitions = {P[n]: PartitionLoad(0, float(c), 0, 0, slots[n]) for n, c in enumerate(each)}
    return Observation(second + 1, second + 1, partitions, owned([0, 1, 2, 3, 4]), {}, 0, 0.1)


# Lateness


def test_a_burst_beyond_capacity_times_slo_is_late_and_a_smooth_stream_of_that_size_is_not() -> None:
    whole = np.array([1.0])  # one consumer holds everything: no scatter of keys
    assert late_per_s(load(120), whole, 120, 200, 0.5) == pytest.approx([20], abs=0.01)
    assert late_per_s(load(80), whole, 80, 200, 0.5) == pytest.approx([0], abs=0.01)
    assert late_per_s(load(180, SMOOTH), whole, 180, 200, 0.5) == pytest.approx([0], abs=0.01)


def test_a_consumer_that_cannot_keep_up_is_late_with_everything() -> None:
    assert late_per_s(load(210, SMOOTH), np.array([1.0]), 210, 200, 0.5) == pytest.approx([210])


def test_random_keys_make_some_late_even_below_the_limit() -> None:
    # Half of 190 is 95 on average, with a deviation of sqrt(190)/2 = 6.9: E[max(0, N(-5, 6.9))] = 0.96.
    assert late_per_s(load(190), np.array([0.5]), 190, 200, 0.5) == pytest.approx([0.96], abs=0.02)


def test_a_short_pause_makes_nothing_late_and_a_long_one_does() -> None:
    assert late_by_moving(np.array([50.0]), 0.05, 200, 0.5) == 0
    assert late_by_moving(np.array([50.0]), 2.0, 200, 0.5) == pytest.approx(50 * (2 + 0.5 - 0.5))


def test_the_account_counts_late_records_and_forgets_slowly() -> None:
    account = LateAccount(0.5, 100.0)
    account.add(_seen(0, [30] * 5), 200, 0.05, 0.0)  # 150 at once on one consumer: 50 late
    assert account.late == pytest.approx(50)
    assert account.records == 150
    account.add(_seen(100, [0] * 5), 200, 0.05, 0.0)
    assert account.late == pytest.approx(50 / np.e, rel=0.01)


def test_what_came_during_a_change_is_charged_to_those_who_owned_it_then() -> None:
    account = LateAccount(0.5, 1e9)
    account.add(_seen(0, [0] * 5), 200, 0.05, 0.0)
    # While four more consumers started, 150 came at once for the only one; now each partition has its own.
    changed = replace(_seen(3, [30] * 5), assignment=owned([0], [1], [2], [3], [4]))
    account.add(changed, 200, 0.05, 0.0)
    assert account.late == pytest.approx(50)


def test_moves_longer_than_the_slo_are_charged() -> None:
    account = LateAccount(0.5, 1e9)
    account.add(_seen(0, [0] * 5), 200, 2.0, 0.0)
    account.add(replace(_seen(1, [10] * 5), assignment=owned([0, 1, 2, 3], [4])), 200, 2.0, 0.0)
    # One partition with 10 records a second stood still for 2 s: 10 · (2 + 10 · 2 / 200 - 0.5) are late.
    assert account.late == pytest.approx(10 * 1.6)


# Decisions


def test_a_load_that_fits_is_left_alone() -> None:
    decision = Watched(Slo(), owned([0, 1, 2, 3, 4])).seconds(20, [12] * 5)
    assert decision.keeps
    assert decision.reason.startswith("keep 1: 0.00 late")


def test_a_load_that_does_not_fit_gets_several_consumers_at_once() -> None:
    decision = Watched(Slo(), owned([0, 1, 2, 3, 4])).seconds(20, [60] * 5)
    assert decision.trigger == "up"
    assert decision.assignment is not None
    assert len(decision.assignment) == 5  # 120 in a burst of two partitions would be late too
    assert decision.rejected


def test_a_rising_load_is_met_before_it_is_too_much() -> None:
    watched = Watched(Slo(), owned([0, 1, 2, 3, 4]))
    decided_at = next(5 * n for n in range(2, 30) if not watched.second([n] * 5).keeps)
    assert 60 < decided_at < 100  # 100 in one burst is the limit, a start takes 3 s


def test_consumers_that_are_not_needed_go_and_their_partitions_are_kept() -> None:
    decision = Watched(Slo(), owned([0, 1], [2, 3], [4])).seconds(30, [8] * 5)
    assert decision.trigger == "down"
    assert decision.assignment is not None
    assert decision.assignment.partitions == frozenset(P)
    assert len(decision.assignment) == 1


def test_a_higher_quantile_never_asks_for_fewer_consumers() -> None:
    sizes = []
    for quantile in (0.99, 0.999, 0.99999):
        decision = Watched(Slo(quantile=quantile), owned([0, 1, 2, 3, 4])).seconds(20, [39] * 5)
        assert decision.assignment is not None
        sizes.append(len(decision.assignment))
    assert sizes == sorted(sizes)
    assert sizes[-1] > sizes[0]


def test_it_holds_until_it_knows_the_capacity_and_two_seconds_of_arrivals() -> None:
    watched = Watched(Slo(), owned([0, 1, 2, 3, 4]))
    assert "capacity" in watched.second([60] * 5, capacity=None).reason
    fresh = Watched(Slo(capacity_records_per_s=200), owned([0, 1, 2, 3, 4]))
    assert "two beats" in fresh.second([60] * 5, capacity=None).reason


def test_a_partition_without_owner_is_placed_even_if_nothing_is_gained() -> None:
    decision = Watched(Slo(), owned([0, 1, 2, 3])).seconds(5, [5] * 5)
    assert decision.trigger == "unassigned"
    assert decision.assignment is not None
    assert decision.assignment.partitions == frozenset(P)


def test_an_empty_group_gets_its_first_consumers() -> None:
    decision = Watched(Slo(capacity_records_per_s=200), Assignment()).seconds(5, [30] * 5)
    assert decision.trigger == "unassigned"
    assert decision.assignment is not None
    assert decision.assignment.partitions == frozenset(P)


def test_warm_spares_own_nothing_and_are_not_counted_as_needed() -> None:
    decision = Watched(Slo(warm=1), owned([0, 1, 2, 3, 4])).seconds(20, [60] * 5)
    assert decision.assignment is not None
    assert sum(not decision.assignment[c] for c in decision.assignment) == 1


def test_a_spare_is_at_work_without_waiting_for_a_start() -> None:
    current, wanted = owned([0, 1, 2, 3, 4]), owned([0, 1, 2], [3, 4])
    late = {}
    for spares in (frozenset[int](), frozenset({2})):
        prices = Prices(
            load(50, slope=5.0), np.ones(5, np.int64), np.zeros(5), spares, 200, 0.5, 0.1, 1.0, 20.0, 0.05, 1.0, 12, 12
        )
        late[spares] = prices.options(current, [wanted])[1].late_if_kept_per_s
    # 55 records/s in a second are in time on one consumer; about 130 in 21 s, 30 of them beyond 200 · 0.5, are not.
    assert late[frozenset({2})] == pytest.approx(0, abs=0.1)
    assert late[frozenset()] > 20


def test_slow_brokers_are_told_and_not_scaled_against() -> None:
    decision = Watched(Slo(), owned([0, 1, 2, 3, 4]), brokers_slow=True).seconds(20, [60] * 5)
    assert decision.keeps
    assert "brokers" in [a.about for a in decision.alerts]


def test_a_hot_partition_is_named_with_the_partition_count_that_would_help() -> None:
    shares = np.array([0.8, 0.05, 0.05, 0.05, 0.05])
    (alert,) = hot_partitions(load(300, shares=shares), 200, 0.5)
    assert alert.about == "hot t-0"
    # 240 at once against 100 in time: 3 pieces at 0.8 filled, so 15 partitions instead of 5.
    assert "15 partitions instead of 5" in alert.text


def test_a_hot_partition_must_stay_hot_before_a_partition_count_is_recommended() -> None:
    watched = Watched(Slo(), owned([0], [1, 2, 3, 4]))
    watched.seconds(20, [15] * 5)
    hot = [any(a.about == "hot t-0" for a in watched.second([240, 15, 15, 15, 15]).alerts) for _ in range(10)]
    assert hot == [False] * (PERSISTS_BEATS - 1) + [True] * (11 - PERSISTS_BEATS)
    calm = watched.seconds(30, [15] * 5)
    assert not any(a.about == "hot t-0" for a in calm.alerts)


def test_an_slo_below_the_pause_of_a_move_is_told() -> None:
    assert slow_moves(0.5, 0.05) == ()
    assert "rarely and early" in slow_moves(0.5, 2.0)[0].text
    assert "provision for the peak" in slow_moves(0.5, 5.0)[0].text


@pytest.mark.parametrize("wrong", [{"quantile": 1.0}, {"slo_s": 0}, {"thrift": -1}, {"max_consumers": 0}, {"warm": -1}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|is a share"):
        Slo(**wrong)


def test_a_slow_consumer_is_relieved_and_says_nothing_of_the_others() -> None:
    # 50 records a second each: two consumers of 200 have 100 and 150. The second falls to 40 %, 80 a second.
    two = owned([0, 1], [2, 3, 4])
    healthy = Watched(Slo(slo_s=5.0), two).seconds(20, [50] * 5)
    assert healthy.keeps
    assert re.fullmatch(r"\d consumers? with \d moves?", healthy.rejected[0].what), "what would be second best is told"
    assert "more than it saves" in healthy.rejected[0].why_not
    decision = Watched(Slo(slo_s=5.0), two, abilities=Abilities(1e6, {2: 0.4})).seconds(20, [50] * 5)
    assert decision.assignment is not None
    assert 50 * len(decision.assignment[2]) <= 80
    assert len([c for c in decision.assignment if decision.assignment[c]]) <= 3


def test_the_slowest_measured_capacity_leaves_out_slow_consumers_and_what_they_take_from_each_other() -> None:
    partitions = {P[0]: PartitionLoad(100.0, 1.0)}
    consumers = {n: ConsumerLoad(capacity_records_per_s=float(mu)) for n, mu in ((1, 200), (2, 80), (3, 180))}
    seen = Observation(1.0, 1.0, partitions, owned([0]), consumers, 0.0)
    measured = LastMeasured(None, None)
    assert measured.look(seen) == 80
    assert measured.look(replace(seen, abilities=Abilities(2e4, {2: 0.4}))) == 180
    assert measured.look(replace(seen, abilities=Abilities(2e4, {2: 0.4}, crowding=1.5))) == 270
    assert measured.look(replace(seen, abilities=Abilities(2e4, {2: 0.4}, outdated=frozenset({3})))) == 200


def test_what_was_measured_sizes_the_group_when_those_who_measured_it_are_gone() -> None:
    """One consumer did 300 records/s, not the 100 that are configured (10 kB/s of records of 100 bytes)."""
    watched = Watched(Slo(slo_s=5.0, consumer_capacity_bytes_per_s=1e4), owned([0, 1, 2, 3, 4]))
    assert all(watched.second([40] * 5, capacity=300.0).keeps for _ in range(20))
    assert all(watched.second([40] * 5, capacity=None).keeps for _ in range(20))
    unknown = Watched(Slo(slo_s=5.0, consumer_capacity_bytes_per_s=1e4), owned([0, 1, 2, 3, 4]))
    assert not all(unknown.second([40] * 5, capacity=None).keeps for _ in range(20))


def test_the_pause_of_a_move_counts_as_measured_but_for_no_less_than_configured() -> None:
    """E-29. With 2 s of pause, moves cannot keep an SLO of half a second."""

    def told(configured_s: float, measured_s: float | None) -> bool:
        watched = Watched(Slo(slo_s=0.5, pause_s=configured_s), owned([0, 1, 2, 3, 4]), pause_s=measured_s)
        return any("moving a partition takes 2 s" in alert.text for alert in watched.seconds(5, [5] * 5).alerts)

    assert told(2.0, None)
    assert told(2.0, 0.3)
    assert told(0.05, 2.0)
    assert not told(0.05, 0.3)
