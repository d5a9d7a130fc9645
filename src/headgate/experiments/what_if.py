"""What a pipeline's traffic would have been like under other policies: each one simulated, scored and compared."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from headgate.config.pipeline import Pipeline
from headgate.controller.assembly import fixed_s, policy_of, queueing_s, settings_of
from headgate.errors import ConfigError
from headgate.experiments.engines import ENGINES, EngineName, World, fluid_decides_every, fluid_step_s, for_packets
from headgate.simulation.arrivals import Floats
from headgate.simulation.group import GroupSettings
from headgate.simulation.outcome import CAUSES, TIME_BINS, Result
from headgate.simulation.packets import MOST_PACKETS, Packets, Spacing, cut
from headgate.simulation.recorded import Trace
from headgate.simulation.run import RunSettings
from headgate.simulation.start_times import StartTimes

MOST_LOOKS = 7_000
"""Decisions in a run; a trace of days is looked at less often than every second."""
THREAD_START_S, PROCESS_START_S = 1.0, 20.0
"""Until starts are measured: a thread shares the Spark session, a process or a pod makes its own."""
_WARM_UP_S = 15.0
_PEAK_S = 10.0
"""A peak is the highest mean over so long."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the simulated world is like, beyond what the pipeline file says."""

    slo_s: float
    """The goal: from a record's arrival to its commit."""
    fixed_s: float
    """How much of that goes by in gathering and committing, whatever the policy does."""
    quantile: float
    start_s: float
    """From asking for a consumer to its being ready."""
    pause_s: float
    """How long a partition that moves stands still."""
    protocol: Literal["cooperative", "eager"] = "cooperative"
    spacing: Spacing = "even"
    price_per_hour: float = 0.20
    consumers: int | None = None
    """At the beginning; None: as many as the load of the first minute fills."""
    most_packets: int = MOST_PACKETS
    starts: StartTimes | None = None
    """Starts are drawn from this; `start_s` is then their mean."""
    engine: EngineName = "group"

    def __post_init__(self) -> None:
        for name in ("slo_s", "most_packets"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name):g}")
        for name in ("fixed_s", "start_s", "pause_s", "price_per_hour"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must not be negative, not {getattr(self, name):g}")
        if not 0 < self.quantile < 1:
            raise ConfigError(f"the share of records in time must be between 0 and 1, not {self.quantile:g}")
        if self.fixed_s >= self.slo_s:
            raise ConfigError(
                f"a record waits up to {self.fixed_s:g} s to be gathered and committed (consumer.wait_s and "
                f"lake.commit_interval_s), so no policy meets a goal of {self.slo_s:g} s: raise the goal or lower those"
            )
        if self.engine != "group" and self.protocol == "eager":
            raise ConfigError(f"the {self.engine} engine moves cooperatively only: leave out --eager")
        if self.engine == "fluid" and self.spacing == "random":
            raise ConfigError("a fluid has no single records to place at random: use --spacing even or burst")

    @classmethod
    def of(
        cls,
        pipeline: Pipeline,
        slo_s: float | None = None,
        start_s: float | StartTimes | None = None,
        pause_s: float | None = None,
        **others: Any,
    ) -> "Circumstances":
        """From the pipeline file: a move waits for a cycle to end and a commit, a start for Spark."""
        waits_s = fixed_s(pipeline)
        usual_s = THREAD_START_S if pipeline.fleet.kind == "threads" else PROCESS_START_S
        starts = start_s if isinstance(start_s, StartTimes) else None
        return cls(
            pipeline.slo.latency_s if slo_s is None else slo_s,
            waits_s,
            pipeline.slo.quantile,
            usual_s if start_s is None else start_s.mean_s if isinstance(start_s, StartTimes) else start_s,
            waits_s if pause_s is None else pause_s,
            starts=starts,
            **others,
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy to try: how it is shown, its name, and parameters on top of the pipeline's."""

    label: str
    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    required: bool = True
    """Otherwise it is left out, with a note, if it cannot be built from what is known."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """How finely the traffic was simulated."""

    packets: int
    packet_bytes: int
    records_per_packet: float
    packets_per_s: float
    """Of one consumer."""
    period_s: float
    """Between two decisions."""
    step_s: float | None = None
    """Of a fluid, which knows no packets."""

    @property
    def latency_s(self) -> float:
        """Latencies are exact to about the time one packet takes."""
        return 1 / self.packets_per_s


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
    facts = [facts_of(pipeline, world.packets, circumstances, world.settings) for world in worlds]
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
        _resolution(shown, circumstances.engine),
        ranked([mean(scores) for scores in scored.values()], circumstances.quantile),
        tuple(curves),
        (*shown.trace.notes, *_strangers(pipeline, shown.trace), *left_out),
    )


def buildable(
    pipeline: Pipeline, choices: Iterable[Choice], facts: Mapping[str, Any]
) -> tuple[list[Choice], list[str]]:
    """Those that can be built, and a note for each that cannot and need not; ConfigError for one that was asked for."""
    able, left_out = [], []
    for choice in choices:
        try:
            policy_of(pipeline, choice.name, choice.params, facts)
            able.append(choice)
        except ConfigError as error:
            if choice.required:
                raise
            left_out.append(f"left out: {error}")
    if not able:
        raise ConfigError("none of these policies can be built: " + "; ".join(left_out))
    return able, left_out


def world_of(pipeline: Pipeline, trace: Trace, circumstances: Circumstances, seed: int) -> World:
    def readings(topic: str) -> int:
        return len(pipeline.tables_of(topic))

    rng = np.random.default_rng([seed, 11])
    packets = cut(trace, circumstances.most_packets, circumstances.spacing, rng, readings)
    settings = run_settings(pipeline, packets, circumstances, seed)
    return World(trace, packets, settings, for_packets(settings_of(pipeline)), readings)


def run_settings(pipeline: Pipeline, packets: Packets, circumstances: Circumstances, seed: int) -> RunSettings:
    duration_s = packets.arrivals.duration_s
    capacity = pipeline.policy.consumer_capacity_bytes_per_s
    poll_s = max(pipeline.monitor.poll_s, duration_s / (2 * MOST_LOOKS))
    period_s = max(1.03 * poll_s, duration_s / MOST_LOOKS)
    window_s = max(poll_s, min(pipeline.monitor.window_s, duration_s / 10))
    return RunSettings(
        GroupSettings(
            packets.per_s(capacity),
            circumstances.start_s,
            circumstances.pause_s,
            max_poll_records=max(1, round(pipeline.consumer.batch_bytes / packets.packet_bytes)),
            starts=circumstances.starts,
        ),
        circumstances.protocol,
        slo_s=queueing_s(circumstances.slo_s, circumstances.fixed_s),
        period_s=period_s,
        phase_s=float(np.random.default_rng([seed, 12]).uniform(0, period_s)),
        warm_up_s=max(min(_WARM_UP_S, duration_s / 20), window_s),  # rates over half a window would be half as high
        rate_window_s=window_s,
        slot_s=poll_s,
        record_bytes=packets.packet_bytes,
        capacity_estimate=pipeline.policy.capacity_estimate,
        consumers=_at_first(pipeline, packets, circumstances),
        seed=seed,
    )


def _at_first(pipeline: Pipeline, packets: Packets, circumstances: Circumstances) -> int:
    limit = min(pipeline.fleet.max_consumers, len(packets.partitions))
    if circumstances.consumers is not None:
        return max(1, min(circumstances.consumers, limit))
    minute_s = min(60.0, packets.arrivals.duration_s)
    came = sum(int(t.searchsorted(minute_s)) for t in packets.arrivals.times_s) * packets.packet_bytes
    return max(1, min(limit, math.ceil(came / minute_s / pipeline.policy.packing_capacity_bytes_per_s)))


def facts_of(
    pipeline: Pipeline, packets: Packets, circumstances: Circumstances, settings: RunSettings
) -> dict[str, Any]:
    """What policies may ask for by name. Peaks are known to those that are sized for them, as a person would know."""
    capacity = pipeline.policy.consumer_capacity_bytes_per_s
    records_per_s = packets.per_s(capacity) * packets.mean_records
    counts = np.bincount((np.concatenate(packets.arrivals.times_s) / _PEAK_S).astype(np.int64))
    peak = float(counts.max()) / _PEAK_S
    beat_s = max(1.0, settings.slot_s)
    return {
        "slo_s": settings.slo_s,
        "quantile": circumstances.quantile,
        # Added to every latency afterwards, no simulated lag holds it; but the controller's lag does until it landed.
        "waits_s": circumstances.pause_s if circumstances.engine == "controller" else 0.0,
        "capacity_records_per_s": records_per_s,
        "rebalance_s": max(circumstances.pause_s, 1e-3),
        "events": events_within(records_per_s, settings.slo_s),
        "beat_s": beat_s,
        "interval_s": max(beat_s, settings.period_s),
        "peak_records_per_s": peak * packets.mean_records,
        "partitions": len(packets.partitions),
        "replicas": max(1, math.ceil(peak * packets.packet_bytes / pipeline.policy.packing_capacity_bytes_per_s)),
    }


def events_within(capacity_records_per_s: float, slo_s: float) -> float:
    """v = mu · w_sla, what one consumer does within the SLO (A-2); at most a second's, for batches are of a second."""
    return capacity_records_per_s * min(1.0, slo_s)


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


def _resolution(world: World, engine: EngineName) -> Resolution:
    run, packets = world.settings, world.packets
    period_s = run.period_s
    if engine == "fluid":
        period_s = fluid_step_s(world.trace) * fluid_decides_every(world.trace)
    return Resolution(
        packets.arrivals.events,
        packets.packet_bytes,
        packets.mean_records,
        run.group.capacity_records_per_s,
        world.live.poll_s if engine == "controller" else period_s,
        fluid_step_s(world.trace) if engine == "fluid" else None,
    )


def _strangers(pipeline: Pipeline, trace: Trace) -> tuple[str, ...]:
    unknown = sorted({p.topic for p in trace.partitions if not pipeline.tables_of(p.topic)})
    if not unknown:
        return ()
    return (f"{', '.join(unknown)}: not among the pipeline's topics; taken to be read once, for one table",)
