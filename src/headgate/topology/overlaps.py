"""Groups and overlaps on bit masks, kept up to date topic by topic (B-7, B-9, B-10, B-21)."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import nlargest, nsmallest
from itertools import combinations, islice

from headgate.topology.cluster import Topology
from headgate.topology.groups import Group, NodeSet, Overlap, SharedNode
from headgate.topology.masks import NodeBits, Spread, positions, spreads_of


class Overlaps:
    """Mask buckets and, per node, the buckets that use it. A change of one topic touches only its own nodes.

    A max group and its mask are the same thing said twice, so groups are kept by mask. Results are ordered by each
    group's first topic: the same whether they were reached in one go or by changes.
    """

    def __init__(self, bits: NodeBits, spreads: Iterable[Spread] = ()) -> None:
        self.bits = bits
        self._ids = frozenset(bits.ids)
        self._topics_of: dict[int, set[str]] = {}
        self._masks_on: list[set[int]] = [set() for _ in bits.ids]
        self._shared_nodes = 0
        self._offline: set[str] = set()
        for spread in spreads:
            self.add(spread.topic, spread.mask)

    @classmethod
    def of(cls, topology: Topology) -> "Overlaps":
        bits = NodeBits.of(topology)
        return cls(bits, spreads_of(topology, bits).values())

    def add(self, topic: str, mask: int) -> None:
        if not mask:
            self._offline.add(topic)
        elif mask in self._topics_of:
            self._topics_of[mask].add(topic)
        else:
            self._topics_of[mask] = {topic}
            for position in positions(mask):
                users = self._masks_on[position]
                users.add(mask)
                self._shared_nodes += len(users) == 2

    def remove(self, topic: str, mask: int) -> None:
        if not mask:
            self._offline.remove(topic)
            return
        members = self._topics_of[mask]
        members.remove(topic)
        if not members:
            del self._topics_of[mask]
            for position in positions(mask):
                users = self._masks_on[position]
                users.remove(mask)
                self._shared_nodes -= len(users) == 1

    def move(self, topic: str, old: int, new: int) -> None:
        """B-21: the topic's leaders now sit on other nodes."""
        if old != new:
            self.remove(topic, old)
            self.add(topic, new)

    @contextmanager
    def moved(self, moves: Sequence[tuple[str, int, int]]) -> Iterator[None]:
        """As if these topics sat elsewhere, for as long as the block lasts."""
        for topic, old, new in moves:
            self.move(topic, old, new)
        try:
            yield
        finally:
            for topic, old, new in moves:
                self.move(topic, new, old)

    @property
    def partial(self) -> bool:
        """B-8: some two distinct max groups share a node."""
        return self._shared_nodes > 0

    @property
    def count(self) -> int:
        """How many max groups there are."""
        return len(self._topics_of)

    @property
    def shared_count(self) -> int:
        """How many nodes more than one max group uses."""
        return self._shared_nodes

    @property
    def offline(self) -> tuple[str, ...]:
        return tuple(sorted(self._offline))

    def group(self, mask: int) -> Group:
        return Group(tuple(sorted(self._topics_of[mask])), self.bits.nodes(mask))

    def groups(self) -> list[Group]:
        return sorted(map(self.group, self._topics_of), key=lambda group: group.topics)

    def pairs(self, at_most: int | None = None) -> list[Overlap]:
        """DPO's triples. There may be as many as half the square of the groups: ask for no more than you can read."""
        ordered = sorted((min(topics), mask) for mask, topics in self._topics_of.items())
        return [
            Overlap(self.group(a), self.group(b), self.bits.nodes(a & b)) for a, b in islice(_meeting(ordered), at_most)
        ]

    def between(self, first: NodeSet, second: NodeSet) -> Overlap | None:
        """Of the groups on these two node sets, if there are such groups and they meet."""
        if not self._ids.issuperset(first | second):
            return None
        masks = self.bits.mask(first), self.bits.mask(second)
        if not masks[0] & masks[1] or not all(mask in self._topics_of for mask in masks):
            return None
        one, other = sorted(map(self.group, masks), key=lambda group: group.topics)
        return Overlap(one, other, first & second)

    def shared(self) -> list[tuple[int, tuple[Group, ...]]]:
        """DPO2: every node that more than one max group uses."""
        found = {mask: self.group(mask) for users in self._masks_on if len(users) > 1 for mask in users}
        return [
            (id, tuple(sorted((found[mask] for mask in users), key=lambda group: group.topics)))
            for id, users in zip(self.bits.ids, self._masks_on, strict=True)
            if len(users) > 1
        ]

    def most_shared(self, most_nodes: int, most_groups: int) -> tuple[SharedNode, ...]:
        """The same, of the nodes that most groups use, and only so many groups of each: for people to read."""
        busiest = nlargest(most_nodes, ((len(users), -n) for n, users in enumerate(self._masks_on) if len(users) > 1))
        return tuple(self._shared_node(-position, most_groups) for _, position in busiest)

    def _shared_node(self, position: int, most_groups: int) -> SharedNode:
        users = self._masks_on[position]
        first = nsmallest(most_groups, users, key=lambda mask: min(self._topics_of[mask]))
        return SharedNode(self.bits.ids[position], tuple(map(self.group, first)), len(users) - len(first))

    @property
    def sharing_count(self) -> int:
        """How many max groups share a node with another one."""
        return len({mask for users in self._masks_on if len(users) > 1 for mask in users})

    def groups_per_node(self) -> dict[int, int]:
        return {id: len(users) for id, users in zip(self.bits.ids, self._masks_on, strict=True)}


def _meeting(ordered: list[tuple[str, int]]) -> Iterator[tuple[int, int]]:
    return ((a, b) for (_, a), (_, b) in combinations(ordered, 2) if a & b)
