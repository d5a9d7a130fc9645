"""Whether a reassignment may be applied to a live cluster: every reason why not."""

from collections.abc import Iterator, Mapping, Sequence

from headgate.errors import ConfigError
from headgate.model import TopicPartition
from headgate.topology.cluster import Partition, Topic, Topology
from headgate.topology.findings import joined, listed
from headgate.topology.reassignment import Reassignment


def objections(
    topology: Topology,
    change: Reassignment,
    in_progress: Sequence[TopicPartition] = (),
    may_add_replicas: bool = False,
) -> list[str]:
    """Empty if nothing speaks against it. `in_progress`: what Kafka is still moving. `may_add_replicas`: it is for
    that."""
    found = []
    if in_progress:
        shown = ", ".join(map(str, sorted(in_progress)[:5])) + (" …" if len(in_progress) > 5 else "")
        found.append(f"another reassignment is under way ({shown}): wait for it, or cancel it")
    topics = {topic.name: topic for topic in topology.topics}
    racks = topology.racks
    for at, replicas in sorted(change.replicas.items()):
        topic = topics.get(at.topic)
        if topic is None or not 0 <= at.partition < len(topic.partitions):
            found.append(f"{at}: no such partition")
        else:
            reasons = _of_partition(topic, topic.partitions[at.partition], replicas, topology.online, racks)
            found.extend(f"{at}: {reason}" for reason in reasons)
            more = len(replicas) - len(topic.partitions[at.partition].replicas)
            if more > 0 and not may_add_replicas:
                found.append(f"{at}: {more} replicas more than now, which this plan is not meant for")
    return found


def refuse_moving(topology: Topology, change: Reassignment) -> None:
    """ConfigError if the change is for a partition that Kafka is moving: what it found there are not its replicas."""
    if topology.moves is None:
        raise ConfigError(
            "the brokers did not say whether partitions are being moved, so no plan can be written or applied: give "
            "this login the right to describe the cluster"
        )
    if moving := [move for move in topology.moves if move.at in change.replicas]:
        raise ConfigError(
            "the plan is for partitions that are being moved, and was neither written nor applied:\n  "
            + "\n  ".join(listed(map(str, moving)))
            + "\nwait until that is done, or take it back with `headgate topology cancel`, and ask for advice again"
        )


def _of_partition(
    topic: Topic, now: Partition, replicas: tuple[int, ...], online: frozenset[int], racks: Mapping[int, str]
) -> Iterator[str]:
    if not replicas or len(set(replicas)) < len(replicas):
        yield "its new replicas must be distinct nodes, at least one"
        return
    if away := [id for id in replicas if id not in online and id not in now.replicas]:
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
    before, after = racks_of(now.replicas, racks), racks_of(replicas, racks)
    if after < before:
        yield f"its replicas would be on {after} racks instead of {before}"


def on_fewer_racks(before: Topology, after: Topology) -> int:
    """Partitions whose replicas would be on fewer racks than now, where both have the same partitions."""
    racks = before.racks
    return sum(
        racks_of(new.replicas, racks) < racks_of(old.replicas, racks)
        for was, becomes in zip(before.topics, after.topics, strict=True)
        for old, new in zip(was.partitions, becomes.partitions, strict=True)
        if old.replicas != new.replicas
    )


def racks_of(replicas: Sequence[int], racks: Mapping[int, str]) -> int:
    """How many, of those that are known."""
    return len({racks[id] for id in replicas if id in racks})
