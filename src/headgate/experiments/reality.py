"""How far the simulator can be trusted: a run that really happened beside the same traffic simulated.

The policy is the pipeline's own, the traffic is what its monitor recorded, start-up and pauses are what its controller
measured. What is left to differ is the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from headgate.config.pipeline import Pipeline
from headgate.controller.policy_choices import Choice
from headgate.controller.recording import Recording
from headgate.errors import ConfigError
from headgate.experiments.plots import save
from headgate.experiments.what_if import Comparison, compare
from headgate.experiments.what_if_circumstances import Circumstances
from headgate.lake.latency import merge_quantiles, share_within
from headgate.model.messages import CommitRecord, DecisionRecord
from headgate.simulation.arrivals import Floats


@dataclass(frozen=True, slots=True)
class Line:
    """One number of both worlds."""

    what: str
    real: float
    simulated: float

    @property
    def difference(self) -> str:
        if self.real == 0:
            return "–" if self.simulated == 0 else f"{self.simulated:+.2f}"
        return f"{100 * (self.simulated / self.real - 1):+.0f} %"


@dataclass(frozen=True, eq=False)
class Validation:
    lines: tuple[Line, ...]
    real_consumers: tuple[tuple[float, int], ...]
    """(seconds from the start of the trace, how many from then on)."""
    comparison: Comparison


def validate(pipeline: Pipeline, recording: Recording, seeds: int = 3) -> Validation:
    """Simulates the recorded traffic under the pipeline's own policy and holds the outcome beside what happened."""
    start_s = recording.trace.started_at_s
    decisions = [d for d in recording.decisions if d.outcome == "applied"]
    if not decisions or not recording.commits:
        raise ConfigError("the journal holds no applied decision or no commit; let the pipeline run for a while first")
    consumers = consumers_over_time(decisions, start_s)
    circumstances = Circumstances.of(
        pipeline,
        start_s=recording.start_s,
        pause_s=recording.pause_s,
        consumers=max(1, consumers[0][1]),
    )
    comparison = compare(
        pipeline, lambda seed: recording.trace, [Choice("simulated", pipeline.policy.name)], circumstances, seeds
    )
    simulated = comparison.scores[0]
    weighted = [(c.latency_ms, c.rows + c.rejected) for c in recording.commits if c.latency_ms]
    duration_s = recording.trace.duration_s
    within = [d for d in decisions if 0 <= d.at_ms / 1000 - start_s <= duration_s]
    lines = (
        Line("consumer-minutes", _consumer_minutes(consumers, duration_s), simulated.replica_minutes),
        Line("most consumers", max(n for _, n in consumers), float(comparison.curves[0].replicas.max())),
        Line("consumers added", sum(max(0, d.consumers_after - d.consumers_before) for d in within), simulated.ups),
        Line("consumers removed", sum(max(0, d.consumers_before - d.consumers_after) for d in within), simulated.downs),
        Line("partitions moved", sum(d.moved for d in within), simulated.moves),
        Line("latency p50, s", (merge_quantiles(weighted, 0.5) or 0.0) / 1000, simulated.p50_s),
        Line("latency p99, s", (merge_quantiles(weighted, 0.99) or 0.0) / 1000, simulated.p99_s),
        Line("in time, %", _in_time(recording.commits, 1000 * circumstances.slo_s), simulated.sla_percent),
    )
    return Validation(lines, consumers, comparison)


def consumers_over_time(decisions: Sequence[DecisionRecord], start_s: float) -> tuple[tuple[float, int], ...]:
    """How many owned partitions since when, from the journal."""
    changes = [(d.at_ms / 1000 - start_s, d.consumers_after) for d in decisions]
    before = [n for at_s, n in changes if at_s <= 0]
    first = before[-1] if before else decisions[0].consumers_before
    return ((0.0, first), *((at_s, n) for at_s, n in changes if at_s > 0))


def _consumer_minutes(consumers: Sequence[tuple[float, int]], duration_s: float) -> float:
    ends = [*(at_s for at_s, _ in consumers[1:]), duration_s]
    return sum(n * max(0.0, min(end, duration_s) - at_s) for (at_s, n), end in zip(consumers, ends, strict=True)) / 60


def _in_time(commits: Sequence[CommitRecord], goal_ms: float) -> float:
    records = sum(c.rows + c.rejected for c in commits if c.latency_ms)
    within = sum((c.rows + c.rejected) * share_within(c.latency_ms, goal_ms) for c in commits if c.latency_ms)
    return 100 * (within / records if records else 1.0)


def report(validation: Validation, title: str) -> str:
    world = validation.comparison.circumstances
    rows = [f"| {x.what} | {x.real:.2f} | {x.simulated:.2f} | {x.difference} |" for x in validation.lines]
    return "\n".join(
        (
            f"# {title}",
            "",
            f"{validation.comparison.trace.duration_s / 60:.1f} minutes of traffic in "
            f"{len(validation.comparison.trace.partitions)} partitions as the pipeline's monitor recorded it, "
            f"simulated with the pipeline's own policy: starts of {world.start_s:.2f} s and moves of "
            f"{world.pause_s:.2f} s as measured, {world.fixed_s:g} s for cycle and commit, goal {world.slo_s:g} s.",
            "",
            "| | real | simulated | difference |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
            "![consumers and latency](reality.png)",
            "",
        )
    )


def draw(validation: Validation, recording: Recording, file: Path) -> None:
    curve = validation.comparison.curves[0]
    figure = Figure(figsize=(10, 6), layout="constrained")
    consumers, latency = figure.subplots(2, 1, sharex=True)
    at_s, count = zip(*validation.real_consumers, (recording.trace.duration_s, validation.real_consumers[-1][1]))  # noqa: B905
    consumers.step(np.asarray(at_s) / 60, count, where="post", label="real")
    consumers.step(curve.at_s / 60, curve.replicas, where="mid", label="simulated")
    consumers.set_ylabel("consumers")
    consumers.set_ylim(bottom=0)
    consumers.legend()
    real_at_s, real_p99_s = _real_p99(recording)
    latency.plot(real_at_s / 60, real_p99_s, label="real")
    latency.plot(curve.at_s / 60, curve.p99_s, label="simulated")
    latency.set_ylabel("latency p99, s")
    latency.set_xlabel("minutes")
    for panel in (consumers, latency):
        panel.grid(alpha=0.3)
    save(figure, file)


def _real_p99(recording: Recording, step_s: float = 5.0) -> tuple[Floats, Floats]:
    """Of the commits of every few seconds."""
    slots: dict[int, list[tuple[tuple[float, ...], int]]] = {}
    for c in recording.commits:
        if c.latency_ms:
            slot = int((c.at_ms / 1000 - recording.trace.started_at_s) // step_s)
            slots.setdefault(slot, []).append((c.latency_ms, c.rows + c.rejected))
    known = sorted(slots)
    p99 = [(merge_quantiles(slots[slot], 0.99) or 0.0) / 1000 for slot in known]
    return np.array([(slot + 0.5) * step_s for slot in known]), np.array(p99)
