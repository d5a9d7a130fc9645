"""Many runs of one experiment: what to run, the results of each run as a line of CSV, and their means and spreads."""

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np

from headgate.simulation.arrivals import PRODUCERS, Arrivals, Floats
from headgate.simulation.outcome import Outcome
from headgate.simulation.run import Decides, RunSettings, simulate

PERIODS_S = (1.03, 1.07)
"""Time between two decisions, work included: a real loop drifts through the producer's second (A-5)."""


@dataclass(frozen=True)
class Case:
    """One row of a table: a policy on a trace under given circumstances."""

    key: str
    policy: str
    """As shown."""
    trace: str
    make: Callable[[], Decides]
    load: Callable[[int], tuple[Floats, Floats]]
    """seed → records per second for each second, shares of the partitions."""
    settings: RunSettings = field(default_factory=RunSettings)
    producer: str = "burst"
    periods_s: tuple[float, ...] = PERIODS_S

    def arrivals(self, seed: int) -> Arrivals:
        rates, shares = self.load(seed)
        return PRODUCERS[self.producer](rates, shares, np.random.default_rng([seed, 5]))


@dataclass(frozen=True, slots=True)
class Run:
    """What one run came to."""

    key: str
    seed: int
    period_s: float
    sla_percent: float
    replica_minutes: float
    ups: int
    downs: int
    reassignments: int
    moves: int
    p50_s: float
    p95_s: float
    p99_s: float
    p999_s: float
    max_s: float
    late_overload: int
    late_start_up: int
    late_scale_up: int
    late_scale_down: int
    late_reassignment: int

    @classmethod
    def of(cls, key: str, seed: int, period_s: float, outcome: Outcome) -> "Run":
        causes = outcome.causes()
        return cls(
            key=key,
            seed=seed,
            period_s=period_s,
            sla_percent=round(outcome.sla_percent, 4),
            replica_minutes=round(outcome.replica_minutes, 3),
            ups=outcome.ups,
            downs=outcome.downs,
            reassignments=outcome.actions["reassign"],
            moves=outcome.moves,
            p50_s=round(outcome.quantile_s(0.5), 4),
            p95_s=round(outcome.quantile_s(0.95), 4),
            p99_s=round(outcome.quantile_s(0.99), 4),
            p999_s=round(outcome.quantile_s(0.999), 4),
            max_s=round(outcome.max_latency_s, 4),
            late_overload=causes["overload"],
            late_start_up=causes["start-up"],
            late_scale_up=causes["scale-up rebalance"],
            late_scale_down=causes["scale-down stall"],
            late_reassignment=causes["reassignment"],
        )


@dataclass(frozen=True, slots=True)
class Spread:
    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(float(np.mean(values)), float(min(values)), float(max(values)))


class Results:
    """Runs by case, kept in a CSV file that grows with every run, so that a long experiment can be resumed."""

    def __init__(self, file: Path, resume: bool = False) -> None:
        self._file = file
        self.runs: list[Run] = []
        if resume and file.exists():
            with file.open(newline="") as lines:
                self.runs = [_run(line) for line in csv.DictReader(lines)]
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("w", newline="") as out:
                csv.writer(out).writerow([f.name for f in fields(Run)])

    def has(self, key: str, seed: int, period_s: float) -> bool:
        return any(r.key == key and r.seed == seed and r.period_s == period_s for r in self.runs)

    def add(self, run: Run) -> None:
        self.runs.append(run)
        with self._file.open("a", newline="") as out:
            csv.writer(out).writerow(asdict(run).values())

    def of(self, key: str) -> list[Run]:
        return [r for r in self.runs if r.key == key]

    def spread(self, key: str, column: str) -> Spread | None:
        values = [float(getattr(r, column)) for r in self.of(key)]
        return Spread.of(values) if values else None


def _run(line: dict[str, str]) -> Run:
    kinds = {f.name: f.type for f in fields(Run)}
    read: dict[str, type] = {"str": str, "int": int, "float": float}
    return Run(**{name: read[str(getattr(kind, "__name__", kind))](line[name]) for name, kind in kinds.items()})


def run_case(case: Case, seed: int, period_s: float) -> Outcome:
    settings = RunSettings(
        **{f.name: getattr(case.settings, f.name) for f in fields(RunSettings) if f.name not in ("seed", "period_s")},
        seed=seed,
        period_s=period_s,
    )
    return simulate(case.arrivals(seed), case.make(), settings)


def run_all(
    cases: Iterable[Case], seeds: int, results: Results, told: Callable[[str, int, int], None] = lambda *_: None
) -> None:
    """Every case with every seed and period that is not there yet, seed by seed: stopped early, all have some runs.

    `told` hears what runs, how far, of how many.
    """
    chosen = list(cases)
    todo = [(case, seed, period) for seed in range(seeds) for case in chosen for period in case.periods_s]
    for n, (case, seed, period_s) in enumerate(todo):
        told(f"{case.trace}: {case.policy}", n, len(todo))
        if not results.has(case.key, seed, period_s):
            results.add(Run.of(case.key, seed, period_s, run_case(case, seed, period_s)))
    told("done", len(todo), len(todo))
