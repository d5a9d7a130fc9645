"""The topology of a live cluster, asked of its brokers (B-2)."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from headgate.errors import KafkaUnavailable
from headgate.kafka.offsets import end_offsets
from headgate.model import TopicPartition
from headgate.topology.cluster import ConsumerGroup, Node, Partition, Topic, Topology

log = logging.getLogger(__name__)

ANSWER_S = 15.0
TRY_S = 3.0
"""For one question about nodes or settings; there are several tries within the deadline."""
SETTINGS_AT_ONCE = 500
"""Topics whose settings one request asks for."""


class ClusterReader:
    """Reads the cluster as often as asked. Leaders and replicas come from one answer, so they fit together; what hardly
    ever changes (racks, min.insync.replicas) is asked for once per node and topic."""

    def __init__(self, admin: AdminClient, internal: bool = False, deadline_s: float = ANSWER_S) -> None:
        """`internal`: also topics whose names begin with two underscores."""
        self._admin, self._internal, self._deadline_s = admin, internal, deadline_s
        self._racks: dict[int, str | None] = {}
        self._min_insync: dict[str, int] = {}
        self._epoch = -1

    def read(self, consumer_groups: bool = False) -> Topology:
        until = time.monotonic() + self._deadline_s
        while True:
            metadata = self._asked(lambda: self._admin.list_topics(timeout=self._deadline_s))
            live = set(metadata.brokers)
            wanted = {
                name: topic
                for name, topic in metadata.topics.items()
                if topic.error is None and topic.partitions and (self._internal or not name.startswith("__"))
            }
            try:
                self._learn_racks(live)
                self._learn_settings(wanted.keys() - self._min_insync.keys())
                break
            except (KafkaException, TimeoutError) as error:
                # After a failure the client waits for a broker that is gone, until newer metadata names another one.
                if time.monotonic() > until:
                    raise self._unavailable(error) from error
        topics = [_topic(name, found, live, self._min_insync.get(name, 1)) for name, found in wanted.items()]
        # A node that is away is known only by the replicas it should hold.
        known = live | {id for topic in topics for partition in topic.partitions for id in partition.replicas}
        nodes = [Node(id, id in live, rack=self._racks.get(id)) for id in known]
        groups = self._groups(wanted.keys()) if consumer_groups else []
        self._epoch += 1
        return replace(Topology.of(nodes, topics, groups), epoch=self._epoch)

    def _learn_racks(self, live: set[int]) -> None:
        if not live <= self._racks.keys():
            described = self._admin.describe_cluster(request_timeout=TRY_S).result(TRY_S + 1)
            self._racks |= {node.id: node.rack for node in described.nodes} | dict.fromkeys(live - self._racks.keys())

    def _learn_settings(self, topics: Iterable[str]) -> None:
        """A topic deleted a moment ago has none, and one made a moment ago may be unknown to a broker: another time."""
        names = sorted(topics)
        for start in range(0, len(names), SETTINGS_AT_ONCE):
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in names[start : start + SETTINGS_AT_ONCE]]
            for resource, future in self._admin.describe_configs(resources, request_timeout=TRY_S).items():
                try:
                    found = future.result(TRY_S + 1)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
                else:
                    self._min_insync[resource.name] = int(found["min.insync.replicas"].value)

    def _groups(self, topics: Iterable[str]) -> list[ConsumerGroup]:
        """Groups with members, and the topics that these read. One that cannot be described is left out."""
        known, wait_s = set(topics), self._deadline_s + 5
        listing = self._admin.list_consumer_groups(request_timeout=self._deadline_s)
        names = [group.group_id for group in self._asked(lambda: listing.result(wait_s)).valid]
        if not names:
            return []
        found = []
        for name, future in self._admin.describe_consumer_groups(names, request_timeout=self._deadline_s).items():
            try:
                members = future.result(wait_s).members
            except KafkaException as error:
                log.info("no description of consumer group %s: %s", name, error.args[0].str())
                continue
            read = {tp.topic for member in members if member.assignment for tp in member.assignment.topic_partitions}
            if members and read & known:
                found.append(ConsumerGroup(name, len(members), tuple(sorted(read & known))))
        return found

    def _asked(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except (KafkaException, TimeoutError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: KafkaException | TimeoutError) -> KafkaUnavailable:
        said = error.args[0].str() if isinstance(error, KafkaException) else "no answer"
        return KafkaUnavailable(
            f"the cluster's topology could not be read within {self._deadline_s:g} s ({said}): check the address, "
            "the login and that a broker is up"
        )


def _topic(name: str, found: Any, live: set[int], min_insync_replicas: int) -> Topic:
    partitions = (
        # In the moment after a failure metadata may still name the leader that is gone.
        Partition(index, p.leader if p.leader in live else None, tuple(p.replicas), tuple(p.isrs))
        for index, p in sorted(found.partitions.items())
    )
    return Topic(name, tuple(partitions), min_insync_replicas=min_insync_replicas)


def with_rates(topology: Topology, rates: Mapping[str, float]) -> Topology:
    """The same cluster with measured traffic; topics that nobody measured count as idle, and are known by name."""
    return replace(
        topology,
        topics=tuple(replace(topic, rate=rates.get(topic.name, 0.0)) for topic in topology.topics),
        rates_known=True,
        unmeasured=frozenset(topic.name for topic in topology.topics if topic.name not in rates),
    )


def measured_records_per_s(
    admin: AdminClient, topology: Topology, window_s: float, sleep: Callable[[float], None] = time.sleep
) -> dict[str, float]:
    """Traffic of every topic over a window, from the growth of end offsets."""
    asked = [TopicPartition(t.name, p.index) for t in topology.topics for p in t.partitions if p.leader is not None]
    if not asked:
        return {}
    began_s, before = time.monotonic(), end_offsets(admin, asked, read_committed=False)
    sleep(window_s)
    after, took_s = end_offsets(admin, asked, read_committed=False), time.monotonic() - began_s
    rates: dict[str, float] = {}
    for at in before.keys() & after.keys():
        rates[at.topic] = rates.get(at.topic, 0.0) + max(0, after[at] - before[at]) / took_s
    return rates
