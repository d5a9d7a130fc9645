"""The committer: reads announcements, commits each table once per interval, tells everyone where the ledger is.

It keeps no state of its own. What it has settled is in the tables' snapshots; where to go on reading is in the
ledger topic; and reading too much again is harmless, because the ledger recognises what it already holds.
"""

import logging
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace

from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import Catalog

from headgate.config.pipeline import Pipeline
from headgate.config.table import REJECTED_SUFFIX
from headgate.errors import HeadgateError, KafkaUnavailable, LakeError, Outdated
from headgate.failpoints import reach
from headgate.kafka.channel import Outbox, Tail
from headgate.kafka.internal_topics import Topics
from headgate.kafka.offsets import GroupMirror, beginning_offsets, end_offsets, partitions_where, topic_ids
from headgate.lake.commit import CommitResult, TableCommitter
from headgate.lake.commit_report import report, show_problems, show_settled, show_start, show_waiting
from headgate.lake.maintenance import expire_snapshots, snapshots_to_keep
from headgate.lake.tables import open_catalog
from headgate.lake.turns import Turns
from headgate.lake.words import HEARTBEAT_S, last_words
from headgate.model import Announcement, TopicPartition
from headgate.model.messages import Landed, LedgerState, Verdict

log = logging.getLogger(__name__)

_IDLE_S = 1.0
"""Longest wait for announcements: heartbeats and new partitions have their turn as well."""
_POLL_S = 0.1
_EXPIRE_EVERY = 25
_MOST_PENDING = 5_000
_MOST_AT_ONCE = 8
"""Tables that are committed to side by side: commits mostly wait, for a catalog or an object store."""
_LONGEST_REST_S = 10.0
"""Between two tries at a table that fails."""


@dataclass
class _TableState:
    committer: TableCommitter
    pending: list[Announcement] = field(default_factory=list)
    commits: int = 0
    placed: bool = False
    """Whether it is settled where the partitions begin that were there at the first look."""
    partitions: dict[TopicPartition, int] = field(default_factory=dict)
    """Where partitions begin that the ledger did not know when they were found."""
    last: CommitResult | None = None
    published_at: float = 0.0
    settled_to: int = 0
    """Announcements before this offset are settled, as last told."""
    problems: tuple[str, ...] = ()
    """As last told."""
    failures: int = 0
    """Commits that failed in a row."""
    rests_until: float = 0.0

    def is_due(self, now_s: float) -> bool:
        return now_s >= self.rests_until and (bool(self.pending) or now_s - self.published_at > HEARTBEAT_S)

    def failed(self) -> None:
        self.failures += 1
        self.rests_until = time.monotonic() + min(_LONGEST_REST_S, 2.0 ** min(self.failures - 1, 10))


