"""What holds for every registered policy: same objects in simulator and controller, sane settings, sane times."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headgate.config.loader import load_pipeline
from headgate.controller.assembly import policy_of
from headgate.controller.exact import ExactPipeline
from headgate.errors import ConfigError
from headgate.model import Assignment, ConsumerLoad, Decision, Observation, PartitionLoad, TopicPartition
from headgate.policies import Policy
from headgate.policies.binpack_lag import Algorithm1, Algorithm2
from headgate.policies.fixed_size import Overprovisioned
from headgate.policies.kubernetes import Hpa
from headgate.policies.registry import build_policy, policy_names
from headgate.policies.replica_capacity import LastMeasured, ReplicaCapacity
from headgate.simulation.arrivals import burst, even
from headgate.simulation.group import GroupSettings
from headgate.simulation.run import RunSettings, simulate
from tests.unit.test_latency_policies import PARAMETERS

P = [TopicPartition("t", n) for n in range(5)]
every_policy = pytest.mark.parametrize("name", policy_names())


def built(name: str, max_consumers: int = 32, stale_after_s: float = 10.0) -> Policy:
    return build_policy(
        name,
        "mwf",
        consumer_capacity_bytes_per_s=20_000,
        packing_capacity_bytes_per_s=15_000,
        max_consumers=max_consumers,
        stale_after_s=stale_after_s,
        params=PARAMETERS[name],
    )


def observed(
    assignment: Assignment, at_s: float, records_per_s: float = 20.0, lag: int = 20, partitions: int = 5
) -> Observation:
    each = PartitionLoad(100 * records_per_s, records_per_s, lag, 0, (int(records_per_s / 10),) * 10)
    consumers = {c: ConsumerLoad(capacity_records_per_s=200.0) for c in assignment}
    return Observation(at_s, at_s, dict.fromkeys(P[:partitions], each), assignment, consumers, at_s, 0.1)


def test_the_defaults_are_the_papers() -> None:
    for policy in (Algorithm1(), Algorithm2()):
        assert (policy.slo_s, policy.capacity_records_per_s, policy.rebalance_s) == (0.5, 200.0, 0.05)  # E-2
        assert (policy.f_up, policy.f_down) == (0.9, 0.4)
    assert (GroupSettings().heartbeat_s, RunSettings().slo_s) == (3.0, 0.5)
    assert (RunSettings().warm_up_s, RunSettings().consumers) == (15.0, 1)  # E-21


@every_policy
def test_the_same_policy_runs_in_the_simulator_and_in_the_live_controllers_state_machine(name: str) -> None:
    arrivals = burst(np.full(20, 100.0), even(5), np.random.default_rng(1))  # E-18
    for outcome in (simulate(arrivals, built(name), RunSettings()), ExactPipeline(arrivals, built(name)).run()):
        assert sum(len(latency) for latency in outcome.latency_s) == 2000
        assert not any(np.isnan(latency).any() for latency in outcome.latency_s)


class Listening:
    """A policy that notes when it is asked."""

    def __init__(self) -> None:
        self.asked_s: list[float] = []

    def decide(self, seen: Observation) -> Decision:
        self.asked_s.append(seen.at_s)
        return Decision(None, "keep")


def test_nobody_is_asked_during_the_warm_up() -> None:
    policy = Listening()
    simulate(burst(np.full(20, 10.0), even(2), np.random.default_rng(1)), policy, RunSettings(period_s=1.0))
    assert policy.asked_s[0] == 15  # E-21
    assert policy.asked_s[1] == 16


@every_policy
@pytest.mark.parametrize("records_per_s", [0.0, 5000.0])
def test_a_group_has_at_least_one_consumer_and_at_most_one_for_each_partition(name: str, records_per_s: float) -> None:
    policy, assignment = built(name, max_consumers=100), Assignment({1: frozenset(P)})  # E-21
    for second in range(40):
        decision = policy.decide(observed(assignment, float(second), records_per_s))
        assignment = decision.assignment or assignment
        assert 1 <= len(assignment) <= 5


@every_policy
def test_a_consumer_that_owns_only_what_vanished_is_let_go(name: str) -> None:
    # L-36. Two partitions of 70 records/s, 30 waiting each, on one consumer: a fixed size, Linear, Optimal, KEDA
    # and the small bins of Algorithms 1 and 2 ask for two, and two there are if the one that owns nothing else counts.
    policy, assignment = built(name), Assignment({1: frozenset(P[:2]), 2: frozenset({P[4]})})
    for second in range(2):
        decision = policy.decide(observed(assignment, float(second), records_per_s=70.0, lag=30, partitions=2))
        assignment = decision.assignment or assignment
    assert assignment.partitions == {P[0], P[1]}
    assert all(assignment[consumer] for consumer in assignment)


@every_policy
@pytest.mark.parametrize("wrong", [math.nan, -1.0, 0.0])
def test_no_policy_takes_a_limit_of_age_that_is_no_time(name: str, wrong: float) -> None:
    with pytest.raises(ConfigError, match="stale_after_s"):
        built(name, stale_after_s=wrong)


@every_policy
@pytest.mark.parametrize(("at_s", "measured_at_s"), [(math.nan, 0.0), (0.0, math.nan), (math.inf, math.inf)])
def test_an_observation_without_a_time_is_not_acted_on(name: str, at_s: float, measured_at_s: float) -> None:
    fresh = observed(Assignment({1: frozenset(P[:4])}), 0.0, 5000.0)
    timeless = Observation(at_s, measured_at_s, fresh.partitions, fresh.assignment, fresh.consumers, 0.0, 0.1)
    decision = built(name).decide(timeless)
    assert decision.keeps
    assert decision.reason.startswith("hold")


@pytest.mark.parametrize("wrong", [(math.nan, 5), (-1, 5), (100, 0)])
def test_a_peak_and_partitions_must_be_there_to_provision_for(wrong: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        Overprovisioned(*wrong)


# Replicas for 950 records/s, 20 waiting in each of 5 partitions, by the records/s that one is known to do.
SIZES = {
    "algorithm1": {2000: 1, 200: 5},
    "algorithm2": {2000: 1, 200: 5},
    "linear": {2000: 2, 200: 5},  # 0.4/0.9 of a replica's each
    "ratio": {2000: 1, 200: 5},
    "hpa": {2000: 1, 200: 5},  # 0.7 of a replica's each
    "overprovisioned": {2000: 3, 200: 5},  # a second's 400 of each partition at the peak, at most 900 in half a second
}
PIPELINE = """\
name: shop
kafka: {brokers: "localhost:1"}
topics: [t]
tables: [{name: all}]
policy: {name: %s, params: %s, consumer_capacity_bytes_per_s: %d, packing_capacity_bytes_per_s: 1000}
slo: {latency_s: 0.7 s}
lake: {commit_interval_s: 100 ms}
consumer: {wait_s: 100 ms}
"""


def of_pipeline(folder: Path, name: str, capacity_bytes_per_s: int, **params: float) -> Policy:
    (folder / "pipeline.yaml").write_text(
        PIPELINE % (name, json.dumps(PARAMETERS[name] | params), capacity_bytes_per_s)
    )
    return policy_of(load_pipeline(folder / "pipeline.yaml"))


def size(policy: Policy, measured_records_per_s: float | None) -> int:
    """Of partitions without owners, with records of 100 bytes."""
    seen = observed(Assignment({1: frozenset()}), 0.0, 190.0)
    seen = replace(seen, consumers={1: ConsumerLoad(capacity_records_per_s=measured_records_per_s)})
    chosen = policy.decide(seen).assignment
    assert chosen is not None
    return sum(bool(owned) for owned in chosen.owners.values())


@pytest.mark.parametrize("per_s", [200, 2000])
@pytest.mark.parametrize("name", SIZES)
def test_a_pipelines_policy_sizes_by_what_consumers_measure(name: str, per_s: int, tmp_path: Path) -> None:
    assert size(of_pipeline(tmp_path, name, 500_000), per_s) == SIZES[name][per_s]


@pytest.mark.parametrize("per_s", [200, 2000])
@pytest.mark.parametrize("name", SIZES)
def test_until_they_measure_it_sizes_by_what_is_configured_in_bytes(name: str, per_s: int, tmp_path: Path) -> None:
    assert size(of_pipeline(tmp_path, name, 100 * per_s), None) == SIZES[name][per_s]


@pytest.mark.parametrize("name", SIZES)
def test_a_capacity_in_records_that_somebody_configured_counts(name: str, tmp_path: Path) -> None:
    policy = of_pipeline(tmp_path, name, 500_000, capacity_records_per_s=200)
    assert size(policy, 2000) == SIZES[name][200]


@pytest.mark.parametrize("name", SIZES)
def test_partitions_get_owners_though_nobody_knows_what_a_consumer_can_do(name: str, tmp_path: Path) -> None:
    policy = of_pipeline(tmp_path, name, 500_000)
    silent = observed(Assignment({1: frozenset()}), 0.0, 0.0, 0)
    silent = replace(silent, consumers={})
    owned = policy.decide(silent).assignment
    assert owned is not None
    assert owned.partitions == frozenset(P)
    assert policy.decide(replace(silent, assignment=owned)).reason.startswith("hold: no consumer has measured")


def test_a_measured_capacity_holds_within_the_noise_of_measuring() -> None:
    replica = ReplicaCapacity(None, 20_000)
    seen = observed(Assignment({1: frozenset(P)}), 0.0)
    for measured, believed in ((200.0, 200.0), (215.0, 200.0), (185.0, 200.0), (230.0, 230.0), (100.0, 100.0)):
        assert replica.look(replace(seen, consumers={1: ConsumerLoad(capacity_records_per_s=measured)}))
        assert replica.per_s == believed


def test_the_first_cycles_of_a_consumer_say_nothing_of_what_one_can_do() -> None:
    loads = {1: ConsumerLoad(capacity_records_per_s=200.0, full_cycles=9)}
    seen = replace(observed(Assignment({1: frozenset(P)}), 0.0), consumers=loads)
    for cycles, believed in ((1, 200.0), (2, 200.0), (3, 5.0)):
        loads[2] = ConsumerLoad(capacity_records_per_s=5.0, full_cycles=cycles)
        assert LastMeasured(None, None).look(seen) == believed


def test_hpa_does_not_average_what_is_stale() -> None:
    # One fresh minute at 140 records/s, exactly the target of 0.7 · 200; the monitor then repeats 5 x 1000 for 30 s.
    policy, one = Hpa(), Assignment({1: frozenset(P)})
    policy.decide(observed(one, 0.0, 28.0))
    busy = observed(one, 0.0, 1000.0)
    for second in range(1, 30):
        stale = Observation(float(second), -60.0, busy.partitions, one, busy.consumers, 0.0)
        assert policy.decide(stale).reason.startswith("hold")
    decision = policy.decide(observed(one, 30.0, 28.0))
    assert decision.inputs["metric"] == pytest.approx(70)  # percent of one consumer
    assert decision.keeps
