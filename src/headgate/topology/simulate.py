"""What failures of up to k nodes would do to a cluster (B-20), and what a spare node would change and cost (B-22)."""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

from headgate.topology.cluster import Topic
from headgate.topology.failures import at_home, with_back, without
from headgate.topology.lints import Lint, lints_of
from headgate.topology.load import SQF_SWEEPS, shared_sqf_load
from headgate.topology.masks import Spread
from headgate.topology.standing import Standing, TopicStanding

MOST_SCENARIOS = 2_000
MOST_FAILURES = 5
"""Nodes that may fail at once."""
MOST_BALANCED = 10
"""Worst failures for which shared SQF is computed."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """How the traffic lies on the nodes that are up, for one partitioner."""

    busiest: int
    """Node with the most traffic for its capacity."""
    load: float
    """Its traffic."""
    skew: float
    """Its traffic over its fair share; 1 when all carry what they should."""

    @classmethod
    def of(cls, load: Mapping[int, float], capacity: Mapping[int, float]) -> "Pressure | None":
        """None when no node is up. `capacity` says which are."""
        if not capacity:
            return None
        busiest = max(capacity, key=lambda id: (load[id] / capacity[id], -id))
        fair = sum(load[id] for id in capacity) / sum(capacity.values()) * capacity[busiest]
        return cls(busiest, load[busiest], load[busiest] / fair if fair > 0 else 1.0)


@dataclass(frozen=True, slots=True)
class Consequence:
    """The cluster after a failure, with what is new against the one before it."""

    failed: tuple[int, ...]
    partial: bool
    groups: int
    shared_nodes: int
    """Nodes that more than one max group uses."""
    new: dict[Lint, tuple[str, ...]] = field(default_factory=dict)
    """Topics that have this flaw now and did not before."""
    gone: dict[Lint, tuple[str, ...]] = field(default_factory=dict)
    """Topics that had it and have it no longer."""
    default: Pressure | None = None
    node: Pressure | None = None
    """With a partitioner that balances nodes."""
    shared_sqf: Pressure | None = None
    """With one SQF shared by all producers; only of the worst failures, for it takes a look at the whole cluster."""

    @property
    def badness(self) -> tuple[float, ...]:
        """Worst first: records that cannot be written, then the busiest node."""
        return (
            len(self.new.get(Lint.OFFLINE, ())),
            len(self.new.get(Lint.UNWRITABLE, ())),
            self.default.skew if self.default else math.inf,
        )


@dataclass(frozen=True, slots=True)
class Recovery:
    """The cluster when nodes that failed are back and in sync."""

    nodes: tuple[int, ...]
    back: Pressure | None
    """Leaders are where they went: until an election, or Kafka's own some minutes later."""
    home: Pressure | None
    """Leaders have gone home to the first replicas."""
    idle: tuple[int, ...]
    """Nodes that lead nothing while they are back and nothing went home."""


@dataclass(frozen=True, slots=True)
class Spare:
    """What it takes to keep a standby for one node, and what that changes when the node fails (B-22)."""

    node: int
    affected_topics: int
    capacity: float
    """The standby must carry what the node carries."""
    replica_traffic: float
    """Written to the standby all the time, failure or not: the rate of every replica the node holds."""
    load_without: Pressure | None
    """Once the node has failed and there is no standby."""
    load_with: Pressure | None
    """With the standby in the node's place, and called like it: the load is as before the failure."""
    broken_without: int
    """Topics without a leader, or refusing acks=all, which a standby keeps going."""
    shared_spares: int
    """Nodes needed if all topics share their standbys, for the tolerated number of failures."""
    separate_spares: int
    """Nodes needed if every affected topic has its own."""


@dataclass(frozen=True, slots=True)
class Simulation:
    consequences: tuple[Consequence, ...]
    """Worst first."""
    covered: dict[int, tuple[int, int]]
    """By number of nodes that fail: scenarios looked at, scenarios there are."""

    @property
    def complete(self) -> bool:
        return all(seen == total for seen, total in self.covered.values())


