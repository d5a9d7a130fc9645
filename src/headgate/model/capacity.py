"""What a consumer can do, estimated from its own cycles (E-3): work done over the time it took, cycle by cycle."""

import math
from collections import deque
from itertools import islice
from typing import Literal

Estimate = Literal["mean", "p99", "worst_case", "fixed"]
"""mean: of the newest cycles. p99: what 99 % of cycles reach. worst_case: the slowest. fixed: nothing is measured."""

CYCLES_OF_MEAN = 30
"""About a minute of full cycles: follows other data or a slower machine, and not every single cycle."""
CYCLES_KEPT = 300
"""What p99 and worst_case look back on, so that an outlier is forgotten some day."""
CYCLES_OF_A_STEP = 3
"""So many in a row, all far off the mean and to the same side, are another speed and no noise."""
STEP = 0.75
"""How far off: below this share of the mean before them, or above it by as much."""


class CapacityMeter:
    """In whatever unit the work is given: bytes for live consumers, records in the simulator."""

    def __init__(self, estimate: Estimate) -> None:
        self._estimate = estimate
        self._cycles: deque[tuple[float, float]] = deque(maxlen=CYCLES_KEPT)
        """(work, seconds), the newest first."""

    def add(self, work: float, busy_s: float) -> None:
        """One cycle that shows what the consumer can do; a cycle without work or time shows nothing."""
        if work > 0 and busy_s > 0:
            self._cycles.appendleft((work, busy_s))
            if self._estimate == "mean" and self._is_another_speed():
                self._cycles = deque(islice(self._cycles, CYCLES_OF_A_STEP), maxlen=CYCLES_KEPT)

    def _is_another_speed(self) -> bool:
        """A mean over 30 cycles would take a minute to show what three in a row make plain."""
        before = list(islice(self._cycles, CYCLES_OF_A_STEP, CYCLES_OF_A_STEP + CYCLES_OF_MEAN))
        if len(before) < CYCLES_OF_A_STEP:
            return False
        mean = _mean(before)
        newest = [work / busy_s for work, busy_s in islice(self._cycles, CYCLES_OF_A_STEP)]
        return max(newest) < STEP * mean or min(newest) > mean / STEP

    @property
    def per_s(self) -> float | None:
        """None until a cycle was measured, and always if the capacity is fixed by configuration."""
        if self._estimate == "fixed" or not self._cycles:
            return None
        if self._estimate == "mean":
            return _mean(list(islice(self._cycles, CYCLES_OF_MEAN)))
        ascending = sorted(work / busy_s for work, busy_s in self._cycles)
        if self._estimate == "worst_case":
            return ascending[0]
        return ascending[len(ascending) - math.ceil(0.99 * len(ascending))]  # 99 % are at least this fast


def _mean(cycles: list[tuple[float, float]]) -> float:
    return math.fsum(work for work, _ in cycles) / math.fsum(busy_s for _, busy_s in cycles)
