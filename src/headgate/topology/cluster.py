"""A Kafka cluster at one instant, as values (B-1): nodes, topics, partitions, and the groups that consume them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from headgate.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Node:
    id: int
    online: bool = True
    capacity: float = 1.0
    """Share of the work it can carry, relative to the other nodes."""
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    index: int
    leader: int | None
    """None while nobody leads it."""
    replicas: tuple[int, ...]
    """In order of preference: the first one should lead."""
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: tuple[Partition, ...]
    rate: float = 1.0
    """Traffic, in any unit that all topics of a cluster share; bytes per second where it was measured."""
    min_insync_replicas: int = 1
    record_size_variation: float | None = None
    """Standard deviation of record sizes over their mean; None where nobody measured."""
    producer_rates: tuple[float, ...] = ()
    """Traffic of each producer of the topic, where known."""

    def led_by(self) -> dict[int, int]:
        """c(t, n) of B-4: how many partitions each node leads; its keys are N(t)."""
        counts: dict[int, int] = {}
        for partition in self.partitions:
            if partition.leader is not None:
                counts[partition.leader] = counts.get(partition.leader, 0) + 1
        return counts


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    name: str
    members: int
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that Kafka is moving. Until that is done its replicas are those of both places."""

    at: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.at}: from node {', '.join(map(str, self.before))} to {', '.join(map(str, self.after))}"


@dataclass(frozen=True, slots=True)
class Topology:
    """Nodes ordered by id and topics by name. A change makes a new one with the next epoch; nobody sees half of it."""

    nodes: tuple[Node, ...]
    topics: tuple[Topic, ...]
    consumer_groups: tuple[ConsumerGroup, ...] = ()
    epoch: int = 0
    rates_known: bool = field(default=False, compare=False)
    """Whether somebody gave or measured the topics' rates; otherwise all count alike."""
    unmeasured: frozenset[str] = frozenset()
    """Topics whose rate nobody measured where those of others were: they count as idle, which they may not be."""
    moves: tuple[Move, ...] | None = ()
    """Reassignments under way; None if nobody could be asked."""

    @classmethod
    def of(
        cls, nodes: Iterable[Node], topics: Iterable[Topic], consumer_groups: Iterable[ConsumerGroup] = ()
    ) -> "Topology":
        return cls(
            tuple(sorted(nodes, key=lambda node: node.id)),
            tuple(sorted(topics, key=lambda topic: topic.name)),
            tuple(sorted(consumer_groups, key=lambda group: group.name)),
        )

    @property
    def online(self) -> frozenset[int]:
        return frozenset(node.id for node in self.nodes if node.online)

    @property
    def racks(self) -> dict[int, str]:
        """Of the live nodes whose rack is known: a replica on a node that is away keeps nothing safe."""
        return {node.id: node.rack for node in self.nodes if node.online and node.rack}

    @property
    def partitions(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics)

    def changed(self, topics: Iterable[Topic] = (), nodes: Iterable[Node] = ()) -> "Topology":
        """The next epoch, with these topics and nodes in place of those of the same name or id."""
        new_topics = {topic.name: topic for topic in topics}
        new_nodes = {node.id: node for node in nodes}
        return replace(
            self,
            nodes=tuple(new_nodes.get(node.id, node) for node in self.nodes),
            topics=tuple(new_topics.get(topic.name, topic) for topic in self.topics),
            epoch=self.epoch + 1,
        )
