"""How many payload bytes (key and value) a record of each partition has, measured, never assumed (L-4, L-10).

The consumers measure it every cycle and say so in their cycle records. Where none has spoken yet, or not for a while,
the newest few records of the partition are read here, with one Kafka consumer for all of them.
"""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import nsmallest
from typing import Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from headgate.errors import KafkaUnavailable
from headgate.kafka.channel import Tail
from headgate.kafka.internal_topics import Topics
from headgate.kafka.leaders import Leaders
from headgate.kafka.offsets import beginning_offsets, end_offsets
from headgate.model import TopicPartition
from headgate.model.messages import CycleRecord

log = logging.getLogger(__name__)

NEWEST_WEIGHT = 0.3
"""Share of the newest measurement in the running mean: a handful of cycles follow a change, one odd cycle does not."""


AT_ONCE = 200
"""Partitions weighed at one look, if more are due."""
RETRY_S = 5.0
"""After one of which some gave no answer: whoever looks waits for it."""
PAUSE_S = 20.0
"""Between such looks: the brokers have other things to do."""
_RECORDS_AT_ONCE = 500


class SizeEstimates:
    """The running mean per partition, the topic's mean where a partition has none, and what to measure next.

    Pure: time and end offsets come in.
    """

    def __init__(self, refresh_s: float = 60.0) -> None:
        self._refresh_s = refresh_s
        self._sizes: dict[TopicPartition, float] = {}
        self._totals: dict[str, tuple[float, int]] = {}
        """Of each topic, the sizes of its partitions added up, and how many there are."""
        self._looked: dict[TopicPartition, tuple[float, int]] = {}
        """When a partition's size was last learned or looked for, and where the partition ended then."""
        self._next_s = -math.inf
        """When to look again, if too many are due for one look."""

    def bytes_per_record(self, partition: TopicPartition) -> float | None:
        """None while nothing at all is known about the topic."""
        (size,) = self.of([partition])
        return size

    def of(self, partitions: Collection[TopicPartition]) -> list[float | None]:
        """The same for many."""
        return [
            self._mean(p.topic) if own is None else own
            for p, own in zip(partitions, map(self._sizes.get, partitions), strict=True)
        ]

    def _mean(self, topic: str) -> float | None:
        total, count = self._totals.get(topic, (0.0, 0))
        return total / count if count else None

    def learn(self, partition: TopicPartition, bytes_per_record: float) -> None:
        total, count = self._totals.get(partition.topic, (0.0, 0))
        before = self._sizes.get(partition)
        if before is None:
            size, added = bytes_per_record, 1
        else:
            size, added = before + NEWEST_WEIGHT * (bytes_per_record - before), 0
        self._sizes[partition] = size
        self._totals[partition.topic] = total + size - (before or 0.0), count + added

    def looked(self, partition: TopicPartition, now_s: float, end_offset: int) -> None:
        self._looked[partition] = (now_s, end_offset)

    def due(self, ends: Mapping[TopicPartition, int], now_s: float) -> dict[TopicPartition, int]:
        """Partitions with new records whose size is unknown, or was not looked at for `refresh_s`.

        Of very many only some, those that tell most; the others' turn comes, and until then their topic's mean stands
        in for them.
        """
        due = {partition: end for partition, end in ends.items() if self._is_due(partition, end, now_s)}
        if len(due) <= AT_ONCE:
            return due
        if any(p.topic not in self._totals for p in due):
            self._next_s = now_s
        if now_s < self._next_s:
            return {}
        self._next_s = now_s + PAUSE_S
        return {p: due[p] for p in nsmallest(AT_ONCE, due, key=self._urgency)}

    def _urgency(self, partition: TopicPartition) -> tuple[bool, float, int]:
        """Of topics that nothing is known of one partition each comes before the second of any."""
        looked_s, _ = self._looked.get(partition, (-math.inf, 0))
        return partition.topic in self._totals, looked_s, partition.partition

    def _is_due(self, partition: TopicPartition, end: int, now_s: float) -> bool:
        looked = self._looked.get(partition)
        if looked is None:
            return end > 0
        if end == looked[1]:  # nothing new to weigh
            return False
        return now_s - looked[0] >= self._refresh_s or partition.topic not in self._totals


def offset_of_newest(admin: AdminClient, partition: TopicPartition, newest: int, deadline_s: float = 15) -> int:
    """Where to start to read the newest few records of an internal topic."""
    until = time.monotonic() + deadline_s
    while True:
        try:
            beginning = beginning_offsets(admin, [partition], deadline_s)[partition]
            return max(beginning, end_offsets(admin, [partition], False, deadline_s)[partition] - newest)
        except KafkaUnavailable:  # the leader of a topic just created may not know it yet
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


class CycleSizes:
    """What the consumers report: the sizes in the cycle records, from the newest few on."""

    def __init__(self, settings: Mapping[str, Any], admin: AdminClient, topics: Topics, newest: int = 200) -> None:
        cycles = TopicPartition(topics.cycles, 0)
        start = offset_of_newest(admin, cycles, newest)
        self._tail = Tail(settings, {(cycles.topic, cycles.partition): start})

    def poll(self) -> list[tuple[TopicPartition, float]]:
        """Sizes reported since the last call; never waits."""
        cycles = [received.message for received in self._tail.poll() if isinstance(received.message, CycleRecord)]
        return [
            (TopicPartition(size.topic, size.partition), size.bytes_per_record)
            for cycle in cycles
            for size in cycle.sizes
            if size.bytes_per_record > 0
        ]

    def close(self) -> None:
        self._tail.close()


