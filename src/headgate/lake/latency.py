"""Latency of a commit: its time minus the Kafka timestamps of the records it made visible."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from headgate.model import CycleStats

QUANTILE_POINTS = 101
"""Timestamps and latencies travel as this many evenly spaced quantiles, 0 … 1. A single late record is the last point,
and spreading the records between points makes less than a hundredth of them late for it."""
_EVENLY = tuple(i / (QUANTILE_POINTS - 1) for i in range(QUANTILE_POINTS))


def latencies_ms(stats: CycleStats, committed_at_ms: int) -> tuple[float, ...]:
    """Evenly spaced quantiles of the latency over a cycle's records; nothing if it read nothing."""
    if not stats.records:
        return ()
    return tuple(float(committed_at_ms - timestamp) for timestamp in reversed(stats.timestamps_ms))


def share_within(points: Sequence[float], bound: float) -> float:
    """How much of what these evenly spaced quantiles describe is at most `bound`, 0 to 1: between two neighbours the
    records lie evenly."""
    passed = bisect_right(points, bound)
    if passed in (0, len(points)):
        return float(passed > 0)
    before, after = points[passed - 1], points[passed]
    return (passed - 1 + (bound - before) / (after - before)) / (len(points) - 1)


def mean(points: Sequence[float]) -> float:
    """Of what these evenly spaced quantiles describe, by the same rule."""
    return sum(a + b for a, b in pairwise(points)) / 2 / (len(points) - 1) if len(points) > 1 else points[0]


def weighted_quantile(samples: Sequence[tuple[float, float]], quantile: float) -> float:
    """The smallest value at or below which `quantile` of the weight lies; samples are (value, weight)."""
    ordered = sorted(samples)
    target = quantile * sum(weight for _, weight in ordered)
    passed = 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= target - 1e-9:
            return value
    return ordered[-1][0]


def weighted_quantiles(samples: Sequence[tuple[float, float]], quantiles: Sequence[float]) -> tuple[float, ...]:
    """`weighted_quantile` of each of these, which ascend, in one pass."""
    ordered = sorted(samples)
    total = sum(weight for _, weight in ordered)
    found: list[float] = []
    at, passed = 0, ordered[0][1]
    for quantile in quantiles:
        while passed < quantile * total - 1e-9 and at < len(ordered) - 1:
            at += 1
            passed += ordered[at][1]
        found.append(ordered[at][0])
    return tuple(found)


def merge_points(parts: Iterable[tuple[Sequence[float], int]]) -> tuple[float, ...]:
    """Evenly spaced quantiles over several parts given as (their quantile points, their records); of none, none."""
    samples = _samples(parts)
    return weighted_quantiles(samples, _EVENLY) if samples else ()


def merge_quantiles(commits: Iterable[tuple[tuple[float, ...], int]], quantile: float) -> float | None:
    """One quantile over several commits given as (their quantile points, their records)."""
    samples = _samples(commits)
    return weighted_quantile(samples, quantile) if samples else None


def _samples(parts: Iterable[tuple[Sequence[float], int]]) -> list[tuple[float, float]]:
    return [(value, records / len(points)) for points, records in parts for value in points]
