"""What waits in Kafka for a consumer, and which of it its next cycle takes (L-14)."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient

from headgate.config.pipeline import Pipeline
from headgate.consumer.gather import Pending, RateCap, choose_ranges
from headgate.kafka.offsets import beginning_offsets, end_offsets
from headgate.model import Range, Skip, TopicPartition
from headgate.model.announcement import RETENTION

_GUESSED_BYTES_PER_RECORD = 50_000.0
"""Until the first records of a topic were read: a high guess costs one small cycle, a low one could mean gigabytes."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the brokers: what waits per table and partition, and what retention took before it was read."""

    pending: dict[tuple[str, TopicPartition], Pending] = field(default_factory=dict)
    skips: dict[str, list[Skip]] = field(default_factory=dict)
    asked_s: float = 0.0
    """How long the brokers took to answer."""

    @property
    def bytes(self) -> float:
        return sum(p.bytes for p in self.pending.values())


@dataclass(frozen=True, slots=True)
class Batch:
    """What a cycle takes."""

    ranges: dict[str, list[Range]]
    """Per table."""
    skips: dict[str, list[Skip]]
    peak: bool
    """A whole batch was there to take, so the cycle shows what the consumer can do."""
    full_again: bool
    """Another whole batch is left."""
    left_records: int
    asked_s: float


class Waiting:
    """Asks the brokers, and keeps what it learns: sizes of records, and why a partition cannot be read."""

    def __init__(self, pipeline: Pipeline, admin: AdminClient) -> None:
        self._admin = admin
        self._batch_bytes = pipeline.consumer.batch_bytes
        self._committed_only = pipeline.kafka.isolation == "read_committed"
        self._cap = RateCap(pipeline.consumer.rate_cap_bytes_per_s, time.monotonic())
        self._chosen_at_s = 0.0
        self._sizes: dict[TopicPartition, float] = {}
        self._of_topic: dict[str, tuple[int, float]] = {}
        """How many sizes of a topic's partitions are known, and their sum: there may be thousands of quiet ones."""
        self.unreadable: dict[TopicPartition, str] = {}

    def look(self, reading: Mapping[str, Mapping[TopicPartition, int]], owned: frozenset[TopicPartition]) -> Look:
        """`reading` holds, per table that may read now, where it goes on in each partition."""
        began = time.monotonic()
        partitions = {p for places in reading.values() for p in places}
        self.unreadable = {p: why for p, why in self.unreadable.items() if p in owned and p not in partitions}
        if not partitions:
            return Look()
        ends = end_offsets(self._admin, partitions, self._committed_only)
        begins = beginning_offsets(self._admin, partitions)
        look = Look(asked_s=time.monotonic() - began)
        for table, places in reading.items():
            for partition, position in places.items():
                if partition not in ends or partition not in begins:
                    self.unreadable[partition] = (
                        f"the brokers give no offsets of {partition}: no leader now, or deleted"
                    )
                    continue
                if position < begins[partition]:
                    gone = begins[partition] - position
                    skip = Skip(partition, position, begins[partition], gone, RETENTION)
                    look.skips.setdefault(table, []).append(skip)
                    position = begins[partition]
                if position > ends[partition]:
                    self.unreadable[partition] = (
                        f"{partition} ends at {ends[partition]} but the lake holds everything before {position}: the "
                        f"topic was deleted and made anew, or its log was cut; docs/recover.md, Kafka, says what to do"
                    )
                    continue
                look.pending[table, partition] = Pending(position, ends[partition], self.expected_size(partition))
        return look

    def is_full(self, look: Look) -> bool:
        """There is a batch, and the rate cap lets it through."""
        return look.bytes >= self._batch_bytes and self._cap.allowance(time.monotonic()) >= self._batch_bytes

    def choose(self, look: Look, rotation: int) -> Batch:
        self._chosen_at_s = time.monotonic()
        budget = min(self._batch_bytes, self._cap.allowance(self._chosen_at_s))
        chosen = choose_ranges(look.pending, budget, rotation)
        ranges: dict[str, list[Range]] = {}
        for (table, partition), (start, end) in chosen.items():
            ranges.setdefault(table, []).append(Range(partition, start, end))
        taken = sum(end - start for start, end in chosen.values())
        taken_bytes = sum((end - start) * look.pending[key].bytes_per_record for key, (start, end) in chosen.items())
        return Batch(
            ranges=ranges,
            skips=look.skips,
            peak=look.bytes >= self._batch_bytes,
            full_again=look.bytes - taken_bytes >= self._batch_bytes,
            left_records=sum(p.end - p.start for p in look.pending.values()) - taken,
            asked_s=look.asked_s,
        )

    def took(self, payload_bytes: int, sizes: Mapping[TopicPartition, float]) -> None:
        """What a cycle turned out to be: its bytes, and measured bytes per record of some partitions."""
        self._cap.spend(payload_bytes, self._chosen_at_s)
        for partition, size in sizes.items():
            known = self._sizes.get(partition)
            self._sizes[partition] = now = size if known is None else known + 0.3 * (size - known)
            count, total = self._of_topic.get(partition.topic, (0, 0.0))
            self._of_topic[partition.topic] = (count + (known is None), total + now - (known or 0.0))

    def measured_size(self, partition: TopicPartition) -> float:
        return self._sizes[partition]

    def expected_size(self, partition: TopicPartition) -> float:
        """Measured bytes per record of the partition, or of its neighbours until it has been read."""
        if partition in self._sizes:
            return self._sizes[partition]
        count, total = self._of_topic.get(partition.topic, (0, 0.0))
        return total / count if count else _GUESSED_BYTES_PER_RECORD
