"""`sqf`: the node that was sent least, over all topics of the instance, gets the next record (B-32 to B-36)."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from headgate.errors import ConfigError
from headgate.producers.leading import NodeSet
from headgate.producers.nodes import NodeMaps, Usage, least_of, refuse_key
from headgate.producers.protocol import Choice, ClusterView
from headgate.producers.round_robin import DefaultRoundRobin, Seed, random_start
from headgate.producers.turns import level_after

LIMIT = 2**31 - 1


class ShortestQueueFirst:
    """Producers that share an instance share the weights of nodes, and still write only to their own topics.

    Usage is what was sent, without what has left since: it levels totals. No lock is taken: two threads that count at
    the same instant may lose one record's weight, which moves the balance by that record.
    """

    def __init__(
        self,
        allow_keys: bool = False,
        count_bytes: bool = False,
        keep_usage: bool = False,
        limit: int = LIMIT,
        start: Seed = random_start,
    ) -> None:
        """`keep_usage`: a node that comes back keeps what it had instead of joining at the least used one's level."""
        if limit < 4:
            raise ConfigError(f"the limit of usage counters must be at least 4, not {limit}")
        self.allow_keys, self._count_bytes, self._limit = allow_keys, count_bytes, limit
        self._maps = NodeMaps(start, keep_usage)
        self._offline = DefaultRoundRobin(start)

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        if key is not None and not self.allow_keys:
            raise refuse_key(topic)
        nodes = self._maps.of(cluster).nodes_of.get(topic)
        if not nodes:
            return self._offline.partition(topic, None, value, cluster)
        chosen = nodes[0]
        for node in nodes:
            if node.usage.value < chosen.usage.value:
                chosen = node
        chosen.usage.value += self._weight(value)
        if chosen.usage.value >= self._limit:
            self._shrink(cluster.cluster)
        return chosen.next_partition(topic)

    def taken_back(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int, cluster: ClusterView
    ) -> None:
        node = self._maps.of(cluster).leader(topic, partition)
        if node is None:
            self._offline.taken_back(topic, None, value, partition, cluster)
            return
        node.usage.value = max(0.0, node.usage.value - self._weight(value))
        node.gets_back(topic, partition)

    def bound(self, topic: str, cluster: ClusterView) -> Choice | None:
        nodes = self._maps.of(cluster).nodes_of.get(topic)
        if not nodes:
            return self._offline.bound(topic, cluster)
        if self._count_bytes:
            return None
        name, limit = cluster.cluster, float(self._limit)  # a float and an int take longer to add and compare
        first, *others = [(node.usage, node.rotation(topic).__next__) for node in nodes]

        def choose() -> int:
            chosen, rotates = first
            least = chosen.value
            for usage, turns in others:
                if usage.value < least:
                    chosen, rotates, least = usage, turns, usage.value
            chosen.value += 1.0  # not least + 1: threads that ran since `least` was read have counted, too
            if chosen.value >= limit:
                self._shrink(name)
            return rotates()

        return choose

    def ahead(self, topic: str, cluster: ClusterView, records: int) -> list[int]:
        nodes = self._maps.of(cluster).nodes_of[topic]
        in_order = shortest_first([node.usage.value for node in nodes], records)
        for n, given in Counter(in_order).items():  # counted before adding: other threads count meanwhile
            nodes[n].usage.value += given
        if any(node.usage.value >= self._limit for node in nodes):
            self._shrink(cluster.cluster)
        turns = [node.rotation(topic) for node in nodes]
        return [next(turns[n]) for n in in_order]

    def _weight(self, value: bytes | None) -> int:
        return len(value or b"") if self._count_bytes else 1

    def _shrink(self, cluster: str) -> None:
        usages, leading = self._maps.everybody(cluster)
        shrink(usages, leading, self._limit)

    def usage(self, cluster: ClusterView) -> dict[int, float]:
        return {id: node.usage.value for id, node in self._maps.of(cluster).nodes.items()}


def shortest_first(usage: Sequence[float], records: int) -> list[int]:
    """The nodes that SQF gives the next records to. A node used u times takes turns u, u + 1, …; SQF takes the turns
    of all nodes in order, the first node first where they are equal. Once all have caught up, rounds repeat."""
    order = [n for _, n in sorted(turns_behind(usage, records))[:records]]
    level = max(usage)
    one_round = sorted(range(len(usage)), key=lambda n: (usage[n] + math.ceil(level - usage[n]), n))
    rounds = -(-(records - len(order)) // len(usage))
    return (order + one_round * rounds)[:records]


def turns_behind(usage: Sequence[float], records: int) -> list[tuple[float, int]]:
    """Turns until all nodes have caught up; but only those below the level that so many records reach, for no later
    one can be among them. So there are at most two for each node more than records, however far apart nodes are."""
    level = min(max(usage), math.floor(level_after(usage, records)) + 1.0)
    return [(used + turn, n) for n, used in enumerate(usage) for turn in range(math.ceil(level - used))]


def shrink(usages: Mapping[int, Usage], leading: NodeSet, limit: int) -> None:
    """B-33: numbers come down and keep their order, also those of nodes that are away: left where they were, such a
    node would get nothing for long when it is back. Nodes that lead nothing stay low and do not set the least."""
    everybody = list(usages.values())
    least = least_of(usages, leading)
    for usage in everybody:
        usage.value = max(0.0, usage.value - least)
    if max(usage.value for usage in everybody) >= limit / 2:
        for usage in everybody:
            usage.value /= 2
