"""Partitions and offsets of the pipeline's topics, asked in bulk, and the group offsets mirrored back to Kafka."""

import logging
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headgate.errors import KafkaUnavailable
from headgate.model import TopicPartition

log = logging.getLogger(__name__)

_NOT_KNOWN_YET = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)


def partitions_where(
    admin: AdminClient, wanted: Callable[[str], bool], deadline_s: float = 15
) -> frozenset[TopicPartition]:
    """All partitions of the topics for which `wanted` holds."""
    try:
        topics = admin.list_topics(timeout=deadline_s).topics
    except KafkaException as error:
        raise KafkaUnavailable(f"no Kafka broker answered within {deadline_s:g} s: {error.args[0].str()}") from error
    return frozenset(
        TopicPartition(name, number)
        for name, topic in topics.items()
        if topic.error is None and wanted(name)
        for number in topic.partitions
    )


def end_offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], read_committed: bool = True, deadline_s: float = 15
) -> dict[TopicPartition, int]:
    """One past the last offset readers may see; partitions without a leader right now are left out."""
    return _offsets(admin, partitions, OffsetSpec.latest(), read_committed, deadline_s)


def beginning_offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], deadline_s: float = 15
) -> dict[TopicPartition, int]:
    """The oldest offset retention has left; partitions without a leader right now are left out."""
    return _offsets(admin, partitions, OffsetSpec.earliest(), False, deadline_s)


def _offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], spec: OffsetSpec, read_committed: bool, deadline_s: float
) -> dict[TopicPartition, int]:
    request = {KafkaTopicPartition(p.topic, p.partition): spec for p in partitions}
    if not request:
        return {}
    level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
    found, unknown = {}, False
    for asked, future in admin.list_offsets(request, isolation_level=level, request_timeout=deadline_s).items():
        try:
            found[TopicPartition(asked.topic, asked.partition)] = future.result(deadline_s + 5).offset
        except KafkaException as error:
            log.info("no offset of %s[%d] this time: %s", asked.topic, asked.partition, error.args[0].str())
            unknown = unknown or error.args[0].code() in _NOT_KNOWN_YET
    if unknown:  # the client keeps what it knows of a topic for minutes; this makes it look again, for the next time
        partitions_where(admin, lambda _: False, deadline_s)
    if not found:
        raise KafkaUnavailable(f"the brokers gave no offsets for {len(request)} partitions within {deadline_s:g} s")
    return found


def mirror_group_offsets(
    admin: AdminClient, group: str, positions: Mapping[TopicPartition, int], deadline_s: float = 15
) -> None:
    """Writes the lake's positions as the group's committed offsets, for every lag tool people already own."""
    offsets = [KafkaTopicPartition(p.topic, p.partition, offset) for p, offset in sorted(positions.items())]
    request = ConsumerGroupTopicPartitions(group, offsets)
    for future in admin.alter_consumer_group_offsets([request], request_timeout=deadline_s).values():
        try:
            future.result(deadline_s + 5)
        except KafkaException as error:
            raise KafkaUnavailable(f"cannot mirror offsets to group {group}: {error.args[0].str()}") from error
