"""What full cycles say of a consumer: how fast it is, how sure that is, and what to plan with (E2)."""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.controller.warming import WarmUp
from headgate.model.messages import CycleRecord

CONSUMER_SHARE = 0.85
"""Of the slowest layout's mean, for `consumer_capacity`: 2.31 MB/s were published, and 2.0 planned with."""
PACKING_SHARE = 0.75
"""Of the consumer capacity, for `packing_capacity` (L-2)."""
FIRST_CYCLES = 2
"""Full cycles of a new consumer that do not count: it connects, and chooses them by a guess at the records' sizes."""
FEWEST_CYCLES = 5
"""Full cycles after those from which a mean and its interval say anything."""
NOTHING_MEASURED = "stopped before anything was measured"


@dataclass(frozen=True, slots=True)
class Measure:
    """The mean over cycles, their standard deviation, and where the mean lies with 95 %."""

    mean: float
    deviation: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Measure":
        mean = Rate.of(values, [1.0] * len(values))
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(mean.mean, deviation, mean.low, mean.high)


@dataclass(frozen=True, slots=True)
class Rate:
    """All work over all time, as consumers measure themselves (E-3), and where that lies with 95 %. A mean of the
    cycles' own rates would say far more: of two cycles at once, what they share counts for the first, and the second
    looks short."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, work: Sequence[float], seconds: Sequence[float]) -> "Rate":
        """The interval by drawing whole cycles again and again: no shape of their distribution is assumed. The draws
        are the same for every kind of work of the same cycles."""
        cycles = list(zip(work, seconds, strict=True))
        draw = random.Random(1)
        drawn = sorted(_per_s(draw.choices(cycles, k=len(cycles))) for _ in range(1000))
        return cls(_per_s(cycles), drawn[25], drawn[974])


def _per_s(cycles: Sequence[tuple[float, float]]) -> float:
    return sum(work for work, _ in cycles) / sum(seconds for _, seconds in cycles)


def full_cycles(cycles: Sequence[CycleRecord]) -> list[CycleRecord]:
    """Those of one consumer that had a full batch waiting and show what it can do."""
    return [cycle for cycle in cycles if cycle.peak][FIRST_CYCLES:]


@dataclass(frozen=True, slots=True)
class Measured:
    """One layout: averages over the cycles that had a full batch waiting."""

    layout: str
    cycles: int
    partitions: int
    tables: int
    total_bytes: int
    gather_s: Measure
    process_s: Measure
    announce_s: Measure
    cycle_s: Measure
    bytes_per_s: Rate
    records_per_s: Rate

    @classmethod
    def of(cls, layout: str, cycles: Sequence[CycleRecord]) -> "Measured | None":
        """None if there were too few full ones."""
        full = full_cycles(cycles)
        if len(full) < FEWEST_CYCLES:
            return None
        busy = [c.busy_s for c in full]
        return cls(
            layout=layout,
            cycles=len(full),
            partitions=max(c.partitions for c in full),
            tables=max(c.tables for c in full),
            total_bytes=sum(c.payload_bytes for c in full),
            gather_s=Measure.of([c.gather_s for c in full]),
            process_s=Measure.of([c.process_s for c in full]),
            announce_s=Measure.of([c.announce_s for c in full]),
            cycle_s=Measure.of(busy),
            bytes_per_s=Rate.of([c.payload_bytes for c in full], busy),
            records_per_s=Rate.of([c.records for c in full], busy),
        )


@dataclass(frozen=True, slots=True)
class Calibration:
    measured: tuple[Measured, ...]
    left_out: tuple[str, ...] = ()
    """Layouts that had too little backlog, with how much there was."""
    warm_up: WarmUp | None = None

    @property
    def slowest(self) -> Measured:
        return min(self.measured, key=lambda one: one.bytes_per_s.mean)

    @property
    def consumer_capacity_bytes_per_s(self) -> float:
        return CONSUMER_SHARE * self.slowest.bytes_per_s.mean

    @property
    def packing_capacity_bytes_per_s(self) -> float:
        return PACKING_SHARE * self.consumer_capacity_bytes_per_s

    @property
    def capacity_records_per_s(self) -> float:
        """The consumer capacity in records of what was read, as the latency policies want it."""
        return CONSUMER_SHARE * self.slowest.records_per_s.mean
