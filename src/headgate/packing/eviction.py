"""What an overloaded consumer gives away: the least weight that makes the rest fit."""

from bisect import bisect_left
from collections.abc import Sequence

PARTIAL_SUMS = 512
"""Sums looked at: exact for up to nine partitions that are each too light alone, a good guess beyond."""


def lightest_cover(sizes: Sequence[float], excess: float) -> tuple[int, ...]:
    """Positions in `sizes` (ascending) that add up to at least `excess` with the least weight; of equals the fewest.

    One that covers the excess alone is never joined by another, so only lighter ones need to be added up.
    """
    lighter = bisect_left(sizes, excess)
    best = (sizes[lighter], 1, (lighter,)) if lighter < len(sizes) else _heaviest_first(sizes, excess)
    left = sum(sizes[:lighter])
    partial: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for position in range(lighter - 1, -1, -1):
        size = sizes[position]
        if size == 0:
            break
        longer = [(weight + size, (position, *chosen)) for weight, chosen in partial if weight + size < best[0]]
        best = min([best, *((w, len(chosen), chosen) for w, chosen in longer if w >= excess)])
        left -= size
        partial = [(w, chosen) for w, chosen in partial + longer if w < excess <= w + left * (1 + 1e-9)][:PARTIAL_SUMS]
    return best[2]


def _heaviest_first(sizes: Sequence[float], excess: float) -> tuple[float, int, tuple[int, ...]]:
    """A cover that is easily found: `sizes` from the heaviest on until they suffice."""
    weight, first = 0.0, len(sizes)
    while first > 0 and weight < excess:
        first -= 1
        weight += sizes[first]
    return weight, len(sizes) - first, tuple(range(first, len(sizes)))
