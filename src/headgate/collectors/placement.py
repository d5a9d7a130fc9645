"""Which partition of the main cluster a collected record goes to, as far as it is not the partitioner's to say.

A key's records must stay in one partition (B-39). Where both clusters give the topic the same number of partitions, the
partition that the producer chose is kept, so the mapping is the producer's own whatever hash it uses. Otherwise it is
the hash of Kafka's Java clients.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from headgate.producers.client_default import UNASSIGNED
from headgate.producers.murmur2 import partition_of_key

SAME = "same"
"""As a partitioner's name: every record keeps its partition."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many partitions a topic has."""

    source: int
    target: int

    def __str__(self) -> str:
        return f"{self.source} at the collector, {self.target} at the main cluster"


class Placement(Protocol):
    def refusal(self, topic: str, counts: Counts) -> str | None:
        """Why a topic with these partitions cannot be forwarded; None if it can."""
        ...

    def follow(self, counts: Mapping[str, Counts]) -> None:
        """As last seen, of all topics that are forwarded; none was refused."""
        ...

    def partition(self, topic: str, partition: int, key: bytes | None) -> int:
        """Of the main cluster, for a record of that source partition; UNASSIGNED leaves it to the partitioner."""
        ...


class KeepKeys:
    """The partitioner places records without a key."""

    def __init__(self) -> None:
        self._counts: Mapping[str, Counts] = {}

    def refusal(self, topic: str, counts: Counts) -> str | None:
        return None

    def follow(self, counts: Mapping[str, Counts]) -> None:
        self._counts = counts

    def partition(self, topic: str, partition: int, key: bytes | None) -> int:
        if key is None:
            return UNASSIGNED
        counts = self._counts[topic]
        if counts.source == counts.target and partition < counts.target:  # else it was added since the last look
            return partition
        return partition_of_key(key, counts.target)


class KeepPartitions:
    """Every record: the only way to keep the order of a whole partition."""

    def refusal(self, topic: str, counts: Counts) -> str | None:
        if counts.source == counts.target:
            return None
        return (
            f"topic {topic} has {counts.source} partitions at the collector and {counts.target} at the main cluster, "
            "so records cannot keep their partition: make them equal, or choose another partitioner"
        )

    def follow(self, counts: Mapping[str, Counts]) -> None:
        pass

    def partition(self, topic: str, partition: int, key: bytes | None) -> int:
        return partition


class SpreadKeys:
    """The partitioner places every record, for those who say that a key's order does not matter."""

    def refusal(self, topic: str, counts: Counts) -> str | None:
        return None

    def follow(self, counts: Mapping[str, Counts]) -> None:
        pass

    def partition(self, topic: str, partition: int, key: bytes | None) -> int:
        return UNASSIGNED
