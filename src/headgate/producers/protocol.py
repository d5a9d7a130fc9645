"""The one question a partitioner answers, and what it may know of the cluster (B-27)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from headgate.topology.cluster import Topology

Choice = Callable[[], int]
"""The next partition of one topic, each time it is called."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ClusterView:
    """Who leads what, laid out for producers. A change of the cluster is a new view, swapped as a whole (B-1)."""

    cluster: str
    """Which cluster, for partitioners that serve several."""
    partitions: dict[str, tuple[int, ...]]
    """All partitions of each topic."""
    available: dict[str, tuple[int, ...]]
    """Those with a live leader."""
    leaders: dict[str, dict[int, tuple[int, ...]]]
    """By topic, the nodes that lead it in the order of their ids, and the partitions each leads."""
    nodes: tuple[int, ...]
    """Live nodes."""

    @property
    def leading(self) -> frozenset[int]:
        """Nodes that lead anything. One that comes back leads nothing for a while, and so gets nothing."""
        return frozenset(node for leaders in self.leaders.values() for node in leaders)

    @classmethod
    def of(cls, topology: Topology, cluster: str = "") -> "ClusterView":
        partitions, available, leaders = {}, {}, {}
        for topic in topology.topics:
            led: dict[int, list[int]] = {}
            for partition in topic.partitions:
                if partition.leader is not None:
                    led.setdefault(partition.leader, []).append(partition.index)
            partitions[topic.name] = tuple(p.index for p in topic.partitions)
            available[topic.name] = tuple(p.index for p in topic.partitions if p.leader is not None)
            leaders[topic.name] = {node: tuple(led[node]) for node in sorted(led)}
        return cls(cluster, partitions, available, leaders, tuple(sorted(topology.online)))


class Partitioner(Protocol):
    """One instance may serve several producers at once, from several threads."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int: ...


@runtime_checkable
class Bindable(Partitioner, Protocol):
    """A partitioner that can look up all there is to a topic beforehand, once for every view (B-38)."""

    def bound(self, topic: str, cluster: ClusterView) -> Choice | None:
        """For records without a key, what `partition` would choose. None: the record itself must be seen."""
        ...


@runtime_checkable
class Foreseeing(Bindable, Protocol):
    """A bindable partitioner that is faster with many records at once."""

    def ahead(self, topic: str, cluster: ClusterView, records: int) -> list[int]:
        """What its bound choice would answer so many times in a row; for topics that have one and are led."""
        ...


@runtime_checkable
class Listening(Partitioner, Protocol):
    """A partitioner that learns from acknowledgements (B-40)."""

    def acknowledged(self, topic: str, partition: int, latency_s: float | None, cluster: ClusterView) -> None:
        """The record was written; or given up, then there is no latency."""
        ...


@runtime_checkable
class Forgiving(Partitioner, Protocol):
    """A partitioner that can forget a record which found no room. Otherwise a producer whose queue is full every other
    time would, with two nodes, send everything to one of them."""

    def taken_back(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int, cluster: ClusterView
    ) -> None:
        """As if `partition`, which answered with this one for this record, had not been asked."""
        ...


@runtime_checkable
class KeyBlind(Partitioner, Protocol):
    """A partitioner that does not look at keys, and refuses records with one unless it is allowed to (B-39)."""

    allow_keys: bool
