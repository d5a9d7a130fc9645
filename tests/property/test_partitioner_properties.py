"""What producers use for every record is held against the partitioners as published."""

from collections import Counter, deque
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.producers.inflight import LatencyWeighted
from headgate.producers.nodes import NodeState, Usage
from headgate.producers.protocol import Bindable, ClusterView, Forgiving
from headgate.producers.registry import build_partitioner
from headgate.producers.sqf import ShortestQueueFirst, shortest_first, turns_behind
from headgate.producers.turns import poured
from headgate.topology.cluster import Topology
from headgate.topology.load import shared_sqf_load
from headgate.topology.masks import NodeBits, spreads_of
from tests.topologies import healthy_topologies, topologies


def zero() -> int:
    return 0


def bindable(name: str) -> Bindable:
    partitioner = build_partitioner(name, {"start": zero})
    assert isinstance(partitioner, Bindable)
    return partitioner


@settings(max_examples=30)
@given(topology=topologies(most_nodes=4, most_topics=3), data=st.data())
def test_bound_choices_are_those_of_the_partitioner(topology: Topology, data: st.DataObject) -> None:
    view = ClusterView.of(topology)
    topics = data.draw(st.lists(st.sampled_from(sorted(view.partitions)), max_size=60)) if view.partitions else []
    for name in ("default-rr", "improved", "node", "sqf"):
        slow, fast = bindable(name), bindable(name)
        choices = {topic: fast.bound(topic, view) for topic in view.partitions}
        for topic in topics:
            choice = choices[topic]
            assert choice is not None
            assert choice() == slow.partition(topic, None, b"", view)


@settings(max_examples=30)
@given(topology=topologies(most_nodes=4, most_topics=3), data=st.data())
def test_a_record_that_is_taken_back_leaves_no_trace(topology: Topology, data: st.DataObject) -> None:
    view = ClusterView.of(topology)
    record = st.tuples(st.sampled_from(sorted(view.partitions)), st.sampled_from([None, b"key"]), st.booleans())
    records = data.draw(st.lists(record, max_size=40)) if view.partitions else []
    for name, options in (
        *((name, {"allow_keys": True}) for name in ("node", "node-key", "sqf", "sqf-inflight")),
        ("sqf", {"allow_keys": True, "count_bytes": True}),
        ("default-rr", {}),
    ):
        refused, never = (build_partitioner(name, {"start": zero, **options}) for _ in range(2))
        assert isinstance(refused, Forgiving)
        for topic, key, full in records:
            chosen = refused.partition(topic, key, b"x", view)
            if full:
                refused.taken_back(topic, key, b"x", chosen, view)
            else:
                assert chosen == never.partition(topic, key, b"x", view)


@settings(max_examples=30)
@given(topology=topologies(most_nodes=4, most_topics=3), records=st.integers(0, 100))
def test_nodes_of_a_topic_differ_by_at_most_one_record_and_so_do_partitions_of_a_node(
    topology: Topology, records: int
) -> None:
    """B-31, with starts drawn at random."""
    view = ClusterView.of(topology)
    led_topics = ((topic, leaders) for topic, leaders in view.leaders.items() if leaders)
    for (topic, leaders), name in product(led_topics, ("node", "sqf")):
        partitioner = build_partitioner(name)
        assert isinstance(partitioner, Bindable)
        choice = partitioner.bound(topic, view)
        assert choice is not None
        counts = Counter(choice() for _ in range(records))
        nodes = [sum(counts[p] for p in led) for led in leaders.values()]
        assert max(nodes) - min(nodes) <= 1
        for led in leaders.values():
            assert max(counts[p] for p in led) - min(counts[p] for p in led) <= 1


