"""Means with 99 % intervals, and what two intervals say of each other (B-59, B-60)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

T_99 = (
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169,
    3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845,
    2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750,
)  # fmt: skip
"""Student's t, two-sided 99 %, by degrees of freedom from 1 on. Beyond the last the last: a little too wide."""


class Verdict(StrEnum):
    better = "better"
    worse = "worse"
    level = "level"
    """The intervals overlap."""
    unknown = "too few runs"
    """An interval of so few is too wide to tell anything apart: that it overlaps another says nothing."""


ENOUGH_RUNS = 5
"""For a verdict."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and half the width of its 99 % interval."""

    mean: float
    half: float = math.inf
    runs: int | None = None
    """Not known of what is published."""

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        mean, freedom = math.fsum(values) / len(values), len(values) - 1
        if freedom == 0:
            return cls(mean, runs=1)
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / freedom)
        return cls(mean, T_99[min(freedom, len(T_99)) - 1] * deviation / math.sqrt(len(values)), len(values))

    def overlaps(self, other: "Interval") -> bool:
        return abs(self.mean - other.mean) <= self.half + other.half

    def against(self, other: "Interval", more_is_better: bool) -> Verdict:
        if any(one.runs is not None and one.runs < ENOUGH_RUNS for one in (self, other)):
            return Verdict.unknown
        if self.overlaps(other):
            return Verdict.level
        return Verdict.better if (self.mean > other.mean) == more_is_better else Verdict.worse

    def change_percent(self, other: "Interval") -> float:
        """How much the mean differs from the other's."""
        return 100 * (self.mean / other.mean - 1) if other.mean else math.nan

    def __str__(self) -> str:
        shown = f"{self.mean:,.{decimals(self.mean)}f}"
        return shown if math.isinf(self.half) else f"{shown} ± {self.half:,.{decimals(self.mean)}f}"


def decimals(value: float) -> int:
    """So that about three digits are shown."""
    return 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
