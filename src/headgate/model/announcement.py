"""What a consumer says after a cycle: these files hold exactly these ranges for this table."""

from collections.abc import Iterable
from dataclasses import dataclass

from headgate.model.partition import Range, TopicPartition

RETENTION, GAP = "retention", "gap"
"""Why Kafka skipped offsets: it deleted them before they were read; or there is no record to read, and nothing is lost
(compaction, transaction markers, aborted records)."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Offsets Kafka itself does not hold any more or never showed: not loss, but never silent either."""

    partition: TopicPartition
    start: int
    end: int
    offsets: int
    """How many of [start, end) are skipped; fewer than end - start where compaction left records between."""
    reason: str
    """RETENTION or GAP."""

    @property
    def is_whole(self) -> bool:
        return self.offsets == self.end - self.start


def condensed(skips: Iterable[Skip], most: int) -> list[Skip]:
    """The same skips with neighbours joined; where one partition has more than `most`, one that counts them all."""
    joined: dict[tuple[TopicPartition, str], list[Skip]] = {}
    for skip in sorted(skips, key=lambda s: (s.partition, s.reason, s.start)):
        found = joined.setdefault((skip.partition, skip.reason), [])
        if found and found[-1].end == skip.start and found[-1].is_whole and skip.is_whole:
            before = found.pop()
            skip = Skip(skip.partition, before.start, skip.end, before.offsets + skip.offsets, skip.reason)
        found.append(skip)
    return [skip for found in joined.values() for skip in (found if len(found) <= most else [_counted(found)])]


def _counted(skips: list[Skip]) -> Skip:
    first, end = skips[0], max(s.end for s in skips)
    return Skip(first.partition, first.start, end, sum(s.offsets for s in skips), first.reason)


@dataclass(frozen=True, slots=True)
class CycleStats:
    """L-24: what one cycle did for one table."""

    records: int = 0
    """Records read from Kafka."""
    rows: int = 0
    """Rows written to the table's files."""
    rejected: int = 0
    filtered: int = 0
    """Records that the table's `where` or its transform dropped on purpose."""
    payload_bytes: int = 0
    """Key and value bytes of the records read: the byte unit of rates, budgets and capacities (L-4)."""
    gather_s: float = 0.0
    process_s: float = 0.0
    announce_s: float = 0.0
    timestamps_ms: tuple[int, ...] = ()
    """Evenly spaced quantiles (0 … 1) of the records' Kafka timestamps, from which latency is computed at commit."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """ "These files hold exactly these ranges of these partitions for this table"; accepted whole or not at all."""

    id: str
    table: str
    consumer_id: int
    incarnation: str
    """Tells two lives of one consumer id apart."""
    cycle: int
    ranges: tuple[Range, ...]
    files: tuple[str, ...]
    rejected_files: tuple[str, ...]
    skips: tuple[Skip, ...]
    schema: str
    """Schema of the files as Spark's JSON; the committer creates or widens the table with it."""
    began_at_ms: int
    """Before the first of the files was there: none of them is older."""
    announced_at_ms: int
    stats: CycleStats

    @property
    def skipped(self) -> int:
        return sum(skip.offsets for skip in self.skips)
