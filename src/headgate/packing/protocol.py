"""The one question a packer answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headgate.model import Assignment, TopicPartition


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many bytes per second each consumer may be given; `of` overrides the default per consumer (L-26)."""

    default_bytes_per_s: float
    of: Mapping[int, float] = field(default_factory=dict)

    def __getitem__(self, consumer: int) -> float:
        return self.of.get(consumer, self.default_bytes_per_s)


class Packer(Protocol):
    def pack(self, rates: Mapping[TopicPartition, float], capacity: Capacity, previous: Assignment) -> Assignment:
        """An owner for every partition in `rates`, starting from `previous`; deterministic."""
        ...
