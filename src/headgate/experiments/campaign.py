"""Many runs of one experiment: what to run, the results of each run as a line of CSV, and their means and spreads."""

import csv
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from headgate.simulation.arrivals import PRODUCERS, Arrivals, Floats
from headgate.simulation.outcome import Outcome
from headgate.simulation.run import Decides, RunSettings, simulate

_DECIDING = ("headgate.model", "headgate.packing", "headgate.policies", "headgate.simulation")
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
    code: str = ""
    """Which code and settings it ran with, see `fingerprint`; empty where that was not written down yet."""

    @classmethod
    def of(cls, key: str, seed: int, period_s: float, outcome: Outcome, code: str = "") -> "Run":
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
            code=code,
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

    def __init__(self, file: Path, resume: bool = False, keep_old: bool = False) -> None:
        """Runs of other code are done anew, unless `keep_old`; those that do not say of which code are kept."""
        self._file = file
        self._keep_old = keep_old
        self.runs: list[Run] = []
        self._older: set[tuple[str, int, float]] = set()
        """Kept, though of other code."""
        if resume and file.exists():
            with file.open(newline="") as lines:
                self.runs = [_run(line) for line in csv.DictReader(lines)]
        file.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def _write(self) -> None:
        part = self._file.with_suffix(".part")  # stopped in between, the runs so far are not lost
        with part.open("w", newline="") as out:
            rows = csv.writer(out)
            rows.writerow([f.name for f in fields(Run)])
            rows.writerows(asdict(run).values() for run in self.runs)
        part.replace(self._file)

    def has(self, key: str, seed: int, period_s: float, code: str) -> bool:
        """Whether there is such a run; one of other code is forgotten, or kept and counted."""
        wanted = key, seed, period_s
        found = next((r for r in self.runs if (r.key, r.seed, r.period_s) == wanted), None)
        if found is None:
            return False
        if found.code in ("", code):
            return True
        if self._keep_old:
            self._older.add(wanted)
            return True
        self.runs.remove(found)
        self._write()
        return False

    def provenance(self) -> str:
        """How many runs are not known to be of the present code; empty if all are."""
        unknown = sum(1 for run in self.runs if not run.code)
        said = [f"{unknown} of {len(self.runs)} runs do not say which code they are of"] if unknown else []
        said += [f"{len(self._older)} are of older code"] if self._older else []
        return f"{'; '.join(said)}.\n" if said else ""

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
    found = {"code": "", **line}
    return Run(**{name: read[str(getattr(kind, "__name__", kind))](found[name]) for name, kind in kinds.items()})


def fingerprint(case: Case) -> str:
    """Of the policy's and the run's settings, and of everything that decides or simulates."""
    settings = re.sub(r" at 0x[0-9a-f]+", "", f"{case.make!r} {case.load!r} {case.settings!r} {case.producer}")
    return hashlib.sha256(f"{_source()} {settings}".encode()).hexdigest()[:12]


@cache
def _source() -> str:
    """A hash of the text of the packages that a run's result comes from."""
    found = hashlib.sha256()
    for package in _DECIDING:
        for file in sorted(p.name for p in files(package).iterdir() if p.name.endswith(".py")):
            found.update(files(package).joinpath(file).read_bytes())
    return found.hexdigest()


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
        code = fingerprint(case)
        if not results.has(case.key, seed, period_s, code):
            results.add(Run.of(case.key, seed, period_s, run_case(case, seed, period_s), code))
    told("done", len(todo), len(todo))
