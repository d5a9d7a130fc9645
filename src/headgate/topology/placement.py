"""Replicas moved so that topics have nodes for themselves, or all the same ones (B-23)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headgate.topology.cluster import Node, Partition, Topic, Topology
from headgate.topology.groups import Group

FEW_SETS = 16
"""Up to this many, every number of node sets is tried; above, only some."""


@dataclass(frozen=True, slots=True)
class Seats:
    """Nodes for a set of topics."""

    topics: tuple[str, ...]
    leaders: tuple[int, ...]
    """Every topic leads on exactly these, so the topics form one group."""
    replicas: tuple[int, ...]
    """Followers may use these."""


def equal_seats(topology: Topology) -> list[Seats]:
    """Everybody everywhere, as far as the topic with the fewest partitions reaches."""
    topics = [topic for topic in topology.topics if topic.led_by()]
    nodes = tuple(sorted(topology.online))
    return [_seats(topics, nodes)] if topics and nodes else []


def separate_seats(topology: Topology, groups: Sequence[Group]) -> list[Seats]:
    """Node sets that do not meet, sized by traffic. Where nodes are too few for all groups, some groups share a set.

    Groups with like partition counts share, since a set can be led from no more nodes than its topics have partitions.
    As many sets as possible are made, unless fewer would leave the busiest node with less.
    """
    topics = {topic.name: topic for topic in topology.topics}
    nodes = [node for node in topology.nodes if node.online]
    copies = max((_most_replicas(topics[name]) for group in groups for name in group.topics), default=1)
    ordered = sorted(
        ([topics[name] for name in group.topics] for group in groups),
        key=lambda members: (min(map(_led, members)), members[0].name),
    )
    best: list[Seats] = []
    lowest = math.inf
    sets = min(len(groups), len(nodes) // max(1, copies))
    while sets > 0:
        dealt = _dealt(_chunks(ordered, sets), nodes)
        busiest = max(_pressure(seats, topics, topology) for seats in dealt)
        if busiest < lowest * (1 - 1e-9):
            best, lowest = dealt, busiest
        sets = sets * 3 // 4 if sets > FEW_SETS else sets - 1
    return best


def spread(topology: Topology) -> Topology:
    """Every topic by itself over as many nodes as it has partitions, heaviest first, onto the nodes with least traffic.

    Overlaps stay or arise; what becomes even is the load.
    """
    online, racks = tuple(sorted(topology.online)), topology.racks
    capacity = {node.id: node.capacity for node in topology.nodes}
    load, held = dict.fromkeys(capacity, 0.0), dict.fromkeys(capacity, 0)
    changed = []
    for topic in sorted(topology.topics, key=lambda topic: (-topic.rate, topic.name)):
        if led := _led(topic):
            keeps = topic.led_by()
            free = sorted(online, key=lambda id: (load[id] / capacity[id], -keeps.get(id, 0), id))
            place = Seats((topic.name,), tuple(free[:led]), online)
            changed.append(_topic_on(topic, place, load, held, racks))
    return topology.changed(changed)


def seated(topology: Topology, seats: Sequence[Seats]) -> Topology:
    """The cluster with these topics on these nodes, moving as little as that allows."""
    topics = {topic.name: topic for topic in topology.topics}
    load = dict.fromkeys((node.id for node in topology.nodes), 0.0)
    held, racks = dict.fromkeys((node.id for node in topology.nodes), 0), topology.racks
    return topology.changed(
        _topic_on(topics[name], place, load, held, racks)
        for place in seats
        for name in sorted(place.topics, key=lambda name: (-topics[name].rate, name))
    )


def _seats(topics: Sequence[Topic], nodes: tuple[int, ...]) -> Seats:
    fewest = min(map(_led, topics))
    return Seats(tuple(topic.name for topic in topics), nodes[:fewest], nodes)


def _chunks(ordered: Sequence[list[Topic]], sets: int) -> list[list[Topic]]:
    """Neighbouring groups put together into `sets` sets of about the same traffic, none empty."""
    total = sum(topic.rate for group in ordered for topic in group) or 1.0
    chunks: list[list[Topic]] = [[]]
    taken = 0.0
    for n, group in enumerate(ordered):
        left, open_sets = len(ordered) - n, sets - len(chunks)
        full = taken >= total * len(chunks) / sets * (1 - 1e-9)
        if chunks[-1] and open_sets and (full or left == open_sets):
            chunks.append([])
        chunks[-1].extend(group)
        taken += sum(topic.rate for topic in group)
    return chunks


def _dealt(chunks: Sequence[list[Topic]], nodes: Sequence[Node]) -> list[Seats]:
    """Nodes for each set: enough for its replicas, the rest by traffic; each takes those that hold most of it."""
    least = [max(map(_most_replicas, chunk)) for chunk in chunks]
    spare = len(nodes) - sum(least)
    rates = [sum(topic.rate for topic in chunk) for chunk in chunks]
    sizes = list(least)
    for _ in range(spare):
        neediest = max(range(len(chunks)), key=lambda n: (rates[n] / sizes[n], -n))
        sizes[neediest] += 1
    free, racks = {node.id for node in nodes}, {node.id: node.rack for node in nodes if node.rack}
    seats: dict[int, Seats] = {}
    for n in sorted(range(len(chunks)), key=lambda n: -rates[n]):
        held: dict[int, int] = {}
        for topic in chunks[n]:
            for partition in topic.partitions:
                for rank, id in enumerate(partition.replicas):
                    held[id] = held.get(id, 0) + (2 if rank == 0 else 1)
        chosen = _of_several_racks(sorted(free, key=lambda id: (-held.get(id, 0), id)), least[n], racks)[: sizes[n]]
        free.difference_update(chosen)
        seats[n] = _seats(chunks[n], tuple(chosen))
    return [seats[n] for n in range(len(chunks))]


def _of_several_racks(ordered: Sequence[int], copies: int, racks: Mapping[int, str]) -> list[int]:
    """The same nodes; but the first of up to so many racks come first, so that replicas find different ones."""
    first: dict[str, int] = {}
    for id in ordered:
        if id in racks and len(first) < copies:
            first.setdefault(racks[id], id)
    return sorted(ordered, key=lambda id: id not in first.values())


def _led(topic: Topic) -> int:
    """Partitions that can be moved: where nobody leads there is nothing to copy from."""
    return sum(partition.leader is not None for partition in topic.partitions)


def _most_replicas(topic: Topic) -> int:
    return max(len(partition.replicas) for partition in topic.partitions)


def _pressure(seats: Seats, topics: Mapping[str, Topic], topology: Topology) -> float:
    capacity = sum(node.capacity for node in topology.nodes if node.id in seats.leaders)
    return sum(topics[name].rate for name in seats.topics) / capacity


def _topic_on(
    topic: Topic, place: Seats, load: dict[int, float], held: dict[int, int], racks: Mapping[int, str]
) -> Topic:
    """Every leader node gets as many partitions as any other, or one more; who leads already goes first."""
    movable = [partition for partition in topic.partitions if partition.leader is not None]
    quota = dict.fromkeys(place.leaders, len(movable) // len(place.leaders))
    extra = len(movable) % len(place.leaders)
    share = topic.rate / len(movable)
    leaders: dict[int, int] = {}

    def seat(partition: Partition, candidates: Sequence[int]) -> None:
        nonlocal extra
        able = [id for id in candidates if quota.get(id, -1) > 0 or (quota.get(id) == 0 and extra)]
        if not able:
            return
        chosen = min(able, key=lambda id: (quota[id] == 0, load[id], id))
        if quota[chosen] == 0:
            extra -= 1
        quota[chosen] -= 1  # below zero: the one more that some nodes get
        leaders[partition.index] = chosen
        load[chosen] += share

    for wish in (lambda p: p.replicas[:1], lambda p: p.replicas, lambda p: place.leaders):
        for partition in movable:
            if partition.index not in leaders:
                seat(partition, wish(partition))
    nodes = frozenset(place.replicas)
    moved = {p.index: _partition_on(p, leaders[p.index], nodes, held, racks) for p in movable}
    return replace(topic, partitions=tuple(moved.get(p.index, p) for p in topic.partitions))


def _partition_on(
    partition: Partition, leader: int, nodes: frozenset[int], held: dict[int, int], racks: Mapping[int, str]
) -> Partition:
    """Followers stay where they are if they may, each in a rack of its own; others go to racks that have none of the
    partition yet, and there to the nodes with the fewest replicas. Where nodes are too few, because some are away, the
    replicas that are left over stay where they are, last in order: none is given up."""
    replicas = [leader]
    for id in partition.replicas:
        if id in nodes and id not in replicas and not in_a_rack_of(id, replicas, racks):
            replicas.append(id)
    del replicas[len(partition.replicas) :]
    stays = nodes.intersection(partition.replicas)
    while len(replicas) < len(partition.replicas) and (free := nodes.difference(replicas)):
        replicas.append(min(free, key=lambda id: (in_a_rack_of(id, replicas, racks), id not in stays, held[id], id)))
    in_sync = tuple(replicas)
    left_over = [id for id in partition.replicas if id not in replicas]
    replicas += left_over[: len(partition.replicas) - len(replicas)]
    for id in replicas:
        held[id] += 1
    return Partition(partition.index, leader, tuple(replicas), in_sync)


def in_a_rack_of(id: int, replicas: Sequence[int], racks: Mapping[int, str]) -> bool:
    """Whether one of these is in the node's rack; a node whose rack is not known is in nobody's."""
    return id in racks and any(racks.get(other) == racks[id] for other in replicas)
