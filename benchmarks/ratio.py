"""Measuring two things in turns, so that whatever else the machine does hits both, and comparing ratios over time."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

TOLERANCE = 0.15
"""A ratio this much worse than its last committed range counts as a regression; machines are noisy."""


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
        if self.target is None:
            return None
        return self.ratio <= self.target if self.better == "lower" else self.ratio >= self.target

    def regressed_from(self, before: "Ratio") -> bool:
        if self.better == "lower":
            return self.ratio > before.high * (1 + TOLERANCE)
        return self.ratio < before.low * (1 - TOLERANCE)


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
    what: str, limit_name: str, limit: float, measured: Sequence[float], unit: str = "s", target: float = 1.0
) -> Ratio:
    """Against a fixed limit, such as an interval that must not be used up."""
    ours = statistics.median(measured)
    return Ratio(what, limit_name, ours, limit, min(measured) / limit, max(measured) / limit, unit, "lower", target)


def regressions(now: Mapping[str, Sequence[Ratio]], before: Mapping[str, Sequence[Ratio]]) -> list[tuple[Ratio, Ratio]]:
    """Ratios that got worse, with what they were; by benchmark. What was not measured before cannot regress."""
    found = []
    for name, ratios in now.items():
        known = {(r.what, r.peer): r for r in before.get(name, ())}
        for ratio in ratios:
            last = known.get((ratio.what, ratio.peer))
            if last is not None and ratio.regressed_from(last):
                found.append((ratio, last))
    return found
