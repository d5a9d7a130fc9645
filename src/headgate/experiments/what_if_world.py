"""A pipeline's traffic made ready for the simulators: cut into packets, with the settings and facts of the pipeline."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from headgate.config.pipeline import Pipeline
from headgate.controller.assembly import events_within, queueing_s, settings_of
from headgate.experiments.engines import EngineName, World, fluid_decides_every, fluid_step_s, for_packets
from headgate.experiments.what_if_circumstances import Circumstances
from headgate.simulation.group import GroupSettings
from headgate.simulation.packets import Packets, cut
from headgate.simulation.recorded import Trace
from headgate.simulation.run import RunSettings

MOST_LOOKS = 7_000
"""Decisions in a run; a trace of days is looked at less often than every second."""
_WARM_UP_S = 15.0
_PEAK_S = 10.0
"""A peak is the highest mean over so long."""


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


def facts_of(pipeline: Pipeline, world: World, circumstances: Circumstances) -> dict[str, Any]:
    """What policies may ask for by name. Peaks are known to those that are sized for them, as a person would know."""
    packets, settings = world.packets, world.settings
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


def resolution_of(world: World, engine: EngineName) -> Resolution:
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
