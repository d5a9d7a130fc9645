"""Node sets as bit masks (B-4): Python integers, one bit per node, so that a set of a thousand nodes is one value."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headgate.topology.cluster import Topic, Topology


class NodeBits:
    """Which bit stands for which node: the position of its id among all ids of the cluster."""

    def __init__(self, ids: Iterable[int]) -> None:
        self.ids = tuple(sorted(ids))
        self._position = {id: position for position, id in enumerate(self.ids)}

    @classmethod
    def of(cls, topology: Topology) -> "NodeBits":
        return cls(node.id for node in topology.nodes)

    def mask(self, ids: Iterable[int]) -> int:
        mask = 0
        for id in ids:
            mask |= 1 << self._position[id]
        return mask

    def nodes(self, mask: int) -> frozenset[int]:
        return frozenset(self.ids[position] for position in positions(mask))


def positions(mask: int) -> Iterator[int]:
    """The bits that are set, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


@dataclass(frozen=True, slots=True)
class Spread:
    """How one topic's leaders lie on the nodes: all that overlap and load depend on."""

    topic: str
    rate: float
    mask: int
    """N(t)."""
    counts: dict[int, int]
    """c(t, n) by node id; only nodes that lead something."""

    @classmethod
    def of(cls, topic: Topic, bits: NodeBits) -> "Spread":
        counts = topic.led_by()
        return cls(topic.name, topic.rate, bits.mask(counts), counts)

    @property
    def led(self) -> int:
        """Partitions with a leader. Producers leave the others out, so these share the topic's rate (B-28)."""
        return sum(self.counts.values())

    @property
    def skew(self) -> float:
        """B-15: the busiest node's partitions over an even share; 1 is even, also for a topic that nobody leads."""
        return max(self.counts.values()) * len(self.counts) / self.led if self.counts else 1.0

    @property
    def uneven(self) -> bool:
        return bool(self.counts) and max(self.counts.values()) > min(self.counts.values())


def spreads_of(topology: Topology, bits: NodeBits) -> dict[str, Spread]:
    return {topic.name: Spread.of(topic, bits) for topic in topology.topics}
