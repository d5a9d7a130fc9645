"""Modified Any Fit: packing that starts from who owns what now and so moves little (L-40).

The loop visits consumers from the heaviest to the lightest. A consumer whose partitions all fit into those visited
before disappears; otherwise it keeps its biggest partitions and gives the rest away.
"""

from collections.abc import Callable

from headgate.model import Assignment
from headgate.packing.any_fit import Bins, Rates, Rule, best_fit, descending, pack_in_order, usable, worst_fit
from headgate.packing.protocol import Capacity

Key = Callable[[list[float]], float]
"""How heavy a consumer is, from its partitions' rates; `sum` or `_largest`."""


def _largest(rates: list[float]) -> float:
    return max(rates, default=0.0)


def _pack(rates: Rates, capacity: Capacity, previous: Assignment, rule: Rule, key: Key) -> Assignment:
    sizes = usable(rates)
    bins = Bins(sizes, capacity, previous)
    unassigned = sizes.keys() - previous.partitions
    owned = {c: descending(previous[c] & sizes.keys(), sizes) for c in previous}  # vanished partitions drop out here
    # heaviest first; equals by id.
    for consumer in sorted(owned, key=lambda c: (-key([sizes[p] for p in owned[c]]), c)):
        left = owned[consumer]
        while left and (other := rule(bins, left[-1])) is not None:
            bins.put(left.pop(), other)
        if not left:
            continue
        bins.create(consumer)
        while left and bins.fits(left[0], consumer):
            bins.put(left.pop(0), consumer)
        unassigned |= set(left)
    pack_in_order(bins, descending(unassigned, sizes), rule)
    return bins.assignment()


class ModifiedWorstFit:
    """MWF: fewest moves of the published packers; spreads the load."""

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        return _pack(rates, capacity, previous, worst_fit, sum)


class ModifiedBestFit:
    """MBF: between MWF and BFD in both consumers and moves."""

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        return _pack(rates, capacity, previous, best_fit, sum)


class ModifiedWorstFitByPartition:
    """MWFP: as MWF, visiting first the consumer with the fastest single partition."""

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        return _pack(rates, capacity, previous, worst_fit, _largest)


class ModifiedBestFitByPartition:
    """MBFP: nearly BFD's consumers with fewer moves."""

    def pack(self, rates: Rates, capacity: Capacity, previous: Assignment) -> Assignment:
        return _pack(rates, capacity, previous, best_fit, _largest)
