"""Payload bytes from the sizes of the leaders' logs. Pure."""

import logging
from collections import defaultdict
from dataclasses import dataclass

from headgate.kafka.offset_counts import Counted
from headgate.kafka.rates import Counter
from headgate.model import TopicPartition

log = logging.getLogger(__name__)


class PayloadShare:
    """Payload bytes per byte of log (L-4): framing takes from it, compression adds to it. Pure.

    Remembers by records, not by time, so that a quiet night does not make it forget what it knows.
    """

    def __init__(self, half_life_records: int = 10_000) -> None:
        self._half_life_records = half_life_records
        self.payload_bytes = 0.0
        self.log_bytes = 0.0

    def add(self, records: int, payload_bytes: float, log_bytes: float) -> None:
        kept = 0.5 ** (records / self._half_life_records)
        self.payload_bytes = kept * self.payload_bytes + payload_bytes
        self.log_bytes = kept * self.log_bytes + log_bytes

    def add_history(self, records: int, payload_bytes: float, log_bytes: float) -> None:
        """A whole log, with no more weight than the records this share remembers."""
        weight = min(1.0, self._half_life_records / records)
        self.add(round(records * weight), payload_bytes * weight, log_bytes * weight)

    @property
    def payload_per_log_byte(self) -> float | None:
        """None until something was seen."""
        return self.payload_bytes / self.log_bytes if self.log_bytes > 0 and self.payload_bytes > 0 else None


@dataclass(frozen=True, slots=True)
class LeaderLog:
    """The log of one partition on the broker that leads it."""

    broker: int
    log_bytes: int


class LogCounts:
    """Payload bytes from the growth of leaders' logs, with the guards of L-9. Pure.

    The payload share is kept per partition and the topic's stands in where a partition has none: a slow partition gets
    smaller batches from its producers, which compress worse, so one share for the whole topic would count it too high.
    """

    def __init__(self) -> None:
        self._counted: dict[TopicPartition, Counted] = {}
        self._brokers: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._shares: defaultdict[str, dict[int, PayloadShare]] = defaultdict(dict)

    def begin(self, partition: TopicPartition, records: int, leader: LeaderLog, bytes_per_record: float | None) -> None:
        """What the log holds already teaches the payload share before anything new is written."""
        if records > 0 and bytes_per_record is not None:
            self._share(partition).add_history(records, records * bytes_per_record, leader.log_bytes)

    def count(
        self, partition: TopicPartition, end_offset: int, leader: LeaderLog, bytes_per_record: float | None
    ) -> Counter:
        counted = self._counted.setdefault(partition, Counted(leader.log_bytes))
        broker = self._brokers.setdefault(partition, leader.broker)
        counted_end = self._ends.setdefault(partition, end_offset)
        grown_bytes, grown_records = leader.log_bytes - counted.position, end_offset - counted_end
        if broker != leader.broker:
            log.info(
                "%s is now led by broker %d instead of %d: its window starts again", partition, leader.broker, broker
            )
            self._restart(partition, end_offset, leader)
        elif grown_bytes < 0 or grown_records < 0:
            log.warning(
                "the log of %s shrank from %d to %d bytes: counted as nothing written, its window starts again; "
                "set monitor.source: offsets if this topic deletes or compacts records",
                *(partition, counted.position, leader.log_bytes),
            )
            self._restart(partition, end_offset, leader)
        elif bytes_per_record is not None:
            share = self._share(partition)
            share.add(grown_records, grown_records * bytes_per_record, grown_bytes)
            factor = share.payload_per_log_byte or self.payload_per_log_byte(partition.topic) or 0.0
            counted.payload_bytes += grown_bytes * factor
            counted.position = leader.log_bytes
            self._ends[partition] = end_offset
        return Counter(counted.payload_bytes, end_offset, counted.life)

    def _restart(self, partition: TopicPartition, end_offset: int, leader: LeaderLog) -> None:
        counted = self._counted[partition]
        counted.position, counted.life = leader.log_bytes, counted.life + 1
        self._brokers[partition] = leader.broker
        self._ends[partition] = end_offset

    def _share(self, partition: TopicPartition) -> PayloadShare:
        return self._shares[partition.topic].setdefault(partition.partition, PayloadShare())

    def payload_per_log_byte(self, topic: str) -> float | None:
        """Over all partitions of the topic; None until something was seen."""
        whole = PayloadShare()
        for share in self._shares[topic].values():
            whole.add(0, share.payload_bytes, share.log_bytes)
        return whole.payload_per_log_byte
