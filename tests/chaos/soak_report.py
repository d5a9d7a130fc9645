"""A long run on paper: a page in Markdown, a picture, and the numbers behind both as JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from textwrap import fill

from matplotlib.figure import Figure

from headgate.experiments.plots import save
from tests.chaos.judgement import (
    LATELY_S,
    Evidence,
    Latency,
    Slope,
    connection_slopes,
    covered_s,
    fault_windows,
    file_slopes,
    latencies,
    memory_slopes,
    recoveries,
)
from tests.chaos.promises import Promise, Tolerances, verdict
from tests.chaos.storms import ROUND_S, STORM_S

_WIDTH = 120
_ABOUT_EVIDENCE = (
    "Every sample that this was judged from is in [{evidence}]({evidence}), with times in whole milliseconds; `python "
    "-m tests.chaos.soak --judge` with that file and `--report FILE` judges it again."
)
_ABOUT_FAULTS = (
    "Each begins at random within a storm of {storm_s:g} s, every {round_s:g} s; they overlap. Recovery is from its "
    "start until the lag is back under what it was before the storm, or under what is written in half the time that "
    "the SLO allows, for 5 s; where faults overlap it is that of all of them together. A fault that could not happen "
    "(nobody to suffer it, step not reached) is not counted: {not_now} were not. In the second half nothing ends the "
    "controller, the committer or the monitor, so that one process of each grows old. Consumers come and go with "
    "the load; a second pipeline on the same brokers, with one consumer that nobody hurts, grows old as a whole."
)
_ABOUT_LATENCY = (
    "A fault window lasts from a fault's start until {allowance_s:g} s after its end; windows cover {share:.0%} of the "
    "run. A record is inside if any of its time was. From the journal of commits, which carries quantiles of each; "
    "a committer that was killed may have taken a line with it. The neighbour's records, which are among those "
    "acknowledged above, are not in it."
)
_ABOUT_GROWTH = (
    "Growth is the median over pairs of samples of the same process, in the second half, {warm_up_s:g} s after its "
    "start or later; a process is never compared with its successor. Flat means at most a tenth of the role's memory "
    "an hour (or {mb:g} MB if that is more), {files:g} open files and {connections:g} connections an hour; "
    "{unhurt:g} connections in roles of the second pipeline, the neighbour. Of connections it is the lesser growth of "
    "the most and of the least that a process had within {lately:g} s: storms take some away and leaders that move "
    "need some more, while what leaks raises both. Where it has a role of the same kind, consumers that all died young "
    "are not judged."
)
_ABOUT_LIMITS = (
    "What grows less than it is allowed to is called flat: {mb:g} MB an hour would be {gb_a_day:.1f} GB a day. What "
    "comes once a day or a week is not in it: segments of a log that are deleted by age, certificates and tokens that "
    "end, upkeep of a table that is years old. Everything is on one machine, with one clock: no network that parts "
    "brokers from consumers or answers late, no disk that is full, no clocks that differ. The lake is a folder with a "
    "catalog in SQLite, with no object store that is slow or says no. There are four topics of a few partitions and a "
    "few hundred small records a second; what thousands of partitions, many tables and full speed cost is "
    "[measured](benchmarks.md), without faults. One seed is one order of faults: what needs a rarer meeting of two "
    "of them may need other seeds."
)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is not evidence and yet belongs on the page."""

    seed: int
    minutes_asked: float
    machine: str
    not_now: dict[str, int]
    """Faults that could not happen, by kind."""


def evidence_beside(file: Path) -> Path:
    """Where a report's evidence is."""
    return file.with_name(f"{file.stem}-evidence.json.gz")


def write(file: Path, seen: Evidence, allowed: Tolerances, promises: Sequence[Promise], about: Circumstances) -> None:
    picture = file.with_suffix(".png")
    _plot(seen, allowed, picture)
    file.write_text(_page(seen, allowed, promises, about, picture.name, evidence_beside(file).name))
    numbers = {
        "circumstances": {**asdict(about), "disk_bytes": seen.most_disk_bytes},
        "tolerances": asdict(allowed),
        "promises": [asdict(promise) for promise in promises],
        "memory": [asdict(of) for of in memory_slopes(seen, allowed.warm_up_s)],
        "open_files": [asdict(of) for of in file_slopes(seen, allowed.warm_up_s)],
        "connections": [asdict(of) for of in connection_slopes(seen, allowed.warm_up_s)],
    }
    file.with_suffix(".json").write_text(json.dumps(numbers, indent=1) + "\n")


