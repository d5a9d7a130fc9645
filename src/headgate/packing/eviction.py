"""What an overloaded consumer gives away: the least weight that makes the rest fit."""

from bisect import bisect_left
from collections.abc import Sequence
from math import ceil

PARTIAL_SUMS = 512
"""Sums looked at: exact for up to nine partitions that are each too light alone, a good guess beyond."""
MANY = 64
"""With more partitions than this the sums are not looked at for all of them: that takes time by the square of it."""
LAST = 4
"""Where many must go, the last few are the ones worth choosing with care."""
CHOICE = 24
"""From how many those are chosen."""


def lightest_cover(sizes: Sequence[float], excess: float) -> tuple[int, ...]:
    """Positions in `sizes` (ascending) that add up to at least `excess` with the least weight; of equals the fewest.

    One that covers the excess alone is never joined by another, so only lighter ones need to be added up.
    """
    return _cover(sizes, excess) if len(sizes) <= MANY else _cover_from_many(sizes, excess)


def _cover(sizes: Sequence[float], excess: float) -> tuple[int, ...]:
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


def _cover_from_many(sizes: Sequence[float], excess: float) -> tuple[int, ...]:
    """The heaviest until the last few would do; those are chosen from the lightest that does alone and, evenly spread,
    from the heavy to the light ones."""
    end = len(sizes)
    while end > LAST and sum(sizes[end - LAST : end]) < excess:
        end -= 1
        excess -= sizes[end]
    alone = bisect_left(sizes, excess, hi=end)
    spread = range(alone - 1, -1, -ceil(alone / CHOICE)) if alone else range(0)
    choice = sorted({*spread, *range(max(0, alone - LAST), min(alone + 1, end))})
    last = _cover([sizes[at] for at in choice], excess)
    return (*(choice[at] for at in last), *range(end, len(sizes)))


def _heaviest_first(sizes: Sequence[float], excess: float) -> tuple[float, int, tuple[int, ...]]:
    """A cover that is easily found: `sizes` from the heaviest on until they suffice."""
    weight, first = 0.0, len(sizes)
    while first > 0 and weight < excess:
        first -= 1
        weight += sizes[first]
    return weight, len(sizes) - first, tuple(range(first, len(sizes)))
