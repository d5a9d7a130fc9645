"""Loads of consumers, and an assignment brought down to fewer consumers than it was packed for."""

from collections.abc import Mapping
from heapq import heapreplace
from itertools import repeat

from headgate.model import Assignment, TopicPartition
from headgate.packing.any_fit import descending
from headgate.packing.protocol import Capacity


def loads(assignment: Assignment, rates: Mapping[TopicPartition, float]) -> dict[int, float]:
    return {c: sum(map(rates.get, assignment[c], repeat(0.0))) for c in assignment}


_EQUAL = Capacity(1.0)


def fold(
    packed: Assignment,
    rates: Mapping[TopicPartition, float],
    current: Assignment,
    limit: int,
    capacity: Capacity = _EQUAL,
) -> Assignment:
    """At most `limit` consumers: the least loaded one gives its partitions, fastest first, to the then least loaded.

    Loads are for their capacity. Of equally loaded consumers one that does not exist yet goes first, then the highest
    id.
    """
    held = {c: set(packed[c]) for c in packed}
    load = {c: load / capacity[c] for c, load in loads(packed, rates).items()}
    while len(held) > limit:
        smallest = min(held, key=lambda c: (load[c], c in current.owners, -c))
        given = held.pop(smallest)
        del load[smallest]
        by_load = sorted((load[c], c) for c in held)
        for partition in descending(given, rates):
            _, target = by_load[0]
            held[target].add(partition)
            load[target] += rates[partition] / capacity[target]
            heapreplace(by_load, (load[target], target))
    return Assignment({c: frozenset(partitions) for c, partitions in held.items()})