def _page(
    seen: Evidence,
    allowed: Tolerances,
    promises: Sequence[Promise],
    about: Circumstances,
    picture: str,
    evidence: str,
) -> str:
    asked = f"MINUTES={about.minutes_asked:g} " if about.minutes_asked != 60 else ""
    cut = " It was interrupted; this is what there was until then." if seen.interrupted else ""
    return "\n".join(
        (
            "# Soak",
            "",
            fill(
                f"Written by `make soak {asked}SEED={about.seed}`: {seen.lasted_s / 60:.1f} minutes of changing load "
                f"and random faults with upkeep running, on {about.machine}.{cut}",
                _WIDTH,
            ),
            "",
            fill(verdict(promises), _WIDTH),
            "",
            fill(_ABOUT_EVIDENCE.format(evidence=evidence), _WIDTH),
            "",
            f"![Load, consumers, lag and memory over time]({picture})",
            "",
            "## Promises",
            "",
            *_table(("promise", "kept", "evidence"), [(p.name, _kept(p), p.evidence) for p in promises]),
            "",
            "## Faults",
            "",
            fill(_ABOUT_FAULTS.format(storm_s=STORM_S, round_s=ROUND_S, not_now=sum(about.not_now.values())), _WIDTH),
            "",
            *_faults(seen, allowed),
            "",
            "## Latency, Kafka to committed",
            "",
            *_latency(seen, allowed),
            "",
            "## Memory, open files and connections",
            "",
            fill(
                _ABOUT_GROWTH.format(
                    warm_up_s=allowed.warm_up_s,
                    mb=allowed.memory_bytes_per_hour / 1e6,
                    files=allowed.files_per_hour,
                    connections=allowed.connections_per_hour,
                    unhurt=allowed.unhurt_connections_per_hour,
                    lately=LATELY_S,
                ),
                _WIDTH,
            ),
            "",
            *_growth(seen, allowed.warm_up_s),
            "",
            "## The lake",
            "",
            *_lake(seen),
            "",
            "## What this cannot show",
            "",
            fill(_limits(allowed), _WIDTH),
            "",
        )
    )


def _limits(allowed: Tolerances) -> str:
    an_hour = allowed.memory_bytes_per_hour
    return _ABOUT_LIMITS.format(mb=an_hour / 1e6, gb_a_day=24 * an_hour / 1e9)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]


def _kept(promise: Promise) -> str:
    return {True: "yes", False: "**no**", None: "cannot tell"}[promise.kept]


def _faults(seen: Evidence, allowed: Tolerances) -> list[str]:
    took: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    for recovery in recoveries(seen.faults, seen.lags, allowed.ordinary_s):
        kind = recovery.fault.kind
        counts[kind] = counts.get(kind, 0) + 1
        if recovery.took_s is not None:
            took.setdefault(kind, []).append(recovery.took_s)
    rows = [
        (kind, str(count), *((f"{median(took[kind]):.0f} s", f"{max(took[kind]):.0f} s") if kind in took else ("", "")))
        for kind, count in sorted(counts.items())
    ]
    total = ("**all**", f"**{sum(counts.values())}**", "", "")
    return _table(("fault", "times", "recovery, median", "slowest"), [*rows, total])


def _latency(seen: Evidence, allowed: Tolerances) -> list[str]:
    windows = fault_windows(seen.faults, allowed.allowance_s)
    outside, inside = latencies(seen.commits, windows, allowed.slo_s)
    share = covered_s(windows, seen.lasted_s) / seen.lasted_s
    text = fill(_ABOUT_LATENCY.format(allowance_s=allowed.allowance_s, share=share), _WIDTH)

    def row(name: str, of: Latency | None) -> tuple[str, ...]:
        if of is None:
            return (name, "0", "", "", "", "")
        seconds = (f"{value:.1f} s" for value in (of.p50_s, of.p99_s, of.worst_s))
        return (name, f"{of.records:,.0f}", *seconds, f"{of.within:.2%}")

    head = ("records", "how many", "p50", "p99", "slowest", f"within {allowed.slo_s:g} s")
    return [text, "", *_table(head, (row("outside fault windows", outside), row("inside", inside)))]


