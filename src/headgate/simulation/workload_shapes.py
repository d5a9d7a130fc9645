"""Workloads that follow a formula: steady, in steps, along a ramp or a cosine, with spikes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import cos, floor, pi

from headgate.model import TopicPartition
from headgate.simulation.workload import Partitions
from headgate.simulation.workload_checks import not_negative, positive, some
from headgate.simulation.workload_times import multiples, progress


@dataclass(frozen=True)
class Steady:
    """The same rate for ever."""

    bytes_per_s: Mapping[TopicPartition, float]

    def __post_init__(self) -> None:
        some(tuple(self.bytes_per_s))
        for partition, rate in self.bytes_per_s.items():
            not_negative(f"the rate of {partition}", rate)

    @classmethod
    def spread(cls, partitions: Iterable[TopicPartition], total_bytes_per_s: float) -> "Steady":
        """`total_bytes_per_s` in equal parts over the partitions."""
        parts = some(tuple(partitions))
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
        some(self.partitions)
        if not self.levels:
            raise ValueError("a step needs at least one level")
        for at_s, rate in self.levels:
            not_negative("the time of a level", at_s)
            not_negative(f"the level at {at_s:g} s", rate)
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
        some(self.partitions)
        not_negative("the rate a ramp starts from", self.from_bytes_per_s)
        not_negative("the rate a ramp leads to", self.to_bytes_per_s)
        positive("the length of a ramp", self.over_s)

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        done = progress(t_s, 0.0, self.over_s)
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
        some(tuple(self.peak_at_s))
        positive("the period", self.period_s)
        not_negative("the amplitude", self.amplitude_bytes_per_s)
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
        return multiples(self.period_s / 4, start_s, end_s)  # so that each smooth piece is a quarter wave at most


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
        some(self.partitions)
        not_negative("the base rate", self.base_bytes_per_s)
        not_negative("the peak rate", self.peak_bytes_per_s)
        not_negative("the time of the first spike", self.at_s)
        positive("the width of a spike", self.width_s)
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
        rises = multiples(self.every_s, start_s, end_s, origin_s=self.at_s)
        falls = multiples(self.every_s, start_s, end_s, origin_s=self.at_s + self.width_s)
        return (*rises, *falls)
