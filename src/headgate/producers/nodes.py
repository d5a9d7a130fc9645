"""A cluster as seen by partitioners that balance nodes: every node, what it leads, and how much it was sent."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, cycle
from weakref import WeakKeyDictionary

from headgate.errors import ConfigError
from headgate.producers.leading import LastLeaders, NodeSet
from headgate.producers.protocol import ClusterView
from headgate.producers.round_robin import POSITIVE, Seed, from_turn


@dataclass(slots=True)
class Usage:
    """What partitioners count of a node; one object for ever, so that views of several producers share it."""

    value: float = 0.0
    """What it was sent."""
    on_the_way: deque[None] = field(default_factory=deque)
    """As long as what it was sent and has not acknowledged: adding and taking away are atomic, unlike += and -=."""
    latency_s: float | None = None
    """How long it took to acknowledge; None: not known, or not since it leads again."""
    heard: int = 0
    """How many acknowledgements of all nodes there had been at its last one."""


@dataclass(slots=True)
class NodeState:
    """One node. `led` maps a topic to the partitions led here and their own counter."""

    id: int
    usage: Usage
    led: dict[str, tuple[tuple[int, ...], "count[int]"]] = field(default_factory=dict)
    _rotations: dict[str, Iterator[int]] = field(default_factory=dict)

    def next_partition(self, topic: str) -> int:
        """Round robin within the node: its partitions go home after a recovery and must be equally full (B-31)."""
        partitions, counter = self.led[topic]
        return partitions[(next(counter) & POSITIVE) % len(partitions)]

    def gets_back(self, topic: str, partition: int) -> None:
        """The turn of this one, which is next again."""
        partitions, _ = self.led[topic]
        self.led[topic] = (partitions, count(partitions.index(partition)))

    def in_turn(self, topic: str) -> tuple[int, ...]:
        """Its partitions, the next one first."""
        partitions, counter = self.led[topic]
        return from_turn(partitions, next(counter))

    def rotation(self, topic: str) -> Iterator[int]:
        """The same without end; whoever asks for it gets the same one and goes on where the last one was."""
        known = self._rotations.get(topic)
        return known if known is not None else self._rotations.setdefault(topic, cycle(self.in_turn(topic)))


@dataclass(frozen=True, slots=True)
class Maps:
    """All that the hot path looks up, made when the topology changes and swapped as a whole (B-38)."""

    nodes_of: dict[str, tuple[NodeState, ...]]
    nodes: dict[int, NodeState]

    def leader(self, topic: str, partition: int) -> NodeState | None:
        """Who leads it, by looking at all that lead the topic: for what happens seldom."""
        led = self.nodes_of.get(topic, ())
        return next((node for node in led if partition in node.led[topic][0]), None)


class NodeMaps:
    """Maps of every view that an instance serves; counters survive changes of the topology."""

    def __init__(self, start: Seed, keep_usage: bool = False) -> None:
        """`keep_usage`: a node that comes back keeps the usage it had when it left, and does not start at that of the
        least used one (B-34)."""
        self._start, self._keep_usage = start, keep_usage
        self._maps: WeakKeyDictionary[ClusterView, Maps] = WeakKeyDictionary()
        self._last_leaders = LastLeaders()
        self._away: dict[str, frozenset[int]] = {}
        """By cluster, the nodes that some producer saw lead no more, and none has seen lead since."""
        self._usages: dict[str, dict[int, Usage]] = {}
        """By cluster, every node that was ever seen, since one that left may come back."""
        self._counters: dict[tuple[str, int, str], count[int]] = {}
        self._making = threading.Lock()
        self._last: tuple[ClusterView | None, Maps] = (None, Maps({}, {}))

    def of(self, cluster: ClusterView) -> Maps:
        """No look-up while the view stays the same."""
        view, maps = self._last
        if view is cluster:
            return maps
        known = self._maps.get(cluster)
        if known is None:
            with self._making:  # or two producers' first views would each count a node of both for themselves
                known = self._maps.get(cluster)
                if known is None:
                    known = self._maps[cluster] = self._made(cluster)
        self._last = (cluster, known)
        return known

    def _made(self, cluster: ClusterView) -> Maps:
        usages = self._let_in(cluster)
        nodes = {id: NodeState(id, usages[id]) for id in cluster.nodes}
        nodes_of = {}
        for topic, leaders in cluster.leaders.items():
            for id, partitions in leaders.items():
                key = (cluster.cluster, id, topic)
                nodes[id].led[topic] = (partitions, self._counters.setdefault(key, count(self._start())))
            nodes_of[topic] = tuple(nodes[id] for id in leaders)
        return Maps(nodes_of, nodes)

    def _let_in(self, cluster: ClusterView) -> dict[int, Usage]:
        """Nodes that begin to lead do so at the level of the least used of the others that lead here, if they are below
        (B-34). Producers that share an instance see different topics: what another one's nodes were sent stays."""
        name, leading, anywhere = cluster.cluster, cluster.leading, self._last_leaders.of(cluster.cluster)
        usages = self._usages.setdefault(name, {})
        change, away = self._last_leaders.follow(cluster), self._away.get(name, frozenset())
        begin = change.began | (leading & away)
        least, least_anywhere = least_of(usages, leading - begin), least_of(usages, anywhere - begin)
        for id in cluster.nodes:
            usage = usages.get(id)
            if usage is None:
                usages[id] = Usage(least if id in leading else least_anywhere)
            elif id in begin:
                usage.latency_s = None  # from before it was away, or because it was
                if not self._keep_usage:
                    usage.value = max(usage.value, least)
        self._away[name] = (away | change.ended) - leading
        return usages

    def everybody(self, cluster: str) -> tuple[dict[int, Usage], NodeSet]:
        """Of every node that was ever seen, and those that lead something for one of the producers."""
        with self._making:
            return dict(self._usages[cluster]), self._last_leaders.of(cluster) - self._away[cluster]


def least_of(usages: Mapping[int, Usage], nodes: Iterable[int]) -> float:
    return min((usages[id].value for id in nodes if id in usages), default=0.0)


def refuse_key(topic: str) -> ConfigError:
    return ConfigError(
        f"a record for {topic} has a key, and this partitioner balances nodes without looking at keys: records of one "
        "key would be spread over partitions, out of order, and compaction would keep several of them (B-39). Use "
        "default-rr, or allow_keys=True if neither matters"
    )
