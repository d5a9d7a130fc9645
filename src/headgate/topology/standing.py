"""Everything that follows from who leads what, kept up to date topic by topic (B-21)."""

from dataclasses import dataclass

from headgate.topology.cluster import Topic, Topology
from headgate.topology.exact_load import ExactLoad, exact
from headgate.topology.lints import Lint, lints_of
from headgate.topology.masks import NodeBits, Spread
from headgate.topology.overlaps import Overlaps


@dataclass(frozen=True, slots=True)
class TopicStanding:
    spread: Spread
    lints: frozenset[Lint]

    @classmethod
    def of(cls, topic: Topic, bits: NodeBits) -> "TopicStanding":
        spread = Spread.of(topic, bits)
        return cls(spread, lints_of(topic, spread))


@dataclass(frozen=True, slots=True)
class Loads:
    """Traffic per node, by partitioner."""

    default: ExactLoad
    node: ExactLoad

    def count(self, spread: Spread, sign: int) -> None:
        """Add or take away what one topic brings."""
        if not spread.counts:
            return
        per_partition = sign * exact(spread.rate / spread.led)
        per_node = sign * exact(spread.rate / len(spread.counts))
        for node, count in spread.counts.items():
            self.default.add(node, per_partition * count)
            self.node.add(node, per_node)

    def copy(self) -> "Loads":
        return Loads(self.default.copy(), self.node.copy())


class Standing:
    """Groups, overlaps, lints and loads of a cluster; a changed topic costs what that topic is worth."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.bits = NodeBits.of(topology)
        self.overlaps = Overlaps(self.bits)
        self.topics: dict[str, TopicStanding] = {}
        self.lints: dict[Lint, set[str]] = {lint: set() for lint in Lint}
        self.leaders = dict.fromkeys(self.bits.ids, 0)
        self.topics_led = dict.fromkeys(self.bits.ids, 0)
        self.loads = Loads(ExactLoad(self.bits.ids), ExactLoad(self.bits.ids))
        for topic in topology.topics:
            self.swap(topic.name, TopicStanding.of(topic, self.bits))

    def update(self, topology: Topology) -> list[str]:
        """Follow the cluster to its next epoch; the topics that changed. The nodes must be the same ones."""
        if tuple(node.id for node in topology.nodes) != self.bits.ids:
            raise ValueError("nodes came or went: their bits must be dealt anew")
        old = {topic.name: topic for topic in self.topology.topics}
        new = {topic.name: topic for topic in topology.topics}
        changed = sorted(
            name
            for name in old.keys() | new.keys()
            if old.get(name) is not new.get(name) and old.get(name) != new.get(name)
        )
        for name in changed:
            self.change(name, new.get(name))
        self.topology = topology
        return changed

    def change(self, name: str, topic: Topic | None) -> None:
        """One topic is as given now, or gone; for those who know what changed. `topology` stays as it was."""
        self.swap(name, None if topic is None else TopicStanding.of(topic, self.bits))

    def swap(self, name: str, new: TopicStanding | None) -> TopicStanding | None:
        """The topic stands like this now; how it stood before."""
        old = self.topics.pop(name, None)
        if old is not None:
            self._count(old, -1)
            for lint in old.lints:
                self.lints[lint].remove(name)
        if new is not None:
            self.topics[name] = new
            self._count(new, 1)
            for lint in new.lints:
                self.lints[lint].add(name)
        if old is None or new is None or old.spread.mask != new.spread.mask:
            if old is not None:
                self.overlaps.remove(name, old.spread.mask)
            if new is not None:
                self.overlaps.add(name, new.spread.mask)
        return old

    def _count(self, topic: TopicStanding, sign: int) -> None:
        spread = topic.spread
        for node, count in spread.counts.items():
            self.leaders[node] += sign * count
            self.topics_led[node] += sign
        self.loads.count(spread, sign)

    @property
    def spreads(self) -> list[Spread]:
        """In the order of the topics' names, whatever changed in between."""
        return [self.topics[topic.name].spread for topic in self.topology.topics]
