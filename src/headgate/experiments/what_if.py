"""What a pipeline's traffic would have been like under other policies: each one simulated, scored and compared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.config.pipeline import Pipeline
from headgate.controller.assembly import policy_of
from headgate.controller.policy_choices import Choice, buildable
from headgate.experiments.engines import ENGINES
from headgate.experiments.what_if_circumstances import Circumstances
from headgate.experiments.what_if_scores import Curve, Score, curve, mean, ranked, score
from headgate.experiments.what_if_world import Resolution, facts_of, resolution_of, world_of
from headgate.simulation.recorded import Trace


@dataclass(frozen=True, eq=False)
class Comparison:
    trace: Trace
    circumstances: Circumstances
    resolution: Resolution
    scores: tuple[Score, ...]
    curves: tuple[Curve, ...]
    notes: tuple[str, ...]

    @property
    def cheapest(self) -> Score | None:
        """The cheapest that meets the goal."""
        enough = [s for s in self.scores if s.meets_goal]
        return min(enough, key=lambda s: (s.replica_minutes, -s.sla_percent)) if enough else None


Told = Callable[[str, float], None]
"""Hears which policy runs and how far all are, 0 … 1."""


def compare(
    pipeline: Pipeline,
    trace_of: Callable[[int], Trace],
    choices: Sequence[Choice],
    circumstances: Circumstances,
    seeds: int = 1,
    told: Told = lambda *_: None,
) -> Comparison:
    """Every policy on the same traffic; a seed varies what a recording leaves open, and profiles altogether."""
    if seeds < 1:
        raise ValueError(f"at least one seed is needed, not {seeds}")
    engine = ENGINES[circumstances.engine]
    worlds = [world_of(pipeline, trace_of(seed), circumstances, seed) for seed in range(seeds)]
    facts = [facts_of(pipeline, world, circumstances) for world in worlds]
    able, left_out = buildable(pipeline, choices, facts[0])
    scored: dict[str, list[Score]] = {choice.label: [] for choice in able}
    curves: list[Curve] = []
    for n, (seed, choice) in enumerate((seed, choice) for seed in range(seeds) for choice in able):

        def heard(share: float, label: str = choice.label, before: int = n) -> None:
            told(label, (before + share) / (len(worlds) * len(able)))

        heard(0.0)
        outcome = engine(worlds[seed], policy_of(pipeline, choice.name, choice.params, facts[seed]), heard)
        scored[choice.label].append(score(choice.label, outcome, circumstances))
        if seed == 0:
            curves.append(curve(choice.label, outcome, worlds[0].trace.duration_s, circumstances.fixed_s))
    told("done", 1.0)
    shown = worlds[0]
    return Comparison(
        shown.trace,
        circumstances,
        resolution_of(shown, circumstances.engine),
        ranked([mean(scores) for scores in scored.values()], circumstances.quantile),
        tuple(curves),
        (*shown.trace.notes, *_strangers(pipeline, shown.trace), *left_out),
    )


def _strangers(pipeline: Pipeline, trace: Trace) -> tuple[str, ...]:
    unknown = sorted({p.topic for p in trace.partitions if not pipeline.tables_of(p.topic)})
    if not unknown:
        return ()
    return (f"{', '.join(unknown)}: not among the pipeline's topics; taken to be read once, for one table",)
