"""What a load generator tells: how far it is while it writes, and in the end exactly what was acknowledged."""

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.model import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionReport:
    records: int
    """Acknowledged by the brokers, bad ones included: this many offsets."""
    bad: int
    """How many of them cannot be decoded, on purpose."""
    payload_bytes: int
    """Key and value bytes of the acknowledged records."""
    first_offset: int | None
    last_offset: int | None
    failed: int
    """Given up after all retries. Kafka may hold some of them nevertheless: it did not answer."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    partitions: Mapping[TopicPartition, PartitionReport]
    elapsed_s: float
    """Real time from the first record to the last acknowledgement."""
    interrupted: bool
    """Stopped before its duration or count was reached."""
    errors: Mapping[str, int]
    """What the failed records failed of, and how often."""

    @property
    def records(self) -> int:
        return sum(report.records for report in self.partitions.values())

    @property
    def bad(self) -> int:
        return sum(report.bad for report in self.partitions.values())

    @property
    def payload_bytes(self) -> int:
        return sum(report.payload_bytes for report in self.partitions.values())

    @property
    def failed(self) -> int:
        return sum(report.failed for report in self.partitions.values())

    def as_json(self) -> dict[str, dict[str, dict[str, int | None]]]:
        """{topic: {partition: {"records", "bytes", "bad", …}}}."""
        topics: dict[str, dict[str, dict[str, int | None]]] = {}
        for partition, report in sorted(self.partitions.items()):
            topics.setdefault(partition.topic, {})[str(partition.partition)] = {
                "records": report.records,
                "bytes": report.payload_bytes,
                "bad": report.bad,
                "failed": report.failed,
                "first_offset": report.first_offset,
                "last_offset": report.last_offset,
            }
        return topics


@dataclass(frozen=True, slots=True)
class LoadProgress:
    t_s: float
    """How far into the workload the generator is."""
    end_s: float
    """Where it ends; infinite if it runs until it is stopped."""
    target_bytes_per_s: float
    """The workload's total at this moment."""
    records: int
    payload_bytes: int
    failed: int
    behind_s: float
    """How late the newest slice was written; more than a moment means that the machine or the brokers are full."""
