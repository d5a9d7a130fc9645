"""The classical algorithms, online and offline (L-37, L-38), which start from nothing and know moves only through L-39.

The online ones take partitions as they come. That is by name, so that packing is repeatable; E3 reshuffles before every
packing (A-5) and hands in its own order.
"""

from collections.abc import Callable, Iterable, Sequence

from headgate.model import Assignment, TopicPartition
from headgate.packing.any_fit import (
    Bins,
    Rates,
    Rule,
    almost_worst_fit,
    best_fit,
    descending,
    first_fit,
    next_fit,
    pack_in_order,
    usable,
    worst_fit,
)
from headgate.packing.protocol import Capacity

Order = Callable[[Iterable[TopicPartition]], Sequence[TopicPartition]]


def _online(rule: Rule, order: Order, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
    sizes = usable(rates)
    bins = Bins(sizes, capacity, previous)
    pack_in_order(bins, order(sizes), rule)
    return bins.assignment()


def _decreasing(rule: Rule, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
    sizes = usable(rates)
    bins = Bins(sizes, capacity, previous)
    pack_in_order(bins, descending(sizes, sizes), rule)
    return bins.assignment()


def _next_fit(order: Order, sizes: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
    """The first bin is consumer 1, not L-39's: the published NF began so, and NFD's E(R) fits only if it did too.

    If consumer 1 is too slow for the first partition, the next that is not (L-26).
    """
    bins = Bins(sizes, capacity, previous)
    ordered = order(sizes)
    if ordered:
        bins.create(capacity.unused_for(sizes[ordered[0]], ()))
    pack_in_order(bins, ordered, next_fit)
    return bins.assignment()


class NextFit:
    """NF: one open bin; the most consumers of all."""

    def __init__(self, order: Order = sorted) -> None:
        self._order = order

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        return _next_fit(self._order, usable(rates), capacity, previous)


class FirstFit:
    """FF: the lowest id that fits."""

    def __init__(self, order: Order = sorted) -> None:
        self._order = order

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        return _online(first_fit, self._order, rates, capacity, previous)


class WorstFit:
    """WF: the emptiest that fits; balances, and needs more consumers for it."""

    def __init__(self, order: Order = sorted) -> None:
        self._order = order

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        return _online(worst_fit, self._order, rates, capacity, previous)


class AlmostWorstFit:
    """AWF: the second-emptiest that fits, which already brings the worst case from 2 down to 1.7 (L-56)."""

    def __init__(self, order: Order = sorted) -> None:
        self._order = order

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        return _online(almost_worst_fit, self._order, rates, capacity, previous)


class BestFit:
    """BF: the fullest that fits."""

    def __init__(self, order: Order = sorted) -> None:
        self._order = order

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        return _online(best_fit, self._order, rates, capacity, previous)


class NextFitDecreasing:
    """NFD: NF on the fastest first."""

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        sizes = usable(rates)
        return _next_fit(lambda partitions: descending(partitions, sizes), sizes, capacity, previous)


class FirstFitDecreasing:
    """FFD: FF on the fastest first; nearly BFD."""

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        return _decreasing(first_fit, rates, capacity, previous)


class WorstFitDecreasing:
    """WFD: WF on the fastest first; nearly BFD, and balanced."""

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        return _decreasing(worst_fit, rates, capacity, previous)


class BestFitDecreasing:
    """BFD: fewest consumers of the published packers, and no regard for moves."""

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        return _decreasing(best_fit, rates, capacity, previous)
