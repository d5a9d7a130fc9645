"""Harmonic_k (L-56): partitions of similar size share bins, so that every closed bin is known to be well filled.

Class j holds sizes in (1/(j+1), 1/j] of the capacity, for j < k; class k everything up to 1/k. Each class has one open
bin, which takes j partitions.
"""

from headgate.model import Assignment
from headgate.packing.any_fit import Bins, Rates, usable
from headgate.packing.classical import Order
from headgate.packing.protocol import Capacity


class Harmonic:
    """Better than any AXY_k in the worst case from k = 7 on; much worse on average, and blind to moves."""

    def __init__(self, k: int = 7, order: Order = sorted) -> None:
        if k < 1:
            raise ValueError(f"k is the number of classes, at least 1, not {k}")
        self._k, self._order = k, order

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        sizes = usable(rates)
        bins = Bins(sizes, capacity, previous)
        open_bin: dict[int, int] = {}
        for partition in self._order(sizes):
            of_class = self.class_of(sizes[partition] / capacity.default_bytes_per_s)
            if of_class not in open_bin or not bins.fits(partition, open_bin[of_class]):
                open_bin[of_class] = bins.create_for(partition)
            bins.put(partition, open_bin[of_class])
        return bins.assignment()

    def class_of(self, share: float) -> int:
        """The j of a size given as a share of the capacity; what is larger than a bin is in class 1."""
        return next((j for j in range(1, self._k) if share > 1 / (j + 1)), self._k)
