"""Workloads: how many bytes per second each partition receives at any moment.

A workload is a value. It answers for any time in any order, always the same, so that a simulation and a load
generator that writes to a real broker follow the very same load. Shapes describe partitions directly; combinators
(`Skew`, `Shift`, `Scaled`, `Sum`, `Phases`) make new workloads out of others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, cos, floor, pi
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headgate.model import TopicPartition

Partitions = tuple[TopicPartition, ...]


class Workload(Protocol):
    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        """Bytes per second of each partition, `t_s` seconds after the start."""
        ...

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        """Every time in (start_s, end_s) at which a rate jumps or bends; between two of them all rates are smooth."""
        ...


# ---------------------------------------------------------------------------------------------- bytes over time

_NODES, _WEIGHTS = (tuple(map(float, values)) for values in np.polynomial.legendre.leggauss(5))


def volumes(workload: Workload, start_s: float, end_s: float) -> dict[TopicPartition, float]:
    """Bytes each partition receives in [start_s, end_s]: the integral of its rate.

    Gauss-Legendre between the edges: exact where rates are constant or linear, and to ten digits for a cosine.
    """
    received: dict[TopicPartition, float] = {}
    if end_s <= start_s:
        return received
    inner = sorted({edge for edge in workload.edges(start_s, end_s) if start_s < edge < end_s})
    for left, right in pairwise((start_s, *inner, end_s)):
        half, middle = (right - left) / 2, (right + left) / 2
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            for partition, rate in workload.rates(middle + half * node).items():
                received[partition] = received.get(partition, 0.0) + rate * weight * half
    return received


def time_until(workload: Workload, total_bytes: float, limit_s: float = 7 * 86_400) -> float:
    """The moment at which all partitions together have received `total_bytes`."""
    if total_bytes <= 0:
        return 0.0
    left, window, before = 0.0, 1.0, 0.0
    while (within := sum(volumes(workload, left, left + window).values())) + before < total_bytes:
        before, left, window = before + within, left + window, window * 2
        if left >= limit_s:
            raise ValueError(
                f"this workload brings {before:.0f} bytes in {limit_s:g} s and never {total_bytes:.0f}: "
                "ask for fewer records or a higher rate"
            )
    while window > 1e-9 * max(left, 1.0):
        window /= 2
        within = sum(volumes(workload, left, left + window).values())
        if before + within < total_bytes:
            before, left = before + within, left + window
    return left + window


# ------------------------------------------------------------------------------------------------------- shapes


@dataclass(frozen=True)
class Steady:
    """The same rate for ever."""

    bytes_per_s: Mapping[TopicPartition, float]

    def __post_init__(self) -> None:
        _some(tuple(self.bytes_per_s))
        for partition, rate in self.bytes_per_s.items():
            _not_negative(f"the rate of {partition}", rate)

    @classmethod
    def spread(cls, partitions: Iterable[TopicPartition], total_bytes_per_s: float) -> "Steady":
        """`total_bytes_per_s` in equal parts over the partitions."""
        parts = _some(tuple(partitions))
        return cls(dict.fromkeys(parts, total_bytes_per_s / len(parts)))

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        return self.bytes_per_s

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        return ()


@dataclass(frozen=True)
class Step:
    """Each partition's rate jumps to the next level at a given time, and is zero before the first.

    E1 is `Step((p,), ((0, 123), (35, 246), (70, 492)))`: 123-byte records every 1, 0.5 and 0.25 s.
    """

    partitions: Partitions
    levels: tuple[tuple[float, float], ...]
    """(from second, bytes per second of each partition), by rising time."""

    def __post_init__(self) -> None:
        _some(self.partitions)
        if not self.levels:
            raise ValueError("a step needs at least one level")
        for at_s, rate in self.levels:
            _not_negative("the time of a level", at_s)
            _not_negative(f"the level at {at_s:g} s", rate)
        for (earlier_s, _), (later_s, _) in pairwise(self.levels):
            if later_s <= earlier_s:
                raise ValueError(f"levels must rise in time: {later_s:g} s comes after {earlier_s:g} s")

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        reached = [rate for at_s, rate in self.levels if at_s <= t_s]
        return dict.fromkeys(self.partitions, reached[-1] if reached else 0.0)

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        return (at_s for at_s, _ in self.levels)


@dataclass(frozen=True)
class Ramp:
    """Each partition's rate goes in a straight line from one value to another and stays there."""

    partitions: Partitions
    from_bytes_per_s: float
    to_bytes_per_s: float
    over_s: float

    def __post_init__(self) -> None:
        _some(self.partitions)
        _not_negative("the rate a ramp starts from", self.from_bytes_per_s)
        _not_negative("the rate a ramp leads to", self.to_bytes_per_s)
        _positive("the length of a ramp", self.over_s)

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        done = _progress(t_s, 0.0, self.over_s)
        rate = self.from_bytes_per_s + (self.to_bytes_per_s - self.from_bytes_per_s) * done
        return dict.fromkeys(self.partitions, rate)

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        return (self.over_s,)


