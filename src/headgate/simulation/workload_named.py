"""The workload that a person means by a shape's name and a few parameters."""

from dataclasses import dataclass
from enum import StrEnum

from headgate.simulation.workload import Partitions, Workload
from headgate.simulation.workload_checks import some
from headgate.simulation.workload_combined import Skew, Sum
from headgate.simulation.workload_random import RandomWaits, RandomWalk
from headgate.simulation.workload_shapes import Cosine, Ramp, Spike, Steady, Step


class Shape(StrEnum):
    steady = "steady"
    step = "step"
    ramp = "ramp"
    cosine = "cosine"
    spike = "spike"
    walk = "walk"
    waits = "waits"
    skew = "skew"


@dataclass(frozen=True, slots=True)
class ShapeParameters:
    """What the shapes can be told by name; each shape uses its own and leaves the rest."""

    total_bytes_per_s: float = 1_000_000.0
    """All partitions together: of steady, skew and ramp the rate, of cosine and walk the mean, of spike the base."""
    levels: tuple[tuple[float, float], ...] = ()
    """step: (from second, total bytes per second)."""
    period_s: float = 60.0
    """cosine: one swing; starts in the trough."""
    amplitude_percent: float = 80.0
    """cosine: in percent of the mean."""
    stagger: bool = False
    """cosine: partitions peak one after the other, so that the total stays level."""
    peak_bytes_per_s: float | None = None
    """spike: total at the peak; None is five times the base."""
    spike_at_s: float = 10.0
    spike_width_s: float = 10.0
    spike_every_s: float | None = None
    ramp_over_s: float = 60.0
    """ramp: from nothing to the total in this time."""
    walk_delta_percent: float = 10.0
    walk_start_percent: float | None = None
    walk_step_s: float = 1.0
    wait_shortest_s: float = 0.01
    wait_longest_s: float = 2.0
    record_bytes: int = 500
    """waits: what arrives after each wait."""
    zipf_exponent: float | None = None
    """Any shape: divide its total by Zipf's law. skew uses 1 if neither this nor weights are given."""
    weights: tuple[float, ...] = ()
    """Any shape: divide its total by these weights, one per partition."""
    seed: int = 0


def workload_of_shape(shape: Shape, partitions: Partitions, given: ShapeParameters) -> Workload:
    """The shape's workload, with the total divided anew where weights or an exponent say so."""
    count = len(some(partitions))
    workload = _unskewed(shape, partitions, given, given.total_bytes_per_s / count)
    if given.weights:
        if given.zipf_exponent is not None:
            raise ValueError("give either weights or a Zipf exponent, not both")
        if len(given.weights) != count:
            raise ValueError(f"{len(given.weights)} weights for {count} partitions: give one for each")
        return Skew(workload, dict(zip(partitions, given.weights, strict=True)))
    if given.zipf_exponent is not None or shape is Shape.skew:
        return Skew.zipf(workload, partitions, 1.0 if given.zipf_exponent is None else given.zipf_exponent)
    return workload


def _unskewed(shape: Shape, partitions: Partitions, given: ShapeParameters, each: float) -> Workload:
    count = len(partitions)
    match shape:
        case Shape.step:
            return Step(partitions, tuple((at_s, total / count) for at_s, total in given.levels))
        case Shape.ramp:
            return Ramp(partitions, 0.0, each, given.ramp_over_s)
        case Shape.cosine:
            amplitude = each * given.amplitude_percent / 100
            if given.stagger:
                return Cosine.staggered(partitions, each, amplitude, given.period_s)
            return Cosine(each, amplitude, given.period_s, dict.fromkeys(partitions, given.period_s / 2))
        case Shape.spike:
            peak = 5 * each if given.peak_bytes_per_s is None else given.peak_bytes_per_s / count
            return Spike(partitions, each, peak, given.spike_at_s, given.spike_width_s, given.spike_every_s)
        case Shape.walk:
            # A clamped walk is symmetric around C/2, so C is twice the mean that was asked for.
            start, step_s = given.walk_start_percent, given.walk_step_s
            return RandomWalk(partitions, 2 * each, given.walk_delta_percent, start, step_s, given.seed)
        case Shape.waits:
            return Sum(
                tuple(
                    RandomWaits(
                        p, given.record_bytes, given.wait_shortest_s, given.wait_longest_s, given.seed * count + i
                    )
                    for i, p in enumerate(partitions)
                )
            )
        case Shape.steady | Shape.skew:
            return Steady.spread(partitions, given.total_bytes_per_s)
