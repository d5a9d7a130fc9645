"""Fast queue arithmetic against its definition, and Least-Loaded against what it promises."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import Assignment, TopicPartition
from headgate.packing.least_loaded import Item, Room, fewest_bins, least_loaded, onto_members
from headgate.policies.candidates import candidates
from headgate.policies.lateness import excess
from headgate.simulation.arrivals import Arrivals
from headgate.simulation.service import MAX_POLL_RECORDS, Consumer, Topic, completions, completions_one_by_one

times = st.lists(st.floats(0, 50, allow_nan=False), max_size=60).map(sorted)
items = st.dictionaries(
    st.integers(0, 8).map(lambda n: TopicPartition("t", n)),
    st.builds(Item, st.floats(0, 300), st.floats(0, 150)),
    min_size=1,
    max_size=7,
)


@given(times, st.floats(0, 60), st.floats(0.001, 2))
def test_completions_are_those_of_serving_one_by_one(arrivals: list[float], free_s: float, service_s: float) -> None:
    fast = completions(np.array(arrivals), free_s, service_s)
    assert list(fast) == pytest.approx(completions_one_by_one(arrivals, free_s, [service_s] * len(arrivals)))


@given(times, st.floats(0, 60), st.integers(0, 1000))
def test_records_of_different_cost_are_done_as_if_served_one_by_one(
    arrivals: list[float], free_s: float, seed: int
) -> None:
    services_s = np.random.default_rng(seed).uniform(0.001, 2, len(arrivals))
    fast = completions(np.array(arrivals), free_s, services_s)
    assert list(fast) == pytest.approx(completions_one_by_one(arrivals, free_s, services_s.tolist()))


def by_hand(
    arrivals: list[list[float]], services_s: list[list[float]], looks: list[float]
) -> tuple[dict[tuple[int, int], float], list[list[int]]]:
    """A consumer as the sample application is written: poll, process all, commit, poll again."""
    queue = sorted((t, p, n) for p, ts in enumerate(arrivals) for n, t in enumerate(ts))
    done: dict[tuple[int, int], float] = {}
    commits: list[tuple[float, int]] = []
    now, at = 0.0, 0
    while at < len(queue):
        now = max(now, queue[at][0])
        batch = [r for r in queue[at:] if r[0] <= now + 1e-9][:MAX_POLL_RECORDS]
        for _, p, n in batch:
            now += services_s[p][n]
            done[p, n] = now
        commits += [(now, p) for _, p, _ in batch]
        at += len(batch)
    committed = [
        [sum(1 for t, q in commits if t <= look + 1e-9 and q == p) for p in range(len(arrivals))] for look in looks
    ]
    return done, committed


@given(
    st.lists(times, min_size=1, max_size=3),
    st.sampled_from([0.05, 0.3, 1.0]),
    st.sampled_from([(1.0, 1.0), (0.5, 1.75)]),
    st.lists(st.floats(0, 70), min_size=1, max_size=6).map(sorted),
)
def test_a_consumer_serves_and_commits_as_the_sample_application_does(
    arrivals: list[list[float]], service_s: float, odd_and_even: tuple[float, float], looks: list[float]
) -> None:
    # Times on a grid no batch ends on, so that "at the same moment" is never a matter of rounding.
    gridded = [[round(t * 8) / 8 + 0.013 for t in ts] for ts in arrivals]
    looks = [round(x * 8) / 8 + 0.007 for x in looks]
    costs = [[odd_and_even[n % 2] for n in range(len(ts))] for ts in gridded]
    done, committed = by_hand(gridded, [[service_s * cost for cost in each] for each in costs], looks)
    alike = odd_and_even == (1.0, 1.0)
    topic = Topic(
        Arrivals(tuple(np.array(t) for t in gridded), 100.0, costs=None if alike else tuple(np.array(c) for c in costs))
    )
    consumer = Consumer(1, 0.0, service_s, partitions=set(range(len(gridded))))
    for look, expected in zip(looks, committed, strict=True):
        consumer.advance(topic, look)
        assert topic.committed == expected
    consumer.advance(topic, 1e6)
    for (p, n), moment in done.items():
        assert topic.done_s[p][n] == pytest.approx(moment)


@given(items, st.integers(1, 4))
def test_least_loaded_places_everything_once_within_its_room(load: dict[TopicPartition, Item], min_bins: int) -> None:
    room = Room(200, 100)
    bins = least_loaded(load, room, min_bins)
    assert sorted(p for b in bins for p in b) == sorted(load)
    assert len(bins) <= max(len(load), min_bins)
    for b in bins:
        if len(b) > 1:
            assert sum(load[p].rate for p in b) <= room.rate + 1e-6
            assert sum(load[p].lag for p in b) <= room.lag + 1e-6
    assert len(bins) >= fewest_bins(load, room)


@given(items, st.integers(1, 4))
def test_bins_mapped_to_members_keep_everybody_once(load: dict[TopicPartition, Item], size: int) -> None:
    names = sorted(load)
    current = Assignment({n + 1: frozenset(names[n::size]) for n in range(size)})
    bins = least_loaded(load, Room(200, 100))
    plan = onto_members(bins, current, {p: i.rate for p, i in load.items()})
    assert plan.partitions == frozenset(load)
    assert len(plan) == len(bins)


@given(items, st.integers(1, 7), st.integers(1, 4))
def test_every_candidate_owns_every_partition_once(load: dict[TopicPartition, Item], largest: int, size: int) -> None:
    names = sorted(load)
    size = min(size, len(names))
    current = Assignment({n + 1: frozenset(names[n::size]) for n in range(size)})
    for option in candidates(current, {p: i.rate for p, i in load.items()}, min(largest, len(names))):
        assert option.partitions == frozenset(names)
        assert all(option[c] for c in option)


@given(st.floats(-50, 50), st.floats(0.1, 30))
def test_the_expected_excess_is_the_normal_integral(mean: float, deviation: float) -> None:
    z = mean / deviation
    exact = mean * 0.5 * math.erfc(-z / math.sqrt(2)) + deviation * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    assert float(excess(np.array([mean]), np.array([deviation]))[0]) == pytest.approx(exact, abs=1e-5)
