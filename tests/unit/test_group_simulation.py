"""The simulated consumer group, record by record, against what the rules of E-38 … E-45 give by hand."""

import numpy as np
import pytest

from headgate.model import Assignment, Decision, Observation
from headgate.simulation.arrivals import Arrivals, burst, counted, even, poisson, skewed, smooth
from headgate.simulation.group import CooperativeGroup, EagerGroup, GroupSettings, partition_of
from headgate.simulation.outcome import Outcome
from headgate.simulation.run import RunSettings, simulate
from headgate.simulation.traces import FAMILIES, W1_KNOTS, w1, w2_stand_in


def owned(*groups: list[int]) -> Assignment:
    return Assignment({n + 1: frozenset(partition_of(i) for i in group) for n, group in enumerate(groups)})


class Script:
    """A policy that does what it is told, when it is told."""

    def __init__(self, *steps: tuple[float, Assignment]) -> None:
        self._steps = list(steps)
        self.observed: list[Observation] = []

    def decide(self, seen: Observation) -> Decision:
        self.observed.append(seen)
        if self._steps and seen.at_s >= self._steps[0][0]:
            return Decision(self._steps.pop(0)[1], "as told")
        return Decision(None, "as told")


def settings(protocol: str = "eager", consumers: int = 1, period_s: float = 0.5, **group: float | bool) -> RunSettings:
    return RunSettings(protocol=protocol, consumers=consumers, period_s=period_s, warm_up_s=0.0).with_group(**group)  # type: ignore[arg-type]


def at(outcome: Outcome, second: float) -> list[float]:
    """Latencies of the records that arrived then, ascending."""
    found = [lat[np.isclose(arr, second)] for arr, lat in zip(outcome.arrived_s, outcome.latency_s, strict=True)]
    return sorted(float(x) for x in np.concatenate(found))


# Workloads


def test_w1_is_the_published_curve() -> None:
    rates = w1()
    assert rates.sum() == pytest.approx(108_750)
    assert np.ceil(rates).sum() == pytest.approx(109_053, abs=1)  # one sample lies on an integer
    assert rates.max() == pytest.approx(349.99, abs=0.005)
    assert len(W1_KNOTS) == 7


def test_the_w2_stand_in_has_two_hours_and_1_3_million_events() -> None:
    rates = w2_stand_in()
    assert len(rates) == 7200
    assert rates.sum() == pytest.approx(1.30e6, rel=0.01)


def test_the_burst_producer_sends_a_second_at_once_and_the_smooth_one_spreads_it() -> None:
    rng = np.random.default_rng(1)
    rates = np.full(10, 99.2)
    at_once, spread, independent = (f(rates, even(5), rng) for f in (burst, smooth, poisson))
    assert at_once.events == spread.events == 1000  # ceil(99.2) x 10
    assert set(np.concatenate(at_once.times_s)) == set(range(10))
    gaps = np.diff(np.sort(np.concatenate(spread.times_s)))
    assert gaps == pytest.approx(0.01, abs=1e-9)
    assert 850 < independent.events < 1150
    assert all(np.all(np.diff(t) >= 0) for t in independent.times_s)


def test_the_published_skew_gives_half_of_all_to_two_partitions() -> None:
    shares = skewed(9)
    assert shares[:2].sum() == pytest.approx(0.5)
    assert shares[2:] == pytest.approx(0.0714, abs=1e-4)


def test_families_are_seeded_and_start_from_rest() -> None:
    for family in FAMILIES.values():
        rates, shares = family(3)
        again, _ = family(3)
        other, _ = family(4)
        assert np.array_equal(rates, again)
        assert not np.array_equal(rates, other)
        assert rates[0] == 0
        assert shares.sum(axis=1) == pytest.approx(1.0)


def test_bad_rates_and_shares_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="finite"):
        burst(np.array([np.nan]), even(2), rng)
    with pytest.raises(ValueError, match="sum to 1"):
        burst(np.array([1.0]), np.array([0.5, 0.6]), rng)


# Service and latency (E-38, E-44)


def test_the_kth_record_of_a_burst_takes_k_times_5_ms() -> None:
    outcome = simulate(counted([[120], [0]]), Script(), settings())
    assert at(outcome, 0.0) == pytest.approx([0.005 * k for k in range(1, 121)])
    assert outcome.violations == 20  # the 101st is the first after 500 ms
    assert outcome.sla_percent == pytest.approx(100 * 100 / 120)
    assert outcome.causes() == {"overload": 20}


