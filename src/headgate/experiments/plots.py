"""Pictures of runs: latency over time with scale marks, latency distributions, SLA against cost."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from headgate.simulation.outcome import Outcome

_MARKS = {"up": ("^", "tab:red"), "down": ("v", "tab:green"), "reassign": ("o", "tab:gray")}
_DOTS = 6000


def save(figure: Figure, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(file, dpi=110, bbox_inches="tight")


def latency_over_time(outcomes: Mapping[str, Outcome], file: Path) -> None:
    """One panel per run: every record's latency, the SLO, replicas, and a mark at every change (Figs 4, 6, 8)."""
    figure = Figure(figsize=(11, 2.6 * len(outcomes)))
    panels = figure.subplots(len(outcomes), 1, sharex=True, squeeze=False)[:, 0]
    for panel, (name, outcome) in zip(panels, outcomes.items(), strict=True):
        arrived, latency = np.concatenate(outcome.arrived_s), outcome.all_latencies_s
        late = latency > outcome.slo_s
        few = np.flatnonzero(~late)[:: max(1, int((~late).sum() / _DOTS))]
        panel.plot(arrived[few], latency[few], ",", color="tab:blue", alpha=0.5)
        panel.plot(arrived[late], latency[late], ".", color="tab:orange", markersize=2)
        panel.axhline(outcome.slo_s, color="black", linewidth=0.6, linestyle="--")
        top = max(1.0, outcome.max_latency_s) * 1.08
        for change in outcome.changes:
            mark, colour = _MARKS[change.kind]
            panel.plot([change.at_s], [top], mark, color=colour, markersize=5, clip_on=False)
        seconds = np.arange(0, arrived.max(initial=1.0), 1.0)
        other = panel.twinx()
        other.step(seconds, outcome.replicas_at(seconds), color="tab:purple", linewidth=0.8, alpha=0.7)
        other.set_ylabel("replicas")
        panel.set_ylabel("latency, s")
        panel.set_title(
            f"{name}: {outcome.sla_percent:.2f} % in time, {outcome.replica_minutes:.1f} replica-minutes",
            fontsize=9,
            loc="left",
        )
    panels[-1].set_xlabel("seconds (marks: ▲ up, ▼ down, ● reassign; dashed: the SLO)")
    save(figure, file)


def replicas_over_time(outcome: Outcome, title: str, file: Path) -> None:
    """Every replica's life as a line with its own latencies (Fig 5)."""
    lives = outcome.lives
    end_s = max(float(np.concatenate(outcome.arrived_s).max(initial=1.0)), 1.0)
    figure = Figure(figsize=(11, 1 + 1.1 * len(lives)))
    panels = figure.subplots(len(lives), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    arrived, latency, owner = np.concatenate(outcome.arrived_s), outcome.all_latencies_s, np.concatenate(outcome.owners)
    done = arrived + latency
    for panel, (consumer_id, created_s, deleted_s) in zip(panels, lives, strict=True):
        until_s = end_s if deleted_s is None else deleted_s
        mine = (owner == consumer_id) & (done >= created_s) & (done <= until_s + 5)
        step = max(1, int(mine.sum() / 1500))
        panel.plot(done[mine][::step], latency[mine][::step], ",", color="tab:blue")
        panel.axvspan(created_s, until_s, color="tab:green", alpha=0.08)
        panel.axhline(outcome.slo_s, color="black", linewidth=0.5, linestyle="--")
        panel.set_ylabel(f"{consumer_id}", rotation=0)
    panels[0].set_title(f"{title}: latency by replica, life shaded", fontsize=9, loc="left")
    panels[-1].set_xlabel("seconds")
    save(figure, file)


def cdf(outcomes: Mapping[str, Outcome], title: str, file: Path) -> None:
    """Share of records within each latency (Figs 7, 9 to 12); the upper end is what matters."""
    figure = Figure(figsize=(7, 4))
    panel = figure.subplots()
    for name, outcome in outcomes.items():
        values = np.sort(outcome.all_latencies_s)
        share = 100 * np.arange(1, len(values) + 1) / len(values)
        step = max(1, len(values) // 20_000)
        panel.plot(values[::step], share[::step], label=name, linewidth=1.2)
    panel.axvline(next(iter(outcomes.values())).slo_s, color="black", linewidth=0.6, linestyle="--")
    panel.set_ylim(80, 100.2)
    panel.set_xlim(0, 4)
    panel.set_xlabel("latency, s (dashed: the SLO)")
    panel.set_ylabel("records within it, %")
    panel.set_title(title, fontsize=10, loc="left")
    panel.legend(fontsize=8)
    save(figure, file)


def sla_against_cost(
    points: Mapping[str, Sequence[tuple[str, float, float]]], title: str, file: Path, joined: Collection[str] = ()
) -> None:
    """Late records (log scale) against replica-minutes; each group one colour, those of one knob `joined` by a line."""
    figure = Figure(figsize=(7.5, 4.5))
    panel = figure.subplots()
    for group, dots in points.items():
        ordered = sorted(dots, key=lambda d: d[2])
        late = [max(1e-3, 100 - sla) for _, sla, _ in ordered]
        panel.plot(
            [cost for *_, cost in ordered],
            late,
            "o-" if group in joined else "o",
            label=group,
            linewidth=0.8,
            markersize=4,
        )
        for (name, _, cost), y in zip(ordered, late, strict=True):
            panel.annotate(name, (cost, y), fontsize=6, xytext=(3, 3), textcoords="offset points")
    panel.set_yscale("log")
    panel.set_xlabel("replica-minutes")
    panel.set_ylabel("late records, %")
    panel.set_title(title, fontsize=10, loc="left")
    panel.legend(fontsize=8)
    save(figure, file)
