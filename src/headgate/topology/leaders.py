"""Other leaders for the same replicas: evens a cluster out without copying a byte (B-23)."""

from dataclasses import replace

from headgate.topology.cluster import Partition, Topic, Topology

PASSES = 4


def with_better_leaders(topology: Topology) -> Topology:
    """Each topic's leaders as even as its replicas allow; among equals the node with the least traffic leads.

    Several passes, because the load that a topic sees depends on those after it. A leader stays where nothing is won.
    """
    online = topology.online
    capacity = {node.id: node.capacity for node in topology.nodes}
    load = dict.fromkeys(capacity, 0.0)
    chosen = {topic.name: [p.leader for p in topic.partitions] for topic in topology.topics}
    for topic in topology.topics:
        for leader in chosen[topic.name]:
            if leader is not None:
                load[leader] += topic.rate / len(topic.partitions)
    ordered = sorted(topology.topics, key=lambda topic: (-topic.rate, topic.name))
    for _ in range(PASSES):
        moved = [_improved(topic, chosen[topic.name], load, capacity, online) for topic in ordered]
        if not any(moved):
            break
    return topology.changed(_led(topic, chosen[topic.name]) for topic in topology.topics)


def _improved(
    topic: Topic,
    leaders: list[int | None],
    load: dict[int, float],
    capacity: dict[int, float],
    online: frozenset[int],
) -> bool:
    """Makes the best single move as long as one makes the topic, or else the nodes, more even; whether any did."""
    share, moved = topic.rate / len(topic.partitions), False
    counts = dict.fromkeys(online, 0)
    for leader in leaders:
        if leader is not None:
            counts[leader] += 1

    def gain(origin: int, to: int) -> tuple[float, float]:
        """How much more even topic and nodes get: what stays on one pile against what lies on the other."""
        won = (load[origin] - share) / capacity[origin] - load[to] / capacity[to]
        return counts[origin] - 1 - counts[to], won if won > 1e-9 * share else 0.0

    while True:
        moves = [
            (gain(leader, id), -id, partition.index, leader)
            for partition, leader in zip(topic.partitions, leaders, strict=True)
            if leader is not None
            for id in partition.isr
            if id in online and id != leader
        ]
        best = max(moves, default=None)
        if best is None or best[0] <= (0, 0.0):
            return moved
        _, negative, index, origin = best
        to = -negative
        counts[origin], counts[to] = counts[origin] - 1, counts[to] + 1
        load[origin], load[to] = load[origin] - share, load[to] + share
        leaders[index], moved = to, True


def _led(topic: Topic, leaders: list[int | None]) -> Topic:
    rows = zip(topic.partitions, leaders, strict=True)
    return replace(topic, partitions=tuple(_led_by(p, leader) for p, leader in rows))


def _led_by(partition: Partition, leader: int | None) -> Partition:
    """Its replica list begins with the leader, so that Kafka brings leadership back there after a failure."""
    if leader is None or leader == partition.leader:
        return partition  # if it leads away from home, that is for an election and not for a reassignment
    replicas = (leader, *(id for id in partition.replicas if id != leader))
    return replace(partition, leader=leader, replicas=replicas)
