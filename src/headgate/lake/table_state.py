"""What a committer remembers of one table between its turns."""

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from zlib import crc32

from pyiceberg.catalog import Catalog

from headgate.lake.commit import CommitResult, TableCommitter
from headgate.lake.words import HEARTBEAT_S
from headgate.model import Announcement, TopicPartition
from headgate.model.messages import Verdict

SLOW_S = 30.0
"""A commit that takes longer than this is told as a problem of its table."""
_LONGEST_REST_S = 10.0
"""Between two tries at a table that fails."""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A commit that has begun."""

    result: Future[CommitResult]
    announcements: tuple[Announcement, ...]
    settled_to: int
    """Announcements before this offset are settled once it is done."""
    began_s: float


@dataclass
class TableState:
    committer: TableCommitter
    catalog: Catalog
    pending: list[Announcement] = field(default_factory=list)
    under_way: UnderWay | None = None
    first_look: Future[CommitResult] | None = None
    """While the ledger is read for the first time."""
    commits: int = 0
    placed: bool = False
    """Whether it is settled where the partitions begin that were there at the first look."""
    partitions: dict[TopicPartition, int] = field(default_factory=dict)
    """Where partitions begin that the ledger did not know when they were found."""
    last: CommitResult | None = None
    published_at: float = 0.0
    settled_to: int = 0
    """Announcements before this offset are settled, as last told."""
    unsaid: list[Verdict] = field(default_factory=list)
    """Not yet known to be on the brokers."""
    problems: tuple[str, ...] = ()
    """As last told."""
    failures: int = 0
    """Commits that failed in a row."""
    rests_until: float = 0.0

    @property
    def name(self) -> str:
        return self.committer.name

    @property
    def waiting(self) -> int:
        return len(self.pending) + (len(self.under_way.announcements) if self.under_way is not None else 0)

    @property
    def is_stuck(self) -> bool:
        """Fails, or has a commit that does not end: what comes for it may pile up."""
        return bool(self.failures) or self.commit_age_s > SLOW_S

    @property
    def commit_age_s(self) -> float:
        return 0.0 if self.under_way is None else time.monotonic() - self.under_way.began_s

    def is_due(self, now_s: float) -> bool:
        if self.under_way is not None or self.first_look is not None or now_s < self.rests_until:
            return False
        return bool(self.pending) or now_s - self.published_at > HEARTBEAT_S

    def names_any(self, topics: frozenset[str]) -> bool:
        return bool(topics) and any(read.partition.topic in topics for a in self.pending for read in a.ranges)

    def begins(self, result: Future[CommitResult], settled_to: int) -> None:
        self.under_way = UnderWay(result, tuple(self.pending), settled_to, time.monotonic())
        self.pending = []

    def ends(self) -> UnderWay:
        assert self.under_way is not None
        done, self.under_way = self.under_way, None
        return done

    def failed(self, commit: UnderWay) -> None:
        self.pending[:0] = commit.announcements
        self.failures += 1
        self.rests_until = time.monotonic() + min(_LONGEST_REST_S, 2.0 ** min(self.failures - 1, 10))

    def is_time_to_expire(self, every: int) -> bool:
        """After the first commit of a life, too: lives may be short. Tables that commit in step take turns."""
        return self.commits == 1 or (self.commits + crc32(self.name.encode())) % every == 0
