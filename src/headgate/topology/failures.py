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


def recovered(topology: Topology, nodes: Iterable[int]) -> Topology:
    """The cluster once these nodes are back, have caught up, and leadership went home to the first replicas."""
    back = frozenset(nodes)
    live = topology.online | back
    return topology.changed(
        topics=(
            replace(topic, partitions=tuple(_partition_with(p, back, live) for p in topic.partitions))
            for topic in topology.topics
            if _touches(topic, back)
        ),
        nodes=(replace(node, online=True) for node in topology.nodes if node.id in back),
    )


def _partition_with(partition: Partition, back: frozenset[int], live: frozenset[int]) -> Partition:
    if back.isdisjoint(partition.replicas):
        return partition
    isr = tuple(id for id in partition.replicas if id in back or (id in partition.isr and id in live))
    return replace(partition, leader=partition.replicas[0] if partition.replicas[0] in isr else isr[0], isr=isr)


def replaced(topology: Topology, node: int, spare: int) -> Topology:
    """B-22: the spare holds the failed node's replicas and leads what it led."""

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
