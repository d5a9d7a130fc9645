"""Latency of a commit: its time minus the Kafka timestamps of the records it made visible."""

from collections.abc import Iterable, Sequence

from headgate.model import CycleStats

QUANTILE_POINTS = 21
"""Timestamps and latencies travel as this many evenly spaced quantiles, 0 … 1."""


def commit_latency_ms(cycles: Iterable[CycleStats], committed_at_ms: int) -> tuple[float, ...]:
    """Evenly spaced quantiles of the latency over all records of these cycles, each weighted by its records."""
    samples = [
        (float(committed_at_ms - timestamp), stats.records / len(stats.timestamps_ms))
        for stats in cycles
        if stats.timestamps_ms and stats.records
        for timestamp in stats.timestamps_ms
    ]
    return tuple(
        weighted_quantile(samples, i / (QUANTILE_POINTS - 1)) for i in range(QUANTILE_POINTS if samples else 0)
    )


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


def merge_quantiles(commits: Iterable[tuple[tuple[float, ...], int]], quantile: float) -> float | None:
    """One quantile over several commits given as (their quantile points, their records)."""
    samples = [(value, records / len(points)) for points, records in commits if points for value in points]
    return weighted_quantile(samples, quantile) if samples else None
