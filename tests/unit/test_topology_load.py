"""Load per node and partitioner: the tables of the paper, by hand."""

import pytest

from headgate.kafka.topology_metrics import BUSIEST_LOAD, LOAD_SKEW, NODE_LOAD, show
from headgate.topology.cluster import Topology
from headgate.topology.failures import failed
from headgate.topology.load import default_load, node_load, shared_sqf_load, skew, water_level
from headgate.topology.simulate import Pressure
from headgate.topology.standing import Standing
from tests.topologies import cluster


def loads(topology: Topology) -> tuple[list[float], list[float], list[float]]:
    """Default, node, shared SQF; each by node."""
    spreads, nodes = Standing(topology).spreads, sorted(topology.online)
    return (
        list(default_load(spreads, nodes).values()),
        list(node_load(spreads, nodes).values()),
        list(shared_sqf_load(spreads, nodes).load.values()),
    )


def test_three_topics_on_pairs_of_nodes_load_two_nodes_half_more() -> None:
    """B-25: {1,2}, {2,3}, {1,3} with rates 1, 1, 2."""
    topology = cluster({"A": [[1], [2]], "B": [[2], [3]], "C": [[1], [3]]}, rates={"A": 1, "B": 1, "C": 2})
    default, node, _ = loads(topology)
    assert default == pytest.approx([1.5, 1.0, 1.5])
    assert node == pytest.approx([1.5, 1.0, 1.5])


def prototype(a: float, b: float) -> Topology:
    """B-25: A has one partition on node 1 and two on node 2; B is on nodes 2 and 3."""
    return cluster({"A": [[1], [2], [2]], "B": [[2], [3]]}, rates={"A": a, "B": b})


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (3.0, 2.0), (1.0, 2.0), (4.0, 2.0)])
def test_the_prototype_cluster_is_loaded_as_published(a: float, b: float) -> None:
    default, node, shared = loads(prototype(a, b))
    assert default == pytest.approx([a / 3, 2 * a / 3 + b / 2, b / 2])
    assert node == pytest.approx([a / 2, (a + b) / 2, b / 2])
    assert shared == pytest.approx([(a + b) / 3] * 3)


def test_a_shared_sqf_cannot_level_what_one_topic_alone_overloads() -> None:
    assert loads(prototype(5.0, 2.0))[2] == pytest.approx([2.5, 2.5, 2.0])
    assert loads(prototype(2.0, 5.0))[2] == pytest.approx([2.0, 2.5, 2.5])


def test_partitions_without_a_leader_leave_their_traffic_to_the_others() -> None:
    topology = cluster({"A": [[1], [2], [3]]}, rates={"A": 6})
    assert loads(failed(topology, [3]))[0] == pytest.approx([3.0, 3.0])


def test_water_stands_level_over_the_columns_it_covers() -> None:
    assert water_level([0.0, 1.0, 5.0], 3.0) == pytest.approx(2.0)
    assert water_level([2.0], 3.0) == pytest.approx(5.0)


def test_skew_is_the_busiest_node_over_the_mean() -> None:
    assert skew({1: 1.0, 2: 1.0, 3: 4.0}) == pytest.approx(2.0)
    assert skew({1: 0.0, 2: 0.0}) == 1.0


def test_the_busiest_node_shows_in_the_metrics() -> None:
    """B-26: node 2 gets 3 of 5, so 1.8 times a third; an average would say 1.67 for everybody."""
    show(Standing(prototype(3.0, 2.0)))
    seen = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in (NODE_LOAD, BUSIEST_LOAD, LOAD_SKEW)
        for family in metric.collect()
        for sample in family.samples
    }
    assert seen["headgate_node_load", "2", "default"] == pytest.approx(3.0)
    assert seen["headgate_node_load", "2", "node"] == pytest.approx(2.5)
    assert seen["headgate_busiest_node_load", "default"] == pytest.approx(3.0)
    assert seen["headgate_node_load_skew", "default"] == pytest.approx(1.8)


def test_a_node_of_twice_the_capacity_may_carry_twice_the_traffic() -> None:
    pressed = Pressure.of({1: 4.0, 2: 3.0}, {1: 2.0, 2: 1.0})
    assert pressed is not None
    # Fair shares of 7 are 14/3 and 7/3, so node 2 carries 9/7 of its own.
    assert (pressed.busiest, pressed.load) == (2, 3.0)
    assert pressed.skew == pytest.approx(9 / 7)
