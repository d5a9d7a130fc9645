"""Traffic too heavy to simulate record by record, cut into equal packets; and policies that see it in records again.

A packet is so many bytes that the whole run stays below a given number of events. A consumer serves packets as it would
serve records, one after the other, so a latency is exact to about the time one packet takes. Light traffic is cut into
packets of one record.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from headgate.model import Assignment, Decision, Observation, PartitionLoad, TopicPartition
from headgate.simulation.arrivals import Arrivals, Floats
from headgate.simulation.group import partition_of
from headgate.simulation.recorded import Trace
from headgate.simulation.run import Decides

MOST_PACKETS = 500_000

Spacing = Literal["even", "random", "burst"]
"""When within its interval a packet arrives: spread evenly, at random, or all at once at its beginning."""


@dataclass(frozen=True, eq=False)
class Packets:
    partitions: tuple[TopicPartition, ...]
    arrivals: Arrivals
    packet_bytes: int
    """As consumers pay: a record that two tables take is read twice."""
    records_per_packet: Floats
    """Per partition; below 1 where records are larger than a packet."""

    @property
    def mean_records(self) -> float:
        weights = np.array([len(t) for t in self.arrivals.times_s], dtype=np.float64)
        return float(np.average(self.records_per_packet, weights=weights))

    def per_s(self, capacity_bytes_per_s: float) -> float:
        """Packets per second of a consumer with this capacity."""
        return capacity_bytes_per_s / self.packet_bytes


def cut(
    trace: Trace,
    most: int = MOST_PACKETS,
    spacing: Spacing = "even",
    rng: np.random.Generator | None = None,
    readings: Callable[[str], int] = lambda topic: 1,
) -> Packets:
    """The trace as packets. `readings` says how often consumers read a topic: once for every table it feeds."""
    if most < 1:
        raise ValueError(f"at least one packet is needed, not {most}")
    times_read = np.array([max(1, readings(p.topic)) for p in trace.partitions], dtype=np.float64)
    paid = trace.bytes * times_read
    per_record = trace.record_bytes * times_read
    one_record = float(paid.sum() / max(trace.records.sum(), 1e-9))
    size = max(1, round(one_record), int(np.ceil(paid.sum() / most)))
    rng = rng or np.random.default_rng(0)
    times = tuple(
        _arrivals(paid[:, n], trace.edges_s, size, (n + 0.5) / len(trace.partitions), spacing, rng)
        for n in range(len(trace.partitions))
    )
    return Packets(trace.partitions, Arrivals(times, trace.duration_s, spacing), size, size / per_record)


def _arrivals(
    paid: Floats, edges_s: Floats, size: int, phase: float, spacing: Spacing, rng: np.random.Generator
) -> Floats:
    """A packet arrives when another `size` bytes have; nothing is lost from one interval to the next.

    Partitions differ in phase, or equally busy ones would all send at the same instants.
    """
    total = np.concatenate([[0.0], np.cumsum(paid)])
    marks = size * (np.arange(max(0, int(np.ceil(total[-1] / size - phase)))) + phase)
    after = np.clip(total.searchsorted(marks, "left"), 1, len(total) - 1)
    start, width = edges_s[after - 1], np.diff(edges_s)[after - 1]
    if spacing == "burst":
        return start
    if spacing == "random":
        return np.sort(start + width * rng.random(len(marks)))
    share = (marks - total[after - 1]) / np.maximum(total[after] - total[after - 1], 1e-12)
    return np.asarray(start + width * np.clip(share, 0.0, 1.0))


class InRecords:
    """A policy as it runs in production, in records and real partitions, for a simulator that knows packets only."""

    def __init__(self, policy: Decides, packets: Packets) -> None:
        self._policy = policy
        self._packets = packets
        self._mean_records = packets.mean_records
        self._names = {partition_of(n): p for n, p in enumerate(packets.partitions)}
        self._numbers = {p: n for n, p in self._names.items()}
        self._told = np.zeros(len(packets.partitions))
        """Packets per partition whose arrival the policy has been told, so that fractions of records add up."""

    def decide(self, seen: Observation) -> Decision:
        decision = self._policy.decide(self._in_records(seen))
        if decision.assignment is None:
            return decision
        return replace(decision, assignment=_renamed(decision.assignment, self._numbers))

    def _in_records(self, seen: Observation) -> Observation:
        partitions = {}
        for n, (number, name) in enumerate(self._names.items()):
            each, load = float(self._packets.records_per_packet[n]), seen.partitions[number]
            partitions[name] = PartitionLoad(
                load.bytes_per_s,
                load.records_per_s * each,
                round(load.lag_records * each),
                round(load.end_offset * each),
                self._slots(n, load.arrivals, each),
            )
        consumers = {
            c: replace(load, capacity_records_per_s=load.capacity_records_per_s * self._mean_records)
            if load.capacity_records_per_s
            else load
            for c, load in seen.consumers.items()
        }
        return replace(
            seen,
            partitions=partitions,
            assignment=_renamed(seen.assignment, self._names),
            consumers=consumers,
        )

    def _slots(self, n: int, arrivals: tuple[int, ...], each: float) -> tuple[int, ...]:
        reached = self._told[n] + np.concatenate([[0], np.cumsum(arrivals)])
        self._told[n] = reached[-1]
        return tuple(np.diff(np.round(reached * each)).astype(int).tolist())


def _renamed(assignment: Assignment, names: dict[TopicPartition, TopicPartition]) -> Assignment:
    return Assignment({c: frozenset(names[p] for p in assignment[c]) for c in assignment})
