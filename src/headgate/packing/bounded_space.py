"""Bounded space packing (L-56): at most k bins are open at a time, and a closed one gets nothing more.

AXY_k packs by X and closes by Y, each first fit (F: the bin opened earliest) or best fit (B: the fullest).
"""

from headgate.model import Assignment
from headgate.packing.any_fit import Bins, Rates, usable
from headgate.packing.classical import Order
from headgate.packing.protocol import Capacity


def _pack(
    pack_best: bool, close_best: bool, k: int, order: Order, rates: Rates, capacity: Capacity, previous: Assignment
) -> Assignment:
    sizes = usable(rates)
    bins = Bins(sizes, capacity, previous)
    opened: list[int] = []  # earliest first

    def fullest_first(consumers: list[int]) -> list[int]:
        return sorted(consumers, key=lambda c: (-bins.load[c], c))

    for partition in order(sizes):
        fitting = [c for c in opened if bins.fits(partition, c)]
        if fitting:
            chosen = fullest_first(fitting)[0] if pack_best else fitting[0]
        else:
            if len(opened) == k:
                opened.remove(fullest_first(opened)[0] if close_best else opened[0])
            chosen = bins.create_for(partition)
            opened.append(chosen)
        bins.put(partition, chosen)
    return bins.assignment()


class _BoundedSpace:
    pack_best: bool
    close_best: bool

    def __init__(self, k: int = 8, order: Order = sorted) -> None:
        if k < 1:
            raise ValueError(f"k is the number of open bins, at least 1, not {k}")
        self._k, self._order = k, order

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        return _pack(self.pack_best, self.close_best, self._k, self._order, rates, capacity, previous)


class NextKFit(_BoundedSpace):
    """AFF_k: NF with k bins instead of one."""

    pack_best, close_best = False, False


class FirstFitClosingFullest(_BoundedSpace):
    """AFB_k."""

    pack_best, close_best = False, True


class BestKFit(_BoundedSpace):
    """ABF_k."""

    pack_best, close_best = True, False


class BestFitClosingFullest(_BoundedSpace):
    """ABB_k: as good in the worst case as BF, from k = 2 on."""

    pack_best, close_best = True, True
