"""What a long run has shown: fault windows, recovery, shares within the SLO, slopes.

Values in, values out. Times are seconds since the run began.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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


UNHURT = "neighbour's "
"""How roles begin whose processes nobody hurts: those of the second pipeline."""


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
    hung: bool = False
    """It did not end, although the brokers were back and nothing else was hurt any more."""


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
    most_disk_bytes: int | None = None
    """That the run took at any time: brokers, lake, logs. None if nobody looked."""
    repeated: int = 0
    """Records that Kafka itself holds more often than they were sent."""
    unused_files: int | None = None
    """That no table uses, after everything stopped and a last round of upkeep. None if nobody looked."""

    @property
    def half_s(self) -> float:
        return self.lasted_s / 2


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
LATELY_S = 300.0
"""Long enough to hold a while in which all brokers are there: storms come every 150 s."""
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


def memory_slopes(seen: Evidence, warm_up_s: float) -> list[Slope]:
    value = {sample: float(sample.rss_bytes) for sample in seen.processes}
    return _slopes(seen, value, warm_up_s)


def file_slopes(seen: Evidence, warm_up_s: float) -> list[Slope]:
    value = {sample: float(sample.open_files) for sample in seen.processes}
    return _slopes(seen, value, warm_up_s)


def connection_slopes(seen: Evidence, warm_up_s: float) -> list[Slope]:
    """Of the most and of the least that a process lately had, whichever grew less: brokers that are away take their
    connections along, and clients are connected to more of them when leaders have moved. What leaks raises both."""
    most: dict[ProcessSample, float] = {}
    least: dict[ProcessSample, float] = {}
    lives: dict[str, deque[ProcessSample]] = {}
    for sample in sorted(seen.processes, key=lambda sample: sample.at_s):
        lately = lives.setdefault(sample.role + sample.life, deque())
        lately.append(sample)
        while sample.at_s - lately[0].at_s > LATELY_S:
            lately.popleft()
        most[sample] = float(max(one.connections for one in lately))
        least[sample] = float(min(one.connections for one in lately))
    pairs = zip(_slopes(seen, most, warm_up_s), _slopes(seen, least, warm_up_s), strict=True)
    return [
        high if (high.per_hour or 0.0) <= (low.per_hour or 0.0) else replace(high, per_hour=low.per_hour)
        for high, low in pairs
    ]


def _slopes(seen: Evidence, value: Mapping[ProcessSample, float], warm_up_s: float) -> list[Slope]:
    roles = sorted({sample.role for sample in seen.processes})
    return [slope(role, seen.processes, value, seen.half_s, warm_up_s) for role in roles]


SHORTEST_S = 900.0
"""A shorter run sees how upkeep's first rounds fill up, not whether they keep up."""


def growth_of_bounded(samples: Sequence[tuple[float, float]], until_s: float) -> float | None:
    """The median of the last quarter of the run over that of the second; None if the run cannot tell."""
    if until_s < SHORTEST_S:
        return None
    second = [value for at_s, value in samples if until_s / 4 <= at_s < until_s / 2]
    last = [value for at_s, value in samples if at_s >= 3 * until_s / 4]
    return median(last) / median(second) if second and last and median(second) else None
