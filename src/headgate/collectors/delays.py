"""How long records took, as quantiles, in memory that does not grow with their number."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

SHORTEST_S = 1e-4
STEP = 1.02
"""Delays count as one when they differ by less than 2 %."""


class Delays:
    def __init__(self) -> None:
        self._steps: Counter[int] = Counter()
        self.records = 0
        self.longest_s = 0.0

    def add(self, delay_s: float) -> None:
        self.add_all([delay_s])

    def add_all(self, delays_s: Sequence[float]) -> None:
        """Clocks of different machines may make one negative: that counts as none."""
        if not delays_s:
            return
        steps = np.ceil(np.log(np.maximum(delays_s, SHORTEST_S) / SHORTEST_S) / math.log(STEP))
        for step, records in zip(*np.unique(steps, return_counts=True), strict=True):
            self._steps[int(step)] += int(records)
        self.records += len(delays_s)
        self.longest_s = max(self.longest_s, max(delays_s))

    def include(self, others: "Delays") -> None:
        self._steps.update(others._steps)
        self.records += others.records
        self.longest_s = max(self.longest_s, others.longest_s)

    def quantile_s(self, share: float) -> float | None:
        """The smallest delay that this share of the records did not exceed, rounded up by 2 % at most."""
        passed, wanted = 0, share * self.records
        for step in sorted(self._steps):
            passed += self._steps[step]
            if passed >= wanted:
                return min(SHORTEST_S * STEP**step, max(self.longest_s, SHORTEST_S))
        return None
