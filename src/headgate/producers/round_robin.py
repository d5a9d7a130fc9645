"""Round robin over partitions: Kafka's former default, and the same with fewer look-ups (B-28, B-29, B-30)."""

import random
import threading
from collections.abc import Callable
from itertools import count, cycle
from typing import TypeVar

from headgate.errors import ConfigError
from headgate.producers.murmur2 import partition_of_key
from headgate.producers.protocol import Choice, ClusterView

POSITIVE = 0x7FFFFFFF

Seed = Callable[[], int]
Member = TypeVar("Member")


def random_start() -> int:
    """So that producers which start together do not all begin at the same partition."""
    return random.getrandbits(32)


def unknown(topic: str) -> ConfigError:
    return ConfigError(f"topic {topic} is not in the partitioner's view of the cluster: create it, or refresh the view")


def from_turn(members: tuple[Member, ...], turn: int) -> tuple[Member, ...]:
    """Round robin's order when `turn` is next."""
    first = (turn & POSITIVE) % len(members)
    return members[first:] + members[:first]


class DefaultRoundRobin:
    """`default-rr`: partitions differ by at most one record while the cluster is stable.

    Counters are Python's own `count`: taking the next number is one atomic step, and `setdefault` lets the first of
    two racing producers win and the other adopt its counter.
    """

    def __init__(self, start: Seed = random_start) -> None:
        self._start = start
        self._counters: dict[str, dict[str, count[int]]] = {}

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        try:
            partitions = cluster.partitions[topic]
        except KeyError:
            raise unknown(topic) from None
        if key is not None:
            return partition_of_key(key, len(partitions))
        number = next(self._counter(topic, cluster)) & POSITIVE
        available = cluster.available[topic]
        if available:
            return available[number % len(available)]
        return partitions[number % len(partitions)]

    def taken_back(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int, cluster: ClusterView
    ) -> None:
        turns = cluster.available.get(topic) or cluster.partitions.get(topic, ())
        if key is None and partition in turns:
            self.counters_of(cluster)[topic] = count(turns.index(partition))

    def bound(self, topic: str, cluster: ClusterView) -> Choice:
        if topic not in cluster.partitions:
            raise unknown(topic)
        partitions = cluster.available[topic] or cluster.partitions[topic]
        return cycle(from_turn(partitions, next(self._counter(topic, cluster)))).__next__

    def _counter(self, topic: str, cluster: ClusterView) -> "count[int]":
        counters = self.counters_of(cluster)
        counter = counters.get(topic)
        return counter if counter is not None else counters.setdefault(topic, count(self._start()))

    def counters_of(self, cluster: ClusterView) -> dict[str, "count[int]"]:
        return self._counters.setdefault(cluster.cluster, {})


class Improved:
    """`improved`: the same choices; the list of all partitions is looked up only for a key or when nothing is led."""

    def __init__(self, start: Seed = random_start) -> None:
        self._start = start
        self._counters: dict[str, dict[str, count[int]]] = {}
        self._lock = threading.Lock()

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        if key is not None:
            return partition_of_key(key, len(self._all(topic, cluster)))
        counters = self.counters_of(cluster)
        counter = counters.get(topic)
        if counter is None:
            counter = self._made(topic, counters)
        available = cluster.available.get(topic)
        if available:
            return available[(next(counter) & POSITIVE) % len(available)]
        partitions = self._all(topic, cluster)
        return partitions[(next(counter) & POSITIVE) % len(partitions)]

    def bound(self, topic: str, cluster: ClusterView) -> Choice:
        counters = self.counters_of(cluster)
        counter = counters.get(topic) or self._made(topic, counters)
        partitions = cluster.available.get(topic) or self._all(topic, cluster)
        return cycle(from_turn(partitions, next(counter))).__next__

    def _made(self, topic: str, counters: dict[str, "count[int]"]) -> "count[int]":
        with self._lock:
            if topic not in counters:  # another producer may have been faster
                counters[topic] = count(self._start())
            return counters[topic]

    def counters_of(self, cluster: ClusterView) -> dict[str, "count[int]"]:
        return self._counters.setdefault(cluster.cluster, {})

    @staticmethod
    def _all(topic: str, cluster: ClusterView) -> tuple[int, ...]:
        try:
            return cluster.partitions[topic]
        except KeyError:
            raise unknown(topic) from None