def test_one_consumer_serves_its_partitions_one_record_after_the_other() -> None:
    outcome = simulate(counted([[60, 60]]), Script(), settings())
    assert max(at(outcome, 0.0)) == pytest.approx(0.6)


def test_lag_counts_records_until_their_batch_is_committed() -> None:
    script = Script()
    simulate(counted([[80], [0], [0]]), script, settings(period_s=0.25))
    lags = {round(o.at_s, 2): o.partitions[partition_of(0)].lag_records for o in script.observed}
    assert (lags[0.25], lags[0.5]) == (80, 0)  # 50 done at 0.25 s, none committed; all at 0.4 s


def test_a_poll_takes_at_most_500_records_and_commits_them_together() -> None:
    script = Script()
    simulate(counted([[700], [0], [0], [0]]), script, settings(period_s=0.5))
    lags = {round(o.at_s, 2): o.partitions[partition_of(0)].lag_records for o in script.observed}
    assert (lags[2.0], lags[2.5], lags[3.0], lags[3.5]) == (700, 200, 200, 0)


def test_the_monitor_shows_bursts_slot_by_slot_and_nothing_of_the_future() -> None:
    script = Script()
    simulate(counted([[10], [20], [30]]), script, settings(period_s=0.5))
    seen = {round(o.at_s, 2): o.partitions[partition_of(0)] for o in script.observed}
    assert seen[0.5].arrivals == (10, 0, 0, 0, 0)
    assert seen[1.5].arrivals == (20, 0, 0, 0, 0)
    assert seen[1.5].end_offset == 30
    assert seen[2.0].records_per_s == 30  # (1, 2]: the third burst is just in


# Eager groups (E-45)


def test_scaling_up_bills_from_the_request_and_stops_everybody_for_t_r() -> None:
    trace = counted([[10, 10]] * 10)
    outcome = simulate(trace, Script((1.0, owned([0], [1]))), settings(start_up_s=3.0, pause_s=0.5))
    assert outcome.replica_minutes * 60 == pytest.approx(10 + 9)
    assert {(p.start_s, p.end_s) for p in outcome.pauses} == {(4.0, 4.5)}
    assert min(at(outcome, 4.0)) == pytest.approx(0.505)
    assert outcome.ups == 1
    assert outcome.causes() == {"scale-up rebalance": 20}


def test_scaling_down_stalls_the_leavers_partitions_until_the_slowest_heartbeat() -> None:
    trace = counted([[10, 10]] * 12)
    run = settings(consumers=2, heartbeat_s=3.0, pause_s=0.05)
    outcome = simulate(trace, Script((2.0, Assignment({1: frozenset({partition_of(0), partition_of(1)})}))), run)
    left, stayed = (next(p for p in outcome.pauses if p.partition == n) for n in (1, 0))
    assert left.start_s == 2.0
    assert 2.05 <= left.end_s <= 5.05
    assert stayed.end_s - stayed.start_s == pytest.approx(0.05)
    assert outcome.downs == 1
    assert set(outcome.causes()) <= {"scale-down stall"}
    assert outcome.replica_minutes * 60 == pytest.approx(12 + 2)


def test_short_heartbeats_shorten_the_stall() -> None:
    trace, down = counted([[10, 10]] * 12), Assignment({1: frozenset({partition_of(0), partition_of(1)})})
    worst = {
        heartbeat_s: max(
            simulate(
                trace,
                Script((2.0, down)),
                RunSettings(consumers=2, period_s=0.5, warm_up_s=0, seed=seed).with_group(heartbeat_s=heartbeat_s),
            ).max_latency_s
            for seed in range(5)
        )
        for heartbeat_s in (0.5, 3.0)
    }
    assert worst[0.5] < 1.0 < worst[3.0]


def test_strictly_eager_members_block_from_their_own_heartbeat_on() -> None:
    trace = counted([[10, 10]] * 12)
    run = settings(consumers=2, heartbeat_s=3.0, strict_eager=True)
    outcome = simulate(trace, Script((2.0, owned([1], [0]))), run)
    starts = {p.partition: p.start_s for p in outcome.pauses}
    assert starts[0] != starts[1]
    assert len({p.end_s for p in outcome.pauses}) == 1
    assert max(starts.values()) + 0.05 == pytest.approx(outcome.pauses[0].end_s)


