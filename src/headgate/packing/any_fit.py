"""Any Fit packing: bins that all stay open, the rules that pick one of them, and the classical algorithms on top.

Rates that are not numbers or are negative count as 0: a monitor that lost its window must not unpack a consumer.
"""

import math
from collections.abc import Callable, Iterable, Mapping

from headgate.model import Assignment, TopicPartition
from headgate.packing.protocol import Capacity


def usable(rates: Mapping[TopicPartition, float]) -> dict[TopicPartition, float]:
    """The rates to pack by: NaN and negative ones become 0."""
    return {p: 0.0 if math.isnan(rate) or rate < 0 else rate for p, rate in rates.items()}


def descending(partitions: Iterable[TopicPartition], rates: Mapping[TopicPartition, float]) -> list[TopicPartition]:
    """Fastest first; equal rates in the order of their names, so that packing is repeatable."""
    return sorted(partitions, key=lambda p: (-rates[p], p))


class Bins:
    """The next assignment while it is being packed: consumers are bins, write rates are sizes."""

    def __init__(self, rates: Mapping[TopicPartition, float], capacity: Capacity, previous: Assignment) -> None:
        self._rates = rates
        self._capacity = capacity
        self._home = previous.by_partition()
        self._held: dict[int, set[TopicPartition]] = {}
        self.load: dict[int, float] = {}

    def fits(self, partition: TopicPartition, consumer: int) -> bool:
        """L-38. An empty bin takes anything, so that an oversize partition gets a consumer of its own."""
        return not self._held[consumer] or self.load[consumer] + self._rates[partition] <= self._capacity[consumer]

    def fitting(self, partition: TopicPartition) -> list[int]:
        """The bins that can take it, by id."""
        return [consumer for consumer in sorted(self._held) if self.fits(partition, consumer)]

    def put(self, partition: TopicPartition, consumer: int) -> None:
        self._held[consumer].add(partition)
        self.load[consumer] += self._rates[partition]

    def create(self, consumer: int) -> int:
        self._held[consumer] = set()
        self.load[consumer] = 0.0
        return consumer

    def create_for(self, partition: TopicPartition) -> int:
        """L-39: its present consumer if that one is not a bin yet, otherwise the lowest unused id."""
        home = self._home.get(partition)
        if home is not None and home not in self._held:
            return self.create(home)
        return self.create(next(n for n in range(1, len(self._held) + 2) if n not in self._held))

    def assignment(self) -> Assignment:
        return Assignment({consumer: frozenset(self._held[consumer]) for consumer in sorted(self._held)})


Rule = Callable[[Bins, TopicPartition], int | None]
"""Which open bin takes a partition; None if none can."""


def best_fit(bins: Bins, partition: TopicPartition) -> int | None:
    """The fullest bin that still fits; of equals the lowest id."""
    return min(bins.fitting(partition), key=lambda consumer: (-bins.load[consumer], consumer), default=None)


def worst_fit(bins: Bins, partition: TopicPartition) -> int | None:
    """The emptiest bin that fits; of equals the lowest id."""
    return min(bins.fitting(partition), key=lambda consumer: (bins.load[consumer], consumer), default=None)


def pack_in_order(bins: Bins, partitions: Iterable[TopicPartition], rule: Rule) -> None:
    """Each partition into the bin the rule picks, or into a new one."""
    for partition in partitions:
        consumer = rule(bins, partition)
        bins.put(partition, bins.create_for(partition) if consumer is None else consumer)


class BestFitDecreasing:
    """BFD: fewest consumers of the published packers, and no regard for moves."""

    def pack(self, rates: Mapping[TopicPartition, float], capacity: Capacity, previous: Assignment) -> Assignment:
        sizes = usable(rates)
        bins = Bins(sizes, capacity, previous)
        pack_in_order(bins, descending(sizes, sizes), best_fit)
        return bins.assignment()
