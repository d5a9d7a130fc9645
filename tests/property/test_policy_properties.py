"""Whatever a monitor says, no policy crashes, loses a partition or gives one away twice."""

import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import Assignment, ConsumerLoad, Observation, PartitionLoad, TopicPartition
from headgate.packing.least_loaded import Item, Room, least_loaded, onto_members
from headgate.packing.modified_any_fit import ModifiedWorstFit
from headgate.policies import Policy
from headgate.policies.binpack_lag import Algorithm1, Algorithm2
from headgate.policies.candidates import onto_owners, spread
from headgate.policies.fixed_size import EqualCount, LoadBalance
from headgate.policies.kubernetes import Hpa, Keda
from headgate.policies.linear import Linear, RatioOnly
from headgate.policies.optimal import Optimal
from headgate.policies.sentinel import Sentinel
from headgate.policies.slo import Slo

P = [TopicPartition("t", n) for n in range(6)]
odd = st.one_of(st.floats(0, 400), st.sampled_from([math.nan, -1.0, 0.0, 1e12]))
loads = st.builds(
    PartitionLoad,
    bytes_per_s=odd,
    records_per_s=odd,
    lag_records=st.integers(-5, 10**9),
    end_offset=st.integers(0, 10**9),
    arrivals=st.lists(st.integers(0, 500), max_size=12).map(tuple),
)
measured = st.dictionaries(st.sampled_from(P), loads, max_size=6)


def made() -> list[Policy]:
    return [
        Algorithm1(cooldown_s=0),
        Algorithm2(cooldown_s=0, literal=False),
        Linear(cooldown_s=0),
        RatioOnly(cooldown_s=0),
        Hpa(),
        Keda(),
        Optimal(),
        EqualCount(3),
        LoadBalance(3, cooldown_s=0),
        Sentinel(ModifiedWorstFit(), 20_000, 15_000),
        Slo(capacity_records_per_s=200),
        Slo(warm=1),
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(measured, st.floats(0, 3), st.sampled_from([0.0, 0.1])), min_size=1, max_size=6))
def test_any_sequence_of_observations_gets_sound_decisions(
    history: list[tuple[dict[TopicPartition, PartitionLoad], float, float]],
) -> None:
    for policy in made():
        assignment, now = Assignment({1: frozenset(P)}), 0.0
        for partitions, pause_s, slot_s in history:
            now += 1.0
            consumers = {c: ConsumerLoad(capacity_records_per_s=200.0) for c in assignment}
            decision = policy.decide(
                Observation(now, now, partitions, assignment, consumers, now, slot_s, pause_s=pause_s)
            )
            assert decision.reason
            if decision.assignment is not None:
                assert decision.assignment.partitions >= frozenset(partitions)
                assignment = decision.assignment


slots = st.lists(st.tuples(*[st.integers(0, 300)] * 6), min_size=10, max_size=10)


@settings(max_examples=30, deadline=None)
@given(st.lists(slots, min_size=3, max_size=8), st.sampled_from([0.0, 0.05, 2.0]), st.integers(1, 6))
def test_ours_keeps_every_partition_owned_once_under_any_arrivals(
    history: list[list[tuple[int, ...]]], pause_s: float, max_consumers: int
) -> None:
    policy, assignment = Slo(capacity_records_per_s=200, max_consumers=max_consumers), Assignment({1: frozenset(P)})
    for second, came in enumerate(history):
        partitions = {
            p: PartitionLoad(0, float(sum(c[n] for c in came)), 0, 0, tuple(c[n] for c in came))
            for n, p in enumerate(P)
        }
        now = float(second)
        decision = policy.decide(Observation(now, now, partitions, assignment, {}, 0, 0.1, pause_s=pause_s))
        if decision.assignment is not None:
            assert decision.assignment.partitions == frozenset(P)
            assert len(decision.assignment) <= max_consumers
            assignment = decision.assignment


weighed = st.lists(st.integers(0, 50), min_size=1, max_size=12)


@given(weighed, st.integers(1, 8))
def test_spreading_by_heap_is_least_loaded_without_limits(weights: list[int], size: int) -> None:
    falling = sorted(weights, reverse=True)
    items = {TopicPartition("t", n): Item(float(weight)) for n, weight in enumerate(falling)}
    slow = least_loaded(items, Room(2.0 * sum(weights) + 1, 1.0), min_bins=size)
    fast = spread([float(weight) for weight in falling], size)
    assert [frozenset(TopicPartition("t", n) for n in held) for held in fast] == [held for held in slow if held]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(1, 6), st.randoms(use_true_random=False))
def test_bins_go_to_the_same_members_whether_all_pairs_are_looked_at_or_each_partition_once(
    owners: list[int], size: int, chance: random.Random
) -> None:
    names = [TopicPartition("t", n) for n in range(len(owners))]
    weights = [float(2**n) for n in range(len(owners))]  # no two sets weigh the same
    current = Assignment(
        {c: frozenset(p for p, o in zip(names, owners, strict=True) if o == c) for c in {*owners} - {0}}
    )
    bins: list[list[int]] = [[] for _ in range(size)]
    for n in range(len(owners)):
        chance.choice(bins).append(n)
    filled = [b for b in bins if b]
    fast = onto_owners(filled, [o or None for o in owners], weights, current)
    slow = onto_members(
        tuple(frozenset(names[n] for n in b) for b in filled), current, dict(zip(names, weights, strict=True))
    )
    assert {c: frozenset(names[n] for n in held) for c, held in fast.items()} == dict(slow.owners)
