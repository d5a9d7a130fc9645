"""What the partitioner experiment runs: topics laid out on nodes (B-58), and what each node should get (B-24)."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from headgate.topology.cluster import Node, Partition, Topic, Topology
from headgate.topology.load import default_load, node_load, shared_sqf_load
from headgate.topology.masks import NodeBits, spreads_of

Layout = tuple[tuple[int, ...], ...]
"""For each partition its replicas; the first one leads."""
Loads = dict[int, float]


class Part(StrEnum):
    """Which question a run belongs to."""

    paper = "paper"
    limited = "limited"
    """The same topics while every node takes only so much from a producer, by Kafka's own quota."""
    three = "three nodes"
    several = "several producers"
    slow = "slow node"
    killed = "killed node"
    two_killed = "two killed nodes"
    """Of three: no majority of the controllers is left, so nobody can name new leaders."""
    consumed = "consumer latency"
    threads = "threads and new topics"
    """What stresses `improved`, without brokers."""


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    nodes: int
    topics: Mapping[str, Layout]
    """One producer for each."""

    @property
    def topology(self) -> Topology:
        topics = [
            Topic(name, tuple(Partition(n, r[0], r, r) for n, r in enumerate(layout)))
            for name, layout in self.topics.items()
        ]
        return Topology.of(map(Node, range(1, self.nodes + 1)), topics)


def _alone(name: str, nodes: int, layout: Layout) -> Scenario:
    return Scenario(name, nodes, {name: layout})


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        _alone("B1", 2, ((1,), (2,))),
        _alone("B2", 2, ((1, 2), (2, 1))),
        _alone("U1", 2, ((1,), (2,), (2,))),
        _alone("U2", 2, ((1, 2), (2, 1), (2, 1))),
        _alone("U3", 3, ((1, 2, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1))),
        Scenario("AB", 3, {"A": ((1,), (2,), (2,)), "B": ((2,), (3,))}),
        _alone("S", 3, ((1,), (2,), (3,))),
        _alone("K", 3, ((1, 3), (2, 3), (2, 1), (3, 1))),
        _alone("K3", 3, ((1, 2, 3), (2, 3, 1), (3, 1, 2))),
    )
}
SLOW_NODE, KILLED_NODE, TWO_KILLED = 3, 2, (2, 3)
PAPER = ("B1", "B2", "U1", "U2")
ACKS = ("1", "all")
SHARED = "sqf, shared"
"""One SQF object for all producers of the run."""
BASELINE = "default-rr"
PAPER_PARTITIONERS = (BASELINE, "improved", "node", "sqf", "client")
ADAPTIVE = ("sqf-inflight", "jsq", "latency-weighted")
FAULT_PARTITIONERS = (BASELINE, "client", "node", "sqf", *ADAPTIVE)


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of a table: the same run again and again."""

    part: Part
    scenario: str
    acks: str
    partitioner: str

    @property
    def topics(self) -> Mapping[str, Layout]:
        return SCENARIOS[self.scenario].topics


def cells(part: Part) -> tuple[Cell, ...]:
    """All that are measured one after the other; slow and killed nodes are met by all partitioners at once."""
    match part:
        case Part.paper:
            return tuple(Cell(part, *row) for row in product(PAPER, ACKS, PAPER_PARTITIONERS))
        case Part.limited:
            rows = (("B2", "all"), ("U2", "1"), ("U2", "all"))
            return tuple(Cell(part, *row, name) for row, name in product(rows, (BASELINE, "node", "sqf", "client")))
        case Part.three:
            return tuple(Cell(part, *row) for row in product(("U3",), ACKS, (*PAPER_PARTITIONERS, "sqf-inflight")))
        case Part.several:
            return tuple(Cell(part, "AB", "1", name) for name in (BASELINE, "client", "node", "sqf", SHARED))
        case Part.slow:
            return tuple(Cell(part, "S", "1", name) for name in FAULT_PARTITIONERS)
        case Part.killed:
            return tuple(Cell(part, "K", "all", name) for name in FAULT_PARTITIONERS)
        case Part.two_killed:
            return tuple(Cell(part, "K3", "1", name) for name in FAULT_PARTITIONERS)
        case Part.consumed:
            return tuple(Cell(part, "U2", "all", name) for name in (BASELINE, "client", "node", "sqf"))
        case Part.threads:
            return tuple(Cell(part, "U2", "", name) for name in (BASELINE, "improved"))


def shuffled(chosen: tuple[Cell, ...], seed: int, number: int) -> list[Cell]:
    """Another order for every round, so that no cell always follows the same one."""
    order = list(chosen)
    random.Random(f"{seed} {number}").shuffle(order)
    return order


@dataclass(frozen=True, slots=True)
class Expected:
    """Shares of all records by node."""

    led: Loads
    """Written to partitions that it leads: what the load model of the topology predicts."""
    held: Loads
    """The same with copies of what others lead."""


def expected(partitioner: str, topology: Topology) -> Expected | None:
    """None for partitioners that go by how fast nodes are. Partitions of a topic that one node leads share alike; with
    a shared SQF copies are not followed."""
    if partitioner in ADAPTIVE:
        return None
    bits = NodeBits.of(topology)
    spreads, nodes = list(spreads_of(topology, bits).values()), [node.id for node in topology.nodes]
    if partitioner == SHARED:
        led = shared_sqf_load(spreads, nodes).load
        return Expected(_shares(led), _shares(led))
    predict = node_load if partitioner in ("node", "sqf") else default_load
    held = dict.fromkeys(nodes, 0.0)
    for topic, spread in zip(topology.topics, spreads, strict=True):
        of_topic = predict([spread], nodes)
        for partition in topic.partitions:
            if partition.leader is not None:
                for node in partition.isr:
                    held[node] += of_topic[partition.leader] / spread.counts[partition.leader]
    led = predict(spreads, nodes)
    total = sum(led.values())
    return Expected(_shares(led), {node: load / total for node, load in held.items()})


def _shares(load: Loads) -> Loads:
    total = sum(load.values())
    return {node: share / total for node, share in load.items()}
