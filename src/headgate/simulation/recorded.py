"""Recorded traffic as a value: what arrived in each partition, interval by interval."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headgate.errors import ConfigError
from headgate.model import TopicPartition
from headgate.model.messages import Measurement
from headgate.simulation.arrivals import Floats

USUAL = 1.5
"""A step this many times as long as the median one is a gap."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Records and bytes per interval and partition; intervals follow each other without holes."""

    partitions: tuple[TopicPartition, ...]
    edges_s: Floats
    """Where intervals begin and, one more, where the last one ends; the first is 0."""
    records: Floats
    """Shape (intervals, partitions), as are the bytes of their keys and values."""
    bytes: Floats
    started_at_s: float = 0.0
    """The first edge in seconds since the epoch; 0 if nobody knows."""
    notes: tuple[str, ...] = ()
    """What had to be assumed, for the reader of the results."""

    def __post_init__(self) -> None:
        shape = (len(self.edges_s) - 1, len(self.partitions))
        if self.records.shape != shape or self.bytes.shape != shape:
            raise ValueError(f"expected {shape[0]} intervals of {shape[1]} partitions")
        if shape[0] < 1 or np.any(np.diff(self.edges_s) <= 0):
            raise ValueError("edges must rise")
        for counts in (self.records, self.bytes):
            if not np.all(np.isfinite(counts)) or np.any(counts < 0):
                raise ValueError("counts must be finite and not negative")
        if not self.bytes.sum() > 0:
            raise ConfigError("nothing arrived in this trace: there is nothing to simulate")

    @property
    def duration_s(self) -> float:
        return float(self.edges_s[-1])

    @property
    def step_s(self) -> float:
        return float(np.median(np.diff(self.edges_s)))

    @property
    def bytes_per_s(self) -> Floats:
        """Of all partitions together, per interval."""
        rate: Floats = self.bytes.sum(axis=1) / np.diff(self.edges_s)
        return rate

    @property
    def record_bytes(self) -> Floats:
        """Mean size of a record per partition; of all where a partition had none."""
        records, total = self.records.sum(axis=0), self.bytes.sum(axis=0)
        overall = total.sum() / max(records.sum(), 1e-9)
        sizes: Floats = np.where(records > 0, total / np.maximum(records, 1e-9), overall)
        return sizes

    def newest(self, last_s: float) -> "Trace":
        """Only the intervals that lie wholly within the last so many seconds, at least one."""
        first = int(np.searchsorted(self.edges_s, self.duration_s - last_s - 1e-9))
        first = min(first, len(self.edges_s) - 2)
        if first <= 0:
            return self
        return replace(
            self,
            edges_s=self.edges_s[first:] - self.edges_s[first],
            records=self.records[first:],
            bytes=self.bytes[first:],
            started_at_s=self.started_at_s + float(self.edges_s[first]),
        )


def of_measurements(measurements: Sequence[Measurement]) -> Trace:
    """What arrived between measurements: differences of end offsets, which lose nothing, not the smoothed rates.

    Bytes follow from the partition's bytes per record at the time. An end offset that falls belongs to a topic made
    anew and counts from there. Over a pause of the monitor arrivals are known in sum only and spread evenly.
    """
    ordered = list({m.at_ms: m for m in sorted(measurements, key=lambda m: m.at_ms)}.values())
    if len(ordered) < 2:
        raise ConfigError(
            f"the journal holds {len(ordered)} measurements and two are needed: let the pipeline run for a while first"
        )
    partitions = tuple(sorted({TopicPartition(r.topic, r.partition) for m in ordered for r in m.rates}))
    column = {p: n for n, p in enumerate(partitions)}
    shape = (len(ordered) - 1, len(partitions))
    records, sizes = np.zeros(shape), np.full(shape, np.nan)
    ends: dict[int, int] = {}
    for row, measurement in enumerate(ordered, start=-1):
        for rate in measurement.rates:
            p = column[TopicPartition(rate.topic, rate.partition)]
            if row >= 0:
                records[row, p] = max(0, rate.end_offset - ends.get(p, rate.end_offset))
                if rate.records_per_s > 0 and 0 < rate.bytes_per_s < np.inf:
                    sizes[row, p] = rate.bytes_per_s / rate.records_per_s
            ends[p] = rate.end_offset
    at_s = np.array([m.at_ms for m in ordered]) / 1000
    return Trace(
        partitions, at_s - at_s[0], records, records * _filled(sizes), float(at_s[0]), _pauses(np.diff(at_s), at_s)
    )


def _filled(sizes: Floats) -> Floats:
    """Bytes per record everywhere: the last known of the partition, else its first, else the mean of all."""
    if np.all(np.isnan(sizes)):
        raise ConfigError("the journal knows no record size yet: let the pipeline run while records arrive")
    rows = np.arange(len(sizes))[:, None]
    known = ~np.isnan(sizes)
    last = np.maximum.accumulate(np.where(known, rows, -1), axis=0)
    first = np.where(known.any(axis=0), known.argmax(axis=0), 0)
    filled: Floats = np.take_along_axis(sizes, np.where(last < 0, first, last), axis=0)
    return np.where(np.isnan(filled), np.nanmean(sizes), filled)


def _pauses(steps: Floats, at_s: Floats) -> tuple[str, ...]:
    long = steps > max(10.0, USUAL * float(np.median(steps)))
    if not long.any():
        return ()
    return (
        f"the monitor paused {int(long.sum())} times, {steps[long].sum():.0f} s in all of {at_s[-1] - at_s[0]:.0f} s; "
        "what arrived meanwhile is spread evenly",
    )
