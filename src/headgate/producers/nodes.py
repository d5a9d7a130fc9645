"""A cluster as seen by partitioners that balance nodes: every node, what it leads, and how much it was sent."""

from dataclasses import dataclass, field
from itertools import count

from headgate.errors import ConfigError
from headgate.producers.protocol import ClusterView
from headgate.producers.round_robin import POSITIVE, Seed


@dataclass(slots=True)
class Usage:
    """How much a node has of what a partitioner counts; one object for as long as the node stays in the cluster."""

    value: float = 0.0


@dataclass(slots=True)
class NodeState:
    """One node. `led` maps a topic to the partitions led here and their own counter."""

    id: int
    usage: Usage
    led: dict[str, tuple[tuple[int, ...], "count[int]"]] = field(default_factory=dict)

    def next_partition(self, topic: str) -> int:
        """Round robin within the node: its partitions go home after a recovery and must be equally full (B-31)."""
        partitions, counter = self.led[topic]
        return partitions[(next(counter) & POSITIVE) % len(partitions)]


@dataclass(frozen=True, slots=True)
class Maps:
    """All that the hot path looks up, made when the topology changes and swapped as a whole (B-38)."""

    view: ClusterView
    nodes_of: dict[str, tuple[NodeState, ...]]
    nodes: dict[int, NodeState]


class NodeMaps:
    """Maps of every cluster that an instance serves; counters survive changes of the topology."""

    def __init__(self, start: Seed, keep_usage: bool = False, join_at_least: bool = True) -> None:
        """`keep_usage`: a node that comes back keeps the usage it had when it left. `join_at_least`: one that joins
        starts at the usage of the least used (B-34) and not at nothing."""
        self._start, self._keep_usage, self._join_at_least = start, keep_usage, join_at_least
        self._left: dict[tuple[str, int], float] = {}
        self._maps: dict[str, Maps] = {}
        self._counters: dict[tuple[str, int, str], count[int]] = {}
        self._last: Maps | None = None

    def of(self, cluster: ClusterView) -> Maps:
        """No look-up while the view stays the same."""
        last = self._last
        if last is not None and last.view is cluster:
            return last
        maps = self._maps.get(cluster.cluster)
        if maps is None or maps.view is not cluster:
            maps = self._followed(maps, cluster)
            self._maps[cluster.cluster] = maps
        self._last = maps
        return maps

    def _followed(self, before: Maps | None, cluster: ClusterView) -> Maps:
        old = before.nodes if before else {}
        least = min((old[id].usage.value for id in cluster.nodes if id in old), default=0.0)
        nodes = {
            id: NodeState(id, old[id].usage if id in old else Usage(self._joins_at(id, cluster, least)))
            for id in cluster.nodes
        }
        for id in old.keys() - nodes.keys():
            self._left[cluster.cluster, id] = old[id].usage.value
        nodes_of = {}
        for topic, leaders in cluster.leaders.items():
            for id, partitions in leaders.items():
                key = (cluster.cluster, id, topic)
                nodes[id].led[topic] = (partitions, self._counters.setdefault(key, count(self._start())))
            nodes_of[topic] = tuple(nodes[id] for id in leaders)
        return Maps(cluster, nodes_of, nodes)

    def _joins_at(self, id: int, cluster: ClusterView, least: float) -> float:
        if self._keep_usage and (cluster.cluster, id) in self._left:
            return self._left[cluster.cluster, id]
        return least if self._join_at_least else 0.0


def refuse_key(topic: str) -> ConfigError:
    return ConfigError(
        f"a record for {topic} has a key, and this partitioner balances nodes without looking at keys: records of one "
        "key would be spread over partitions, out of order, and compaction would keep several of them (B-39). Use "
        "default-rr, or allow_keys=True if neither matters"
    )
