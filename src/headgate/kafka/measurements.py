"""Where the monitor's numbers come from: two sources of counters, one that survives retention and the published one.

`OffsetSource` counts records by their offsets and multiplies by measured payload bytes per record (L-10).
`LogDirSource` reads the size of the leaders' logs on disk (L-5, L-6) and needs logs that only grow (L-9).
Both count payload bytes.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaConfigurationError
from kafka.errors import KafkaError as KafkaPythonError

from headgate.errors import ConfigError, KafkaUnavailable
from headgate.kafka.log_ends import LogEnds
from headgate.kafka.offset_counts import ManyOffsetCounts
from headgate.kafka.offsets import beginning_offsets, end_offsets
from headgate.kafka.rates import Counter, Sample
from headgate.kafka.record_sizes import RecordSizes
from headgate.kafka.topic_settings import topic_settings
from headgate.model import TopicPartition

log = logging.getLogger(__name__)

ANSWER_S = 5.0
"""How long one question to the brokers may take: a monitor that waits longer has nothing new to say."""


class Source(Protocol):
    """Counters of what was written to each partition."""

    name: str

    def watch(self, partitions: frozenset[TopicPartition]) -> None:
        """From now on sample these. ConfigError if this source cannot measure them."""

    def sample(self) -> Sample:
        """KafkaUnavailable if the brokers do not answer; single partitions without a leader are left out."""

    def close(self) -> None: ...


@dataclass(slots=True)
class _Counted:
    """How far one partition was counted."""

    position: int
    """Offset or log size up to which bytes were counted."""
    payload_bytes: float = 0.0
    life: int = 0


class OffsetCounts:
    """Payload bytes from the end offsets of one partition after the other (L-10). Pure.

    Bytes are added up step by step with the record size known at each step; multiplying the offset itself would turn
    every small correction of that size into a huge jump. Records whose size is not known yet are counted once it is.
    Transaction markers take offsets as well and count as records: an overestimate of one record per transaction.
    """

    def __init__(self) -> None:
        self._counted: dict[TopicPartition, _Counted] = {}

    def count(self, partition: TopicPartition, end_offset: int, bytes_per_record: float | None) -> Counter:
        counted = self._counted.setdefault(partition, _Counted(end_offset))
        if end_offset < counted.position:
            log.warning(
                "%s ended at offset %d and now ends at %d (created again, or truncated): counting starts again",
                *(partition, counted.position, end_offset),
            )
            counted.position, counted.life = end_offset, counted.life + 1
        elif bytes_per_record is not None:
            counted.payload_bytes += (end_offset - counted.position) * bytes_per_record
            counted.position = end_offset
        return Counter(counted.payload_bytes, end_offset, counted.life)


class OffsetSource:
    """End offsets, including records of open transactions: what is written, whether or not it may be read yet."""

    name = "offsets"

    def __init__(self, ends: LogEnds, sizes: RecordSizes, clock: Callable[[], float] = time.monotonic) -> None:
        self._ends, self._sizes, self._clock = ends, sizes, clock
        self._counts = ManyOffsetCounts()

    def watch(self, partitions: frozenset[TopicPartition]) -> None:
        self._ends.watch(partitions)

    def sample(self) -> Sample:
        asked_s = self._clock()
        ends = self._ends.ask(ANSWER_S)
        at_s = (asked_s + self._clock()) / 2
        self._sizes.refresh(ends)
        return Sample(at_s, self._counts.count(ends, [self._sizes.bytes_per_record(p) for p in ends]))

    def close(self) -> None:
        self._ends.close()
        self._sizes.close()


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
        self._counted: dict[TopicPartition, _Counted] = {}
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
        counted = self._counted.setdefault(partition, _Counted(leader.log_bytes))
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


def shrinking(settings: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Topics whose logs do not only grow, each with the settings that make it so (L-9)."""
    growing = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
    found = {}
    for topic, values in sorted(settings.items()):
        wrong = [f"{key}={values[key]}" for key, wanted in growing.items() if values.get(key, wanted) != wanted]
        if values.get("remote.storage.enable", "false").lower() == "true":
            wrong.append("remote.storage.enable=true")  # old segments leave the brokers' disks
        if wrong:
            found[topic] = ", ".join(wrong)
    return found