class NewestRecords:
    """Reads the last few records of many partitions to weigh them; bounded in records, bytes and time.

    Weighing begins and goes on: between two looks the records come by themselves, and nobody waits for them.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        records: int = 50,
        payload_bytes: int = 1_000_000,
        deadline_s: float = 2.0,
    ) -> None:
        self._records, self._payload_bytes, self._deadline_s = records, payload_bytes, deadline_s
        self._open: set[TopicPartition] = set()
        self._found: dict[TopicPartition, tuple[int, int]] = {}
        """Of each partition being weighed, how many records and bytes came."""
        self._until_s = 0.0
        self.unanswered: frozenset[TopicPartition] = frozenset()
        """Of the last weighing: those that did not come to an end in time."""
        self._consumer = Consumer(
            {
                **settings,
                "group.id": "headgate-no-group",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",  # retention may have passed the offset asked for
                "isolation.level": "read_uncommitted",  # what is written, not what is already readable
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
                "fetch.message.max.bytes": 65_536,
                "queued.max.messages.kbytes": 4_096,
            }
        )
        self._leaders = Leaders(self._consumer)

    def begin(self, ends: Mapping[TopicPartition, int]) -> None:
        """With the records just before each end."""
        self._open = {partition for partition, end in ends.items() if end > 0}
        self._found = {}
        self._leaders.meet(partition.topic for partition in self._open)
        self._until_s = time.monotonic() + self._deadline_s
        self._consumer.assign(
            [KafkaTopicPartition(p.topic, p.partition, max(0, ends[p] - self._records)) for p in sorted(self._open)]
        )

    def go_on(self) -> dict[TopicPartition, float] | None:
        """Weighs what has come. None while more is to come; then the mean payload bytes of a record of each partition,
        without those that gave none in time."""
        while self._open and (records := self._consumer.consume(_RECORDS_AT_ONCE, 0.0)):
            self._take(records)
        return self._end() if not self._open or time.monotonic() > self._until_s else None

    def finish(self) -> dict[TopicPartition, float]:
        """The same, and waits for it."""
        while self._open and time.monotonic() < self._until_s:
            self._take(self._consumer.consume(_RECORDS_AT_ONCE, 0.1))
        return self._end()

    def _take(self, records: Iterable[Any]) -> None:
        done = set()
        for record in records:
            partition = TopicPartition(record.topic(), record.partition())
            if partition not in self._open:
                continue
            error = record.error()
            if error is None:
                count, size = self._found.get(partition, (0, 0))
                count, size = count + 1, size + len(record.key() or b"") + len(record.value() or b"")
                self._found[partition] = (count, size)
                if count < self._records and size < self._payload_bytes:
                    continue
            elif error.code() != KafkaError._PARTITION_EOF:
                log.warning("cannot weigh records of %s: %s", partition, error.str())
            self._open.discard(partition)
            done.add(partition)
        if done:
            self._consumer.pause([KafkaTopicPartition(p.topic, p.partition) for p in done])

    def _end(self) -> dict[TopicPartition, float]:
        self._consumer.unassign()
        self.unanswered = frozenset(self._open)
        return {partition: size / count for partition, (count, size) in self._found.items()}

    def close(self) -> None:
        self._consumer.close()


class RecordSizes:
    """Keeps the estimates fresh: takes what the consumers report, weighs what nobody reported for a while."""

    def __init__(
        self,
        reported: CycleSizes,
        newest: NewestRecords,
        refresh_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reported, self._newest, self._clock = reported, newest, clock
        self._estimates = SizeEstimates(refresh_s)
        self._weighing: Mapping[TopicPartition, int] = {}
        """The ends of those that are being weighed."""
        self._rests_until_s = -math.inf

    def bytes_per_record(self, partition: TopicPartition) -> float | None:
        return self._estimates.bytes_per_record(partition)

    def of(self, partitions: Collection[TopicPartition]) -> list[float | None]:
        return self._estimates.of(partitions)

    def refresh(self, ends: Mapping[TopicPartition, int]) -> None:
        """Waits for one weighing at most, and only for topics that nothing is known of; whatever is still unknown then
        is tried again a little later."""
        now_s = self._clock()
        for partition, bytes_per_record in self._reported.poll():
            self._estimates.learn(partition, bytes_per_record)
            self._estimates.looked(partition, now_s, ends.get(partition, 0))
        if self._weighing:
            self._learn(self._newest.go_on(), now_s)
        if self._weighing or now_s < self._rests_until_s or not (due := self._estimates.due(ends, now_s)):
            return
        self._weighing = due
        self._newest.begin(due)
        if any(self._estimates.bytes_per_record(p) is None for p in due):
            self._learn(self._newest.finish(), now_s)

    def _learn(self, weighed: Mapping[TopicPartition, float] | None, now_s: float) -> None:
        if weighed is None:
            return
        for partition, end in self._weighing.items():
            if weighed.get(partition, 0) > 0:
                self._estimates.learn(partition, weighed[partition])
            elif partition in self._newest.unanswered:
                self._rests_until_s = now_s + RETRY_S
                continue
            self._estimates.looked(partition, now_s, end)
        self._weighing = {}

    def close(self) -> None:
        self._reported.close()
        self._newest.close()
