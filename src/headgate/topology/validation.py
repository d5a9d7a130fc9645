"""What a cluster cannot be (B-3), named so that its author finds the place."""

import re
from collections import Counter
from collections.abc import Iterator

from headgate.topology.cluster import Partition, Topic, Topology

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Kafka's rule; `.` and `..` are none either."""


def problems(topology: Topology) -> list[str]:
    """Everything that is wrong; empty if the cluster can be used."""
    return list(_problems(topology))


def _problems(topology: Topology) -> Iterator[str]:
    known, online = {node.id for node in topology.nodes}, topology.online
    if not topology.nodes:
        yield "the cluster has no nodes"
    yield from (f"node {id} is listed {n} times" for id, n in Counter(n.id for n in topology.nodes).items() if n > 1)
    yield from (f"node {n.id}: capacity must be above 0, not {n.capacity:g}" for n in topology.nodes if n.capacity <= 0)
    names = Counter(topic.name for topic in topology.topics)
    yield from (f"topic {name} is listed {n} times" for name, n in names.items() if n > 1)
    for topic in topology.topics:
        if topic.name in (".", "..") or not _TOPIC_NAME.fullmatch(topic.name):
            yield f"topic {_listed(topic.name)}: names have 1 to 249 of the letters a-z, A-Z, 0-9, '.', '_' and '-'"
        yield from _of_topic(topic)
        for partition in topic.partitions:
            yield from (f"{topic.name}-{partition.index}: {what}" for what in _of_partition(partition, known, online))
    for group in topology.consumer_groups:
        yield from (f"consumer group {group.name}: topic {t} does not exist" for t in group.topics if t not in names)
        if group.members < 0:
            yield f"consumer group {group.name}: members must not be negative"


def _of_topic(topic: Topic) -> Iterator[str]:
    if not topic.partitions:
        yield f"topic {topic.name} has no partitions"
    if not 0 <= topic.rate < float("inf"):
        yield f"topic {topic.name}: rate must be a number from 0 up, not {topic.rate:g}"
    if topic.min_insync_replicas < 1:
        yield f"topic {topic.name}: min_insync_replicas must be at least 1"
    indexes = [partition.index for partition in topic.partitions]
    if indexes != list(range(len(indexes))):
        yield f"topic {topic.name}: partition ids must be 0 to {len(indexes) - 1}, each once, not {_listed(indexes)}"


def _of_partition(partition: Partition, known: set[int], online: frozenset[int]) -> Iterator[str]:
    replicas = set(partition.replicas)
    if not replicas:
        yield "no replicas"
    if len(replicas) < len(partition.replicas):
        yield f"a node may hold one replica only, not {_listed(partition.replicas)}"
    if unknown := replicas - known:
        yield f"replicas on unknown nodes {_listed(sorted(unknown))}"
    if len(replicas) > len(known):
        yield f"{len(replicas)} replicas need as many nodes; there are {len(known)}"
    if len(set(partition.isr)) < len(partition.isr):
        yield f"a node is in sync once, not {_listed(partition.isr)}"
    if strangers := set(partition.isr) - replicas:
        yield f"in-sync nodes {_listed(sorted(strangers))} hold no replica"
    leader = partition.leader
    if leader is not None and leader not in replicas:
        yield f"leader {leader} is none of its replicas {_listed(partition.replicas)}"
    elif leader is not None and leader in known and leader not in online:
        yield f"leader {leader} is offline: say null, or let `simulate` elect another one"
    elif leader is not None and leader not in partition.isr:
        yield f"leader {leader} is not in sync, only {_listed(partition.isr)} are: name one of those, or null"


def _listed(values: object) -> str:
    text = ", ".join(map(str, values)) if isinstance(values, list | tuple) else str(values)
    return f"[{text if len(text) < 80 else text[:77] + '...'}]"
