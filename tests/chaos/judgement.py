"""What a long run has shown: fault windows, recovery, shares within the SLO, slopes, and which promises were kept.

Values in, values out. Times are seconds since the run began.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

import numpy as np

from headgate.lake.latency import weighted_quantile

# ------------------------------------------------------------------------------------------------- what was seen


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    start_s: float
    end_s: float
    """When the harm was undone, or nobody suffered any more of it; recovery comes after."""
    happened: bool = True
    """False for one that did not come about: it has a window, but does not count."""


@dataclass(frozen=True, slots=True)
class LagSample:
    at_s: float
    lag_records: int
    written_records: int
    """Ever, over all partitions."""
    consumers: int


@dataclass(frozen=True, slots=True)
class ProcessSample:
    at_s: float
    role: str
    life: str
    """Which process; a restarted one is another life of the same role."""
    age_s: float
    rss_bytes: int
    open_files: int
    """Those with a name, on a disk."""
    connections: int
    """All other descriptors: sockets, and what waits for them."""


@dataclass(frozen=True, slots=True)
class LakeSample:
    at_s: float
    table: str
    snapshots: int
    metadata_bytes: int
    """Of the current metadata file, which every commit writes anew."""
    metadata_files: int
    data_files: int
    disk_bytes: int
    """The table's whole folder."""


@dataclass(frozen=True, slots=True)
class Committed:
    """One snapshot: evenly spaced quantiles of Kafka → committed over its records."""

    at_s: float
    records: int
    latency_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """One `headgate maintain --apply` from outside that nobody killed."""

    start_s: float
    end_s: float
    exit_code: int


# ------------------------------------------------------------------------------------------------------- windows

Window = tuple[float, float]


def merged(windows: Iterable[Window]) -> list[Window]:
    """Windows that touch become one."""
    joined: list[Window] = []
    for start, end in sorted(windows):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def fault_windows(faults: Iterable[Fault], allowance_s: float) -> list[Window]:
    """From each fault's start until its end and what it may take to recover from it."""
    return merged((fault.start_s, fault.end_s + allowance_s) for fault in faults)


def touches(windows: Sequence[Window], start_s: float, end_s: float) -> bool:
    return any(start <= end_s and start_s <= end for start, end in windows)


def covered_s(windows: Sequence[Window], until_s: float) -> float:
    return sum(max(0.0, min(end, until_s) - max(0.0, start)) for start, end in windows)


# ------------------------------------------------------------------------------------------------------- latency


@dataclass(frozen=True, slots=True)
class Latency:
    records: float
    p50_s: float
    p99_s: float
    worst_s: float
    within: float
    """Share of the records that were within the SLO."""


def latencies(
    commits: Iterable[Committed], windows: Sequence[Window], slo_s: float
) -> tuple[Latency | None, Latency | None]:
    """(outside, inside) the windows. A record is inside if any of its time from Kafka to the commit was."""
    outside: list[tuple[float, float]] = []
    inside: list[tuple[float, float]] = []
    for commit in commits:
        for latency_s in commit.latency_s:
            where = inside if touches(windows, commit.at_s - latency_s, commit.at_s) else outside
            where.append((latency_s, commit.records / len(commit.latency_s)))
    return _latency(outside, slo_s), _latency(inside, slo_s)


def _latency(samples: Sequence[tuple[float, float]], slo_s: float) -> Latency | None:
    total = sum(weight for _, weight in samples)
    if not total:
        return None
    return Latency(
        total,
        weighted_quantile(samples, 0.5),
        weighted_quantile(samples, 0.99),
        max(latency_s for latency_s, _ in samples),
        sum(weight for latency_s, weight in samples if latency_s <= slo_s) / total,
    )


# ------------------------------------------------------------------------------------------------------ recovery

BEFORE_S = 15.0
"""How far back the lag before a fault is looked for."""
STAYS_S = 5.0
"""Lag counts as back when it stays that low for this long."""


@dataclass(frozen=True, slots=True)
class Recovery:
    fault: Fault
    took_s: float | None
    """From the fault's start until the lag was low again; None if it never was."""


