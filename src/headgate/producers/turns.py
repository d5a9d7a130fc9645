"""Whose turn it is, written down beforehand: for writers that see a table of partitions and not a partitioner."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.producers.protocol import ClusterView

MOST_TURNS = 10_000
SHARES = 1_000
"""How many turns describe shares of nodes that are not equal."""


@dataclass(frozen=True, slots=True)
class Turns:
    """For one topic: `first` over and over for so many `rows` of all tasks together, then `rounds` over and over."""

    rounds: tuple[int, ...]
    first: tuple[int, ...] = ()
    rows: int = 0

    def first_rows(self, task: int, tasks: int | None) -> int:
        """How many of the `rows` are this task's; with None nobody knows how many tasks there will be. Then early tasks
        get more, 1/2, 1/6, 1/12 and so on, which is never more than all, however many there are."""
        if tasks is None:
            return self.rows // ((task + 1) * (task + 2))
        return self.rows // tasks + (task < self.rows % tasks)


class NodeTurns:
    """`node`: round robin over nodes, then within the node (B-31)."""

    def counted(self, topics: Sequence[str]) -> frozenset[str]:
        return frozenset()

    def seen(self, view: ClusterView, ends: Mapping[tuple[str, int], int]) -> None:
        pass

    def turns(self, topic: str, view: ClusterView) -> Turns:
        return Turns(rounds(topic, view))


class SqfTurns:
    """`sqf`: nodes that were sent least, over all topics of those who share this object, come first (B-32).

    What was sent is the growth of the topics' ends: what the nodes really got, from whomever. As many rows as the topic
    got since its last write are poured over the nodes that lead it; rows beyond that are for all of them alike.
    """

    def __init__(self) -> None:
        self._topics: frozenset[str] = frozenset()
        self._usage: dict[int, float] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._leading: frozenset[int] = frozenset()
        self._rows: dict[str, int] = {}
        """By topic, since its last write."""

    def counted(self, topics: Sequence[str]) -> frozenset[str]:
        """All topics whose ends it must see before it can tell the turns of these."""
        self._topics |= set(topics)
        return self._topics

    def seen(self, view: ClusterView, ends: Mapping[tuple[str, int], int]) -> None:
        for at, end in ends.items():
            grown = max(0, end - self._ends.get(at, end))
            self._rows[at[0]] = self._rows.get(at[0], 0) + grown
            if at in self._leaders:
                self._usage[self._leaders[at]] += grown
        self._ends |= ends
        leading = view.leading
        least = min((self._usage[id] for id in leading & self._leading), default=0.0)
        self._usage |= dict.fromkeys(leading - self._leading, least)  # B-34
        self._leading = leading
        for topic, leaders in view.leaders.items():
            self._leaders |= {(topic, index): id for id, led in leaders.items() for index in led}

    def turns(self, topic: str, view: ClusterView) -> Turns:
        """For one write; the next one asks again."""
        leaders, rows = view.leaders[topic], self._rows.pop(topic, 0)
        if not leaders or not rows:
            return Turns(rounds(topic, view))
        shares = poured([self._usage[id] for id in leaders], rows)
        return Turns(rounds(topic, view), spread(shares, list(leaders.values())), rows)


def rounds(topic: str, view: ClusterView) -> tuple[int, ...]:
    """Of the nodes that lead it; nobody leads: all partitions (B-35)."""
    return one_round(list(view.leaders[topic].values())) or view.partitions[topic]


def is_short(led: Sequence[int]) -> bool:
    """Whether a round in which all partitions of a node get the same is short enough to be written down."""
    return math.lcm(*led) * len(led) <= MOST_TURNS


def one_round(led: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """As many turns of every node as give all partitions of a node the same, or nearly if that takes very many."""
    turns_each = min(math.lcm(*map(len, led)), max(1, MOST_TURNS // max(1, len(led))))
    return tuple(partitions[turn % len(partitions)] for turn in range(turns_each) for partitions in led)


def poured(usage: Sequence[float], rows: int) -> list[float]:
    """What each node gets of so many rows if always the least used gets the next one."""
    level = level_after(usage, rows)
    return [max(0.0, level - used) for used in usage]


def level_after(usage: Sequence[float], rows: int) -> float:
    """Where those nodes end that get any of so many rows."""
    in_order = sorted(usage)
    used = sum(in_order)
    for n in range(len(in_order), 1, -1):  # the n least used share the rows and end at one level
        if used + rows >= n * in_order[n - 1]:
            return (used + rows) / n
        used -= in_order[n - 1]
    return in_order[0] + rows


def spread(shares: Sequence[float], led: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Turns in these shares, each node's as evenly over all of them as can be."""
    counts = [round(SHARES * share / sum(shares)) for share in shares]
    order = sorted(((turn + 0.5) / count, n, turn) for n, count in enumerate(counts) for turn in range(count))
    return tuple(led[n][turn % len(led[n])] for _, n, turn in order)
