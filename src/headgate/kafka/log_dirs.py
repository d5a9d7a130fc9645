"""The published source of the monitor's numbers: the sizes of the leaders' logs on disk, which must only grow (L-9)."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaConfigurationError
from kafka.errors import KafkaError as KafkaPythonError

from headgate.errors import ConfigError, KafkaUnavailable
from headgate.kafka.log_counts import LeaderLog, LogCounts
from headgate.kafka.measurements import ANSWER_S
from headgate.kafka.offset_counts import OffsetCounts
from headgate.kafka.offsets import beginning_offsets, end_offsets
from headgate.kafka.rates import Counter, Sample
from headgate.kafka.record_sizes import RecordSizes
from headgate.kafka.topic_settings import topic_settings
from headgate.model import TopicPartition

log = logging.getLogger(__name__)


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
