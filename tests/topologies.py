"""Clusters for tests: written down in short, or drawn at random."""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from headgate.topology.cluster import Node, Partition, Topic, Topology

Rows = Mapping[str, Sequence[Sequence[int]]]
"""Topic → partitions → replicas; the first one leads."""


def topic(name: str, partitions: Sequence[Sequence[int]], rate: float = 1.0, min_insync_replicas: int = 1) -> Topic:
    rows = (Partition(n, replicas[0], tuple(replicas), tuple(replicas)) for n, replicas in enumerate(partitions))
    return Topic(name, tuple(rows), rate, min_insync_replicas)


def cluster(rows: Rows, nodes: int = 3, rates: Mapping[str, float] | None = None) -> Topology:
    return Topology.of(
        (Node(id) for id in range(1, nodes + 1)),
        (topic(name, partitions, (rates or {}).get(name, 1.0)) for name, partitions in rows.items()),
    )


@st.composite
def topics(draw: st.DrawFn, name: str, nodes: Sequence[int], away: frozenset[int] = frozenset()) -> Topic:
    def partition(index: int) -> Partition:
        replicas = draw(st.permutations(nodes))[: draw(st.integers(1, min(3, len(nodes))))]
        in_sync = tuple(id for id in replicas if id not in away and draw(st.integers(0, 4)))
        which = draw(st.integers(-1, len(in_sync) - 1))
        leader = in_sync[which] if which >= 0 else None
        return Partition(index, leader, tuple(replicas), in_sync)

    count = draw(st.integers(1, 5))
    rate = draw(st.integers(0, 8)) / 2
    return Topic(name, tuple(partition(n) for n in range(count)), rate, draw(st.integers(1, 2)))


@st.composite
def topologies(draw: st.DrawFn, most_nodes: int = 5, most_topics: int = 7) -> Topology:
    """Some nodes away, partitions out of sync or without a leader, leaders that are not the preferred ones."""
    nodes = range(1, draw(st.integers(1, most_nodes)) + 1)
    away = frozenset(id for id in nodes if draw(st.integers(0, 5)) == 5)
    names = [f"t{n}" for n in range(draw(st.integers(0, most_topics)))]
    return Topology.of((Node(id, id not in away) for id in nodes), [draw(topics(name, nodes, away)) for name in names])


@st.composite
def healthy_topologies(draw: st.DrawFn, most_nodes: int = 5, most_topics: int = 5) -> Topology:
    """Everybody in sync, the first replica leads."""
    nodes = range(1, draw(st.integers(2, most_nodes)) + 1)

    def rows() -> list[list[int]]:
        return [
            draw(st.permutations(nodes))[: draw(st.integers(1, min(3, len(nodes))))]
            for _ in range(draw(st.integers(1, 3)))
        ]

    names = [f"t{n}" for n in range(draw(st.integers(1, most_topics)))]
    return cluster({name: rows() for name in names}, len(nodes))