@settings(max_examples=50)
@given(topology=topologies(most_nodes=4, most_topics=3), data=st.data())
def test_many_choices_at_once_are_those_one_by_one(topology: Topology, data: st.DataObject) -> None:
    """Of several topics in turn, some at once and some single."""
    view = ClusterView.of(topology)
    led = sorted(topic for topic, leaders in view.leaders.items() if leaders)
    slow, fast = ShortestQueueFirst(start=zero), ShortestQueueFirst(start=zero)
    choices = {topic: fast.bound(topic, view) for topic in led}
    for topic in data.draw(st.lists(st.sampled_from(led), max_size=10)) if led else []:
        records, choice = data.draw(st.integers(0, 30)), choices[topic]
        assert choice is not None
        expected = [slow.partition(topic, None, b"", view) for _ in range(records + 1)]
        assert [*fast.ahead(topic, view, records), choice()] == expected
    assert slow.usage(view) == fast.usage(view)


@settings(max_examples=25)
@given(topology=healthy_topologies(most_nodes=4, most_topics=4), data=st.data())
def test_a_shared_sqf_sends_what_the_load_model_predicts(topology: Topology, data: st.DataObject) -> None:
    """B-24: 4,000 records, of every topic as many as its rate asks for, interleaved."""
    rates = [data.draw(st.integers(1, 4)) for _ in topology.topics]
    topology = topology.changed(replace(t, rate=float(r)) for t, r in zip(topology.topics, rates, strict=True))
    view, sqf, due = ClusterView.of(topology), ShortestQueueFirst(start=zero), [0.0] * len(rates)
    for _ in range(4_000):
        due = [owed + rate / sum(rates) for owed, rate in zip(due, rates, strict=True)]
        most = max(range(len(due)), key=lambda n: due[n])
        due[most] -= 1
        sqf.partition(topology.topics[most].name, None, b"", view)
    nodes = [node.id for node in topology.nodes]
    predicted = shared_sqf_load(list(spreads_of(topology, NodeBits.of(topology)).values()), nodes).load
    for node, used in sqf.usage(view).items():
        assert used / 4_000 == pytest.approx(predicted[node] / sum(rates), abs=0.005)


@given(data=st.data(), answers=st.integers(0, 10_000), forget_after=st.integers(1, 2_000))
def test_latency_weighted_chooses_as_defined(data: st.DataObject, answers: int, forget_after: int) -> None:
    weighted = LatencyWeighted(forget_after=forget_after)
    weighted._answers = answers
    latency_s = st.none() | st.floats(0, 60)
    usage = st.builds(
        Usage, st.just(0.0), st.integers(0, 5).map(lambda n: deque([None] * n)), latency_s, st.integers(0, answers)
    )
    nodes = [NodeState(id, usage) for id, usage in enumerate(data.draw(st.lists(usage, min_size=1, max_size=6)))]
    assert weighted._chosen(nodes) is weighted.defined_choice(nodes)


halves = st.integers(0, 100).map(lambda n: n / 2)


@given(usage=st.lists(halves, min_size=1, max_size=6), records=st.integers(1, 80))
def test_choosing_ahead_is_choosing_one_by_one(usage: list[float], records: int) -> None:
    used, expected = list(usage), []
    for _ in range(records):
        node = min(range(len(used)), key=lambda n: used[n])
        used[node] += 1
        expected.append(node)
    assert shortest_first(usage, records) == expected


@given(usage=st.lists(st.integers(0, 10**9), min_size=1, max_size=30), records=st.integers(1, 200))
def test_choosing_ahead_takes_memory_for_the_records_and_the_nodes_and_not_for_their_product(
    usage: list[int], records: int
) -> None:
    """As few as that, and enough: either all catch up, or every record has a turn."""
    turns = turns_behind(usage, records)
    assert len(turns) <= records + 2 * len(usage)
    assert len(turns) >= min(records, sum(max(usage) - used for used in usage))


@given(usage=st.lists(halves, min_size=1, max_size=6), rows=st.integers(1, 80))
def test_pouring_ends_at_one_level_that_the_others_are_above(usage: list[float], rows: int) -> None:
    shares = poured(usage, rows)
    assert sum(shares) == pytest.approx(rows)
    ends = [used + share for used, share in zip(usage, shares, strict=True) if share > 0]
    assert max(ends) == pytest.approx(min(ends))
    assert all(used >= min(ends) - 1e-9 for used, share in zip(usage, shares, strict=True) if not share)
