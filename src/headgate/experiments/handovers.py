"""E4: how long a decision takes, step by step, beside the published times.

t1 is from a step of the load to the monitor showing it; t2 from a trigger to the last request for a consumer; t3 from
there until all new consumers are ready; t4 from the first command to the last acknowledgement. t2, t3 and t4 are what
the controller's journal says of every decision it applied (L-53).
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from headgate.experiments.plots import save
from headgate.model.messages import CycleRecord, DecisionRecord, Measurement
from headgate.simulation.start_times import PUBLISHED_T3

TIMES = ("t1", "t2", "t3", "t4")
MEANING = {
    "t1": "step of the load → measured",
    "t2": "trigger → requests sent",
    "t3": "→ all new consumers ready",
    "t4": "first command → last acknowledgement",
}
PUBLISHED = {
    "t1": (31, "at most 30 s; plotted 27.2–28.4, mode 28.0"),
    "t2": (1345, "below 1 s; plotted mode 0.56, tail to 4"),
    "t3": (273, "88 % in 10–50 s, 12 % above (a new node), up to 500"),
    "t4": (1331, "about 5 s, two cycles of 2.5; plotted peaks 4.5 and 5.8, at most 9.6"),
}
"""How many, and what the text and the plots say (E4)."""
CLOSE = 0.05
"""A measured rate that is this near the new level, relative to it, has converged."""
QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Sample:
    """One time of one decision (t2, t3, t4) or of one step of the load (t1)."""

    fleet: str
    time: str
    at_s: float
    """When, in seconds since the load began."""
    seconds: float
    consumers_before: int = 0
    consumers_after: int = 0
    created: int = 0
    moved: int = 0
    trigger: str = ""


@dataclass(frozen=True, slots=True)
class LoadStep:
    """The load changed to this level and stayed there until the next step."""

    at_s: float
    until_s: float
    bytes_per_s: float


@dataclass(frozen=True, eq=False)
class LiveRun:
    """What one fleet's journals say."""

    fleet: str
    began_s: float
    """When the load began, in seconds since the epoch."""
    steps: tuple[LoadStep, ...]
    decisions: tuple[DecisionRecord, ...]
    measurements: tuple[Measurement, ...]
    cycles: tuple[CycleRecord, ...]

    @property
    def failed(self) -> int:
        """Decisions that were not carried out: the controller fell out of sync and began anew."""
        return sum(1 for d in self.decisions if d.outcome.startswith("out of sync"))

    @property
    def cycle_s(self) -> tuple[float, ...]:
        return tuple(c.gather_s + c.process_s + c.announce_s + c.wait_s for c in self.cycles)


def samples(run: LiveRun) -> tuple[Sample, ...]:
    """Every t2, t3 and t4 of the applied decisions, and t1 of every step that the monitor caught up with."""
    found = [Sample(run.fleet, "t1", step.at_s, took) for step, took in converged(run)]
    for d in run.decisions:
        if d.outcome != "applied":
            continue
        times = {"t2": d.decide_s, "t4": d.handover_s}
        if d.created or d.consumers_after > d.consumers_before:  # with a spare at hand nobody is created
            times["t3"] = d.ready_s
        found += [
            Sample(
                run.fleet,
                time,
                d.at_ms / 1000 - run.began_s,
                seconds,
                d.consumers_before,
                d.consumers_after,
                len(d.created),
                d.moved,
                d.trigger,
            )
            for time, seconds in times.items()
        ]
    return tuple(sorted(found, key=lambda s: (s.at_s, s.time)))


def converged(run: LiveRun) -> list[tuple[LoadStep, float]]:
    """Steps with how long it took until a measurement first came near the new level; others are left out."""
    measured = [(m.at_ms / 1000 - run.began_s, sum(r.bytes_per_s for r in m.rates)) for m in run.measurements]
    found = []
    for step in run.steps:
        near = [
            at_s - step.at_s
            for at_s, rate in measured
            if step.at_s < at_s <= step.until_s and abs(rate - step.bytes_per_s) <= CLOSE * step.bytes_per_s
        ]
        if near:
            found.append((step, min(near)))
    return found


def summary(found: Sequence[Sample], fleet: str, time: str) -> tuple[int, tuple[float, ...]]:
    """How many, and the quantiles; none without samples."""
    seconds = [s.seconds for s in found if s.fleet == fleet and s.time == time]
    return len(seconds), tuple(np.quantile(seconds, QUANTILES).tolist()) if seconds else ()


