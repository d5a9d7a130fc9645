"""How few consumers could do, whatever the packer: Martello and Toth's bound L2."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate


def least_consumers(sizes: Iterable[float], capacity: float) -> int:
    """No packing of `sizes` into bins of `capacity` needs fewer than this.

    For every threshold t up to half a bin: items above capacity - t share with nothing of t or more, items above half a
    bin do not share with each other, and what is at least t must go into the room these leave or into further bins.
    """
    ascending = sorted(min(size, capacity) for size in sizes if size > 0)
    if not ascending or capacity <= 0:
        return len(ascending)
    sums = [0.0, *accumulate(ascending)]
    half = bisect_right(ascending, capacity / 2)
    thresholds = {0.0, *(ascending[:half])}
    return max(_bound(ascending, sums, half, capacity, threshold) for threshold in thresholds)


def _bound(ascending: list[float], sums: list[float], half: int, capacity: float, threshold: float) -> int:
    counted = bisect_left(ascending, threshold)
    alone = max(half, bisect_right(ascending, capacity - threshold))
    shareable = (alone - half) * capacity - (sums[alone] - sums[half])
    rest = sums[half] - sums[counted] - shareable
    # A sum that exceeds a whole number of bins only by rounding needs no further bin.
    return len(ascending) - half + max(0, math.ceil(rest / capacity - 1e-9))
