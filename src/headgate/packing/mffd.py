"""Modified First Fit Decreasing (L-57): FFD, but room beside big partitions is first offered to pairs of middling ones.

At most 71/60 of the optimum's bins in the worst case, where FFD and BFD have 11/9.
"""

from collections.abc import Callable

from headgate.model import Assignment, TopicPartition
from headgate.packing.any_fit import Bins, Rates, descending, first_fit, pack_in_order, usable
from headgate.packing.protocol import Capacity

ABOVE = {"A": 1 / 2, "B": 1 / 3, "C": 1 / 4, "D": 1 / 5, "E": 1 / 6, "F": 11 / 71, "G": 0.0}
"""The lower end of each class, as a share of the capacity; it belongs to the class below."""


def class_of(share: float) -> str:
    return next((name for name, lower in ABOVE.items() if share > lower), "G")


class ModifiedFirstFitDecreasing:
    """MFFD."""

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        sizes = usable(rates)
        bins = Bins(sizes, capacity, previous)
        kind = {p: class_of(size / capacity.default_bytes_per_s) for p, size in sizes.items()}
        unpacked = descending(sizes, sizes)

        def put(partition: TopicPartition, consumer: int) -> None:
            bins.put(partition, consumer)
            unpacked.remove(partition)

        def largest_that_fits(consumer: int, among: Callable[[TopicPartition], bool]) -> TopicPartition | None:
            return next((p for p in unpacked if among(p) and bins.fits(p, consumer)), None)

        # (1) a bin for every A, in this order "from left to right"
        beside_a: list[int] = []
        for partition in [p for p in unpacked if kind[p] == "A"]:
            beside_a.append(bins.create_for(partition))
            put(partition, beside_a[-1])
        # (2) left to right: the largest B that fits
        with_b: set[int] = set()
        for consumer in beside_a:
            if (b := largest_that_fits(consumer, lambda p: kind[p] == "B")) is not None:
                put(b, consumer)
                with_b.add(consumer)
        # (3) right to left, where no B went: the smallest of C, D, E and the largest other one that fits with it
        for consumer in reversed(beside_a):
            middling = [p for p in unpacked if kind[p] in "CDE"]
            if consumer in with_b or len(middling) < 2:
                continue
            smallest, second = middling[-1], middling[-2]
            if bins.load[consumer] + sizes[smallest] + sizes[second] > capacity[consumer]:
                continue
            put(smallest, consumer)
            other = largest_that_fits(consumer, lambda p: kind[p] in "CDE")
            if other is not None:
                put(other, consumer)
        # (4) left to right: the largest of all that fits, until none does
        for consumer in beside_a:
            while (any_other := largest_that_fits(consumer, lambda p: True)) is not None:
                put(any_other, consumer)
        # (5) FFD of the rest; nothing of it fits the bins of (1) any more
        pack_in_order(bins, unpacked, first_fit)
        return bins.assignment()
