"""Partitions of Kafka topics and the offset ranges a cycle reads from them."""

from dataclasses import dataclass
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A tuple, because thousands of them are compared, sorted and looked up every second."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """One partition's records read by one cycle: offsets [start, end)."""

    partition: TopicPartition
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a range of offsets: [{self.start}, {self.end}) of {self.partition}")

    @property
    def offsets(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.partition}[{self.start}, {self.end})"