def table(found: Sequence[Sample]) -> list[tuple[str, ...]]:
    """Per time one row for every fleet; the first row is the heading."""
    rows: list[tuple[str, ...]] = [("", "fleet", "n", "least", "p50", "p90", "p99", "most")]
    for time in TIMES:
        for fleet in dict.fromkeys(s.fleet for s in found):
            count, values = summary(found, fleet, time)
            rows.append((time, fleet, f"{count}", *(f"{v:.2f}" for v in values)) + ("",) * (5 - len(values)))
    return rows


def published() -> list[tuple[str, ...]]:
    """The paper's table; the first row is the heading."""
    rows = [(time, MEANING[time], f"{PUBLISHED[time][0]}", PUBLISHED[time][1]) for time in TIMES]
    return [("", "from … to", "n", "published"), *rows]


def write_csv(found: Sequence[Sample], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, [f.name for f in fields(Sample)])
        writer.writeheader()
        for sample in found:
            writer.writerow({k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(sample).items()})


def report(runs: Sequence[LiveRun], found: Sequence[Sample], how: str) -> str:
    cycles = [
        f"- {run.fleet}: {len(run.cycles)} cycles, {_cycles(run)}; {run.failed} decisions were not carried out (out of "
        "sync) and are missing above: a start beyond `controller.ready_deadline_s` (120 s) shows here, not in t3."
        for run in runs
    ]
    return "\n".join(
        (
            "# How long a decision takes (E4)",
            "",
            how,
            "",
            "All times in seconds. t1: from a step of the load to the first measurement within "
            f"{100 * CLOSE:.0f} % of the new level. t2, t3 and t4 as the controller's journal has them for every "
            "applied decision; t3 only where the group grew, as published.",
            "",
            *_markdown(published()),
            "",
            *_markdown(table(found)),
            "",
            *cycles,
            "",
            "![distributions of t1 to t4](handovers.png)",
            "",
        )
    )


def _markdown(rows: Sequence[tuple[str, ...]]) -> list[str]:
    heading, *others = rows
    return [f"| {' | '.join(row)} |" for row in (heading, ("---",) * len(heading), *others)]


def _cycles(run: LiveRun) -> str:
    if not run.cycles:
        return "none recorded"
    p50, p99 = np.quantile(run.cycle_s, (0.5, 0.99))
    return f"p50 {p50:.2f} s, p99 {p99:.2f} s each"


def draw(found: Sequence[Sample], file: Path) -> None:
    """A panel for every time: how many took at most so long; what is published shaded or dashed."""
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    panels = dict(zip(TIMES, figure.subplots(2, 2).flat, strict=True))
    for time, panel in panels.items():
        for fleet in dict.fromkeys(s.fleet for s in found):
            seconds = np.sort([s.seconds for s in found if s.fleet == fleet and s.time == time])
            if len(seconds):
                share = np.arange(1, len(seconds) + 1) / len(seconds)
                panel.step(seconds, share, where="post", label=f"{fleet} (n = {len(seconds)})")
        panel.set_title(f"{time}: {MEANING[time]}", fontsize=9, loc="left")
        panel.set_ylim(0, 1.02)
        panel.grid(alpha=0.3)
    panels["t1"].axvspan(27.2, 28.4, color="black", alpha=0.15, label="published")
    panels["t2"].axvline(0.56, color="black", linestyle="--", linewidth=0.8, label="published mode")
    at_s = np.linspace(0, 120, 241)
    panels["t3"].plot(at_s, [PUBLISHED_T3.share_below(x) for x in at_s], "k--", linewidth=0.8, label="published")
    for peak in (4.5, 5.8):
        panels["t4"].axvline(peak, color="black", linestyle="--", linewidth=0.8, label="published peaks")
    for panel in panels.values():
        panel.legend(*_once(panel.get_legend_handles_labels()), fontsize=7)
        panel.set_xlim(left=0)
    for time in ("t3", "t4"):
        panels[time].set_xlabel("seconds")
    save(figure, file)


def _once(entries: tuple[list[object], list[str]]) -> tuple[list[object], list[str]]:
    kept: Mapping[str, object] = dict(zip(entries[1], entries[0], strict=True))
    return list(kept.values()), list(kept)
