"""Timing two things in turns, so that whatever else the machine does hits both."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ratio:
    what: str
    peer: str
    ours_s: float
    peer_s: float
    low: float
    high: float

    @property
    def ratio(self) -> float:
        return self.ours_s / self.peer_s


def compare(
    what: str, ours: Callable[[int], object], peer: str, peers: Callable[[int], object], turns: int, warm_up: int
) -> Ratio:
    """Medians over `turns`; low and high are the quartiles of the per-turn ratios. Turn numbers are handed in."""
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


def of_rounds(what: str, peer: str, rounds: Sequence[tuple[float, float]]) -> Ratio:
    """Of (ours, peer's) measured in turns: medians, and the range of the ratios."""
    ratios = [ours / peers for ours, peers in rounds]
    medians = [statistics.median(values) for values in zip(*rounds, strict=True)]
    return Ratio(what, peer, medians[0], medians[1], min(ratios), max(ratios))
