"""What a committer remembers of one table between its turns."""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from zlib import crc32

from pyiceberg.catalog import Catalog

from headgate.lake.commit import CommitResult, TableCommitter
from headgate.lake.words import HEARTBEAT_S
from headgate.model import Announcement, TopicPartition
from headgate.model.messages import Verdict

SLOW_S = 30.0
"""A commit that takes longer than this, or waits for so long to begin, is told as a problem of its table."""
_LONGEST_REST_S = 10.0
"""Between two tries at a table that fails."""
_HELD_REST_S = 1.0
"""Before topics that did not answer are asked again."""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A commit that has begun, or the first look at a table."""

    result: Future[CommitResult]
    announcements: tuple[Announcement, ...]
    settled_to: int
    """Announcements before this offset are settled once it is done."""
    began_s: float
    is_look: bool


@dataclass
class TableState:
    committer: TableCommitter
    catalog: Catalog
    pending: list[Announcement] = field(default_factory=list)
    under_way: UnderWay | None = None
    begun_s: float = -math.inf
    """When the turn began in which announcements were last begun to be committed."""
    took_s: float = 0.0
    """That commit, once it has ended."""
    commits: int = 0
    placed: bool = False
    """Whether it is settled where the partitions begin that were there at the first look."""
    partitions: dict[TopicPartition, int] = field(default_factory=dict)
    """Where partitions begin that the ledger did not know when they were found."""
    last: CommitResult | None = None
    published_at: float = -math.inf
    settled_to: int = 0
    """Announcements before this offset are settled, as last told."""
    unsaid: list[Verdict] = field(default_factory=list)
    """Not yet known to be on the brokers."""
    problems: tuple[str, ...] = ()
    """As last told."""
    failures: int = 0
    """Commits that failed in a row."""
    rests_until: float = 0.0
    held: dict[str, str] = field(default_factory=dict)
    """Topics whose announcements wait, and why."""
    held_since: float = math.inf
    held_until: float = 0.0
    """If nothing but such announcements is pending: when to ask again."""

    @property
    def name(self) -> str:
        return self.committer.name

    @property
    def waiting(self) -> int:
        return len(self.pending) + (len(self.under_way.announcements) if self.under_way is not None else 0)

    @property
    def is_stuck(self) -> bool:
        """Fails, or does not get on: what comes for it may pile up."""
        return bool(self.failures) or self.commit_age_s > SLOW_S or self.is_held_long

    @property
    def is_held_long(self) -> bool:
        return time.monotonic() - self.held_since > SLOW_S

    @property
    def commit_age_s(self) -> float:
        return 0.0 if self.under_way is None else time.monotonic() - self.under_way.began_s

    @property
    def is_done(self) -> bool:
        return self.under_way is not None and self.under_way.result.done()

    # When something may begin

    def may_look(self, now_s: float) -> bool:
        return self.last is None and self.under_way is None and now_s >= self.rests_until

    def may_begin(self, now_s: float) -> bool:
        """Not before its partitions are placed: what is told of a table replaces what an earlier committer told."""
        if self.last is None or self.under_way is not None or now_s < self.rests_until:
            return False
        return self.placed or bool(self.last.ledger.next)

    def due_s(self, every_s: float) -> float:
        """From when on announcements may be committed, `every_s` after the last ones at the earliest, or after its rest
        where those failed; never while there are none, or something is under way."""
        if not self.pending or not self.may_begin(math.inf):
            return math.inf
        next_s = -math.inf if self.failures else self.begun_s + every_s
        return max(next_s, self.held_until, self.rests_until)

    def is_heartbeat_due(self, now_s: float) -> bool:
        """Not while what failed waits to be tried again: that an empty commit went well would hide it."""
        fails = self.failures and self.pending
        return not fails and self.may_begin(now_s) and now_s - self.published_at > HEARTBEAT_S

    # From pending to settled

    def hold_back(self, silent: Mapping[str, str]) -> tuple[Announcement, ...]:
        """What may be committed while nothing is known of these topics. Whatever comes after something that is held
        back has to wait, too: it would not follow the ledger."""
        ready: list[Announcement] = []
        behind: set[TopicPartition] = set()
        for announcement in self.pending:
            partitions = {read.partition for read in announcement.ranges}
            if behind & partitions or any(p.topic in silent for p in partitions):
                behind |= partitions
            else:
                ready.append(announcement)
        named = {p.topic for p in behind} & silent.keys()
        self.held = {topic: silent[topic] for topic in sorted(named)}
        self.held_since = min(self.held_since, time.monotonic()) if self.held else math.inf
        self.held_until = time.monotonic() + _HELD_REST_S if self.held and not ready else 0.0
        return tuple(ready)

    def begins(self, result: Future[CommitResult], some: Sequence[Announcement], all_before: int, now_s: float) -> None:
        """`all_before` is settled once it is done, if nothing else is pending. Tables that begin in one turn have the
        same `now_s`, that of its beginning, or they would get out of step."""
        chosen = {id(announcement) for announcement in some}
        self.pending = [announcement for announcement in self.pending if id(announcement) not in chosen]
        settled_to = self.settled_to if self.pending else all_before
        self.under_way = UnderWay(result, tuple(some), settled_to, time.monotonic(), is_look=False)
        if some:
            self.begun_s = now_s

    def looks(self, result: Future[CommitResult]) -> None:
        self.under_way = UnderWay(result, (), self.settled_to, time.monotonic(), is_look=True)

    def ends(self) -> UnderWay:
        assert self.under_way is not None
        done, self.under_way = self.under_way, None
        if done.announcements:
            self.took_s = time.monotonic() - done.began_s
        return done

    def failed(self, commit: UnderWay) -> None:
        self.pending[:0] = commit.announcements
        self.failures += 1
        self.rests_until = time.monotonic() + min(_LONGEST_REST_S, 2.0 ** min(self.failures - 1, 10))

    def go_back(self, offset: int) -> None:
        """Announcements from here on are others than those that were settled."""
        self.settled_to = min(self.settled_to, offset)
        if self.under_way is not None:
            self.under_way = replace(self.under_way, settled_to=min(self.under_way.settled_to, offset))

    def is_time_to_expire(self, every: int) -> bool:
        """After the first commit of a life, too: lives may be short. Tables that commit in step take turns."""
        return self.commits == 1 or (self.commits + crc32(self.name.encode())) % every == 0

    @property
    def held_problems(self) -> Collection[str]:
        """For people: topics that have kept announcements waiting for long."""
        if not self.is_held_long:
            return ()
        return [
            f"announcements of {topic} wait: the brokers do not describe it: {why}" for topic, why in self.held.items()
        ]