class Committer:
    def __init__(
        self,
        pipeline: Pipeline,
        settings: Mapping[str, str],
        catalog: Catalog | None = None,
        name: str | None = None,
        turns: Turns | None = None,
    ) -> None:
        """`turns` are shared with upkeep in the same process."""
        self._turns = turns or Turns()
        self.name = name or f"committer-{uuid.uuid4().hex[:8]}"
        self._pipeline = pipeline
        self._topics = Topics(pipeline.name)
        self._settings: dict[str, str | int | float | bool] = dict(settings)
        self._admin = AdminClient(self._settings)
        self._outbox = Outbox(self._settings, "the committer")
        self._catalog = catalog
        self._tables: dict[str, _TableState] = {}
        self._tail: Tail | None = None
        self._earlier: dict[str, LedgerState] | None = None
        self._discovered_at = 0.0
        self._topic_ids: dict[str, str] = {}
        self._group = GroupMirror(self._settings, pipeline.group)
        self._mirrored: dict[TopicPartition, int] = {}

    def run(self, stop: threading.Event) -> None:
        """Until `stop`; then commits what is announced by then. Kafka or catalog failing is waited out."""
        for table in self._pipeline.tables:
            show_start(table.name)
        delay_s = 0.0
        while not stop.wait(delay_s):
            try:
                self._await_announcements(stop)
                began = time.monotonic()
                self.turn()
                delay_s = max(0.0, self._pipeline.lake.commit_interval_s - (time.monotonic() - began))
            except Outdated:
                raise
            except HeadgateError as error:
                log.warning("committer: %s", error)
                delay_s = min(10.0, max(1.0, 2 * delay_s))
            except Exception:
                log.exception("committer: unexpected failure, trying again")
                delay_s = min(10.0, max(1.0, 2 * delay_s))
        self._last_turns()

    def _await_announcements(self, stop: threading.Event) -> None:
        """What comes after a quiet interval need not wait for the end of the next."""
        until = time.monotonic() + _IDLE_S
        while self._tail is not None and not stop.is_set() and time.monotonic() < until:
            if any(state.pending for state in self._tables.values()):
                return
            for received in self._tail.poll(_POLL_S):
                self._take(received.message)

    def _last_turns(self) -> None:
        """Everything announced before the stop is committed, so that a clean stop leaves no work to repeat."""
        for state in self._tables.values():
            state.rests_until = 0.0  # there is no later
        try:
            for _ in range(3):
                self.turn()
                if not any(state.pending for state in self._tables.values()):
                    break
            else:
                log.warning("committer stopped with announcements left for its successor")
        except HeadgateError as error:
            log.warning("committer stopped with announcements left for its successor: %s", error)
        finally:
            self._group.close()
            if self._tail is not None:
                self._tail.close()

    def turn(self) -> None:
        """One commit interval: take in announcements, commit every table that has some, publish, mirror. A table that
        fails rests for a while."""
        self._open()
        self._discover()
        tail = self._follow()
        if sum(len(s.pending) for s in self._tables.values() if not s.failures) < _MOST_PENDING:
            while batch := tail.poll(0.0):
                for received in batch:
                    self._take(received.message)
        # Asked after the announcements came in: what was read of a topic made anew before is then known to be.
        named = {read.partition.topic for s in self._tables.values() for a in s.pending for read in a.ranges}
        self._topic_ids.update(topic_ids(self._admin, named, deadline_s=5))
        settled_to = tail.next[self._topics.announcements, 0]
        due = [state for state in self._tables.values() if state.is_due(time.monotonic())]
        for state in due:
            if state.pending:
                show_waiting(state.committer.name)
        with ThreadPoolExecutor(_MOST_AT_ONCE, "commit") as pool:
            commits = {pool.submit(self._attempt, state, state.pending): state for state in due}
            for done in as_completed(commits):
                state = commits[done]
                if self._settle(state, done, settled_to):
                    pool.submit(self._expire, state.committer.name)
        self._mirror()

    def _open(self) -> None:
        """Not in the constructor: a catalog that is down when the committer starts is waited for, as later on."""
        if self._tables:
            return
        lake = self._pipeline.lake
        try:
            catalog = self._catalog = self._catalog or open_catalog(lake)
        except LakeError:
            for table in self._pipeline.tables:
                show_problems(table.name, 1)
            raise
        self._tables = {t.name: _TableState(TableCommitter(catalog, lake, t)) for t in self._pipeline.tables}

    def _take(self, announcement: object) -> None:
        if not isinstance(announcement, Announcement):
            log.warning("ignored a %s on the announcements topic", type(announcement).__name__)
        elif announcement.table not in self._tables:
            log.warning("ignored an announcement for table %s, which this pipeline lacks", announcement.table)
        else:
            state = self._tables[announcement.table]
            # Of a table that fails only so many are kept: what is dropped is announced again, the ledger knows.
            if not (state.failures and len(state.pending) >= _MOST_PENDING):
                state.pending.append(announcement)

    def _follow(self) -> Tail:
        """The announcements, from where the tables' ledgers are settled. A new table has none before the others'."""
        if self._tail is None:
            start = min((state.announcements_next for state in self._published().values()), default=0)
            tail = Tail(self._settings, {(self._topics.announcements, 0): start})
            try:
                backlog = tail.read_to_end(deadline_s=120)
            except HeadgateError:
                tail.close()
                raise
            for received in backlog:
                self._take(received.message)
            for state in self._tables.values():
                state.settled_to = start
            self._tail = tail
        return self._tail

    def _published(self) -> dict[str, LedgerState]:
        """What committers before this one said last, per table."""
        if self._earlier is None:
            self._earlier = last_words(self._pipeline, self._settings)
        return self._earlier

    def _discover(self) -> None:
        """New topics and partitions: they begin at the beginning, unless the whole table is new (start_from)."""
        if time.monotonic() - self._discovered_at < self._pipeline.controller.discover_s and self._discovered_at:
            return
        everything = partitions_where(self._admin, self._pipeline.matches)
        self._topic_ids.update(topic_ids(self._admin, {p.topic for p in everything}))
        for table in self._pipeline.tables:
            try:
                self._place(self._tables[table.name], {p for p in everything if table.matches(p.topic)})
            except (LakeError, KafkaUnavailable) as error:  # one table's trouble does not stop the others
                log.warning("%s: new partitions wait: %s", table.name, error)
        self._discovered_at = time.monotonic()

    def _place(self, state: _TableState, partitions: set[TopicPartition]) -> None:
        """Where partitions begin that the ledger does not know."""
        if state.last is None:
            state.last = self._attempt(state, [])
        new_table = not state.placed and not state.last.ledger.next
        if new_table and (said := self._published().get(state.committer.name)):
            # An earlier committer placed them and consumers may have read from there: its word stands.
            state.partitions.update(said.following)
        new = partitions - state.last.ledger.next.keys() - state.partitions.keys()
        if new:
            if new_table and not state.partitions and self._pipeline.start_from == "latest":
                origins = end_offsets(self._admin, new, self._pipeline.kafka.isolation == "read_committed")
                if missing := new - origins.keys():
                    raise KafkaUnavailable(f"no end offset of {len(missing)} partitions yet")
            else:  # it came up while we were looking, so all of it is new
                origins = beginning_offsets(self._admin, new)
            state.partitions.update(origins)
            state.published_at = 0.0
        state.placed = True

    def _settle(self, state: _TableState, commit: Future[CommitResult], settled_to: int) -> bool:
        """Tells how a commit went; whether it is time to expire snapshots."""
        try:
            result = commit.result()
        except LakeError as error:  # one table's trouble does not stop the others
            log.warning("committer: %s", error)
            state.failed()
            self._complain(state, str(error))
            return False
        state.pending.clear()
        state.failures = 0
        state.last = result
        self._publish(state, result, settled_to)
        show_settled(state.committer.name)
        if not result.committed:
            return False
        state.commits += 1
        often = max(1, min(_EXPIRE_EVERY, snapshots_to_keep(self._pipeline.lake, result.ledger) // 2))
        return (state.commits - 1) % often == 0  # after the first one of a life, too: lives may be short

    def _expire(self, name: str) -> None:
        """Upkeep must never cost a commit."""
        assert self._catalog is not None
        for table in (name, name + REJECTED_SUFFIX):
            try:
                expire_snapshots(self._catalog, table, self._pipeline.lake)
            except Exception:  # catalogs fail in ways of their own
                log.exception("expiry of %s failed; it is tried again later", table)

    def _attempt(self, state: _TableState, pending: list[Announcement]) -> CommitResult:
        """Catalogs and file systems fail in ways of their own; here they become one."""
        said = self._published().get(state.committer.name)
        existed = state.last.exists if state.last is not None else said is not None and said.exists
        try:
            with self._turns.of(state.committer.name):
                return state.committer.commit(pending, state.partitions, self._topic_ids, existed)
        except HeadgateError:
            raise
        except Exception as error:
            log.debug("commit to %s", state.committer.name, exc_info=True)
            raise LakeError(f"cannot commit to {state.committer.name}: {error!r}; trying again") from error

    def _publish(self, state: _TableState, result: CommitResult, settled_to: int) -> None:
        table, now_ms = state.committer.name, int(time.time() * 1000)
        verdicts = [Verdict(a.id, a.consumer_id, a.incarnation, True, "") for a in (*result.committed, *result.already)]
        for refused in result.refused:
            a = refused.announcement
            log.warning("refused %s of consumer %d for %s: %s", a.id, a.consumer_id, table, refused.reason)
            verdicts.append(Verdict(a.id, a.consumer_id, a.incarnation, False, refused.reason))
        state.settled_to = settled_to
        self._tell(state, result, tuple(verdicts), tuple(map(_made_anew, sorted(result.made_anew))))
        if result.committed or result.refused:
            self._outbox.send(self._topics.commits, report(self.name, table, result, now_ms, self._pipeline.slo))
        self._outbox.flush()
        reach("commit.published")

    def _complain(self, state: _TableState, problem: str) -> None:
        """Commits fail: says so, with the ledger as it was last known, for whoever looks at the status."""
        due = time.monotonic() - state.published_at > HEARTBEAT_S
        if state.last is not None:
            if due:
                self._tell(state, state.last, (), (problem,))
            return
        show_problems(state.committer.name, 1)
        if due and (said := self._published().get(state.committer.name)):
            now_ms = int(time.time() * 1000)
            repeated = replace(said, at_ms=now_ms, committer=self.name, verdicts=(), problems=(problem,))
            self._outbox.send(self._topics.ledger, repeated, key=said.table)
            state.published_at = time.monotonic()

    def _tell(
        self, state: _TableState, result: CommitResult, verdicts: tuple[Verdict, ...], problems: tuple[str, ...]
    ) -> None:
        table = state.committer.name
        message = LedgerState(
            table=table,
            at_ms=int(time.time() * 1000),
            committer=self.name,
            sequence=result.ledger.sequence,
            snapshot_id=result.snapshot_id,
            exists=result.exists,
            positions=tuple(
                Landed(p.topic, p.partition, at)
                for p, at in sorted(result.ledger.next.items())
                if p.topic not in result.made_anew
            ),
            verdicts=verdicts,
            announcements_next=state.settled_to,
            problems=problems,
        )
        for problem in set(problems) - set(state.problems):
            log.error("%s: %s", table, problem)
        state.problems = problems
        show_problems(table, len(problems))
        self._outbox.send(self._topics.ledger, message, key=table)
        state.published_at = time.monotonic()

    def _mirror(self) -> None:
        """The group's offsets in Kafka follow the lake; with several tables per topic, the slowest one counts."""
        positions: dict[TopicPartition, int] = {}
        for state in self._tables.values():
            if state.last is None or not state.last.exists:
                continue
            for partition, following in state.last.ledger.next.items():
                if partition.topic not in state.last.made_anew:
                    positions[partition] = min(following, positions.get(partition, following))
        changed = {p: at for p, at in positions.items() if self._mirrored.get(p) != at}
        if not changed:
            return
        try:
            self._group.write(changed)
            self._mirrored.update(changed)
            reach("commit.mirrored")
        except KafkaUnavailable as error:
            log.warning("%s; tried again after the next commit", error)


def _made_anew(topic: str) -> str:
    return (
        f"topic {topic} was deleted and made anew: its offsets began again, so its records cannot be told from those "
        f"the lake holds and are not read. Ingest it under another name or into another table; if it was moved with "
        f"its offsets, say so with: headgate maintain FILE --same-topic {topic}"
    )
