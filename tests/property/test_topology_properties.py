"""Fast versions against the published ones on random clusters, and the laws that groups obey."""

import json
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology.checks import findings_of
from headgate.topology.cluster import Node, Topology
from headgate.topology.document import as_document, read_topology
from headgate.topology.failures import failed, recovered, replaced, returned
from headgate.topology.groups import (
    dpo,
    dpo2,
    get_max_groups,
    is_group,
    leader_sets,
    offline_topics,
    overlap_exists,
)
from headgate.topology.lints import Lint
from headgate.topology.load import default_load, node_load, shared_sqf_by_subsets, shared_sqf_load
from headgate.topology.overlaps import Overlaps
from headgate.topology.potential import potential_overlaps
from headgate.topology.simulate import Failures, Pressure, simulate
from headgate.topology.standing import Standing
from tests.topologies import healthy_topologies, topics, topologies


@given(topologies())
def test_the_bit_masks_find_what_the_published_algorithms_find(topology: Topology) -> None:
    sets = leader_sets(topology)
    published, fast = get_max_groups(sets), Overlaps.of(topology)
    assert fast.groups() == published
    assert fast.offline == offline_topics(sets)
    assert fast.partial == overlap_exists(published)
    assert fast.pairs() == dpo(published)
    assert fast.shared() == dpo2(published)


@given(topologies())
def test_max_groups_are_groups_that_part_the_topics_and_take_no_more(topology: Topology) -> None:
    sets = leader_sets(topology)
    groups = get_max_groups(sets)
    members = [topic for group in groups for topic in group.topics]
    assert sorted([*members, *offline_topics(sets)]) == sorted(sets)
    for group in groups:
        assert all(is_group(sets, group.topics[:n]) for n in range(len(group.topics) + 1))
        outsiders = sets.keys() - set(group.topics)
        assert not any(is_group(sets, (*group.topics, topic)) for topic in outsiders)


@given(topologies())
def test_without_overlap_every_leading_node_belongs_to_one_group(topology: Topology) -> None:
    groups = get_max_groups(leader_sets(topology))
    users = [sum(node.id in group.nodes for group in groups) for node in topology.nodes]
    assert overlap_exists(groups) == any(count > 1 for count in users)


@given(st.data(), topologies(most_topics=5))
def test_a_changed_topic_leads_to_the_same_as_starting_anew(data: st.DataObject, topology: Topology) -> None:
    standing = Standing(topology)
    nodes = [node.id for node in topology.nodes]
    rates = st.floats(0, 1e9)
    for _ in range(3):
        name = data.draw(st.sampled_from(["t0", "t1", "t2", "new"]))
        kept = [replace(topic, rate=data.draw(rates)) for topic in topology.topics if topic.name != name]
        added = [] if data.draw(st.booleans()) else [replace(data.draw(topics(name, nodes)), rate=data.draw(rates))]
        topology = replace(Topology.of(topology.nodes, [*kept, *added]), epoch=topology.epoch + 1)
        standing.update(topology)
        anew = Standing(topology)
        assert standing.overlaps.groups() == anew.overlaps.groups()
        assert standing.overlaps.shared() == anew.overlaps.shared()
        assert standing.overlaps.offline == anew.overlaps.offline
        assert (standing.lints, standing.leaders, standing.topics_led) == (anew.lints, anew.leaders, anew.topics_led)
        assert (standing.loads, findings_of(standing)) == (anew.loads, findings_of(anew))
        assert anew.loads.default == pytest.approx(default_load(anew.spreads, nodes), rel=1e-9, abs=1e-9)
        assert anew.loads.node == pytest.approx(node_load(anew.spreads, nodes), rel=1e-9, abs=1e-9)


@given(topologies(most_topics=5), st.booleans())
def test_a_simulated_failure_equals_looking_at_the_failed_cluster_anew(topology: Topology, unclean: bool) -> None:
    standing = Standing(topology)
    before = standing.loads.copy()
    healthy = Standing(topology).lints
    for nodes in [*combinations(sorted(topology.online), 1), *combinations(sorted(topology.online), 2)]:
        seen = Failures(standing, unclean).consequence(nodes)
        anew = Standing(failed(topology, nodes, unclean))
        assert (seen.partial, seen.groups) == (anew.overlaps.partial, anew.overlaps.count)
        assert seen.shared_nodes == len(anew.overlaps.shared())
        for lint in Lint:
            assert seen.new.get(lint, ()) == tuple(sorted(anew.lints[lint] - healthy[lint]))
            assert seen.gone.get(lint, ()) == tuple(sorted(healthy[lint] - anew.lints[lint]))
        live = {node.id: node.capacity for node in topology.nodes if node.online and node.id not in nodes}
        assert seen.default == Pressure.of(anew.loads.default, live)
        assert seen.node == Pressure.of(anew.loads.node, live)
        balanced, level = Failures(standing, unclean).shared_sqf(nodes), shared_sqf_by_subsets(anew.spreads, live)
        expected = Pressure.of(level, live)
        assert (balanced and balanced.load) == (expected and pytest.approx(expected.load, abs=1e-3))
    assert (standing.loads, standing.lints) == (before, healthy)
    assert standing.overlaps.groups() == Overlaps.of(topology).groups()


