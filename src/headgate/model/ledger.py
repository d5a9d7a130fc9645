"""The ledger: per partition, the next offset a table does not hold yet. It only moves forward, without gaps.

Everything that makes ingestion exactly-once is decided by the pure `Ledger.check` and `Ledger.advance` here; the
committer stores the result in the same Iceberg snapshot as the data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headgate.model.announcement import Announcement
from headgate.model.partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Totals:
    """Where every offset of [origin, next) over all partitions went; `verify` adds them up."""

    rows: int = 0
    rejected: int = 0
    filtered: int = 0
    skipped: int = 0

    def plus(self, announcement: Announcement) -> "Totals":
        stats = announcement.stats
        return Totals(
            self.rows + stats.rows,
            self.rejected + stats.rejected,
            self.filtered + stats.filtered,
            self.skipped + announcement.skipped,
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an announcement cannot be accepted; its files are orphans."""

    partition: TopicPartition
    start: int
    ledger_next: int | None

    @property
    def reason(self) -> str:
        if self.ledger_next is None:
            return f"{self.partition} is not part of this table's ledger"
        if self.start == self.ledger_next:
            return f"{self.partition} is named twice"
        if self.start < self.ledger_next:
            return f"{self.partition} starts at {self.start}, the lake holds everything before {self.ledger_next}"
        return f"{self.partition} starts at {self.start}, the lake still misses {self.ledger_next} to {self.start - 1}"


@dataclass(frozen=True, slots=True)
class Ledger:
    """One table's ledger. `sequence` counts the snapshots that carried one."""

    next: Mapping[TopicPartition, int] = field(default_factory=dict)
    origin: Mapping[TopicPartition, int] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    sequence: int = 0
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Kafka's own id of each topic: one that is deleted and made anew keeps its name and gets another id."""

    def check(self, announcement: Announcement) -> Refusal | None:
        """None if every range starts exactly where the ledger ends; otherwise the first one that does not."""
        seen: set[TopicPartition] = set()
        for read in announcement.ranges:
            expected = self.next.get(read.partition)
            if read.start != expected or read.partition in seen:
                return Refusal(read.partition, read.start, expected)
            seen.add(read.partition)
        return None

    def advance(self, announcement: Announcement) -> "Ledger":
        """The ledger once this announcement is committed; only for one that `check` accepts."""
        refusal = self.check(announcement)
        if refusal is not None:
            raise ValueError(refusal.reason)
        moved = {read.partition: read.end for read in announcement.ranges}
        return replace(self, next={**self.next, **moved}, totals=self.totals.plus(announcement))

    def with_partitions(self, origins: Mapping[TopicPartition, int]) -> "Ledger":
        """Adds partitions the ledger does not know yet; known ones never change."""
        new = {p: offset for p, offset in origins.items() if p not in self.next}
        if not new:
            return self
        return replace(self, next={**self.next, **new}, origin={**self.origin, **new})

    def with_topic_ids(self, ids: Mapping[str, str]) -> "Ledger":
        """Adds ids of topics it holds and has none for; known ones never change."""
        topics = {p.topic for p in self.next}
        new = {topic: ids[topic] for topic in topics & ids.keys() - self.topic_ids.keys()}
        return replace(self, topic_ids={**self.topic_ids, **new}) if new else self

    def made_anew(self, ids: Mapping[str, str]) -> frozenset[str]:
        """Topics that are not the ones this ledger counted: their offsets began again and say nothing."""
        return frozenset(topic for topic, known in self.topic_ids.items() if ids.get(topic, known) != known)

    @property
    def offsets(self) -> int:
        """How many offsets the ledger has moved past since its origins."""
        return sum(self.next[p] - self.origin[p] for p in self.next)

    def reached(self) -> dict[str, int]:
        """Per topic, the next offsets added up over its partitions."""
        sums: dict[str, int] = {}
        for partition, following in self.next.items():
            sums[partition.topic] = sums.get(partition.topic, 0) + following
        return sums
