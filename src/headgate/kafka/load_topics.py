"""The topics a load generator writes to: made if they are not there, checked if they are."""

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.errors import ConfigError, KafkaUnavailable
from headgate.model import TopicPartition

ENVELOPE_BYTES = 64 * 1024
"""Room for what Kafka puts around a large record."""
BROKER_DEFAULT = -1
"""As a replication factor: what the brokers are configured to give new topics."""
_KAFKA_LARGEST_BATCH_BYTES = 1_048_588
"""Kafka's own default of max.message.bytes."""


def prepare_topics(
    admin: AdminClient,
    topics: Mapping[str, int | None],
    replication: int = BROKER_DEFAULT,
    largest_record_bytes: int = 0,
    deadline_s: float = 30.0,
) -> tuple[TopicPartition, ...]:
    """Creates the topics that are missing, and returns the partitions to load: {"orders": 8, "existing": None}."""
    existing = _partition_counts(admin, deadline_s)
    for name, wanted in topics.items():
        if wanted is None and name not in existing:
            raise ConfigError(f"topic {name} does not exist: say {name}:8 to create it with eight partitions")
        if wanted is not None and existing.get(name, wanted) < wanted:
            raise ConfigError(
                f"topic {name} has {existing[name]} partitions, not {wanted}: say {name}:{existing[name]}, "
                "or add partitions to it first"
            )
    config = {}
    if largest_record_bytes + ENVELOPE_BYTES > _KAFKA_LARGEST_BATCH_BYTES:
        config["max.message.bytes"] = str(largest_record_bytes + ENVELOPE_BYTES)
    missing = {name: wanted for name, wanted in topics.items() if wanted is not None and name not in existing}
    _create(admin, [NewTopic(name, count, replication, config=config) for name, count in missing.items()], deadline_s)
    return tuple(
        TopicPartition(name, number)
        for name, wanted in topics.items()
        for number in range(existing[name] if wanted is None else wanted)
    )


def _create(admin: AdminClient, new: list[NewTopic], deadline_s: float) -> None:
    futures = admin.create_topics(new, operation_timeout=deadline_s) if new else {}
    for name, future in futures.items():
        try:
            future.result(deadline_s + 5)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise KafkaUnavailable(f"cannot create topic {name}: {error.args[0].str()}") from error
    # A new topic's leaders become known a moment after the answer.
    until_s = time.monotonic() + deadline_s
    while new and not futures.keys() <= _partition_counts(admin, deadline_s).keys():
        if time.monotonic() > until_s:
            raise KafkaUnavailable(f"new topics have no leaders after {deadline_s:g} s: look at the brokers' logs")
        time.sleep(0.05)


def _partition_counts(admin: AdminClient, deadline_s: float) -> dict[str, int]:
    """Topics whose partitions all have a leader."""
    try:
        found = admin.list_topics(timeout=deadline_s).topics
    except KafkaException as error:
        raise KafkaUnavailable(
            f"no Kafka broker answered within {deadline_s:g} s: check the address, "
            f"or start one with `headgate kafka start` ({error.args[0].str()})"
        ) from error
    return {
        name: len(topic.partitions)
        for name, topic in found.items()
        if topic.error is None and all(partition.leader >= 0 for partition in topic.partitions.values())
    }
