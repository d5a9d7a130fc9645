"""What policies came to on the same traffic: each one's score and curve, and who is on the front."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headgate.experiments.what_if_circumstances import Circumstances
from headgate.simulation.arrivals import Floats
from headgate.simulation.outcome import CAUSES, TIME_BINS, Result


@dataclass(frozen=True, slots=True)
class Score:
    """What one policy came to, the mean over all seeds."""

    policy: str
    sla_percent: float
    replica_minutes: float
    money: float
    moves: float
    ups: float
    downs: float
    p50_s: float
    p99_s: float
    worst_s: float
    causes: Mapping[str, float]
    """Late records in percent of all, by cause (E-41)."""
    sla_by_seed: tuple[float, ...]
    meets_goal: bool = False
    on_front: bool = False
    """No other policy is as cheap and as often in time, and better in one of the two."""


@dataclass(frozen=True, eq=False)
class Curve:
    """One policy over time, for the plot."""

    policy: str
    at_s: Floats
    replicas: Floats
    p99_s: Floats


def score(label: str, outcome: Result, circumstances: Circumstances) -> Score:
    return Score(
        label,
        outcome.sla_percent,
        outcome.replica_minutes,
        outcome.replica_minutes / 60 * circumstances.price_per_hour,
        outcome.moves,
        outcome.ups,
        outcome.downs,
        outcome.quantile_s(0.5) + circumstances.fixed_s,
        outcome.quantile_s(0.99) + circumstances.fixed_s,
        outcome.max_latency_s + circumstances.fixed_s,
        outcome.late_percent(),
        (outcome.sla_percent,),
    )


def mean(scores: Sequence[Score]) -> Score:
    """Over seeds; the worst latency stays the worst."""

    def of(value: Callable[[Score], float]) -> float:
        return float(np.mean([value(s) for s in scores]))

    causes = {cause: of(lambda s, c=cause: s.causes.get(c, 0.0)) for cause in CAUSES}  # type: ignore[misc]
    return Score(
        scores[0].policy,
        of(lambda s: s.sla_percent),
        of(lambda s: s.replica_minutes),
        of(lambda s: s.money),
        of(lambda s: s.moves),
        of(lambda s: s.ups),
        of(lambda s: s.downs),
        of(lambda s: s.p50_s),
        of(lambda s: s.p99_s),
        max(s.worst_s for s in scores),
        {cause: share for cause, share in causes.items() if share},
        tuple(s.sla_percent for s in scores),
    )


def ranked(scores: Iterable[Score], quantile: float) -> tuple[Score, ...]:
    """Cheapest first, with what meets the goal and what is on the front marked."""
    ordered = sorted(scores, key=lambda s: (s.replica_minutes, -s.sla_percent))
    marked, best, front = [], -math.inf, (math.nan, math.nan)
    for each in ordered:
        scored = each.replica_minutes, each.sla_percent
        if each.sla_percent > best:
            best, front = each.sla_percent, scored
        on_front = scored == front  # whoever equals one on the front is on it, too
        marked.append(replace(each, meets_goal=each.sla_percent >= 100 * quantile - 1e-9, on_front=on_front))
    return tuple(marked)


def curve(label: str, outcome: Result, duration_s: float, waits_s: float) -> Curve:
    middles = duration_s * (np.arange(TIME_BINS) + 0.5) / TIME_BINS
    return Curve(label, middles, outcome.replicas_at(middles), outcome.p99_over_time(duration_s) + waits_s)
