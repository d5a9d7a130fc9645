"""What to do about a cluster, as plans that can be applied and what each would bring (B-23)."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

from headgate.topology.cluster import Partition, Topology
from headgate.topology.findings import counted, joined
from headgate.topology.leaders import with_better_leaders
from headgate.topology.lints import Lint
from headgate.topology.placement import equal_seats, in_a_rack_of, seated, separate_seats, spread
from headgate.topology.reassignment import Reassignment, copies, difference, reassigned
from headgate.topology.safety import on_fewer_racks
from headgate.topology.simulate import Pressure
from headgate.topology.standing import Standing

REPLICATE, OWN = "replicate", "yours"
_NOTHING = {"replace": "no live node is free for them: each holds a replica of the partition, or nobody leads it"}


@dataclass(frozen=True, slots=True)
class Effect:
    """What counts about a cluster, to hold two against each other."""

    partial: bool
    groups: int
    shared_nodes: int
    uneven_topics: int
    broken_topics: int
    """Offline or refusing acks=all."""
    lonely_topics: int
    """Without a second replica."""
    lagging_topics: int
    """With replicas that are not in sync."""
    default: Pressure | None
    node: Pressure | None
    load: dict[int, float]
    """By node, with round robin over partitions."""

    @classmethod
    def of(cls, standing: Standing) -> "Effect":
        capacity = {node.id: node.capacity for node in standing.topology.nodes if node.online}
        return cls(
            standing.overlaps.partial,
            standing.overlaps.count,
            standing.overlaps.shared_count,
            len(standing.lints[Lint.UNEVEN]),
            len(standing.lints[Lint.OFFLINE] | standing.lints[Lint.UNWRITABLE]),
            len(standing.lints[Lint.NO_REPLICATION]),
            len(standing.lints[Lint.UNDER_REPLICATED]),
            Pressure.of(standing.loads.default, capacity),
            Pressure.of(standing.loads.node, capacity),
            dict(standing.loads.default),
        )

    @property
    def badness(self) -> tuple[float, ...]:
        """Records in danger first, then the busiest node."""
        skew = round(self.default.skew, 2) if self.default else 0.0
        in_danger = self.broken_topics, self.lonely_topics, self.lagging_topics
        return *in_danger, skew, self.uneven_topics, self.shared_nodes


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    what: str
    change: Reassignment
    copies: int
    """Replicas to be copied to another node."""
    before: Effect
    after: Effect

    @property
    def may_add_replicas(self) -> bool:
        """Only what says so: the plan for that, and somebody's own file."""
        return self.name in (REPLICATE, OWN)

    @property
    def worthwhile(self) -> bool:
        return self.after.badness < self.before.badness


@dataclass(frozen=True, slots=True)
class Advice:
    plans: tuple[Plan, ...]
    """Those that improve something, best first."""
    rejected: tuple[tuple[Plan, str], ...]
    """Those that do not, and why; they can be had by name all the same."""
    words: tuple[str, ...]
    """What no reassignment can do."""
    new_partitions: dict[str, int] = field(default_factory=dict)
    """Topics that need this many partitions before every node can lead them."""

    def named(self, name: str) -> Plan | None:
        return next((p for p in (*self.plans, *(plan for plan, _ in self.rejected)) if p.name == name), None)


def advise(standing: Standing) -> Advice:
    before = Effect.of(standing)
    plans, rejected = [], []
    for name, what, after in _proposals(standing):
        plan = _plan(standing, before, name, what, difference(standing.topology, after))
        crowded = on_fewer_racks(standing.topology, after)
        if crowded:
            rejected.append((plan, f"{counted(crowded, 'partition')} would have replicas on fewer racks than now"))
        elif plan.worthwhile:
            plans.append(plan)
        else:
            rejected.append(
                (
                    plan,
                    _compared(before, plan.after) if plan.change.replicas else _NOTHING.get(name, "nothing to change"),
                )
            )
    plans.sort(key=lambda plan: (*plan.after.badness, plan.copies))
    for better, plan in [*pairwise(plans)]:
        if better.after.badness == plan.after.badness:
            plans.remove(plan)
            rejected.append((plan, f"no better than {better.name}, and it copies {plan.copies} replicas"))
    return Advice(tuple(plans), tuple(rejected), tuple(_words(standing)), _new_partitions(standing))


def judged(standing: Standing, change: Reassignment, source: str) -> Advice:
    """Somebody's own reassignment, with what it would bring; ConfigError if this cluster cannot have it."""
    plan = _plan(standing, Effect.of(standing), OWN, f"as in {source}", change, source)
    return Advice((plan,), (), tuple(_words(standing)))


def _plan(
    standing: Standing, before: Effect, name: str, what: str, change: Reassignment, source: str = "the plan"
) -> Plan:
    """What is promised is what Kafka makes of the reassignment, not what a planner had in mind."""
    after = Effect.of(Standing(reassigned(standing.topology, change, source)))
    return Plan(name, what, change, copies(standing.topology, change), before, after)


