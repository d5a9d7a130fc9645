"""Everything a policy may know at one instant."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.model.assignment import Assignment
from headgate.model.columns import ByPartition
from headgate.model.partition import TopicPartition


class PartitionLoad(NamedTuple):
    """A tuple, because there is one for every partition in every observation."""

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
    full_cycles: int = 0
    """How many cycles of this life measured the capacity: a number that stands still says that it is old."""


FULL = 0.9
"""From this share of the configured capacity on, a consumer counts as having all of it: calibration is no finer."""
LEAST_USUAL = 0.25
"""A whole fleet counts at least this share of what is configured: what falls further is no matter of its size."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What consumers are believed to do, from what they measured (L-26). By default all is as configured."""

    usual_bytes_per_s: float | None = None
    """A consumer that nothing is wrong with, and so a new one; None while nothing was measured."""
    speed: Mapping[int, float] = field(default_factory=dict)
    """Of each consumer that is slower than the usual, its share of that."""
    crowding: float = 1.0
    """How much more consumers would measure if they did not share cores or a disk; 1 if they do not."""
    outdated: frozenset[int] = frozenset()
    """Consumers that had no full cycle for long: what they still say that they can do is no longer news."""

    def share(self, consumer: int | None, configured_bytes_per_s: float) -> float:
        """Of the configured capacity, what this consumer has; None asks for one that is not there yet."""
        if self.usual_bytes_per_s is None:
            return 1.0
        usual = self.usual_bytes_per_s / configured_bytes_per_s
        speed = 1.0 if consumer is None else self.speed.get(consumer, 1.0)
        share = max(usual, LEAST_USUAL) * speed
        return 1.0 if share >= FULL else share


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
    abilities: Abilities = Abilities()
    brokers_slow: bool = False
    """Reads are slow at the brokers: more consumers would not help."""

    @property
    def age_s(self) -> float:
        return self.at_s - self.measured_at_s

    def rates(self) -> dict[TopicPartition, float]:
        return dict(ByPartition.of(PartitionLoad, self.partitions).column("bytes_per_s").as_dict)