@dataclass(frozen=True)
class Cosine:
    """Each partition's rate swings around a mean, with its own phase."""

    mean_bytes_per_s: float
    amplitude_bytes_per_s: float
    period_s: float
    peak_at_s: Mapping[TopicPartition, float]
    """When each partition peaks first. All equal: the total swings; spread over a period: only the partitions do."""

    def __post_init__(self) -> None:
        _some(tuple(self.peak_at_s))
        _positive("the period", self.period_s)
        _not_negative("the amplitude", self.amplitude_bytes_per_s)
        if self.amplitude_bytes_per_s > self.mean_bytes_per_s:
            raise ValueError(
                f"an amplitude of {self.amplitude_bytes_per_s:g} around a mean of {self.mean_bytes_per_s:g} bytes/s "
                "makes rates negative: choose one not larger than the mean"
            )

    @classmethod
    def staggered(
        cls, partitions: Partitions, mean_bytes_per_s: float, amplitude_bytes_per_s: float, period_s: float
    ) -> "Cosine":
        """Peaks spread evenly over one period: the load wanders through the partitions, the total stays."""
        peaks = {partition: i * period_s / len(partitions) for i, partition in enumerate(partitions)}
        return cls(mean_bytes_per_s, amplitude_bytes_per_s, period_s, peaks)

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        return {
            partition: self.mean_bytes_per_s + self.amplitude_bytes_per_s * cos(2 * pi * (t_s - peak_s) / self.period_s)
            for partition, peak_s in self.peak_at_s.items()
        }

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        return _multiples(self.period_s / 4, start_s, end_s)  # so that each smooth piece is a quarter wave at most


@dataclass(frozen=True)
class Spike:
    """Each partition's rate jumps from base to peak for a while: once, or again and again."""

    partitions: Partitions
    base_bytes_per_s: float
    peak_bytes_per_s: float
    at_s: float
    width_s: float
    every_s: float | None = None
    """From the start of one spike to the start of the next; None for a single one."""

    def __post_init__(self) -> None:
        _some(self.partitions)
        _not_negative("the base rate", self.base_bytes_per_s)
        _not_negative("the peak rate", self.peak_bytes_per_s)
        _not_negative("the time of the first spike", self.at_s)
        _positive("the width of a spike", self.width_s)
        if self.every_s is not None and self.every_s <= self.width_s:
            raise ValueError(f"spikes every {self.every_s:g} s overlap if each lasts {self.width_s:g} s")

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        since_s = t_s - self.at_s
        if self.every_s is not None and since_s >= 0:
            since_s -= floor(since_s / self.every_s) * self.every_s
        inside = 0 <= since_s < self.width_s
        return dict.fromkeys(self.partitions, self.peak_bytes_per_s if inside else self.base_bytes_per_s)

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        if self.every_s is None:
            return (self.at_s, self.at_s + self.width_s)
        rises = _multiples(self.every_s, start_s, end_s, origin_s=self.at_s)
        falls = _multiples(self.every_s, start_s, end_s, origin_s=self.at_s + self.width_s)
        return (*rises, *falls)


_BLOCK = 256
"""Steps drawn at once by the random shapes."""