def _proposals(standing: Standing) -> Iterator[tuple[str, str, Topology]]:
    topology = standing.topology
    if any(not node.online for node in topology.nodes) and topology.online:
        yield "replace", "replicas of offline nodes move to live ones", _without_offline(topology)
    if standing.lints[Lint.NO_REPLICATION] and len(topology.online) > 1:
        yield REPLICATE, "a second replica for every partition that has none", _with_second_replicas(topology)
    yield "leaders", "other replicas lead; nothing is copied", with_better_leaders(topology)
    yield "spread", "every topic over as many nodes as it has partitions; overlaps stay", spread(topology)
    if standing.overlaps.partial:
        separate = separate_seats(topology, standing.overlaps.groups())
        if len(separate) > 1:
            sets = " | ".join(joined(seats.leaders) for seats in separate[:8]) + (" | …" if len(separate) > 8 else "")
            yield (
                "separate",
                f"{counted(len(separate), 'node set')} that share no node: {sets}",
                seated(topology, separate),
            )
        if equal := equal_seats(topology):
            yield "equal", f"every topic on the same nodes: {joined(equal[0].leaders)}", seated(topology, equal)


def _replicas_held(topology: Topology) -> dict[int, int]:
    held = dict.fromkeys(topology.online, 0)
    for topic in topology.topics:
        for partition in topic.partitions:
            for id in partition.replicas:
                if id in held:
                    held[id] += 1
    return held


def _with_second_replicas(topology: Topology) -> Topology:
    """A follower for every partition that has none, on the node with the fewest replicas, if it can in another rack."""
    held, racks = _replicas_held(topology), topology.racks

    def doubled(partition: Partition) -> Partition:
        free = [id for id in held if id not in partition.replicas]
        if len(partition.replicas) > 1 or partition.leader is None or not free:
            return partition
        second = min(free, key=lambda id: (in_a_rack_of(id, partition.replicas, racks), held[id], id))
        held[second] += 1
        replicas = (*partition.replicas, second)
        return Partition(partition.index, partition.leader, replicas, replicas)

    return topology.changed(
        replace(topic, partitions=tuple(doubled(p) for p in topic.partitions)) for topic in topology.topics
    )


def _without_offline(topology: Topology) -> Topology:
    """Each goes to a rack that has none of the partition, if there is one with a node to spare."""
    online, held, racks = topology.online, _replicas_held(topology), topology.racks

    def mended(partition: Partition) -> Partition:
        if online.issuperset(partition.replicas) or partition.leader is None:
            return partition  # nothing to copy from: a new place would not bring its records back
        replicas = list(partition.replicas)
        for place, id in enumerate(replicas):
            free = [other for other in online if other not in replicas]
            if id not in online and free:
                others = replicas[:place] + replicas[place + 1 :]
                replicas[place] = min(free, key=lambda other: (in_a_rack_of(other, others, racks), held[other], other))
                held[replicas[place]] += 1
        leader = next(id for id in replicas if id in online)
        return Partition(partition.index, leader, tuple(replicas), tuple(id for id in replicas if id in online))

    return topology.changed(
        replace(topic, partitions=tuple(mended(p) for p in topic.partitions)) for topic in topology.topics
    )


def _compared(before: Effect, after: Effect) -> str:
    if before.default is None or after.default is None:
        return "no node is online"
    return (
        f"the busiest node would carry {after.default.skew:.2f} times its share instead of {before.default.skew:.2f}, "
        f"with {after.uneven_topics} uneven topics instead of {before.uneven_topics}"
    )


def _words(standing: Standing) -> Iterator[str]:
    if moves := standing.topology.moves:
        yield (
            f"{counted(len(moves), 'partition')} being moved, with replicas in both places meanwhile: wait until that "
            "is done and ask again, or take it back (`headgate topology cancel`)."
        )
    if offline := [node.id for node in standing.topology.nodes if not node.online]:
        yield (
            f"Node {joined(offline)} is offline: bring it back before anything else is moved; plan `replace` is for a "
            "node that stays away."
        )
    if unmeasured := len(standing.topology.unmeasured):
        yield (
            f"Nobody measured {counted(unmeasured, 'topic')}, which count as idle in every plan: --measure 10s "
            "measures all topics."
        )
    if standing.overlaps.partial:
        yield (
            "While topics share nodes in part, one SQF instance shared by the producers of a machine levels their "
            "load; producers on several machines need collectors."
        )
        replicas = max(len(p.replicas) for topic in standing.topology.topics for p in topic.partitions)
        if len(standing.topology.online) < 2 * replicas:
            yield (
                f"Separate node sets would be the best cure; with {replicas} replicas they need {2 * replicas} nodes, "
                f"and {len(standing.topology.online)} are up."
            )
    elif standing.lints[Lint.UNEVEN]:
        yield "No topics overlap: with the `node` or `sqf` partitioner the uneven ones are level where they are."
    if standing.topology.racks:
        yield (
            "Racks are known: every plan leaves each partition's replicas on as many racks as now, or more. Room on "
            "disks is not looked at."
        )
    if standing.lints[Lint.OFFLINE]:
        yield "Partitions without a leader are helped by bringing their nodes back, not by a reassignment."


def _new_partitions(standing: Standing) -> dict[str, int]:
    """To make node sets equal instead of separate, every topic needs a partition on every node."""
    nodes = len(standing.topology.online)
    if not standing.overlaps.partial:
        return {}
    return {t.name: nodes for t in standing.topology.topics if 0 < len(t.partitions) < nodes}


def as_json(advice: Advice) -> dict[str, Any]:
    return {
        "plans": [
            {
                "name": plan.name,
                "what": plan.what,
                "partitions": len(plan.change),
                "copies": plan.copies,
                "before": asdict(plan.before),
                "after": asdict(plan.after),
                "reassignment": plan.change.as_document(),
            }
            for plan in advice.plans
        ],
        "rejected": {plan.name: why for plan, why in advice.rejected},
        "words": list(advice.words),
        "new_partitions": advice.new_partitions,
    }