def recoveries(faults: Sequence[Fault], lags: Sequence[LagSample], ordinary_s: float = 0.0) -> list[Recovery]:
    """Until the lag is back under what it was before, or under what is written in `ordinary_s`: a lag of a second or
    two goes up and down with the load. Faults that overlap, or that come before the last one was got over, are measured
    against the lag before the first of them: who never recovers does not lower the bar for what follows."""
    found = []
    ordinary_records = int(ordinary_s * _written_per_s(lags))
    bar_records = 0
    back_s: float | None = -inf
    for start_s, end_s in merged((fault.start_s, fault.end_s) for fault in faults):
        if back_s is not None and back_s < start_s:
            before = [lag.lag_records for lag in lags if start_s - BEFORE_S <= lag.at_s < start_s]
            bar_records = max([*before, ordinary_records] if before else [bar_records, ordinary_records])
        for fault in faults:
            if fault.happened and start_s <= fault.start_s <= end_s:
                low_s = _back_s(lags, fault.end_s, bar_records)
                found.append(Recovery(fault, None if low_s is None else max(0.0, low_s - fault.start_s)))
        back_s = _back_s(lags, end_s, bar_records)
    return found


def _written_per_s(lags: Sequence[LagSample]) -> float:
    if len(lags) < 2:
        return 0.0
    return (lags[-1].written_records - lags[0].written_records) / (lags[-1].at_s - lags[0].at_s)


def _back_s(lags: Sequence[LagSample], after_s: float, bar_records: int) -> float | None:
    """When the lag came down after that, to stay."""
    since: float | None = None
    for lag in lags:
        if lag.at_s < after_s:
            continue
        if lag.lag_records > bar_records:
            since = None
        elif since is None:
            since = lag.at_s
        elif lag.at_s - since >= STAYS_S:
            return since
    return since  # the run ended while it was low


# -------------------------------------------------------------------------------------------------------- slopes

_APART_S = 60.0
"""Two samples closer than this say more about noise than about growth."""
FEWEST_PAIRS_S = 300.0
"""A life observed for less than this after its warm-up says nothing about growth per hour."""


@dataclass(frozen=True, slots=True)
class Slope:
    role: str
    lives: int
    """How many processes played the role in all."""
    judged_s: float
    """How long the longest of them was seen in the part of the run that counts."""
    median: float
    most: float
    per_hour: float | None
    """None if no life was long enough to tell."""

    def is_flat(self, tolerance: float) -> bool | None:
        return None if self.per_hour is None else self.per_hour <= tolerance


def slope(
    role: str, samples: Sequence[ProcessSample], value: Mapping[ProcessSample, float], after_s: float, warm_up_s: float
) -> Slope:
    """Growth per hour of one role: the median over pairs of samples of the same life (Theil and Sen), after `after_s`
    and after each life's warm-up. A process is only ever compared with itself: a young one is smaller for good."""
    mine = [sample for sample in samples if sample.role == role]
    lives: dict[str, list[ProcessSample]] = {}
    for sample in mine:
        if sample.at_s >= after_s and sample.age_s >= warm_up_s:
            lives.setdefault(sample.life, []).append(sample)
    growth = []
    longest_s = 0.0
    for seen in lives.values():
        at = np.array([sample.at_s for sample in seen])
        values = np.array([value[sample] for sample in seen])
        if at[-1] - at[0] < FEWEST_PAIRS_S:
            continue
        longest_s = max(longest_s, float(at[-1] - at[0]))
        first, second = np.triu_indices(len(at), 1)
        apart = at[second] - at[first]
        far = apart >= _APART_S
        growth.append((values[second] - values[first])[far] / apart[far] * 3600)
    warm = [value[sample] for sample in mine if sample.age_s >= warm_up_s] or [value[sample] for sample in mine]
    return Slope(
        role,
        len({sample.life for sample in mine}),
        longest_s,
        median(warm) if warm else 0.0,
        max((value[sample] for sample in mine), default=0.0),
        float(np.median(np.concatenate(growth))) if growth else None,
    )


SHORTEST_S = 900.0
"""A shorter run sees how upkeep's first rounds fill up, not whether they keep up."""


def growth_of_bounded(samples: Sequence[tuple[float, float]], until_s: float) -> float | None:
    """The median of the last quarter of the run over that of the second; None if the run cannot tell."""
    if until_s < SHORTEST_S:
        return None
    second = [value for at_s, value in samples if until_s / 4 <= at_s < until_s / 2]
    last = [value for at_s, value in samples if at_s >= 3 * until_s / 4]
    return median(last) / median(second) if second and last and median(second) else None


# ------------------------------------------------------------------------------------------------------ promises

WHOLE_S = 3600.0
"""A run this long that leaves something open has not shown it, and does not pass."""


@dataclass(frozen=True, slots=True)
class Promise:
    name: str
    kept: bool | None
    """None: this run cannot tell."""
    evidence: str


