"""Nodes fail and come back: who leads what then (B-20)."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from headgate.topology.cluster import Partition, Topic, Topology


def failed(topology: Topology, nodes: Iterable[int], unclean: bool = False) -> Topology:
    """The cluster once these nodes are gone and new leaders are elected.

    `unclean`: where no replica in sync is left, one that is behind may lead, and records are lost.
    """
    gone = frozenset(nodes)
    live = topology.online - gone
    return topology.changed(
        topics=(without(topic, gone, live, unclean) for topic in topology.topics if _touches(topic, gone)),
        nodes=(replace(node, online=False) for node in topology.nodes if node.id in gone),
    )


def without(topic: Topic, gone: frozenset[int], live: frozenset[int], unclean: bool = False) -> Topic:
    """The topic as it is once these nodes are gone and `live` ones are left."""
    partitions = [
        p if gone.isdisjoint(p.replicas) else _partition_without(p, gone, live, unclean) for p in topic.partitions
    ]
    return replace(topic, partitions=tuple(partitions))


def elected(partition: Partition, live: frozenset[int], unclean: bool = False) -> int | None:
    """Who leads when the leader is gone: the first live replica in sync, in the order of the replica list."""
    for id in partition.replicas:
        if id in live and id in partition.isr:
            return id
    return next((id for id in partition.replicas if id in live), None) if unclean else None


def _partition_without(partition: Partition, gone: frozenset[int], live: frozenset[int], unclean: bool) -> Partition:
    # With nobody left in sync Kafka remembers the last ones, who alone may lead without loss once they are back.
    isr = tuple(id for id in partition.isr if id in live) or partition.isr
    leader = partition.leader
    if leader in gone:
        leader = elected(partition, live, unclean)
        if leader is not None and leader not in isr:
            isr = (leader,)
    return Partition(partition.index, leader, partition.replicas, isr)


def returned(topology: Topology, nodes: Iterable[int]) -> Topology:
    """The cluster once these nodes are back and have caught up. They lead only what nobody could lead without them."""
    back = frozenset(nodes)
    live = topology.online | back
    return topology.changed(
        topics=(with_back(topic, back, live) for topic in topology.topics if _touches(topic, back)),
        nodes=(replace(node, online=True) for node in topology.nodes if node.id in back),
    )


def recovered(topology: Topology, nodes: Iterable[int]) -> Topology:
    """The same, and leadership of what they hold went home to the first replicas, as far as those are in sync."""
    back = frozenset(nodes)
    there = returned(topology, back)
    return replace(there, topics=tuple(at_home(topic) if _touches(topic, back) else topic for topic in there.topics))


def with_back(topic: Topic, back: frozenset[int], live: frozenset[int]) -> Topic:
    """The topic as it is once these nodes are back and in sync, and `live` ones are there in all."""
    return replace(topic, partitions=tuple(_partition_with(p, back, live) for p in topic.partitions))


def _partition_with(partition: Partition, back: frozenset[int], live: frozenset[int]) -> Partition:
    if back.isdisjoint(partition.replicas):
        return partition
    leader = partition.leader if partition.leader is not None else elected(partition, live)
    if leader is None:
        return partition  # those who were in sync last are still away, and nobody else may lead without loss
    isr = tuple(id for id in partition.replicas if id in back or (id in partition.isr and id in live))
    return replace(partition, leader=leader, isr=isr)


def at_home(topic: Topic) -> Topic:
    """After an election of the preferred leaders."""
    return replace(topic, partitions=tuple(_partition_at_home(p) for p in topic.partitions))


def _partition_at_home(partition: Partition) -> Partition:
    home = partition.replicas[0]
    return replace(partition, leader=home) if partition.leader is not None and home in partition.isr else partition


def replaced(topology: Topology, node: int, spare: int) -> Topology:
    """B-22: the spare holds the failed node's replicas and leads what it led. `Failures.spare` tells the same without
    looking at the whole cluster."""

    def seat(id: int) -> int:
        return spare if id == node else id

    def seated(topic: Topic) -> Iterator[Partition]:
        for p in topic.partitions:
            leader = None if p.leader is None else seat(p.leader)
            yield replace(p, leader=leader, replicas=tuple(map(seat, p.replicas)), isr=tuple(map(seat, p.isr)))

    return topology.changed(
        topics=(
            replace(topic, partitions=tuple(seated(topic)))
            for topic in topology.topics
            if _touches(topic, frozenset((node,)))
        ),
        nodes=(replace(n, online=False) for n in topology.nodes if n.id == node),
    )


def _touches(topic: Topic, nodes: frozenset[int]) -> bool:
    return any(not nodes.isdisjoint(partition.replicas) for partition in topic.partitions)
