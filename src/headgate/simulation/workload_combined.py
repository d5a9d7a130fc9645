"""Workloads made out of others: divided anew, moved between partitions, added up, one after the other."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headgate.model import TopicPartition
from headgate.simulation.workload import Partitions, Workload
from headgate.simulation.workload_checks import not_negative, positive
from headgate.simulation.workload_shapes import Ramp, Steady
from headgate.simulation.workload_times import progress


@dataclass(frozen=True)
class Skew:
    """Another workload's total, divided between partitions by fixed weights."""

    of: Workload
    weights: Mapping[TopicPartition, float]

    def __post_init__(self) -> None:
        for partition, weight in self.weights.items():
            not_negative(f"the weight of {partition}", weight)
        if not sum(self.weights.values()) > 0:
            raise ValueError("weights must not all be zero")

    @classmethod
    def zipf(cls, of: Workload, partitions: Partitions, exponent: float) -> "Skew":
        """The k-th partition gets a share proportional to 1 / k^exponent; 0 makes all equal."""
        not_negative("the Zipf exponent", exponent)
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
        not_negative("the begin of the shift", self.begin_s)
        not_negative("the length of the shift", self.over_s)

    def rates(self, t_s: float) -> Mapping[TopicPartition, float]:
        moved = self.share * progress(t_s, self.begin_s, self.over_s)
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
            positive("the length of a phase", length_s)

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
    positive("the duration", duration_s)
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
