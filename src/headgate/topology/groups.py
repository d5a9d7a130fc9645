"""Groups of topics and how they overlap, exactly as published (B-5 to B-10): slow and obvious.

`overlaps` does the same with bit masks; property tests hold the two equal. `equal` and `meet` are handed in so that
tests can count what the algorithms look at (B-13).
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headgate.topology.cluster import Topology

NodeSet = frozenset[int]
Question = Callable[[NodeSet, NodeSet], bool]


@dataclass(frozen=True, slots=True)
class Group:
    """A max group (B-6): all topics whose leaders sit on exactly these nodes."""

    topics: tuple[str, ...]
    nodes: NodeSet

    def __str__(self) -> str:
        return "{" + ", ".join(self.topics) + "}"

    def short(self, most: int = 5) -> str:
        """The first topics, and how many there are."""
        if len(self.topics) <= most:
            return str(self)
        return "{" + ", ".join(self.topics[:most]) + f", … ({len(self.topics):,} topics)}}"


@dataclass(frozen=True, slots=True)
class Overlap:
    first: Group
    second: Group
    shared: NodeSet


@dataclass(frozen=True, slots=True)
class SharedNode:
    """A node that several max groups use."""

    node: int
    groups: tuple[Group, ...]
    more: int = 0
    """Groups beyond those that were asked for."""

    def __str__(self) -> str:
        named = [group.short() for group in self.groups]
        if self.more:
            return f"node {self.node}: {', '.join(named)} and {self.more:,} more groups"
        return f"node {self.node}: {', '.join(named[:-1])} and {named[-1]}"


def leader_sets(topology: Topology) -> dict[str, NodeSet]:
    """N(t) of every topic (B-4). From leaders only: replicas that follow carry no producer."""
    return {topic.name: frozenset(topic.led_by()) for topic in topology.topics}


def meet(a: NodeSet, b: NodeSet) -> bool:
    return not a.isdisjoint(b)


def is_group(nodes_of: Mapping[str, NodeSet], topics: Sequence[str]) -> bool:
    """B-5: a Node-Topic Group, all of whose members agree on their nodes."""
    return len({nodes_of[topic] for topic in topics}) <= 1


def get_max_groups(nodes_of: Mapping[str, NodeSet], equal: Question = operator.eq) -> list[Group]:
    """GETMAXGROUPS (B-7). Topics that nobody leads overlap with nothing; see `offline_topics`."""
    found: list[tuple[list[str], NodeSet]] = []
    for topic, nodes in nodes_of.items():
        if not nodes:
            continue
        for members, nodes_of_group in found:
            if equal(nodes_of_group, nodes):
                members.append(topic)
                break
        else:
            found.append(([topic], nodes))
    return [Group(tuple(members), nodes) for members, nodes in found]


def offline_topics(nodes_of: Mapping[str, NodeSet]) -> tuple[str, ...]:
    return tuple(topic for topic, nodes in nodes_of.items() if not nodes)


def dpo(groups: Sequence[Group], meet: Question = meet) -> list[Overlap]:
    """DPO (B-9): every pair of max groups that shares nodes, with the nodes."""
    return [
        Overlap(first, second, first.nodes & second.nodes)
        for i, first in enumerate(groups)
        for second in groups[i + 1 :]
        if meet(first.nodes, second.nodes)
    ]


def overlap_exists(groups: Sequence[Group], meet: Question = meet) -> bool:
    """DPO's yes or no (B-8, B-9): PARTIAL if true. It ends at the first pair."""
    return any(meet(first.nodes, second.nodes) for i, first in enumerate(groups) for second in groups[i + 1 :])


def dpo2(groups: Sequence[Group]) -> list[tuple[int, tuple[Group, ...]]]:
    """DPO2 (B-10): every node that more than one max group uses; never by way of pairs."""
    on_node: dict[int, list[Group]] = {}
    for group in groups:
        for node in group.nodes:
            on_node.setdefault(node, []).append(group)
    return [(node, tuple(users)) for node, users in sorted(on_node.items()) if len(users) > 1]
