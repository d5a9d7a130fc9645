"""E3: packers re-solve a random walk of write rates, each from its own history; consumers and moves are counted."""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from headgate.model import Assignment, TopicPartition
from headgate.packing import Packer
from headgate.packing.classical import (
    BestFit,
    BestFitDecreasing,
    FirstFit,
    FirstFitDecreasing,
    NextFit,
    NextFitDecreasing,
    WorstFit,
    WorstFitDecreasing,
)
from headgate.packing.modified_any_fit import (
    ModifiedBestFit,
    ModifiedBestFitByPartition,
    ModifiedWorstFit,
    ModifiedWorstFitByPartition,
)
from headgate.packing.protocol import Capacity
from headgate.packing.scores import forced_rscore, rscore

DELTAS = (0, 5, 10, 15, 20, 25)
STARTS = ("uniform", "0", "50", "100")
CAPACITY = 100.0
"""Rates are whole percents of the packing capacity, as in the published runs."""
FRESH = 20_261
"""Mixed into every seed, so that the walks are none that anything was tuned on."""

PUBLISHED = ("NF", "NFD", "FF", "FFD", "WF", "WFD", "BF", "BFD", "MWF", "MBF", "MWFP", "MBFP")


@dataclass(frozen=True, slots=True)
class Case:
    """One random walk."""

    start: str
    """`uniform`, or every partition's first rate in percent of the capacity."""
    delta_percent: int
    seed: int
    iterations: int = 500
    partitions: int = 200

    def rates(self) -> Iterator[dict[TopicPartition, float]]:
        """s_i = s_{i-1} + phi(delta), phi uniform, whole percents, clamped to [0, C] (A-4)."""
        draw = np.random.default_rng((FRESH, self.seed, self.delta_percent, STARTS.index(self.start)))
        names = [TopicPartition("e3", n) for n in range(self.partitions)]
        if self.start == "uniform":
            percent = draw.integers(0, 101, self.partitions)
        else:
            percent = np.full(self.partitions, int(self.start))
        for iteration in range(self.iterations):
            if iteration:
                step = draw.integers(-self.delta_percent, self.delta_percent + 1, self.partitions)
                percent = np.clip(percent + step, 0, 100)
            yield dict(zip(names, percent.astype(float).tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class History:
    """What one packer did on one walk."""

    consumers: tuple[int, ...]
    rscores: tuple[float, ...]
    """Per iteration, over the packing capacity; 0 in the first."""
    forced: tuple[float, ...]
    """The part of each Rscore that could not be avoided from where the packer stood."""


def run(case: Case, packer: Packer, measure_forced: bool = False) -> History:
    before = Assignment()
    consumers, rscores, forced = [], [], []
    for rates in case.rates():
        after = packer.pack(rates, Capacity(CAPACITY), before)
        consumers.append(len(after))
        rscores.append(rscore(before, after, rates, CAPACITY))
        forced.append(forced_rscore(before, rates, CAPACITY) if measure_forced else 0.0)
        before = after
    return History(tuple(consumers), tuple(rscores), tuple(forced))


def published_packers(seed: int) -> dict[str, Packer]:
    """The twelve of L-37. The online ones get their input reshuffled before every packing (A-5)."""
    return {
        "NF": NextFit(_reshuffled(seed)),
        "NFD": NextFitDecreasing(),
        "FF": FirstFit(_reshuffled(seed)),
        "FFD": FirstFitDecreasing(),
        "WF": WorstFit(_reshuffled(seed)),
        "WFD": WorstFitDecreasing(),
        "BF": BestFit(_reshuffled(seed)),
        "BFD": BestFitDecreasing(),
        "MWF": ModifiedWorstFit(),
        "MBF": ModifiedBestFit(),
        "MWFP": ModifiedWorstFitByPartition(),
        "MBFP": ModifiedBestFitByPartition(),
    }


def _reshuffled(seed: int) -> Callable[[Iterable[TopicPartition]], Sequence[TopicPartition]]:
    draw = np.random.default_rng((FRESH, seed))

    def order(partitions: Iterable[TopicPartition]) -> Sequence[TopicPartition]:
        listed = list(partitions)
        return [listed[at] for at in draw.permutation(len(listed))]

    return order


@dataclass(frozen=True, slots=True)
class PublishedRow:
    cbs: float
    rscore: float


def published_values() -> dict[tuple[str, int], PublishedRow]:
    """(packer, delta) → the published values for the uniform start."""
    text = files("headgate.experiments").joinpath("data/e3_published.csv").read_text()
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {(r["packer"], int(r["delta"])): PublishedRow(float(r["cbs"]), float(r["rscore"])) for r in rows}
