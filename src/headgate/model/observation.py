"""Everything a policy may know at one instant."""

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.model.assignment import Assignment
from headgate.model.partition import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    bytes_per_s: float
    """Write rate in payload bytes (key and value), the unit of every capacity (L-4)."""
    records_per_s: float = 0.0
    lag_records: int = 0
    """Records the lake does not hold yet: end offset minus ledger."""
    end_offset: int = 0
    arrivals: tuple[int, ...] = ()
    """Records that arrived in each slot of `Observation.slot_s` since the last observation, oldest first; equally many
    for every partition, none when nothing was measured meanwhile. Bursts show here that a mean rate hides."""


@dataclass(frozen=True, slots=True)
class ConsumerLoad:
    throughput_bytes_per_s: float = 0.0
    busy_share: float = 0.0
    """Share of the last cycles' time spent working rather than waiting for records, 0 … 1."""
    capacity_bytes_per_s: float | None = None
    """Measured when the consumer was busy (L-26); None until then."""
    capacity_records_per_s: float | None = None
    """The same in records (E-3); None where only bytes are measured."""


@dataclass(frozen=True, slots=True)
class Observation:
    at_s: float
    """Now, in seconds since the epoch (or since the start of a simulation)."""
    measured_at_s: float
    """When the newest measurement was taken."""
    partitions: Mapping[TopicPartition, PartitionLoad]
    assignment: Assignment
    consumers: Mapping[int, ConsumerLoad]
    watching_since_s: float
    """When the controller last entered Sentinel; trigger 3 (L-34) counts from here."""
    slot_s: float = 0.0
    """Width of the slots of `PartitionLoad.arrivals`; 0 when there are none."""
    pause_s: float | None = None
    """How long a partition that moved stood still lately (t_r, E-29); None until one was measured."""
    start_s: float | None = None
    """From asking for a consumer to its being ready, as measured lately; None until one started."""
    brokers_slow: bool = False
    """Reads are slow at the brokers: more consumers would not help."""

    @property
    def age_s(self) -> float:
        return self.at_s - self.measured_at_s

    def rates(self) -> dict[TopicPartition, float]:
        return {partition: load.bytes_per_s for partition, load in self.partitions.items()}
