"""The packing experiment: E3 for the twelve published packers and for ours, and the distance to the optimum."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean

from headgate.experiments import e3
from headgate.model import Assignment
from headgate.packing.exact import Exact
from headgate.packing.protocol import Capacity
from headgate.packing.repair import Repair
from headgate.packing.scores import cardinal_bin_scores, rscore

Advance = Callable[[str], None]
"""Called with what comes next, once per unit of work."""

DEFAULT_PRICE = 1.25
PRICES = (0.0, DEFAULT_PRICE, 2.5, inf)
CAPACITY_RATIO = 0.75
"""Packing capacity over consumer capacity as published, 1.5 and 2.0 MB/s: turns one Rscore into the other (A-2)."""


def ours(price: float) -> str:
    return f"repair {price:g}"


@dataclass(frozen=True, slots=True)
class Settings:
    seeds: int = 8
    """Walks from the uniform start; from the others, for which no values are published, one each."""
    iterations: int = 500
    deltas: tuple[int, ...] = e3.DELTAS
    starts: tuple[str, ...] = e3.STARTS
    exact_deltas: tuple[int, ...] = (5, 15, 25)
    exact_every: int = 10
    """Of 100 iterations, every how many are solved exactly."""
    exact_partitions: int = 40

    @classmethod
    def quick(cls) -> "Settings":
        return cls(seeds=2, iterations=100, deltas=(5, 15, 25), starts=("uniform",), exact_every=50)

    def cases(self) -> list[e3.Case]:
        return [
            e3.Case("uniform", delta, seed, self.iterations)
            for delta in self.deltas
            for seed in range(1, 1 + self.seeds)
        ] + [
            e3.Case(start, delta, 1, self.iterations)
            for start in self.starts
            if start != "uniform"
            for delta in self.deltas
        ]

    def exact_cases(self) -> list[e3.Case]:
        return [e3.Case("uniform", delta, 1, 100, self.exact_partitions) for delta in self.exact_deltas]


@dataclass(frozen=True, slots=True)
class Row:
    """One packer on one walk."""

    start: str
    delta: int
    seed: int
    packer: str
    cbs: float
    """Against the best of the twelve."""
    cbs_of_all: float
    """Against the best of the twelve and ours."""
    rscore: float
    """Mean, over the packing capacity as in the published plots."""
    rscore_by_consumer_capacity: float
    forced_share: float
    """Of the moved weight, what had to move; only measured for ours."""
    consumers: float


def measure(settings: Settings, advance: Advance) -> list[Row]:
    return [row for case in settings.cases() for row in _rows(case, advance)]


def _rows(case: e3.Case, advance: Advance) -> Iterator[Row]:
    # From the other starts only the default is of interest: the knob's range is shown from the published one.
    prices = PRICES if case.start == "uniform" else (DEFAULT_PRICE,)
    packers = {**e3.published_packers(case.seed), **{ours(price): Repair(price) for price in prices}}
    histories: dict[str, e3.History] = {}
    for name, packer in packers.items():
        advance(f"start {case.start}, δ {case.delta_percent}, seed {case.seed}: {name}")
        histories[name] = e3.run(case, packer, measure_forced=name not in e3.PUBLISHED)
    counts = {name: history.consumers for name, history in histories.items()}
    of_twelve, of_all = cardinal_bin_scores(counts, e3.PUBLISHED), cardinal_bin_scores(counts)
    for name, history in histories.items():
        moved = fmean(history.rscores)
        yield Row(
            case.start,
            case.delta_percent,
            case.seed,
            name,
            of_twelve[name],
            of_all[name],
            moved,
            moved * CAPACITY_RATIO,
            fmean(history.forced) / moved if moved else 0.0,
            fmean(history.consumers),
        )


@dataclass(frozen=True, slots=True)
class Distance:
    """One packing beside the exact answers from the same assignment."""

    partitions: int
    delta: int
    iteration: int
    price: float
    consumers: int
    fewest_consumers: int
    fewest_proven: bool
    moved: float
    least_moved: float
    """With as many consumers as ours used."""
    least_moved_proven: bool


def distances(settings: Settings, advance: Advance) -> list[Distance]:
    found: list[Distance] = []
    for case in settings.exact_cases():
        for price in (DEFAULT_PRICE, inf):
            advance(f"optimum of {case.partitions} partitions, δ {case.delta_percent}, price {price:g}")
            found += _distances(case, price, settings.exact_every)
    return found


def _distances(case: e3.Case, price: float, every: int) -> Iterator[Distance]:
    packer, exact, capacity = Repair(price), Exact(effort=3.0), Capacity(e3.CAPACITY)
    before = Assignment()
    for iteration, rates in enumerate(case.rates()):
        after = packer.pack(rates, capacity, before)
        if iteration % every == every - 1:
            best = exact.solve(rates, capacity, before)
            calmest = exact.solve(rates, capacity, before, improving=after)
            yield Distance(
                case.partitions,
                case.delta_percent,
                iteration,
                price,
                len(after),
                len(best.assignment),
                best.fewest,
                rscore(before, after, rates, e3.CAPACITY),
                rscore(before, calmest.assignment, rates, e3.CAPACITY),
                calmest.least_moved,
            )
        before = after


@dataclass(frozen=True, slots=True)
class Mean:
    cbs: float
    cbs_of_all: float
    rscore: float
    forced_share: float


def means(rows: Sequence[Row], start: str = "uniform") -> dict[tuple[str, int], Mean]:
    """(packer, delta) → mean over the seeds."""
    grouped: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        if row.start == start:
            grouped.setdefault((row.packer, row.delta), []).append(row)
    return {
        key: Mean(
            fmean(r.cbs for r in of),
            fmean(r.cbs_of_all for r in of),
            fmean(r.rscore for r in of),
            fmean(r.forced_share for r in of),
        )
        for key, of in grouped.items()
    }
