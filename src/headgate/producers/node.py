"""`node`: round robin over nodes, then over the partitions within the node (B-31)."""

from itertools import count, cycle

from headgate.producers.murmur2 import partition_of_key
from headgate.producers.nodes import NodeMaps, NodeState, refuse_key
from headgate.producers.protocol import Choice, ClusterView
from headgate.producers.round_robin import POSITIVE, DefaultRoundRobin, Seed, from_turn, random_start
from headgate.producers.turns import is_short, one_round


class NodeRoundRobin:
    """Per topic, nodes differ by at most one record, and so do the partitions of a node."""

    def __init__(self, allow_keys: bool = False, start: Seed = random_start) -> None:
        self.allow_keys, self._start = allow_keys, start
        self._maps = NodeMaps(start)
        self._counters: dict[str, dict[str, count[int]]] = {}
        self._offline = DefaultRoundRobin(start)

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        if key is not None and not self.allow_keys:
            raise refuse_key(topic)
        nodes = self._maps.of(cluster).nodes_of.get(topic)
        if not nodes:  # nobody leads it (B-35), or nobody knows it
            return self._offline.partition(topic, None, value, cluster)
        return nodes[(next(self._counter(topic, cluster)) & POSITIVE) % len(nodes)].next_partition(topic)

    def taken_back(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int, cluster: ClusterView
    ) -> None:
        maps = self._maps.of(cluster)
        node = maps.leader(topic, partition)
        if node is None:
            self._offline.taken_back(topic, None, value, partition, cluster)
            return
        self.counters_of(cluster)[topic] = count(maps.nodes_of[topic].index(node))
        self._back_within(node, topic, key, partition)

    def _back_within(self, node: NodeState, topic: str, key: bytes | None, partition: int) -> None:
        node.gets_back(topic, partition)

    def bound(self, topic: str, cluster: ClusterView) -> Choice:
        """A whole round written down, over and over, or one rotation after the other where that is very long: a choice
        runs no line of Python."""
        nodes = self._maps.of(cluster).nodes_of.get(topic)
        if not nodes:
            return self._offline.bound(topic, cluster)
        in_turn = from_turn(nodes, next(self._counter(topic, cluster)))
        if is_short([len(node.led[topic][0]) for node in in_turn]):
            return cycle(one_round([node.in_turn(topic) for node in in_turn])).__next__
        return map(next, cycle([node.rotation(topic) for node in in_turn])).__next__

    def _counter(self, topic: str, cluster: ClusterView) -> "count[int]":
        counters = self.counters_of(cluster)
        counter = counters.get(topic)
        return counter if counter is not None else counters.setdefault(topic, count(self._start()))

    def counters_of(self, cluster: ClusterView) -> dict[str, "count[int]"]:
        return self._counters.setdefault(cluster.cluster, {})


class NodeThenKey(NodeRoundRobin):
    """`node-key`: nodes take turns, and within the node the key's hash chooses (B-38). It needs `allow_keys`, for a key
    is still on every node, in one partition of each."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        nodes = self._maps.of(cluster).nodes_of.get(topic)
        if key is None or not self.allow_keys or not nodes:
            return super().partition(topic, key, value, cluster)
        node = nodes[(next(self._counter(topic, cluster)) & POSITIVE) % len(nodes)]
        led, _ = node.led[topic]
        return led[partition_of_key(key, len(led))]

    def _back_within(self, node: NodeState, topic: str, key: bytes | None, partition: int) -> None:
        if key is None:  # else it took no turn there
            super()._back_within(node, topic, key, partition)
