"""Which promises a long run has kept, and which it has broken.

Values in, values out. Times are seconds since the run began.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.chaos.judgement import (
    UNHURT,
    Evidence,
    Recovery,
    Slope,
    connection_slopes,
    fault_windows,
    file_slopes,
    growth_of_bounded,
    latencies,
    memory_slopes,
    recoveries,
    touches,
)

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
    warm_up_s: float = 900.0
    """Caches, compiled code and connections of a JVM come for minutes, and the heap of a process that commits takes a
    quarter of an hour to reach the size at which it stays, also where nobody hurts it (the second pipeline)."""
    memory_bytes_per_hour: float = 30e6
    memory_share_per_hour: float = 0.10
    files_per_hour: float = 10.0
    connections_per_hour: float = 30.0
    """Brokers come and go dozens of times, and clients open connections as partitions get other leaders: what leaked
    one each time would show twice as many."""
    unhurt_connections_per_hour: float = 20.0
    """Of processes that nobody hurts, whose partitions stay the same: as leaders move from broker to broker, their
    clients come to be connected to all of them (14 more were seen in an hour), and then no more."""
    most_snapshots: int = 60
    """`keep_snapshots` and half as many before they are expired (45), those of full hours, those with tags."""
    bounded_growth: float = 1.5
    faults_per_hour: float = 200.0
    kinds: int = 12
    calm_rounds_per_hour: float = 6.0
    """Of upkeep, outside fault windows: of the fifty rounds in an hour about every third is."""
    disk_bytes: float = 10e9

    @property
    def ordinary_s(self) -> float:
        """A lag of half of what the SLO allows is nobody's trouble."""
        return self.slo_s / 2

    def memory(self, of: Slope) -> float:
        """Bytes per hour: a tenth of what the role takes, or 30 MB if that is more."""
        return max(self.memory_bytes_per_hour, self.memory_share_per_hour * of.median)

    def connections(self, of: Slope) -> float:
        return self.unhurt_connections_per_hour if of.role.startswith(UNHURT) else self.connections_per_hour


def judge(seen: Evidence, allowed: Tolerances) -> list[Promise]:
    """Every promise, the gravest first."""
    promises = [
        _exactly_once(seen),
        _harm_enough(seen, allowed),
        _got_over(seen, allowed),
        _in_time(seen, allowed),
        *(_flat_memory(of, allowed) for of in _judged(memory_slopes(seen, allowed.warm_up_s))),
        *(
            _flat(f"open files of the {of.role} are flat", of, allowed.files_per_hour)
            for of in _judged(file_slopes(seen, allowed.warm_up_s))
        ),
        *(
            _flat(f"connections of the {of.role} are flat", of, allowed.connections(of))
            for of in _judged(connection_slopes(seen, allowed.warm_up_s))
        ),
        *_unhurt_live_on(seen),
        *_bounded(seen, allowed),
        _nothing_is_left_over(seen),
        _disk_is_enough(seen, allowed),
        _upkeep_works(seen, allowed),
    ]
    if seen.interrupted or seen.lasted_s < WHOLE_S:
        return promises
    return [
        Promise(p.name, False, f"{p.evidence}, which a run of this length must tell") if p.kept is None else p
        for p in promises
    ]


def broken(promises: Iterable[Promise]) -> list[Promise]:
    return [promise for promise in promises if promise.kept is False]


def verdict(promises: Sequence[Promise]) -> str:
    if wrong := broken(promises):
        listed = "; ".join(f"{promise.name} ({promise.evidence})" for promise in wrong)
        return f"**{len(wrong)} of {len(promises)} promises were broken**: {listed}."
    shown = sum(promise.kept is True for promise in promises)
    if shown < len(promises):
        return f"**No promise was broken**; {shown} of {len(promises)} were shown, the others need a longer run."
    return "**Every promise was kept.**"


def _exactly_once(seen: Evidence) -> Promise:
    kept = (
        not seen.violations
        and seen.acknowledged > 0
        and seen.rows + seen.rejected == (seen.acknowledged + seen.repeated)
    )
    numbers = f"{seen.acknowledged:,} records acknowledged, {seen.rows:,} rows, {seen.rejected:,} rejects"
    if seen.repeated:
        numbers += f"; {seen.repeated:,} are in Kafka once more than they were sent, and so they are in the lake"
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


