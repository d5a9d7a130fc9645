"""What can be wrong with one topic, whatever the others do (B-15, B-17)."""

from enum import StrEnum

from headgate.topology.cluster import Topic
from headgate.topology.masks import Spread


class Lint(StrEnum):
    OFFLINE = "offline"
    """Some partition has no leader."""
    UNWRITABLE = "unwritable"
    """Fewer replicas in sync than min.insync.replicas: refused to producers that want all acknowledgements."""
    UNDER_REPLICATED = "under-replicated"
    """Some replica is not in sync."""
    NO_REPLICATION = "no-replication"
    """Some partition lives on one node only."""
    ONE_NODE = "one-node"
    """Several partitions, all led by one node: nothing is balanced."""
    UNEVEN = "uneven"
    """Some node leads more of its partitions than another."""
    CROWDED = "crowded"
    """More partitions than nodes that lead them."""


def lints_of(topic: Topic, spread: Spread) -> frozenset[Lint]:
    found = set()
    factor = required = topic.min_insync_replicas
    for number, partition in enumerate(topic.partitions):
        replicas, in_sync = len(partition.replicas), len(partition.isr)
        factor = replicas if number == 0 else min(factor, replicas)
        if partition.leader is None:
            found.add(Lint.OFFLINE)
        elif in_sync < required:
            found.add(Lint.UNWRITABLE)
        if in_sync < replicas:
            found.add(Lint.UNDER_REPLICATED)
    if factor == 1:
        found.add(Lint.NO_REPLICATION)
    if len(spread.counts) == 1 and len(topic.partitions) > 1:
        found.add(Lint.ONE_NODE)
    if spread.uneven:
        found.add(Lint.UNEVEN)
    if spread.counts and len(topic.partitions) > len(spread.counts):
        found.add(Lint.CROWDED)
    return frozenset(found)