def _growth(seen: Evidence, warm_up_s: float) -> list[str]:
    def counted(of: Slope) -> tuple[str, ...]:
        return f"{of.median:.0f}", f"{of.most:.0f}", "" if of.per_hour is None else f"{of.per_hour:+.1f}"

    rows = [
        (
            of.role,
            str(of.lives),
            f"{of.judged_s / 60:.0f} min",
            f"{of.median / 1e6:.0f} MB",
            f"{of.most / 1e6:.0f} MB",
            "" if of.per_hour is None else f"{of.per_hour / 1e6:+.0f} MB",
            *counted(files),
            *counted(connections),
        )
        for of, files, connections in zip(
            *(slopes(seen, warm_up_s) for slopes in (memory_slopes, file_slopes, connection_slopes)), strict=True
        )
    ]
    head = ("role", "processes", "longest seen", "memory", "most", "growth an hour")
    return _table((*head, "open files", "most", "growth an hour", "connections", "most", "growth an hour"), rows)


def _lake(seen: Evidence) -> list[str]:
    rows = []
    for table in sorted({sample.table for sample in seen.lake}):
        of = [sample for sample in seen.lake if sample.table == table]
        last = of[-1]
        rows.append(
            (
                table,
                f"{max(s.snapshots for s in of)}",
                f"{last.snapshots}",
                f"{max(s.metadata_bytes for s in of) / 1e3:.0f} kB",
                f"{last.metadata_bytes / 1e3:.0f} kB",
                f"{max(s.metadata_files for s in of)}",
                f"{max(s.data_files for s in of)}",
                f"{last.data_files}",
                f"{last.disk_bytes / 1e6:.0f} MB",
            )
        )
    head = ("table", "snapshots, most", "at the end", "metadata file, most", "at the end", "metadata files, most")
    return _table((*head, "data files, most", "at the end", "disk at the end"), rows)


def _plot(seen: Evidence, allowed: Tolerances, file: Path) -> None:
    figure = Figure(figsize=(12, 11))
    load, consumers, lag, latency, memory, lake = panels = figure.subplots(
        6, 1, sharex=True, height_ratios=(2, 1, 2, 2, 2, 1)
    )
    at = [sample.at_s / 60 for sample in seen.lags]
    rates = [
        (later.at_s / 60, (later.written_records - earlier.written_records) / (later.at_s - earlier.at_s))
        for earlier, later in zip(seen.lags[:-5], seen.lags[5:], strict=False)
    ]
    load.plot([t for t, _ in rates], [rate for _, rate in rates], linewidth=0.8)
    load.set_ylabel("records/s written")
    consumers.step(at, [sample.consumers for sample in seen.lags], linewidth=0.9)
    consumers.set_ylabel("consumers")
    lag.plot(at, [max(1, sample.lag_records) for sample in seen.lags], linewidth=0.7)
    lag.set_yscale("log")
    lag.set_ylabel("lag, records")
    points = [
        (commit.at_s / 60, commit.latency_s[len(commit.latency_s) // 2]) for commit in seen.commits if commit.latency_s
    ]
    latency.plot([t for t, _ in points], [max(0.1, value) for _, value in points], ",", color="tab:blue")
    latency.axhline(allowed.slo_s, color="black", linewidth=0.6, linestyle="--")
    latency.set_yscale("log")
    latency.set_ylabel("median latency\nof a commit, s")
    for role in sorted({sample.role for sample in seen.processes}):
        of = [sample for sample in seen.processes if sample.role == role]
        memory.plot([s.at_s / 60 for s in of], [s.rss_bytes / 1e6 for s in of], ".", markersize=1.5, label=role)
    memory.set_ylabel("memory, MB each")
    memory.legend(fontsize=7, ncols=3, markerscale=4)
    for table in sorted({sample.table for sample in seen.lake}):
        looks = [sample for sample in seen.lake if sample.table == table]
        lake.plot([s.at_s / 60 for s in looks], [s.snapshots for s in looks], linewidth=0.8, label=table)
    lake.set_ylabel("snapshots")
    lake.legend(fontsize=7, ncols=3)
    for panel in panels:
        for start_s, end_s in fault_windows(seen.faults, allowed.allowance_s):
            panel.axvspan(start_s / 60, end_s / 60, color="tab:orange", alpha=0.10, linewidth=0)
    for fault in (fault for fault in seen.faults if fault.happened):
        load.axvline(fault.start_s / 60, ymin=0.94, color="tab:red", linewidth=0.7)
    panels[-1].set_xlabel("minutes (red: a fault begins; shaded: fault windows; dashed: the SLO)")
    save(figure, file)
