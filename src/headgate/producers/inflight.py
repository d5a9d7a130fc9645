"""Partitioners that learn from acknowledgements which nodes are slow (B-40, B-47)."""

import math
import random
from collections import deque
from collections.abc import Sequence

from headgate.errors import ConfigError
from headgate.producers.nodes import NodeMaps, NodeState, Usage, refuse_key
from headgate.producers.protocol import ClusterView
from headgate.producers.round_robin import DefaultRoundRobin, Seed, random_start


class SqfInflight:
    """`sqf-inflight`: the node with the fewest records on their way gets the next one."""

    def __init__(self, allow_keys: bool = False, start: Seed = random_start) -> None:
        self.allow_keys = allow_keys
        self._maps = NodeMaps(start)
        self._offline = DefaultRoundRobin(start)
        self._sent: dict[tuple[str, str, int], deque[NodeState]] = {}
        """By cluster and partition, who got each record that is on its way; acknowledgements come in the same order."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        if key is not None and not self.allow_keys:
            raise refuse_key(topic)
        nodes = self._maps.of(cluster).nodes_of.get(topic)
        if not nodes:
            return self._offline.partition(topic, None, value, cluster)
        node = self._chosen(nodes)
        node.usage.on_the_way.append(None)
        partition = node.next_partition(topic)
        at = (cluster.cluster, topic, partition)
        waiting = self._sent.get(at)
        if waiting is None:
            waiting = self._sent.setdefault(at, deque())
        waiting.append(node)
        return partition

    def taken_back(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int, cluster: ClusterView
    ) -> None:
        waiting = self._sent.get((cluster.cluster, topic, partition))
        if not waiting:
            self._offline.taken_back(topic, None, value, partition, cluster)
            return
        waiting.pop().usage.on_the_way.pop()
        leader = self._maps.of(cluster).leader(topic, partition)
        if leader is not None:
            leader.gets_back(topic, partition)

    def acknowledged(self, topic: str, partition: int, latency_s: float | None, cluster: ClusterView) -> None:
        waiting = self._sent.get((cluster.cluster, topic, partition))
        if waiting:  # what was sent while nobody led the topic was not counted
            node = waiting.popleft()
            node.usage.on_the_way.pop()
            if latency_s is not None:
                self._learned(node.usage, latency_s)

    def _chosen(self, nodes: Sequence[NodeState]) -> NodeState:
        return min(nodes, key=lambda node: len(node.usage.on_the_way))

    def _learned(self, usage: Usage, latency_s: float) -> None:
        pass


class JoinShortestOf(SqfInflight):
    """`jsq`: of d nodes drawn at random, the one with the fewest records on their way (B-47)."""

    def __init__(
        self, d: int = 2, allow_keys: bool = False, start: Seed = random_start, seed: int | None = None
    ) -> None:
        if d < 1:
            raise ConfigError(f"jsq looks at d nodes, at least 1, not {d}")
        super().__init__(allow_keys, start)
        self._d, self._random = d, random.Random(seed)

    def _chosen(self, nodes: Sequence[NodeState]) -> NodeState:
        return min(self._random.sample(nodes, min(self._d, len(nodes))), key=lambda node: len(node.usage.on_the_way))


class LatencyWeighted(SqfInflight):
    """`latency-weighted`: records on their way count by how long the node takes for one.

    A node that looks slow gets few records or none, so nothing would ever show that it is well again. Therefore a
    latency is trusted less the longer ago it was heard, and a node of which too little is known counts as faster than
    all others: it is tried, and one answer then tells. Age is counted in acknowledgements and not in seconds, so that
    trying takes a small share of the records at any rate.
    """

    def __init__(
        self, half_life: int = 100, forget_after: int = 1_000, allow_keys: bool = False, start: Seed = random_start
    ) -> None:
        """`half_life`: acknowledgements of a node after which its old latency counts half; `forget_after`:
        acknowledgements of others after which it does."""
        if half_life < 1 or forget_after < 1:
            raise ConfigError(
                f"half_life and forget_after must be at least 1 acknowledgement, not {half_life} and {forget_after}"
            )
        super().__init__(allow_keys, start)
        self._kept, self._forget_after = 0.5 ** (1 / half_life), forget_after
        self._answers = 0

    def _chosen(self, nodes: Sequence[NodeState]) -> NodeState:
        """As `defined_choice`, without a call for every node: less than half of the time."""
        fastest_s = math.inf
        for node in nodes:
            latency_s = node.usage.latency_s
            if latency_s is not None and latency_s < fastest_s:
                fastest_s = latency_s
        guess_s = 0.5 if fastest_s == math.inf else fastest_s / 2
        answers, forget_after = self._answers, self._forget_after
        chosen, least_s = nodes[0], math.inf
        for node in nodes:
            usage, expected_s = node.usage, guess_s
            latency_s = usage.latency_s  # read once: another thread may forget it meanwhile
            if latency_s is not None:
                expected_s += 0.5 ** ((answers - usage.heard) / forget_after) * (latency_s - guess_s)
            to_do_s = (len(usage.on_the_way) + 1) * expected_s
            if to_do_s < least_s:
                chosen, least_s = node, to_do_s
        return chosen

    def defined_choice(self, nodes: Sequence[NodeState]) -> NodeState:
        known = [node.usage.latency_s for node in nodes if node.usage.latency_s is not None]
        guess_s = min(known, default=1.0) / 2
        return min(nodes, key=lambda node: (len(node.usage.on_the_way) + 1) * self._expected_s(node.usage, guess_s))

    def _expected_s(self, usage: Usage, guess_s: float) -> float:
        latency_s = usage.latency_s
        return guess_s if latency_s is None else guess_s + self._trust(usage) * (latency_s - guess_s)

    def _trust(self, usage: Usage) -> float:
        return float(0.5 ** ((self._answers - usage.heard) / self._forget_after))

    def _learned(self, usage: Usage, latency_s: float) -> None:
        before_s = usage.latency_s
        differs_s = 0.0 if before_s is None else before_s - latency_s
        usage.latency_s = latency_s + self._kept * self._trust(usage) * differs_s
        self._answers += 1
        usage.heard = self._answers
