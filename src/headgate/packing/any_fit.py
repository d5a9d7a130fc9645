"""Any Fit packing: bins that all stay open, the rules that pick one of them, and the classical algorithms on top.

Rates that are not numbers or are negative count as 0: a monitor that lost its window must not unpack a consumer.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping

from headgate.model import Assignment, TopicPartition
from headgate.packing.protocol import FASTEST, Capacity

Rates = Mapping[TopicPartition, float]


def usable(rates: Rates) -> dict[TopicPartition, float]:
    """The rates to pack by: NaN and negative ones become 0, infinite and absurdly high ones a number."""
    if all(0 <= rate <= FASTEST for rate in rates.values()):
        return dict(rates)
    return {p: min(rate, FASTEST) if rate > 0 else 0.0 for p, rate in rates.items()}


def descending(partitions: Iterable[TopicPartition], rates: Rates) -> list[TopicPartition]:
    """Fastest first; equal rates in the order of their names, so that packing is repeatable."""
    return sorted(partitions, key=lambda p: (-rates[p], p))


class Bins:
    """The next assignment while it is being packed: consumers are bins, write rates are sizes."""

    def __init__(self, rates: Rates, capacity: Capacity, previous: Assignment) -> None:
        self._rates = rates
        self._capacity = capacity
        self._home = previous.by_partition()
        self._held: dict[int, set[TopicPartition]] = {}
        self.load: dict[int, float] = {}
        self.ids: list[int] = []
        self.newest: int | None = None
        # Bins of equal capacity, by (load, id): the emptiest that fits comes first, the fullest by bisection.
        self._by_load: dict[float, list[tuple[float, int]]] = {}

    def fits(self, partition: TopicPartition, consumer: int) -> bool:
        """L-38. An empty bin takes anything, so that an oversize partition gets a consumer of its own."""
        return not self._held[consumer] or self.load[consumer] + self._rates[partition] <= self._capacity[consumer]

    def first_that_fits(self, partition: TopicPartition) -> int | None:
        """The lowest id; no bin is empty when this is asked."""
        size, load, of_id = self._rates[partition], self.load, self._capacity
        if not of_id.of:
            limit = of_id.default_bytes_per_s
            return next((c for c in self.ids if load[c] + size <= limit), None)
        return next((c for c in self.ids if load[c] + size <= of_id[c]), None)

    def fullest_that_fits(self, partition: TopicPartition) -> int | None:
        """Of equals the lowest id."""
        size = self._rates[partition]
        found: list[tuple[float, int]] = []
        for capacity, bins in self._by_load.items():
            fitting = bisect_right(bins, capacity, key=lambda entry: entry[0] + size)
            if fitting:
                load, consumer = bins[bisect_left(bins, (bins[fitting - 1][0],))]
                found.append((-load, consumer))
        return min(found)[1] if found else None

    def emptiest_that_fit(self, partition: TopicPartition, count: int) -> list[int]:
        """Up to `count` of them, emptiest first; of equals the lowest id first."""
        size = self._rates[partition]
        found = [
            entry for capacity, bins in self._by_load.items() for entry in bins[:count] if entry[0] + size <= capacity
        ]
        return [consumer for _, consumer in sorted(found)[:count]]

    def put(self, partition: TopicPartition, consumer: int) -> None:
        bins = self._by_load.setdefault(self._capacity[consumer], [])
        if self._held[consumer]:
            del bins[bisect_left(bins, (self.load[consumer], consumer))]
        self._held[consumer].add(partition)
        self.load[consumer] += self._rates[partition]
        insort(bins, (self.load[consumer], consumer))

    def create(self, consumer: int) -> int:
        self._held[consumer] = set()
        self.load[consumer] = 0.0
        insort(self.ids, consumer)
        self.newest = consumer
        return consumer

    def create_for(self, partition: TopicPartition) -> int:
        """L-39: its present consumer if that one is not a bin yet, otherwise the lowest unused id that is fast enough.

        It may stay on a present consumer that is too slow for it, since an empty bin takes anything (L-38).
        """
        home = self._home.get(partition)
        if home is not None and home not in self._held:
            return self.create(home)
        return self.create(self._capacity.unused_for(self._rates[partition], self._held))

    def assignment(self) -> Assignment:
        return Assignment({consumer: frozenset(self._held[consumer]) for consumer in self.ids})


Rule = Callable[[Bins, TopicPartition], int | None]
"""Which open bin takes a partition; None if none can."""


def next_fit(bins: Bins, partition: TopicPartition) -> int | None:
    """The bin created last, or none."""
    return bins.newest if bins.newest is not None and bins.fits(partition, bins.newest) else None


def first_fit(bins: Bins, partition: TopicPartition) -> int | None:
    """The lowest id that fits."""
    return bins.first_that_fits(partition)


def best_fit(bins: Bins, partition: TopicPartition) -> int | None:
    """The fullest bin that still fits."""
    return bins.fullest_that_fits(partition)


def worst_fit(bins: Bins, partition: TopicPartition) -> int | None:
    """The emptiest bin that fits."""
    return next(iter(bins.emptiest_that_fit(partition, 1)), None)


def almost_worst_fit(bins: Bins, partition: TopicPartition) -> int | None:
    """The second-emptiest bin that fits (L-56); the emptiest if no other does."""
    return next(reversed(bins.emptiest_that_fit(partition, 2)), None)


def pack_in_order(bins: Bins, partitions: Iterable[TopicPartition], rule: Rule) -> None:
    """Each partition into the bin the rule picks, or into a new one."""
    for partition in partitions:
        consumer = rule(bins, partition)
        bins.put(partition, bins.create_for(partition) if consumer is None else consumer)