def _judged(slopes: Sequence[Slope]) -> list[Slope]:
    """Consumers come and go with the load, and none of them may grow old: the neighbour's, of the same kind, tells."""
    roles = {of.role for of in slopes}
    return [of for of in slopes if of.per_hour is not None or f"{UNHURT}{of.role}" not in roles]


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


def _unhurt_live_on(seen: Evidence) -> list[Promise]:
    """Brokers that are away are no reason to replace a consumer that nobody hurt."""
    processes: dict[str, set[str]] = {}
    for sample in seen.processes:
        if sample.role.startswith(UNHURT):
            processes.setdefault(sample.role, set()).add(sample.life.split("/")[0])
    if not processes:
        return []
    replaced = [f"{role} was {len(lives)} processes" for role, lives in sorted(processes.items()) if len(lives) > 1]
    name = "no process that nobody hurts is replaced"
    return [Promise(name, not replaced, "; ".join(replaced) or f"{len(processes)} roles, one process each")]


def _bounded(seen: Evidence, allowed: Tolerances) -> list[Promise]:
    """A table that few records reach fills up slowly, so how fast it grows says nothing until it is full."""
    promises = []
    for table in sorted({sample.table for sample in seen.lake}):
        of = [sample for sample in seen.lake if sample.table == table]
        most = max(sample.snapshots for sample in of)
        evidence = f"at most {most}, {allowed.most_snapshots} are allowed"
        promises.append(Promise(f"snapshots of {table} stay bounded", most <= allowed.most_snapshots, evidence))
        name = f"metadata of {table} stays bounded"
        grown = growth_of_bounded([(s.at_s, s.metadata_bytes / max(1, s.snapshots)) for s in of], seen.lasted_s)
        if grown is None:
            promises.append(Promise(name, None, "the run was too short, or the table too rarely seen"))
            continue
        evidence = (
            f"for each snapshot, last quarter {grown:.2f} times the second; {allowed.bounded_growth:g} is allowed"
        )
        promises.append(Promise(name, grown <= allowed.bounded_growth, evidence))
    return promises


def _nothing_is_left_over(seen: Evidence) -> Promise:
    """How many files wait for their age at a moment goes with the rate of commits; what nobody takes shows here."""
    name = "a last round of upkeep leaves no file that no table uses"
    if seen.unused_files is None:
        return Promise(name, None, "nobody looked")
    return Promise(name, not seen.unused_files, f"{seen.unused_files} left")


def _disk_is_enough(seen: Evidence, allowed: Tolerances) -> Promise:
    name = f"disk stays under {allowed.disk_bytes / 1e9:g} GB"
    if seen.most_disk_bytes is None:
        return Promise(name, None, "nobody looked")
    return Promise(name, seen.most_disk_bytes <= allowed.disk_bytes, f"at most {seen.most_disk_bytes / 1e9:.1f} GB")


def _upkeep_works(seen: Evidence, allowed: Tolerances) -> Promise:
    """A round that hung is no fault's doing: it had all the time it could want after the last one."""
    name = "headgate maintain --apply works outside fault windows"
    windows = fault_windows(seen.faults, allowed.allowance_s)
    calm = [ran for ran in seen.upkeep if not touches(windows, ran.start_s, ran.end_s)]
    failed = [ran for ran in seen.upkeep if ran.exit_code]
    calm_failed = [ran for ran in calm if ran.exit_code]
    hung = [ran for ran in seen.upkeep if ran.hung]
    evidence = (
        f"{len(seen.upkeep)} rounds, {len(calm)} of them outside fault windows; "
        f"{len(failed)} failed, {len(calm_failed)} of those outside"
    )
    if hung:
        return Promise(name, False, f"{evidence}; the one begun at {hung[0].start_s:.0f} s never ended")
    if calm_failed:
        return Promise(name, False, evidence)
    needed = max(1.0, allowed.calm_rounds_per_hour * seen.lasted_s / 3600)
    if len(calm) < needed:
        return Promise(name, None, f"{evidence}; {needed:.0f} outside are needed to tell")
    return Promise(name, True, evidence)
