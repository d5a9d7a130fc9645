"""Whatever the cluster, advice keeps what must be kept and promises what a fresh look at the result shows."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headgate.topology.advice import Effect, advise
from headgate.topology.cluster import Topology
from headgate.topology.leaders import with_better_leaders
from headgate.topology.masks import NodeBits, Spread
from headgate.topology.overlaps import Overlaps
from headgate.topology.placement import equal_seats, seated, separate_seats, spread
from headgate.topology.reassignment import reassigned
from headgate.topology.standing import Standing
from headgate.topology.validation import problems
from tests.topologies import healthy_topologies, topologies


@given(topologies())
def test_a_plan_promises_what_its_reassignment_brings(topology: Topology) -> None:
    standing = Standing(topology)
    for plan in advise(standing).plans:
        after = reassigned(topology, plan.change)
        assert problems(after) == []
        assert Effect.of(Standing(after)) == plan.after
        assert plan.after.badness < plan.before.badness
        for old, new in zip(topology.topics, after.topics, strict=True):
            pairs = zip(old.partitions, new.partitions, strict=True)
            assert all(
                len(b.replicas) - len(a.replicas) in ((0, 1) if plan.name == "replicate" else (0,)) for a, b in pairs
            )


@given(topologies())
def test_every_plan_leads_from_live_nodes_and_puts_no_replica_on_one_that_is_away(topology: Topology) -> None:
    advice = advise(Standing(topology))
    for plan in (*advice.plans, *(plan for plan, _ in advice.rejected)):
        for at, replicas in plan.change.replicas.items():
            now = next(topic for topic in topology.topics if topic.name == at.topic).partitions[at.partition]
            assert set(replicas) <= topology.online | set(now.replicas)
            assert len(replicas) >= len(now.replicas)


@st.composite
def in_racks(draw: st.DrawFn, of: st.SearchStrategy[Topology]) -> Topology:
    """Two or three racks; of some nodes it is not known."""
    topology = draw(of)
    racks = draw(
        st.lists(st.sampled_from(["a", "b", "c", None]), min_size=len(topology.nodes), max_size=len(topology.nodes))
    )
    return replace(
        topology, nodes=tuple(replace(node, rack=rack) for node, rack in zip(topology.nodes, racks, strict=True))
    )


@given(in_racks(topologies()))
def test_no_plan_puts_replicas_on_fewer_racks(topology: Topology) -> None:
    """What is on a node that is away counts for none."""
    racks = {node.id: node.rack for node in topology.nodes if node.online}
    for plan in advise(Standing(topology)).plans:
        for at, replicas in plan.change.replicas.items():
            now = next(topic for topic in topology.topics if topic.name == at.topic).partitions[at.partition].replicas
            before, after = ({racks.get(id) for id in ids} - {None} for ids in (now, replicas))
            assert len(after) >= len(before)


@given(in_racks(healthy_topologies()))
def test_spreading_uses_as_many_racks_as_there_are_replicas_or_racks(topology: Topology) -> None:
    racks = {node.id: node.rack or f"alone {node.id}" for node in topology.nodes}
    for topic in spread(topology).topics:
        for partition in topic.partitions:
            used = {racks[id] for id in partition.replicas}
            assert len(used) == min(len(partition.replicas), len(set(racks.values())))


@given(topologies())
def test_better_leaders_are_replicas_in_sync_and_copy_nothing(topology: Topology) -> None:
    after = with_better_leaders(topology)
    bits = NodeBits.of(topology)
    for old, new in zip(topology.topics, after.topics, strict=True):
        for a, b in zip(old.partitions, new.partitions, strict=True):
            assert set(a.replicas) == set(b.replicas)
            assert b.leader == a.leader or b.leader in a.isr
        counts = [list(Spread.of(topic, bits).counts.values()) for topic in (old, new)]
        assert sum(c * c for c in counts[1]) <= sum(c * c for c in counts[0])


@given(healthy_topologies())
def test_separate_nodes_end_every_overlap_between_groups(topology: Topology) -> None:
    overlaps = Overlaps.of(topology)
    seats = separate_seats(topology, overlaps.groups())
    after = seated(topology, seats)
    assert problems(after) == []
    assert not Overlaps.of(after).partial
    used = [id for place in seats for id in place.replicas]
    assert len(used) == len(set(used))


@given(healthy_topologies())
def test_equal_nodes_make_one_group(topology: Topology) -> None:
    after = seated(topology, equal_seats(topology))
    assert problems(after) == []
    assert Overlaps.of(after).count == 1
    for topic in after.topics:
        counts = topic.led_by().values()
        assert max(counts) - min(counts) <= 1