@given(healthy_topologies())
def test_recovery_brings_leadership_home(topology: Topology) -> None:
    for node in topology.online:
        back = recovered(failed(topology, [node]), [node])
        assert (back.nodes, back.topics) == (topology.nodes, topology.topics)


@given(topologies(), st.booleans())
def test_a_simulated_recovery_equals_looking_at_the_recovered_cluster_anew(topology: Topology, unclean: bool) -> None:
    standing = Standing(topology)
    before = standing.loads.copy()
    live = {node.id: node.capacity for node in topology.nodes if node.online}
    for nodes in [*combinations(sorted(live), 1), *combinations(sorted(live), 2)]:
        seen, gone = Failures(standing, unclean).recovery(nodes), failed(topology, nodes, unclean)
        for pressure, anew in ((seen.back, returned(gone, nodes)), (seen.home, recovered(gone, nodes))):
            expected = Pressure.of(Standing(anew).loads.default, live)
            assert pressure is not None
            assert expected is not None
            assert pressure.load == pytest.approx(expected.load, abs=1e-9)
        there = Standing(returned(gone, nodes))
        assert seen.idle == tuple(id for id in nodes if not there.leaders[id])
    assert standing.loads == before


@given(topologies())
def test_nobody_leads_without_one_who_was_in_sync_to_copy_from(topology: Topology) -> None:
    """B-20, without unclean elections: neither after a failure nor after a return."""
    for nodes in combinations(sorted(topology.online), 2):
        gone = failed(topology, nodes)
        for after in (gone, *(recovered(gone, [node]) for node in nodes), recovered(gone, nodes)):
            for old, new in zip(topology.topics, after.topics, strict=True):
                for a, b in zip(old.partitions, new.partitions, strict=True):
                    assert b.leader is None or b.leader in b.isr
                    assert b.leader is None or after.online.intersection(a.isr)


@given(topologies())
def test_a_standby_carries_what_the_node_carried(topology: Topology) -> None:
    """B-22, against the cluster with one more node in the failed one's place."""
    failures = Failures(Standing(topology))
    for node in sorted(topology.online):
        standby = replace(topology, nodes=(*topology.nodes, Node(99)))
        anew = Standing(replaced(standby, node, 99))
        live = dict.fromkeys((topology.online | {99}) - {node}, 1.0)
        expected, seen = Pressure.of(anew.loads.default, live), failures.spare(node).load_with
        assert seen is not None
        assert expected is not None
        assert seen.load == pytest.approx(expected.load, abs=1e-9)
        assert seen.skew == pytest.approx(expected.skew, abs=1e-9)


@given(st.one_of(healthy_topologies(4, 3), topologies(4, 3)), st.booleans())
def test_the_witness_of_a_potential_overlap_is_the_smallest_there_is(topology: Topology, unclean: bool) -> None:
    for potential in potential_overlaps(topology, Overlaps.of(topology), most_failures=2, unclean=unclean).found:
        working = _sets_that_make_it_happen(topology, potential.first.topics, potential.second.topics, unclean)
        if potential.witness is None:
            assert working == []
        else:
            assert potential.witness in working
            assert len(potential.witness) == min(map(len, working))


def _sets_that_make_it_happen(
    topology: Topology, first: tuple[str, ...], second: tuple[str, ...], unclean: bool
) -> list[tuple[int, ...]]:
    working = []
    for size in (1, 2):
        for nodes in combinations(sorted(topology.online), size):
            sets = leader_sets(failed(topology, nodes, unclean))
            if any(sets[a] != sets[b] and sets[a] & sets[b] for a in first for b in second):
                working.append(nodes)
    return working


@given(topologies(most_topics=5))
def test_pouring_finds_the_balance_that_the_definition_describes(topology: Topology) -> None:
    standing, nodes = Standing(topology), sorted(topology.online)
    poured = shared_sqf_load(standing.spreads, nodes)
    assert poured.load == pytest.approx(shared_sqf_by_subsets(standing.spreads, nodes), abs=1e-4)


@given(topologies())
def test_no_partitioner_loses_or_invents_traffic(topology: Topology) -> None:
    standing, nodes = Standing(topology), sorted(topology.online)
    total = sum(spread.rate for spread in standing.spreads if spread.counts)
    for load in (
        default_load(standing.spreads, nodes),
        node_load(standing.spreads, nodes),
        shared_sqf_load(standing.spreads, nodes).load,
    ):
        assert sum(load.values()) == pytest.approx(total)


@given(topologies())
def test_a_cluster_survives_being_written_and_read(topology: Topology) -> None:
    assert read_topology(json.dumps(as_document(topology)), "here") == topology


@given(topologies(), st.integers(1, 3), st.integers(1, 6))
def test_a_bounded_simulation_says_how_much_it_covered(topology: Topology, failures: int, most: int) -> None:
    seen = simulate(Standing(topology), failures, most)
    assert sum(looked for looked, _ in seen.covered.values()) == len(seen.consequences) <= most
    assert len({c.failed for c in seen.consequences}) == len(seen.consequences)
    assert seen.complete == all(a == b for a, b in seen.covered.values())