@dataclass(frozen=True)
class RandomWalk:
    """E3: s_i = s_{i-1} + phi(delta)/100 · C, phi uniform on [-delta, delta], each partition on its own.

    The published equation lets rates leave [0, C]; they are clamped (A-4).
    """

    partitions: Partitions
    capacity_bytes_per_s: float
    """C: no partition's rate exceeds it."""
    delta_percent: float
    """Largest change in one step, in percent of C."""
    start_percent: float | None = None
    """s_0 of every partition in percent of C; None draws each uniformly from [0, C]."""
    step_s: float = 1.0
    seed: int = 0
    _blocks: dict[int, npt.NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _some(self.partitions)
        _not_negative("the capacity", self.capacity_bytes_per_s)
        _not_negative("delta", self.delta_percent)
        _positive("the length of a step", self.step_s)
        _not_negative("the seed", self.seed)
        if self.start_percent is not None and not 0 <= self.start_percent <= 100:
            raise ValueError(f"a walk starts between 0 and 100 % of the capacity, not at {self.start_percent:g} %")

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        i = max(0, floor(t_s / self.step_s + 1e-9))
        row = self._block(i // _BLOCK)[i % _BLOCK]
        return dict(zip(self.partitions, row.tolist(), strict=True))

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        return _multiples(self.step_s, start_s, end_s)

    def _block(self, number: int) -> npt.NDArray[np.float64]:
        # Each block has its own generator, so filling one twice (from two threads) gives the same values twice.
        for n in range(len(self._blocks), number + 1):
            draw = np.random.default_rng((self.seed, n))
            changes = draw.uniform(-self.delta_percent, self.delta_percent, (_BLOCK, len(self.partitions)))
            changes *= self.capacity_bytes_per_s / 100
            rows = np.empty_like(changes)
            for i, change in enumerate(changes):
                if i:
                    reached = rows[i - 1] + change
                elif n:
                    reached = self._blocks[n - 1][-1] + change
                else:
                    reached = self._initial(draw)
                rows[i] = np.clip(reached, 0.0, self.capacity_bytes_per_s)
            self._blocks[n] = rows
        return self._blocks[number]

    def _initial(self, draw: np.random.Generator) -> npt.NDArray[np.float64]:
        if self.start_percent is None:
            return draw.uniform(0.0, self.capacity_bytes_per_s, len(self.partitions))
        return np.full(len(self.partitions), self.start_percent / 100 * self.capacity_bytes_per_s)


@dataclass(frozen=True)
class RandomWaits:
    """E1 (b): one partition gets a record after each wait drawn uniformly from [shortest_s, longest_s].

    As a rate: `record_bytes` spread evenly over each wait, so that every wait's end completes exactly one record.
    """

    partition: TopicPartition
    record_bytes: int
    shortest_s: float
    longest_s: float
    seed: int = 0
    _ends: dict[int, npt.NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _positive("the size of a record", self.record_bytes)
        _positive("the shortest wait", self.shortest_s)
        _not_negative("the seed", self.seed)
        if self.longest_s < self.shortest_s:
            raise ValueError(f"the longest wait, {self.longest_s:g} s, is below the shortest, {self.shortest_s:g} s")

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        n, ends = self._block_at(t_s)
        i = int(np.searchsorted(ends, t_s, side="right"))
        begun_s = float(ends[i - 1]) if i else self._block_start_s(n)
        return {self.partition: self.record_bytes / (float(ends[i]) - begun_s)}

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        first, _ = self._block_at(start_s)
        last, _ = self._block_at(end_s)
        for n in range(first, last + 1):
            ends = self._ends[n]
            yield from ends[(ends > start_s) & (ends < end_s)].tolist()

    def _block_at(self, t_s: float) -> tuple[int, npt.NDArray[np.float64]]:
        """The first block of waits that ends after `t_s`."""
        n = 0
        while True:
            if n not in self._ends:
                draw = np.random.default_rng((self.seed, n))
                waits = draw.uniform(self.shortest_s, self.longest_s, _BLOCK)
                self._ends[n] = self._block_start_s(n) + np.cumsum(waits)
            if self._ends[n][-1] > t_s:
                return n, self._ends[n]
            n += 1

    def _block_start_s(self, n: int) -> float:
        return float(self._ends[n - 1][-1]) if n else 0.0


# -------------------------------------------------------------------------------------------------- combinators


@dataclass(frozen=True)
class Skew:
    """Another workload's total, divided between partitions by fixed weights."""

    of: Workload
    weights: Mapping[TopicPartition, float]

    def __post_init__(self) -> None:
        for partition, weight in self.weights.items():
            _not_negative(f"the weight of {partition}", weight)
        if not sum(self.weights.values()) > 0:
            raise ValueError("weights must not all be zero")

    @classmethod
    def zipf(cls, of: Workload, partitions: Partitions, exponent: float) -> "Skew":
        """The k-th partition gets a share proportional to 1 / k^exponent; 0 makes all equal."""
        _not_negative("the Zipf exponent", exponent)
        return cls(of, {partition: 1 / k**exponent for k, partition in enumerate(partitions, start=1)})

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        unit = sum(self.of.rates(t_s).values()) / sum(self.weights.values())
        return {partition: weight * unit for partition, weight in self.weights.items()}

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        return self.of.edges(start_s, end_s)


@dataclass(frozen=True)
class Shift:
    """Moves a share of some partitions' load to others, little by little; the total stays what it was."""

    of: Workload
    sources: frozenset[TopicPartition]
    targets: frozenset[TopicPartition]
    share: float
    """How much of the sources' load has moved in the end, 0 … 1; the targets get it in equal parts."""
    begin_s: float
    over_s: float

    def __post_init__(self) -> None:
        if not self.sources or not self.targets:
            raise ValueError("a shift needs partitions to take load from and partitions to give it to")
        if both := self.sources & self.targets:
            raise ValueError(f"{min(both)} is both a source and a target of the shift")
        if not 0 <= self.share <= 1:
            raise ValueError(f"the share that moves lies between 0 and 1, not at {self.share:g}")
        _not_negative("the begin of the shift", self.begin_s)
        _not_negative("the length of the shift", self.over_s)

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        moved = self.share * _progress(t_s, self.begin_s, self.over_s)
        rates = dict(self.of.rates(t_s))
        taken = sum(rates.get(partition, 0.0) for partition in self.sources) * moved
        for partition in self.sources & rates.keys():
            rates[partition] *= 1 - moved
        for partition in self.targets:
            rates[partition] = rates.get(partition, 0.0) + taken / len(self.targets)
        return rates

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        return (*self.of.edges(start_s, end_s), self.begin_s, self.begin_s + self.over_s)


@dataclass(frozen=True)
class Scaled:
    """Another workload, every rate multiplied by a factor."""

    of: Workload
    factor: float

    def __post_init__(self) -> None:
        _not_negative("the factor", self.factor)

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        return {partition: rate * self.factor for partition, rate in self.of.rates(t_s).items()}

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        return self.of.edges(start_s, end_s)


@dataclass(frozen=True)
class Sum:
    """Several workloads at once; where they share a partition its rates add up."""

    parts: tuple[Workload, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("a sum needs at least one workload")

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        rates: dict[TopicPartition, float] = {}
        for part in self.parts:
            for partition, rate in part.rates(t_s).items():
                rates[partition] = rates.get(partition, 0.0) + rate
        return rates

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        return (edge for part in self.parts for edge in part.edges(start_s, end_s))


@dataclass(frozen=True)
class Phases:
    """Workloads one after the other, each from its own second zero; nothing after the last."""

    parts: tuple[tuple[float, Workload], ...]
    """(length in seconds, workload)."""

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("a sequence needs at least one phase")
        for length_s, _ in self.parts:
            _positive("the length of a phase", length_s)

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        begin_s = 0.0
        for length_s, workload in self.parts:
            if t_s < begin_s + length_s:
                return workload.rates(t_s - begin_s)
            begin_s += length_s
        length_s, workload = self.parts[-1]
        return dict.fromkeys(workload.rates(length_s), 0.0)

    def edges(self, start_s: float, end_s: float) -> Iterable[float]:
        begin_s = 0.0
        for length_s, workload in self.parts:
            yield begin_s
            left, right = max(start_s - begin_s, 0.0), min(end_s - begin_s, length_s)
            if left < right:
                yield from (begin_s + edge for edge in workload.edges(left, right) if left < edge < right)
            begin_s += length_s
        yield begin_s


def rise_shift_fall(
    low: Mapping[TopicPartition, float],
    high: Mapping[TopicPartition, float],
    sources: Iterable[TopicPartition],
    targets: Iterable[TopicPartition],
    duration_s: float,
    share: float = 0.8,
) -> Workload:
    """A third of the time each: the load rises from `low` to `high` (bytes/s), moves between partitions, and falls."""
    _positive("the duration", duration_s)
    third_s = duration_s / 3
    lines = tuple(
        Phases(
            (
                (third_s, Ramp((partition,), low.get(partition, 0.0), rate, third_s)),
                (third_s, Steady({partition: rate})),
                (third_s, Ramp((partition,), rate, low.get(partition, 0.0), third_s)),
            )
        )
        for partition, rate in high.items()
    )
    return Shift(Sum(lines), frozenset(sources), frozenset(targets), share, begin_s=third_s, over_s=third_s)


# ----------------------------------------------------------------------------------------------- shapes by name

SHAPES = ("steady", "step", "ramp", "cosine", "spike", "walk", "waits", "skew")


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


def workload_of_shape(shape: str, partitions: Partitions, given: ShapeParameters) -> Workload:
    """The workload a user means by a shape's name and its parameters."""
    if shape not in SHAPES:
        raise ValueError(f"there is no shape {shape!r}: choose one of {', '.join(SHAPES)}")
    count = len(_some(partitions))
    workload = _unskewed(shape, partitions, given, given.total_bytes_per_s / count)
    if given.weights:
        if given.zipf_exponent is not None:
            raise ValueError("give either weights or a Zipf exponent, not both")
        if len(given.weights) != count:
            raise ValueError(f"{len(given.weights)} weights for {count} partitions: give one for each")
        return Skew(workload, dict(zip(partitions, given.weights, strict=True)))
    if given.zipf_exponent is not None or shape == "skew":
        return Skew.zipf(workload, partitions, 1.0 if given.zipf_exponent is None else given.zipf_exponent)
    return workload


def _unskewed(shape: str, partitions: Partitions, given: ShapeParameters, each: float) -> Workload:
    count = len(partitions)
    match shape:
        case "step":
            return Step(partitions, tuple((at_s, total / count) for at_s, total in given.levels))
        case "ramp":
            return Ramp(partitions, 0.0, each, given.ramp_over_s)
        case "cosine":
            amplitude = each * given.amplitude_percent / 100
            if given.stagger:
                return Cosine.staggered(partitions, each, amplitude, given.period_s)
            return Cosine(each, amplitude, given.period_s, dict.fromkeys(partitions, given.period_s / 2))
        case "spike":
            peak = 5 * each if given.peak_bytes_per_s is None else given.peak_bytes_per_s / count
            return Spike(partitions, each, peak, given.spike_at_s, given.spike_width_s, given.spike_every_s)
        case "walk":
            # A clamped walk is symmetric around C/2, so C is twice the mean that was asked for.
            start, step_s = given.walk_start_percent, given.walk_step_s
            return RandomWalk(partitions, 2 * each, given.walk_delta_percent, start, step_s, given.seed)
        case "waits":
            return Sum(
                tuple(
                    RandomWaits(
                        p, given.record_bytes, given.wait_shortest_s, given.wait_longest_s, given.seed * count + i
                    )
                    for i, p in enumerate(partitions)
                )
            )
        case _:
            return Steady.spread(partitions, given.total_bytes_per_s)


# -------------------------------------------------------------------------------------------------------- checks


def _some(partitions: Partitions) -> Partitions:
    if not partitions:
        raise ValueError("a workload needs at least one partition")
    if len(set(partitions)) != len(partitions):
        raise ValueError("a partition is named twice")
    return partitions


def _not_negative(what: str, value: float) -> None:
    if not value >= 0 or value == float("inf"):
        raise ValueError(f"{what} must be zero or more, not {value:g}")


def _positive(what: str, value: float) -> None:
    if not value > 0 or value == float("inf"):
        raise ValueError(f"{what} must be more than zero, not {value:g}")


def _progress(t_s: float, begin_s: float, over_s: float) -> float:
    """How far something that begins at `begin_s` and takes `over_s` is at `t_s`: 0 … 1."""
    if t_s < begin_s:
        return 0.0
    return 1.0 if t_s >= begin_s + over_s else (t_s - begin_s) / over_s


def _multiples(step_s: float, start_s: float, end_s: float, origin_s: float = 0.0) -> Iterable[float]:
    """origin + k·step within [start_s, end_s], k ≥ 0."""
    first = max(0, ceil((start_s - origin_s) / step_s))
    last = floor((end_s - origin_s) / step_s)
    return (origin_s + k * step_s for k in range(first, last + 1))