@dataclass(frozen=True, slots=True)
class Tolerances:
    slo_s: float
    slo_share: float
    allowance_s: float
    recovery_s: float
    warm_up_s: float = 600.0
    """Caches, compiled code and connections of a JVM come for minutes."""
    memory_bytes_per_hour: float = 30e6
    memory_share_per_hour: float = 0.10
    files_per_hour: float = 10.0
    connections_per_hour: float = 30.0
    """Brokers come and go dozens of times, and clients open connections as partitions get other leaders: what leaked
    one each time would show twice as many."""
    bounded_growth: float = 1.5
    faults_per_hour: float = 200.0
    kinds: int = 12

    @property
    def ordinary_s(self) -> float:
        """A lag of half of what the SLO allows is nobody's trouble."""
        return self.slo_s / 2

    def memory(self, of: Slope) -> float:
        """Bytes per hour: a tenth of what the role takes, or 30 MB if that is more."""
        return max(self.memory_bytes_per_hour, self.memory_share_per_hour * of.median)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that a run brought home."""

    lasted_s: float
    interrupted: bool
    violations: tuple[str, ...]
    acknowledged: int
    rows: int
    rejected: int
    faults: tuple[Fault, ...]
    lags: tuple[LagSample, ...]
    processes: tuple[ProcessSample, ...]
    lake: tuple[LakeSample, ...]
    commits: tuple[Committed, ...]
    upkeep: tuple[Command, ...]

    @property
    def half_s(self) -> float:
        return self.lasted_s / 2


def memory_slopes(seen: Evidence, warm_up_s: float) -> list[Slope]:
    value = {sample: float(sample.rss_bytes) for sample in seen.processes}
    return _slopes(seen, value, warm_up_s)


def file_slopes(seen: Evidence, warm_up_s: float) -> list[Slope]:
    value = {sample: float(sample.open_files) for sample in seen.processes}
    return _slopes(seen, value, warm_up_s)


def connection_slopes(seen: Evidence, warm_up_s: float) -> list[Slope]:
    value = {sample: float(sample.connections) for sample in seen.processes}
    return _slopes(seen, value, warm_up_s)


def _slopes(seen: Evidence, value: Mapping[ProcessSample, float], warm_up_s: float) -> list[Slope]:
    roles = sorted({sample.role for sample in seen.processes})
    return [slope(role, seen.processes, value, seen.half_s, warm_up_s) for role in roles]


def judge(seen: Evidence, allowed: Tolerances) -> list[Promise]:
    """Every promise, the gravest first."""
    promises = [
        _exactly_once(seen),
        _harm_enough(seen, allowed),
        _got_over(seen, allowed),
        _in_time(seen, allowed),
        *(_flat_memory(of, allowed) for of in memory_slopes(seen, allowed.warm_up_s)),
        *(
            _flat(f"open files of the {of.role} are flat", of, allowed.files_per_hour)
            for of in file_slopes(seen, allowed.warm_up_s)
        ),
        *(
            _flat(f"connections of the {of.role} are flat", of, allowed.connections_per_hour)
            for of in connection_slopes(seen, allowed.warm_up_s)
        ),
        *_bounded(seen, allowed),
        _upkeep_works(seen, allowed),
    ]
    if seen.interrupted or seen.lasted_s < WHOLE_S:
        return promises
    return [
        Promise(p.name, False, f"{p.evidence}, which a run of this length must tell") if p.kept is None else p
        for p in promises
    ]


def first_broken(promises: Iterable[Promise]) -> Promise | None:
    return next((promise for promise in promises if promise.kept is False), None)


def verdict(promises: Sequence[Promise]) -> str:
    broken = first_broken(promises)
    if broken is not None:
        return f"**Broken: {broken.name}** ({broken.evidence})."
    shown = sum(promise.kept is True for promise in promises)
    if shown < len(promises):
        return f"**No promise was broken**; {shown} of {len(promises)} were shown, the others need a longer run."
    return "**Every promise was kept.**"


def _exactly_once(seen: Evidence) -> Promise:
    kept = not seen.violations and seen.acknowledged > 0 and seen.rows + seen.rejected == seen.acknowledged
    numbers = f"{seen.acknowledged:,} records acknowledged, {seen.rows:,} rows, {seen.rejected:,} rejects"
    return Promise("every record exactly once", kept, "; ".join((numbers, *seen.violations[:5])))


def _harm_enough(seen: Evidence, allowed: Tolerances) -> Promise:
    """A soak that hurt nobody proves nothing."""
    needed = allowed.faults_per_hour * seen.lasted_s / 3600
    happened = [fault for fault in seen.faults if fault.happened]
    kinds = len({fault.kind for fault in happened})
    evidence = f"{len(happened)} faults of {kinds} kinds in {seen.lasted_s / 60:.1f} min"
    if seen.interrupted:
        return Promise("enough harm", None, f"{evidence}, interrupted")
    return Promise("enough harm", len(happened) >= needed and kinds >= allowed.kinds, evidence)


def _got_over(seen: Evidence, allowed: Tolerances) -> Promise:
    name = f"every fault got over within {allowed.recovery_s:g} s"
    all_of_them = recoveries(seen.faults, seen.lags, allowed.ordinary_s)
    end_s = seen.lags[-1].at_s if seen.lags else seen.lasted_s
    never = [r for r in all_of_them if _took_s(r, end_s) > allowed.recovery_s]
    if never:
        worst = never[0]
        took = "never" if worst.took_s is None else f"after {worst.took_s:.0f} s"
        said = f"{len(never)} were not, first {worst.fault.kind} at {worst.fault.start_s:.0f} s: {took}"
        return Promise(name, False, said)
    slowest = max(all_of_them, key=lambda r: r.took_s or 0.0, default=None)
    if slowest is None:
        return Promise(name, None, "there was no fault")
    return Promise(name, True, f"slowest {slowest.took_s or 0:.0f} s, {slowest.fault.kind}")


def _took_s(recovery: Recovery, end_s: float) -> float:
    """From the fault's end; what was not got over took until the end of the run at least."""
    fault = recovery.fault
    return (end_s if recovery.took_s is None else fault.start_s + recovery.took_s) - fault.end_s


