"""Arrivals: the moment every single record reaches its partition, and the producers that make them (E-42, E-43).

A producer turns records per second, one number for each second, and shares of the partitions into arrivals. How
records are spaced within a second decides almost everything about tail latency (A-3), so it is never implied.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Arrivals:
    """Per partition the arrival times of its records, ascending, in seconds from the start."""

    times_s: tuple[Floats, ...]
    duration_s: float
    name: str = ""
    costs: tuple[Floats, ...] | None = None
    """How much longer than usual each record takes, 1 being usual; None: all are alike."""

    @property
    def partitions(self) -> int:
        return len(self.times_s)

    @property
    def events(self) -> int:
        return sum(len(t) for t in self.times_s)

    def per_second(self) -> Ints:
        """Records per second and partition: shape (seconds, partitions)."""
        seconds = int(np.ceil(self.duration_s))
        edges = np.arange(seconds + 1, dtype=np.float64)
        return np.stack([np.histogram(t, edges)[0] for t in self.times_s], axis=1).astype(np.int64)


Producer = Callable[[Floats, Floats, np.random.Generator], Arrivals]
"""(records per second for each second, shares per partition or per second and partition, randomness) → arrivals."""


def even(partitions: int) -> Floats:
    """Keys at random: every partition gets the same share."""
    if partitions < 1:
        raise ValueError("at least one partition is needed")
    return np.full(partitions, 1 / partitions)


def skewed(partitions: int = 9) -> Floats:
    """E-43: half of the events to partitions 0 and 1, the other half evenly over the others."""
    if partitions < 3:
        raise ValueError("the published skew needs at least 3 partitions")
    return np.concatenate([[0.25, 0.25], np.full(partitions - 2, 0.5 / (partitions - 2))])


def burst(rates: Floats, shares: Floats, rng: np.random.Generator) -> Arrivals:
    """E-42: each second ceil(rate) events at once at its beginning, partitions drawn at random by share."""
    per_second = _drawn(rates, shares, rng)
    seconds = np.arange(len(rates), dtype=np.float64)
    times = tuple(np.repeat(seconds, per_second[:, p]) for p in range(per_second.shape[1]))
    return Arrivals(times, float(len(rates)), "burst")


def smooth(rates: Floats, shares: Floats, rng: np.random.Generator) -> Arrivals:
    """The same events evenly spaced within their second, partitions still drawn at random."""
    counts = _counts(rates)
    times = np.repeat(np.arange(len(rates), dtype=np.float64), counts)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    position = np.arange(counts.sum()) - np.repeat(starts, counts)
    times = times + position / np.repeat(np.maximum(counts, 1), counts)
    return _by_partition(times, _drawn(rates, shares, rng), counts, rng, float(len(rates)), "smooth")


def poisson(rates: Floats, shares: Floats, rng: np.random.Generator) -> Arrivals:
    """Independent arrivals: a Poisson number each second, at random moments within it."""
    counts = rng.poisson(rates).astype(np.int64)
    times = np.sort(np.repeat(np.arange(len(rates), dtype=np.float64), counts) + rng.random(int(counts.sum())))
    return _by_partition(
        times, _drawn(counts.astype(np.float64), shares, rng), counts, rng, float(len(rates)), "poisson"
    )


def _counts(rates: Floats) -> Ints:
    if not np.all(np.isfinite(rates)) or np.any(rates < 0):
        raise ValueError("rates must be finite and not negative")
    return np.ceil(rates).astype(np.int64)


def _drawn(rates: Floats, shares: Floats, rng: np.random.Generator) -> Ints:
    """How many of each second's events fall to each partition."""
    counts = _counts(rates)
    shares = np.asarray(shares, dtype=np.float64)
    if np.any(shares < 0) or not np.allclose(shares.sum(axis=-1), 1):
        raise ValueError("shares must not be negative and sum to 1")
    return rng.multinomial(counts, shares).astype(np.int64)


def _by_partition(
    times: Floats, per_second: Ints, counts: Ints, rng: np.random.Generator, duration_s: float, name: str
) -> Arrivals:
    """Deals each second's events to partitions in random order, keeping the drawn numbers."""
    owner = np.repeat(np.tile(np.arange(per_second.shape[1]), len(counts)), per_second.ravel())
    second = np.repeat(np.arange(len(counts)), counts)
    shuffled = np.lexsort((rng.random(len(owner)), second))
    owner = owner[shuffled]
    return Arrivals(tuple(times[owner == p] for p in range(per_second.shape[1])), duration_s, name)


def varied(arrivals: Arrivals, spread: float, rng: np.random.Generator) -> Arrivals:
    """The same arrivals with work that varies: records of one second cost alike, 1 ± spread on average 1 (E-3)."""
    if not 0 <= spread < 1:
        raise ValueError(f"spread must be at least 0 and below 1, not {spread:g}")
    by_second = rng.uniform(1 - spread, 1 + spread, int(np.ceil(arrivals.duration_s)) + 1)
    return replace(arrivals, costs=tuple(by_second[t.astype(np.int64)] for t in arrivals.times_s))


PRODUCERS: dict[str, Producer] = {"burst": burst, "smooth": smooth, "poisson": poisson}


def counted(per_second: Sequence[Sequence[int]] | Ints, name: str = "") -> Arrivals:
    """Bursts of exactly these records per second and partition: the golden arithmetic, or a recorded trace."""
    table = np.asarray(per_second, dtype=np.int64)
    if table.ndim != 2 or np.any(table < 0):
        raise ValueError("expected a table of seconds by partitions without negative counts")
    seconds = np.arange(len(table), dtype=np.float64)
    return Arrivals(tuple(np.repeat(seconds, table[:, p]) for p in range(table.shape[1])), float(len(table)), name)
