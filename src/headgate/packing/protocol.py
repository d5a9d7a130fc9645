"""The one question a packer answers."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from headgate.model import Assignment, TopicPartition

FASTEST = 1e300
"""What no rate or capacity exceeds, so that sums of them are numbers; whatever is faster counts as this fast."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many bytes per second each consumer may be given; `of` overrides the default per consumer (L-26)."""

    default_bytes_per_s: float
    of: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for capacity in (self.default_bytes_per_s, *self.of.values()):
            if not 0 < capacity <= FASTEST:
                raise ValueError(
                    f"a consumer's capacity is above 0 and at most {FASTEST:g} bytes per second, not {capacity:g}"
                )

    def __getitem__(self, consumer: int) -> float:
        return self.of.get(consumer, self.default_bytes_per_s)

    def unused_for(self, size: float, used: Container[int]) -> int:
        """The lowest unused id whose capacity suffices; if there is none, the lowest."""
        unused = (n for n in count(1) if n not in used)
        if size <= self.default_bytes_per_s:
            return next(n for n in unused if self[n] >= size)
        large = (n for n in sorted(self.of) if n > 0 and n not in used and self[n] >= size)
        return next(large, None) or next(unused)


class Packer(Protocol):
    def pack(self, rates: Mapping[TopicPartition, float], capacity: Capacity, previous: Assignment) -> Assignment:
        """An owner for every partition in `rates`, starting from `previous`; deterministic."""
        ...
