"""Pictures of the partitioner experiment."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from headgate.experiments.intervals import Interval
from headgate.experiments.partitioners_cases import (
    ACKS,
    BASELINE,
    PAPER,
    PAPER_PARTITIONERS,
    SCENARIOS,
    Cell,
    Part,
    cells,
    expected,
)
from headgate.experiments.partitioners_faults import FAILING, SLOW
from headgate.experiments.partitioners_published import published
from headgate.experiments.partitioners_results import Results
from headgate.experiments.partitioners_simulated import SETTINGS, Simulated
from headgate.experiments.plots import save

COLOURS = {
    name: f"C{n}"
    for n, name in enumerate(
        dict.fromkeys((*PAPER_PARTITIONERS, "sqf-inflight", "jsq", "latency-weighted", "sqf, shared"))
    )
}


def draw(results: Results, simulated: Sequence[Simulated], out: Path) -> None:
    changes(results, out / "changes.png")
    load(results, out / "load.png")
    faults(results, out / "faults.png")
    waits(simulated, out / "simulated.png")


def changes(results: Results, file: Path) -> None:
    """Throughput and average latency over those of default-rr: dots with 99 % intervals, published ones hollow."""
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    for panel, (metric, title) in zip(
        figure.subplots(2, 1, sharex=True),
        (("mib_per_s", "throughput, more is better"), ("avg_ms", "average latency, less is better")),
        strict=True,
    ):
        places = [(scenario, acks) for scenario in PAPER for acks in ACKS]
        for place, (scenario, acks) in enumerate(places):
            for n, name in enumerate(PAPER_PARTITIONERS):
                x = place + 0.15 * (n - 2)
                label = name if place == 0 else None
                measured = _relative(results, scenario, acks, name, metric)
                if measured is not None:
                    panel.errorbar(
                        x, measured.mean, _bar(measured), fmt="o", color=COLOURS[name], capsize=2, label=label
                    )
                theirs, base = published(scenario, acks, name), published(scenario, acks, BASELINE)
                if theirs is not None and base is not None:
                    ours, scale = getattr(theirs, metric), getattr(base, metric).mean
                    panel.errorbar(
                        x + 0.05,
                        ours.mean / scale,
                        ours.half / scale,
                        fmt="o",
                        color=COLOURS[name],
                        mfc="none",
                        alpha=0.5,
                    )
        panel.axhline(1.0, color="black", linewidth=0.6, linestyle="--")
        panel.set_ylim(0, 2.8)
        panel.set_title(f"{title} (over the mean of {BASELINE}; hollow: published)", fontsize=9, loc="left")
        panel.set_xticks(range(len(places)), [f"{scenario}\nacks {acks}" for scenario, acks in places])
        panel.grid(alpha=0.3, axis="y")
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=7, ncols=5)
    save(figure, file)


def _relative(results: Results, scenario: str, acks: str, name: str, metric: str) -> Interval | None:
    ours, base = (
        results.interval(Cell(Part.paper, scenario, acks, n), lambda run: float(getattr(run, metric)))
        for n in (name, BASELINE)
    )
    return None if ours is None or base is None else Interval(ours.mean / base.mean, ours.half / base.mean)


def _bar(interval: Interval) -> float:
    return interval.half if interval.half < 10 * interval.mean else 0.0


def load(results: Results, file: Path) -> None:
    """What node 2 got of the records, every run a dot; the prediction is a line."""
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    for panel, scenario in zip(figure.subplots(1, 4, sharey=True), PAPER, strict=True):
        for n, name in enumerate(PAPER_PARTITIONERS):
            runs = [run for acks in ACKS for run in results.of(Cell(Part.paper, scenario, acks, name))]
            panel.plot(
                [n] * len(runs), [run.led_shares.get(2, 0.0) for run in runs], "o", color=COLOURS[name], markersize=3
            )
            predicted = expected(name, SCENARIOS[scenario].topology)
            if predicted is not None:
                panel.plot([n - 0.35, n + 0.35], [predicted.led[2]] * 2, color="black", linewidth=1)
        panel.set_xticks(range(len(PAPER_PARTITIONERS)), PAPER_PARTITIONERS, rotation=45, fontsize=7)
        panel.set_title(f"{scenario}: share of node 2 (line: predicted)", fontsize=8, loc="left")
        panel.set_ylim(0, 1)
        panel.grid(alpha=0.3, axis="y")
    save(figure, file)


def faults(results: Results, file: Path) -> None:
    """Average and p99 of records sent while a node is slow, or has just been killed."""
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    panels = figure.subplots(1, 2)
    for panel, part, phase, title in (
        (panels[0], Part.slow, SLOW, "one slow node of three"),
        (panels[1], Part.killed, FAILING, "one killed node of three, until others lead"),
    ):
        chosen = cells(part)
        for metric, shift, mark in (("avg_ms", -0.12, "o"), ("p99_ms", 0.12, "^")):
            for n, cell in enumerate(chosen):
                found = results.interval(cell, lambda run, metric=metric: float(getattr(run, metric)), phase)  # type: ignore[misc]
                if found is not None:
                    label = {"avg_ms": "average", "p99_ms": "p99"}[metric] if n == 0 else None
                    low = min(found.half, 0.95 * found.mean) if found.half < float("inf") else 0.0
                    bars = [[low], [found.half if found.half < float("inf") else 0.0]]
                    panel.errorbar(
                        n + shift, found.mean, bars, fmt=mark, color=COLOURS[cell.partitioner], capsize=2, label=label
                    )
        panel.set_yscale("log")
        panel.set_ylabel("latency, ms")
        panel.set_title(title, fontsize=9, loc="left")
        panel.set_xticks(range(len(chosen)), [cell.partitioner for cell in chosen], rotation=30, fontsize=7)
        panel.grid(alpha=0.3, axis="y")
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=7)
    save(figure, file)


def waits(simulated: Sequence[Simulated], file: Path) -> None:
    """Mean wait by load in the simulator, as far as no node is overwhelmed."""
    figure = Figure(figsize=(11, 6), layout="constrained")
    for panel, setting in zip(figure.subplots(2, 3).flat, SETTINGS, strict=True):
        for name in setting.partitioners:
            rows = [r for r in simulated if (r.setting, r.partitioner) == (setting.name, name) and r.stable]
            panel.errorbar(
                [r.load for r in rows],
                [max(r.wait_mean, 1e-3) for r in rows],
                [r.wait_half for r in rows],
                marker="o",
                markersize=3,
                linewidth=1,
                color=COLOURS[name],
                label=name,
            )
        panel.set_yscale("log")
        panel.set_title(f"{setting.name} ({setting.scenario})", fontsize=9, loc="left")
        panel.set_xlim(0, 1)
        panel.grid(alpha=0.3)
        panel.legend(fontsize=6)
    for panel in figure.axes[3:]:
        panel.set_xlabel("load")
    for panel in figure.axes[::3]:
        panel.set_ylabel("mean wait, service times")
    save(figure, file)
