"""Clusters that drive the set algorithms to their bounds, with closed forms for what they must find (B-12)."""

from collections.abc import Iterable, Sequence
from itertools import combinations

from headgate.topology.cluster import Node, Partition, Topic, Topology


def one_group(nodes: int, topics: int = 1) -> Topology:
    """Every topic is led by every node."""
    return _cluster(nodes, [tuple(range(1, nodes + 1))], topics)


def disjoint_groups(nodes: int, topics: int | None = None) -> Topology:
    """As many groups as nodes; none meets another."""
    return _cluster(nodes, [(node,) for node in range(1, nodes + 1)], topics or nodes)


def maximum_overlap(nodes: int, topics: int | None = None) -> Topology:
    """One group for every non-empty set of nodes."""
    ids = range(1, nodes + 1)
    sets = [chosen for size in ids for chosen in combinations(ids, size)]
    return _cluster(nodes, sets, topics or len(sets))


def groups_at_maximum_overlap(nodes: int) -> int:
    return (1 << nodes) - 1


def pairs_at_maximum_overlap(nodes: int) -> int:
    """All pairs of non-empty sets less the disjoint ones."""
    sets = groups_at_maximum_overlap(nodes)
    disjoint: int = 3**nodes - 2 ** (nodes + 1) + 1
    return (sets * (sets - 1) - disjoint) // 2


def _cluster(nodes: int, sets: Sequence[tuple[int, ...]], topics: int) -> Topology:
    """`topics` topics, dealt evenly to the node sets; one partition on each node of its set."""
    width = len(str(topics))
    return Topology.of(
        (Node(id) for id in range(1, nodes + 1)),
        (_topic(f"t{n:0{width}}", sets[n % len(sets)]) for n in range(topics)),
    )


def _topic(name: str, leaders: Iterable[int]) -> Topic:
    return Topic(name, tuple(Partition(index, leader, (leader,), (leader,)) for index, leader in enumerate(leaders)))