class Failures:
    """Tries failures on a standing and puts everything back; touches only topics with a replica on a failed node."""

    def __init__(self, standing: Standing, unclean: bool = False) -> None:
        self._standing, self._unclean = standing, unclean
        self._capacity = {node.id: node.capacity for node in standing.topology.nodes if node.online}
        self._topics_on: dict[int, list[Topic]] = {id: [] for id in standing.bits.ids}
        for topic in standing.topology.topics:
            for id in {id for partition in topic.partitions for id in partition.replicas}:
                self._topics_on[id].append(topic)

    def consequence(self, nodes: Iterable[int]) -> Consequence:
        standing, gone = self._standing, frozenset(nodes)
        capacity = {id: share for id, share in self._capacity.items() if id not in gone}
        live, loads = frozenset(capacity), standing.loads.copy()
        hit = {topic.name: topic for id in gone for topic in self._topics_on[id]}
        moved: list[tuple[str, int, int]] = []
        new: dict[Lint, list[str]] = {}
        cured: dict[Lint, list[str]] = {}
        for name in sorted(hit):
            before = standing.topics[name]
            topic = without(hit[name], gone, live, self._unclean)
            if gone.isdisjoint(before.spread.counts):  # it lost followers only
                after = TopicStanding(before.spread, lints_of(topic, before.spread))
            else:
                after = TopicStanding.of(topic, standing.bits)
                loads.count(before.spread, -1)
                loads.count(after.spread, 1)
                moved.append((name, before.spread.mask, after.spread.mask))
            if after.lints != before.lints:
                for lint in after.lints - before.lints:
                    new.setdefault(lint, []).append(name)
                for lint in before.lints - after.lints:
                    cured.setdefault(lint, []).append(name)
        with standing.overlaps.moved(moved):
            return Consequence(
                tuple(sorted(gone)),
                standing.overlaps.partial,
                standing.overlaps.count,
                standing.overlaps.shared_count,
                {lint: tuple(names) for lint, names in sorted(new.items())},
                {lint: tuple(names) for lint, names in sorted(cured.items())},
                Pressure.of(loads.default, capacity),
                Pressure.of(loads.node, capacity),
            )

    def shared_sqf(self, nodes: Iterable[int]) -> Pressure | None:
        """How one SQF shared by all producers would lay the traffic on the nodes that are left (B-24)."""
        standing, gone = self._standing, frozenset(nodes)
        capacity = {id: share for id, share in self._capacity.items() if id not in gone}
        live = frozenset(capacity)
        hit = {topic.name: topic for id in gone for topic in self._topics_on[id]}
        after = {n: Spread.of(without(topic, gone, live, self._unclean), standing.bits) for n, topic in hit.items()}
        spreads = (after.get(spread.topic, spread) for spread in standing.spreads)
        return Pressure.of(shared_sqf_load(spreads, live, SQF_SWEEPS).load, capacity)

    def recovery(self, nodes: Iterable[int]) -> Recovery:
        """After a failure of these and their return."""
        standing, gone = self._standing, frozenset(nodes)
        online = frozenset(self._capacity)
        back, home = standing.loads.copy(), standing.loads.copy()
        leaders = dict(standing.leaders)
        for name, topic in {topic.name: topic for id in gone for topic in self._topics_on[id]}.items():
            there = with_back(without(topic, gone, online - gone, self._unclean), gone, online)
            before, after = standing.topics[name].spread, Spread.of(there, standing.bits)
            for loads, spread in ((back, after), (home, Spread.of(at_home(there), standing.bits))):
                loads.count(before, -1)
                loads.count(spread, 1)
            for counts, sign in ((before.counts, -1), (after.counts, 1)):
                for id, count in counts.items():
                    leaders[id] += sign * count
        return Recovery(
            tuple(sorted(gone)),
            Pressure.of(back.default, self._capacity),
            Pressure.of(home.default, self._capacity),
            tuple(id for id in sorted(gone) if not leaders[id]),
        )

    def spare(self, node: int, degree: int = 1, failure: Consequence | None = None) -> Spare:
        """`failure`: of that node, if it is known already."""
        hit, failure = self._topics_on[node], failure or self.consequence((node,))
        traffic = sum(
            topic.rate / len(topic.partitions)
            for topic in hit
            for partition in topic.partitions
            if node in partition.replicas
        )
        return Spare(
            node=node,
            affected_topics=len(hit),
            capacity=self._capacity[node],
            replica_traffic=traffic,
            load_without=failure.default,
            load_with=Pressure.of(self._standing.loads.default, self._capacity),
            broken_without=len({*failure.new.get(Lint.OFFLINE, ()), *failure.new.get(Lint.UNWRITABLE, ())}),
            shared_spares=degree,
            separate_spares=degree * len(hit),
        )


def simulate(
    standing: Standing,
    most_failures: int = 1,
    most_scenarios: int = MOST_SCENARIOS,
    unclean: bool = False,
    seed: int = 0,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Simulation:
    """All sets of up to `most_failures` nodes that are up; where there are too many, a sample, and it says so."""
    failures = Failures(standing, unclean)
    online = sorted(standing.topology.online)
    covered: dict[int, tuple[int, int]] = {}
    found: list[Consequence] = []
    for size in range(1, min(most_failures, len(online)) + 1):
        begun = len(found)
        for nodes in _scenarios(online, size, most_scenarios - begun, seed):
            if out_of_time():
                break
            found.append(failures.consequence(nodes))
        covered[size] = (len(found) - begun, math.comb(len(online), size))
    found.sort(key=lambda c: (tuple(-b for b in c.badness), c.failed))
    for place, consequence in enumerate(found[:MOST_BALANCED]):
        if out_of_time():
            break
        found[place] = replace(consequence, shared_sqf=failures.shared_sqf(consequence.failed))
    return Simulation(tuple(found), covered)


def _scenarios(online: list[int], size: int, most: int, seed: int) -> Iterator[tuple[int, ...]]:
    draw, seen = random.Random(seed), set[tuple[int, ...]]()
    if math.comb(len(online), size) <= most:
        everything = list(combinations(online, size))
        draw.shuffle(everything)  # if time runs out, what was seen is a fair sample
        yield from everything
        return
    while len(seen) < most:
        nodes = tuple(sorted(draw.sample(online, size)))
        if nodes not in seen:
            seen.add(nodes)
            yield nodes


def spares_of(
    standing: Standing,
    seen: Simulation,
    degree: int = 1,
    unclean: bool = False,
    out_of_time: Callable[[], bool] = lambda: False,
) -> tuple[Spare, ...]:
    """Of every node that is up, until time runs out; single failures that were simulated are not tried again."""
    failures = Failures(standing, unclean)
    known = {c.failed[0]: c for c in seen.consequences if len(c.failed) == 1}
    found = []
    for node in sorted(standing.topology.online):
        if out_of_time():
            break
        found.append(failures.spare(node, degree, known.get(node)))
    return tuple(found)