def _in_time(seen: Evidence, allowed: Tolerances) -> Promise:
    name = f"{allowed.slo_share:.0%} of records within {allowed.slo_s:g} s outside fault windows"
    outside, _ = latencies(seen.commits, fault_windows(seen.faults, allowed.allowance_s), allowed.slo_s)
    if outside is None:
        return Promise(name, None, "no record came and went outside a fault window")
    evidence = f"{outside.within:.2%} of {outside.records:,.0f}, p99 {outside.p99_s:.1f} s"
    return Promise(name, outside.within >= allowed.slo_share, evidence)


def _flat_memory(of: Slope, allowed: Tolerances) -> Promise:
    name = f"memory of the {of.role} is flat"
    if of.per_hour is None:
        return Promise(name, None, "no life was long enough in the second half")
    evidence = f"{of.per_hour / 1e6:+.0f} MB an hour, {allowed.memory(of) / 1e6:.0f} are allowed"
    return Promise(name, of.is_flat(allowed.memory(of)), evidence)


def _flat(name: str, of: Slope, most_per_hour: float) -> Promise:
    if of.per_hour is None:
        return Promise(name, None, "no life was long enough in the second half")
    return Promise(name, of.is_flat(most_per_hour), f"{of.per_hour:+.1f} an hour, {most_per_hour:g} are allowed")


def _bounded(seen: Evidence, allowed: Tolerances) -> list[Promise]:
    promises = []
    for table in sorted({sample.table for sample in seen.lake}):
        of = [sample for sample in seen.lake if sample.table == table]
        for what, values in (
            ("snapshots", [(s.at_s, float(s.snapshots)) for s in of]),
            ("metadata", [(s.at_s, float(s.metadata_bytes)) for s in of]),
            ("metadata files", [(s.at_s, float(s.metadata_files)) for s in of]),
        ):
            grown = growth_of_bounded(values, seen.lasted_s)
            name = f"{what} of {table} stay bounded"
            if grown is None:
                promises.append(Promise(name, None, "the run was too short, or the table too rarely seen"))
                continue
            evidence = f"last quarter {grown:.2f} times the second; {allowed.bounded_growth:g} is allowed"
            promises.append(Promise(name, grown <= allowed.bounded_growth, evidence))
    return promises


def _upkeep_works(seen: Evidence, allowed: Tolerances) -> Promise:
    name = "headgate maintain --apply works outside fault windows"
    windows = fault_windows(seen.faults, allowed.allowance_s)
    calm = [ran for ran in seen.upkeep if not touches(windows, ran.start_s, ran.end_s)]
    failed = [ran for ran in seen.upkeep if ran.exit_code]
    calm_failed = [ran for ran in calm if ran.exit_code]
    evidence = f"{len(seen.upkeep)} rounds, {len(failed)} failed, {len(calm_failed)} of those outside fault windows"
    return Promise(name, not calm_failed if seen.upkeep else None, evidence)
