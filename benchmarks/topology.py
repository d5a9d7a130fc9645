"""Looking at a large cluster: against the published algorithms, against starting anew, and against smaller ones."""

import random
from dataclasses import dataclass, replace

from benchmarks.ratio import Ratio, compare
from headgate.topology.cluster import Node, Partition, Topic, Topology
from headgate.topology.failures import failed
from headgate.topology.groups import dpo2, get_max_groups, leader_sets, overlap_exists
from headgate.topology.overlaps import Overlaps
from headgate.topology.report import Report, make_report
from headgate.topology.simulate import Failures, Simulation, simulate
from headgate.topology.standing import Standing

PARTITIONS, REPLICAS = 10, 3
TURNS = 3
NODES_FAILED = 5
"""Single failures per turn where the peer looks at the whole cluster anew for each."""


@dataclass(frozen=True, slots=True)
class Cluster:
    topology: Topology
    standing: Standing

    @classmethod
    def of(cls, nodes: int, topics: int) -> "Cluster":
        """Replicas at random, rates that differ: nearly every topic is a group of its own, the worst for sets."""
        draw = random.Random(nodes)

        def row(index: int) -> Partition:
            replicas = tuple(draw.sample(range(nodes), REPLICAS))
            return Partition(index, replicas[0], replicas, replicas)

        topology = Topology.of(
            map(Node, range(nodes)),
            (
                Topic(f"t{n:05}", tuple(row(p) for p in range(PARTITIONS)), draw.lognormvariate(0.0, 1.0))
                for n in range(topics)
            ),
        )
        return cls(topology, Standing(topology))

    def report(self) -> Report:
        return make_report(Standing(self.topology), "benchmark")

    def groups(self) -> object:
        overlaps = Overlaps.of(self.topology)
        return overlaps.groups(), overlaps.partial, overlaps.shared()

    def groups_as_published(self) -> object:
        groups = get_max_groups(leader_sets(self.topology))
        return groups, overlap_exists(groups), dpo2(groups)

    def changed_topic(self, turn: int) -> Topic:
        """Its first partition is led by its second replica."""
        topic = self.topology.topics[turn]
        first = topic.partitions[0]
        return replace(topic, partitions=(replace(first, leader=first.replicas[1]), *topic.partitions[1:]))

    def failures(self) -> Simulation:
        return simulate(self.standing, most_scenarios=len(self.topology.nodes))

    def __str__(self) -> str:
        size = self.topology
        return f"{len(size.nodes):,} nodes, {len(size.topics):,} topics, {size.partitions:,} partitions"


def run() -> list[Ratio]:
    wide, middle, large = Cluster.of(100, 5_000), Cluster.of(100, 2_000), Cluster.of(1_000, 20_000)
    topics = [large.changed_topic(turn) for turn in range(TURNS + 1)]
    changed = [large.topology.changed([topic]) for topic in topics]
    followed, compared, tried = Standing(large.topology), Standing(large.topology), Failures(large.standing)
    return [
        compare(
            f"groups and overlaps of {wide}",
            lambda _: wide.groups(),
            "the published algorithms",
            lambda _: wide.groups_as_published(),
            TURNS,
            1,
        ),
        compare(
            f"report on {large}",
            lambda _: large.report(),
            f"ten reports on {middle}",
            lambda _: [middle.report() for _ in range(10)],
            TURNS,
            1,
        ),
        compare(
            f"one topic that is known to have changed, {large}",
            lambda turn: followed.change(topics[turn].name, topics[turn]),
            "finding it in a new reading of the cluster",
            lambda turn: compared.update(changed[turn]),
            TURNS,
            1,
        ),
        compare(
            f"finding and following one changed topic, {large}",
            lambda turn: compared.update(changed[turn]),
            "looking at everything anew",
            lambda turn: Standing(changed[turn]),
            TURNS,
            1,
        ),
        compare(
            f"{NODES_FAILED} failures of a node, {large}",
            lambda turn: [tried.consequence((NODES_FAILED * turn + n,)) for n in range(NODES_FAILED)],
            "looking at each failed cluster anew",
            lambda turn: [Standing(failed(large.topology, (NODES_FAILED * turn + n,))) for n in range(NODES_FAILED)],
            TURNS,
            1,
        ),
        compare(
            f"every failure of a node, {large}",
            lambda _: large.failures(),
            f"ten times every failure of a node, {middle}",
            lambda _: [middle.failures() for _ in range(10)],
            1,
            0,
        ),
    ]
