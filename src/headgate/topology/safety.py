"""Whether a reassignment may be applied to a live cluster: every reason why not."""

from collections.abc import Iterator, Sequence

from headgate.model import TopicPartition
from headgate.topology.cluster import Partition, Topic, Topology
from headgate.topology.findings import joined
from headgate.topology.reassignment import Reassignment


def objections(topology: Topology, change: Reassignment, in_progress: Sequence[TopicPartition] = ()) -> list[str]:
    """Empty if nothing speaks against it. `in_progress`: what Kafka is still moving."""
    found = []
    if in_progress:
        shown = ", ".join(map(str, sorted(in_progress)[:5])) + (" …" if len(in_progress) > 5 else "")
        found.append(f"another reassignment is under way ({shown}): wait for it, or cancel it")
    topics = {topic.name: topic for topic in topology.topics}
    racks = {node.id: node.rack for node in topology.nodes}
    for at, replicas in sorted(change.replicas.items()):
        topic = topics.get(at.topic)
        if topic is None or not 0 <= at.partition < len(topic.partitions):
            found.append(f"{at}: no such partition")
        else:
            reasons = _of_partition(topic, topic.partitions[at.partition], replicas, topology.online, racks)
            found.extend(f"{at}: {reason}" for reason in reasons)
    return found


def _of_partition(
    topic: Topic, now: Partition, replicas: tuple[int, ...], online: frozenset[int], racks: dict[int, str | None]
) -> Iterator[str]:
    if not replicas or len(set(replicas)) < len(replicas):
        yield "its new replicas must be distinct nodes, at least one"
        return
    if away := [id for id in replicas if id not in online]:
        yield f"node {joined(away)} is offline or unknown and cannot take a replica"
    required = topic.min_insync_replicas
    if len(set(replicas) & online) < required:
        yield f"{len(set(replicas) & online)} live replicas would be left, min.insync.replicas is {required}"
    if now.leader is None:
        yield "nobody leads it, so there is nothing to copy from"
    elif len(now.isr) < required:
        yield f"only {len(now.isr)} in sync now, min.insync.replicas is {required}: bring its replicas back first"
    if len(replicas) < len(now.replicas):
        yield f"{len(now.replicas)} replicas would become {len(replicas)}"
    before, after = {racks[id] for id in now.replicas if racks.get(id)}, {racks.get(id) for id in replicas}
    if len(after - {None}) < len(before):
        yield f"its replicas would be on {len(after - {None})} racks instead of {len(before)}"
