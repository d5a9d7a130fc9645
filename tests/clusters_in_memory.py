"""Two of librdkafka's clusters in memory with four partitions a topic, and a forwarder between them."""

import threading
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from headgate.collectors.clients import address, consumer_settings, open_producer
from headgate.collectors.forwarder import Forwarder, Limits
from headgate.collectors.placement import KeepKeys, Placement
from headgate.collectors.progress import Progress
from headgate.collectors.topics import Route, Wanted
from headgate.producers.registry import build_partitioner

PARTITIONS = 4
TIMESTAMP_MS = 1_700_000_000_123
QUICK = Limits(commit_every_s=0.05, tell_every_s=0.05, look_every_s=0.2, drain_s=5)


class InMemory:
    """A cluster that lives as long as this object."""

    def __init__(self) -> None:
        self._producer = Producer({"test.mock.num.brokers": 3, "log_level": 0})
        cluster = self._producer.list_topics(timeout=30)
        self.cluster_id, brokers = cluster.cluster_id, cluster.brokers.values()
        self.address = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def create(self, *topics: str) -> None:
        for topic in topics:
            self._producer.list_topics(topic, timeout=30)

    def write(self, topic: str, partition: int, *values: bytes | None, **others: Any) -> None:
        for value in values:
            self._producer.produce(topic, value, partition=partition, **others)
        assert self._producer.flush(30) == 0

    def read(self, topic: str, records: int) -> list[Any]:
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "reader", "log_level": 0})
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        found: list[Any] = []
        until = time.monotonic() + 30
        while len(found) < records and time.monotonic() < until:
            found += [message for message in consumer.consume(100, 0.1) if message.error() is None]
        consumer.close()
        return found

    def written(self, topic: str) -> dict[int, int]:
        """Records in each partition that has any."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "reader", "log_level": 0})
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in range(PARTITIONS)}
        consumer.close()
        return {partition: end for partition, end in ends.items() if end}

    def committed(self, topic: str, group: str = "g") -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group, "log_level": 0})
        found = consumer.committed([TopicPartition(topic, p) for p in range(PARTITIONS)], timeout=30)
        consumer.close()
        return {at.partition: at.offset for at in found if at.offset >= 0}


@dataclass
class Pair:
    source: InMemory
    target: InMemory

    @classmethod
    def with_topics(cls, *topics: str) -> "Pair":
        pair = cls(InMemory(), InMemory())
        pair.source.create(*topics)
        pair.target.create(*topics)
        return pair

    def forwarder(
        self,
        tell: Any,
        *topics: str,
        partitioner: str = "node",
        placement: Placement | None = None,
        limits: Limits = QUICK,
        wanted: Wanted | None = None,
        to_client: dict[str, str] | None = None,
    ) -> Forwarder:
        reading = {**address(self.source.address, {}, "--from-client"), "log_level": 0, "heartbeat.interval.ms": 100}
        writing = {**address(self.target.address, to_client or {}, "--to-client"), "log_level": 0}
        return Forwarder(
            consumer_settings(reading, "g"),
            open_producer(writing, build_partitioner(partitioner), limits.in_flight_records),
            placement or KeepKeys(),
            Route(reading, writing, wanted or Wanted(topics), create=False),
            limits,
            tell,
        )

    def forward(self, records: int, *topics: str, **how: Any) -> Progress:
        """Until so many were acknowledged."""
        stop, until = threading.Event(), time.monotonic() + 60

        def tell(progress: Progress) -> None:
            if progress.records >= records or time.monotonic() > until:
                stop.set()

        return self.forwarder(tell, *topics, **how).run(stop)
