"""Three ways to simulate the same traffic, each for its own question.

`group` follows packets through a model of the group: for most questions. `fluid` lets load flow: for traces of days and
weeks. `controller` runs the live controller with its commands and acknowledgements on virtual time: for what the
controller itself adds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from headgate.controller.exact import ExactPipeline
from headgate.controller.settings import Settings
from headgate.policies import Policy
from headgate.simulation.arrivals import Floats
from headgate.simulation.fluid import FluidSettings, simulate_fluid
from headgate.simulation.outcome import Result
from headgate.simulation.packets import InRecords, Packets
from headgate.simulation.recorded import Trace
from headgate.simulation.run import RunSettings, simulate

EngineName = Literal["group", "fluid", "controller"]
MOST_STEPS = 200_000
"""Steps of a fluid run: a second each up to two days."""
MOST_FLUID_LOOKS = 50_000


@dataclass(frozen=True, eq=False)
class World:
    """One seed's traffic and how it is simulated."""

    trace: Trace
    packets: Packets
    settings: RunSettings
    live: Settings
    """The controller's, for the engine that runs it."""
    readings: Callable[[str], int]
    """How often consumers read a topic: once for every table it feeds."""


Heard = Callable[[float], None]
Engine = Callable[[World, Policy, Heard], Result]


def by_group(world: World, policy: Policy, heard: Heard) -> Result:
    return simulate(world.packets.arrivals, InRecords(policy, world.packets), world.settings, heard)


def by_fluid(world: World, policy: Policy, heard: Heard) -> Result:
    run, bunched = world.settings, world.packets.arrivals.name == "burst"
    step_s = fluid_step_s(world.trace)
    settings = FluidSettings(
        run.group,
        run.slo_s,
        step_s,
        bunched,
        decide_every=fluid_decides_every(world.trace),
        rate_steps=max(1, round(run.rate_window_s / step_s)),
        warm_up_steps=round(run.warm_up_s / step_s),
        record_bytes=run.record_bytes,
        consumers=run.consumers,
        seed=run.seed,
    )
    return simulate_fluid(flow(world, step_s, bunched), InRecords(policy, world.packets), settings, heard)


def fluid_step_s(trace: Trace) -> float:
    return max(1.0, trace.duration_s / MOST_STEPS)


def fluid_decides_every(trace: Trace) -> int:
    """In steps; more often than the other engines, for which a look costs more."""
    return max(1, round(trace.duration_s / MOST_FLUID_LOOKS / fluid_step_s(trace)))


def flow(world: World, step_s: float, bunched: bool) -> Floats:
    """Packets, and fractions of them, per step and partition: an interval's all at its beginning, or evenly over it."""
    trace = world.trace
    times_read = np.array([max(1, world.readings(p.topic)) for p in trace.partitions])
    paid = trace.bytes * times_read / world.packets.packet_bytes
    steps = max(1, int(np.ceil(trace.duration_s / step_s - 1e-9)))
    if bunched:
        per_step = np.zeros((steps, paid.shape[1]))
        np.add.at(per_step, np.minimum((trace.edges_s[:-1] / step_s + 1e-9).astype(np.int64), steps - 1), paid)
        return per_step
    total = np.concatenate([np.zeros((1, paid.shape[1])), np.cumsum(paid, axis=0)])
    at_s = step_s * np.arange(steps + 1)
    return np.stack([np.diff(np.interp(at_s, trace.edges_s, total[:, p])) for p in range(paid.shape[1])], axis=1)


def by_controller(world: World, policy: Policy, heard: Heard) -> Result:
    run = world.settings
    pipeline = ExactPipeline(
        world.packets.arrivals,
        InRecords(policy, world.packets),
        run.group,
        record_bytes=run.record_bytes,
        settings=world.live,
        measure_s=run.slot_s,
        first_s=run.warm_up_s,
        rate_window_s=run.rate_window_s,
        capacity_estimate=run.capacity_estimate,
        consumers=run.consumers,
        seed=run.seed,
    )
    return pipeline.run(run.slo_s, heard)


ENGINES: dict[EngineName, Engine] = {"group": by_group, "fluid": by_fluid, "controller": by_controller}


def for_packets(live: Settings) -> Settings:
    """A live controller's patience, for traffic in packets, which are counted as often as they are read already."""
    return replace(live, tables_of=lambda topic: 1)
