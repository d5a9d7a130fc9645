"""Measuring two things in turns, so that whatever else the machine does hits both."""

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

K = TypeVar("K", bound=Hashable)
TOLERANCE = 0.15
"""A ratio this much worse than its last committed range counts as a regression; machines are noisy."""

WIDEST = 1.5
"""No range counts for wider than this times its ratio: a single wild round would excuse everything after it."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours over the peer's. `low` and `high` say how far the ratio spread within the run."""

    what: str
    peer: str
    ours: float
    peers: float
    low: float
    high: float
    unit: str = "s"
    better: Literal["lower", "higher"] = "lower"
    target: float | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.peers

    @property
    def met(self) -> bool | None:
        """None where nothing is asked for."""
        return self._keeps(self.ratio)

    @property
    def always_met(self) -> bool | None:
        """Also at the worse end of its spread."""
        return self._keeps(self.high if self.better == "lower" else self.low)

    def _keeps(self, ratio: float) -> bool | None:
        if self.target is None:
            return None
        return ratio <= self.target if self.better == "lower" else ratio >= self.target

    @property
    def asked(self) -> str:
        """The target with its sign; empty where there is none."""
        return "" if self.target is None else f"{'≤' if self.better == 'lower' else '≥'} {self.target:g}"

    def regressed_from(self, before: "Ratio") -> bool:
        if self.better == "lower":
            return self.ratio > min(before.high, before.ratio * WIDEST) * (1 + TOLERANCE)
        return self.ratio < max(before.low, before.ratio / WIDEST) * (1 - TOLERANCE)


def compare(
    what: str, ours: Callable[[int], object], peer: str, peers: Callable[[int], object], turns: int, warm_up: int
) -> Ratio:
    """Median times over `turns`; low and high are the quartiles of the per-turn ratios. Turn numbers are handed in."""
    ours_s: list[float] = []
    peers_s: list[float] = []
    for turn in range(warm_up + turns):
        for run, times in ((ours, ours_s), (peers, peers_s)):
            began = time.perf_counter()
            run(turn)
            if turn >= warm_up:
                times.append(time.perf_counter() - began)
    ratios = sorted(a / b for a, b in zip(ours_s, peers_s, strict=True))
    quarter = len(ratios) // 4
    return Ratio(
        what, peer, statistics.median(ours_s), statistics.median(peers_s), ratios[quarter], ratios[-1 - quarter]
    )


def in_turns(ways: Mapping[K, Callable[[int], float]], rounds: int, warm_up: int) -> dict[K, list[float]]:
    """What each way measures by itself, all of them once a round. Numbers of rounds are handed in, and the first ones,
    which warm up, do not count."""
    measured: dict[K, list[float]] = {name: [] for name in ways}
    for number in range(warm_up + rounds):
        for name, way in ways.items():
            value = way(number)
            if number >= warm_up:
                measured[name].append(value)
    return measured


def of_rounds(
    what: str,
    peer: str,
    rounds: Sequence[tuple[float, float]],
    unit: str = "s",
    better: Literal["lower", "higher"] = "lower",
    target: float | None = None,
) -> Ratio:
    """Of (ours, peer's) measured in turns: medians, and the range of the ratios."""
    ratios = [ours / peers for ours, peers in rounds]
    ours, peers = (statistics.median(values) for values in zip(*rounds, strict=True))
    return Ratio(what, peer, ours, peers, min(ratios), max(ratios), unit, better, target)


def of_limit(
    what: str, limit_name: str, limit: float, measured: Sequence[float], unit: str = "s", target: float | None = 1.0
) -> Ratio:
    """Against a fixed limit, such as an interval that must not be used up."""
    ours = statistics.median(measured)
    return Ratio(what, limit_name, ours, limit, min(measured) / limit, max(measured) / limit, unit, "lower", target)
