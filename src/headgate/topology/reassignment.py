"""Kafka's reassignment file: read, written, and applied to a cluster before anybody applies it for real (B-2)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headgate.errors import ConfigError
from headgate.model import TopicPartition
from headgate.topology.cluster import Partition, Topology
from headgate.topology.document import parse_json, refuse
from headgate.topology.validation import problems


@dataclass(frozen=True, slots=True)
class Reassignment:
    """New replicas, in order of preference, of the partitions that change."""

    replicas: Mapping[TopicPartition, tuple[int, ...]]

    def as_document(self) -> dict[str, Any]:
        """What kafka-reassign-partitions takes as --reassignment-json-file."""
        return {
            "version": 1,
            "partitions": [
                {"topic": at.topic, "partition": at.partition, "replicas": list(replicas)}
                for at, replicas in sorted(self.replicas.items())
            ],
        }

    def __len__(self) -> int:
        return len(self.replicas)


def read_reassignment(text: str, source: str) -> Reassignment:
    document = parse_json(text, source)
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise ConfigError(f'{source} is not a reassignment file: it needs {{"version": 1, "partitions": [...]}}')
    if not (_whole(document.get("version", 1)) and document.get("version", 1) == 1):
        raise ConfigError(f"{source}: version {document['version']!r} is unknown; Kafka's files have version 1")
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for n, entry in enumerate(document["partitions"]):
        match entry:
            case {"topic": str(topic), "partition": int(index), "replicas": list(replicas)} if all(
                map(_whole, (index, *replicas))
            ):
                if TopicPartition(topic, index) in found:
                    raise ConfigError(f"{source}: partitions[{n}] names {topic}-{index} a second time")
                found[TopicPartition(topic, index)] = tuple(replicas)
            case _:
                raise ConfigError(f"{source}: partitions[{n}] needs topic (text), partition and replicas (node ids)")
    return Reassignment(found)


def _whole(value: object) -> bool:
    """JSON's true and false are numbers to Python."""
    return isinstance(value, int) and not isinstance(value, bool)


def reassigned(topology: Topology, change: Reassignment, source: str = "the reassignment") -> Topology:
    """The cluster once the reassignment is complete; ConfigError if it is none that this cluster can have."""
    topics = {topic.name: topic for topic in topology.topics}
    unknown = [
        f"{at}: no such partition"
        for at in change.replicas
        if at.topic not in topics or not 0 <= at.partition < len(topics[at.topic].partitions)
    ]
    refuse(unknown, source)
    online, changed = topology.online, dict(topics)
    for at, replicas in change.replicas.items():
        partitions = list(changed[at.topic].partitions)
        partitions[at.partition] = _settled(partitions[at.partition], replicas, online)
        changed[at.topic] = replace(changed[at.topic], partitions=tuple(partitions))
    after = topology.changed(changed[name] for name in {at.topic for at in change.replicas})
    refuse(problems(after), source)
    return after


def _settled(partition: Partition, replicas: tuple[int, ...], online: frozenset[int]) -> Partition:
    """All live replicas in sync, the first of them leading; nothing helps a partition that cannot be copied."""
    if partition.leader is None:
        return Partition(partition.index, None, replicas, tuple(id for id in partition.isr if id in replicas))
    isr = tuple(id for id in replicas if id in online)
    return Partition(partition.index, isr[0] if isr else None, replicas, isr)


def difference(before: Topology, after: Topology) -> Reassignment:
    """What leads from one to the other, where both have the same partitions."""
    return Reassignment(
        {
            TopicPartition(old.name, a.index): b.replicas
            for old, new in zip(before.topics, after.topics, strict=True)
            for a, b in zip(old.partitions, new.partitions, strict=True)
            if a.replicas != b.replicas
        }
    )


def copies(before: Topology, change: Reassignment) -> int:
    """Replicas that must be copied to a node that has none yet; the rest only changes order or goes away."""
    held = {TopicPartition(topic.name, p.index): set(p.replicas) for topic in before.topics for p in topic.partitions}
    return sum(len(set(replicas) - held[at]) for at, replicas in change.replicas.items())
