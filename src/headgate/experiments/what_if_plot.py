"""The picture of a comparison: load, replicas and latency over one time axis."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from headgate.experiments.plots import save
from headgate.experiments.what_if import Comparison
from headgate.simulation.arrivals import Floats

_POINTS = 600


def draw(comparison: Comparison, file: Path) -> None:
    trace, goal_s = comparison.trace, comparison.circumstances.slo_s
    unit_s, unit = (3600.0, "hours") if trace.duration_s > 4 * 3600 else (60.0, "minutes")
    figure = Figure(figsize=(10, 8), layout="constrained")
    load, replicas, latency = figure.subplots(3, 1, sharex=True)
    at_s, rate = _load(comparison)
    load.fill_between(at_s / unit_s, rate / 1e6, alpha=0.25, color="tab:blue")
    load.plot(at_s / unit_s, rate / 1e6, color="tab:blue", linewidth=1)
    load.set_ylabel("arrives, MB/s")
    for curve in comparison.curves:
        replicas.step(curve.at_s / unit_s, curve.replicas, where="mid", linewidth=1.1, label=curve.policy)
        latency.plot(curve.at_s / unit_s, curve.p99_s, linewidth=1.0, label=curve.policy)
    replicas.set_ylabel("consumers")
    replicas.set_ylim(bottom=0)
    replicas.yaxis.get_major_locator().set_params(integer=True)
    replicas.legend(fontsize=8, ncols=4, loc="upper right")
    latency.axhline(goal_s, color="black", linewidth=1, linestyle="--")
    latency.annotate(f"goal {goal_s:g} s", (0, goal_s), fontsize=8, xytext=(2, 3), textcoords="offset points")
    latency.set_yscale("log")
    latency.set_ylabel("latency p99, s")
    latency.set_xlabel(unit)
    for panel in (load, replicas, latency):
        panel.grid(alpha=0.3)
    save(figure, file)


def _load(comparison: Comparison) -> tuple[Floats, Floats]:
    """Bytes per second, averaged to a few hundred points."""
    trace = comparison.trace
    edges = np.linspace(0.0, trace.duration_s, min(_POINTS, len(trace.edges_s) - 1) + 1)
    total = np.interp(edges, trace.edges_s, np.concatenate([[0.0], np.cumsum(trace.bytes.sum(axis=1))]))
    return (edges[1:] + edges[:-1]) / 2, np.diff(total) / np.diff(edges)
