"""Records per second over time: the latency paper's two workloads and families to judge a policy by.

The families are seeded and were not used for tuning: what a policy is worth shows on traces nobody tuned on.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from headgate.simulation.arrivals import Floats, even

W1_KNOTS = ((0.0, 0.0), (125.0, 200.0), (212.5, 150.0), (300.0, 275.0), (387.5, 150.0), (475.0, 350.0), (600.0, 0.0))
"""(second, records per second)."""

W2_STAND_IN_KNOTS = (
    *(9, 345, 277, 124, 79, 89, 179, 234, 228, 238, 209, 183, 123, 45, 20, 49, 198, 254, 221, 236, 235),
    *(273, 304, 229, 148, 60, 27, 44, 205, 286, 234, 245, 242, 286, 347, 297, 191, 82, 36, 41, 198),
)
"""Every 180 s."""


def w1() -> Floats:
    """W1: ten minutes of half-cosine easing between the knots, sampled in the middle of each second."""
    t = np.arange(600) + 0.5
    rates = np.zeros(600)
    for (a, ya), (b, yb) in pairwise(W1_KNOTS):
        inside = (t >= a) & (t < b)
        rates[inside] = (ya + yb) / 2 - (yb - ya) / 2 * np.cos(np.pi * (t[inside] - a) / (b - a))
    return rates


def w2_stand_in(seed: int = 0) -> Floats:
    """A stand-in for W2, two hours of compressed taxi trips: it has the curve and the noise, not the trips."""
    t = np.arange(7200) + 0.5
    rates = np.interp(t, 180.0 * np.arange(len(W2_STAND_IN_KNOTS)), W2_STAND_IN_KNOTS)
    noise = np.random.default_rng(seed).normal(0.0, 1.0, len(t)) * 0.19 * np.sqrt(rates)
    noisy: Floats = np.maximum(0.0, rates + noise)
    return noisy


Shares = npt.NDArray[np.float64]
Family = Callable[[int], tuple[Floats, Shares]]
"""seed → (records per second for each second, shares for each second and partition)."""


def _from_rest(rates: Floats) -> Floats:
    """Traces begin at nothing and reach their level in 40 s, as W1 does, so that all policies start alike."""
    return rates * np.minimum(1.0, np.arange(len(rates)) / 40)


def spiky(seed: int, seconds: int = 1800, partitions: int = 5) -> tuple[Floats, Shares]:
    """A calm base with sudden rises, two to five times as high, that last 10 to 60 s."""
    rng = np.random.default_rng([seed, 1])
    rates = np.full(seconds, rng.uniform(50, 90))
    t = rng.uniform(30, 120)
    while t < seconds:
        length, height = rng.uniform(10, 60), rng.uniform(2, 5)
        start, end = int(t), int(min(seconds, t + length))
        rates[start:end] *= height
        t += length + rng.exponential(120)
    noisy = rates * (1 + rng.normal(0, 0.05, seconds))
    return _from_rest(np.clip(noisy, 0, 400)), np.tile(even(partitions), (seconds, 1))


def trending(seed: int, seconds: int = 1800, partitions: int = 5) -> tuple[Floats, Shares]:
    """Long slopes up and down between random levels, with noise as large as a Poisson stream's."""
    rng = np.random.default_rng([seed, 2])
    knots = np.concatenate([[0.0], np.sort(rng.uniform(60, seconds - 60, 7)), [float(seconds)]])
    levels = rng.uniform(20, 360, len(knots))
    rates = np.interp(np.arange(seconds) + 0.5, knots, levels)
    noisy = np.maximum(0, rates + rng.normal(0, 1, seconds) * np.sqrt(rates))
    return _from_rest(noisy), np.tile(even(partitions), (seconds, 1))


def regime_switch(seed: int, seconds: int = 1800, partitions: int = 5) -> tuple[Floats, Shares]:
    """Levels that hold for minutes and then jump at once; at each jump the shares change too."""
    rng = np.random.default_rng([seed, 3])
    rates, shares = np.zeros(seconds), np.zeros((seconds, partitions))
    t = 0
    while t < seconds:
        end = min(seconds, t + int(rng.uniform(60, 300)))
        rates[t:end] = rng.uniform(20, 350)
        shares[t:end] = rng.dirichlet(np.full(partitions, 12.0))
        t = end
    return _from_rest(rates * (1 + rng.normal(0, 0.04, seconds)).clip(0)), shares


def correlated(seed: int, seconds: int = 1800, partitions: int = 9) -> tuple[Floats, Shares]:
    """A slow wave with short bursts that hit some partitions together: two to four of them at four times their rate."""
    rng = np.random.default_rng([seed, 4])
    t = np.arange(seconds) + 0.5
    base = 130 + 70 * np.sin(2 * np.pi * t / rng.uniform(400, 900) + rng.uniform(0, 6))
    weights = np.ones((seconds, partitions))
    at = rng.uniform(20, 80)
    while at < seconds:
        end = int(min(seconds, at + rng.uniform(8, 40)))
        hit = rng.choice(partitions, size=int(rng.integers(2, 5)), replace=False)
        weights[int(at) : end, hit] = 4.0
        at = end + rng.exponential(90)
    rates = base * weights.mean(axis=1)
    return _from_rest(np.clip(rates, 0, 450)), weights / weights.sum(axis=1, keepdims=True)


FAMILIES: dict[str, Family] = {
    "spiky": spiky,
    "trending": trending,
    "regime switch": regime_switch,
    "correlated bursts": correlated,
}


def scaled(rates: Sequence[float] | Floats, factor: float) -> Floats:
    """The same curve, higher or lower."""
    if not factor > 0:
        raise ValueError(f"a factor above 0 is needed, not {factor:g}")
    return np.asarray(rates, dtype=np.float64) * factor
