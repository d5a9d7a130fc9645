"""How much traffic each node gets under each partitioner (B-24)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from headgate.topology.masks import Spread

MOST_SWEEPS = 2_000
SQF_SWEEPS = 50
"""Enough for clusters as people build them; the remaining gap is reported."""
PRECISION = 1e-9


def default_load(spreads: Iterable[Spread], nodes: Iterable[int]) -> dict[int, float]:
    """Round robin over partitions: a node gets a share for every partition it leads."""
    load = dict.fromkeys(nodes, 0.0)
    for spread in spreads:
        for node, count in spread.counts.items():
            load[node] += spread.rate * count / spread.led
    return load


def node_load(spreads: Iterable[Spread], nodes: Iterable[int]) -> dict[int, float]:
    """Round robin over nodes, or SQF with one instance per topic: every node of a topic gets the same."""
    load = dict.fromkeys(nodes, 0.0)
    for spread in spreads:
        for node in spread.counts:
            load[node] += spread.rate / len(spread.counts)
    return load


@dataclass(frozen=True, slots=True)
class Balance:
    """Loads under one SQF shared by all producers."""

    load: dict[int, float]
    gap: float
    """How far, at most, a topic could still lower a node's load by sending elsewhere; 0 when perfect."""


def shared_sqf_load(spreads: Iterable[Spread], nodes: Iterable[int], sweeps: int = MOST_SWEEPS) -> Balance:
    """The most even allocation there is, which a shared SQF approaches when records arrive interleaved.

    Each group of topics in turn takes its traffic back and pours it over its nodes, lowest first. Every step lowers the
    sum of squared loads, whose only minimum is the lexicographically most even allocation; `shared_sqf_by_subsets`
    finds the same one from its definition.
    """
    load = dict.fromkeys(nodes, 0.0)
    rates: dict[int, float] = {}
    members: dict[int, tuple[int, ...]] = {}
    for spread in spreads:
        if spread.mask and spread.rate > 0:
            rates[spread.mask] = rates.get(spread.mask, 0.0) + spread.rate
            members[spread.mask] = tuple(spread.counts)
    poured = {mask: [rate / len(members[mask])] * len(members[mask]) for mask, rate in rates.items()}
    for mask, shares in poured.items():
        for node, share in zip(members[mask], shares, strict=True):
            load[node] += share
    tolerance = PRECISION * max(load.values(), default=0.0)
    gap = 0.0
    for _ in range(sweeps):
        gap = 0.0
        for mask, shares in poured.items():
            ids = members[mask]
            if len(ids) == 1:
                continue
            lowest = min(load[id] for id in ids)
            highest = max((load[id] for id, share in zip(ids, shares, strict=True) if share > 0), default=lowest)
            if highest - lowest <= tolerance:
                continue
            gap = max(gap, highest - lowest)
            others = [load[id] - share for id, share in zip(ids, shares, strict=True)]
            level = water_level(others, rates[mask])
            for n, id in enumerate(ids):
                shares[n] = max(0.0, level - others[n])
                load[id] = others[n] + shares[n]
        if gap <= tolerance:
            break
    return Balance(load, gap if gap > tolerance else 0.0)


def water_level(heights: list[float], volume: float) -> float:
    """How high `volume` stands when poured over columns of these heights."""
    ordered = sorted(heights)
    filled = volume
    for n, height in enumerate(ordered, 1):
        filled += height
        level = filled / n
        if n == len(ordered) or level <= ordered[n]:
            return level
    raise ValueError("nothing to pour over")


def shared_sqf_by_subsets(spreads: Iterable[Spread], nodes: Iterable[int]) -> dict[int, float]:
    """B-24 word for word: take the largest set of topics that presses hardest on its nodes, settle it, go on.

    Exponential in the number of topics; the reference for small clusters.
    """
    load = dict.fromkeys(nodes, 0.0)
    left = [(frozenset(spread.counts), spread.rate) for spread in spreads if spread.counts and spread.rate > 0]
    settled: frozenset[int] = frozenset()
    while left:
        subsets = [chosen for size in range(len(left), 0, -1) for chosen in combinations(left, size)]
        hardest = max(subsets, key=lambda chosen: (round(_pressure(chosen, settled), 12), len(chosen)))
        for node in frozenset().union(*(nodes for nodes, _ in hardest)) - settled:
            load[node] = _pressure(hardest, settled)
        settled |= frozenset().union(*(nodes for nodes, _ in hardest))
        left = [topic for topic in left if topic not in hardest]
    return load


def _pressure(topics: Iterable[tuple[frozenset[int], float]], settled: frozenset[int]) -> float:
    """Rate per node that is still free. Topics whose nodes are all settled would have been taken with them."""
    chosen = list(topics)
    free = frozenset().union(*(nodes for nodes, _ in chosen)) - settled
    return sum(rate for _, rate in chosen) / len(free)


def skew(load: Mapping[int, float]) -> float:
    """The busiest node over the mean; 1 is even (B-26)."""
    total = sum(load.values())
    return max(load.values()) * len(load) / total if total > 0 else 1.0