# Cooperative groups


def test_only_what_moves_pauses_and_only_between_batches() -> None:
    # 60 and 60 at 2.0 s: the batch ends at 2.6; told at 2.0, partition 1 changes hands from 2.6 to 2.7.
    trace = counted([[0, 0], [0, 0], [60, 60], [10, 10], [0, 0], [0, 0]])
    run = settings("cooperative", consumers=1, start_up_s=0.0, pause_s=0.1)
    outcome = simulate(trace, Script((2.0, owned([0], [1]))), run)
    (pause,) = outcome.pauses
    assert pause.partition == 1
    assert (pause.start_s, pause.end_s) == pytest.approx((2.6, 2.7))
    assert max(at(outcome, 3.0)) == pytest.approx(0.05)  # two consumers by then


def test_a_consumer_that_goes_is_drained_first_and_billed_until_then() -> None:
    trace = counted([[40, 40]] * 6)
    everything = Assignment({1: frozenset({partition_of(0), partition_of(1)})})
    outcome = simulate(trace, Script((2.0, everything)), settings("cooperative", consumers=2, pause_s=0.05))
    assert outcome.violations == 0
    assert outcome.replica_minutes * 60 == pytest.approx(6 + 2.25)  # its 40 of 2.0 s done at 2.2, then 50 ms


def test_one_change_at_a_time() -> None:
    group = EagerGroup(counted([[1, 1]] * 9), GroupSettings(), np.random.default_rng(0))
    group.advance(1.0)
    group.apply(owned([0], [1]))
    assert group.is_changing
    with pytest.raises(RuntimeError, match="one change at a time"):
        group.apply(owned([0, 1]))
    group.advance(5.0)
    assert not group.is_changing


def test_no_record_is_lost_or_served_twice_whatever_changes() -> None:
    rng = np.random.default_rng(3)
    for kind in (EagerGroup, CooperativeGroup):
        group = kind(burst(np.full(60, 150.0), even(4), rng), GroupSettings(heartbeat_s=1.0), rng)
        for now in np.arange(1, 200, 0.37):
            group.advance(float(now))
            if not group.is_changing and now < 60:
                owners: dict[int, set[int]] = {}
                for p in range(4):
                    owners.setdefault(int(rng.integers(1, 4)), set()).add(p)
                group.apply(Assignment({c: frozenset(map(partition_of, ps)) for c, ps in owners.items()}))
        assert group.topic.served == [len(t) for t in group.topic.arrivals.times_s] == group.topic.committed
        for done, came in zip(group.topic.done_s, group.topic.arrivals.times_s, strict=True):
            assert not np.isnan(done).any()
            assert np.all(np.diff(done) > 0)  # one after the other within a partition
            assert np.all(done - came >= 0.005 - 1e-9)


def test_the_same_seed_gives_the_same_run() -> None:
    trace = Arrivals(burst(np.full(40, 120.0), even(3), np.random.default_rng(1)).times_s, 40.0)
    plan = owned([0, 1], [2])
    a, b = (simulate(trace, Script((5.0, plan)), settings()) for _ in range(2))
    assert np.array_equal(a.all_latencies_s, b.all_latencies_s)


def test_a_backlog_of_days_is_worked_off_after_the_last_arrival() -> None:
    # Three days of twice what one consumer does: the last record arrives at the end and waits another three days.
    three_days_s = 3 * 86_400.0
    arrivals = Arrivals((np.linspace(0, three_days_s, 5001)[1:],), three_days_s)
    slow = RunSettings(GroupSettings(2500 / three_days_s), period_s=3600.0)
    outcome = simulate(arrivals, Script(), slow)
    first_s, service_s = three_days_s / 5000, three_days_s / 2500
    assert outcome.max_latency_s == pytest.approx(first_s + 5000 * service_s - three_days_s)
    assert outcome.replica_minutes == pytest.approx(three_days_s / 60)  # what is left is not billed


def test_what_nobody_owns_at_the_end_is_said() -> None:
    nobody_has_1 = Script((5.0, owned([0])))
    with pytest.raises(RuntimeError, match=r"partitions \[1\] without an owner"):
        simulate(counted([[1, 1]] * 20), nobody_has_1, settings("cooperative"))
