"""Groups that share no leader now but would after failures (B-19), each with the smallest set of nodes that does it."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

from headgate.topology.cluster import Partition, Topic, Topology
from headgate.topology.failures import without
from headgate.topology.groups import Group, NodeSet
from headgate.topology.overlaps import Overlaps

MOST_PAIRS = 5_000


@dataclass(frozen=True, slots=True)
class Potential:
    first: Group
    second: Group
    shared_replicas: NodeSet
    witness: tuple[int, ...] | None
    """The smallest set of nodes whose failure makes the two overlap; None if no set of the size asked for does."""


@dataclass(frozen=True, slots=True)
class Potentials:
    found: tuple[Potential, ...]
    pairs_seen: int
    pairs: int
    """All pairs of groups there are."""
    most_failures: int = 0
    """Nodes that failed at most in what was tried."""

    @property
    def complete(self) -> bool:
        return self.pairs_seen == self.pairs


def potential_overlaps(
    topology: Topology,
    overlaps: Overlaps,
    most_failures: int = 2,
    most_pairs: int = MOST_PAIRS,
    seed: int = 0,
    unclean: bool = False,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Potentials:
    """Of all pairs of groups; where there are too many, or time runs out, of some, and it says of how many."""
    topics = {topic.name: topic for topic in topology.topics}
    groups = overlaps.groups()
    held = [_replica_nodes(topics[name] for name in group.topics) for group in groups]
    total = len(groups) * (len(groups) - 1) // 2
    seen, found = 0, []
    for a, b in _pairs(len(groups), total, most_pairs, seed):
        if out_of_time():
            break
        seen += 1
        first, second, shared = groups[a], groups[b], held[a] & held[b]
        if shared and first.nodes.isdisjoint(second.nodes):
            one, other = ([topics[name] for name in group.topics] for group in (first, second))
            pair = _Pair(one, other, topology.online, unclean)
            found.append(Potential(first, second, shared, pair.smallest(most_failures)))
    return Potentials(tuple(sorted(found, key=lambda p: (p.first.topics, p.second.topics))), seen, total, most_failures)


def _pairs(groups: int, total: int, most: int, seed: int) -> Iterator[tuple[int, int]]:
    if total <= most:
        everything = list(combinations(range(groups), 2))
        random.Random(seed).shuffle(everything)  # if time runs out, what was seen is a fair sample
        yield from everything
        return
    draw = random.Random(seed)
    seen: set[tuple[int, int]] = set()
    while len(seen) < most:
        a, b = sorted(draw.sample(range(groups), 2))
        if (a, b) not in seen:
            seen.add((a, b))
            yield a, b


def _replica_nodes(topics: Iterator[Topic]) -> NodeSet:
    return frozenset(id for topic in topics for partition in topic.partitions for id in partition.replicas)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The topics of two groups that share no leader."""

    first: Sequence[Topic]
    second: Sequence[Topic]
    online: NodeSet
    unclean: bool

    def smallest(self, most_failures: int) -> tuple[int, ...] | None:
        """A set that works must contain a candidate, so sizes are tried upwards from the smallest candidate's."""
        candidates = sorted(self._candidates(), key=lambda nodes: (len(nodes), sorted(nodes)))
        for size in range(1, most_failures + 1):
            for nodes in (candidate for candidate in candidates if len(candidate) == size):
                if self._overlap_after(nodes):
                    return tuple(sorted(nodes))
            smaller = [candidate for candidate in candidates if len(candidate) < size]
            if smaller:
                for chosen in combinations(sorted(self._relevant()), size):
                    nodes = frozenset(chosen)
                    if any(candidate <= nodes for candidate in smaller) and self._overlap_after(nodes):
                        return chosen
        return None

    def _candidates(self) -> set[NodeSet]:
        """Failures that put a leader of either group on one node: what must fail for each, together."""
        first, second = (_ways(topics, self.online, self.unclean) for topics in (self.first, self.second))
        return {a | b for node in first.keys() & second.keys() for a in first[node] for b in second[node]}

    def _relevant(self) -> NodeSet:
        topics = (*self.first, *self.second)
        return _replica_nodes(iter(topics)) & self.online

    def _overlap_after(self, gone: NodeSet) -> bool:
        one, other = (self._sets_after(topics, gone) for topics in (self.first, self.second))
        return any(a != b and not a.isdisjoint(b) for a in one for b in other)

    def _sets_after(self, topics: Sequence[Topic], gone: NodeSet) -> set[NodeSet]:
        live = self.online - gone
        return {frozenset(without(topic, gone, live, self.unclean).led_by()) for topic in topics}


def _ways(topics: Sequence[Topic], online: NodeSet, unclean: bool) -> dict[int, set[NodeSet]]:
    """By node: the smallest sets of failures that leave it leading one of these topics."""
    found: dict[int, set[NodeSet]] = {}
    for topic in topics:
        for partition in topic.partitions:
            for node in partition.replicas if unclean else partition.isr:
                if node in online and (needed := _needed(partition, node, online)) is not None:
                    found.setdefault(node, set()).add(needed)
    return {node: {way for way in ways if not any(other < way for other in ways)} for node, ways in found.items()}


def _needed(partition: Partition, node: int, online: NodeSet) -> NodeSet | None:
    """Who must fail for this node to lead: nobody if it does, else the leader and all in sync that come before it.
    If it is behind itself, everybody in sync, and all that come before it."""
    if partition.leader == node:
        return frozenset()
    if partition.leader is None:
        return None
    before = frozenset(islice(partition.replicas, partition.replicas.index(node)))
    first = before & frozenset(partition.isr) if node in partition.isr else before | frozenset(partition.isr)
    return frozenset((partition.leader,)) | (first & online)