class LogDirSource:
    """Sizes of the leader replicas' logs, asked of every broker (L-5, L-6).

    Refuses topics whose logs may shrink when it starts; a topic that appears or changes later is counted by its
    offsets instead, with an error in the log, so that one topic cannot blind the whole pipeline.
    """

    name = "log_dirs"

    def __init__(
        self,
        admin: AdminClient,
        kafka_python: Mapping[str, Any],
        sizes: RecordSizes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin, self._kafka_python, self._sizes, self._clock = admin, kafka_python, sizes, clock
        self._client: Any = None
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._begun: set[TopicPartition] = set()
        self._by_offsets: set[str] | None = None
        """Topics that this source cannot measure; None until the first look at the topics."""
        self._log_counts, self._offset_counts = LogCounts(), OffsetCounts()

    def watch(self, partitions: frozenset[TopicPartition]) -> None:
        faults = shrinking(self._topic_settings({partition.topic for partition in partitions}))
        if faults and self._by_offsets is None:
            listed = "; ".join(f"{topic} has {wrong}" for topic, wrong in faults.items())
            raise ConfigError(
                "monitor.source: log_dirs is right only for topics that never delete or compact records, but "
                f"{listed}. Use monitor.source: offsets, or set retention.ms=-1, retention.bytes=-1 and "
                "cleanup.policy=delete on these topics"
            )
        for topic in faults.keys() - (self._by_offsets or set()):
            log.error("%s has %s: measured by offsets instead of by log directories", topic, faults[topic])
        self._by_offsets = set(faults)
        self._partitions = partitions

    def _topic_settings(self, topics: set[str]) -> dict[str, dict[str, str]]:
        try:
            return topic_settings(self._admin, sorted(topics), ANSWER_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART and len(topics) > 1:
                # One of them was deleted a moment ago: ask for each by itself.
                return {name: found for topic in topics for name, found in self._topic_settings({topic}).items()}
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return {}
            raise KafkaUnavailable(f"no broker told the settings of {sorted(topics)}: {error.args[0].str()}") from error

    def sample(self) -> Sample:
        asked_s = self._clock()
        ends = end_offsets(self._admin, self._partitions, read_committed=False, deadline_s=ANSWER_S)
        logs = self._leader_logs()
        at_s = (asked_s + self._clock()) / 2
        self._sizes.refresh(ends)
        self._begin(ends, logs)
        return Sample(at_s, {p: counter for p, end in ends.items() if (counter := self._count(p, end, logs))})

    def _count(self, partition: TopicPartition, end: int, logs: Mapping[TopicPartition, LeaderLog]) -> Counter | None:
        bytes_per_record = self._sizes.bytes_per_record(partition)
        if partition.topic in (self._by_offsets or ()):
            counter = self._offset_counts.count(partition, end, bytes_per_record)
            return counter._replace(life=-1 - counter.life)  # never comparable with a count from the log
        leader = logs.get(partition)
        return None if leader is None else self._log_counts.count(partition, end, leader, bytes_per_record)

    def _begin(self, ends: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, LeaderLog]) -> None:
        new = (ends.keys() & logs.keys()) - self._begun
        beginnings = beginning_offsets(self._admin, new, ANSWER_S)
        for partition, beginning in beginnings.items():
            size = self._sizes.bytes_per_record(partition)
            self._log_counts.begin(partition, ends[partition] - beginning, logs[partition], size)
        self._begun |= beginnings.keys()

    def _leader_logs(self) -> dict[TopicPartition, LeaderLog]:
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for partition in self._partitions:
            by_topic[partition.topic].append(partition.partition)
        if not by_topic:
            return {}
        try:
            client = self._connected()
            leaders = _leaders(client.describe_topics(sorted(by_topic)))
            brokers = [b["broker_id"] for b in client.describe_cluster()["brokers"] if not b.get("is_fenced")]
        except KafkaPythonError as error:
            self._disconnect()
            raise KafkaUnavailable(f"no broker answered the log directory source: {error!r}") from error
        found: dict[TopicPartition, LeaderLog] = {}
        answered = 0
        for broker in brokers:
            try:
                answers = client.describe_log_dirs(dict(by_topic), brokers=[broker])
            except KafkaPythonError as error:  # its partitions get another leader soon; the others are still measured
                log.warning("broker %d did not describe its log directories: %r", broker, error)
                continue
            answered += sum(len(answer["log_dirs"]) for answer in answers)
            found |= {p: LeaderLog(broker, size) for p, size in _sizes(answers) if leaders.get(p) == broker}
        if not answered:
            self._disconnect()
            raise KafkaUnavailable(
                f"none of {len(brokers)} brokers described its log directories: check that the user may Describe the "
                "Cluster, or use monitor.source: offsets"
            )
        return found

    def _connected(self) -> Any:
        if self._client is None:
            wait_ms = int(ANSWER_S * 1000)
            try:
                self._client = KafkaAdminClient(
                    **self._kafka_python,
                    request_timeout_ms=wait_ms,
                    bootstrap_timeout_ms=wait_ms,
                    reconnect_backoff_max_ms=1000,
                    metadata_max_age_ms=10_000,
                )
            except KafkaConfigurationError as error:
                raise ConfigError(
                    "monitor.source: log_dirs needs kafka-python, which cannot use these kafka.client settings: "
                    f"{error}; use monitor.source: offsets"
                ) from error
        return self._client

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def payload_per_log_byte(self, topic: str) -> float | None:
        """The measured factor between the two byte units (L-4)."""
        return self._log_counts.payload_per_log_byte(topic)

    def close(self) -> None:
        self._disconnect()
        self._sizes.close()


def _leaders(topics: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic["name"], partition["partition_index"]): partition["leader_id"]
        for topic in topics
        for partition in topic["partitions"]
    }


def _sizes(answers: Iterable[Mapping[str, Any]]) -> Iterable[tuple[TopicPartition, int]]:
    """Sizes of one broker's replicas; one being copied to another disk of the same broker is not counted twice."""
    for answer in answers:
        for directory in answer["log_dirs"]:
            if directory["error_code"]:
                log.warning("broker %d: log directory %s is failing", answer["broker"], directory["log_dir"])
            for topic in directory["topics"]:
                for replica in topic["partitions"]:
                    if not replica["is_future_key"]:
                        yield TopicPartition(topic["name"], replica["partition_index"]), replica["partition_size"]
