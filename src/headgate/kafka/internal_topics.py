"""The pipeline's own topics: what they are called, how they are set up, and how they come to be there."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from headgate.errors import KafkaUnavailable

_DAY_MS = 24 * 3600 * 1000
CONTROL_SPARE_PARTITIONS = 10
MOST_MESSAGE_BYTES = 8_000_000


@dataclass(frozen=True, slots=True)
class Topics:
    """Names of one pipeline's internal topics."""

    pipeline: str

    @property
    def measurements(self) -> str:
        return f"__headgate.{self.pipeline}.measurements"

    @property
    def control(self) -> str:
        """Partition 0: events to the controller; partition n: commands to consumer n (L-27)."""
        return f"__headgate.{self.pipeline}.control"

    @property
    def announcements(self) -> str:
        return f"__headgate.{self.pipeline}.announcements"

    @property
    def ledger(self) -> str:
        """Compacted by table: the newest record is the table's ledger as last committed."""
        return f"__headgate.{self.pipeline}.ledger"

    @property
    def commits(self) -> str:
        return f"__headgate.{self.pipeline}.commits"

    @property
    def cycles(self) -> str:
        return f"__headgate.{self.pipeline}.cycles"

    @property
    def decisions(self) -> str:
        return f"__headgate.{self.pipeline}.decisions"

    def settings(self) -> dict[str, dict[str, str]]:
        keep_week = {"retention.ms": str(7 * _DAY_MS)}
        settings = {
            self.measurements: keep_week,
            self.control: keep_week,
            self.announcements: {"retention.ms": "-1", "retention.bytes": str(1 << 30)},
            self.ledger: {"cleanup.policy": "compact", "segment.ms": str(120_000), "min.cleanable.dirty.ratio": "0.1"},
            self.commits: keep_week,
            self.cycles: keep_week,
            self.decisions: {"retention.ms": str(30 * _DAY_MS)},
        }
        every = {
            "max.message.bytes": str(MOST_MESSAGE_BYTES),  # a ledger of tens of thousands of partitions is one message
            "message.timestamp.type": "LogAppendTime",  # one clock, the brokers', to compare everybody else's with
        }
        return {name: {**its, **every} for name, its in settings.items()}


def ensure_topics(admin: AdminClient, topics: Topics, replication: int, consumers: int, deadline_s: float = 30) -> None:
    """Creates what is missing and gives the control topic a partition for every consumer id (L-29)."""
    existing = _list_topics(admin, deadline_s).topics
    wanted = {name: settings for name, settings in topics.settings().items() if name not in existing}
    partitions = consumers + 1 + CONTROL_SPARE_PARTITIONS
    new = [
        NewTopic(
            name,
            num_partitions=partitions if name == topics.control else 1,
            replication_factor=replication,
            config=settings,
        )
        for name, settings in wanted.items()
    ]
    futures = admin.create_topics(new, operation_timeout=deadline_s) if new else {}
    for name, future in futures.items():
        try:
            future.result(deadline_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise KafkaUnavailable(f"cannot create internal topic {name}: {error.args[0].str()}") from error
    grow_control(admin, topics, consumers, deadline_s)
    _wait_for_leaders(admin, topics.settings().keys(), deadline_s)


def grow_control(admin: AdminClient, topics: Topics, highest_consumer: int, deadline_s: float = 30) -> int:
    """L-29: at least highest consumer id + 1 partitions, and some to spare. Returns the highest id with a place."""
    metadata = _list_topics(admin, deadline_s).topics.get(topics.control)
    have = len(metadata.partitions) if metadata else 0
    if have >= highest_consumer + 1 or have == 0:
        return max(0, have - 1)
    target = highest_consumer + 1 + CONTROL_SPARE_PARTITIONS
    try:
        admin.create_partitions([NewPartitions(topics.control, target)])[topics.control].result(deadline_s)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.INVALID_PARTITIONS:  # someone else grew it further
            raise KafkaUnavailable(f"cannot add partitions to {topics.control}: {error.args[0].str()}") from error
    return target - 1


def _list_topics(admin: AdminClient, deadline_s: float) -> Any:
    try:
        return admin.list_topics(timeout=deadline_s)
    except KafkaException as error:
        raise KafkaUnavailable(
            f"no Kafka broker answered within {deadline_s:g} s: {error.args[0].str()}; check kafka.brokers"
        ) from error


def _wait_for_leaders(admin: AdminClient, names: Iterable[str], deadline_s: float) -> None:
    wanted, until = set(names), time.monotonic() + deadline_s
    while True:
        found = _list_topics(admin, deadline_s).topics
        missing = {
            name
            for name in wanted
            if name not in found or any(p.leader < 0 for p in found[name].partitions.values()) or found[name].error
        }
        if not missing:
            return
        if time.monotonic() > until:
            raise KafkaUnavailable(f"internal topics without a leader after {deadline_s:g} s: {sorted(missing)}")
        time.sleep(0.1)
